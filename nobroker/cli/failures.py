"""How a command ends: exit codes, and the one line that says what went wrong."""

from __future__ import annotations

DONE = 0
FAILED = 1
WRONG_USAGE = 2
NOTHING_THERE = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
PIPE_CLOSED = 141  # 128 + SIGPIPE
RECYCLE = 75  # EX_TEMPFAIL: ended in good order, and wants to be started again


class CommandError(Exception):
    """Something that a person has to put right. Its text is the one line they get to read."""

    code = FAILED


class NothingBegun(CommandError):
    """What was typed, or what it names, can't be used: to start the same again would not help."""

    code = WRONG_USAGE


def one_line(error: BaseException) -> str:
    """Return what `error` says, in one line that is safe to print, with its type where the text is little."""
    from nobroker.cli.text import escape
    from nobroker.errors import NobrokerError

    try:
        text = " ".join(part.strip() for part in str(error).splitlines() if part.strip())
    except Exception as broken:  # a __str__ that raises: the types are all there is to say
        text = f"(its text could not be made: {type(broken).__name__})"
    if isinstance(error, NobrokerError | CommandError | ValueError | TypeError) and text:
        return escape(text)
    if isinstance(error, OSError) and error.strerror:
        return escape(
            f"{error.strerror}: {error.filename!r}" if error.filename is not None else error.strerror
        )
    return escape(f"{type(error).__name__}: {text}" if text else type(error).__name__)
