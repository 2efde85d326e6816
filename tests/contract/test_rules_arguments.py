"""Rules 7, 8 and 10: payloads, arguments, errors. Nothing is written when something is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import nobroker
from nobroker import BackoffPolicy, NobrokerError, Queue, QueueFullError, SerializationError, StorageError

from .conftest import Opener
from .words import counts, drain, take

NAN, INF = math.nan, math.inf
SECONDS = [NAN, INF, -INF, -1, -1e-9, 1e308, 10**400, 4e9, "5", True, False, b"1", [1], 1j]
"""No delay in seconds."""
POSITIVE = [*SECONDS, 0, 0.0, -0.0]
"""No timeout."""
WHOLE = [1.5, 1.0, "1", True, NAN, [1]]
"""No whole number."""


@pytest.fixture
def unchanged(queue: Queue) -> Any:
    """Some jobs; in the end they are there, unchanged, and nothing else is."""
    queue.enqueue_many([1, 2, 3])
    take(queue)
    before = (queue.stats(), queue.list_jobs())
    yield queue
    assert (queue.stats(), queue.list_jobs()) == before
    assert drain(queue) == [2, 3]


def refused(verb: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        verb()
    assert str(caught.value)


class TestRule7Payloads:
    def test_a_refused_payload_names_the_place_and_the_type(self, unchanged: Queue) -> None:
        with pytest.raises(SerializationError, match=r"payload\['a'\]\[2\] is a set"):
            unchanged.enqueue({"a": [1, 2, {3}]})
        with pytest.raises(SerializationError, match=r"metadata\[0\]"):
            unchanged.enqueue(1, metadata=[object()])
        with pytest.raises(SerializationError, match=r"payloads\[1\]"):
            unchanged.enqueue_many([1, print])

    def test_too_large_and_too_deep(self, unchanged: Queue) -> None:
        deep: list[Any] = []
        for _ in range(600):
            deep = [deep]
        for payload in (b"x" * (8 * 2**20), deep):
            with pytest.raises(SerializationError):
                unchanged.enqueue(payload)
            with pytest.raises(SerializationError):
                unchanged.enqueue_many([1, payload])

    def test_a_payload_that_contains_itself(self, unchanged: Queue) -> None:
        loop: list[Any] = []
        loop.append(loop)
        for payload in (loop, {"a": loop}, [[loop]]):
            with pytest.raises(SerializationError):
                unchanged.enqueue(payload)

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            ("plain", "plain"),
            ("bad \udcff \x00", "bad \\udcff \\x00"),
            (ValueError("v"), "v"),
            (None, None),
            (5, "5"),
            ("", ""),
        ],
    )
    def test_error_texts_are_made_storable(self, queue: Queue, error: object, expected: str | None) -> None:
        queue.enqueue(1)
        job = queue.nack(take(queue), error=error, dead=True)
        assert job.last_error == queue.get(job.id).last_error == expected

    def test_error_texts_that_raise_or_are_huge(self, queue: Queue) -> None:
        class Sulky(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        queue.enqueue_many([1, 2])
        one, two = queue.lease(2)
        assert "Sulky" in str(queue.nack(one, error=Sulky(), dead=True).last_error)
        text = str(queue.nack(two, error="é" * 10**6 + "end", dead=True).last_error)
        assert text.endswith("end")
        assert len(text.encode()) <= 65536


class TestRule8Arguments:
    @pytest.mark.parametrize("value", [*SECONDS, None])
    def test_delay(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.enqueue(1, delay=value))
        refused(lambda: unchanged.enqueue_many([1], delays=[value]))
        refused(lambda: unchanged.enqueue_many([1], delay=value))

    @pytest.mark.parametrize(
        "value", [NAN, INF, -1, 10**400, 1e12, True, "2027-01-01", datetime(2027, 1, 1), b""]
    )
    def test_run_at(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.enqueue(1, run_at=value))

    @pytest.mark.parametrize("value", [*WHOLE, None, 2**31, -(2**31) - 1, 2**70])
    def test_priority(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.enqueue(1, priority=value))
        refused(lambda: unchanged.enqueue_many([1], priority=value))

    @pytest.mark.parametrize("value", [*WHOLE, 0, -1, 2**31])
    def test_max_attempts(self, unchanged: Queue, value: Any, tmp_path: Path) -> None:
        refused(lambda: unchanged.enqueue(1, max_attempts=value))
        refused(lambda: Queue(tmp_path / "no", max_attempts=value))
        assert not (tmp_path / "no").exists()

    @pytest.mark.parametrize("value", POSITIVE)
    def test_expires_in(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.enqueue(1, expires_in=value))

    @pytest.mark.parametrize(
        "value",
        ["", "a\n", "\x00", "\x7f", "\x85", "\ud800", "x" * 256, 5, b"k", True, ["k"], "nb-0123456789abc-1"],
    )
    def test_job_id(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.enqueue(1, job_id=value))
        refused(lambda: unchanged.enqueue_many([1], job_ids=[value]))

    def test_an_id_that_the_queue_made(self, unchanged: Queue) -> None:
        refused(lambda: unchanged.enqueue(1, job_id=unchanged.list_jobs()[0].id))

    @pytest.mark.parametrize("value", [None, 1, b"a", "a\n", "\ud800", "x" * 101, ["a"]])
    def test_lane(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.enqueue(1, lane=value))
        refused(lambda: unchanged.lease(lanes=[value]))
        if value is not None:
            for verb in (
                unchanged.stats,
                unchanged.list_jobs,
                unchanged.dlq,
                unchanged.pause,
                unchanged.purge,
            ):
                refused(lambda verb=verb: verb(lane=value))  # type: ignore[misc]

    @pytest.mark.parametrize("value", ["abc", b"a", [], 5, ()])
    def test_lanes(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.lease(lanes=value))

    @pytest.mark.parametrize("value", [*WHOLE, 0, -1, None, 2**31 + 1])
    def test_count(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.lease(value))

    @pytest.mark.parametrize("value", POSITIVE)
    def test_visibility_timeout(self, unchanged: Queue, value: Any, tmp_path: Path) -> None:
        refused(lambda: unchanged.lease(visibility_timeout=value))
        refused(lambda: unchanged.lease_one(visibility_timeout=value))
        refused(lambda: Queue(tmp_path / "no", visibility_timeout=value))
        refused(lambda: unchanged.extend(unchanged.list_jobs("leased")[0], value))

    @pytest.mark.parametrize("value", [NAN, -1, -INF, "1", True, False, None])
    def test_wait_and_lock_timeout(self, unchanged: Queue, value: Any, tmp_path: Path) -> None:
        refused(lambda: unchanged.lease(wait=value))
        refused(lambda: Queue(tmp_path / "no", lock_timeout=value))

    @pytest.mark.parametrize("value", SECONDS)
    def test_delays_of_nack_release_and_drop(self, unchanged: Queue, value: Any) -> None:
        job = unchanged.list_jobs("leased")[0]
        refused(lambda: unchanged.nack(job, delay=value))
        refused(lambda: unchanged.nack_many([job], delay=value))
        refused(lambda: unchanged.release(job, delay=value))
        refused(lambda: unchanged.drop_dead(older_than=value))

    @pytest.mark.parametrize("value", [1, 0, "yes"])
    def test_flags(self, unchanged: Queue, value: Any, tmp_path: Path) -> None:
        refused(lambda: unchanged.nack(unchanged.list_jobs("leased")[0], dead=value))
        for name in ("fsync", "auto_compact", "read_only"):
            refused(lambda name=name: Queue(tmp_path / "no", **{name: value}))  # type: ignore[misc]
        assert not (tmp_path / "no").exists()

    @pytest.mark.parametrize("value", [*WHOLE, -1])
    def test_limit(self, unchanged: Queue, value: Any) -> None:
        refused(lambda: unchanged.list_jobs(limit=value))
        refused(lambda: unchanged.dlq(limit=value))

    @pytest.mark.parametrize("value", [*WHOLE, 0, 65535, 2**28 + 1, None])
    def test_segment_size(self, value: Any, tmp_path: Path) -> None:
        refused(lambda: Queue(tmp_path / "no", segment_size=value))
        assert not (tmp_path / "no").exists()

    @pytest.mark.parametrize("value", [*WHOLE, 0, -1])
    def test_max_bytes(self, value: Any, tmp_path: Path) -> None:
        refused(lambda: Queue(tmp_path / "no", max_bytes=value))

    @pytest.mark.parametrize("value", [*SECONDS, None])
    def test_keep_done(self, value: Any, tmp_path: Path) -> None:
        refused(lambda: Queue(tmp_path / "no", keep_done=value))

    @pytest.mark.parametrize("value", [5, "fast", BackoffPolicy])
    def test_backoff(self, value: Any, tmp_path: Path) -> None:
        refused(lambda: Queue(tmp_path / "no", backoff=value))
        assert not (tmp_path / "no").exists()

    @pytest.mark.parametrize("value", [None, 5, b"dir", ["d"]])
    def test_path(self, value: Any) -> None:
        refused(lambda: Queue(value))

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".",
            "..",
            "../x",
            "/a",
            "a/b",
            "a\\b",
            "-a",
            "_a",
            ".a",
            "a b",
            "a\n",
            "a\0",
            "é",
            "x" * 101,
            "*",
            5,
            None,
        ],
    )
    def test_names(self, name: Any, tmp_path: Path) -> None:
        refused(lambda: Queue(tmp_path / "no", name))
        assert not (tmp_path / "no").exists()

    @pytest.mark.parametrize("name", ["a", "A.b_c-9", "0", "x" * 100, "a..b", "con1"])
    def test_good_names(self, open_queue: Opener, name: str) -> None:
        open_queue(name).enqueue(1)

    def test_names_are_told_apart_without_regard_to_case(self, open_queue: Opener) -> None:
        open_queue("Mail").enqueue(1)
        with pytest.raises((ValueError, NobrokerError), match="Mail"):
            open_queue("mail")
        assert counts(open_queue("Mail")) == (1, 0, 0, 0, 0)

    def test_the_limits_themselves_are_allowed(self, queue: Queue) -> None:
        century = 100 * 366 * 86400.0
        queue.enqueue(1, delay=century, priority=2**31 - 1, max_attempts=2**31 - 1, expires_in=century)
        queue.enqueue(1, priority=-(2**31), max_attempts=1, expires_in=1e-9)
        queue.enqueue(1, run_at=0)
        queue.enqueue(1, run_at=253402300799)
        job = queue.lease(1, visibility_timeout=1e-9)
        assert len(job) == 1
        assert len(queue.lease(2**31, wait=0)) == 1

    def test_a_policy_without_bounds_still_gives_a_time_that_comes(self, open_queue: Opener) -> None:
        queue = open_queue(backoff=BackoffPolicy(base=1e300, factor=1e300, max_delay=1e308, jitter=0))
        queue.enqueue(1)
        job = queue.nack(take(queue))
        assert job.state == "ready"
        assert job.available_at < 1e11


class TestRule10Errors:
    def test_one_family(self) -> None:
        for name in nobroker.__all__:
            if name.endswith("Error"):
                assert issubclass(getattr(nobroker, name), NobrokerError)
        assert issubclass(SerializationError, ValueError)

    def test_full_at_max_bytes_while_acks_still_work(self, open_queue: Opener) -> None:
        queue = open_queue(max_bytes=50_000)
        made = 42
        for _ in range(made):
            queue.enqueue(b"x" * 1000)
        with pytest.raises(QueueFullError, match="50,000"):
            queue.enqueue(b"x" * 10_000)
        with pytest.raises(QueueFullError):
            queue.enqueue_many([b"x" * 1000] * 10)
        assert counts(queue)[0] == made
        jobs = queue.lease(made)
        queue.nack(jobs[0], dead=True)
        queue.release(jobs[1])
        queue.extend(jobs[2], 60)
        queue.ack_many(jobs[2:])
        queue.compact()
        queue.enqueue_many([b"x" * 1000] * 10)
        assert queue.stats().bytes <= 50_000

    def test_messages_say_what_and_where(self, queue: Queue) -> None:
        with pytest.raises(NobrokerError, match=r"nope.*jobs"):
            queue.get("nope")
        queue.close()
        with pytest.raises(NobrokerError, match="closed"):
            queue.enqueue(1)

    def test_a_file_in_place_of_the_directory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(StorageError, match="file"):
            Queue(tmp_path / "file")
        with pytest.raises(StorageError, match="file"):
            Queue(tmp_path / "file" / "below")
