"""systemd is told, where it listens; titles are set, where the extra is."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from nobroker.running import notify, titles

from .conftest import Listener, Programs, until

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")


def test_what_is_said(listener: Listener) -> None:
    notify.ready()
    notify.status("two\nlines " + "x" * 1000)
    notify.watchdog()
    notify.reloading()
    notify.stopping()
    ready, status, watchdog, reloading, stopping = listener.all()
    assert (ready, watchdog, stopping) == ("READY=1", "WATCHDOG=1", "STOPPING=1")
    assert status.startswith("STATUS=two lines xxx")
    assert "\n" not in status
    first, second = reloading.split("\n")
    assert first == "RELOADING=1"
    assert second.startswith("MONOTONIC_USEC=")
    assert int(second.partition("=")[2]) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="names without a file are Linux's")
def test_a_name_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(f"@nobroker-{os.getpid()}-{os.urandom(4).hex()}")
    monkeypatch.setenv("NOTIFY_SOCKET", listener.address)
    notify.ready()
    assert listener.all() == ["READY=1"]
    listener.close()


@pytest.mark.parametrize("address", [None, "", "nonsense", "@", "/nowhere/at/all", "vsock:2:1234"])
def test_where_nobody_listens_nothing_happens(
    address: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify.ready()
    notify.stopping()
    assert caplog.records == []


def test_a_process_that_forgets_says_nothing_more(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    assert notify.watchdog_interval() == 3.0
    notify.forget()
    notify.ready()
    assert listener.all() == []
    assert notify.watchdog_interval() is None
    notify.forget()


@pytest.mark.parametrize(
    ("usec", "pid", "expected"),
    [
        ("500000", None, 0.5), ("500000", "mine", 0.5), ("500000", "1", None), ("0", None, None),
        ("-5", None, None), ("soon", None, None), ("5", "me", None), (None, None, None),
    ],
)  # fmt: skip
def test_the_watchdog_s_interval(
    usec: str | None, pid: str | None, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, str(os.getpid()) if value == "mine" else value)
    assert notify.watchdog_interval() == expected


JOBS = (
    "import sys, time",
    "from nobroker import App",
    "app = App('jobs', fsync=False)",
    "@app.job",
    "def wait():",
    "    print('it runs', flush=True)",
    "    sys.stdin.readline()",
)


@posix
@pytest.mark.processes
def test_a_service_from_ready_to_stopping(listener: Listener, programs: Programs) -> None:
    service = programs(
        *JOBS,
        "wait.perform_later()",
        "app.run(heartbeat_interval=0.05)",
        NOTIFY_SOCKET=listener.address,
        WATCHDOG_USEC="300000",
    )
    listener.wait_for("READY=1")
    listener.wait_for("STATUS=running, 1 of 1 jobs; 0 ended, 0 failed")
    listener.wait_for("WATCHDOG=1")
    service.send_signal(signal.SIGTERM)
    listener.wait_for("STOPPING=1")
    listener.wait_for("WATCHDOG=1")  # a job that is still at it does not count as hanging
    assert service.stdin is not None
    service.stdin.write("\n")
    service.stdin.flush()
    assert service.wait(30) == 0
    assert sum(said == "STOPPING=1" for said in listener.all()) == 1


@posix
@pytest.mark.processes
def test_a_service_under_a_supervisor_leaves_talking_to_it(listener: Listener, programs: Programs) -> None:
    service = programs(
        *JOBS,
        "from nobroker.app.serving import Service",
        "Service(app, once=True, supervisor='boss').run()",
        NOTIFY_SOCKET=listener.address,
        WATCHDOG_USEC="300000",
    )
    assert service.wait(30) == 0
    assert listener.all() == []


def test_a_service_without_the_extra_keeps_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "setproctitle", None)
    titles._library.cache_clear()
    titles.set_title("something else")
    assert titles.title() is None
    titles._library.cache_clear()


@posix
@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="titles are read where Linux has them")
def test_the_title_says_what_is_done(programs: Programs) -> None:
    pytest.importorskip("setproctitle", reason="the extra 'titles'")
    service = programs(*JOBS, "wait.perform_later()", "app.run(threads=3, heartbeat_interval=0.05)")

    def title() -> Any:
        return Path(f"/proc/{service.pid}/cmdline").read_text().rstrip("\0")

    until(lambda: title() == "nobroker: * (running, 1 of 3 jobs)")
    service.kill()
