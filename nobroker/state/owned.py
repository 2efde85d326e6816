"""Ids of the callers' own: a hash of each, and the sequence numbers of the jobs that may have it.

Invariants
- The log confirms: a hash says that a job *may* have an id, and that no other job has.
- What is found does not depend on whether ids came one by one or many at once.

Whole batches are looked up, and taken in, by calls that do the walking in C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import and_
from typing import Final

from xxhash import xxh3_64_intdigest

_KEY: Final = 2**60 - 1
"""Hashes are kept without their upper four bits: an int of 60 bits takes 32 bytes, a larger one 48."""
_PIECE: Final = 1000


class OwnIds:
    """From hashes to sequence numbers."""

    __slots__ = ("_more", "_seqs")

    def __init__(self) -> None:
        self._seqs: dict[int, int] = {}
        self._more: dict[int, tuple[int, ...]] = {}
        """All numbers of a hash that has several."""

    def __bool__(self) -> bool:
        return bool(self._seqs)

    def find(self, digest: int) -> tuple[int, ...]:
        """Sequence numbers of jobs whose id may have this hash."""
        key = digest & _KEY
        found = self._seqs.get(key)
        if found is None:
            return ()
        return self._more.get(key, (found,))

    def all_new(self, digests: Iterable[int]) -> bool:
        """Whether none of the hashes is known, and no two of them are the same."""
        keys = _keys(digests)
        return self._seqs.keys().isdisjoint(keys) and len(set(keys)) == len(keys)

    def add(self, digest: int, seq: int) -> None:
        key = digest & _KEY
        if self._seqs.setdefault(key, seq) != seq:
            known = self.find(key)
            if seq not in known:
                self._more[key] = (*known, seq)

    def add_all(self, digests: Iterable[int], first: int) -> None:
        """Add the hashes of jobs that follow each other."""
        keys = _keys(digests)
        seqs = range(first, first + len(keys))
        found = list(map(self._seqs.setdefault, keys, seqs))
        if found != list(seqs):
            for key, seq, holder in zip(keys, seqs, found, strict=True):
                if seq != holder:
                    self.add(key, seq)

    def forget(self, digests: Iterable[int], known: Callable[[int], int]) -> None:
        """Let go of the jobs with these hashes that are not known any more."""
        for digest in digests:
            key = digest & _KEY
            alive = tuple(filter(known, self.find(key)))
            self._seqs.pop(key, None)
            self._more.pop(key, None)
            if alive:
                self._seqs[key] = alive[0]
            if len(alive) > 1:
                self._more[key] = alive

    def capture(self) -> Iterator[tuple[list[int], list[int]]]:
        """A copy, given out in pieces later: hashes, and beside them the sequence numbers. A hash that has
        several comes as often.
        """
        more = [(key, seq) for key, seqs in self._more.items() for seq in seqs]
        keys, seqs = list(self._seqs), list(self._seqs.values())
        keys += [key for key, _ in more]
        seqs += [seq for _, seq in more]
        return ((keys[at : at + _PIECE], seqs[at : at + _PIECE]) for at in range(0, len(keys), _PIECE))

    def restore(self, keys: Sequence[int], seqs: Sequence[int]) -> None:
        """Add a piece of what `capture` gave."""
        if self._seqs.keys().isdisjoint(keys) and len(set(keys)) == len(keys) == len(seqs):
            self._seqs.update(zip(keys, seqs, strict=True))
        else:
            for key, seq in zip(keys, seqs, strict=True):
                self.add(key, seq)


def id_digest(job_id: str) -> int:
    """The 64-bit hash of an own id, as records that forget ids carry it."""
    return int(xxh3_64_intdigest(job_id.encode("utf-8", "surrogatepass")))


def id_digests(ids: Sequence[str]) -> list[int]:
    """`id_digest` of each."""
    try:
        return list(map(xxh3_64_intdigest, map(str.encode, ids)))
    except UnicodeEncodeError:  # a lone surrogate, from an import
        return [id_digest(job_id) for job_id in ids]


def _keys(digests: Iterable[int]) -> list[int]:
    return list(map(and_, digests, repeat(_KEY)))
