"""What the operating system says of a process. Where it says nothing, the answer is None."""

from __future__ import annotations

import os
import sys

from nobroker_mmap import files

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
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    except (IndexError, ValueError):
        return None


def peak_bytes() -> int | None:
    """The most that `resident_bytes` of this process has been so far. A forked child may begin with what its
    parent had.
    """
    for line in _of_system("self", "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def thread_faults() -> tuple[int, int] | None:
    """Page faults of the calling thread so far: those that needed no disk, and those that did."""
    try:
        import resource

        usage = resource.getrusage(resource.RUSAGE_THREAD)
    except (ImportError, AttributeError):  # Windows; macOS, which does not count by thread
        return None
    return usage.ru_minflt, usage.ru_majflt


def _of_system(process: str, name: str) -> str:
    """A file about a process; empty where there is none."""
    if sys.platform != "linux":
        return ""
    try:
        return files.read_stream(f"/proc/{process}/{name}", _LIMIT).decode("ascii", "replace")
    except OSError:
        return ""
