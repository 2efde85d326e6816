"""Lists of queues as people write them: names, ``beta*``, ``*``. And the one queue that an environment pins
everything to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from nobroker.app.errors import ConfigError, ConfigProblem
from nobroker.app.records import LANE, TICKS_LANE
from nobroker.lanes import Lanes

OWN: Final = ("", LANE, TICKS_LANE)
"""Lanes that are no queues: of raw jobs, and of this library's records."""
FORCE: Final = "NOBROKER_FORCE_QUEUE"
_LONGEST: Final = 100


def pattern(value: Any) -> str:
    """An entry of a list of queues.

    Raises:
        ValueError: it is no name and no pattern.
    """
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is not the name of a queue; perhaps it needs quotes")
    stem = value.removesuffix("*")
    if "*" in stem:
        raise ValueError(f"{value!r:.130}: an asterisk stands at the end of a name only")
    if (not stem and not value) or len(stem) > _LONGEST or "," in stem or not stem.isprintable():
        raise ValueError(
            f"the name of a queue has 1 to {_LONGEST} printable characters and no comma, not {value!r:.130}"
        )
    if value in OWN:
        raise ValueError(f"in {value!r} this library keeps records; no jobs are there")
    return value


def lanes_of(queues: Iterable[str] | None, order: str = "ordered") -> Lanes:
    """What a list of queues serves.

    Args:
        queues: names and patterns; None: all.
        order: of `Lanes`.

    Raises:
        TypeError: no list.
        ValueError: what is no name, no pattern, no order; or nothing.
    """
    if isinstance(queues, (str, bytes)):
        raise TypeError(f"queues must be a list of names, not {queues!r}")
    return Lanes(["*"] if queues is None else map(pattern, queues), order=order, without=OWN)


def forced_queue(environment: Mapping[str, str] | None = None) -> str | None:
    """The one queue that everything goes through and that alone is served; None: nothing is forced.

    Args:
        environment: None: that of this process.

    Raises:
        ConfigError: what is said gives no name of a queue.
    """
    said = (os.environ if environment is None else environment).get(FORCE)
    if said is None:
        return None
    name = "".join(c if c.isprintable() and c not in "*," else "_" for c in said.strip())
    reason = None
    if not re.search(r"[^_\s]", name):
        reason = f"nothing of {said!r:.60} can be the name of a queue; unset it to force none"
    elif len(name) > _LONGEST:
        reason = f"the name of a queue has at most {_LONGEST} characters, not {len(name)}"
    elif name in OWN:
        reason = f"in {name!r} this library keeps records; choose another one"
    if reason is not None:
        raise ConfigError([ConfigProblem(reason, FORCE)])
    return name
