"""What the operating system says of a process. Where it says nothing, the answer is None."""

from __future__ import annotations

import contextlib
import os
import sys

from nobroker_mmap import files

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LIMIT = 1 << 16  # bytes; such files of the system are far smaller


def resident_bytes(pid: int | None = None) -> int | None:
    """Bytes of memory that a process has in RAM now, those that it shares included.

    Args:
        pid: of which process; None: of this one.

    Returns:
        None where the system does not tell (it is Linux that does), or there is no such process.
    """
    words = _of_system("self" if pid is None else str(pid), "statm").split()
    try:
        return int(words[1]) * _PAGE
    except (IndexError, ValueError):
        return None


class OwnMemory:
    """`resident_bytes` of this process, asked often: the file that tells stays open."""

    def __init__(self) -> None:
        self._pid = 0
        self._fd: int | None = None

    def __call__(self) -> int | None:
        pid = os.getpid()
        if pid != self._pid:  # at first, and in a forked child, to which the file tells of its parent
            self.close()
            self._pid = pid
            if sys.platform == "linux":
                with contextlib.suppress(OSError):
                    self._fd = files.open_read("/proc/self/statm")
        if self._fd is None:
            return None
        return int(files.read_at(self._fd, 64, 0).split()[1]) * _PAGE

    def close(self) -> None:
        """Let go of the file; the next call opens it again."""
        fd, self._fd, self._pid = self._fd, None, 0
        if fd is not None:
            os.close(fd)


def peak_bytes() -> int | None:
    """The most that `resident_bytes` of this process has been so far. A forked child may begin with what its
    parent had.
    """
    for line in _of_system("self", "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def thread_faults() -> tuple[int, int] | None:
    """Page faults of the calling thread so far: those that needed no disk, and those that did."""
    if resource is None or not hasattr(resource, "RUSAGE_THREAD"):  # macOS does not count by thread
        return None
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_minflt, usage.ru_majflt


def _of_system(process: str, name: str) -> str:
    """A file about a process; empty where there is none."""
    if sys.platform != "linux":
        return ""
    try:
        return files.read_stream(f"/proc/{process}/{name}", _LIMIT).decode("ascii", "replace")
    except OSError:
        return ""
