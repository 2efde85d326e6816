"""A full queue: nothing that is put in passes `max_bytes`, and everything else still works."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from nobroker import BackoffPolicy, JobState, Limit, NewJob, Queue, QueueFullError, Rate, Worker
from nobroker_tools.importer import IMPORTERS

from .conftest import Opener
from .words import counts, take

LIMIT = 60_000


def _lines(values: list[Any]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(value) + "\n" for value in values).encode())


def _dumped(number: int, count: int) -> io.BytesIO:
    jobs = [
        {
            "id": f"{number}-{index}-{'i' * 200}",
            "payload": 1,
            "state": "dead",
            "attempts": 5,
            "last_error": "é" * 300,
            "progress": "p" * 300,
        }
        for index in range(count)
    ]
    return _lines([{"nobroker": "jobs", "version": 1, "queue": "x"}, *jobs])


WAYS: dict[str, Callable[[Queue, int], Any]] = {
    "one": lambda queue, number: queue.enqueue(number),
    "own id": lambda queue, number: queue.enqueue(1, job_id=f"{number:05}" + "é" * 250),
    "metadata": lambda queue, number: queue.enqueue(1, metadata="m" * 3000),
    "lane": lambda queue, number: queue.enqueue(1, lane="日" * 100),
    "limits": lambda queue, number: queue.enqueue(
        1, limits=[Limit(f"{number} {n} {'é' * 200}", 1) for n in range(9)], rates=Rate("r" * 250, 1, 1)
    ),
    "fair": lambda queue, number: queue.enqueue_many([number] * 9, fair_key="日" * 200),
    "debounced": lambda queue, number: queue.enqueue("x" * 900, job_id="same", debounce=1),
    "many": lambda queue, number: queue.enqueue_many(["x"] * 300),
    "many with ids": lambda queue, number: queue.enqueue_many(
        [1] * 50, job_ids=[f"{number}-{index}-{'i' * 200}" for index in range(50)]
    ),
    "many with delays": lambda queue, number: queue.enqueue_many([1] * 1500, delays=range(1500)),
    "all": lambda queue, number: queue.enqueue_all(
        NewJob(1, priority=n % 2, job_id=f"{number}-{n}-{'i' * 99}", metadata=n) for n in range(50)
    ),
    "large": lambda queue, number: queue.enqueue("x" * 20_000),
    "import": lambda queue, number: IMPORTERS["jsonl"](_lines([number] * 100), queue, id_field=None),
    "import with ids": lambda queue, number: IMPORTERS["jsonl"](
        _lines([{"id": f"{number}-{index}-{'i' * 200}"} for index in range(50)]), queue, id_field="id"
    ),
    "import of a dump": lambda queue, number: IMPORTERS["jsonl"](_dumped(number, 40), queue, id_field=None),
}


def _fits(put: Callable[..., Any], *arguments: Any, **options: Any) -> bool:
    try:
        put(*arguments, **options)
    except QueueFullError as error:
        said = str(error)
    else:
        return True
    assert f"{LIMIT:,}" in said
    assert "compact" in said
    return False


@pytest.mark.parametrize("way", WAYS)
def test_no_way_in_passes_it(open_queue: Opener, way: str) -> None:
    queue = open_queue(max_bytes=LIMIT)
    before, number = (0, queue.stats().bytes), 0
    while _fits(WAYS[way], queue, number):
        before, number = (len(queue), queue.stats().bytes), number + 1
    assert (len(queue), queue.stats().bytes) == before, "what was refused is not there in part"
    assert LIMIT // 2 < queue.stats().bytes <= LIMIT
    for other in WAYS.values():
        if queue.stats().bytes > LIMIT - 200:
            assert not _fits(other, queue, 2000)


@pytest.fixture
def full(open_queue: Opener) -> Queue:
    queue = open_queue(max_bytes=LIMIT, max_attempts=2, backoff=BackoffPolicy(base=0.0, jitter=0.0))
    number = 0
    while _fits(queue.enqueue, "x" * 1000, job_id=f"job-{number}"):
        number += 1
    return queue


def test_all_but_putting_in_works(full: Queue) -> None:
    many = len(full)
    a, b, c, d, e = full.lease(5)
    full.extend(a, 60, progress="p" * 5000, state="s" * 5000)
    full.nack(a, error="e" * 5000)
    full.nack(b, dead=True)
    full.release(c)
    full.ack(d, result="r" * 5000)
    full.cancel(e.id)
    assert full.extend(e, 60).cancel_requested
    full.nack_many([e])
    assert full.stats().bytes > LIMIT, "what ends or keeps work may pass the limit"
    assert full.requeue_dead(b.id) == 1
    full.nack(take(full), dead=True)
    assert full.drop_dead() == 1
    full.pause()
    full.resume()
    with pytest.raises(QueueFullError):
        full.enqueue(1)
    jobs = full.lease(many)
    full.ack_many(jobs)
    assert counts(full)[:3] == (0, 0, 0)


def test_compaction_makes_room(open_queue: Opener, full: Queue) -> None:
    many = len(full)
    full.ack_many(full.lease(many - 5))
    with pytest.raises(QueueFullError):
        full.enqueue_many(["x" * 1000] * 10)
    open_queue.clock.advance(4000)  # the ids have been remembered long enough
    result = full.compact()
    assert result.bytes_after < LIMIT // 2
    full.enqueue_many(["x" * 1000] * 10)
    assert counts(full)[0] == 15


def test_what_is_known_needs_no_room(full: Queue) -> None:
    known = [job.id for job in full.list_jobs(limit=3)]
    full.extend(take(full), 60, progress="p" * 5000)
    assert full.stats().bytes > LIMIT
    assert not full.enqueue(1, job_id=known[0]).created
    assert [job.created for job in full.enqueue_many([1, 1, 1], job_ids=known)] == [False] * 3
    with pytest.raises(QueueFullError):
        full.enqueue_many([1, 1], job_ids=[known[0], "new"])
    jobs = [{**job.to_dict(), "state": "ready"} for job in full.list_jobs(limit=3)]
    again = IMPORTERS["jsonl"](
        _lines([{"nobroker": "jobs", "version": 1, "queue": "x"}, *jobs]), full, id_field=None
    )
    assert (again.jobs, again.added, again.known) == (True, 0, 3)


def test_a_worker_works_a_full_queue_off(full: Queue) -> None:
    many = len(full)
    stats = Worker(full, lambda job: None, idle_timeout=0, handle_signals=False).run()
    assert stats.succeeded == many
    assert {job.state for job in full.list_jobs()} <= {JobState.DONE}
