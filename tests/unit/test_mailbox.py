"""The mailbox: nothing is lost, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import threading
from queue import Empty

import pytest

from nobroker.mailbox import Mailbox


def test_first_in_first_out() -> None:
    box: Mailbox[int] = Mailbox()
    for number in range(3):
        box.put(number)
    assert [box.get(), box.take(), box.get(timeout=0)] == [0, 1, 2]
    for look in (box.take, lambda: box.get(timeout=0), lambda: box.get(timeout=0.001)):
        with pytest.raises(Empty):
            look()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e-9, 1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("used", [False, True])
def test_a_wait_ends_however_short_it_is(seconds: float, used: bool) -> None:
    """With the standard library's, some of these never end."""
    for _ in range(200):
        box: Mailbox[int] = Mailbox()
        if used:
            box.put(1)
            assert box.get() == 1
        with pytest.raises(Empty):
            box.get(timeout=seconds)


def test_a_ring_of_what_was_taken_already_wakes_for_nothing() -> None:
    box: Mailbox[int] = Mailbox()
    box.put(1)
    assert box.take() == 1
    with pytest.raises(Empty):
        box.get(timeout=0.01)
    threading.Timer(0.01, box.put, (2,)).start()
    assert box.get(timeout=30) == 2


def test_a_wait_of_a_lifetime_is_possible() -> None:
    box: Mailbox[int] = Mailbox()
    threading.Timer(0.01, box.put, (1,)).start()
    assert box.get(timeout=1e12) == 1


@pytest.mark.parametrize("readers", [1, 4])
def test_nothing_is_lost_between_threads(readers: int) -> None:
    box: Mailbox[int | None] = Mailbox()
    found: list[list[int]] = [[] for _ in range(readers)]

    def read(into: list[int]) -> None:
        while (item := box.get(timeout=30)) is not None:
            into.append(item)

    def write(first: int) -> None:
        for number in range(first, 4000, 4):
            box.put(number)

    reading = [threading.Thread(target=read, args=(into,)) for into in found]
    writing = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for thread in (*reading, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    for _ in reading:
        box.put(None)
    for thread in reading:
        thread.join(30)
    assert sorted(number for numbers in found for number in numbers) == list(range(4000))
    if readers == 1:
        mine = [number for number in found[0] if number % 4 == 1]
        assert mine == sorted(mine), "what one thread puts stays in order"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals by the clock")
def test_a_handler_may_put_while_its_own_thread_waits() -> None:
    box: Mailbox[int] = Mailbox()
    before = signal.signal(signal.SIGALRM, lambda number, frame: box.put(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert box.get(timeout=30) == signal.SIGALRM
        for _ in range(200):  # and in the midst of whatever get is doing
            os.kill(os.getpid(), signal.SIGALRM)
            assert box.get(timeout=30) == signal.SIGALRM
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
