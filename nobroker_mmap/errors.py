"""What can go wrong, said as what, where and what next.

Invariant: a `StorageError` says whether the operation can have happened ("unknown") or cannot ("not
written"), so a caller knows if repeating it is safe.
"""

import errno
from typing import Literal

Outcome = Literal["not written", "unknown"]


class NobrokerError(Exception):
    """Base of every error of the project."""


class StorageError(NobrokerError):
    """The disk, the files or their permissions do not allow what was asked.

    Attributes:
        outcome: "not written": nothing of the operation will ever be seen. "unknown": it may have happened.
        path: the file concerned, or None.
    """

    def __init__(self, message: str, *, path: str | None = None, outcome: Outcome = "not written") -> None:
        super().__init__(message)
        self.path = path
        self.outcome: Outcome = outcome


class CorruptLogError(NobrokerError):
    """Bytes that had been promised are not what was written.

    Attributes:
        path: the damaged file.
        offset: where in it the damage begins, in bytes.
        reason: what is wrong there, without the place and what to do next.
    """

    def __init__(self, message: str, *, path: str, offset: int, reason: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.reason = reason or message


class LockTimeoutError(NobrokerError):
    """The lock was held by others for the whole timeout.

    Attributes:
        pid: the process that held it last, or 0 when unknown.
    """

    def __init__(self, message: str, *, pid: int = 0) -> None:
        super().__init__(message)
        self.pid = pid


class QueueClosedError(NobrokerError):
    """The handle was closed; open the queue again."""


class Restart(Exception):
    """What the caller has in memory no longer follows from the log; load the snapshot and replay again."""


_NEXT = {
    errno.EACCES: "give the user of this process the right to read and write the queue's files and directory,"
    " or open it read-only",
    errno.EROFS: "the file system is mounted read-only; mount it for writing, or open the queue read-only",
    errno.ENOSPC: "free some space and try again",
    getattr(errno, "EDQUOT", errno.ENOSPC): "raise the quota or free some space, and try again",
    errno.EISDIR: "a directory stands where a file of the queue belongs; move it away",
    errno.EMFILE: "this process has too many files open; raise its limit (ulimit -n)",
}
_NEXT[errno.EPERM] = _NEXT[errno.EACCES]


def because(error: OSError) -> str:
    """What the system said, and what to do about it where that is known."""
    following = _NEXT.get(error.errno or 0)
    return f"{error}; {following}" if following else str(error)


def not_opened(path: str, error: OSError) -> StorageError:
    """The system does not let a file or directory be opened."""
    return StorageError(f"{path}: cannot be opened: {because(error)}", path=path)


def damaged(path: str, offset: int, what: str) -> CorruptLogError:
    """A `CorruptLogError` in the one wording that all of them have."""
    return CorruptLogError(
        f"{path}: damaged at offset {offset}: {what}. Nothing was changed; "
        "'nobroker recover --salvage' keeps a copy, saves every other record and says what was lost",
        path=path,
        offset=offset,
        reason=what,
    )
