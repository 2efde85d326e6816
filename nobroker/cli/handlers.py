"""From `module:function` to the function."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from nobroker.cli.failures import CommandError, one_line


def importable_here() -> str:
    """Let modules of the current directory be imported; returns it."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    return here


def load_handler(spec: str) -> Callable[..., Any]:
    """Return the function that `module:function` names; the current directory is importable.

    Raises:
        CommandError: the text has another form, the module can't be imported, or has no such function.
    """
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path:
        raise CommandError(
            f"{spec!r} does not name a handler; write module:function, for example tasks:send_mail"
        )
    here = importable_here()
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        where = (
            f" (looked in {here!r} and where Python looks)" if error.name == module_name.split(".")[0] else ""
        )
        raise CommandError(f"can't import {module_name!r}: {one_line(error)}{where}") from error
    except SystemExit as error:
        raise CommandError(f"can't import {module_name!r}: it ends the program ({error.code!r})") from error
    except Exception as error:  # whatever the module does when it is imported
        raise CommandError(
            f"can't import {module_name!r}: {type(error).__name__}: {one_line(error)}"
        ) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise CommandError(f"module {module_name!r} has no {path!r}") from None
    if not callable(found):
        raise CommandError(f"{spec!r} is a {type(found).__name__}, not a function")
    handler: Callable[..., Any] = found
    return handler
