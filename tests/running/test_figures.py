"""What the system says of processes."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

from nobroker.running import figures
from tests.running.trial import wait_for

linux = pytest.mark.skipif(sys.platform != "linux", reason="what other systems tell is little")
MIB = 2**20


@linux
def test_memory_that_is_touched_is_resident_and_stays_in_the_peak() -> None:
    before = figures.resident_bytes()
    block = mmap.mmap(-1, 64 * MIB)
    for at in range(0, 64 * MIB, 4096):
        block[at] = 1
    during, peak = figures.resident_bytes(), figures.peak_bytes()
    block.close()
    after = figures.resident_bytes()
    assert before
    assert during
    assert after
    assert peak
    assert during - before > 60 * MIB
    assert during - after > 60 * MIB
    assert peak > after + 60 * MIB


@linux
def test_memory_of_another_process_and_of_one_that_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        wait_for(lambda: (figures.resident_bytes(process.pid) or 0) > MIB // 10)  # it has to start first
        process.communicate(b"\n")
    assert figures.resident_bytes(process.pid) is None
    assert figures.resident_bytes(2**40) is None


@linux
def test_memory_asked_often_is_that_of_the_process_that_asks() -> None:
    own = figures.OwnMemory()
    first = own()
    assert first
    block = mmap.mmap(-1, 64 * MIB)
    for at in range(0, 64 * MIB, 4096):
        block[at] = 1
    assert (own() or 0) - first > 60 * MIB
    child = os.fork()
    if child == 0:
        block.close()  # only here
        os._exit(0 if abs((own() or 0) - (figures.resident_bytes() or 0)) < MIB else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    block.close()
    own.close()
    assert own()
    own.close()


@linux
def test_page_faults_of_a_thread() -> None:
    before = figures.thread_faults()
    block = mmap.mmap(-1, 4 * MIB)
    for at in range(0, 4 * MIB, 4096):
        block[at] = 1
    after = figures.thread_faults()
    block.close()
    assert before is not None
    assert after is not None
    assert after[0] > before[0]
    assert after[1] >= before[1] >= 0


def test_where_the_system_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(figures, "resource", None)
    assert figures.OwnMemory()() is None
    assert figures.resident_bytes() is None
    assert figures.resident_bytes(os.getpid()) is None
    assert figures.peak_bytes() is None
    assert figures.thread_faults() is None


@pytest.mark.skipif(os.name != "posix", reason="needs getrusage")
def test_a_peak_where_there_is_no_file_about_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_of_system", lambda *_: "")
    assert (figures.peak_bytes() or 0) > MIB
