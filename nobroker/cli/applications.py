"""From the packages that are named on the command line to the application whose jobs they define."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from nobroker.app import App, DiscoveryError, DuplicateJobError, MissingExtraError, RecurringError
from nobroker.app.discovery import applications, discover
from nobroker.cli.failures import NothingBegun, one_line
from nobroker.cli.handlers import importable_here

RECURRING = "recurring.yml"


def load_application(packages: Sequence[str], chosen: str | None) -> App:
    """Import the packages, with all that is in them, and return the application of their jobs.

    Args:
        packages: dotted names, each maybe followed by ``:`` and the name of the application in it.
        chosen: ``module:name`` of the application; None: the one whose jobs were defined.

    Raises:
        NothingBegun: a package can't be imported, or it is not clear which application is meant.
    """
    names = [package.partition(":")[0] for package in packages]
    named = [spec for spec in packages if ":" in spec]
    if chosen is not None:
        if not all(chosen.partition(":")):
            raise NothingBegun(f"--app takes MODULE:NAME, such as {names[0]}:app, not {chosen!r}")
        named = [chosen]
        names.append(chosen.partition(":")[0])
    modules = _imported(names)
    found = _distinct([_attribute(spec) for spec in named]) if named else _defined_in(modules)
    if not found:
        places = ", ".join(f"{name} ({_place(name)})" for name in names)
        raise NothingBegun(
            f"no job is defined in {places}: put @app.job before a function there, or name the package"
            " that the jobs are in"
        )
    if len(found) > 1:
        spelled = [_spelled(app, modules) for app in found]
        raise NothingBegun(
            f"these jobs are of {len(found)} applications: {', '.join(spelled)};"
            f" say which, for example --app {spelled[0]}"
        )
    if not found[0].jobs:
        raise NothingBegun(
            f"{named[0]} has no jobs yet; name the packages that they are in, too:"
            f" nobroker run {named[0]} PACKAGE"
        )
    return found[0]


def take_file(app: App, path: str | None, told: Callable[[str], str] = str) -> None:
    """Let the application take recurring tasks from a file.

    Args:
        path: None: recurring.yml of the current directory, where there is one.
        told: what is told of a file that is not there; it adds who names it.

    Raises:
        NothingBegun: there is no such file, or what reads it is not installed.
    """
    if path is None and not os.path.isfile(RECURRING):
        return
    try:
        app.recurring_file(path or RECURRING)
    except RecurringError as error:
        raise NothingBegun(told(one_line(error))) from error
    except MissingExtraError as error:
        raise NothingBegun(one_line(error)) from error


def _imported(names: Sequence[str]) -> list[str]:
    here = importable_here()
    try:
        return discover(names, recursive=True, on_error="raise")
    except (DiscoveryError, DuplicateJobError, ValueError) as error:
        cause = error.__cause__
        hint = ""
        if isinstance(cause, ModuleNotFoundError) and cause.name in {n.partition(".")[0] for n in names}:
            hint = f" (looked in {here!r} and where Python looks)"
        paths = [name for name in names if os.path.exists(name)]
        if paths:
            spelled = paths[0].removesuffix(".py").strip("./").replace(os.sep, ".")
            hint = f"; write it as Python imports it: {spelled}"
        raise NothingBegun(one_line(error) + hint) from error


def _defined_in(modules: Sequence[str]) -> list[App]:
    """All that have jobs; but where some have jobs in these modules, only those."""
    found = applications()
    inside = [app for app in found if any(job.module in modules for job in app.jobs.values())]
    return inside or found


def _attribute(spec: str) -> App:
    module, _, path = spec.partition(":")
    value: object = sys.modules[module]
    for name in path.split("."):
        value = getattr(value, name, None)
    if not isinstance(value, App):
        what = "nothing" if value is None else f"a {type(value).__name__}"
        raise NothingBegun(f"{spec!r} is {what}, not an App")
    return value


def _distinct(apps: Sequence[App]) -> list[App]:
    return list({id(app): app for app in apps}.values())


def _place(name: str) -> str:
    """Where a module was found: a directory of another kind may have the name that was meant."""
    module = sys.modules[name]
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "no file")


def _spelled(app: App, modules: Sequence[str]) -> str:
    """The application as it is typed: ``module:name``."""
    for module in [*modules, *sys.modules]:
        for name, value in list(getattr(sys.modules[module], "__dict__", {}).items()):
            if value is app and not name.startswith("_"):
                return f"{module}:{name}"
    return repr(app)
