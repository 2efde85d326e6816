"""Rules 2 and 9 to 12: durability, processes, locks, read only, growth."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nobroker import (
    JobNotFoundError,
    LockTimeoutError,
    Queue,
    StorageError,
)
from nobroker.clock import ManualClock

from .conftest import Opener, answers
from .words import counts, drain, take


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
            lambda: looker.reschedule(job.id),
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
