"""What is to run, from all who may say so. Of two who say the same thing, the first of these counts:
arguments, the environment (``NOBROKER_THREADS``), the file ``queue.yml``, the defaults.

Where the file has several workers, ``queues`` of the arguments or the environment puts one worker in their
place, since it says which one is meant; every other setting of a worker is laid over each of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from nobroker.app.errors import ConfigError, ConfigProblem
from nobroker.app.options import known
from nobroker.app.queue_lists import FORCE, forced_queue
from nobroker.running.config import RunConfig, SchedulerConfig, WorkerConfig
from nobroker.running.kinds import Text
from nobroker.running.queue_file import Contents, read
from nobroker.running.settings import (
    ALL,
    OTHER_VARIABLES,
    PREFIX,
    SCHEDULER,
    TOP,
    WORKER,
    Setting,
    can_fork,
    defaults,
)

FILES: Final = ("queue.yml", "config/queue.yml")
"""Where a file is looked for; the first one counts."""
ENVIRONMENT: Final = "development"
"""The environment, when nobody says another one."""
ARGUMENT: Final = "argument"
DEFAULT: Final = "default"
ARGUMENTS: Final = (*[setting.argument for setting in ALL], "once")


class Loaded(NamedTuple):
    """What is to run.

    Attributes:
        config: that.
        origins: who says each of its values, by key: ``workers[0].threads``, ``scheduler.enabled``. It is
            "argument", "default", the name of a variable, or a file with the line.
        file: that was read; None: there was none.
        environment: that counts in a file that is keyed by environment.
        forced: the queue that everything is pinned to; None: nothing is.
        warnings: what may be a mistake, each in a line.
    """

    config: RunConfig
    origins: dict[str, str]
    file: str | None
    environment: str
    forced: str | None
    warnings: tuple[str, ...]

    def problem(self, key: str, reason: str) -> ConfigProblem:
        """What turned out to be wrong with a value later on, told with who says it.

        Args:
            key: as in `origins`.
        """
        origin = self.origins[key]
        if origin == ARGUMENT:
            return ConfigProblem(reason, key=key.rpartition(".")[2])
        return ConfigProblem(reason, origin, key=None if origin.startswith(PREFIX) else key)


class Said(NamedTuple):
    """A value, and who says it."""

    value: Any
    origin: str


def load(
    directory: str | os.PathLike[str] = os.curdir,
    *,
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Loaded:
    """What is to run.

    Args:
        directory: where files are looked for.
        file: this one, which must be there.
        environment: variables; None: those of this process.
        arguments: by names of settings; None: not said. `Text` is read as what it says.

    Raises:
        ConfigError: with all that is wrong in one of the sources.
        MissingExtraError: there is a file, and what reads it is not installed.
        TypeError: an argument that there is not.
    """
    variables = os.environ if environment is None else environment
    chosen = variables.get("NOBROKER_ENV") or None
    found = _file(os.fspath(directory), file, variables)
    contents = Contents(None, {}, {})
    if found is not None:
        contents = read(found, chosen or ENVIRONMENT, chosen is not None, variables)
    said = _of_environment(variables) | _of_arguments(arguments or {})
    forced = forced_queue(variables)
    origins: dict[str, str] = {}
    once = bool((arguments or {}).get("once"))
    config = _put_together(contents, found, said, forced, origins)
    origins["once"] = ARGUMENT if once else DEFAULT
    _check(config, origins)
    return Loaded(
        replace(config, once=once), origins, found, chosen or ENVIRONMENT, forced, tuple(_warnings(variables))
    )


def _file(directory: str, given: str | os.PathLike[str] | None, variables: Mapping[str, str]) -> str | None:
    source = None
    if given is None:
        given = variables.get("NOBROKER_CONFIG") or None
        source = None if given is None else "NOBROKER_CONFIG"
    if given is None:
        places = (os.path.normpath(os.path.join(directory, name)) for name in FILES)
        return next(filter(os.path.lexists, places), None)
    name = os.path.normpath(os.path.join(directory, given))
    if not os.path.exists(name):
        raise ConfigError(
            [ConfigProblem(f"there is no file {name!r}", source, key=None if source else "config")]
        )
    return name


def _of_environment(variables: Mapping[str, str]) -> dict[str, Said]:
    """What variables say, by argument. One that is empty says nothing."""
    said: dict[str, Said] = {}
    problems = []
    for setting in ALL:
        text = variables.get(setting.variable, "")
        if text.strip():
            try:
                said[setting.argument] = Said(setting.kind(Text(text)), setting.variable)
            except ValueError as error:
                problems.append(ConfigProblem(str(error), setting.variable))
    if problems:
        raise ConfigError(problems)
    return said


def _of_arguments(arguments: Mapping[str, Any]) -> dict[str, Said]:
    known("run", arguments, ARGUMENTS)
    said: dict[str, Said] = {}
    problems = []
    for setting in ALL:
        value = arguments.get(setting.argument)
        if value is not None:
            try:
                said[setting.argument] = Said(setting.kind(value), ARGUMENT)
            except ValueError as error:
                problems.append(ConfigProblem(str(error), key=setting.argument))
    if problems:
        raise ConfigError(problems)
    return said


def _put_together(
    contents: Contents,
    file: str | None,
    said: Mapping[str, Said],
    forced: str | None,
    origins: dict[str, str],
) -> RunConfig:
    usual = {name: Said(value, DEFAULT) for name, value in defaults().items()}

    def section(settings: Sequence[Setting], found: Mapping[str, Any], where: str) -> dict[str, Any]:
        values = {}
        for setting in settings:
            one = said.get(setting.argument) or usual[setting.argument]
            if one.origin == DEFAULT and setting.key in found:
                value, line = found[setting.key]
                one = Said(value, f"{file}, line {line}")
            if forced is not None and setting.key == "queues":
                one = Said((forced,), FORCE)
            values[setting.key] = one.value
            origins[where + setting.key] = one.origin
        return values

    workers = contents.workers or [{}]
    if "queues" in said and len(workers) > 1:
        workers = [{}]
    return RunConfig(
        workers=tuple(
            WorkerConfig(**section(WORKER, worker, f"workers[{number}]."))
            for number, worker in enumerate(workers)
        ),
        scheduler=SchedulerConfig(**section(SCHEDULER, contents.scheduler, "scheduler.")),
        **section(TOP, contents.top, ""),
    )


def _check(config: RunConfig, origins: Mapping[str, str]) -> None:
    """What no value can be wrong in by itself."""
    if config.start_method == "fork" and not can_fork():
        origin = origins["start_method"]
        raise ConfigError([ConfigProblem("processes are not forked on this system: spawn", origin)])


def _warnings(variables: Mapping[str, str]) -> list[str]:
    """Variables that nobody reads and that are nearly known ones. Others are somebody else's."""
    names = [*[setting.argument.upper() for setting in ALL], *OTHER_VARIABLES]
    said = sorted(name.removeprefix(PREFIX) for name in variables if name.startswith(PREFIX))
    found = []
    for name in said:
        near = [] if name in names else get_close_matches(name[:60], names, 1, 0.86)
        if near:
            found.append(f"nobody reads {PREFIX}{name[:60]}; did you mean {PREFIX}{near[0]}?")
    return found
