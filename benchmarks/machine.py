"""Facts about the machine, without which no figure means anything."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def facts(directory: Path) -> dict[str, Any]:
    """What was measured on: as found before the first measurement."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory GiB": memory_gib(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "file system": file_system(directory),
        "fdatasync of 4 KiB, median of 100": f"{sync_latency_us(directory):.0f} us",
        "load at start": " ".join(f"{x:.2f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "?",
        "nobroker": commit(),
    }


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "?"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")


def memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def file_system(directory: Path) -> str:
    """Kind of the file system and its mount options, from the longest mount point above the directory."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "?"
    above = [m for m in mounts if directory.resolve().is_relative_to(m[1])]
    best = max(above, key=lambda m: len(m[1]), default=None)
    return f"{best[2]} ({best[3]})" if best else "?"


def sync_latency_us(directory: Path) -> float:
    """Median microseconds of one 4 KiB write in place and its fdatasync."""
    path = directory / "latency"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    took = []
    try:
        os.write(fd, bytes(2**20))
        os.fsync(fd)
        for number in range(100):
            began = time.perf_counter()
            os.lseek(fd, number * 4096, os.SEEK_SET)
            os.write(fd, b"x" * 4096)
            os.fdatasync(fd)
            took.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(took) * 1e6


def commit() -> str:
    """Which state of the project: the commit, and whether files differ from it."""
    root = Path(__file__).resolve().parent.parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "not a checkout"
    return found.stdout.strip()
