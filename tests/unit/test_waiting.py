"""Leases that wait, at the moments that are hard to meet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobroker import Job, Queue
from nobroker.stores.leasing import Leaser
from nobroker_mmap import wake
from nobroker_mmap.control import WAITERS

LONG_S = 20.0


def after_the_last_look(monkeypatch: pytest.MonkeyPatch, looks: int, act: Callable[[], object]) -> None:
    """When a lease has looked so often, something happens; then it goes on."""
    left = [None] * looks
    look = Leaser._attempt

    def attempt(self: Leaser, *arguments: Any) -> list[Job]:
        jobs = look(self, *arguments)
        if left and threading.current_thread() is not threading.main_thread():
            left.pop()
            if not left:
                act()
        return jobs

    monkeypatch.setattr(Leaser, "_attempt", attempt)


def leased_in_thread(queue: Queue) -> list[Job]:
    found: list[Job] = []
    thread = threading.Thread(target=lambda: found.extend(queue.lease(wait=2 * LONG_S)))
    thread.start()
    thread.join(LONG_S)
    late = thread.is_alive()
    queue.close()
    thread.join()
    assert not late, "nobody woke it"
    return found


@pytest.mark.parametrize("looks", [1, 2])
def test_a_job_that_comes_after_a_look_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """On a queue on which nobody has waited before; who waits looks twice before it sleeps."""
    monkeypatch.setattr(wake, "LONGEST_WAIT_S", 60.0)
    with Queue(tmp_path) as other:
        after_the_last_look(monkeypatch, looks, lambda: other.enqueue("late"))
        (job,) = leased_in_thread(Queue(tmp_path))
        assert job.payload == "late"
        assert other.check() == []


def test_who_is_killed_with_a_wake_up_in_hand_leaves_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(tmp_path)
    with Queue(tmp_path) as other:

        def enqueue() -> None:
            # Whoever wakes one takes the flag down, and that one puts it up again, unless it is killed.
            queue._store._session.log._words[WAITERS] = 0  # type: ignore[attr-defined]
            other.enqueue("late")

        after_the_last_look(monkeypatch, 2, enqueue)
        (job,) = leased_in_thread(queue)
        assert job.payload == "late"
        assert other.check() == []
