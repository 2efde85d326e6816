"""C9: somebody removes the lock file while a writer is stopped in the middle of its work."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from nobroker import NobrokerError, Queue

from .words import start

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.name == "nt", reason="a file that is open cannot be removed there"),
]

WRITER = """
import json, sys
from nobroker import NobrokerError, Queue
q = Queue(sys.argv[1], fsync=False, lock_timeout=20)
done, failed = [], 0
print("open", flush=True)
for n in range(int(sys.argv[3])):
    try:
        q.enqueue(f"{sys.argv[2]}-{n}")
        done.append(n)
    except NobrokerError as error:
        if getattr(error, "outcome", "") != "unknown" and not failed:
            print(repr(error), file=sys.stderr)
        failed += 1
    if n == 20:
        print("at work", flush=True)
try:
    q.close()
except NobrokerError:
    pass
print(json.dumps([done, failed]), flush=True)
"""


@pytest.mark.parametrize("pause", [0.0, 0.004, 0.011])
def test_no_job_is_lost_or_written_over(tmp_path: Path, pause: float) -> None:
    directory = tmp_path / "q"
    one = start(WRITER, directory, "A", 1500)
    assert one.stdout is not None
    assert one.stdout.readline() == "open\n"
    assert one.stdout.readline() == "at work\n"
    os.sched_yield()
    one.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, one.pid, os.WSTOPPED)
    (directory / "default.lock").unlink()
    two = start(WRITER, directory, "B", 200)
    out_two, err_two = two.communicate(timeout=60)
    one.send_signal(signal.SIGCONT)
    out_one, err_one = one.communicate(timeout=60)
    assert (one.returncode, two.returncode) == (0, 0), (err_one, err_two)
    acknowledged = Counter(f"A-{n}" for n in json.loads(out_one.splitlines()[-1])[0])
    acknowledged += Counter(f"B-{n}" for n in json.loads(out_two.splitlines()[-1])[0])
    with Queue(directory) as queue:
        found = Counter(job.payload for job in queue.list_jobs())
        assert [finding for finding in queue.check() if finding.severity == "damage"] == []
    assert max(found.values()) == 1
    assert acknowledged - found == Counter(), "acknowledged and lost"


@pytest.mark.parametrize("verb", ["close", "compact", "purge", "reopen"])
def test_we_never_remove_it_ourselves(tmp_path: Path, verb: str) -> None:
    queue = Queue(tmp_path, fsync=False, segment_size=65536)
    before = (tmp_path / "default.lock").stat().st_ino
    queue.enqueue_many([b"x" * 1000] * 200)
    queue.ack_many(queue.lease(150))
    if verb == "compact":
        queue.compact()
    if verb == "purge":
        queue.purge()
        queue.compact()
    queue.close()
    if verb == "reopen":
        Queue(tmp_path).close()
    assert (tmp_path / "default.lock").stat().st_ino == before


def test_a_fresh_lock_file_is_taken_up_by_an_idle_handle(tmp_path: Path) -> None:
    """Removed while nobody works: whoever comes next agrees on the new one, or says that it cannot."""
    with Queue(tmp_path, fsync=False) as one:
        one.enqueue(1)
        (tmp_path / "default.lock").unlink()
        with Queue(tmp_path, fsync=False) as two:
            two.enqueue(2)
            refused = 0
            for n in range(3, 8):
                try:
                    one.enqueue(n)
                except NobrokerError:
                    refused += 1
            assert len(two) == 7 - refused
            assert len({job.seq for job in two.list_jobs()}) == 7 - refused
