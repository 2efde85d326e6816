"""Files become jobs: whole batches or nothing, errors with their place, nothing twice."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from nobroker import Queue
from nobroker_tools import importer
from nobroker_tools.failures import BadInputError
from nobroker_tools.importer import import_csv, import_json, import_jsonl, import_msgpack

ROWS: list[dict[str, Any]] = [{"id": f"row-{n}", "n": n, "text": "é😀" * (n % 3)} for n in range(2500)]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(tmp_path / "q", fsync=False) as opened:
        yield opened


def jsonl(rows: list[Any]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def payloads(queue: Queue) -> list[Any]:
    return [job.payload for job in queue.list_jobs()]


def test_json_lines_become_jobs_in_order(queue: Queue) -> None:
    seen: list[tuple[int, int]] = []
    source = jsonl(ROWS)
    result = import_jsonl(source, queue, progress=lambda done, size: seen.append((done, size)), priority=3)
    assert (result.read, result.added, result.known, result.jobs) == (2500, 2500, 0, False)
    assert result.bytes == len(source.getvalue())
    assert payloads(queue) == ROWS
    assert {job.priority for job in queue.list_jobs()} == {3}
    assert [done for done, _ in seen] == [1000, 2000, 2500]
    assert seen[-1][1] == result.bytes
    assert result.describe() == "2,500 records read; 2,500 jobs added"


def test_json_csv_and_msgpack_become_jobs(queue: Queue) -> None:
    import_json(io.BytesIO(json.dumps(ROWS, indent=1).encode()), queue)
    import_msgpack(io.BytesIO(b"".join(map(msgpack.packb, ROWS))), queue)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "n", "text"])
    writer.writeheader()
    writer.writerows(ROWS)
    import_csv(io.BytesIO(text.getvalue().encode()), queue)
    strings = [{key: str(value) for key, value in row.items()} for row in ROWS]
    assert payloads(queue) == ROWS + ROWS + strings


def test_with_an_id_field_the_same_file_again_adds_nothing(queue: Queue) -> None:
    assert import_jsonl(jsonl(ROWS), queue, id_field="id").added == 2500
    again = import_jsonl(jsonl(ROWS), queue, id_field="id")
    assert (again.read, again.added, again.known) == (2500, 0, 2500)
    assert "2,500 of which were known" in again.describe()
    more = [*ROWS[:5], {"id": 7, "n": 0}, {"id": 7, "n": 1}, {"id": "7", "n": 2}]
    assert import_jsonl(jsonl(more), queue, id_field="id").added == 1
    assert queue.get("7").payload == {"id": 7, "n": 0}
    assert queue.stats().total == 2501


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"n": 1}, "holds nothing"),
        ({"id": None}, "holds nothing"),
        ({"id": 1.5}, "holds 1.5"),
        ({"id": True}, "holds True"),
        ({"id": ""}, "holds ''"),
        ([1], "holds nothing"),
        ({"id": "a\x07"}, "control"),
        ({"id": "x" * 300}, "255"),
        ({"id": "nb-0123456789abc-7"}, "form"),
    ],
)
def test_a_record_without_a_good_id_is_named(queue: Queue, bad: Any, said: str) -> None:
    with pytest.raises(BadInputError, match=said) as caught:
        import_jsonl(jsonl([*ROWS[:7], bad]), queue, id_field="id", batch=3, name="rows.jsonl")
    assert str(caught.value).startswith("rows.jsonl, line 8: ")
    assert caught.value.imported == queue.stats().total == 6


def test_nothing_of_the_batch_of_a_bad_line_is_written(queue: Queue) -> None:
    data = b"".join(b"%d\n" % n for n in range(25)) + b"oops\n" + b"26\n"
    with pytest.raises(BadInputError) as caught:
        import_jsonl(io.BytesIO(data), queue, batch=10, name="n.jsonl")
    assert caught.value.line == 26
    assert payloads(queue) == list(range(20))
    assert "20 records before it were imported, nothing of its own batch was" in str(caught.value)


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_a_value_that_the_queue_refuses_is_named(queue: Queue) -> None:
    with pytest.raises(BadInputError, match="line 3") as caught:
        import_jsonl(io.BytesIO(f"1\n{deep(200)}\n{deep(3000)}\n".encode()), queue)
    assert caught.value.imported == 0
    with pytest.raises(BadInputError, match="object 2"):
        import_msgpack(io.BytesIO(msgpack.packb(1) + b"\x91" * 505 + b"\x00"), queue)
    assert queue.stats().total == 0


def test_options_that_are_wrong_are_no_fault_of_the_file(queue: Queue) -> None:
    with pytest.raises(ValueError, match="priority") as caught:
        import_jsonl(jsonl([1]), queue, priority=2**40)
    assert not isinstance(caught.value, BadInputError)


def test_an_empty_file_is_no_error(queue: Queue) -> None:
    for function in importer.IMPORTERS.values():
        assert function(io.BytesIO(b""), queue).read == 0


def test_a_payload_that_looks_like_a_tag_stays_what_it_is(queue: Queue) -> None:
    rows = [{"$bytes": "AA=="}, {"$ref": 1}, {"nobroker": "jobs?"}]
    import_jsonl(jsonl(rows), queue)
    assert payloads(queue) == rows


def test_a_dump_of_a_later_version_is_refused(queue: Queue) -> None:
    with pytest.raises(BadInputError, match="version 2"):
        import_jsonl(jsonl([{"nobroker": "jobs", "version": 2}, {"id": "x"}]), queue)
    assert queue.stats().total == 0


@pytest.mark.parametrize(
    "bad",
    [
        {},
        [],
        1,
        {"payload": 1},
        {"id": 5},
        {"id": "x", "state": "odd"},
        {"id": "x", "attempts": "1"},
        {"id": "x", "payload": {"$no": 1}},
    ],
)
def test_a_line_that_is_no_job_is_named(queue: Queue, bad: Any) -> None:
    with pytest.raises(BadInputError, match="line 3"):
        import_jsonl(jsonl([{"nobroker": "jobs", "version": 1}, {"id": "good"}, bad]), queue)
    assert queue.stats().total == 0
