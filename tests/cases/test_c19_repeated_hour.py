"""C19: the next time of a schedule always moves on, and exists."""

from __future__ import annotations

import time
from collections import Counter
from datetime import date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from nobroker.app.schedules import schedule_of

CHANGES = [
    ("Europe/Helsinki", date(2017, 10, 29)),
    ("Europe/Helsinki", date(2017, 3, 26)),
    ("US/Eastern", date(2013, 3, 10)),
    ("US/Eastern", date(2013, 11, 3)),
    ("America/Santiago", date(2019, 9, 8)),  # midnight is missing
    ("America/Santiago", date(2019, 4, 7)),
    ("Australia/Lord_Howe", date(2019, 10, 6)),  # half an hour
    ("Australia/Lord_Howe", date(2019, 4, 7)),
    ("Africa/Casablanca", date(2019, 5, 5)),
    ("Africa/Casablanca", date(2019, 6, 9)),
]
DAILY = ("0 2 * * *", "30 2 * * *")
MINUTES = {
    "30 * * * *": {30},
    "0 2 * * *": {0},
    "30 2 * * *": {30},
    "0 0 * * 0": {0},
    "*/15 * * * *": {0, 15, 30, 45},
}


def just_put_forward(there: datetime) -> bool:
    """Whether this is the first moment after a gap."""
    before = datetime.fromtimestamp(there.timestamp() - 1, there.tzinfo)
    return there.utcoffset() > before.utcoffset()  # type: ignore[operator]


@pytest.mark.parametrize("expression", ["30 * * * *", *DAILY, "0 0 * * 0", "*/15 * * * *"])
@pytest.mark.parametrize("zone, day", CHANGES)
def test_moves_on_and_exists(zone: str, day: date, expression: str) -> None:
    began = time.process_time()
    tz = ZoneInfo(zone)
    start = datetime(day.year, day.month, day.day, tzinfo=tz) - timedelta(days=2)
    last = int(start.timestamp())
    days: Counter[date] = Counter()
    for moment in islice(schedule_of(expression, zone).upcoming(last), 500):
        assert moment > last
        there = datetime.fromtimestamp(moment, tz)
        assert there.minute in MINUTES[expression] or just_put_forward(there), "it names a time that there is"
        days[there.date()] += 1
        last = moment
    assert time.process_time() - began < 2
    if expression in DAILY:
        assert set(days.values()) == {1}
        assert (max(days) - min(days)).days == 499
    elif expression == "0 0 * * 0":
        assert {one.weekday() for one in days} == {6}
        assert set(days.values()) == {1}
        assert (max(days) - min(days)).days == 7 * 499
