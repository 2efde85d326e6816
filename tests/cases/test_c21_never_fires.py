"""C21: what can never fire, or is no schedule, is refused where it is said; good entries beside it run."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nobroker import App, RecurringError
from nobroker.app.scheduler import Scheduler
from nobroker.app.schedules import schedule_of
from nobroker.clock import ManualClock

BAD = [
    "0 0 30 2 *",
    "0 0 31 2 *",
    "0 0 31 4 *",
    "0 0 31 2,4,6 *",
    "60 * * * *",
    "*/0 * * * *",
    "5-1 * * * *",
    "",
    "x" * 2**20,
]


@pytest.mark.parametrize("schedule", BAD, ids=lambda value: value[:20])
def test_refused_at_registration_and_in_a_file(tmp_path: Path, schedule: str) -> None:
    clock = ManualClock()
    app = App(tmp_path / "jobs", fsync=False, clock=clock)

    @app.job(name="job")
    def job() -> None: ...

    began = time.process_time()
    with pytest.raises(RecurringError) as caught:
        app.recurring(schedule, job, name="the-bad-one")
    assert (caught.value.task, caught.value.key) == ("the-bad-one", "schedule")
    file = tmp_path / "recurring.yml"
    entries = ["good:", "  function: job", "  schedule: every 10 minutes"]
    entries += ["bad:", "  function: job", f'  schedule: "{schedule}"']
    entries += ["good2:", "  function: job", "  schedule: every 20 minutes"]
    file.write_text("\n".join(entries))
    app.recurring_file(file)
    (error,) = app.recurring_errors()
    assert (error.file, error.line, error.task, error.key) == (str(file), 6, "bad", "schedule")
    scheduler = Scheduler(app)
    scheduler.look()
    clock.advance(1200)
    scheduler.look()
    assert time.process_time() - began < 2
    assert {job.metadata["recurring"] for job in app.queue.list_jobs("ready", lane="default")} == {
        "good",
        "good2",
    }
    assert app.queue.check() == []
    app.close()


@pytest.mark.parametrize(
    "schedule, start, expected",
    [
        ("0 0 29 2 *", datetime(2026, 1, 1), datetime(2028, 2, 29)),
        ("0 0 29 2 *", datetime(2097, 1, 1), datetime(2104, 2, 29)),  # 2100 is no leap year
        ("0 0 29 2 1", datetime(2026, 1, 1), datetime(2026, 2, 2)),  # the 29th, or a Monday
    ],
)
def test_what_is_rare_is_found(schedule: str, start: datetime, expected: datetime) -> None:
    found = schedule_of(schedule).next(int(start.replace(tzinfo=UTC).timestamp()))
    assert found == int(expected.replace(tzinfo=UTC).timestamp())
