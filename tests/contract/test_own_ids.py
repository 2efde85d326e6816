"""Own ids in bulk: known, new and repeated ones in one call; hashes that are the same; forgetting."""

from __future__ import annotations

import pytest

from nobroker import JobNotFoundError, Queue
from nobroker.clock import ManualClock
from nobroker.state import owned

from .conftest import CACHES, Opener
from .words import counts, drain


@pytest.fixture(params=["their own hashes", "few hashes", "one hash"])
def hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes as they are, and such that many ids share each."""
    real = owned.xxh3_64_intdigest
    if request.param == "few hashes":
        monkeypatch.setattr(owned, "xxh3_64_intdigest", lambda data: real(data) % 50 << 10)
    elif request.param == "one hash":
        monkeypatch.setattr(owned, "xxh3_64_intdigest", lambda data: 2**64 - 1)


@pytest.mark.usefixtures("hashes")
class TestInBulk:
    def test_new_known_and_repeated_ones(self, queue: Queue, open_queue: Opener) -> None:
        other = open_queue()
        queue.enqueue_many(range(100), job_ids=[f"id-{n}" for n in range(100)])
        ids = [f"id-{n}" for n in (*range(50, 150), *range(120, 170), 99)]
        made = other.enqueue_many(range(1000, 1151), job_ids=ids)
        assert [job.id for job in made] == ids
        assert [job.created for job in made] == [
            *[False] * 50,
            *[True] * 50,
            *[False] * 30,
            *[True] * 20,
            False,
        ]
        assert [job.payload for job in made[:50]] == list(range(50, 100))
        assert [job.payload for job in made[50:100]] == list(range(1050, 1100))
        assert made[130].payload == 1130
        assert counts(queue)[0] == 170
        for store in (queue, other):
            assert [job.payload for job in (store.get("id-0"), store.get("id-149"))] == [0, 1099]
            assert [store.get(job_id).id for job_id in ids] == ids

    def test_again(self, queue: Queue, open_queue: Opener) -> None:
        ids = [f"id-{n}" for n in range(60)]
        first = queue.enqueue_many(range(60), job_ids=ids)
        again = open_queue().enqueue_many(range(60), job_ids=ids)
        assert [job.seq for job in again] == [job.seq for job in first]
        assert not any(job.created for job in again)
        assert drain(queue) == list(range(60))

    def test_from_a_snapshot_and_from_the_log(self, queue: Queue, open_queue: Opener) -> None:
        ids = [f"id-{n}" for n in range(80)]
        queue.enqueue_many(range(80), job_ids=ids)
        queue = open_queue.reopen(queue)
        assert [queue.get(job_id).payload for job_id in ids] == list(range(80))
        queue.close()
        for path in open_queue.dir.iterdir():
            if path.name.endswith(CACHES):
                path.unlink()
        queue = open_queue()
        assert [queue.get(job_id).payload for job_id in ids] == list(range(80))
        assert not any(job.created for job in queue.enqueue_many(ids, job_ids=ids))

    def test_dropped_purged_and_forgotten(self, queue: Queue, open_queue: Opener, clock: ManualClock) -> None:
        ids = [f"id-{n}" for n in range(60)]
        queue.enqueue_many(range(40), job_ids=ids[:40])
        queue.enqueue_many(range(40, 60), job_ids=ids[40:], lane="side")
        for job in queue.lease(10):
            queue.nack(job, dead=True)
        assert queue.drop_dead() == 10
        assert queue.purge(lane="side") == 20
        queue.ack_many(queue.lease(10))
        clock.advance(4000)
        queue.compact()
        queue = open_queue.reopen(queue)
        for job_id in (ids[0], ids[15], ids[50]):
            with pytest.raises(JobNotFoundError):
                queue.get(job_id)
        assert [queue.get(job_id).payload for job_id in ids[20:40]] == list(range(20, 40))
        made = queue.enqueue_many(ids, job_ids=ids)
        assert [job.created for job in made] == [*[True] * 20, *[False] * 20, *[True] * 20]
        assert [queue.get(job_id).id for job_id in ids] == ids
        assert counts(queue)[0] == 60


def test_distinct_delays_that_grow_and_that_do_not(queue: Queue, clock: ManualClock) -> None:
    queue.enqueue_many(range(5), delays=[1, 2, 2, 3, 4])
    queue.enqueue_many(range(5, 10), delays=[4, 3, 2, 2, 1])
    order = []
    for _ in range(4):
        clock.advance(1)
        order += drain(queue)
    assert order == [0, 9, 1, 2, 7, 8, 3, 6, 4, 5]
