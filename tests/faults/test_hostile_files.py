"""Files that somebody made on purpose: only typed errors, within a second and 256 MiB.

A mutated record gets its checksum right again, so that what lies behind the checksum is reached.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
from xxhash import xxh3_64, xxh3_64_intdigest

from nobroker import NobrokerError
from nobroker.state import fitting, snapshots
from nobroker.state.machine import State
from nobroker.state.replay import MISFITS, apply
from nobroker.stores.following import INDEXED
from nobroker.stores.rows import index_rows
from nobroker.values import unpack
from nobroker_mmap import format as fmt
from nobroker_mmap import snapshot as snap
from nobroker_mmap.chain import retired_floor
from nobroker_mmap.errors import CorruptLogError
from nobroker_mmap.record import Place as Belongs
from nobroker_mmap.record import Record, encode, parse
from nobroker_mmap.salvage import salvage
from tests.faults.stores import Place, fill, outcome, scratch, spans
from tests.faults.trial import Trial

LIMIT_S = 1.0
LIMIT_KIB = 256 * 1024
NUMBERS = [
    0,
    1,
    -1,
    2,
    63,
    64,
    255,
    2**16 - 1,
    2**31 - 1,
    2**32 - 1,
    2**32,
    2**53,
    2**63 - 1,
    2**64 - 1,
    -(2**63),
]
THINGS: list[Any] = [
    None,
    True,
    "",
    "q",
    b"",
    b"\0" * 8,
    b"\xff" * 7,
    [],
    [1],
    [[1]],
    {},
    {"q": 1},
    1.5,
    float("nan"),
]


def mutated_bytes(data: bytes, rng: Random) -> bytes:
    """The same bytes, but for some."""
    raw = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 40])):
        at = rng.randrange(len(raw) + 1)
        end = min(len(raw), at + rng.choice([1, 1, 2, 4, 8, 64]))
        what = rng.randrange(6)
        if what == 0:
            raw[at:end] = rng.randbytes(end - at)
        elif what == 1:
            raw[at:end] = bytes([rng.choice([0, 0xFF, 0x7F, 0x80, 0xC1, 0xDF, 0xDD, 0xC6])]) * (end - at)
        elif what == 2 and len(raw) >= 8:
            at = rng.randrange(0, len(raw) - 7)
            raw[at : at + 8] = (rng.choice(NUMBERS) % 2**64).to_bytes(8, "little")
        elif what == 3:
            del raw[at:end]
        elif what == 4:
            raw[at:at] = raw[max(0, at - 16) : at]
        elif at < len(raw):
            raw[at] ^= 1 << rng.randrange(8)
    return bytes(raw)


def mutated_object(value: Any, rng: Random) -> Any:
    """A value of the same kind, but for a part of it."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        changed = dict(value)
        key = rng.choice(list(changed))
        if rng.random() < 0.15:
            del changed[key]
        elif rng.random() < 0.1:
            changed[rng.choice("tqsnkedaxcgvlpmifboh")] = rng.choice([*NUMBERS, *THINGS])
        else:
            changed[key] = mutated_object(changed[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        changed_list = list(value)
        at = rng.randrange(len(value))
        changed_list[at] = mutated_object(value[at], rng)
        return changed_list
    if isinstance(value, int) and rng.random() < 0.7:
        return rng.choice([*NUMBERS, value + 1, value - 1, value * 2, rng.randrange(2**20)])
    return rng.choice([*NUMBERS, *THINGS])


def known_records(directory: Path) -> list[Record]:
    """Records of every usual type."""
    place = Place(directory)
    with place.queue() as queue:
        fill(queue, 12, 40)
        queue.purge(lane="many")
        queue.requeue_dead()
        queue.enqueue("x", delay=10, expires_in=1.0)
        place.clock.advance(5000)
        queue.lease(3)
        queue.compact()
    found: list[Record] = []
    for path in sorted(directory.glob("*.seg")):
        data = path.read_bytes()
        header = fmt.parse_segment_header(data)
        belongs = Belongs(header.number, header.lineage, header.base - fmt.SEGMENT_HEADER_SIZE)
        for first, end in spans(path):
            record = parse(data[first:end], 0, belongs, first)
            assert record is not None
            found.append(record)
    return found


def timed(work: Callable[[], Any], what: Any) -> Any:
    began = time.process_time()
    try:
        return work()
    finally:
        assert time.process_time() - began < LIMIT_S, f"took too long: {what!r:.300}"


def test_record_heads(trial: Trial, tmp_path: Path) -> None:
    """Heads of all types, mutated as objects and as bytes, replayed after a sound beginning of the log.

    100 runs make a round: one state takes them all, as a log with many bad records would give them.
    """
    with scratch(tmp_path) as directory:
        whole = known_records(directory)
        own = [record for record in whole if record.type >= fmt.FIRST_APPLICATION_TYPE]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _, rng in trial.rounds(200):
            state = begun(own, rng)
            for _ in range(100):
                record = rng.choice(whole)
                if rng.random() < 0.6:
                    packed = msgpack.packb(
                        mutated_object(record.head(), rng), unicode_errors="surrogatepass", use_bin_type=True
                    )
                else:
                    packed = mutated_bytes(record.body[: record.head_len], rng)
                hostile = record._replace(body=packed + record.tail_bytes, head_len=len(packed))
                try:
                    timed(lambda: replayed(state, hostile), hostile)  # noqa: B023
                except (*MISFITS, CorruptLogError):
                    trial.count("refused")
                    state = begun(own, rng)
                trial.count("runs")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < LIMIT_KIB


def begun(own: list[Record], rng: Random) -> State:
    """What a sound beginning of the log gives."""
    state = State()
    for record in own[: rng.randrange(len(own))]:
        apply(state, record.type, record.head(), record.lsn)
    return state


def replayed(state: State, record: Record) -> None:
    head = record.head()
    if record.type in INDEXED:
        index_rows(record)
    fitting.check(record.type, head, len(record.tail_bytes), record.lsn)
    if record.type == fmt.RETIRE:
        retired_floor(record)
    apply(state, record.type, head, record.lsn)


def test_bytes_of_parsers(trial: Trial, tmp_path: Path) -> None:
    """Headers, records, values and snapshots out of mutated bytes; 100 runs make a round."""
    with scratch(tmp_path) as directory:
        whole = known_records(directory)
        header = next(directory.glob("*.seg")).read_bytes()[: fmt.SEGMENT_HEADER_SIZE]
        body = snapshot_body(directory)
        for _, rng in trial.rounds(350):
            for _ in range(100):
                record = rng.choice(whole)
                for work, data in (
                    (lambda raw: fmt.parse_segment_header(raw), header),
                    (lambda raw: unpack(raw), record.tail_bytes or b"\xc0"),
                ):
                    raw = mutated_bytes(data, rng)
                    try:
                        timed(lambda: work(raw), raw)  # noqa: B023
                    except (fmt.HeaderError, NobrokerError, ValueError):
                        trial.count("refused")
                trial.count("runs", 2)
            objects = [mutated_object(thing, rng) if rng.random() < 0.3 else thing for thing in body]
            try:
                timed(lambda: snapshots.restore(iter(objects)), "a snapshot")  # noqa: B023
            except (*MISFITS, StopIteration):
                trial.count("refused")
            trial.count("runs")


def snapshot_body(directory: Path) -> list[Any]:
    header = fmt.parse_segment_header(max(directory.glob("*.seg")).read_bytes())
    found, why = snap.load(str(directory / "default.snap"), header.log_id)
    assert found is not None, why
    return list(found.objects())


def resealed(path: Path, data: bytes, rng: Random) -> bytes:
    """A mutated file whose checksums fit, as far as it has any."""
    if path.suffix == ".seg" and rng.random() < 0.7:
        places = spans(path)
        header = fmt.parse_segment_header(data)
        if rng.random() < 0.2 or not places:
            fields = mutated_bytes(data[8:120], rng)[:112].ljust(112, b"\0")
            fields = data[:8] + fields
            return fields + xxh3_64_intdigest(fields).to_bytes(8, "little") + data[128:]
        first, end = rng.choice(places)
        raw = data[first:end]
        kind, flags, size, head_len = (
            raw[4],
            raw[5],
            *(int.from_bytes(raw[i : i + 4], "little") for i in (8, 12)),
        )
        head = raw[64 : 64 + head_len]
        tail = raw[64 + head_len : 64 + size]
        try:
            head = msgpack.packb(mutated_object(msgpack.unpackb(head, strict_map_key=False), rng))
        except (ValueError, TypeError):
            head = mutated_bytes(head, rng)
        if rng.random() < 0.3:
            tail = mutated_bytes(tail, rng)
        durable, previous = (int.from_bytes(raw[i : i + 8], "little") for i in (40, 48))
        lsn = header.base + first - fmt.SEGMENT_HEADER_SIZE
        made, _ = encode(kind, flags, head, tail, header.number, header.lineage, lsn, durable, previous)
        return data[:first] + made + data[first + len(made) :]
    raw = mutated_bytes(data, rng)
    if path.suffix in (".idx", ".snap") and len(raw) > 64:
        fields = raw[:48] + (len(raw) - 64).to_bytes(8, "little") if path.suffix == ".snap" else raw[:56]
        digest = xxh3_64(raw[64:])
        digest.update(fields)
        return fields + digest.intdigest().to_bytes(8, "little") + raw[64:]
    return raw


@pytest.mark.parametrize("kind", [".seg", ".idx", ".snap", ".lock"])
def test_directories(trial: Trial, tmp_path: Path, kind: str) -> None:
    """One file of a directory is hostile: opened to read and to write, checked, salvaged, opened again."""
    with scratch(tmp_path) as directory:
        place = Place(directory)
        with place.queue() as queue:
            fill(queue, 12, 8000)
        (directory / "default.wake").unlink(missing_ok=True)
        place.keep()
        paths = [path for path in place.files() if path.suffix == kind]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number, rng in trial.rounds(120):
            path = rng.choice(paths)
            path.write_bytes(resealed(path, place.kept[path.name], rng)[: 1 << 20])
            seen = timed(lambda: outcome(lambda: place.answers(read_only=True)), number)
            refused = timed(lambda: outcome(lambda: at_work(place)), number)
            if isinstance(refused, NobrokerError):
                outcome(lambda: salvage(directory, "default", boot_id=place.clock.boot_id()))
                timed(lambda: outcome(lambda: at_work(place)), number)
                trial.count("salvages")
            trial.count("refused", isinstance(seen, NobrokerError))
            trial.count("directories")
            place.restore()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < LIMIT_KIB


def at_work(place: Place) -> None:
    with closing(place.queue()) as queue:
        for verb in (
            queue.check,
            lambda: queue.lease(3),
            queue.compact,
            lambda: queue.enqueue(1),
            queue.list_jobs,
        ):
            outcome(verb)
