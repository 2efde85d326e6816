"""The state machine by itself: whatever way the records come to it, the same answers.

Random verbs on a real queue give the records; the rest is pure. The full replay, a replay with a snapshot in
the middle and a replay of a log whose front was retired must agree.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nobroker import BackoffPolicy, Limit, NobrokerError, Queue, Rate
from nobroker.clock import ManualClock
from nobroker.state import codes, kinds, replay, snapshots
from nobroker.state.machine import State
from nobroker.state.numbers import each
from nobroker.values import pack_plain

Record = tuple[int, dict[str, Any], int]
NEVER = 2**61
IDS = [f"id-{n}" for n in range(8)]

one = st.integers(0, 30)
some = st.lists(one, min_size=1, max_size=12)
verbs = st.one_of(
    st.tuples(st.just("one"), st.integers(-1, 1), st.sampled_from([0, 0, 5]), st.sampled_from(["", "a"])),
    st.tuples(st.just("expiring"), st.sampled_from([3, 30])),
    st.tuples(st.just("many"), st.sampled_from([2, 70, 150]), st.integers(0, 1), st.sampled_from(["", "a"])),
    st.tuples(st.just("delays"), st.lists(st.sampled_from([0, 1, 9]), min_size=1, max_size=5)),
    st.tuples(st.just("own"), st.lists(st.sampled_from(IDS), min_size=1, max_size=4)),
    st.tuples(st.just("dated"), st.sampled_from([-5, 5, 50])),
    st.tuples(
        st.just("limited"),
        st.lists(st.sampled_from(["k", "l", "m"]), min_size=1, max_size=2, unique=True),
        st.sampled_from([1, 2]),
        st.sampled_from([1, 3, 70]),
        st.sampled_from([0, 0, 5]),
    ),
    st.tuples(st.just("rated"), st.sampled_from([1, 3]), st.sampled_from([2, 50]), st.sampled_from([1, 5])),
    st.tuples(st.just("fair"), st.sampled_from("AB"), st.sampled_from([1, 2]), st.sampled_from([1, 4])),
    st.tuples(st.just("alone"), st.integers(-1, 0)),
    st.tuples(st.just("lane_limit"), st.sampled_from([None, 1, 3])),
    st.tuples(st.just("lease"), st.sampled_from([1, 3, 100]), st.sampled_from([2, 60])),
    st.tuples(st.just("ack"), some),
    st.tuples(st.just("result"), one),
    st.tuples(st.just("nack"), some, st.sampled_from([0, 5]), st.booleans(), st.sampled_from([None, "n"])),
    st.tuples(st.just("extend"), some),
    st.tuples(st.just("release"), some, st.sampled_from([None, "r"])),
    st.tuples(st.just("cancel"), one),
    st.tuples(st.just("debounce"), st.sampled_from(IDS), st.sampled_from([1, 5])),
    st.tuples(st.just("reschedule"), one, st.sampled_from([0, 2, 40]), st.booleans()),
    st.tuples(st.just("requeue")),
    st.tuples(st.just("drop")),
    st.tuples(st.just("pause"), st.sampled_from([None, "a"]), st.booleans()),
    st.tuples(st.just("purge"), st.sampled_from(["a", "a", None])),
    st.tuples(st.just("compact")),
    st.tuples(st.just("advance"), st.sampled_from([1, 3, 61, 4000])),
)


class Scribe:
    """Does verbs on a queue and keeps the records that they made."""

    def __init__(self, directory: str, records: list[Record]) -> None:
        self.clock = ManualClock()
        self.records = records
        self.queue = Queue(
            directory, fsync=False, clock=self.clock, segment_size=65536, max_attempts=2,
            backoff=BackoffPolicy(base=1, jitter=0),
        )  # fmt: skip
        self.held: list[Any] = []
        self.ids: list[str] = []

    def pick(self, numbers: list[int]) -> list[Any]:
        held = self.held
        return list({held[n % len(held)].id: held[n % len(held)] for n in numbers}.values()) if held else []

    def do(self, verb: tuple[Any, ...]) -> None:
        try:
            getattr(self, "_" + verb[0])(*verb[1:])
        except NobrokerError:
            return  # a stale job: refused, and nothing written

    def _one(self, priority: int, delay: int, lane: str) -> None:
        self.ids.append(self.queue.enqueue("x", priority=priority, delay=delay, lane=lane, metadata=1).id)

    def _expiring(self, seconds: int) -> None:
        self.queue.enqueue("e", expires_in=seconds)
        self.queue.enqueue_many("ef", expires_in=seconds, delay=2)

    def _many(self, count: int, priority: int, lane: str) -> None:
        self.queue.enqueue_many([b"y" * 200] * count, priority=priority, lane=lane)

    def _delays(self, delays: list[int]) -> None:
        self.queue.enqueue_many(range(len(delays)), delays=delays)

    def _own(self, ids: list[str]) -> None:
        self.queue.enqueue_many(range(len(ids)), job_ids=ids)

    def _dated(self, after: int) -> None:
        self.queue.enqueue("d", run_at=self.clock.wall_us() / 1e6 + after)

    def _limited(self, keys: list[str], limit: int, count: int, delay: int) -> None:
        limits = [Limit(key, limit) for key in keys]
        self.queue.enqueue_many(range(count), limits=limits, delay=delay, lane="a" * (limit - 1))

    def _rated(self, most: int, duration: int, count: int) -> None:
        self.queue.enqueue_many(range(count), rates=Rate("k", most, duration))

    def _fair(self, key: str, weight: int, count: int) -> None:
        limits = Limit("k", 2) if weight == 2 else None
        self.queue.enqueue_many(range(count), fair_key=key, fair_weight=weight, limits=limits)

    def _alone(self, priority: int) -> None:
        self.queue.enqueue("alone", priority=priority, exclusive="app")

    def _lane_limit(self, limit: int | None) -> None:
        self.queue.lane_limit("a", limit)

    def _lease(self, count: int, timeout: int) -> None:
        self.held = [*self.held, *self.queue.lease(count, visibility_timeout=timeout)][-30:]

    def _ack(self, numbers: list[int]) -> None:
        self.queue.ack_many(self.pick(numbers))

    def _result(self, number: int) -> None:
        for job in self.pick([number]):
            self.queue.ack(job, result={"r": 1})

    def _nack(self, numbers: list[int], delay: int, told: bool, state: Any) -> None:
        self.queue.nack_many(self.pick(numbers), error="e" if told else None, delay=delay, state=state)

    def _extend(self, numbers: list[int]) -> None:
        self.queue.extend_many(self.pick(numbers), 30, progress=1, state="s")

    def _release(self, numbers: list[int], state: Any) -> None:
        self.queue.release_many(self.pick(numbers), state=state)

    def _cancel(self, number: int) -> None:
        if self.ids:
            self.queue.cancel(self.ids[number % len(self.ids)])

    def _debounce(self, job_id: str, wait: int) -> None:
        self.queue.enqueue("new", job_id=job_id, debounce=wait, debounce_max=8)

    def _reschedule(self, number: int, after: int, dated: bool) -> None:
        if self.ids:
            when = {"run_at": self.clock.wall_us() / 1e6 + after} if dated else {"delay": after}
            self.queue.reschedule(self.ids[number % len(self.ids)], **when)

    def _requeue(self) -> None:
        self.queue.requeue_dead()

    def _drop(self) -> None:
        self.queue.drop_dead()

    def _pause(self, lane: str | None, pause: bool) -> None:
        (self.queue.pause if pause else self.queue.resume)(lane=lane)

    def _purge(self, lane: str | None) -> None:
        self.queue.purge(lane=lane)

    def _compact(self) -> None:
        self.queue.compact()

    def _advance(self, seconds: int) -> None:
        self.clock.advance(seconds)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """Every record that a queue applies, as it would come from the disk."""
    found: list[Record] = []

    def note(state: State, kind: int, head: dict[str, Any], lsn: int) -> None:
        found.append((kind, msgpack.unpackb(pack_plain(head), strict_map_key=False), lsn))
        replay.apply(state, kind, head, lsn)

    monkeypatch.setattr("nobroker.stores.session.apply", note)
    monkeypatch.setattr("nobroker.stores.moving.apply", note)
    return found


def replayed(records: list[Record], state: State | None = None) -> State:
    state = State() if state is None else state
    for kind, head, lsn in records:
        replay.apply(state, kind, copy.deepcopy(head), lsn)
    return state


def reloaded(state: State) -> State:
    """Through a snapshot, as it would come from the disk."""
    objects = [
        msgpack.unpackb(msgpack.packb(item), strict_map_key=False) for item in snapshots.capture(state)
    ]
    found = snapshots.restore(objects)
    assert found is not None
    return found


def picture(state: State) -> dict[str, Any]:
    """All answers of a state, in a form that does not show how it came about; the state is used up."""
    state.ready.promote(state.time, state.time)
    jobs, pages = {}, state.pages
    for code in range(1, codes.COUNT):
        for seq in state.pages.having(code):
            entry, lease = state.entries.get(seq), state.leased.get(seq)
            jobs[seq] = (
                (code, pages.lane(seq), pages.has_own_id(seq), pages.token(seq), pages.ref(seq)),
                (state.attempts(seq), state.never_leased(seq)),
                lease and (lease.deadline, seq + lease.delta, lease.place(seq), lease.priority, lease.lane),
                entry and (entry.flags, entry.error, entry.progress, entry.state),
            )
    for seq, facts in jobs.items():
        if facts[3] == (0, 0, 0, 0):  # an entry that says nothing
            jobs[seq] = (*facts[:3], None)
    answers = {
        "jobs": jobs,
        "order": list(state.ready.in_order()),
        "counts": {
            (code, lane): state.pages.total(code, lane)
            for code in range(1, codes.COUNT)
            for lane in ("", "a")
        },
        "ids": {job_id: [s for s in state.find_own(job_id) if state.pages.code(s)] for job_id in IDS},
        "numbers": (state.next_seq, state.next_token, state.reserved_seq, state.reserved_token, state.time),
        "paused": state.paused,
        "clock": (state.boot, state.anchors),
        "overdue": sorted(seq for seq, _ in state.overdue(NEVER)),
        "next": state.next_deadline(),
        "limits": {seq: state.ready.words(seq) for seq in jobs},
        "gates": {
            key: (gate.jobs, len(gate.held), gate.limit)
            for key, gate in state.ready.gates.items()
            if gate.jobs
        },
        "outdated": {seq for seqs, *_ in state.outdated(NEVER) for seq in seqs},
    }
    for rate in state.ready.rates.values():
        rate.forget()
    answers["rates"] = {
        key: (rate.window(), (rate.limit, rate.duration, rate.jobs) if rate.jobs else None)
        for key, rate in state.ready.rates.items()
        if rate.times or rate.jobs
    }
    lasting = state.ready.lasting_shares()
    answers["rounds"] = sorted(lasting["f"]), sorted(lasting["F"])
    answers["weights"] = {
        name: key.weight
        for name, key in state.ready.fair_keys.items()
        if any(group.fair is key and group.members for group in state.ready.groups.values())
    }
    answers["lane limits"] = state.ready.lane_limits
    for key, gate in [*state.ready.gates.items(), *state.ready.rates.items()]:
        mine = [seq for seq, group in state.ready.of.items() if gate in group.gates]
        assert gate.jobs == len(mine), key
        assert gate.held == {seq for seq in mine if state.pages.code(seq) == codes.LEASED}, key
    answers["taken"] = list(delivered(state))
    return answers


def delivered(state: State) -> Iterator[tuple[Any, ...]]:
    """Everything that waits, taken out in small bites, as leases would; what is leased ends when limits hold
    back all that is left.
    """
    state.ready.promote(NEVER, NEVER)
    while True:
        pieces = state.ready.take(7, None, frozenset())
        if not pieces:
            leased = list(state.pages.having(codes.LEASED)) if state.ready.limited else []
            if not leased:
                waiting = sum(state.pages.total(code) for code in codes.WAITING)
                assert not waiting, "jobs that nobody can reach"
                return
            for seq in leased:
                state.pages.put(seq, codes.DONE)
            state.ready.lane_limits.clear()  # they hold back those that are leased in the picture only
            for rate in state.ready.rates.values():
                rate.limit = NEVER
                state.ready._freed(rate)
        for piece in pieces:
            avails = [piece.avail] * piece.size if isinstance(piece.avail, int) else piece.avail
            seqs = list(each(piece.spans))
            for seq, avail in zip(seqs, avails, strict=True):
                state.pages.put(seq, codes.LEASED)
                yield seq, avail, piece.lane, piece.priority, piece.max_attempts


def require_same(found: State, expected: State) -> None:
    one, other = picture(found), picture(expected)
    for name, value in other.items():
        assert one[name] == value, name


CI = settings(
    max_examples=int(os.environ.get("NOBROKER_PROPERTY_EXAMPLES", "60")),
    suppress_health_check=list(HealthCheck),
)


@CI
@given(st.lists(verbs, min_size=1, max_size=40), st.lists(st.integers(0, 10**6), min_size=1, max_size=2))
def test_a_snapshot_anywhere_changes_no_answer(records_of: Any, script: list[Any], cuts: list[int]) -> None:
    records, _ = records_of(script)
    for cut in cuts:
        at = cut % (len(records) + 1)
        before = replayed(records[:at])
        require_same(reloaded(before), replayed(records[:at]))
        require_same(replayed(records[at:], reloaded(before)), replayed(records))


@CI
@given(st.lists(verbs, min_size=1, max_size=40))
def test_a_log_whose_front_was_retired_gives_the_same_answers(records_of: Any, script: list[Any]) -> None:
    records, floor = records_of([*script, ("compact",)])
    assert any(kind == kinds.RETIRE for kind, _, _ in records)
    retired = [record for record in records if record[2] >= floor]
    assert len(retired) < len(records)
    require_same(replayed(retired), replayed(records))


@CI
@given(st.lists(verbs, min_size=1, max_size=40), st.lists(verbs, max_size=20))
def test_what_comes_after_a_retirement_finds_the_same_state(
    records_of: Any, script: list[Any], more: list[Any]
) -> None:
    records, floor = records_of([*script, ("compact",), *more])
    require_same(replayed([record for record in records if record[2] >= floor]), replayed(records))


@CI
@given(st.lists(verbs, min_size=1, max_size=30))
def test_replay_is_a_function_of_the_records(records_of: Any, script: list[Any]) -> None:
    records, _ = records_of(script)
    require_same(replayed(records), replayed(records))


def test_a_snapshot_of_another_version_is_no_snapshot() -> None:
    objects = list(snapshots.capture(State()))
    objects[0]["v"] += 1  # type: ignore[call-overload,operator]
    assert snapshots.restore(objects) is None


@pytest.mark.parametrize("part", [["?", 1], ["p"], ["e", [[1]]], ["l"], ["r", 1], 5, None])
def test_a_snapshot_of_something_else_is_a_typed_error(part: Any) -> None:
    objects = [*snapshots.capture(State()), part]
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        snapshots.restore(objects)


def test_an_unknown_kind_changes_nothing() -> None:
    state = State()
    replay.apply(state, 99, {"t": 5}, 1)
    require_same(state, State())


@pytest.fixture
def records_of(records: list[Record]) -> Any:
    """The records of a script, and the LSN at which the part of the log that still counts begins."""

    def run(script: list[Any]) -> tuple[list[Record], int]:
        records.clear()
        with tempfile.TemporaryDirectory(prefix="nobroker-replay-") as directory:
            scribe = Scribe(directory, records)
            try:
                for verb in script:
                    scribe.do(verb)
                log = scribe.queue._store._session.log  # type: ignore[attr-defined]
                floor = min(segment.base for segment in log._chain.segments.values())
            finally:
                scribe.queue.close()
        return list(records), floor

    return run
