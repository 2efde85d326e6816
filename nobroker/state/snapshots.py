"""The state as plain objects, and back.

`capture` copies what may change and returns at once; the objects are made while the caller writes them, so
that a large state costs nobody a pause. `restore` of the objects gives a state with the same answers; the
rows of the ready index may be cut differently.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

from nobroker.state import codes
from nobroker.state.entries import Entry, Lease
from nobroker.state.gates import Group, Identity, Words, said_of, words_of
from nobroker.state.machine import State
from nobroker.state.numbers import each, pack_words, ranges_of, unpack_words
from nobroker.state.pages import SIZE, Page
from nobroker.state.ready import ReadyIndex
from nobroker.state.runs import Run

VERSION: Final = 4
_CHUNK: Final = 1000


def capture(state: State) -> Iterator[list[Any] | dict[str, Any]]:
    """A consistent picture of the state, as objects that msgpack takes."""
    pages = [
        (
            number,
            bytes(page.codes),
            _copied(page.tokens),
            _copied(page.refs),
            _copied(page.lanes),
            page.own and bytes(page.own),
        )
        for number, page in state.pages.table.items()
    ]
    head = {
        "v": VERSION,
        "s": state.next_seq,
        "k": state.next_token,
        "S": state.reserved_seq,
        "K": state.reserved_token,
        "t": state.time,
        "p": list(state.paused),
        "b": state.boot,
        "a": [[name, *anchor] for name, anchor in state.anchors.items()],
        "l": list(state.pages.lane_names),
        "c": [list(counts) for counts in state.pages.counts],
        "x": list(state.expiries),
        **state.ready.lasting(),
    }
    entries, leased, ids = dict(state.entries), dict(state.leased), state.ids.capture()
    limits = _Limits(state.ready)
    ready = _Runs(
        row[3]
        for rows in (*state.ready.lanes.values(), *(group.rows for group in limits.groups))
        for row in rows
        if isinstance(row[3], Run)
    )
    later = _Runs(
        run for queue in (state.ready.later, state.ready.later_wall) for _, _, run in queue if run is not None
    )
    return _objects(head, pages, entries, leased, ids, ready, later, limits)


class _Runs:
    """Runs, and a copy of what of them there is."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = list(runs)
        self._lows = [run.low for run in self._runs]
        self._highs = [run.high for run in self._runs]

    def __iter__(self) -> Iterator[tuple[Run, int, int]]:
        return zip(self._runs, self._lows, self._highs, strict=True)


class _Limits:
    """A copy of who belongs to which group."""

    def __init__(self, ready: ReadyIndex) -> None:
        self.groups = [group for group in ready.groups.values() if group.members]
        self.numbers = {group: number for number, group in enumerate(self.groups)}
        # Plain numbers, in the order of the groups: an object each would cost a million groups a pause.
        self._limits = [gate.limit for group in self.groups for gate in group.gates]
        self._durations = [rate.duration for group in self.groups for rate in group.rates]
        self._weights = [0 if group.fair is None else group.fair.weight for group in self.groups]
        self._of, self._dead = dict(ready.of), dict(ready.dead)

    def objects(self) -> Iterator[list[Any]]:
        members: list[int | list[int]] = [0] * len(self.groups)  # sequence numbers begin at 1
        for seq, group in self._of.items():
            number = self.numbers[group]
            others = members[number]
            if isinstance(others, list):
                others.append(seq)
            else:
                members[number] = [others, seq] if others else seq
        limits, durations, weights = iter(self._limits), iter(self._durations), iter(self._weights)
        for group, seqs in zip(self.groups, members, strict=True):
            words = _words(group.identity, limits, durations, next(weights))
            spans = ranges_of(sorted(seqs)) if isinstance(seqs, list) else [seqs, seqs]
            yield ["g", group.identity.lane, group.identity.priority, said_of(words), spans]
        for seq, (lane, priority, words) in self._dead.items():
            yield ["x", lane, priority, said_of(words), [seq, seq]]


