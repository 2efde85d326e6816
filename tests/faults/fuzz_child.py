"""A fuzzer that sees which branches are reached: `python -m tests.faults.fuzz_child [-FLAG=VALUE]… CORPUS`.

Flags are libFuzzer's, such as `-runs=` and `-seed=`. What is fuzzed is what stands behind the checksums: here
they are made right, so the fuzzer need not guess them. Ends with 0 when all that was raised was typed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random

import atheris
import msgpack
from xxhash import xxh3_64_intdigest

with atheris.instrument_imports(include=["nobroker", "nobroker_mmap"]):
    from nobroker import NobrokerError
    from nobroker.state import fitting, kinds, snapshots
    from nobroker.state.machine import State
    from nobroker.state.replay import MISFITS, apply
    from nobroker.stores.following import INDEXED
    from nobroker.stores.rows import index_rows
    from nobroker.values import unpack
    from nobroker_mmap import format as fmt
    from nobroker_mmap import offsets
    from nobroker_mmap.chain import retired_floor
    from nobroker_mmap.record import Place, encode, parse

from tests.faults.test_hostile_files import mutated_object

PLACE = Place(1, 7, 0)
OFFSET = fmt.SEGMENT_HEADER_SIZE
BEGINNING = (
    (kinds.ENQUEUE, {"t": 1, "n": 9, "s": 1}),
    (kinds.ENQUEUE, {"t": 2, "n": 2, "s": 10, "l": "lane", "p": 3, "i": ["one", "two"]}),
    (kinds.LEASE, {"t": 3, "w": 3, "d": 99, "k": 1, "q": [1, 4], "v": [[4, 0, 5, 0, 1]]}),
    (kinds.ACK, {"t": 4, "q": [1, 1], "k": 50}),
    (kinds.NACK, {"t": 5, "q": [2, 2], "a": [5], "x": [0]}),
)
"""What a sound log begins with."""


def begun() -> State:
    """The state after it."""
    state = State()
    for kind, head in BEGINNING:
        apply(state, kind, dict(head), 0)
    return state


def record(data: bytes, state: State) -> None:
    """A type, how much of the body is the head, and the body: replayed after a sound beginning."""
    if len(data) < 3:
        return
    body = data[3:]
    head_len = min(int.from_bytes(data[1:3], "little"), len(body))
    framed, _ = encode(data[0], 1, body[:head_len], body[head_len:], *PLACE[:2], OFFSET, 0, 0)
    found = parse(framed, 0, PLACE, OFFSET)
    if found is None:
        raise AssertionError("a record that was just made does not verify")
    head = found.head()
    if found.type in INDEXED:
        index_rows(found)
    fitting.check(found.type, head, len(found.tail_bytes), found.lsn)
    if found.type == fmt.RETIRE:
        retired_floor(found)
    apply(state, found.type, head, found.lsn)


def raw_record(data: bytes) -> None:
    """Bytes where a record should be."""
    parse(data, 0, PLACE, OFFSET)


def header(data: bytes) -> None:
    """A segment's header."""
    fields = fmt.SEGMENT_MAGIC + data[:112].ljust(112, b"\0")
    fmt.parse_segment_header(fields + xxh3_64_intdigest(fields).to_bytes(8, "little"))


def value(data: bytes) -> None:
    """A payload, a result, a state."""
    unpack(data)


def snapshot(data: bytes) -> None:
    """The objects of a snapshot."""
    unpacker = msgpack.Unpacker(strict_map_key=False, use_list=True, max_buffer_size=1 << 20)
    unpacker.feed(data)
    snapshots.restore(unpacker)


def index(data: bytes) -> None:
    """The rows of an index."""
    rows = data[: len(data) // 16 * 16]
    half = len(rows) // 32
    table = offsets.table_of_bytes(rows, len(rows) // 16 - half, half)
    if table is not None:
        for key in (0, 1, 20, 2**63):
            table.row_of(key)
        table.moved_rows()


OTHERS: tuple[Callable[[bytes], None], ...] = (raw_record, header, value, snapshot, index)
TYPED = (*MISFITS, NobrokerError, StopIteration, msgpack.UnpackException)
"""What the callers of these functions turn into a typed error."""


def one(data: bytes) -> None:
    """One input: its first byte says what it is."""
    state = begun()
    if not data:
        return
    try:
        if data[0] < len(OTHERS):
            OTHERS[data[0]](data[1:])
        else:
            record(data[1:], state)
    except TYPED:
        return


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Half of the records are changed as the objects that they are, all else as bytes."""
    rng = Random(seed)
    if len(data) > 4 and data[0] >= len(OTHERS) and rng.random() < 0.5:
        end = 4 + int.from_bytes(data[2:4], "little")
        try:
            head = msgpack.unpackb(data[4:end], strict_map_key=False)
            packed = msgpack.packb(mutated_object(head, rng))
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException):
            packed = b""
        changed = data[:2] + len(packed).to_bytes(4, "little")[:2] + packed + data[end:]
        if packed and len(changed) <= max_size:
            return changed
    return bytes(atheris.Mutate(data, max_size))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one, custom_mutator=mutate)
    atheris.Fuzz()
