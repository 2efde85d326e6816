"""Control groups (Linux, version 2) that hold each worker process to so many bytes.

The kernel ends what takes more. Needs a group that is this program's own to divide: systemd's
``Delegate=memory``, or a container that has one. Without it there is a warning, once, and no limit.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Final

from nobroker_mmap import directories, files

MOUNT: Final = "/sys/fs/cgroup"
_LIMIT: Final = 1 << 16

_log = logging.getLogger("nobroker.running")


class Groups:
    """The control groups of a supervisor's children.

    Args:
        base: the directory of the group that this process is in; None: it is looked for when it is needed.
    """

    def __init__(self, base: str | None = None) -> None:
        self._base = base
        self._pid = os.getpid()
        self._on: bool | None = None  # None: not tried yet
        self._made: dict[int, str] = {}

    def hold(self, pid: int, limit: int) -> None:
        """Hold a child to so many bytes."""
        if self._on is None:
            self._on = self._divide()
        if not self._on:
            return
        group = os.path.join(self._base or "", f"nobroker-{pid}")
        try:
            directories.make(group)
            self._made[pid] = group
            _write(group, "memory.max", str(limit))
            _write(group, "memory.oom.group", "1")
            _write(group, "cgroup.procs", str(pid))
        except OSError as error:
            _log.warning("event=cgroup.failed pid=%d error=%s: it has no limit", pid, error)

    def release(self, pid: int) -> None:
        """A child has ended."""
        group = self._made.pop(pid, None)
        if group is not None:
            _remove(group)

    def close(self) -> None:
        """Leave no group of ours; called when all children have ended."""
        for pid in list(self._made):
            self.release(pid)
        if self._on and self._base is not None:
            with suppress(OSError):  # the group of this process goes with it, in the end
                _write(self._base, "cgroup.subtree_control", "-memory")
                _write(self._base, "cgroup.procs", str(self._pid))
            _remove(self._own)

    @property
    def _own(self) -> str:
        """Where the supervisor itself goes: a group that is divided may have no process."""
        return os.path.join(self._base or "", f"nobroker-supervisor-{self._pid}")

    def _divide(self) -> bool:
        try:
            if self._base is None:
                self._base = _group_of_this_process()
            directories.make(self._own)
            _write(self._own, "cgroup.procs", str(self._pid))
            _write(self._base, "cgroup.subtree_control", "+memory")
        except OSError as error:
            _log.warning(
                "event=cgroup.unavailable error=%s: cgroup_memory_max is not kept; it needs a control group"
                " of its own (systemd: Delegate=memory)",
                error,
            )
            return False
        return True


def _group_of_this_process() -> str:
    for line in files.read_stream("/proc/self/cgroup", _LIMIT).decode().splitlines():
        if line.startswith("0::/"):
            base = os.path.join(MOUNT, line[4:])
            if os.path.exists(os.path.join(base, "cgroup.subtree_control")):
                return base
    raise FileNotFoundError(f"no control group of version 2 for this process below {MOUNT}")


def _write(group: str, name: str, text: str) -> None:
    fd = files.open_write(os.path.join(group, name))
    try:
        files.write_at(fd, text.encode(), 0)
    finally:
        files.close(fd)


def _remove(group: str) -> None:
    try:
        os.rmdir(group)  # the kernel's own files in it go with it
    except OSError as error:
        _log.debug("event=cgroup.left group=%s error=%s", group, error)
