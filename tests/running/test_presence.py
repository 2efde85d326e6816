"""A service is seen by others: what it does, what runs in it, what it has done."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nobroker import App, Queue, current_job
from nobroker.app.serving import Service
from nobroker.running.registry import registered

from .conftest import Programs, until

JOBS = (
    "import sys",
    "from nobroker import App",
    "app = App('jobs', fsync=False)",
    "@app.job(queue='mails')",
    "def wait(number): sys.stdin.readline()",
)


@pytest.mark.processes
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_worker_from_start_to_end(programs: Programs, queue: Queue) -> None:
    worker = programs(
        *JOBS,
        "wait.set(job_id='one').perform_later(1)",
        "app.run(queues=['mails', 'other'], threads=2, heartbeat_interval=0.05)",
    )

    def seen() -> Any:
        return next(iter(registered(queue)), None)

    running = until(lambda: (one := seen()) and one.jobs and one)
    assert (running.kind, running.pid, running.state) == ("worker", worker.pid, "running")
    assert (running.queues, running.threads, running.supervisor) == (("mails", "other"), 2, None)
    (job,) = running.jobs
    assert (job.id, job.job_class, job.queue) == ("one", "wait", "mails")
    assert running.started_at - 1 <= job.started_at <= time.time()
    later = until(lambda: (one := seen()) and one.seen_at > running.seen_at and one)
    assert later.jobs[0].started_at == pytest.approx(job.started_at, abs=0.5)
    worker.send_signal(signal.SIGTERM)
    until(lambda: seen().state == "stopping")
    assert seen().jobs
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    assert worker.wait(30) == 0
    assert registered(queue) == []


def test_what_has_ended_is_counted_over_all_rounds(tmp_path: Path) -> None:
    app = App(tmp_path / "jobs", fsync=False, max_attempts=1)

    @app.job
    def good() -> None: ...

    @app.job
    def bad() -> None:
        raise ValueError

    with app.batch(on_finish=good.build()):  # its callback is worked off in a second round
        good.perform_later()
        bad.perform_later()
    service = Service(app, once=True, handle_signals=False)
    service.run()
    assert service.counts() == (3, 1)
    good.perform_later()
    service.run()
    assert service.counts() == (1, 0)
    app.close()


def test_a_job_sees_the_worker_that_runs_it(tmp_path: Path) -> None:
    app = App(tmp_path / "jobs", fsync=False)
    found = []

    @app.job
    def look() -> None:
        service.worker.running()
        found.append(
            [(job.id == current_job().id, seconds >= 0) for job, seconds in service.worker.running()]
        )

    look.perform_later()
    service = Service(app, once=True, handle_signals=False)
    service.run()
    assert found == [[(True, True)]]
    assert service.worker.running() == []
    app.close()


def test_a_service_works_where_nobody_can_see_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = App(tmp_path / "jobs", fsync=False)

    @app.job
    def job() -> None: ...

    job.perform_later()
    (tmp_path / "jobs" / "default.processes").write_text("in the way")
    assert app.run(once=True, handle_signals=False, heartbeat_interval=0.01).succeeded == 1
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage().split()[0] for record in warnings] == ["event=registry.not_written"]
    (tmp_path / "jobs" / "default.processes").unlink()
    app.close()


def test_what_goes_wrong_beside_the_work_is_logged_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(tmp_path / "jobs", fsync=False)
    logged = threading.Event()

    class Waiter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "presence.failed" in record.getMessage():
                logged.set()

    @app.job
    def job() -> None:
        monkeypatch.setattr(service, "counts", lambda: 1 / 0)
        assert logged.wait(30)

    job.perform_later()
    logging.getLogger("nobroker.running").addHandler(waiter := Waiter())
    service = Service(app, once=True, handle_signals=False, heartbeat_interval=0.01)
    assert service.run().succeeded == 1
    logging.getLogger("nobroker.running").removeHandler(waiter)
    assert "ZeroDivisionError" in caplog.text
    app.close()
