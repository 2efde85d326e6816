"""What jobs took: measured around each run, told in the log, summed up, and written as rows."""

from __future__ import annotations

import csv
import logging
import mmap
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nobroker import App, BaseJob, Dead, Discard, Retry, RetryLater
from nobroker.clock import ManualClock
from nobroker.running import metrics, recording
from nobroker.running.histogram import ERROR
from nobroker.running.info import Recorded
from nobroker_mmap import files

from .conftest import Programs, until

MIB = 2**20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(tmp_path: Path, clock: ManualClock) -> Iterator[App]:
    """An application whose measuring has ended at the end, and whose queue is whole."""
    made = App(tmp_path / "jobs", fsync=False, clock=clock)
    yield made
    made.stop_job_metrics()
    until(lambda: "nobroker-sampler" not in [thread.name for thread in threading.enumerate()])
    assert made.queue.check() == []
    made.close()


def work(app: App, **options: Any) -> None:
    app.run(once=True, handle_signals=False, poll_interval=0.01, **options)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What was logged of runs."""
    found = [record for record in caplog.records if getattr(record, "event", None) == "job.finished"]
    assert all(record.getMessage().startswith("event=job.finished id=") for record in found)
    return [vars(record)["facts"] for record in found]


def finished(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines themselves."""
    return [
        text for record in caplog.records if (text := record.getMessage()).startswith("event=job.finished ")
    ]


