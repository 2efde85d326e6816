"""C20: an hourly task runs on both passes of a repeated hour, also beside others and restarted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nobroker import App
from nobroker.app.scheduler import Scheduler
from nobroker.clock import ManualClock

START = datetime(2026, 11, 1, 7, 30, tzinfo=UTC).timestamp()
END = datetime(2026, 11, 1, 11, 30, tzinfo=UTC).timestamp()
RESTARTS = [datetime(2026, 11, 1, 8, 59, 30, tzinfo=UTC), datetime(2026, 11, 1, 9, 0, 30, tzinfo=UTC)]


def begin(directory: Path, clock: ManualClock, schedule: str) -> tuple[App, Scheduler]:
    app = App(directory, fsync=False, clock=clock)

    @app.recurring(schedule, name="task", timezone="US/Pacific")
    @app.job
    def job() -> None: ...

    return app, Scheduler(app)


@pytest.mark.parametrize("schedule, minutes", [("0 * * * *", 60), ("*/20 * * * *", 20)])
@pytest.mark.parametrize("how", ["alone", "restarted", "two"])
def test_no_gap_and_no_double(tmp_path: Path, schedule: str, minutes: int, how: str) -> None:
    clock = ManualClock(START)
    running = [begin(tmp_path, clock, schedule) for _ in range(2 if how == "two" else 1)]
    restarts = [moment.timestamp() for moment in RESTARTS] if how == "restarted" else []
    moments = sorted([*[START + 60 * step for step in range(241)], *restarts])
    for moment in moments:
        clock.advance(moment - clock.wall_us() / 1e6)
        if moment in restarts:
            running[0][0].close()
            running[0] = begin(tmp_path, clock, schedule)
        for _, scheduler in running:
            scheduler.look()
    queue = running[0][0].queue
    jobs = sorted(queue.list_jobs("ready", lane="default"), key=lambda job: job.seq)
    ticks = [job.metadata["tick"].timestamp() for job in jobs]
    first = START + 1800 if minutes == 60 else START + 600
    assert ticks == [first + 60 * minutes * number for number in range(len(ticks))]
    assert END - ticks[-1] < 60 * minutes
    assert [job.enqueued_at for job in jobs] == ticks
    assert queue.check() == []
    for app, _ in running:
        app.close()
