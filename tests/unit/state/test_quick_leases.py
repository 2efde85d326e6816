"""The quick way of a lease gives what the thorough one gives, whatever was before."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nobroker.state import codes, kinds
from nobroker.state.taking import Taking
from tests.unit.state.limited import Machine

HISTORIES, STEPS = 150, 60


class Pair:
    """Two machines with one history; the second one always looks properly."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._machines = Machine(), Machine()
        self._machines[1].state.ready._take_first = lambda lanes: None  # type: ignore[method-assign]

    def run(self, quick: list[bool]) -> None:
        take_first = Taking._take_first.__get__(self._machines[0].state.ready)

        def counted(lanes: Any) -> Any:
            piece = take_first(lanes)
            quick.append(piece is not None)
            return piece

        self._machines[0].state.ready._take_first = counted  # type: ignore[method-assign]
        for _ in range(STEPS):
            self._step()
        while self._lease(1):
            pass

    def _step(self) -> None:
        what = self._random.choice(["add"] * 4 + ["lease"] * 6 + ["pass", "end", "end", "change"])
        getattr(self, f"_{what}")(1)

    def _both(self, verb: str, *arguments: Any, **more: Any) -> Any:
        one, other = (getattr(machine, verb)(*arguments, **more) for machine in self._machines)
        assert one == other
        return one

    def _add(self, _: int) -> None:
        said: dict[str, Any] = {}
        keys = self._random.sample("klm", self._random.randrange(3))
        if keys:
            said["k"] = [[key, self._random.choice([1, 2, 5])] for key in keys]
        if self._random.random() < 0.2:
            said["r"] = [["r", self._random.choice([1, 3]), 20]]
        if self._random.random() < 0.2:
            said["f"] = [self._random.choice("AB"), 1]
        more = {"p": self._random.choice([0, 0, 0, 1])}
        if self._random.random() < 0.2:
            more["a"] = self._machines[0].now + self._random.randrange(1, 10)
        self._both("add", self._random.choice([1, 1, 1, 3]), said or None, **more)

    def _lease(self, count: int) -> list[int]:
        found: list[int] = self._both("lease", count)
        return found

    def _pass(self, _: int) -> None:
        self._both("pass_by", self._random.randrange(1, 12))

    def _one(self, *states: int) -> int | None:
        pages, seqs = self._machines[0].state.pages, range(1, self._machines[0].state.next_seq)
        there = [seq for seq in seqs if pages.code(seq) in states]
        return self._random.choice(there) if there else None

    def _end(self, _: int) -> None:
        seq = self._one(codes.LEASED)
        if seq is not None:
            verb = self._random.choice(["ack", "nack", "release"])
            more = {} if verb == "ack" else {"delay": self._random.choice([0, 0, 5])}
            self._both(verb, seq, **more)

    def _change(self, _: int) -> None:
        seq = self._one(*codes.WAITING)
        if seq is not None and self._random.random() < 0.5:
            self._both("drop", seq)
        elif seq is not None:
            at = self._machines[0].now + self._random.randrange(10)
            self._both("apply", kinds.RESCHEDULE, q=[seq, seq], a=at)


@pytest.mark.parametrize("seed", range(4))
def test_single_leases_of_one_lane(seed: int) -> None:
    quick: list[bool] = []
    for number in range(HISTORIES):
        Pair(seed * HISTORIES + number).run(quick)
    assert sum(quick) > len(quick) / 10, "the quick way was not gone"
