"""The logs of a directory: which there are, and removing one as a whole.

Invariant: a log is removed only while nobody has it open, oldest segments first and the lock file last, so an
interrupted removal is noticed by the next opening and never looks like a shorter log.
"""

import os

from nobroker_mmap import directories, files, locking
from nobroker_mmap import format as fmt
from nobroker_mmap.errors import LockTimeoutError, StorageError, because, not_opened


def list_logs(directory: str) -> list[str]:
    """Names of the logs in a directory, sorted; none when it does not exist.

    Raises:
        StorageError: the directory cannot be read.
    """
    try:
        found = files.entries(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{directory}: cannot be read: {because(error)}", path=directory) from error
    names = {split[0] for entry in found if (split := fmt.split_segment_name(entry.name)) is not None}
    return sorted(names)


def refuse_other_case(directory: str, name: str, *, read_only: bool) -> None:
    """Names that differ only in case would be one log on some systems.

    Raises:
        ValueError: there is a log whose name differs only in case.
        StorageError: the directory cannot be read, or (read-only) is not there.
    """
    try:
        missing = read_only and files.is_regular(directory) is None
    except OSError as error:
        raise not_opened(directory, error) from error
    if missing:
        raise StorageError(f"{directory}: there is no queue {name!r} here", path=directory)
    for other in list_logs(directory):
        if other != name and other.lower() == name.lower():
            raise ValueError(
                f"queue name {name!r}: {directory} has a queue {other!r}, which differs only in case"
            )


def drop_log(directory: str, name: str) -> None:
    """Remove a log with all its files. Copies kept aside (`.torn`, `.salvaged`) go too.

    Raises:
        StorageError: there is no such log, or it cannot be removed.
        LockTimeoutError: somebody has it open.
    """
    names = fmt.Names(directory, fmt.validate_name(name))
    if name not in list_logs(directory):
        raise StorageError(f"{directory}: there is no queue {name!r} here", path=directory)
    held: list[int] = []
    try:
        for path in (names.lock, names.openers):
            fd = files.open_or_create(path)
            held.append(fd)
            if not locking.try_lock(fd):
                raise LockTimeoutError(f"{path}: somebody has queue {name!r} open; close it everywhere first")
        ours = [entry.path for entry in files.entries(names.directory) if names.belongs(entry.name)]
        last = [path for path in ours if path in (names.lock, names.openers)]
        if directories.exists(names.processes):
            directories.remove(names.processes)
        for path in sorted(set(ours) - set(last)) + last:
            if not os.path.isdir(path) or os.path.islink(path):
                files.unlink(path)
        files.sync_directory(names.directory)
    except OSError as error:
        raise StorageError(
            f"{directory}: queue {name!r} could not be removed: {because(error)}", path=directory
        ) from error
    finally:
        for fd in held:
            os.close(fd)
