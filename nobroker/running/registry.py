"""The processes of a queue, as anybody can see them: in the directory ``NAME.processes`` beside its files.

Each process has two files there, named after its id: ``ID.lock``, on which it holds a lock as long as it
lives, and ``ID.json``, what it says of itself, replaced at each sign of life.

Invariants
- It is no promise. Nothing is synced, and whatever stands there may be late, lost or foreign. Whoever cannot
  write there works as well without.
- A process of this boot lives while its lock is held. Of another machine, or an earlier boot, the lock says
  nothing: there a process lives while its signs of life come.
- Ids are never given twice, so what is removed of a dead process is of no other one.
- A lock is held before its ``.json`` appears. So what has a ``.json`` and no held lock is dead.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Final

from nobroker.clock import SystemClock
from nobroker.errors import LockTimeoutError
from nobroker.running import figures, spoken
from nobroker.running.info import ProcessInfo
from nobroker_mmap import directories, files, locking
from nobroker_mmap.format import Names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nobroker.queue import Queue

KINDS: Final = ("supervisor", "worker", "scheduler")
STATES: Final = ("starting", "running", "quiet", "stopping")
MISSED_BEATS: Final = 5
"""On another machine, a process that has missed so many is dead."""
MAX_PROCESSES: Final = 10_000
"""No more files than twice that are looked at."""
_LOCK_WAIT_S: Final = 1.0
_STRAY_S: Final = 60.0
"""A lock without a ``.json`` that is older belongs to nobody who is about to begin."""
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,120}\Z")
_OURS: Final = frozenset(field.name for field in fields(ProcessInfo)) - {"id", "pid", "host", "kind"}

_log = logging.getLogger("nobroker.running")


class Registration:
    """This process among those of a queue, for as long as it lives. Any number of them in one process.

    A forked child has none of it: it makes its own.

    Args:
        queue: the queue that is worked on. Only where it is, is asked.
        kind: "supervisor", "worker" or "scheduler".
        supervisor: the id of the process that looks after this one.
        queues: as configured.
        threads: jobs at a time.
        interval: seconds between two signs of life. The caller keeps to it.

    Attributes:
        id: of this process in the registry.

    Raises:
        ValueError: a kind that there is not. A directory that cannot be written is a warning in the log.
    """

    def __init__(
        self,
        queue: Queue,
        kind: str,
        *,
        supervisor: str | None = None,
        queues: Sequence[str] = (),
        threads: int = 0,
        interval: float = 5.0,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        now = _now()
        host = socket.gethostname() or "localhost"
        self.id = f"{_plain(host)}-{os.getpid()}-{os.urandom(4).hex()}"
        self._info = ProcessInfo(
            id=self.id,
            kind=kind,
            pid=os.getpid(),
            host=host,
            supervisor=supervisor,
            started_at=now,
            seen_at=now,
            queues=tuple(queues),
            threads=threads,
        )
        self._interval = interval
        self._names = Names(str(queue.dir), queue.name)
        self._writing = threading.Lock()  # guards all below
        self._fd: int | None = None
        self._locked = False
        self._closed = False
        self._complained = False
        locking.watch_forks(self)
        registered(queue)  # clears away what is left of the dead
        self.beat()

    @property
    def info(self) -> ProcessInfo:
        """What was said last, or will be with the next sign of life."""
        return self._info

    def update(self, **changed: Any) -> None:
        """Change what is said of this process; it is seen after the next `beat`.

        Args:
            changed: attributes of `ProcessInfo`.

        Raises:
            TypeError: there is no such attribute, or it does not change.
        """
        if not changed.keys() <= _OURS:
            raise TypeError(f"a process has no {', '.join(sorted(changed.keys() - _OURS))} that changes")
        with self._writing:
            self._info = replace(self._info, **changed)

    def beat(self) -> None:
        """Give a sign of life. What goes wrong is logged: once as a warning, then for debugging."""
        with self._writing:
            if self._closed:
                return
            self._info = replace(self._info, seen_at=_now(), memory=figures.resident_bytes())
            try:
                self._write()
            except OSError as error:
                level = logging.DEBUG if self._complained else logging.WARNING
                self._complained = True
                _log.log(level, "event=registry.not_written dir=%s error=%s: nobody sees this process",
                         self._names.processes, error)  # fmt: skip

    def close(self) -> None:
        """Say no more. Closing twice is harmless."""
        with self._writing:
            if self._closed:
                return
            self._closed = True
            _remove(self._names.processes, self.id)
            self._let_go()

    def after_fork(self) -> None:
        """In a forked child: this is another process. The lock is its parent's, and must not outlive it."""
        self._writing = threading.Lock()
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _write(self) -> None:
        path = os.path.join(self._names.processes, self.id)
        for last in (False, True):
            try:
                self._hold(path + ".lock")
                said = asdict(self._info)
                said.update(
                    interval=self._interval, boot=SystemClock().boot_id(), locked=self._locked, version=1
                )
                files.write_cache(path + ".json", path + ".tmp", [spoken.as_bytes(said)])
                return
            except FileNotFoundError:  # somebody removed the directory just now
                if last:
                    raise

    def _hold(self, path: str) -> None:
        """See to it that the lock is held, also when somebody has removed its file."""
        if self._fd is not None and locking.in_place(self._fd, 0):
            return
        self._let_go()
        directories.make(self._names.processes)
        self._fd = files.open_or_create(path)
        try:  # it is held by others only for the moment in which they look
            locking.acquire(self._fd, _LOCK_WAIT_S, path, lambda: 0)
            self._locked = True
        except (LockTimeoutError, OSError) as error:  # a file system without locks
            self._locked = False
            _log.debug("event=registry.not_locked path=%s error=%s", path, error)


