"""Single keys from the terminal, as they are pressed."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from types import TracebackType
from typing import Any, Final

UP: Final = "up"
DOWN: Final = "down"
ENDED: Final = "ended"
"""The terminal is gone."""

_SEQUENCE = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b.?|.", re.DOTALL)
_MEANING: Final = {b"A": UP, b"B": DOWN}
_WINDOWS: Final = {"H": UP, "P": DOWN}
_LOOK_S: Final = 0.05


class PosixKeys:
    """A context manager: within, keys come without Enter and are not shown. Then the terminal is as before.

    Ctrl-C sends its signal as always. Ctrl-Z does nothing, since it would leave the terminal as it is within.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._keys: deque[str] = deque()

    def __enter__(self) -> PosixKeys:
        import termios
        import tty

        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd, termios.TCSANOW)
        within = termios.tcgetattr(self._fd)
        within[6][termios.VSUSP] = b"\x00"
        termios.tcsetattr(self._fd, termios.TCSANOW, within)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import termios

        if self._before is not None:
            try:
                termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)
            except termios.error:
                return  # the terminal is gone

    def get(self, seconds: float) -> str | None:
        """The next key, or `UP`, `DOWN`, `ENDED`; None when none comes in so long."""
        import select

        if not self._keys and select.select([self._fd], [], [], seconds)[0]:
            try:
                pressed = os.read(self._fd, 1024)
            except OSError:
                pressed = b""
            self._keys.extend(_keys(pressed) if pressed else [ENDED])
        return self._keys.popleft() if self._keys else None


class WindowsKeys:
    """The same, for the console of Windows."""

    def __enter__(self) -> WindowsKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is nothing to put back."""

    def get(self, seconds: float) -> str | None:
        """As `PosixKeys.get`."""
        import msvcrt

        console: Any = msvcrt
        until = time.monotonic() + seconds
        while not console.kbhit():
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, _LOOK_S))
        key = str(console.getwch())
        return _WINDOWS.get(str(console.getwch()), "") if key in ("\x00", "\xe0") else key


Keys = WindowsKeys if os.name == "nt" else PosixKeys


def _keys(pressed: bytes) -> list[str]:
    """What was pressed, sequences of terminals understood; those that mean nothing here left out."""
    found = []
    for word in _SEQUENCE.findall(pressed):
        if len(word) > 1:
            found.append(_MEANING.get(word[-1:], "") if word[:1] == b"\x1b" and len(word) == 3 else "")
        else:
            found.append(word.decode("ascii", "ignore"))
    return [key for key in found if key and key.isprintable()]