def test_what_became_of_each_run(app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nobroker.metrics")

    @app.job(name="of-all-kinds", retry=[Retry(KeyError, attempts=2, wait=1)], discard=[Discard(IndexError)])
    def job(error: str) -> str:
        if error:
            raise {"key": KeyError(), "index": IndexError(), "later": RetryLater(3600), "dead": Dead("no"),
                   "value": ValueError()}[error]  # fmt: skip
        return "fine"

    for error in ("", "key", "index", "later", "dead", "value"):
        job.set(queue="q", job_id=f"job-{error}").perform_later(error)
    work(app)
    clock.advance(60)
    work(app)
    found = [(line["id"], line["attempt"], line["outcome"]) for line in lines(caplog)]
    assert sorted(found) == [
        ("job-", 1, "done"),
        ("job-dead", 1, "dead"),
        ("job-index", 1, "discarded"),
        ("job-key", 1, "retried"),
        ("job-key", 2, "dead"),
        ("job-later", 1, "released"),
        ("job-value", 1, "retried"),
        ("job-value", 2, "retried"),
    ]
    assert all(list(line) == ["id", "class", "queue", "attempt", "outcome", "ms"] for line in lines(caplog))
    assert {(line["class"], line["queue"]) for line in lines(caplog)} == {("of-all-kinds", "q")}
    assert app.job_metrics_summary() == {}


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_what_is_measured(
    app: App, clock: ManualClock, tmp_path: Path, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nobroker.metrics")
    if is_async:

        @app.job(name="job")
        async def job(fails: bool) -> None:
            if fails:
                raise ValueError

    else:

        @app.job(name="job")
        def job(fails: bool) -> None:
            if fails:
                raise ValueError

    job.set(queue="mails").perform_later(False)
    job.set(queue="mails", wait=10).perform_later(True)
    clock.advance(15)
    app.start_job_metrics(tmp_path / "jobs.csv")
    work(app)
    recorded = app.stop_job_metrics()
    assert recorded == Recorded(path=str(tmp_path / "jobs.csv"), rows=2, dropped=0)
    first, second = rows(tmp_path / "jobs.csv")
    assert tuple(first) == recording.COLUMNS
    assert (first["class"], first["queue"], first["attempt"], first["outcome"]) == (
        "job",
        "mails",
        "1",
        "done",
    )
    assert (float(first["wait_ms"]), float(second["wait_ms"])) == (15000.0, 5000.0)
    for line, row in zip(lines(caplog), (first, second), strict=True):
        assert tuple(line) == recording.COLUMNS[2:]
        assert {name: "" if value is None else str(value) for name, value in line.items()} == {
            name: row[name] for name in line
        }
    assert all(
        f" wait_ms={wait} " in text and text.endswith(" alone=True")
        for wait, text in zip(("15000.0", "5000.0"), finished(caplog), strict=True)
    )
    assert (second["outcome"], second["alone"], int(second["pid"])) == ("retried", "True", os.getpid())
    assert float(first["finished_at"]) == clock.wall_us() / 1e6
    assert 0 < float(first["ms"]) < 60_000
    if sys.platform == "linux":
        assert int(first["rss_peak"]) >= max(int(first["rss_start"]), int(first["rss_end"])) > MIB
        assert (first["minor_faults"] == "") is is_async
    (summary,) = app.job_metrics_summary().values()
    assert (summary.count, summary.failures) == (2, 1)
    assert 0 < summary.p50 <= summary.p95 <= summary.max
    assert summary.mean <= summary.max
    assert (summary.wait_p50, summary.wait_p95) == (pytest.approx(5, rel=ERROR), pytest.approx(15, rel=ERROR))
    assert app.job_metrics_summary(reset=True) == {"job": summary}
    assert app.job_metrics_summary() == {}
    job.perform_later(False)
    work(app)
    assert app.job_metrics_summary() == {}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by Linux")
def test_memory_that_a_job_had_for_a_moment_is_its_peak(app: App, tmp_path: Path) -> None:
    @app.job
    def greedy() -> None:
        block = mmap.mmap(-1, 64 * MIB)
        for at in range(0, 64 * MIB, 4096):
            block[at] = 1
        (one,) = app._meter()._runs
        before = one.rss or 0
        until(lambda: (one.peak or 0) > before + 50 * MIB)
        block.close()

    greedy.perform_later()
    app.start_job_metrics(tmp_path / "jobs.csv")
    work(app)
    app.stop_job_metrics()
    (row,) = rows(tmp_path / "jobs.csv")
    assert int(row["rss_peak"]) - int(row["rss_start"]) > 50 * MIB
    assert int(row["rss_peak"]) - int(row["rss_end"]) > 50 * MIB
    assert int(row["minor_faults"]) >= 64 * MIB // 4096 // 512  # with the largest pages there are


def test_a_recording_ends_by_its_limits(app: App, tmp_path: Path) -> None:
    @app.job
    def job(number: int) -> None: ...

    for number in range(30):
        job.perform_later(number)
    app.start_job_metrics(tmp_path / "rows.csv", max_rows=7)
    work(app)
    until(lambda: not app._meter().on)
    assert len(rows(tmp_path / "rows.csv")) == 7
    assert app.stop_job_metrics() is None
    app.start_job_metrics(tmp_path / "seconds.csv", seconds=0.01)
    until(lambda: not app._meter().on)
    assert rows(tmp_path / "seconds.csv") == []


@pytest.mark.parametrize(("limit", "value", "found"), [("TOGGLED_ROWS", 3, 3), ("TOGGLED_S", 0.01, 0)])
def test_a_recording_that_a_signal_began_ends_by_its_limits(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, found: int
) -> None:
    @app.job
    def job() -> None: ...

    monkeypatch.setattr(metrics, limit, value)
    meter = app._meter()
    meter.toggle(str(tmp_path), "first")
    if found:
        app.perform_all_later([job.build() for _ in range(10)])
        work(app)
    until(lambda: not meter.on)
    (first,) = tmp_path.glob("first.metrics-*.csv")
    assert len(rows(first)) == found
    monkeypatch.undo()
    meter.toggle(str(tmp_path), "second")
    assert meter.on, "it had ended: this begins one"


def test_what_is_wrong_is_said(app: App, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        app.start_job_metrics(path)
    with pytest.raises(FileNotFoundError):
        app.start_job_metrics(tmp_path / "nowhere" / "jobs.csv")
    for limits in (
        {"max_rows": 5},
        {"seconds": 5.0},
        {"path": path, "max_rows": 0},
        {"path": path, "seconds": -1},
    ):
        with pytest.raises(ValueError, match="limits a recording"):
            app.start_job_metrics(**limits)
    assert path.read_text() == "mine"
    assert app.stop_job_metrics() is None
    app.start_job_metrics()
    app.start_job_metrics(tmp_path / "other.csv")
    with pytest.raises(RuntimeError, match=r"other\.csv' already"):
        app.start_job_metrics()
    assert app.stop_job_metrics() == Recorded(path=str(tmp_path / "other.csv"), rows=0, dropped=0)


def test_a_full_disk_ends_the_recording_and_no_job(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job
    def job(number: int) -> None: ...

    def full(fd: int, data: bytes, offset: int) -> None:
        if offset:
            raise OSError(28, "No space left on device")
        files.write_at(fd, data, offset)

    monkeypatch.setattr(recording, "files", SimpleNamespace(create=files.create, write_at=full))
    app.start_job_metrics(tmp_path / "jobs.csv")
    for number in range(5):
        job.perform_later(number)
    work(app)
    until(lambda: not app._meter().on)
    work(app)
    assert app.queue.stats().done == 5
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "event=metrics.not_written" in warning.getMessage()
    assert "No space left" in warning.getMessage()
    assert rows(tmp_path / "jobs.csv") == []


def test_rows_are_dropped_rather_than_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "ROOM", 10)
    stuck, go_on = threading.Event(), threading.Event()

    def slow(fd: int, data: bytes, offset: int) -> None:
        stuck.set()
        assert go_on.wait(30)
        files.write_at(fd, data, offset)

    monkeypatch.setattr(recording, "files", SimpleNamespace(create=files.create, write_at=slow))
    one = recording.Recording(str(tmp_path / "x.csv"), max_rows=None, seconds=None, ended=lambda _: None)
    assert stuck.wait(30)
    for number in range(25):
        one.add((number,))
    go_on.set()
    assert one.close(30) == Recorded(path=str(tmp_path / "x.csv"), rows=10, dropped=15)
    assert (tmp_path / "x.csv").read_text().splitlines()[1:] == [str(number) for number in range(10)]


JOBS = (
    "import os, sys",
    "from nobroker import App",
    "app = App('jobs', fsync=False)",
    "@app.job",
    "def job(): return os.getpid()",
    "@app.job(name='wait')",
    "def wait():",
    "    print('it runs', flush=True)",
    "    sys.stdin.readline()",
)


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="needs the signal")
@pytest.mark.parametrize("directory", ["jobs", "elsewhere"])
def test_a_signal_begins_and_ends_a_recording(programs: Programs, tmp_path: Path, directory: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    option = "" if directory == "jobs" else ", metrics_dir='elsewhere'"
    worker = programs(*JOBS, "from nobroker.app.serving import Service", f"Service(app{option}).run()")
    assert worker.stdout is not None
    app = App(tmp_path / "jobs", fsync=False)

    @app.job(name="job")
    def job() -> int: ...

    def perform() -> str:
        handle = job.perform_later()
        assert handle.result(timeout=30) == worker.pid
        return handle.id

    def recorded_in(path: Path) -> set[str]:
        return {row["id"] for row in rows(path)}

    def files() -> set[Path]:
        return {*(tmp_path / directory).glob(f"default.metrics-{worker.pid}-*Z.csv")}

    until(lambda: [one.pid for one in app.processes()] == [worker.pid])
    worker.send_signal(signal.SIGUSR2)
    (first,) = until(files)
    until(lambda: perform() and rows(first))
    last = perform()
    worker.send_signal(signal.SIGUSR2)
    until(lambda: last in recorded_in(first))
    until(lambda: perform() not in recorded_in(first))
    worker.send_signal(signal.SIGUSR2)
    second = until(lambda: files() - {first}).pop()
    until(lambda: perform() and rows(second))
    last = perform()
    worker.send_signal(signal.SIGTERM)  # what is not written yet is, before it ends
    assert worker.wait(30) == 0
    assert last in recorded_in(second)
    assert app.queue.check() == []
    app.close()


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_measures_nothing_of_its_parent_s(programs: Programs, tmp_path: Path) -> None:
    parent = programs(
        *JOBS,
        "app.start_job_metrics('jobs.csv')",
        "job.perform_later()",
        "app.run(once=True)",
        "if os.fork() == 0:",
        "    assert app.stop_job_metrics() is None",
        "    assert app.job_metrics_summary() == {}",
        "    app.start_job_metrics('child.csv')",
        "    job.perform_later()",
        "    app.run(once=True)",
        "    sys.exit()",  # its rows are written by then
        "assert os.waitstatus_to_exitcode(os.wait()[1]) == 0",
        "job.perform_later()",
        "app.run(once=True)",
        "assert app.stop_job_metrics().rows == 2",
    )
    out, err = parent.communicate(timeout=60)
    assert parent.returncode == 0, out + err
    assert len(rows(tmp_path / "jobs.csv")) == 2
    assert len(rows(tmp_path / "child.csv")) == 1


def test_hostile_names_forge_no_line(app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nobroker.metrics")
    name = 'x\nevent=job.finished id="5",=\x1b[2J'

    @app.register
    class Hostile(BaseJob):
        job_name = name

        def perform(self) -> None: ...

    Hostile.set(queue="two words").perform_later()
    app.start_job_metrics(tmp_path / "jobs.csv")
    work(app)
    app.stop_job_metrics()
    (record,) = [record for record in caplog.records if getattr(record, "event", "") == "job.finished"]
    assert f"class={name!r} queue='two words'" in record.getMessage()
    assert record.getMessage().isprintable()
    (row,) = rows(tmp_path / "jobs.csv")
    assert row["class"] == name