def registered(queue: Queue, *, remove: bool = True) -> list[ProcessInfo]:
    """The processes that work on a queue, in the order in which they began.

    Args:
        remove: also remove what is left of those that are dead.
    """
    return processes(str(queue.dir), queue.name, remove=remove)


def processes(directory: str, name: str, *, remove: bool = False) -> list[ProcessInfo]:
    """As `registered`; the queue need not be opened, nor be sound."""
    place = Names(directory, name).processes
    found = []
    for stem, tails in sorted(_stems(place).items()):
        try:
            said = _read(os.path.join(place, stem), tails)
            if said is not None and said.info.id != stem:
                raise ValueError(f"it says that it is {said.info.id!r}")
        except FileNotFoundError:
            continue  # it ended just now
        except (OSError, ValueError, RecursionError) as error:
            _log.debug("event=registry.not_understood dir=%s file=%s error=%s", place, stem, error)
            continue
        if said is not None and _lives(os.path.join(place, stem + ".lock"), said):
            found.append(said.info)
        elif remove and (said is not None or _is_stray(os.path.join(place, stem + ".lock"))):
            _remove(place, stem)
    return sorted(found, key=lambda process: (process.started_at, process.id))


def _stems(place: str) -> dict[str, set[str]]:
    """The names of files that may be ours, without and with their ends."""
    found: dict[str, set[str]] = {}
    if not directories.exists(place):  # a link to one is not followed
        return found
    try:
        entries: Iterator[os.DirEntry[str]] = iter(files.entries(place))
    except OSError as error:
        _log.debug("event=registry.not_read dir=%s error=%s", place, error)
        return found
    for _, entry in zip(range(2 * MAX_PROCESSES), entries, strict=False):
        stem, dot, tail = entry.name.rpartition(".")
        if dot and tail in ("json", "lock") and _ID.match(stem):
            found.setdefault(stem, set()).add(tail)
    return found


def _read(path: str, tails: set[str]) -> spoken.Said | None:
    if "json" not in tails:
        return None
    return spoken.understood(files.read_file(path + ".json", spoken.MAX_BYTES))


def _lives(lock: str, said: spoken.Said) -> bool:
    if said.locked and said.boot == SystemClock().boot_id():
        held = _is_held(lock)
        if held is not None:
            return held
    return abs(_now() - said.info.seen_at) <= MISSED_BEATS * said.interval


def _is_held(path: str) -> bool | None:
    """Whether somebody holds a lock; None: we may not look."""
    try:
        fd = files.open_read(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        _log.debug("event=registry.lock_not_read path=%s error=%s", path, error)
        return None
    try:
        return not locking.try_lock(fd, locking.SHARED | locking.NON_BLOCKING)
    except OSError as error:
        _log.debug("event=registry.lock_not_read path=%s error=%s", path, error)
        return None
    finally:
        os.close(fd)


def _is_stray(path: str) -> bool:
    """Whether a lock without more was left by a process that was killed as it began."""
    try:
        return _now() - os.lstat(path).st_mtime > _STRAY_S and _is_held(path) is False
    except OSError:
        return False


def _remove(place: str, stem: str) -> None:
    for tail in ("json", "tmp", "lock"):
        path = os.path.join(place, f"{stem}.{tail}")
        try:
            if files.is_regular(path):
                files.unlink(path)
        except OSError as error:
            _log.debug("event=registry.not_removed path=%s error=%s", path, error)


def _now() -> float:
    return SystemClock().wall_us() / 1e6


def _plain(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", host)[:64].strip(".-") or "host"
