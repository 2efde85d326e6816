"""The only place that reads clocks.

The queue measures by the boot clock, which nobody can set, and looks at the wall clock for two things only:
a new boot's first anchor, and jobs that were given a date (``run_at``).
"""

from __future__ import annotations

import functools
import os
import sys
import time
from typing import Protocol


class Clock(Protocol):
    """What the queue asks of a clock. All times in microseconds."""

    def boot_id(self) -> str:
        """Changes with every boot of the machine."""

    def namespace(self) -> str:
        """Differs where the boot clock is shifted (Linux time namespaces)."""

    def boot_us(self) -> int:
        """Time since boot, suspends included; never steps."""

    def wall_us(self) -> int:
        """Time since the epoch; may be set by anyone at any time."""

    def suspended_us(self) -> int:
        """How much of `boot_us` the machine slept."""


if sys.platform == "linux":
    _boot_ns = functools.partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
else:
    _boot_ns = time.monotonic_ns


class SystemClock:
    """The machine's clocks."""

    def boot_id(self) -> str:
        return _boot_id()

    def namespace(self) -> str:
        try:
            return os.readlink("/proc/self/ns/time")
        except OSError:
            return ""

    def boot_us(self) -> int:
        return _boot_ns() // 1000

    def suspended_us(self) -> int:
        return max(0, _boot_ns() - time.monotonic_ns()) // 1000

    def wall_us(self) -> int:
        return time.time_ns() // 1000


class ManualClock:
    """A clock that tests move.

    Args:
        now: the wall clock at the start, seconds since the epoch.
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._wall = round(now * 1e6)
        self._boot = 1_000_000_000
        self._suspended = 0
        self._boot_number = 1

    def boot_id(self) -> str:
        return f"manual-{self._boot_number}"

    def namespace(self) -> str:
        return ""

    def boot_us(self) -> int:
        return self._boot

    def wall_us(self) -> int:
        return self._wall

    def suspended_us(self) -> int:
        return self._suspended

    def advance(self, seconds: float) -> None:
        """Let time pass for both clocks."""
        self._boot += round(seconds * 1e6)
        self._wall += round(seconds * 1e6)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP would."""
        self._wall += round(seconds * 1e6)

    def suspend(self, seconds: float) -> None:
        """Close the lid for a while."""
        self.advance(seconds)
        self._suspended += round(seconds * 1e6)

    def reboot(self, seconds: float = 60.0) -> None:
        """A new boot: the boot clock starts anew."""
        self._wall += round(seconds * 1e6)
        self._boot = 1_000_000
        self._suspended = 0
        self._boot_number += 1


@functools.cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _boot_id_elsewhere()


def _boot_id_elsewhere() -> str:
    """Windows counts its boots in the registry, macOS names its boot sessions."""
    if sys.platform == "win32":
        import winreg

        path = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters"
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path) as key:
                return f"windows-{winreg.QueryValueEx(key, 'BootId')[0]}"
        except OSError:
            return _boot_minute()
    if sys.platform == "darwin":
        import subprocess

        try:
            command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return _boot_minute()
    return _boot_minute()


def _boot_minute() -> str:
    """Where the system names no boot: the minute it booted. A step of the wall clock looks like a new boot,
    which costs a retry.
    """
    return f"booted-{round((time.time() - time.monotonic()) / 60)}"
