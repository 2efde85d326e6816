"""The program's log as JSON lines, and for structlog: what its lines say, by name.

All lines of loggers below ``nobroker`` begin with what happened, ``event=job.finished``;
names and values follow.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final

_EVENT: Final = re.compile(r"event=(\S+)")
_PLACE: Final = re.compile(r"(?:(\w+)=)?%(?:[#0 +-]*[\d.]*)([a-z%])")
_JOB: Final = {"job_id": "id", "job_class": "class", "job_queue": "queue"}


def facts_of(record: logging.LogRecord, values: Any = None) -> dict[str, Any]:
    """What a line of the log says, by name; ``event`` is what happened. Empty where it says nothing so.

    Args:
        values: those that stand in the line, where the record has lost them.
    """
    facts = getattr(record, "facts", None)
    if isinstance(facts, dict):
        return {"event": getattr(record, "event", None), **facts}
    found = {ours: getattr(record, name) for name, ours in _JOB.items() if hasattr(record, name)}
    text = record.msg
    if not isinstance(text, str) or (event := _EVENT.match(text)) is None:
        return found
    found = {"event": event[1], **found}
    values = iter(values or record.args or ())
    for name, kind in _PLACE.findall(text):
        if kind == "%":
            continue
        value = next(values, None)
        if name:
            found[name] = value
    return found


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, for exceptions ``exception``, and
    what the line says by name.
    """

    def format(self, record: logging.LogRecord) -> str:
        found = {
            **facts_of(record),
            "time": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str, skipkeys=True)


def add_facts(logger: Any, method: str, event_dict: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor for structlog: adds what lines of the project say, by name. It belongs into the
    ``foreign_pre_chain`` of a ``structlog.stdlib.ProcessorFormatter`` with ``pass_foreign_args=True``.
    """
    record = event_dict.get("_record")
    values = event_dict.pop("positional_args", None)
    if isinstance(record, logging.LogRecord) and (found := facts_of(record, values)):
        text = event_dict.get("event")
        event_dict.update(found)
        if "event" in found:
            event_dict["message"] = text
    return event_dict
