"""Telling systemd how this process is: the protocol of sd_notify(3), over the socket in $NOTIFY_SOCKET.

Without that variable, and where there are no such sockets, all of it does nothing. What goes wrong is logged
for debugging only: a service must not fail because nobody listens.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Final

_SEND_S: Final = 1.0
_MAX_STATUS: Final = 500

_log = logging.getLogger("nobroker.running")


def ready() -> None:
    """The service has started, or has done reloading."""
    _say("READY=1")


def reloading() -> None:
    """The service begins to take a new configuration; `ready` follows."""
    _say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def status(text: str) -> None:
    """What it does now, in one line; shown by ``systemctl status``."""
    _say("STATUS=" + " ".join(text[:_MAX_STATUS].split()))


def stopping() -> None:
    """The service begins to stop."""
    _say("STOPPING=1")


def watchdog() -> None:
    """It is alive. To be said more often than every `watchdog_interval`."""
    _say("WATCHDOG=1")


def watchdog_interval() -> float | None:
    """Seconds without `watchdog` after which systemd kills this process; None where it does not watch it."""
    try:
        seconds = int(os.environ.get("WATCHDOG_USEC", "")) / 1e6
        meant = int(os.environ.get("WATCHDOG_PID") or os.getpid())
    except ValueError:
        return None
    return seconds if seconds > 0 and meant == os.getpid() else None


def forget() -> None:
    """Say nothing any more, from this process or those that it starts: another one speaks for the service."""
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        os.environ.pop(name, None)


def _say(words: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@") or not hasattr(socket, "AF_UNIX"):
        return
    if address[0] == "@":  # a name without a file
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
            speaker.settimeout(_SEND_S)
            speaker.sendto(words.encode("utf-8", "replace"), address)
    except OSError as error:
        _log.debug("event=notify.not_sent words=%r error=%s", words, error)
