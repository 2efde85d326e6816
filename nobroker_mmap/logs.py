"""Loggers, found when there is something to say: most programs hear nothing from here, and importing
`logging` takes a tenth of the time that importing the queue would take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger(name: str = "nobroker_mmap") -> logging.Logger:
    """The standard library's logger of this name."""
    import logging

    return logging.getLogger(name)