def _words(of: Identity, limits: Iterator[int], durations: Iterator[int], weight: int) -> Words:
    return Words(
        tuple((key, next(limits)) for key in of.keys),
        tuple((key, next(limits), next(durations)) for key in of.rates),
        of.alone,
        None if of.fair is None else (of.fair, weight),
    )


def _objects(
    head: dict[str, Any],
    pages: list[Any],
    entries: dict[int, Entry],
    leased: dict[int, Lease],
    ids: Iterator[tuple[list[int], list[int]]],
    ready: _Runs,
    later: _Runs,
    limits: _Limits,
) -> Iterator[list[Any] | dict[str, Any]]:
    yield head
    for number, codes_of, tokens, refs, lanes, own in pages:
        same = codes_of.count(codes_of[0]) == SIZE
        yield [
            "p",
            number,
            codes_of[0] if same else codes_of,
            _bytes(tokens),
            _bytes(refs),
            _bytes(lanes),
            own,
        ]
    for chunk in _chunks(list(entries.items())):
        yield ["e", [[seq, *entry] for seq, entry in chunk]]
    held: dict[int, tuple[Lease, list[int]]] = {}
    for seq, lease in leased.items():
        held.setdefault(id(lease), (lease, []))[1].append(seq)
    for lease, seqs in held.values():
        seqs.sort()
        places = None if lease.avails is None else [lease.place(seq) for seq in seqs]
        attributes = [lease.lane, lease.priority, lease.max_attempts, lease.expires]
        place = lease.avail if places is None else places
        yield ["l", ranges_of(seqs), lease.delta, lease.deadline, *attributes, place]
    yield from limits.objects()
    for mark, runs in (("r", ready), ("d", later)):
        for run, low, high in runs:
            number = None if run.group is None else limits.numbers.get(run.group, -1)
            if number != -1:  # else none of its jobs waits any more
                yield [*_run_object(mark, run, low, high), number]
    for digests, numbers in ids:
        yield ["i", digests, numbers]


def _run_object(mark: str, run: Run, low: int, high: int) -> list[Any]:
    base = run.base + low if run.seqs is None else run.base
    seqs = None if run.seqs is None else _bytes(run.seqs[low:high])
    avails = None if run.avails is None else _bytes(run.avails[low:high])
    return [
        mark,
        run.lane,
        run.nprio,
        run.max_attempts,
        run.expires,
        base,
        high - low,
        run.avail,
        run.wall,
        seqs,
        avails,
    ]


def restore(objects: Iterable[Any]) -> State | None:
    """The state again; None when another version wrote it.

    Raises:
        ValueError, TypeError, KeyError, IndexError: the objects are not what `capture` gives.
    """
    source = iter(objects)
    head = next(source)
    if head["v"] != VERSION:
        return None
    state = State()
    state.next_seq, state.next_token = head["s"], head["k"]
    state.reserved_seq, state.reserved_token = head["S"], head["K"]
    state.time = head["t"]
    state.paused = set(head["p"])
    state.boot = head["b"]
    state.anchors = {name: (clock, time) for name, clock, time in head["a"]}
    for lane in head["l"]:
        state.pages.lane_number(lane)
    state.pages.counts = [list(counts) for counts in head["c"]]
    state.ready.now = state.time
    state.ready.set_lasting(head)
    state.expiries = [tuple(entry) for entry in head["x"]]
    groups: list[Group] = []
    for item in source:
        _restore_item(state, groups, item)
    for seq in state.entries:
        code = state.pages.code(seq)
        if code in (codes.RETRY, codes.RETRY_LATER):
            state.ready.add_own(seq, code == codes.RETRY_LATER)
    return state


