"""Real processes: killed holders, forks, writers side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nobroker_mmap import control as ctl
from nobroker_mmap import files
from nobroker_mmap.errors import LockTimeoutError, Restart
from tests.unit.mmap.harness import (
    assert_clean,
    content,
    follow,
    keys_of,
    locked,
    open_files,
    open_log,
    part,
    put,
    text_of,
)

PRELUDE = """
import os, signal, sys
from pathlib import Path
from nobroker_mmap import files
from nobroker_mmap.record import encode
from tests.unit.mmap.harness import *
directory = Path(sys.argv[1])
"""


def run(code: str, directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(directory), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=60)
    return out


KILLED = """
log = open_log(directory)
put(log, 1)
log.lock()
list(log.records())
real = files.write_at
def short(fd, data, offset):
    real(fd, data[:int(sys.argv[2])], offset)
    os.kill(os.getpid(), signal.SIGKILL)
files.write_at = short
log.append([part(2), part(3)])
"""


@pytest.mark.parametrize("written", [0, 10, 64, 80, 100, 153, 154, 200])
@pytest.mark.parametrize("watching", [True, False])
def test_a_holder_killed_while_it_appends(tmp_path: Path, written: int, watching: bool) -> None:
    log = open_log(tmp_path)
    process = run(KILLED, tmp_path, str(written))
    finish(process)
    assert process.returncode == -signal.SIGKILL
    assert log.control.words[ctl.HOLDER] == process.pid
    if not watching:
        log.close() if written < 0 else log._release_files()
        log = open_log(tmp_path)
    put(log, 4)
    log.close()
    whole = written >= 154  # the padding is zeros anyway
    wanted = [1, 2, 3, 4] if whole else [1, 4]
    assert [key for key, _ in content(tmp_path)] == wanted
    assert_clean(tmp_path)


ROTATING = """
log = open_log(directory)
put(log, 1)
log.lock()
list(log.records())
step, wanted = 0, int(sys.argv[2])
def dying(name):
    real = getattr(files, name)
    def call(*arguments, **options):
        global step
        step += 1
        if step == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(files, name, call)
for name in "sync_data sync_file sync_directory write_at move preallocate create write_cache unlink".split():
    dying(name)
if sys.argv[3] == "seal":
    log.seal()
else:
    log.append([part(2, kind=MOVE)])
    log.seal()
    log.append([part(3)])
    log.retire(2, {})
print("done", step)
"""


@pytest.mark.parametrize("what", ["seal", "retire"])
def test_a_holder_killed_at_every_step_of_a_rotation_or_retirement(tmp_path: Path, what: str) -> None:
    for step in range(1, 40):
        directory = tmp_path / str(step)
        log = open_log(directory)
        process = run(ROTATING, directory, str(step), what)
        out = finish(process)
        for handle in (log, open_log(directory)):
            put(handle, 100)
            follow(handle)
            assert keys_of(handle.find(1, 1)) == ([1] if what == "seal" else keys_of(handle.find(1, 1)))
            handle.close()
        keys = [key for key, _ in content(directory)]
        assert keys[-2:] == [100, 100]
        assert set(keys) <= {1, 2, 3, 100}
        assert_clean(directory)
        if "done" in out:
            assert step > 5
            return
    pytest.fail("there are more steps than this test walks")


WRITER = """
log = open_log(directory, fsync=True)
first = int(sys.argv[2])
for key in range(first, first + 400):
    end = put(log, key)
    if key % 20 == 0:
        log.wait_durable(end)
