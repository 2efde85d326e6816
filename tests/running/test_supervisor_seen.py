"""What the system and systemd see of a supervisor and its processes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.running.trial import Running, Trial, wait_for

from .conftest import Listener

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

RECURRING = "app.recurring('0 0 1 1 *', quick)\n"
GATE = """
@app.on_worker_start
def gate():
    note("gate")
    while not Path(f"go-{os.getpid()}").exists() and not Path("go").exists():
        time.sleep(0.01)
"""
HANGING = """
if not Path("hang").exists() and not Path("let_go").exists():
    Path("hang").touch()  # the supervisor; what it starts then hangs
else:
    note("imported")
    while not Path("let_go").exists():
        time.sleep(0.01)
"""
WATCHED = {"WATCHDOG_USEC": "300000"}


def titles(running: Running) -> list[str]:
    """Of a supervisor and of its children."""
    found = []
    for pid in [running.pid, *running.children()]:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0"))
        except (FileNotFoundError, ProcessLookupError):
            found.append("gone")
    return sorted(found)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_process_has_a_title_and_so_has_who_replaces_it(trial: Trial, method: str) -> None:
    pytest.importorskip("setproctitle", reason="the extra 'titles'")
    trial.add(RECURRING)
    running = trial.run("--start-method", method, "--processes", "2")
    expected = [
        "nobroker: * (running, 0 of 1 jobs)",
        "nobroker: * (running, 0 of 1 jobs)",
        "nobroker: scheduler",
        "nobroker: supervisor (running, 3 processes)",
    ]
    wait_for(lambda: titles(running) == expected, lambda: f"{titles(running)}\n{running.log()}")
    for role in ("scheduler", "worker"):
        victim = int(
            running.log().partition(f"event=process.started role={role} ")[2].split("pid=")[1].split()[0]
        )
        os.kill(victim, signal.SIGKILL)
        wait_for(
            lambda pid=victim: pid not in running.children() and titles(running) == expected,
            lambda: f"{titles(running)}\n{running.log()}",
        )
    assert running.end() == 0


def test_a_process_that_is_there_for_a_moment_has_a_title(trial: Trial) -> None:
    pytest.importorskip("setproctitle", reason="the extra 'titles'")
    trial.add("@app.on_shutdown\ndef noted():\n    note('shut')\n")
    trial.program(
        "workers=(WorkerConfig(processes=1, memory_recycle_at=10**13),)",
        before="""
from nobroker.running.member import Member
role = Member._measure
def measured(*given):
    note("measure", Path("/proc/self/cmdline").read_text())
    return role(*given)
Member._measure = measured
""",
    )
    assert " ".join(trial.until("measure", 1)[0][1:]).rstrip("\0") == "nobroker: measure"


def test_systemd_hears_the_supervisor_from_ready_to_stopping_and_nobody_else(
    listener: Listener, trial: Trial
) -> None:
    trial.add(GATE)
    running = trial.run("--processes", "2", **WATCHED)
    first, _ = trial.until("gate", 2)
    (trial.home / f"go-{first[0]}").touch()
    running.says("started concurrency")
    listener.wait_for("WATCHDOG=1")
    listener.wait_for("WATCHDOG=1")
    assert "READY=1" not in listener.heard, "one worker is ready, and one is not"
    (trial.home / "go").touch()
    listener.wait_for("READY=1")
    running.workers(2)
    listener.wait_for("WATCHDOG=1")
    listener.wait_for("WATCHDOG=1")
    assert running.end() == 0
    heard = listener.all()
    assert "STATUS=running, 2 processes" in heard
    assert heard.index("STATUS=starting, 2 processes") < heard.index("READY=1") < heard.index("STOPPING=1")
    assert heard.count("READY=1") == 1
    assert heard.count("STOPPING=1") == 1
    assert listener.senders == {running.pid}


def test_systemd_hears_when_a_restart_begins_and_when_it_is_done(listener: Listener, trial: Trial) -> None:
    running = trial.run("--processes", "2")
    listener.wait_for("READY=1")
    old = running.workers(2)
    running.tell(signal.SIGHUP)
    listener.wait_for("RELOADING=1\nMONOTONIC_USEC=")
    listener.wait_for("READY=1")
    there = running.children()
    assert len(there) == 2
    assert not set(there) & set(old)
    running.tell(signal.SIGHUP)
    listener.wait_for("RELOADING=1\n")
    assert running.end() == 0
    heard = listener.all()
    assert heard.count("READY=1") == 3, "a stop ends what had begun, too"
    assert heard[-1] != "READY=1"
    assert listener.senders == {running.pid}


def test_systemd_hears_that_it_lives_while_sizes_are_measured(listener: Listener, trial: Trial) -> None:
    trial.add(HANGING)
    running = trial.run("--start-method", "spawn", "--memory-recycle-at", "9000G", **WATCHED)
    running.says("role=measure")
    trial.until("imported", 1)
    listener.all()
    for _ in range(3):
        listener.wait_for("WATCHDOG=1")
    assert "READY=1" not in listener.heard
    (trial.home / "let_go").touch()
    listener.wait_for("READY=1")
    assert running.end() == 0


def test_what_measures_has_no_more_than_its_time(trial: Trial) -> None:
    trial.add(HANGING)
    running = trial.program(
        "workers=(WorkerConfig(memory_recycle_at=10**13),), start_method='spawn'",
        before="from nobroker.running import supervisor\nsupervisor.MEASURE_S = 0.3",
    )
    running.says("event=process.killed")
    running.says("event=supervisor.not_measured")
    (trial.home / "let_go").touch()
    running.workers(1)
    assert running.end() == 0
