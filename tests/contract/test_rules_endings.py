"""Rules 13 to 15: expiry, cancelling, foreign files; and jobs with a date."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nobroker import (
    BackoffPolicy,
    NobrokerError,
    NotLeasedError,
    Queue,
    StorageError,
)
from nobroker.clock import ManualClock

from .conftest import Opener
from .words import counts, drain, take


class TestRule13Expiry:
    def test_never_delivered_after_it(self, queue: Queue, clock: ManualClock) -> None:
        job = queue.enqueue("late", expires_in=10)
        queue.enqueue("other")
        clock.advance(10)
        expected = queue.get(job.id)
        assert (expected.state, expected.last_error) == ("dead", "expired")
        assert counts(queue) == (1, 0, 0, 0, 1)
        assert drain(queue) == ["other"]
        assert queue.get(job.id) == expected
        assert [found.id for found in queue.dlq()] == [job.id]

    @pytest.mark.parametrize("delays", [None, [0, 50]])
    def test_a_delayed_one_too(self, queue: Queue, clock: ManualClock, delays: list[float] | None) -> None:
        made = queue.enqueue_many([1, 2], delays=delays, delay=0 if delays else 20, expires_in=10)
        clock.advance(10)
        assert counts(queue) == (0, 0, 0, 0, 2)
        before = queue.dlq()
        clock.advance(100)
        assert queue.lease(5) == []
        assert queue.dlq() == before
        assert [job.id for job in before] == [job.id for job in made]

    def test_one_that_was_leased_in_time_is_retried(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, expires_in=10)
        queue.nack(take(queue), delay=100)
        clock.advance(100)
        job = take(queue)
        assert job.attempts == 2
        clock.advance(31)
        assert take(queue).attempts == 3

    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_one_that_was_given_back_counts_as_never_leased(
        self, queue: Queue, clock: ManualClock, times: int
    ) -> None:
        job = queue.enqueue(1, expires_in=10)
        for _ in range(times):
            queue.release(take(queue))
        clock.advance(11)
        assert queue.get(job.id).state == "dead"
        assert counts(queue) == (0, 0, 0, 0, 1)
        assert queue.lease(5) == []

    @pytest.mark.parametrize("times", [0, 1, 2])
    @pytest.mark.parametrize("compacted", [False, True])
    def test_one_whose_time_passed_while_it_was_held_and_that_was_given_back(
        self, open_queue: Opener, clock: ManualClock, times: int, compacted: bool
    ) -> None:
        queue = open_queue()
        queue.enqueue(1, expires_in=10)
        for _ in range(times):
            queue.release(take(queue))
            if compacted:
                queue.compact()
                queue = open_queue.reopen(queue)
        job = take(queue)
        clock.advance(11)
        assert queue.release(job).state == "dead"
        assert queue.lease_one() is None
        assert counts(queue) == (0, 0, 0, 0, 1)

    def test_one_in_hand_is_not_touched(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1, expires_in=10)
        job = take(queue)
        clock.advance(20)
        queue.ack(job)
        assert queue.get(job.id).state == "done"

    def test_of_part_of_a_batch(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue_many(range(100), expires_in=10)
        queue.ack_many(queue.lease(30))
        clock.advance(10)
        assert counts(queue) == (0, 0, 0, 30, 70)
        assert [job.payload for job in queue.dlq()] == list(range(30, 100))

    def test_over_a_compaction(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue()
        queue.enqueue_many([1, 2], expires_in=10)
        queue.enqueue(3, expires_in=100)
        queue.compact()
        queue = open_queue.reopen(queue)
        clock.advance(10)
        assert drain(queue) == [3]
        assert counts(queue) == (0, 0, 0, 1, 2)


class TestRule14Cancelled:
    def test_a_flagged_one_that_is_nacked_is_finished(self, queue: Queue) -> None:
        for options in ({}, {"dead": True}, {"dead": False, "delay": 0}):
            queue.enqueue(1)
            job = take(queue)
            queue.cancel(job.id)
            found = queue.nack(job, error="e", **options)
            assert (found.state, found.last_error, found.cancel_requested) == ("done", "cancelled", False)
            assert queue.get(job.id) == found
        assert queue.lease(5) == []

    def test_a_flagged_one_whose_lease_expires_is_finished(self, queue: Queue, clock: ManualClock) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.cancel(job.id)
        clock.advance(31)
        seen = queue.get(job.id)
        assert (seen.state, seen.last_error) == ("done", "cancelled")
        assert queue.lease_one() is None
        assert queue.get(job.id) == seen
        with pytest.raises(NotLeasedError):
            queue.extend(job, 5)

    def test_a_flagged_one_that_is_released_is_never_delivered_again(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        queue.enqueue(1)
        job = take(queue)
        queue.cancel(job.id)
        found = queue.release(job)
        assert (found.state, found.last_error) == ("done", "cancelled")
        assert queue.lease(5) == []

    def test_a_flagged_one_over_a_compaction(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue()
        queue.enqueue(1)
        job = take(queue)
        queue.cancel(job.id)
        queue.compact()
        queue = open_queue.reopen(queue)
        assert queue.extend(job, 30).cancel_requested
        clock.advance(31)
        assert queue.lease_one() is None


class TestRule15ForeignFiles:
    def test_a_file_of_somebody_else_is_left_alone(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue()
        queue.enqueue(1)
        queue.close()
        foreign = {
            "default.000777.seg": b"not ours",
            "default.snap": b"junk" * 50,
            "default.000001.idx": b"",
            "default.manifest": b"{",
            "default.txt": b"hello",
            "default": b"x",
        }
        for name, data in foreign.items():
            (open_queue.dir / name).write_bytes(data)
        queue = open_queue()
        assert drain(queue) == [1]
        assert (open_queue.dir / "default.000777.seg").read_bytes() == b"not ours"
        assert any("000777" in str(found) for found in queue.check())
        for name in ("default.txt", "default"):
            assert (open_queue.dir / name).read_bytes() == foreign[name]
        open_queue.check = False

    @pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
    @pytest.mark.parametrize("name", ["default.000001.seg", "default.lock"])
    def test_a_link_is_not_followed(self, open_queue: Opener, tmp_path: Path, name: str) -> None:
        target = tmp_path / "precious"
        target.write_bytes(b"precious")
        open_queue.dir.mkdir()
        (open_queue.dir / name).symlink_to(target)
        with pytest.raises(NobrokerError):
            open_queue()
        assert target.read_bytes() == b"precious"
        open_queue.check = False

    def test_a_segment_of_another_queue(self, open_queue: Opener) -> None:
        for name in ("one", "two"):
            with open_queue(name) as queue:
                queue.enqueue(name)
        alien = (open_queue.dir / "two.000001.seg").read_bytes()
        (open_queue.dir / "one.000002.seg").write_bytes(alien)
        with pytest.raises(NobrokerError):
            open_queue("one")
        assert (open_queue.dir / "one.000002.seg").read_bytes() == alien
        open_queue.check = False

    def test_backup_refuses_a_target_that_is_not_empty(self, queue: Queue, tmp_path: Path) -> None:
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "file").write_text("x")
        with pytest.raises((StorageError, ValueError)):
            queue.backup(tmp_path / "target")
        assert [path.name for path in (tmp_path / "target").iterdir()] == ["file"]

    @pytest.mark.skipif(os.name == "nt", reason="no umask here")
    @pytest.mark.parametrize("mask", [0o007, 0o027, 0o077])
    def test_files_follow_the_umask(self, open_queue: Opener, mask: int) -> None:
        before = os.umask(mask)
        try:
            queue = open_queue()
            queue.enqueue_many([b"x" * 1000] * 200)
            queue.ack_many(queue.lease(100))
            queue.compact()
            queue.close()
        finally:
            os.umask(before)
        for path in open_queue.dir.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path.name
        assert stat.S_IMODE(open_queue.dir.stat().st_mode) == 0o777 & ~mask

    def test_a_plain_copy_of_a_live_directory_opens(self, open_queue: Opener, tmp_path: Path) -> None:
        queue = open_queue(backoff=BackoffPolicy(base=0, jitter=0))
        queue.enqueue_many(range(10))
        token = queue.lease(3)[2].lease_token
        copy = open_queue.scanned("default", tmp_path / "copy")
        assert counts(copy) == (7, 0, 3, 0, 0)
        job = copy.lease_one()
        assert job is not None
        assert job.lease_token > token  # type: ignore[operator]


class TestDates:
    def test_a_job_with_a_date_that_is_given_back_is_ready_at_once(
        self, queue: Queue, clock: ManualClock
    ) -> None:
        """Its date came by the wall clock; that the queue's own time is behind must not hide it again."""
        queue.enqueue("dated", run_at=clock.wall_us() / 1e6 + 1800)
        clock.step_wall(3600)
        queue.release(take(queue))
        assert counts(queue) == (1, 0, 0, 0, 0)
        assert drain(queue) == ["dated"]

    def test_a_retry_of_a_job_with_a_date_waits_by_the_queues_time_also_after_a_compaction(
        self, open_queue: Opener, clock: ManualClock
    ) -> None:
        queue = open_queue()
        queue.enqueue("dated", run_at=clock.wall_us() / 1e6)
        queue.nack(take(queue), delay=100)
        queue.compact()
        queue = open_queue.reopen(queue)
        clock.step_wall(3600)
        assert queue.lease_one() is None
        clock.step_wall(-7200)
        clock.advance(100)
        assert drain(queue) == ["dated"]

    def test_also_where_its_log_is_read_from_the_first_record(
        self, open_queue: Opener, clock: ManualClock, tmp_path: Path
    ) -> None:
        queue = open_queue()
        queue.enqueue("dated", run_at=clock.wall_us() / 1e6)
        queue.nack(take(queue), delay=100)
        queue.compact()
        copy = open_queue.scanned(queue.name, tmp_path / "copy")
        clock.step_wall(3600)
        assert copy.lease_one() is None
        clock.step_wall(-7200)
        clock.advance(100)
        assert drain(copy) == ["dated"]
