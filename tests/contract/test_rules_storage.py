"""Rules 2, 9 and 11 to 15: durability, processes, read only, growth, expiry, cancelling, foreign files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    BackoffPolicy,
    JobNotFoundError,
    LockTimeoutError,
    NobrokerError,
    NotLeasedError,
    Queue,
    StorageError,
)
from nobroker.clock import ManualClock

from .conftest import Opener, answers
from .helpers import counts, drain, take


def tree(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Contents and times of change of every file."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.iterdir())
        if path.is_file()
    }


class TestRule2Durable:
    @pytest.mark.parametrize("fsync", [True, False])
    def test_what_returned_is_there_without_a_close(self, open_queue: Opener, fsync: bool) -> None:
        queue = open_queue(fsync=fsync)
        queue.enqueue_many(range(5), job_ids="abcde")
        queue.ack(take(queue), result=1)
        queue.nack(take(queue), error="e", dead=True)
        queue.cancel("d")
        queue.pause()
        assert answers(open_queue()) == answers(queue)

    def test_half_of_a_call_is_never_shown(self, open_queue: Opener, tmp_path: Path) -> None:
        """The log ends within the last group: all of the call is gone, and what was before is there."""
        queue = open_queue()
        queue.enqueue("before")
        size = queue.stats().bytes
        queue.enqueue_many([b"x" * 400] * 2000)
        queue.close()
        segments = sorted(open_queue.dir.glob("default.*.seg"))
        data = segments[-1].read_bytes()
        assert len(segments) <= 2
        cut = max(at for at in range(0, len(data), 4096) if any(data[at : at + 4096])) - 4096
        segments[-1].write_bytes(data[:cut] + bytes(len(data) - cut))
        for path in open_queue.dir.iterdir():
            if path.suffix != ".seg":
                path.unlink()
        queue = open_queue()
        assert [job.payload for job in queue.list_jobs()] == ["before"]
        assert queue.recovery.bytes_discarded > 0
        assert queue.stats().bytes >= size


class TestRule9ThreadsAndProcesses:
    def test_one_object_serves_many_threads(self, queue: Queue) -> None:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for n in range(30):
                    queue.enqueue((number, n))
                    job = queue.lease_one()
                    if job is not None:
                        queue.extend(job, 60, progress=n)
                        queue.ack(job, result=number)
                    queue.stats()
                    queue.list_jobs("leased")
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert sum(counts(queue)) == 180
        queue.ack_many(queue.lease(200))
        assert counts(queue) == (0, 0, 0, 180, 0)

    @pytest.mark.processes
    def test_another_process(self, tmp_path: Path) -> None:
        code = (
            "import sys; from nobroker import Queue\n"
            "with Queue(sys.argv[1]) as q:\n"
            "    q.ack(q.lease_one(), result='there'); q.enqueue('from there', job_id='k')\n"
        )
        with Queue(tmp_path / "jobs") as queue:
            job = queue.enqueue("from here")
            subprocess.run([sys.executable, "-c", code, str(tmp_path / "jobs")], check=True, timeout=60)
            assert queue.get(job.id).result == "there"
            assert take(queue).payload == "from there"
            queue.ack("k")
            assert list(queue.check()) == []

    @pytest.mark.processes
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_after_a_fork_the_childs_copy_works_and_the_parents_goes_on(self, tmp_path: Path) -> None:
        queue = Queue(tmp_path / "jobs")
        queue.enqueue("parent's")
        held = take(queue)
        pid = os.fork()
        if not pid:
            try:
                queue.enqueue("child's", job_id="c")
                job = queue.lease_one()
                os._exit(0 if job is not None and job.id == "c" else 3)
            except BaseException:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        queue.ack(held)
        assert counts(queue) == (0, 0, 1, 1, 0)
        queue.close()


class TestRule10Locks:
    def test_a_held_lock_is_a_typed_error_naming_the_holder(self, open_queue: Opener) -> None:
        one, two = open_queue(), open_queue(lock_timeout=0.05)
        one.enqueue(1)
        log = one._store._session.log  # type: ignore[attr-defined]
        log.lock()
        try:
            with pytest.raises(LockTimeoutError, match=str(os.getpid())):
                two.enqueue(2)
            assert two.stats().ready == 1
            assert len(two.list_jobs()) == 1
        finally:
            log.unlock()
        two.enqueue(2)
        assert drain(one) == [1, 2]


class TestRule11ReadOnly:
    def test_it_looks_and_changes_nothing(self, open_queue: Opener, clock: ManualClock) -> None:
        queue = open_queue()
        queue.enqueue_many(range(5), job_ids="abcde")
        queue.enqueue(5, expires_in=10)
        queue.lease(1)
        queue.nack("a", dead=True)
        take(queue)
        clock.advance(31)
        said = answers(queue)
        before = tree(open_queue.dir)
        looker = open_queue(read_only=True)
        assert answers(looker) == said
        assert looker.get("a").state == "dead"
        assert [job.id for job in looker.dlq()] == [job.id for job in queue.dlq()]
        assert list(looker.check()) == []
        assert looker.recovery is not None
        assert tree(open_queue.dir) == before
        queue.enqueue(9, job_id="new")
        assert looker.get("new").payload == 9
        looker.close()

    def test_every_verb_that_writes_is_refused(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue_many([1, 2])
        job = take(queue)
        looker = open_queue(read_only=True)
        before = tree(open_queue.dir)
        verbs: list[Any] = [
            lambda: looker.enqueue(1),
            lambda: looker.enqueue_many([1]),
            lambda: looker.enqueue(1, job_id="k"),
            looker.lease,
            lambda: looker.ack(job),
            lambda: looker.nack(job),
            lambda: looker.extend(job, 1),
            lambda: looker.release(job),
            lambda: looker.cancel(job.id),
            looker.requeue_dead,
            looker.drop_dead,
            looker.pause,
            looker.resume,
            looker.purge,
            looker.compact,
        ]
        for number, verb in enumerate(verbs):
            with pytest.raises(StorageError, match="read-only"):
                verb()
            assert tree(open_queue.dir) == before, f"verb {number} did something"
        assert tree(open_queue.dir) == before

    def test_a_queue_that_is_not_there(self, open_queue: Opener, tmp_path: Path) -> None:
        with pytest.raises(StorageError):
            open_queue(read_only=True)
        assert not open_queue.dir.exists()
        open_queue.dir.mkdir()
        with pytest.raises(StorageError):
            open_queue(read_only=True)
        assert list(open_queue.dir.iterdir()) == []

    def test_while_another_holds_the_lock(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue(1)
        log = queue._store._session.log  # type: ignore[attr-defined]
        log.lock()
        try:
            assert counts(open_queue(read_only=True)) == (1, 0, 0, 0, 0)
        finally:
            log.unlock()

    def test_on_a_directory_that_cannot_be_written(self, open_queue: Opener) -> None:
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            pytest.skip("root may write everywhere; the command-line tests drop to another user")
        queue = open_queue()
        queue.enqueue(1)
        queue.close()
        os.chmod(open_queue.dir, 0o555)
        try:
            assert counts(open_queue(read_only=True)) == (1, 0, 0, 0, 0)
        finally:
            os.chmod(open_queue.dir, 0o755)


class TestRule12Growth:
    def test_reads_and_empty_leases_write_nothing(self, open_queue: Opener) -> None:
        queue = open_queue()
        queue.enqueue(1, delay=100)
        before = tree(open_queue.dir)
        size = queue.stats().bytes
        for _ in range(20):
            assert queue.lease(5) == []
            assert queue.lease_one(lanes=["a"]) is None
            queue.stats()
            queue.list_jobs()
            assert not queue.paused
            queue.check()
            with pytest.raises(JobNotFoundError):
                queue.get("nope")
        assert queue.stats().bytes == size
        after = tree(open_queue.dir)
        assert {n: d for n, d in after.items() if "lock" not in n} == {
            n: d for n, d in before.items() if "lock" not in n
        }

    def test_a_log_over_its_limit_is_compacted_by_its_writers(
        self, open_queue: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nobroker.stores.moving.AUTO_BYTES", 256 * 1024)
        queue = open_queue()
        queue.enqueue_many(range(50), job_ids=[f"keep-{n}" for n in range(50)], delay=10**6)
        for n in range(60):
            queue.enqueue_many([b"x" * 1000] * 40)
            queue.ack_many(queue.lease(40))
            if n > 30:
                assert sum(path.stat().st_blocks * 512 for path in open_queue.dir.iterdir()) < 1_500_000
        assert queue.stats().delayed == 50
        assert queue.get("keep-49").payload == 49

    def test_not_when_it_was_told_not_to(self, open_queue: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("nobroker.stores.moving.AUTO_BYTES", 0)
        queue = open_queue(auto_compact=False)
        for _ in range(10):
            queue.enqueue_many([b"x" * 1000] * 40)
            queue.ack_many(queue.lease(40))
        assert queue.stats().done == 400


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
