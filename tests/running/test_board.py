"""What a process says of itself, in memory that its supervisor reads."""

from __future__ import annotations

import asyncio
import mmap
from pathlib import Path
from typing import Any

import pytest

from nobroker import Job, Queue, WorkerStats
from nobroker.running import board as boards
from nobroker.running.board import Board


@pytest.fixture
def memory() -> mmap.mmap:
    return mmap.mmap(-1, boards.size(2))


@pytest.fixture
def board(memory: mmap.mmap) -> Board:
    return Board(memory, 2)


def leased(directory: Path, *ids: str) -> list[Job]:
    with Queue(directory, fsync=False) as queue:
        for one in ids:
            queue.enqueue(one, job_id=one)
        return queue.lease(len(ids))


def describe(job: Job) -> tuple[str, float | None]:
    return "Import", 2.5


def test_what_is_in_hand_and_what_was(board: Board, tmp_path: Path) -> None:
    seen: list[Any] = []
    handler = board.watched(lambda job: seen.append(list(board.in_hand())), describe)
    assert list(board.in_hand()) == []
    one, other = leased(tmp_path, "a", "ü" * 255)
    handler(one)
    ((during,),) = seen
    assert during[:4] == ("a", one.lease_token, "Import", 2.5)
    assert during.running
    assert list(board.in_hand()) == [during._replace(running=False)]
    handler(other)
    (after,) = board.in_hand()
    assert (after.id, after.running, board.finished) == (other.id, False, 2)


def test_each_thread_has_its_slot_and_errors_free_it(board: Board, tmp_path: Path) -> None:
    def fail(job: Job) -> None:
        raise ValueError

    async def wait(job: Job) -> list[str]:
        await asyncio.sleep(0)
        return sorted(one.id for one in board.in_hand() if one.running)

    jobs = leased(tmp_path, "a", "b", "c")
    with pytest.raises(ValueError):
        board.watched(fail, describe)(jobs[0])
    handler = board.watched(wait, describe)

    async def both() -> list[Any]:
        return await asyncio.gather(handler(jobs[1]), handler(jobs[2]))

    assert asyncio.run(both()) == [["b", "c"], ["c"]], "the first has ended when the second looks"
    assert [one.running for one in board.in_hand()] == [False, False]


def test_what_was_cut_off_in_the_midst_says_nothing(board: Board, memory: mmap.mmap, tmp_path: Path) -> None:
    (job,) = leased(tmp_path, "a")
    board.watched(lambda job: None, describe)(job)
    place = memory.find(b"Import")
    memory[place] ^= 1
    assert list(board.in_hand()) == []


def test_the_head(board: Board) -> None:
    assert (board.state, board.forced, board.baseline, board.stats) == (0, False, 0, WorkerStats())
    board.say(boards.READY)
    board.say_forced()
    board.say_baseline(2**40)
    board.say_stats(WorkerStats(5, 4, 3, 2, 1))
    assert (board.state, board.forced, board.baseline) == (boards.READY, True, 2**40)
    assert board.stats == WorkerStats(5, 4, 3, 2, 1)
