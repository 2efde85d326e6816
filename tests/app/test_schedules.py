"""When recurring tasks run: what can be written, what is refused, and what time zones make of it."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from nobroker.app.errors import MissingExtraError, ScheduleError
from nobroker.app.schedules import Schedule, schedule_of


def at(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def local(schedule: Schedule, after: str, count: int) -> list[str]:
    """The next moments as they are on the clocks there, with the offset in hours and minutes."""
    found = islice(schedule.upcoming(at(after)), count)
    return [f"{datetime.fromtimestamp(one, schedule.tz):%d %H:%M %z}" for one in found]


COMMON = [
    "* * * * *", "*/5 * * * *", "7,37 * * * *", "0 * * * *", "0 */4 * * *", "15 3 * * *", "0 9-17 * * 1-5",
    "30 4 1 * *", "0 0 1,15 * *", "0 22 * * SUN", "0 6 * JAN-MAR MON", "0 12 1 1 *", "0 0 1 */3 *",
    "0 0 13 * 5", "5-55/10 8 * * *", "0 0 * * 7", "0 0 31 * *", "0 0 L * *", "0 10 * * 1#2",
]  # fmt: skip


@pytest.mark.parametrize("expression", COMMON)
def test_a_year_agrees_with_another_library(expression: str) -> None:
    schedule, year = schedule_of(expression), range(at("2027-12-25"), at("2028-12-31"), 262_144 + 77)
    for start in [year[0], *year]:  # all of the rare ones from there; of the frequent, some every third day
        other = croniter(expression, start)
        for moment in islice(schedule.upcoming(start), 370 if start == year[0] else 3):
            assert moment == other.get_next(float)
            if moment > year[-1]:
                break


def test_the_seconds_come_first() -> None:
    schedule = schedule_of("*/20 30 9 * * *")
    assert [f"{datetime.fromtimestamp(one, UTC):%H:%M:%S}" for one in islice(schedule.upcoming(0), 4)] == [
        "09:30:00",
        "09:30:20",
        "09:30:40",
        "09:30:00",
    ]


@pytest.mark.parametrize(
    "text, same",
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("every day at 03:00", "0 3 * * *"),
        ("every day", "0 0 * * *"),
        ("Every Monday at 9:30", "30 9 * * 1"),
        ("every weekday at 18:15", "15 18 * * 1-5"),
        ("every sunday at 23:59:59", "59 59 23 * * 0"),
        ("every 15 minutes", "*/15 * * * *"),
        ("every hour", "0 * * * *"),
        ("every 6 hours", "0 */6 * * *"),
        ("every 30 seconds", "*/30 * * * * *"),
        ("every 1 day", "0 0 * * *"),
    ],
)
def test_words_for_common_schedules(text: str, same: str) -> None:
    start = at("2026-11-30T12:34:56")
    assert [*islice(schedule_of(text).upcoming(start), 5)] == [*islice(schedule_of(same).upcoming(start), 5)]


def test_intervals_that_cron_cannot_say() -> None:
    minutes = [*islice(schedule_of("every 90 minutes").upcoming(at("2026-11-30")), 40)]
    assert {b - a for a, b in pairwise(minutes)} == {5400}
    assert schedule_of("every 2 weeks").next(0) == 14 * 86400


REFUSED = [
    ("0 0 30 2 *", "never fires"),
    ("0 0 31 4 *", "never fires"),
    ("0 0 31 2,4,6 *", "never fires"),
    ("0 0 31 2 */2", "never fires"),
    ("60 * * * *", "minute can't be '60'"),
    ("*/0 * * * *", "minute can't be"),
    ("5-1 * * * *", "minute can't be"),
    ("0 0 9 MON-FRI *", "month can't be"),
    ("0 25 * * *", "hour can't be '25'"),
    ("*/90 * * * *", "every 90 minutes"),
    ("", "empty"),
    ("   ", "empty"),
    ("* * * *", "4 fields"),
    ("* * * * * * *", "7 fields"),
    ("hourly", "1 fields"),
    ("@reboot", "on_start"),
    ("@dayly", "did you mean @daily?"),
    ("every 0 minutes", "between a second"),
    ("every 99999999 weeks", "ten years"),
    ("every day at 25:00", "no such time of day"),
    ("every fortnight", "write 'every 15 minutes'"),
    ("every 1.5 hours", "write 'every 15 minutes'"),
    ("0 9 * * * Europe/Berln", "did you mean Europe/Berlin?"),
    ("0 9 * * * america/new_yorc", "did you mean America/New_York?"),
    ("0 9 * * * ../../etc/passwd", "day-of-week can't be"),
    ("every 15 minutes Mars/Base", "no time zone"),
    ("x" * 1_000_000, "1,000,000 characters"),
    ("* " * 500_000, "1,000,000 characters"),
    (None, "is a text"),
    (15, "is a text"),
]


@pytest.mark.parametrize("text, why", REFUSED, ids=lambda value: str(value)[:30])
def test_refused(text: object, why: str) -> None:
    began = time.process_time()
    with pytest.raises(ScheduleError) as caught:
        schedule_of(text)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.process_time() - began < 2


@settings(max_examples=50)
@given(
    st.text(max_size=60)
    | st.lists(st.text("0123456789*/,-#LWMONJANabc?", max_size=6), min_size=3, max_size=7).map(" ".join)
)
def test_anything_is_a_schedule_or_refused(text: str) -> None:
    try:
        schedule = schedule_of(text)
    except ScheduleError:
        return
    assert 0 < schedule.next(0) < schedule.next(schedule.next(0))


def test_zones() -> None:
    behind = schedule_of("0 9 * * 1-5 America/New_York")
    assert (behind.text, behind.zone, str(behind)) == (
        "0 9 * * 1-5",
        "America/New_York",
        "0 9 * * 1-5 America/New_York",
    )
    beside = schedule_of("0 9 * * 1-5", "America/New_York")
    assert [*islice(behind.upcoming(0), 9)] == [*islice(beside.upcoming(0), 9)]
    assert schedule_of("@daily Asia/Tokyo").next(at("2026-06-01")) == at("2026-06-01T15:00")
    assert schedule_of("every day at 03:00 Europe/Berlin").zone == "Europe/Berlin"
    assert schedule_of("0 9 * * MON-FRI").zone == schedule_of("0 9 * * 1 UTC").zone == "UTC"
    assert schedule_of("0 9 * * * Europe/Berlin", "Europe/Berlin").zone == "Europe/Berlin"
    with pytest.raises(ScheduleError, match="two time zones") as caught:
        schedule_of("0 9 * * * Europe/Berlin", "Europe/Paris")
    assert caught.value.key == "timezone"
    for wrong in ("Europe", "Europe/Berln", "/etc/localtime", "../UTC", "", 5, "x" * 100_000):
        with pytest.raises(ScheduleError):
            schedule_of("@daily", wrong) if wrong else schedule_of(wrong)


# -- clocks put forward and back: the rules as they are in docs/jobs/recurring.md


def test_a_missing_hour_runs_right_after_it() -> None:
    shifted = ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]
    assert local(schedule_of("30 2 * * *", "Europe/Berlin"), "2026-03-28", 3) == shifted
    quarters = schedule_of("*/15 2 * * *", "Europe/Berlin")
    assert local(quarters, "2026-03-28T01:40", 3) == ["28 02:45 +0100", "29 03:00 +0200", "30 02:00 +0200"]
    with_seconds = schedule_of("0 30 2 * * *", "Europe/Berlin")
    assert local(with_seconds, "2026-03-28", 3) == shifted
    both = schedule_of("0 2,3 * * *", "Europe/Berlin")
    assert local(both, "2026-03-28T12:00", 2) == ["29 03:00 +0200", "30 02:00 +0200"]
    midnight = schedule_of("0 0 * * *", "America/Santiago")
    assert local(midnight, "2026-09-05", 3) == ["05 00:00 -0400", "06 01:00 -0300", "07 00:00 -0300"]


def test_a_named_hour_runs_once_when_it_is_repeated() -> None:
    once = schedule_of("30 2 * * *", "Europe/Berlin")
    assert local(once, "2026-10-24", 3) == ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]
    assert local(once, "2026-10-25T00:45", 1) == ["26 02:30 +0100"]  # begun between the two
    quarters = schedule_of("*/15 2 * * *", "Europe/Berlin")
    assert local(quarters, "2026-10-25T00:20", 3) == ["25 02:30 +0200", "25 02:45 +0200", "26 02:00 +0100"]


def test_every_hour_runs_on_each_pass() -> None:
    hourly = schedule_of("30 * * * *", "Europe/Berlin")
    assert local(hourly, "2026-10-24T23:00", 4) == [
        "25 01:30 +0200",
        "25 02:30 +0200",
        "25 02:30 +0100",
        "25 03:30 +0100",
    ]
    assert local(hourly, "2026-03-29T00:00", 2) == ["29 01:30 +0100", "29 03:30 +0200"]
    half = schedule_of("*/20 * * * *", "Australia/Lord_Howe")
    assert local(half, "2026-04-04T14:40", 3) == ["05 01:40 +1030", "05 02:00 +1030", "05 02:20 +1030"]
    assert local(half, "2026-10-03T15:00", 3) == ["04 01:40 +1030", "04 02:40 +1100", "04 03:00 +1100"]


def test_a_gap_that_ends_a_day_puts_its_run_at_the_begin_of_the_next() -> None:
    late = schedule_of("30 23 * * *", "America/Nuuk")
    assert local(late, "2026-03-28T00:00", 4) == [
        "27 23:30 -0200",
        "29 00:00 -0100",
        "29 23:30 -0100",
        "30 23:30 -0100",
    ]


def test_a_day_that_a_zone_leaves_out_has_no_runs() -> None:
    apia = schedule_of("0 9 * * *", "Pacific/Apia")
    assert local(apia, "2011-12-29T00:00", 3) == ["29 09:00 -1000", "31 09:00 +1400", "01 09:00 +1400"]


@pytest.mark.parametrize("expression", ["*/10 * * * *", "17 * * * *", "0 9 * * *", "0 */6 * * 1-5"])
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/Phoenix", "Europe/Berlin", "America/New_York"])
def test_away_from_changes_zones_agree_with_another_library(expression: str, zone: str) -> None:
    start = datetime(2026, 4, 10, 1, 30, tzinfo=ZoneInfo(zone))
    other = croniter(expression, start)
    for moment in islice(schedule_of(expression, zone).upcoming(int(start.timestamp())), 300):
        assert moment == int(other.get_next(datetime).timestamp())


@given(
    st.sampled_from(["0 2 * * *", "*/15 1-3 * * *", "5 * * * *", "0 0 * * *", "*/7 */2 * * *"]),
    st.sampled_from(["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca"]),
    st.integers(at("2026-01-01"), at("2028-01-01")),
)
def test_the_next_does_not_depend_on_where_one_starts(expression: str, zone: str, start: int) -> None:
    schedule = schedule_of(expression, zone)
    first = schedule.next(start)
    assert schedule.next((start + first) // 2) == first
    assert schedule.next(first - 1) == first


def test_the_newest_of_a_stretch() -> None:
    hourly, yearly = schedule_of("@hourly"), schedule_of("@yearly")
    end = at("2026-06-15T12:30")
    assert hourly.newest(0, end) == at("2026-06-15T12:00")
    assert hourly.newest(at("2026-06-15T12:00"), end) is None
    assert yearly.newest(at("2020-05-01"), end) == at("2026-01-01")
    assert yearly.newest(at("2026-01-01"), end) is None
    assert hourly.newest(0, at("2026-06-15T12:00")) == at("2026-06-15T12:00")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'nobroker\[schedules\]'"):
        schedule_of("0 3 * * *")
    assert schedule_of("every 15 minutes").next(0) == 900  # needs nothing
    monkeypatch.setattr("nobroker.app.schedules._zones", set)
    with pytest.raises(MissingExtraError, match="tzdata"):
        schedule_of("every 15 minutes", "Europe/Nowhere")


def test_a_far_start_costs_little() -> None:
    began = time.process_time()
    rare = schedule_of("0 * 29 2 *", "Europe/Berlin")
    assert local(rare, "2097-01-01", 1) == ["29 00:00 +0100"]
    assert time.process_time() - began < 1
    assert timedelta(seconds=rare.next(at("2097-01-01")) - at("2097-01-01")).days > 7 * 365
