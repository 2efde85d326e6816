"""Control groups: against a directory that stands for them, and for real where there are some."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from nobroker.running import cgroups
from nobroker.running.cgroups import Groups
from nobroker_mmap import directories
from tests.running.trial import Trial

MB = 2**20


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose new directories have the files of a group, as the kernel's have."""
    make = directories.make

    def make_group(path: str) -> None:
        make(path)
        for name in ("cgroup.procs", "memory.max", "memory.oom.group", "cgroup.subtree_control"):
            Path(path, name).touch()

    monkeypatch.setattr(directories, "make", make_group)
    make_group(str(tmp_path / "base"))
    return tmp_path / "base"


def test_each_child_gets_a_group_with_its_limit(base: Path) -> None:
    groups = Groups(str(base))
    groups.hold(4711, 50 * MB)
    groups.hold(4712, 60 * MB)
    own = base / f"nobroker-supervisor-{os.getpid()}"
    assert (own / "cgroup.procs").read_text() == str(os.getpid()), "a group that is divided has no process"
    assert (base / "cgroup.subtree_control").read_text() == "+memory"
    for pid, limit in ((4711, 50 * MB), (4712, 60 * MB)):
        group = base / f"nobroker-{pid}"
        assert (group / "memory.max").read_text() == str(limit)
        assert (group / "cgroup.procs").read_text() == str(pid)
        for file in group.iterdir():
            file.unlink()  # as the kernel lets a group go in which nothing is
    for file in own.iterdir():
        file.unlink()
    groups.release(4711)
    assert not (base / "nobroker-4711").exists()
    groups.close()
    assert [entry.name for entry in base.iterdir() if entry.is_dir()] == []
    assert (base / "cgroup.subtree_control").read_text() == "-memory"
    assert (base / "cgroup.procs").read_text() == str(os.getpid())


def test_where_there_is_none_it_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups(str(tmp_path / "none"))
    groups.hold(4711, MB)
    groups.hold(4712, MB)
    groups.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("event=cgroup.unavailable")
    assert "Delegate=memory" in line


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_without_one_the_workers_work(trial: Trial) -> None:
    if divisible():
        pytest.skip("this system has a control group to divide")
    trial.later("quick")
    running = trial.program("workers=(WorkerConfig(cgroup_memory_max=10**9, processes=2),)")
    trial.until("quick", 1)
    assert running.log().count("event=cgroup.unavailable") == 1
    assert running.end() == 0


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
def test_the_kernel_holds_a_worker_to_its_limit(trial: Trial) -> None:
    if not divisible():
        pytest.skip(
            "no control group of version 2 that may be divided: the limit was NOT tried against a kernel"
        )
    trial.add(
        "@app.job(max_attempts=1)\ndef grow():\n    return len(bytearray(os.urandom(1) * 300_000_000))\n"
    )
    (job_id,) = trial.later("grow")
    running = trial.program("workers=(WorkerConfig(isolation='process', cgroup_memory_max=200_000_000),)")
    running.says("event=job.settled")
    (job,) = trial.jobs()
    assert (job.id, job.state) == (job_id, "dead")
    assert "SIGKILL" in str(job.last_error)
    assert running.end(signal.SIGTERM) == 0


def divisible() -> bool:
    """Whether this process may divide its group."""
    try:
        group = cgroups._group_of_this_process()
    except OSError:
        return False
    return os.access(group, os.W_OK) and os.access(os.path.join(group, "cgroup.subtree_control"), os.W_OK)
