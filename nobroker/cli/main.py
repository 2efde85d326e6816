"""The entry point: finds the command, runs it, and turns whatever happens into an exit code and one line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from nobroker.cli import failures
from nobroker.cli.command import global_options
from nobroker.cli.settings import Settings
from nobroker.cli.text import escape

# Command -> module of this package, in the order of the help. A module is imported when its command is typed.
COMMANDS = {
    "enqueue": "enqueue",
    "import": "import_jobs",
    "lease": "lease",
    "ack": "ack",
    "nack": "nack",
    "cancel": "cancel",
    "work": "work",
    "run": "run",
    "ps": "ps",
    "top": "top",
    "config": "config",
    "recurring": "recurring",
    "stats": "stats",
    "list": "list_jobs",
    "show": "show",
    "queues": "queues",
    "dlq": "dlq",
    "pause": "pause",
    "resume": "resume",
    "purge": "purge",
    "drop": "drop",
    "compact": "compact",
    "inspect": "inspect_log",
    "dump": "dump",
    "check": "check",
    "recover": "recover",
    "backup": "backup",
    "bench": "bench",
    "demo": "demo",
}

EPILOG = """\b
Exit codes: 0 done, 1 an error, 2 wrong usage, 3 nothing there (`lease` on an empty queue),
75 start me again (`run`).

\b
Examples:
  nobroker enqueue '{"mail": "ann@example.org"}'
  nobroker work tasks:send -c 4
  nobroker stats
  nobroker COMMAND --help
"""


class LazyGroup(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found: click.Command = importlib.import_module(f"nobroker.cli.{module}").cli
        return found


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from nobroker._version import __version__

        click.echo(f"nobroker {__version__}")
        ctx.exit(0)


def build() -> click.Group:
    """Return the command `nobroker` with everything below it."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_version,
        help="Show the version.",
    )
    return LazyGroup(
        "nobroker",
        params=[*global_options(), version],
        help="A durable job queue that is a directory: no server, no broker.",
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after the program's name; those of the process when left out.

    Returns:
        0 done, 1 an error that was said in one line on stderr, 2 wrong usage, 3 nothing there, 75 `run` is
        to be started again, 130 interrupted, 141 when whoever read the output has gone.
    """
    _never_fail_to_print()
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return failures.PIPE_CLOSED
    except KeyboardInterrupt:
        return failures.INTERRUPTED
    except OSError as error:  # the last of the output could not be written
        return _say(error)
    return code


def _run(argv: list[str]) -> int:
    try:
        result = _invoke(argv)
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return failures.WRONG_USAGE
    except click.UsageError as error:
        return _say_usage(error)
    except (click.Abort, EOFError):
        # A prompt that was answered by Ctrl-C or by the end of the input.
        print("error: not confirmed, nothing was changed (--yes confirms)", file=sys.stderr)
        return failures.FAILED
    except click.ClickException as error:
        return _say_text(escape(error.format_message()))
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return failures.INTERRUPTED
    except Exception as error:
        if os.environ.get("NOBROKER_TRACEBACK"):
            raise
        return _say(error)
    return result if isinstance(result, int) else failures.DONE


def _invoke(argv: list[str]) -> Any:
    """Parse and run. `click.Group.main` would turn Ctrl-C and a closed pipe into exit codes of its own."""
    group = build()
    completion = os.environ.get("_NOBROKER_COMPLETE")
    if completion:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, "nobroker", "_NOBROKER_COMPLETE", completion)
    with group.make_context("nobroker", argv, obj=Settings()) as context:
        return group.invoke(context)


def _say(error: BaseException) -> int:
    _say_text(failures.one_line(error))
    return error.code if isinstance(error, failures.CommandError) else failures.FAILED


def _say_text(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return failures.FAILED


def _say_usage(error: click.UsageError) -> int:
    if error.ctx is not None:
        path = error.ctx.command_path
        print(f"usage: {escape(error.ctx.get_usage().removeprefix('Usage: '))}", file=sys.stderr)
        print(f"error: {escape(error.format_message())} (see `{path} --help`)", file=sys.stderr)
    else:
        print(f"error: {escape(error.format_message())}", file=sys.stderr)
    return failures.WRONG_USAGE


def _never_fail_to_print() -> None:
    """Print what the terminal's encoding lacks as escapes rather than fail half-way through a table."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Point stdout at nothing, so that the interpreter's last flush has nobody to complain about."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a real file: there is no last flush to fail
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