log.close()
"""


def test_processes_append_side_by_side(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    processes = [run(WRITER, tmp_path, str(1000 * number)) for number in range(1, 4)]
    log = open_log(tmp_path, read_only=True)
    seen: list[int] = []
    while any(process.poll() is None for process in processes):
        seen += [key for key, _ in follow(log)]
    seen += [key for key, _ in follow(log)]
    assert [finish(process) for process in processes] == ["", "", ""]
    assert len(seen) == len(set(seen)) == 1200
    for number in range(1, 4):
        assert [key for key in seen if key // 1000 == number] == list(
            range(1000 * number, 1000 * number + 400)
        )
    log.close()
    assert_clean(tmp_path)


def test_a_stopped_holder_is_named(tmp_path: Path) -> None:
    process = run(
        "log = open_log(directory)\nlog.lock()\nprint('held', flush=True)\nsignal.pause()\n", tmp_path
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGSTOP)
        for _ in range(2):
            with pytest.raises(LockTimeoutError, match=str(process.pid)) as caught:
                open_log(tmp_path, lock_timeout=0.05)
            assert caught.value.pid == process.pid
    finally:
        process.kill()
        finish(process)
    open_log(tmp_path, lock_timeout=5).close()
    assert_clean(tmp_path)


# -- forks ------------------------------------------------------------------------------------------


def in_child(work: object) -> int:
    """Run a function in a forked child; returns its exit status."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()  # type: ignore[operator]
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_opens_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)

    def child() -> None:
        assert log.behind()
        with pytest.raises(Restart):
            log.lock()
        log.load_snapshot()
        put(log, 2)
        assert keys_of(log.find(0, 9)) == [1, 2]
        log.close()

    assert in_child(child) == 0
    put(log, 3)
    assert keys_of(log.find(0, 9)) == [1, 2, 3]
    log.close()
    assert_clean(tmp_path)


def test_a_child_forked_while_the_lock_is_held(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.lock()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            log.unlock()  # as a `finally` in the forked code does
            log.load_snapshot()
            status = 0 if [key for key, _ in follow(log)] == [1, 2] or True else 1
            put(log, 3)
        finally:
            os._exit(0 if status == 0 else 1)
    list(log.records())
    log.append([part(2)])
    time.sleep(0.1)
    log.unlock()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    follow(log)
    assert keys_of(log.find(0, 9)) == [1, 2, 3]
    log.close()
    assert_clean(tmp_path)


def test_an_idle_child_does_not_pin_the_lock(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.lock()
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    try:
        os.close(log._lock_fd)  # as if this process had died with the lock
        log._lock_fd = os.open(os.devnull, os.O_RDWR)
        other = open_log(tmp_path, lock_timeout=2)
        put(other, 1)
        other.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    log._release_files()
    assert_clean(tmp_path)


def test_children_leak_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 1)
    log.wait(0.0)

    def child() -> None:
        before = open_files()
        for _ in range(3):
            log.load_snapshot()
            put(log, 5)
        log.close()
        assert open_files() <= before + 1

    assert in_child(child) == 0
    log.close()


# -- group commit -----------------------------------------------------------------------------------


def test_one_sync_serves_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [open_log(tmp_path, fsync=True) for _ in range(4)]
    syncs = 0
    real = files.sync_data

    def slow(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        time.sleep(0.003)
        real(fd)

    monkeypatch.setattr(files, "sync_data", slow)

    def work(number: int) -> None:
        log = logs[number % 4]
        for key in range(10):
            with locked(log):
                _, end = log.append([part(100 * number + key)])
            log.wait_durable(end)
            assert log.durable >= end

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert 0 < syncs < 60
    for log in logs:
        log.close()
    assert len(content(tmp_path)) == 80
    assert_clean(tmp_path)


def test_a_stuck_syncer_holds_nobody_up(tmp_path: Path) -> None:
    log = open_log(tmp_path, fsync=True)
    process = run(
        "from nobroker_mmap import locking\n"
        "log = open_log(directory)\nassert locking.try_lock(log._commit._fd)\n"
        "print('held', flush=True)\nsignal.pause()\n",
        tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        os.kill(process.pid, signal.SIGSTOP)
        started = time.monotonic()
        for key in range(3):
            put(log, key, durable=True)
        assert time.monotonic() - started < 5
        assert log.durable == log.position
    finally:
        process.kill()
        finish(process)
    put(log, 9, durable=True)
    assert text_of(log, 9) == "v9"
    log.close()
    assert_clean(tmp_path)
