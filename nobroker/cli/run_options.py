"""The options that say how jobs are run, for the commands that take them: one for each setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nobroker.cli import failures, output
from nobroker.running.kinds import Choice, Flag, Text, Whole
from nobroker.running.settings import ALL, Setting, defaults

if TYPE_CHECKING:
    from nobroker.app.errors import ConfigProblem
    from nobroker.running.sources import Loaded

F = TypeVar("F", bound=Callable[..., Any])
SHORT = {"threads": "-t"}


def run_options(function: F) -> F:
    """Add ``--config`` and an option for each setting; those that are not given are None."""
    usual = defaults()
    for setting in reversed(ALL):
        function = _option(setting, usual[setting.argument])(function)
    return click.option(
        "--config",
        metavar="FILE",
        help="What else says how to run.  [default: queue.yml or config/queue.yml, where there is one]",
    )(function)


def _option(setting: Setting, usual: Any) -> Callable[[F], F]:
    kind = setting.kind
    words = [
        setting.option,
        *([SHORT[setting.argument]] if setting.argument in SHORT else []),
        setting.argument,
    ]
    more: dict[str, Any] = {"metavar": kind.metavar}
    if isinstance(kind, Flag):
        words[0] = f"{setting.option}/--no-{setting.option[2:]}"
        more = {}
    elif isinstance(kind, Whole):
        more["type"] = click.IntRange(kind.low, kind.high)
    elif isinstance(kind, Choice):
        more["type"] = click.Choice(kind.words)
    said = f"{setting.help}  [default: {_word(setting, usual)}]"
    return click.option(*words, default=None, help=said, **more)


def _word(setting: Setting, usual: Any) -> str:
    if setting.argument == "recurring":
        return "recurring.yml, where there is one"
    if usual is None:
        return "none"
    if isinstance(usual, bool):
        return "yes" if usual else "no"
    if isinstance(usual, float):
        return f"{usual:g}s"
    return ",".join(usual) if isinstance(usual, tuple) else str(usual)


def typed(problem: ConfigProblem) -> str:
    """What is told of a problem: an argument is called as it was typed."""
    options = {setting.argument: setting.option for setting in ALL} | {"config": "--config"}
    key = problem.key or ""
    return str(problem if problem.source else problem._replace(key=options.get(key, problem.key)))


def loaded(config: str | None, said: Mapping[str, Any]) -> Loaded:
    """What is to run, by what was typed and everything else.

    Raises:
        NothingBegun: it can't be as it is; all problems but the last are on stderr already.
    """
    from nobroker.app import ConfigError, MissingExtraError
    from nobroker.running.sources import load

    arguments = {name: Text(value) if isinstance(value, str) else value for name, value in said.items()}
    try:
        return load(file=config, arguments=arguments)
    except ConfigError as error:
        lines = [typed(one) for one in error.problems]
        for line in lines[:-1]:
            output.note(f"error: {line}")
        raise failures.NothingBegun(lines[-1]) from error
    except MissingExtraError as error:
        raise failures.NothingBegun(failures.one_line(error)) from error
