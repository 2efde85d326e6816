"""Making and removing a directory beside the files of a log. No symbolic link to one is followed."""

import errno
import os
import stat

from nobroker_mmap import files


def make(path: str) -> None:
    """See to it that there is a directory.

    Raises:
        OSError: there is something else, or it cannot be made.
    """
    try:
        os.mkdir(path)
    except FileExistsError:
        if not exists(path):
            raise OSError(errno.ENOTDIR, "not a directory, and left as it is; move it away", path) from None


def exists(path: str) -> bool:
    """Is there a directory?"""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def remove(path: str) -> bool:
    """Remove a directory with the regular files in it. False when something else is in it, which stays.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        for entry in files.entries(path):
            if files.is_regular(entry.path):
                files.unlink(entry.path)
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
