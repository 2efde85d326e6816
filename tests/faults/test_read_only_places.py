"""Directories and mounts that may only be read: reads work, writes are typed errors, nothing is made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nobroker import Queue
from tests.faults.trial import Trial

pytestmark = pytest.mark.processes
PROGRAM = """
import json, sys
from nobroker import NobrokerError, Queue
where, answers = sys.argv[1], {}
def note(name, work):
    try:
        answers[name] = repr(work())
    except NobrokerError as error:
        answers[name] = f"{type(error).__name__}: {error}"
def look():
    with Queue(where, read_only=True) as queue:
        jobs = queue.list_jobs()
        return len(jobs), queue.stats().total, queue.get(jobs[0].id).payload, len(queue.check())
note("look", look)
note("write", lambda: Queue(where))
reader = Queue(where, read_only=True)
note("enqueue", lambda: reader.enqueue(1))
note("lease", lambda: reader.lease(1))
note("ack", lambda: reader.ack(reader.list_jobs()[0]))
note("compact", reader.compact)
note("missing", lambda: Queue(where + "/no", read_only=True))
note("new", lambda: Queue(where + "/new"))
print(json.dumps(answers))
"""


def made(directory: Path, closed: bool, jobs: int) -> None:
    queue = Queue(directory, segment_size=65536)
    queue.enqueue_many([b"x" * 900] * jobs)
    queue.ack_many(queue.lease(jobs // 4))
    if closed:
        queue.close()
    else:
        store: Any = queue._store
        store._session.log._release_files()
    directory.chmod(0o755)
    for path in directory.iterdir():
        path.chmod(0o644)


def look(command: list[str], directory: Path) -> dict[str, str]:
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in directory.iterdir()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    after = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in directory.iterdir()}
    assert after == before, "something was made or changed"
    if done.returncode:
        pytest.fail(done.stderr)
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


def judge(answers: dict[str, str], total: int) -> None:
    assert answers["look"] == f"({total}, {total}, {b'x' * 900!r}, 0)"
    for name in ("write", "enqueue", "lease", "ack", "compact", "missing", "new"):
        assert answers[name].split(":")[0] in ("StorageError", "CompactionError"), answers[name]


def size_of(number: int, rng: Random) -> int:
    """How many jobs a round has: in a long run each time others."""
    return rng.randint(4, 2000) if number else 200


@pytest.fixture
def common_place() -> Iterator[Path]:
    """A directory that all may look into; those of pytest are its user's alone."""
    with tempfile.TemporaryDirectory(prefix="nobroker-faults-") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.fixture
def another_user() -> list[str]:
    """The beginning of a command that runs a Python program as another user."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    command = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c"]
    try:
        probe = subprocess.run([*command, "import nobroker"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("setpriv is not installed")
    if probe.returncode:
        pytest.skip("another user may not read this checkout or its environment")
    return command


@pytest.mark.parametrize("closed", [True, False])
def test_another_users_directory(
    trial: Trial, common_place: Path, another_user: list[str], closed: bool
) -> None:
    for number, rng in trial.rounds(1):
        jobs, where = size_of(number, rng), common_place / str(number)
        made(where, closed, jobs)
        judge(look([*another_user, PROGRAM, str(where)], where), jobs)
        shutil.rmtree(where)


REFUSED = """
import sys
from nobroker import NobrokerError, Queue, drop_queue, list_queues
from nobroker_mmap.salvage import salvage
where = sys.argv[1]
for work in (
    lambda: Queue(where, read_only=True),
    lambda: Queue(where),
    lambda: list_queues(where),
    lambda: drop_queue(where, "default"),
    lambda: salvage(where, "default", boot_id="any"),
):
    try:
        work()
    except NobrokerError as error:
        print(type(error).__name__, where in str(error))
    else:
        print("no error")
"""


@pytest.mark.parametrize(
    ("closed_off", "mode"), [("above/jobs", 0o711), ("above/jobs", 0o700), ("above", 0o700)]
)
def test_a_directory_that_may_not_be_looked_into(
    common_place: Path, another_user: list[str], closed_off: str, mode: int
) -> None:
    """The queue's own, or one above it: typed errors that name it."""
    where = common_place / "above" / "jobs"
    made(where, True, 8)
    (common_place / closed_off).chmod(mode)
    done = subprocess.run([*another_user, REFUSED, str(where)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["StorageError True"] * 5


@pytest.mark.parametrize("closed", [True, False])
def test_a_mount(trial: Trial, tmp_path: Path, closed: bool) -> None:
    where, jobs = tmp_path / "mount", tmp_path / "jobs"
    where.mkdir()
    jobs.mkdir()
    mount = f"mount --bind {jobs} {where} && mount -o remount,ro,bind {where}"
    try:
        probe = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if probe.returncode:
        pytest.skip("mounting is not allowed here")
    (tmp_path / "program.py").write_text(PROGRAM)
    run = f"{mount} && exec {sys.executable} {tmp_path}/program.py {where}"
    for number, rng in trial.rounds(1):
        total = size_of(number, rng)
        made(jobs, closed, total)
        judge(look(["unshare", "-m", "sh", "-c", run], jobs), total)
        shutil.rmtree(jobs)
