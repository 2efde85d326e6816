"""C26: who only looks changes no byte, also of a damaged queue, also while it is locked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nobroker import Queue
from nobroker.clock import ManualClock

from .words import cli, end, hashes, segs, start

pytestmark = pytest.mark.processes
LOOKS = [["inspect"], ["stats"], ["list"], ["dlq"], ["check"], ["queues"], ["list", "--state", "ready"]]
HOLD = """
import sys
from nobroker import Queue
q = Queue(sys.argv[1])
q._store._session.log.lock()
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Five jobs, a lease that has just expired, and a torn tail."""
    directory = tmp_path / "q"
    clock = ManualClock(1_700_000_000)
    with Queue(directory, clock=clock) as queue:
        queue.enqueue_many(range(4))
        queue.enqueue("dead", priority=9)
        job = queue.lease_one()
        assert job is not None
        queue.nack(job, error="e", dead=True)
        queue.lease(1, visibility_timeout=1)
    last = segs(directory)[-1]
    at = end(last)
    with last.open("r+b") as file:
        file.seek((at + 7) // 8 * 8)
        file.write(b"\xffjunk\xfe!")
    return directory


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_no_byte_and_no_time_of_change(damaged: Path, words: list[str]) -> None:
    before = hashes(damaged)
    ran = cli(damaged, *words)
    assert hashes(damaged) == before
    assert "Traceback" not in ran.err
    assert ran.code in (0, 1, 3), ran


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_on_a_directory_that_cannot_be_written(damaged: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "nobroker", "--dir", str(damaged), *words]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and there is no setpriv")
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        probe = [*nobody, sys.executable, "-c", "import nobroker.cli.main, msgpack, xxhash"]
        if subprocess.run(probe, capture_output=True, timeout=60, check=False).returncode:
            pytest.skip("root may write everywhere, and another user may not read this environment")
        command = [*nobody, *command]
    for path in damaged.iterdir():
        path.chmod(0o444)
    damaged.chmod(0o555)
    parents = [
        path for path in damaged.parents if path.stat().st_uid == os.getuid() and "pytest" in str(path)
    ]
    modes = [(path, path.stat().st_mode) for path in parents]
    for path in parents:
        path.chmod(0o755)
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        for path, mode in modes:
            path.chmod(mode)
        damaged.chmod(0o755)
    assert "Traceback" not in ran.stderr, ran
    assert ran.returncode in (0, 1), ran
    if ran.returncode:
        assert ran.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="no SIGSTOP there")
def test_while_a_stopped_process_holds_the_lock(tmp_path: Path) -> None:
    directory = tmp_path / "q"
    with Queue(directory) as queue:
        queue.enqueue_many(range(3))
    process = start(HOLD, directory)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    process.send_signal(signal.SIGSTOP)
    try:
        before = hashes(directory)
        for words in LOOKS:
            ran = cli(directory, *words, timeout=20)
            assert ran.code == 0, ran
        with Queue(directory, read_only=True) as queue:
            assert queue.stats().ready == 3
        assert hashes(directory) == before
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate("\n", timeout=30)


def test_only_a_writing_open_repairs(damaged: Path) -> None:
    with Queue(damaged, read_only=True) as queue:
        said = [job.id for job in queue.list_jobs()]
    with Queue(damaged) as queue:
        assert [job.id for job in queue.list_jobs()] == said
        assert queue.recovery.bytes_discarded > 0
        assert queue.recovery.torn_file is not None
    with Queue(damaged) as queue:
        assert queue.recovery.bytes_discarded == 0