def _restore_item(state: State, groups: list[Group], item: list[Any]) -> None:
    mark = item[0]
    if mark == "p":
        page = state.pages.table[item[1]] = _page(*item[2:])
        if page.lanes is not None and max(page.lanes) >= len(state.pages.lane_names):
            raise ValueError("a lane that has no name")
    elif mark == "e":
        for seq, *fields in item[1]:
            state.entries[seq] = Entry(*fields)
    elif mark == "l":
        _restore_lease(state, *item[1:])
    elif mark in ("r", "d"):
        group = None if item[-1] is None else groups[item[-1]]
        _restore_run(state, mark == "d", group, *item[1:-1])
    elif mark in ("g", "x"):
        _restore_group(state, groups, *item)
    elif mark == "i":
        state.ids.restore(item[1], item[2])
    else:
        raise ValueError(f"unknown part {mark!r} in a snapshot")


def _page(codes_of: int | bytes, tokens: Any, refs: Any, lanes: Any, own: bytes | None) -> Page:
    if own is not None and (type(own) is not bytes or len(own) != SIZE):
        raise ValueError("a page of another size")
    page = Page()
    page.codes = bytearray(bytes((codes_of,)) * SIZE if type(codes_of) is int else codes_of)
    if len(page.codes) != SIZE or max(page.codes) >= codes.COUNT:
        raise ValueError("a page of another size, or with states that do not exist")
    page.tokens = _array("Q", tokens)
    page.refs = _array("Q", refs)
    page.lanes = _array("I", lanes)
    page.own = None if own is None else bytearray(own)
    if any(words is not None and len(words) != SIZE for words in (page.tokens, page.refs, page.lanes)):
        raise ValueError("a page of another size")
    return page


def _restore_lease(
    state: State,
    spans: list[int],
    delta: int,
    deadline: int,
    lane: str,
    priority: int,
    attempts: int,
    expires: int,
    avail: Any,
) -> None:
    seqs = _known(state, spans)
    if not seqs:
        raise ValueError("a lease of no job")
    places = dict(zip(seqs, avail, strict=True)) if type(avail) is list else None
    lease = Lease(
        spans, len(seqs), delta, deadline, lane, priority, attempts, expires, 0 if places else avail, places
    )
    state.hold(lease, seqs[0], seqs[0])
    state.leased.update(dict.fromkeys(seqs, lease))


def _known(state: State, spans: list[int]) -> list[int]:
    """The numbers of flat ranges, when so many jobs are known."""
    sizes = [last - first + 1 for first, last in zip(spans[::2], spans[1::2], strict=True)]
    if sum(sizes) > SIZE * len(state.pages.table) or min(sizes, default=1) < 1:
        raise ValueError("more jobs than are known")
    return list(each(spans))


def _restore_group(
    state: State, groups: list[Group], mark: str, lane: str, priority: int, said: Any, spans: list[int]
) -> None:
    seqs, words = _known(state, spans), words_of(said)
    if mark == "x":
        for seq in seqs:
            state.ready.bury(seq, lane, priority, words)
        return
    group = state.ready.join(seqs, lane, priority, words)
    groups.append(group)
    for seq in seqs:
        if seq in state.leased:
            state.ready.hold(seq, group)


def _restore_run(state: State, later: bool, group: Group | None, *fields: Any) -> None:
    lane, nprio, attempts, expires, base, size, avail, wall, seqs, avails = fields
    own_seqs, own_avails = _array("I", seqs), _array("q", avails)
    run = Run(lane, nprio, attempts, expires, base, size, avail, wall, own_seqs, own_avails, group)
    words = [size if words is None else len(words) for words in (run.seqs, run.avails)]
    if words != [size, size] or not 0 <= size <= SIZE * len(state.pages.table) or base < 0:
        raise ValueError("a run of another length than it says")
    if run.high == 0:
        return
    if later:
        state.ready.add_later(run)
    else:
        state.ready.add_run(run)


def _chunks(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def _copied(words: array[int] | None) -> array[int] | None:
    return None if words is None else words[:]


def _bytes(words: array[int] | None) -> bytes | None:
    return None if words is None else pack_words(words.typecode, words)


def _array(code: str, data: bytes | None) -> array[int] | None:
    return None if data is None else unpack_words(code, data)
