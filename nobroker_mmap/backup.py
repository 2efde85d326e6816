"""A consistent copy of a log while others work.

Invariants
- The copy ends at one LSN up to which everything was written, and holds every byte before it that counts
  then.
- No lock is taken: what is before that LSN never changes; when segments are retired meanwhile, the copy
  goes on to a later LSN, by which they do not count any more.
- The copy has no lock file and no caches, so it opens in a new lineage and is never mistaken for the
  original.
"""

import os
from typing import Any

from nobroker_mmap import control as ctl
from nobroker_mmap import files, opening, recovery
from nobroker_mmap import format as fmt
from nobroker_mmap.chain import numbered_files
from nobroker_mmap.errors import CorruptLogError, StorageError, because
from nobroker_mmap.segment import Segment

_ATTEMPTS = 20


def copy_log(names: fmt.Names, target: str, words: Any, newest: int) -> str:
    """Copy a log into an empty or new directory; returns it. `words`: the control page of this boot, or None.

    Raises:
        ValueError: the target is not empty, or is the log's own directory.
        StorageError: the files cannot be copied.
        CorruptLogError: the log is damaged.
    """
    try:
        os.makedirs(target, exist_ok=True)
        if os.listdir(target):
            raise ValueError(f"{target}: not empty; give a new or an empty directory")
        copies = fmt.Names(target, names.name)
        left = _ATTEMPTS
        while left:
            left -= 1
            try:
                _copy_once(names, copies, words, newest)
                left = 0
            except (FileNotFoundError, CorruptLogError):
                # Segments may have been retired under the copy. If not, the next attempt says the same again.
                if not left or words is None:
                    raise
                for entry in files.entries(copies.directory):
                    files.unlink(entry.path)
        files.sync_directory(target)
    except OSError as error:
        raise StorageError(f"{target}: the copy failed: {because(error)}", path=target) from error
    return target


def _copy_once(names: fmt.Names, copies: fmt.Names, words: Any, newest: int) -> None:
    end: int | None = None
    if words is not None:
        end, floor, newest = int(words[ctl.APPENDED]), int(words[ctl.FLOOR]), int(words[ctl.ACTIVE])
    else:
        last, damage = recovery.find_newest(names, numbered_files(names)["seg"], [])
        if damage is not None:
            raise damage
        newest, floor = last.number, last.header.floor
    segments = opening.survey(names, floor, newest)
    while end is not None and len(segments) > 1 and segments[-1].base > end:
        segments.pop()
    for segment in segments:
        _copy_segment(segment, copies.segment(segment.number), None if end is None else end - segment.origin)


def _copy_segment(segment: Segment, target: str, stop: int | None) -> None:
    source = files.open_read(segment.path)
    try:
        copy = files.create(target)
        try:
            last = segment.end or segment.size
            if stop is not None and not segment.end:
                last = min(last, stop)
            files.copy_range(source, copy, 0, files.last_nonzero(source, 0, last), 0)
            files.resize(copy, segment.size)
            files.sync_file(copy)
        finally:
            os.close(copy)
    finally:
        os.close(source)
