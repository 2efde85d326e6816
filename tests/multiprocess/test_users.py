"""Several users of one machine: rights decide who may write, and a directory shared by a group works for all
of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nobroker import Queue

GROUP, ANN, BOB, EVE = 61_000, 61_001, 61_002, 61_003

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be several users"
    ),
]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that belongs to a group, as `install -d -m 2775 -g GROUP` makes it."""
    top = Path(tempfile.mkdtemp(prefix="nobroker-users-"))
    top.chmod(0o755)
    directory = top / "jobs"
    directory.mkdir()
    os.chown(directory, 0, GROUP)
    directory.chmod(0o2775)
    yield directory
    shutil.rmtree(top)


PRELUDE = """
import json, os, sys, tempfile
from nobroker import *

def queue_of(where=sys.argv[1], **options):
    return Queue(where, segment_size=65536, **options)

def say(value):
    print(json.dumps(value), flush=True)

# Root first uses everything once, for the interpreter and the checkout may be root's alone to read.
with tempfile.TemporaryDirectory() as scratch:
    with queue_of(scratch) as queue:
        queue.enqueue_many(["x" * 3000] * 60, lane="work")
        queue.ack_many(queue.lease(60))
        queue.compact()
        queue.check()
    drop_queue(scratch)
user, groups, umask = json.loads(sys.argv[2])
os.setgroups(groups)
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.umask(umask)
"""


def start(
    user: int, code: str, directory: Path, *, umask: int = 0o002, prelude: str = ""
) -> subprocess.Popen[str]:
    """Run `code` as a user; it has `queue_of(**options)`, and `say` prints one JSON value."""
    who = json.dumps([user, [GROUP] if user != EVE else [], umask])
    return subprocess.Popen(
        [sys.executable, "-c", (prelude or PRELUDE) + code, str(directory), who],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(user: int, code: str, directory: Path, *, umask: int = 0o002, prelude: str = "") -> Any:
    """Run it to its end; the value it prints."""
    with start(user, code, directory, umask=umask, prelude=prelude) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return json.loads(out)


WORK = """
with queue_of() as queue:
    before = queue.stats().total
    queue.enqueue_many(["x" * 3000] * 60, lane="work")
    for _ in range(6):
        queue.ack_many(queue.lease(10, lanes=["work"]))
    queue.compact()
    queue.lease(1, wait=0.01, lanes=["none"])
    job = queue.enqueue("one more", job_id=f"job-of-{os.geteuid()}")
    say([before, queue.stats().total, len(os.listdir(sys.argv[1]))])
"""


def test_two_users_of_a_group(shared: Path) -> None:
    """Locks, syncs, rotation, compaction, snapshots and the FIFO work on files that the other one made."""
    assert run(ANN, WORK, shared)[:2] == [0, 1]
    owners = set()
    for user, before in ((BOB, 1), (ANN, 2), (BOB, 2), (ANN, 2)):
        assert run(user, WORK, shared)[0] == before
        owners |= {path.stat().st_uid for path in shared.iterdir()}
        for path in shared.iterdir():
            assert path.stat().st_gid == GROUP, path
            assert path.stat().st_mode & 0o060 == 0o060, path
    assert owners == {ANN, BOB}
    with Queue(shared, read_only=True) as queue:
        assert [job.id for job in queue.list_jobs()] == [f"job-of-{ANN}", f"job-of-{BOB}"]
        assert queue.check() == []


def test_one_user_wakes_and_outlives_the_other(shared: Path) -> None:
    waiting = """
with queue_of() as queue:
    say("open")
    job = queue.lease_one(wait=30)
    queue.ack(job)
    say(job.payload)
    while True:
        job = queue.lease_one(wait=30)
        os.kill(os.getpid(), 9)
"""
    with start(ANN, waiting, shared) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == "open"
        enqueue = 'with queue_of() as queue:\n    queue.enqueue("from the other")\n    say("done")'
        assert run(BOB, enqueue, shared) == "done"
        assert json.loads(process.stdout.readline()) == "from the other"
        assert run(BOB, enqueue, shared) == "done"
        assert process.wait(30) == -9
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.read()
    code = "with queue_of() as queue:\n    say([queue.stats().leased, len(queue.check())])"
    assert run(BOB, code, shared) == [1, 0]


def test_a_user_who_may_only_read(shared: Path) -> None:
    run(ANN, WORK, shared)
    before = {path.name: path.read_bytes() for path in shared.iterdir() if path.is_file()}
    looking = """
with queue_of(read_only=True) as queue:
    say([queue.stats().total, [job.id for job in queue.list_jobs()], len(queue.check())])
"""
    assert run(EVE, looking, shared) == [1, [f"job-of-{ANN}"], 0]
    writing = """
said = []
for options in ({}, {"read_only": True}):
    try:
        with queue_of(**options) as queue:
            queue.enqueue(1)
    except StorageError as error:
        said.append([str(error), error.outcome])
try:
    drop_queue(sys.argv[1])
except StorageError as error:
    said.append([str(error), error.outcome])
say(said)
"""
    said = run(EVE, writing, shared)
    assert [outcome for _, outcome in said] == ["not written"] * 3
    assert "give the user of this process the right" in said[0][0]
    assert "read-only" in said[1][0]
    assert {path.name: path.read_bytes() for path in shared.iterdir() if path.is_file()} == before


COMMANDS = """
import contextlib, io
from nobroker.cli.main import main

LOOKING = [
    ["stats"], ["list"], ["show", "job-of-%d"], ["dlq"], ["queues", "--long"], ["inspect"], ["dump"],
    ["dump", "--jobs"], ["check"], ["recover"],
]
CHANGING = [["enqueue", "x"], ["lease"], ["compact"], ["purge", "--yes"], ["drop", "default", "--yes"]]

def tried(commands, where):
    codes = []
    for words in commands:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            codes.append(main(["--dir", where, "--json", *words]))
        assert "Traceback" not in err.getvalue()
        assert codes[-1] == 0 or "error: " in err.getvalue()
    return codes
"""


def test_commands_of_a_user_who_may_only_read(shared: Path) -> None:
    run(ANN, WORK, shared)
    before = {path.name: path.read_bytes() for path in shared.iterdir() if path.is_file()}
    first, then = PRELUDE.split("user, groups, umask", 1)
    warm = first + COMMANDS % ANN + "tried(LOOKING, sys.argv[1])\nuser, groups, umask" + then
    code = "say([tried(LOOKING, sys.argv[1]), tried(CHANGING, sys.argv[1])])"
    assert run(EVE, code, shared, prelude=warm) == [[0] * 10, [1] * 5]
    assert {path.name: path.read_bytes() for path in shared.iterdir() if path.is_file()} == before


def test_a_umask_that_shuts_the_group_out(shared: Path) -> None:
    """The files follow the umask; who is shut out is told so, and nothing is changed by trying."""
    run(ANN, WORK, shared, umask=0o077)
    assert {path.stat().st_mode & 0o077 for path in shared.iterdir()} == {0}
    trying = """
said = []
for options in ({}, {"read_only": True}):
    try:
        queue_of(**options).stats()
    except StorageError as error:
        said.append(str(error))
say(said)
"""
    said = run(BOB, trying, shared)
    assert len(said) == 2
    assert all("Permission denied" in text and "give the user" in text for text in said)
    assert run(ANN, WORK, shared)[0] == 1
