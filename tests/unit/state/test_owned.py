"""Own ids: beside a plain dict, with hashes that are the same, whole or in what is kept of them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from nobroker.state.owned import OwnIds, id_digest, id_digests

KEPT = 2**60 - 1
HASHES = [*range(6), *(number << 60 | low for number in (1, 8, 15) for low in (1, 2)), KEPT, 2**64 - 1]
hashes = st.sampled_from(HASHES) | st.integers(0, 2**64 - 1)


class OwnIdsMachine(RuleBasedStateMachine):
    """Jobs come with hashes, one by one or many; some go; the whole is written and read."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = OwnIds()
        self.jobs: dict[int, int] = {}
        """Hash by sequence number, of jobs that are known."""
        self.next = 1

    def holders(self, digest: int) -> set[int]:
        return {seq for seq, other in self.jobs.items() if other & KEPT == digest & KEPT}

    @rule(digest=hashes)
    def add(self, digest: int) -> None:
        self.ids.add(digest, self.next)
        self.ids.add(digest, self.next)
        self.jobs[self.next] = digest
        self.next += 1

    @rule(digests=st.lists(hashes, max_size=12))
    def add_all(self, digests: list[int]) -> None:
        alone = {digest & KEPT for digest in digests}
        fresh = len(alone) == len(digests) and not any(self.holders(digest) for digest in digests)

        assert self.ids.all_new(digests) == fresh
        self.ids.add_all(digests, self.next)
        self.ids.add_all(digests, self.next)
        self.jobs.update(enumerate(digests, self.next))
        self.next += len(digests)
        assert not digests or not self.ids.all_new(digests)

    @rule(data=st.data(), number=st.integers(1, 4))
    def forget(self, data: st.DataObject, number: int) -> None:
        seqs = sorted(self.jobs)
        gone = data.draw(st.lists(st.sampled_from(seqs), max_size=number)) if seqs else []
        digests = [self.jobs.pop(seq) for seq in set(gone)]
        self.ids.forget(digests, lambda seq: int(seq in self.jobs))
        for digest in digests:
            assert set(self.ids.find(digest)) == self.holders(digest)

    @rule()
    def write_and_read(self) -> None:
        pieces = self.ids.capture()
        self.ids.add(7, self.next)  # comes after the picture was taken
        restored = OwnIds()
        for keys, seqs in pieces:
            restored.restore(keys, seqs)
        self.ids = restored
        self.next += 1

    @invariant()
    def finds_all(self) -> None:
        for digest in set(self.jobs.values()) | set(HASHES):
            assert set(self.ids.find(digest)) == self.holders(digest)
        assert bool(self.ids) == bool(self.jobs)


TestOwnIds = OwnIdsMachine.TestCase
TestOwnIds.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_many_pieces() -> None:
    ids = OwnIds()
    ids.add_all(range(10**6, 10**6 + 2500), 1)
    ids.add(10**6, 9000)
    pieces = list(ids.capture())
    assert sum(len(keys) for keys, _ in pieces) == 2502
    restored = OwnIds()
    for keys, seqs in pieces:
        restored.restore(keys, seqs)
    assert restored.find(10**6) == (1, 9000)
    assert [restored.find(10**6 + n) for n in range(1, 2500)] == [(n + 1,) for n in range(1, 2500)]


def test_hashes_of_many_are_those_of_each() -> None:
    ids = ["a", "order-1", "ü", "\U0001f600", "x" * 255]
    assert id_digests(ids) == [id_digest(job_id) for job_id in ids]
    ids.append("\ud800")
    assert id_digests(ids) == [id_digest(job_id) for job_id in ids]


def test_ids_one_by_one_and_in_bulk() -> None:
    ids = OwnIds()
    assert (bool(ids), ids.find(7)) == (False, ())
    assert ids.all_new([7, 8])
    assert not ids.all_new([7, 7])
    assert not ids.all_new([7, KEPT + 1 + 7]), "the same in what is kept of them"
    ids.add(7, 1)
    ids.add(7, 1)
    assert ids.find(7) == (1,)
    assert not ids.all_new([6, 7])
    ids.add_all([6, 7, 8], 10)
    ids.add_all([6, 7, 8], 10)
    ids.add(7, 12)
    assert [ids.find(digest) for digest in (6, 7, 8)] == [(10,), (1, 11, 12), (12,)]
    pieces = list(ids.capture())
    again = OwnIds()
    for keys, seqs in pieces:
        again.restore(keys, seqs)
    assert [again.find(digest) for digest in (6, 7, 8)] == [(10,), (1, 11, 12), (12,)]
    again.restore([9], [13])
    again.restore([9, 9], [14, 15])
    assert again.find(9) == (13, 14, 15)
    ids.forget([7, 6, 99], lambda seq: int(seq != 1 and seq != 10))
    assert [ids.find(digest) for digest in (6, 7, 8)] == [(), (11, 12), (12,)]
    ids.forget([7], lambda seq: int(seq == 12))
    assert ids.find(7) == (12,)
    ids.forget([7, 8], lambda seq: 0)
    assert not ids
