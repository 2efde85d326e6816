"""Lines of the log as JSON, and for structlog."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from nobroker.app.context import JobLogger
from nobroker.running.logs import JsonFormatter, add_facts, facts_of


class Kept(logging.Handler):
    """Keeps the last record."""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def log(kept: Kept) -> logging.Logger:
    made = logging.Logger("some.name")
    made.addHandler(kept)
    return made


def test_a_line_of_ours(log: logging.Logger, kept: Kept) -> None:
    log.warning("event=job.stuck class=%s id=%s timeout=%g: 100%% stuck, %d times", "Send", "a-1", 2.5, 3)
    assert facts_of(kept.last) == {"event": "job.stuck", "class": "Send", "id": "a-1", "timeout": 2.5}
    found = json.loads(JsonFormatter().format(kept.last))
    moment = found.pop("time")
    assert found == {
        "event": "job.stuck", "class": "Send", "id": "a-1", "timeout": 2.5, "level": "warning",
        "logger": "some.name",
        "message": "event=job.stuck class=Send id=a-1 timeout=2.5: 100% stuck, 3 times",
    }  # fmt: skip
    assert len(moment) == len("2026-12-01T10:00:00.123Z")
    assert moment.endswith("Z")


def test_a_line_with_its_facts_beside_it(log: logging.Logger, kept: Kept) -> None:
    facts = {"id": "x", "ms": 1.5, "outcome": "done"}
    log.info("whatever %s", "is said", extra={"event": "job.finished", "facts": facts})
    assert facts_of(kept.last) == {"event": "job.finished", **facts}


def test_a_line_of_a_job(log: logging.Logger, kept: Kept) -> None:
    extra = {"job_id": "a-1", "job_class": "Send", "job_queue": "mails"}
    JobLogger(log, extra).info("to %s", "ann")
    assert facts_of(kept.last) == {"id": "a-1", "class": "Send", "queue": "mails"}
    assert json.loads(JsonFormatter().format(kept.last))["message"] == "[Send a-1] to ann"


@pytest.mark.parametrize(
    ("message", "args"),
    [("plain", ()), (7, ()), ("a %(b)s", ({"b": 1},)), ("eventful=1", ()), ("id=%s", ("x",))],
)
def test_a_line_of_others(log: logging.Logger, kept: Kept, message: Any, args: tuple[Any, ...]) -> None:
    log.info(message, *args)
    assert facts_of(kept.last) == {}
    assert json.loads(JsonFormatter().format(kept.last))["message"] == kept.last.getMessage()


def test_too_few_values_are_no_error_here(log: logging.Logger, kept: Kept) -> None:
    record = logging.LogRecord("n", logging.INFO, "f", 1, "event=x id=%s class=%s", ("only",), None)
    assert facts_of(record) == {"event": "x", "id": "only", "class": None}


def test_an_exception_and_what_json_lacks_are_one_line(log: logging.Logger, kept: Kept) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("event=hook.failed hook=%s what=%r \x1b[2J\u202e", {1, 2}, object())
    text = JsonFormatter().format(kept.last)
    assert text.isascii()
    assert "\n" not in text
    found = json.loads(text)
    assert found["hook"] == "{1, 2}"
    assert found["exception"].endswith("ValueError: two\nlines")


def test_names_of_ours_do_not_hide_those_of_every_line(log: logging.Logger, kept: Kept) -> None:
    log.info("event=x level=%s message=%s time=%s", "high", "none", "now")
    found = json.loads(JsonFormatter().format(kept.last))
    assert (found["level"], found["logger"]) == ("info", "some.name")


def test_structlog_gets_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    structlog = pytest.importorskip("structlog", reason="the extra 'structlog'")
    log = logging.Logger("some.name")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, add_facts],
            pass_foreign_args=True,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    log.addHandler(handler)
    log.info("event=job.unknown id=%s queue=%s", "a-1", "mails")
    assert json.loads(capsys.readouterr().out) == {
        "event": "job.unknown", "id": "a-1", "queue": "mails", "level": "info",
        "message": "event=job.unknown id=a-1 queue=mails",
    }  # fmt: skip
    log.info("whatever")
    assert json.loads(capsys.readouterr().out) == {"event": "whatever", "level": "info"}


def test_a_line_that_structlog_made_itself_is_left_as_it_is() -> None:
    assert add_facts(None, "info", {"event": "x"}) == {"event": "x"}
