"""Who works on a queue: processes are seen while they live, and not any longer."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from nobroker import LockTimeoutError, Queue, StorageError, drop_queue, list_queues
from nobroker.clock import SystemClock
from nobroker.running import registry, spoken
from nobroker.running.info import CurrentJob, ProcessInfo, QueueWait
from nobroker.running.registry import Registration, registered
from tests.cli.harm import plant

from .conftest import Programs, until

posix = pytest.mark.skipif(os.name != "posix", reason="needs links, FIFOs and signals")


def place(queue: Queue) -> Path:
    return queue.dir / "default.processes"


def written(queue: Queue) -> dict[str, Any]:
    """What the only process says of itself."""
    (path,) = place(queue).glob("*.json")
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def say(queue: Queue, said: dict[str, Any], name: str | None = None) -> Path:
    """Write what some process would have said."""
    place(queue).mkdir(exist_ok=True)
    path = place(queue) / f"{name or said['id']}.json"
    path.write_text(json.dumps(said))
    return path


@pytest.fixture
def said(queue: Queue) -> dict[str, Any]:
    """What a process of another machine says of itself, just now."""
    one = Registration(queue, "worker", threads=2)
    found = written(queue)
    one.close()
    return {**found, "id": "far-77-abc", "host": "far", "boot": "another", "pid": 77}


def test_a_process_is_seen_until_it_says_goodbye(queue: Queue) -> None:
    assert registered(queue) == []
    one = Registration(queue, "worker", supervisor="boss", queues=["mails", "b*"], threads=4)
    job = CurrentJob(id="j", job_class="Send", queue="mails", started_at=12.5)
    wait = QueueWait(queue="mails", count=9, p50=0.5, p95=1.5)
    one.update(state="running", jobs=(job,), finished=7, failed=2, recycling="it is old", waits=(wait,))
    one.beat()
    (seen,) = registered(queue)
    assert seen == one.info
    assert dataclasses.replace(seen, started_at=0.0, seen_at=0.0, memory=None) == ProcessInfo(
        id=one.id, kind="worker", pid=os.getpid(), host=socket.gethostname(), supervisor="boss",
        state="running", started_at=0.0, seen_at=0.0, queues=("mails", "b*"), threads=4,
        jobs=(job,), finished=7, failed=2, recycling="it is old", waits=(wait,),
    )  # fmt: skip
    assert 0 <= seen.seen_at - seen.started_at < 60
    assert (seen.memory or 0) > 0 or sys.platform != "linux"
    one.close()
    one.close()
    one.beat()
    assert registered(queue) == []
    assert list(place(queue).iterdir()) == []


def test_several_in_one_process_are_in_the_order_in_which_they_began(queue: Queue) -> None:
    made = [Registration(queue, kind) for kind in ("supervisor", "worker", "scheduler")]
    assert [seen.kind for seen in registered(queue)] == ["supervisor", "worker", "scheduler"]
    for one in made:
        one.close()
    assert registered(queue) == []


def test_what_is_wrong_is_said(queue: Queue) -> None:
    with pytest.raises(ValueError, match="kind must be one of supervisor"):
        Registration(queue, "waiter")
    one = Registration(queue, "worker")
    with pytest.raises(TypeError, match="no pid, stat that changes"):
        one.update(stat="running", pid=5)
    one.close()


@posix
@pytest.mark.processes
def test_a_killed_process_is_gone_at_once_and_what_it_left_is_removed(
    queue: Queue, programs: Programs
) -> None:
    other = programs(
        "from nobroker import Queue",
        "from nobroker.running.registry import Registration",
        "one = Registration(Queue('jobs'), 'worker', interval=600)",
        "print(one.id, flush=True)",
        "input()",
    )
    assert other.stdout is not None
    name = other.stdout.readline().strip()
    assert [seen.id for seen in registered(queue)] == [name]
    os.kill(other.pid, signal.SIGSTOP)  # it lives, and says nothing
    assert [seen.pid for seen in registered(queue)] == [other.pid]
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert registered(queue, remove=False) == []
    assert len(list(place(queue).iterdir())) == 2
    assert registered(queue) == []
    assert list(place(queue).iterdir()) == []


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_another_process_and_keeps_no_lock_of_its_parent(
    queue: Queue, programs: Programs
) -> None:
    parent = programs(
        "import os, sys",
        "from nobroker import Queue",
        "from nobroker.running.registry import Registration, registered",
        "queue = Queue('jobs')",
        "one = Registration(queue, 'supervisor')",
        "if os.fork() == 0:",
        "    one.close(); one.beat()",
        "    mine = Registration(queue, 'worker', supervisor=one.id)",
        "    print(len(registered(queue)), os.getpid(), flush=True)",
        "    input()",
        "    os._exit(0)",
        "os.wait()",
    )
    assert parent.stdout is not None
    seen, child = map(int, parent.stdout.readline().split())
    assert seen == 2
    assert {one.pid for one in registered(queue)} == {parent.pid, child}
    parent.kill()
    parent.wait()
    (left,) = registered(queue)
    assert (left.pid, left.kind) == (child, "worker")
    os.kill(child, signal.SIGKILL)
    until(lambda: registered(queue) == [])


def test_elsewhere_signs_of_life_count(queue: Queue, said: dict[str, Any]) -> None:
    now = SystemClock().wall_us() / 1e6
    for age, lives in ((0, True), (24, True), (26, False), (-26, False)):
        path = say(queue, {**said, "seen_at": now - age})
        assert [one.id for one in registered(queue)] == (["far-77-abc"] if lives else [])
        assert path.exists() is lives
    say(queue, {**said, "seen_at": now - 26, "interval": 60})
    assert len(registered(queue)) == 1


def test_here_the_lock_counts(queue: Queue, said: dict[str, Any]) -> None:
    say(queue, {**said, "boot": SystemClock().boot_id()})
    assert registered(queue) == []
    say(queue, {**said, "boot": SystemClock().boot_id(), "locked": False})  # a file system without locks
    assert len(registered(queue)) == 1


def test_a_lock_of_another_user_says_nothing(
    queue: Queue, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    say(queue, {**said, "boot": SystemClock().boot_id()})

    def refuse(*_: Any) -> int:
        raise PermissionError(13, "no")

    monkeypatch.setattr(registry.files, "open_read", lambda path: refuse())
    monkeypatch.setattr(registry.files, "read_file", lambda path, limit: Path(path).read_bytes())
    assert len(registered(queue)) == 1


HOSTILE: list[Any] = [
    b"", b"{", b"null", b"[]", b"\xff\xfe", b"{}", b"[" * 100_000, b'{"id": NaN}', b"1e999", b"9" * 10_000,
    b" " * (spoken.MAX_BYTES + 1),
    {"id": "someone-else"}, {"pid": "1"}, {"pid": True}, {"pid": 2**70}, {"pid": -1}, {"started_at": 1e300},
    {"seen_at": "x"}, {"queues": ["x"] * 1000}, {"queues": [1]}, {"jobs": [1]}, {"jobs": [{"id": 5}]},
    {"host": "h" * 1000}, {"interval": 0}, {"interval": 1e9}, {"boot": None}, {"threads": 1.5},
    {"memory": "all"}, {"recycling": 7}, {"kind": None}, {"waits": [{}]},
]  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content)[:30])
def test_what_is_no_sign_of_life_is_passed_over(
    queue: Queue, said: dict[str, Any], content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nobroker.running")
    path = say(queue, said)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps({**said, **content}).encode())
    one = Registration(queue, "worker")
    assert [seen.id for seen in registered(queue)] == [one.id]
    one.close()
    assert path.exists()  # it may be of a later version
    assert "registry.not_understood" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


def test_a_later_version_may_say_more(queue: Queue, said: dict[str, Any]) -> None:
    say(queue, {**said, "version": 2, "mood": ["fine"], "kind": "broker", "state": "dreaming"})
    assert [(one.kind, one.state) for one in registered(queue)] == [("broker", "dreaming")]


@posix
@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "directory", "fifo", "socket"])
def test_links_and_special_files_are_not_followed(
    queue: Queue, said: dict[str, Any], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside"
    outside.write_text(json.dumps(said))
    place(queue).mkdir(exist_ok=True)
    for tail in ("json", "lock"):
        plant(Path(os.path.relpath(place(queue) / f"far-77-abc.{tail}")), kind, outside)
    assert registered(queue) == []
    assert outside.read_text() == json.dumps(said)
    assert len(list(place(queue).iterdir())) == 2


@posix
@pytest.mark.parametrize("kind", ["symlink", "dangling symlink", "fifo", "file"])
def test_in_the_place_of_the_directory(
    queue: Queue, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    if kind == "file":
        place(queue).write_text("mine")
    else:
        plant(place(queue), kind, outside)
    one = Registration(queue, "worker")
    one.beat()
    assert registered(queue) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"event=registry.not_written dir={place(queue)} error=[Errno 20] not a directory, and left as it is; "
        f"move it away: {str(place(queue))!r}: nobody sees this process"
    ]
    one.close()
    assert list(outside.iterdir()) == []
    (finding,) = queue.check()
    assert (finding.severity, finding.path) == ("note", str(place(queue)))
    place(queue).unlink()


def test_the_directory_may_go_at_any_time(queue: Queue) -> None:
    one = Registration(queue, "worker")
    for path in place(queue).iterdir():
        path.unlink()
    place(queue).rmdir()
    assert registered(queue) == []
    one.beat()
    assert [seen.id for seen in registered(queue)] == [one.id]
    one.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.dir.chmod(0o555)
    one = Registration(queue, "worker")
    one.beat()
    one.close()
    queue.dir.chmod(0o755)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_full_disk_is_one_warning_and_over_when_it_is(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(registry.files, "write_cache", full)
        one = Registration(queue, "worker")
        one.beat()
        one.beat()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    one.beat()
    assert len(registered(queue)) == 1
    one.close()


def test_what_a_process_that_began_and_was_killed_left(queue: Queue) -> None:
    place(queue).mkdir(exist_ok=True)
    lock = place(queue) / "here-5-abc.lock"
    lock.touch()
    assert registered(queue) == []
    assert lock.exists()  # it may be about to begin
    os.utime(lock, (1, 1))
    assert registered(queue) == []
    assert not lock.exists()


def test_much_is_shortened(queue: Queue) -> None:
    one = Registration(queue, "worker", queues=["q" * 1000] * 1000, threads=1000)
    one.update(
        jobs=tuple(
            CurrentJob(id="\ud800" * 255, job_class="K" * 5000, queue="\x1b", started_at=float(1000 - number))
            for number in range(1000)
        ),
        recycling="r" * 5000,
    )
    one.beat()
    (seen,) = registered(queue)
    assert [job.started_at for job in seen.jobs] == [float(number) for number in range(1, 101)]
    assert (seen.jobs[0].id, len(seen.jobs[0].job_class), seen.jobs[0].queue) == ("\ud800" * 255, 300, "\x1b")
    assert len(seen.queues) == 200
    one.close()


def test_the_rest_of_the_project_minds_its_own_files(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "jobs", fsync=False)
    other = Queue(tmp_path / "jobs", "default.processes", fsync=False)
    other.enqueue(1)
    one = Registration(queue, "worker")
    assert queue.check() == other.check() == []
    assert list_queues(queue.dir) == ["default", "default.processes"]
    copy = queue.backup(tmp_path / "copy")
    assert not (copy / "default.processes").exists()
    with pytest.raises(LockTimeoutError, match="open"):
        drop_queue(queue.dir)
    assert len(registered(queue)) == 1
    queue.close()
    (place(queue) / "left").mkdir()
    drop_queue(queue.dir)
    assert [path.name for path in place(queue).iterdir()] == ["left"]  # none of ours
    (place(queue) / "left").rmdir()
    other.close()
    drop_queue(queue.dir, "default.processes")
    assert {path.name for path in queue.dir.iterdir()} == {"default.processes"}
    one.close()
    with pytest.raises(StorageError):
        drop_queue(queue.dir)
