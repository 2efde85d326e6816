"""Enqueueing at the tip: without having read what other handles appended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import Queue
from nobroker.clock import ManualClock
from nobroker.stores import tip as tip_module
from nobroker_mmap import control as ctl


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pair(tmp_path: Path, clock: ManualClock) -> Iterator[tuple[Queue, Queue]]:
    """Two handles, as two processes have them, that both have read what is there; checked in the end."""
    with opened(tmp_path / "jobs", clock) as one, opened(tmp_path / "jobs", clock) as two:
        for number in range(3):  # the first asks for the numbers, the others find them
            one.enqueue({"from": "one", "n": -number})
            two.enqueue({"from": "two", "n": -number})
        yield one, two
        assert list(one.check()) == []
        assert one.stats().to_dict() == two.stats().to_dict()
        assert jobs_of(one) == jobs_of(two)
    with opened(tmp_path / "jobs", clock) as again:
        assert again.recovery.bytes_discarded == 0


def opened(path: Path, clock: ManualClock) -> Queue:
    return Queue(path, fsync=False, clock=clock, segment_size=65536)


def jobs_of(queue: Queue) -> list[dict[str, Any]]:
    return [job.to_dict() for job in queue.list_jobs()]


def lag(queue: Queue) -> int:
    return int(queue._store._session.log.lag())  # type: ignore[attr-defined]


def words(queue: Queue) -> Any:
    return queue._store._session.log.control.words  # type: ignore[attr-defined]


def test_nothing_is_read_and_nothing_is_missing(pair: tuple[Queue, Queue]) -> None:
    one, two = pair
    made = []
    for number in range(50):
        made += [one.enqueue({"n": number}, priority=number % 3), two.enqueue({"n": number}, delay=number)]
    assert min(lag(one), lag(two)) > 0, "each has read on: this tests nothing"
    assert len({job.id for job in made}) == len({job.seq for job in made}) == 100
    assert [job.seq for job in made] == sorted(job.seq for job in made)
    assert [two.get(job.id).to_dict() for job in made] == [job.to_dict() for job in made]


def test_the_log_is_the_same_as_with_reading(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = []
    for limit in (tip_module.LAG_BYTES, -1):
        monkeypatch.setattr(tip_module, "LAG_BYTES", limit)
        moment = ManualClock()
        with opened(tmp_path / str(limit), moment) as one, opened(tmp_path / str(limit), moment) as two:
            for number in range(200):
                moment.advance(0.001)
                (one, two)[number % 2].enqueue({"n": number}, priority=number % 5, metadata={"m": number})
            session = opened(tmp_path / str(limit), moment)._store._session  # type: ignore[attr-defined]
            session.log.rewind()
            records = [(r.type, r.head(), r.tail_bytes) for r in session.log.records()]
            session.close()
            logs.append([r for r in records if r[0] in (16, 17) or "n" in r[1]])
    assert len(logs[0]) >= 200
    assert logs[0] == logs[1]


def test_much_is_read_at_once(pair: tuple[Queue, Queue]) -> None:
    one, two = pair
    for _ in range(20):
        one.enqueue("x" * 5000)
    assert lag(two) > tip_module.LAG_BYTES
    two.enqueue("small")
    assert lag(two) == 0


@pytest.mark.parametrize("field", range(ctl.TIP, ctl.TIP_CHECK + 1))
@pytest.mark.parametrize("bit", [0, 17, 63])
def test_a_wrong_bit_in_the_numbers_is_not_believed(pair: tuple[Queue, Queue], field: int, bit: int) -> None:
    one, two = pair
    one.enqueue(1)
    assert lag(two) > 0
    words(one)[field] ^= 1 << bit
    job = two.enqueue(2)
    assert lag(two) == 0, "the numbers were believed"
    assert two.get(job.id).payload == 2


def test_numbers_of_somebody_who_died_before_saying_them(pair: tuple[Queue, Queue]) -> None:
    one, two = pair
    before = words(one)[ctl.TIP : ctl.TIP_CHECK + 1].tolist()
    one.enqueue(1)
    for number, value in enumerate(before):
        words(one)[ctl.TIP + number] = value
    job = two.enqueue(2)
    assert (job.seq, two.get(job.id).payload) == (one.stats().ready, 2)


def test_reserved_numbers_are_kept(pair: tuple[Queue, Queue]) -> None:
    one, two = pair
    state = one._store._session.state  # type: ignore[attr-defined]
    one.enqueue_many([0] * (state.reserved_seq - state.next_seq - 8))
    made = [(one, two)[number % 2].enqueue(number).seq for number in range(30)]
    assert made == list(range(made[0], made[0] + 30))


def test_segments_that_others_began(pair: tuple[Queue, Queue]) -> None:
    one, two = pair
    seqs = [(one, two)[number % 2].enqueue("y" * 300).seq for number in range(600)]
    assert seqs == list(range(seqs[0], seqs[0] + 600))
    assert len(list(Path(one.dir).glob("*.seg"))) > 2


def test_leases_after_enqueues_at_the_tip(pair: tuple[Queue, Queue]) -> None:
    one, two = pair
    for number in range(20):
        one.enqueue(number)
        two.enqueue(number)
    taken = [job.seq for queue in (one, two) * 23 for job in queue.lease(1)]
    assert taken == sorted(taken)
    assert len(taken) == len(set(taken)) == 46


def test_a_newest_segment_that_was_met_and_not_opened(
    pair: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reading leaves it that fails between the two: the record must go where it says it is."""
    one, two = pair
    one.enqueue_many(["z" * 300] * 300)  # more than the rest of the segment
    chain = two._store._session.log._chain  # type: ignore[attr-defined]
    while chain.learn_next():
        pass
    one.enqueue("tip")
    two._store._session.contended = True  # type: ignore[attr-defined]
    two_before = lag(two)
    monkeypatch.setattr(tip_module, "LAG_BYTES", two_before + 1)
    job = two.enqueue("mine")
    assert lag(two) > two_before, "it was read first: this tests nothing"
    assert one.get(job.id).payload == "mine"
