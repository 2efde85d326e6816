"""The title of this process, as `ps` and `top` of the system show it. Needs the extra ``titles``; without it,
nothing happens.
"""

from __future__ import annotations

import functools
from typing import Any


def set_title(text: str) -> None:
    """Let this process be called so."""
    library = _library()
    if library is not None:
        library.setproctitle(text)


def title() -> str | None:
    """How it is called now; None without the extra."""
    library = _library()
    return None if library is None else str(library.getproctitle())


@functools.cache
def _library() -> Any:
    try:
        import setproctitle
    except ImportError:
        return None
    return setproctitle
