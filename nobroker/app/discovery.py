"""Importing the modules that jobs are defined in."""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakSet

from nobroker.app.errors import DiscoveryError, DuplicateJobError

if TYPE_CHECKING:
    from nobroker.app.application import App

_log = logging.getLogger("nobroker.app")

made: WeakSet[App] = WeakSet()
"""All applications of this process."""


def applications() -> list[App]:
    """Those that have jobs, by their directories."""
    return sorted((app for app in made if app.jobs), key=lambda app: (os.fspath(app.path), app.name))


def discover(packages: Iterable[str], *, recursive: bool, on_error: str) -> list[str]:
    """Import packages or modules, so that the jobs in them are registered.

    Args:
        packages: dotted names.
        recursive: also all that is in the packages, at any depth.
        on_error: "raise", or "warn": log a module that can't be imported, and go on.

    Returns:
        The names of the imported modules, in the order of their import.

    Raises:
        DiscoveryError: a module can't be imported; what it raised is the cause.
        DuplicateJobError: two jobs have one name.
    """
    if on_error not in ("raise", "warn"):
        raise ValueError(f'on_error must be "raise" or "warn", not {on_error!r}')
    names = list(packages)
    for name in names:
        if type(name) is not str or not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"expected the dotted name of a package such as 'myapp.jobs', not {name!r}")
    imported: list[str] = []
    while names:
        name = names.pop(0)
        if name in imported or not _import(name, on_error):
            continue
        imported.append(name)
        path = getattr(importlib.import_module(name), "__path__", None)
        if recursive and path is not None:
            found = sorted(info.name for info in pkgutil.iter_modules(path))
            names[:0] = [f"{name}.{inner}" for inner in found if inner.isidentifier() and inner != "__main__"]
    return imported


def _import(name: str, on_error: str) -> bool:
    try:
        importlib.import_module(name)
    except DuplicateJobError:
        raise
    except (Exception, SystemExit) as error:  # a script that was not meant to be imported may exit
        if on_error == "raise":
            raise DiscoveryError(
                f"could not import {name}: {type(error).__name__}: {error}. Jobs in it are not registered"
            ) from error
        _log.warning(
            "event=discovery.failed module=%s error=%s: %s", name, type(error).__name__, error, exc_info=True
        )
        return False
    return True
