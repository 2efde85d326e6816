"""What the type checker makes of calls of jobs: right ones pass, wrong ones are errors, as one expects.

A line of the program below that ends in ``# error: CODE`` must be reported with that code, and no other line
may be reported at all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any, assert_type

from nobroker import App, BaseJob, Discard, JobContext, JobHandle, Rescue, Retry, current_job

app = App("jobs", fsync=False)

@app.job
def plain(user_id: int, *, locale: str = "en") -> list[str]:
    return [locale] * user_id

@app.job(queue="emails", retry=[Retry(ConnectionError, attempts=5)], timeout=30)
async def waiting(user_id: int, name: str) -> float:
    return 1.5

@app.job(name="nothing", discard=Discard(KeyError), rescue=[Rescue(OSError, lambda job, error: None)])
def nothing() -> None: ...

# called as they are
assert_type(plain(1), list[str])
coroutine: Coroutine[Any, Any, float] = waiting(1, "a")
waiting(1, "a")  # error: unused-coroutine
plain("1")  # error: arg-type
plain()  # error: call-arg

@app.recurring("@daily", args=[1])
@app.job
def daily(day: int) -> str:
    return str(day)

assert_type(daily.perform_later(1), JobHandle[str])
daily.perform_later("1")  # error: arg-type
app.recurring("every 2 hours", plain, name="again", args=[1])

# right calls
assert_type(plain.perform_later(42, locale="de"), JobHandle[list[str]])
assert_type(waiting.perform_later(42, "Ann"), JobHandle[float])
assert_type(nothing.perform_later(), JobHandle[None])
assert_type(plain.set(wait=60).perform_later(1), JobHandle[list[str]])
later = waiting.set(wait=timedelta(minutes=1)).set(priority=3)
assert_type(later.perform_later(1, name="Ann"), JobHandle[float])
assert_type(plain.perform_later(1).result(), list[str])
assert_type(waiting.perform_later(1, "a").result(timeout=5), float)
assert_type(plain.perform_now(1), list[str])
assert_type(waiting.perform_now(1, "a"), float)
handles = app.perform_all_later([plain.build(1), waiting.build(1, "a"), nothing.set(wait=1).build()])
assert_type(handles[0], JobHandle[Any])
assert_type(app.handle("id"), JobHandle[Any])

# wrong ones
plain.perform_later()  # error: call-arg
plain.perform_later("1")  # error: arg-type
plain.perform_later(1, "de")  # error: call-arg
plain.perform_later(1, local="de")  # error: call-arg
plain.perform_later(1, locale=5)  # error: arg-type
waiting.perform_later(1)  # error: call-arg
waiting.perform_later(1, 2)  # error: arg-type
nothing.perform_later(1)  # error: call-arg
plain.set(wait=60).perform_later("1")  # error: arg-type
waiting.set(wait=60).perform_later(1, "a", "b")  # error: call-arg
plain.build("1")  # error: arg-type
waiting.set(queue="q").build()  # error: call-arg
plain.perform_now(None)  # error: arg-type
waiting.perform_now(1, b"a")  # error: arg-type
number: int = plain.perform_later(1).result()  # error: assignment
app.perform_all_later([plain])  # error: list-item
plain.result()  # error: attr-defined

# hooks, middleware, events, classes
@plain.before_perform
def before(job: JobContext) -> None:
    assert_type(job.attempts, int)

@app.middleware
def around(job: JobContext) -> Iterator[None]:
    yield

@app.on_job_error
def told(job: JobContext, error: BaseException) -> None: ...

@app.register
class Report(BaseJob):
    queue = "reports"
    priority = 5
    retry = [Retry(OSError)]

    def perform(self, account: int) -> int:
        assert_type(self.attempts, int)
        assert_type(self.id, str | None)
        self.logger.info("%d", account)
        return account

assert_type(Report.perform_later(5), JobHandle[Any])
assert_type(current_job(), JobContext)
"""


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """Lines and the codes of what is reported there."""
    pytest.importorskip("mypy")
    directory = tmp_path_factory.mktemp("typing")
    (directory / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
         "--follow-imports=silent", "--config-file", str(ROOT / "pyproject.toml"), "program.py"],
        cwd=directory, env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"program\.py:(\d+): error: .*\[([a-z-]+)\]", line)
        if match is None:
            assert ": note: " in line, done.stdout
        else:
            found.setdefault(int(match[1]), []).append(match[2])
    return found


def test_wrong_calls_are_rejected_and_right_ones_are_not(reported: dict[int, list[str]]) -> None:
    expected = {
        number: [match[1]]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if (match := re.search(r"# error: ([a-z-]+)$", line))
    }
    assert len(expected) == 21
    assert reported == expected
