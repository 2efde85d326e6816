"""Lines that are put together column by column are those that would be made one by one."""

import io
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from nobroker import BackoffPolicy, CorruptLogError, Queue
from nobroker.state import kinds
from nobroker.values import pack_list, unpack
from nobroker_mmap.format import SEGMENT_HEADER_SIZE
from nobroker_tools import dump, jsontext
from nobroker_tools.jobdump import to_lines
from nobroker_tools.jsonvalue import dumps, from_jsonable
from nobroker_tools.lines import Lines, packed_text, packed_texts, text_of_each

PLAIN: list[Any] = [
    {"to": "ann@example.com", "n": 36},
    ["ünï ☃ 🎉", "\x00\x1f\x7f\"\\/", "$", '{"$int":1}'],
    [0, -1, 2**64 - 1, -(2**63), True, False, None, -0.0, 0.1, 1e16, 1e-7, 5e-324],
    {"": {"a": [{}, [], [[]]]}, "two": 2, "$three": 3},
    "text",
]  # fmt: skip
OUT_OF_THE_ORDINARY: list[Any] = [
    float("nan"),
    {"x": [float("-inf")]},
    b"\0\xff",
    "\ud83d alone",
    {"\ud83d": 1},
    {b"k": 1, 2: 3, None: 4, 1.5: 5, True: 6},
    {"$x": 1},
    [{"$bytes": "AA=="}],
    {"$x": 1, "y": 2},
    2**70,
    [2**5000, -(10**1300), 10**4400],
    datetime(2024, 5, 1, tzinfo=UTC),
    {"price": Decimal("1.50")},
]


def one_by_one(values: list[Any]) -> list[str]:
    return [dumps(value) for value in unpack(pack_list(values))]


@pytest.mark.parametrize("odd", [[], *([value] for value in OUT_OF_THE_ORDINARY), OUT_OF_THE_ORDINARY])
def test_packed_values_are_worded_as_one_by_one(odd: list[Any]) -> None:
    values = [*PLAIN, *odd]
    assert packed_texts(pack_list(values)) == one_by_one(values)
    assert [packed_text(pack_list([value])[1:]) for value in values] == one_by_one(values)


def test_deep_values_are_worded_as_one_by_one() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"a": [deep]}
    assert packed_texts(pack_list([deep, *PLAIN])) == one_by_one([deep, *PLAIN])


def test_an_interpreter_without_the_encoder_in_c_words_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [*PLAIN, *OUT_OF_THE_ORDINARY]
    fast = packed_texts(pack_list(values))
    monkeypatch.setattr(jsontext, "_PIECES", None)
    assert packed_texts(pack_list(values)) == fast
    assert packed_texts(pack_list(PLAIN)) == one_by_one(PLAIN)


@pytest.mark.parametrize(
    "packed", [b"", b"\xc1", b"\x91", b"\x81\x01\x02", b"\xa1x", b"\x91\xd6\xff\0\0\0\1"]
)
def test_what_is_no_array_of_values_is_refused(packed: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        packed_texts(packed)


def test_strings_are_worded_as_one_by_one() -> None:
    for strings in (["a", "ö/1", '"'], ["a", "\ud83d"]):
        assert text_of_each(strings) == [dumps(string) for string in strings]


def test_columns_become_lines() -> None:
    lines = Lines(2)
    lines.moments("at", 1_500_000)
    lines.same({"lane": "ö%{}", "none": None})
    lines.ids("nb-", ["7", "8"], None)
    lines.moments("due", [1, 2_000_000])
    lines.more(["", ',"extra":1'])
    lines.moments("never", None)
    assert lines.text().splitlines() == [
        dumps({"at": 1.5, "lane": "ö%{}", "none": None, "id": "nb-7", "due": 1e-6, "never": None}),
        dumps({"at": 1.5, "lane": "ö%{}", "none": None, "id": "nb-8", "due": 2.0, "extra": 1, "never": None}),
    ]
    short = Lines(2)
    short.texts("seq", ["1"])
    with pytest.raises(ValueError, match="shorter"):
        short.text()


def mixed(directory: Path) -> Queue:
    """Runs of waiting jobs, long and short, cut by others, and moved."""
    queue = Queue(
        directory,
        fsync=False,
        segment_size=65536,
        keep_done=10**6,
        backoff=BackoffPolicy(base=10**5, jitter=0),
    )
    for round_ in range(6):
        queue.enqueue_many([{"n": n} for n in range(700)], lane="slow" if round_ % 2 else "")
        queue.enqueue_many([*PLAIN, *OUT_OF_THE_ORDINARY], metadata=b"\0", expires_in=10**6, priority=-1)
        queue.enqueue_many(PLAIN * 3, delays=[10**5 + n for n in range(15)], metadata=PLAIN)
        queue.enqueue_many(PLAIN, job_ids=[f"ö-{round_}-{n}" for n in range(5)])
        for n in range(7):
            queue.enqueue(n, job_id=None if n % 2 else f"one-{round_}-{n}")
        jobs = queue.lease(500, visibility_timeout=10**6, lanes=[""])
        queue.ack_many(jobs[::3])
        queue.nack_many(jobs[1::9], error="no luck", dead=round_ % 2 == 0)
        queue.release_many(jobs[2:90:9])
        for job in jobs[4:300:9]:
            queue.cancel(job.id)
        for job in jobs[5:300:9]:
            queue.extend(job, 10**6, progress=OUT_OF_THE_ORDINARY[round_], state=round_ or None)
        queue.compact()
    return queue


def test_a_dump_of_jobs_is_that_of_each_job(tmp_path: Path) -> None:
    with mixed(tmp_path) as queue:
        out = io.StringIO()
        assert dump.dump_jobs(tmp_path, queue.name, out) == 0
        lines = out.getvalue().splitlines()[1:]
        assert lines == [dumps(job.to_dict()) for job in queue._iter_jobs()]
        assert len(lines) == len(queue)
        assert queue.check() == []


def test_every_line_of_events_is_what_its_values_are_worded_as(tmp_path: Path) -> None:
    with mixed(tmp_path) as queue:
        out = io.StringIO()
        assert dump.dump_events(tmp_path, queue.name, out) == 0
        lines = out.getvalue().splitlines()
        for line in lines:
            assert dumps(from_jsonable(jsontext.decode(line))) == line
        moved = [from_jsonable(jsontext.decode(line)) for line in lines if '"event":"move"' in line]
        assert {"done", "ready", "leased", "dead"} <= {event["state"] for event in moved}
        assert queue.check() == []


@pytest.mark.parametrize("tail", [b"\x81\x01\x02", b"\x05\x06", b"\x92\x01\xc1", b"\x93\x01\x02"])
def test_payloads_that_are_not_there_are_a_typed_error(tmp_path: Path, tail: bytes) -> None:
    """A record that verifies, of two jobs, without two payloads."""
    with Queue(tmp_path, fsync=False) as queue:
        queue.enqueue("sound")
        session = queue._store._session  # type: ignore[attr-defined]
        with session.transaction() as now:
            seq = session.state.next_seq
            end = session.log.position
            session.append_one(kinds.ENQUEUE, {"n": 2, "s": seq, "t": now}, tail, ((seq, 0, 2),))
        with pytest.raises(CorruptLogError) as error:
            list(to_lines(queue._store.alike()))
        assert error.value.offset == end - session.log.segments()[0].base + SEGMENT_HEADER_SIZE
