"""Values given on the command line: strict JSON where it is that, text where it is not."""

from __future__ import annotations

import json
import sys
from typing import Any

from nobroker.cli.failures import CommandError


class _NotStrict(Exception):
    """NaN or Infinity: Python reads them, JSON does not have them."""


def _refuse(token: str) -> Any:
    raise _NotStrict(token)


def parse_json(text: str) -> Any:
    """Return the value of the strict JSON document `text`.

    Raises:
        ValueError: it is not strict JSON; `NaN` and `Infinity` are not.
        CommandError: it is, but holds something that can't be kept as it stands.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except _NotStrict as token:
        raise ValueError(f"{token} is not JSON") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except RecursionError:
        raise CommandError("the JSON is nested too deeply to be read") from None
    except ValueError:
        # Only this error of the number parser is left: Python's limit on the digits of an integer.
        raise CommandError("the JSON has an integer with more digits than Python reads; quote it") from None


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise CommandError(f"the JSON has the number {digits}, which is too large for a float; quote it")
    return number


def parse_payload(text: str) -> Any:
    """Return the value of `text` where it is strict JSON, else `text` itself."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def read_argument(text: str) -> str:
    """Return `text`, or where it is `-` all of standard input without its last line break.

    Bytes that are not UTF-8 become lone surrogates, as they do in arguments.
    """
    if text != "-":
        return text
    data = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    return data.removesuffix("\n").removesuffix("\r")
