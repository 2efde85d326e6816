"""When a recurring task runs: cron expressions, nicknames and intervals, in time zones.

Cron fields are read and matched by the library cronsim, on a calendar without time zone. What a time zone
makes of the result is decided here:

- A schedule that names hours runs at each of its local times once. A local time that is left out, when clocks
  are put forward, is run at the first moment after the gap. Of one that comes twice, the first counts.
- A schedule for every hour (``*``) runs on each pass of a repeated hour. Nothing is run in place of an hour
  that is left out: the next one has begun.
- A day that a zone leaves out altogether has no runs.

Moments are whole seconds since the epoch, so that they can only be compared in one way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Final

from nobroker.app.errors import MissingExtraError, ScheduleError

if TYPE_CHECKING:
    from cronsim import CronSim

_LONGEST: Final = 200
"""Characters of a schedule. The longest that make sense have half of that."""
_DAY_S: Final = 86400
_EPOCH: Final = datetime(1970, 1, 1)

_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": _DAY_S, "week": 7 * _DAY_S}
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_DAYS: Final = {"day": "*", "weekday": "1-5", **{name: str(number) for number, name in enumerate(_WEEKDAYS)}}

_INTERVAL = re.compile(r"every (?:(\d{1,9}) )?(second|minute|hour|day|week)s?")
_AT = re.compile(rf"every ({'|'.join(_DAYS)})(?: at (\d{{1,2}}):(\d\d)(?::(\d\d))?)?")
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]*(?:/[A-Za-z0-9_+\-]+)*")
_CRON_WORD = re.compile(
    r"(?:sun|mon|tue|wed|thu|fri|sat|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|[l\d,\-/#*])+", re.I
)
_FIELDS: Final = (("second", 60), ("minute", 60), ("hour", 24), ("day", 31), ("month", 12), ("weekday", 7))
_HELP: Final = "write five or six cron fields, a nickname such as @hourly, or 'every 15 minutes'"


class Schedule:
    """When something runs.

    Attributes:
        text: as it was written, without the time zone.
        zone: name of the time zone.
    """

    def __init__(self, text: str, zone: str) -> None:
        self.text = text
        self.zone = zone
        self.tz = time_zone(zone)

    def __str__(self) -> str:
        return self.text if self.zone == "UTC" else f"{self.text} {self.zone}"

    def next(self, after: int) -> int:
        """The first moment behind `after`."""
        raise AssertionError("of an unknown kind")

    def upcoming(self, after: int) -> Iterator[int]:
        """All moments behind `after`."""
        while True:
            after = self.next(after)
            yield after

    def newest(self, after: int, until: int) -> int | None:
        """The last moment behind `after` that is not behind `until`."""
        window = 3600
        while True:
            start = max(after, until - window)
            found = None
            for moment in self.upcoming(start):
                if moment > until:
                    break
                found = moment
            if found is not None or start == after:
                return found
            window *= 4


class Interval(Schedule):
    """So many seconds apart, counted from 1970-01-01 00:00 UTC, so that all schedulers agree."""

    def __init__(self, text: str, zone: str, seconds: int) -> None:
        super().__init__(text, zone)
        self.seconds = seconds

    def next(self, after: int) -> int:
        return after - after % self.seconds + self.seconds


class Cron(Schedule):
    """The local times that a cron expression matches.

    Args:
        expression: five or six fields; of six, the first has the seconds.
    """

    def __init__(self, text: str, zone: str, expression: str) -> None:
        super().__init__(text, zone)
        self._cronsim = _library()
        self._expression = expression
        self._every_hour = self._matches(_EPOCH).hours == set(range(24))
        try:
            self._match(datetime(2000, 1, 1))
        except StopIteration:
            raise ScheduleError(f"{text!r} never fires: there is no such day") from None

    def next(self, after: int) -> int:
        return self._next_of_every_hour(after) if self._every_hour else self._next_of_named_hours(after)

    def _next_of_named_hours(self, after: int) -> int:
        local = self._local(after)
        while True:
            local = self._match(local)
            moment = _moment_of(local, self.tz)
            if moment is not None and moment > after:
                return moment

    def _next_of_every_hour(self, after: int) -> int:
        """Matches are looked for in the stretch of time up to the next change of clocks, then in the next."""
        begin = after
        while True:
            offset = _offset(begin, self.tz)
            local = _EPOCH + timedelta(seconds=after + offset)
            found = _since_epoch(self._match(local)) - offset
            change = _change_between(begin, found, self.tz)
            if change is None:
                return found
            begin, after = change, change - 1

    def _local(self, moment: int) -> datetime:
        return _EPOCH + timedelta(seconds=moment + _offset(moment, self.tz))

    def _match(self, after: datetime) -> datetime:
        return next(self._matches(after))

    def _matches(self, after: datetime) -> CronSim:
        try:
            return self._cronsim(self._expression, after)
        except self._errors() as error:
            raise ScheduleError(f"{self.text!r} is no schedule: {_reason(self._expression, error)}") from None

    def _errors(self) -> type[Exception]:
        from cronsim import CronSimError

        return CronSimError


def schedule_of(text: object, zone: object = None) -> Schedule:
    """Read a schedule.

    Args:
        text: maybe with a time zone behind it.
        zone: name of the time zone; None: that in the text, else UTC.

    Raises:
        ScheduleError: it can't be read, or never fires.
        MissingExtraError: what reads it is not installed.
    """
    if type(text) is not str:
        raise ScheduleError(f"a schedule is a text, not {text!r:.60}; {_HELP}")
    if len(text) > _LONGEST:
        raise ScheduleError(f"{text[:40]!r}... has {len(text):,} characters; {_LONGEST} are enough for any")
    if zone is not None and type(zone) is not str:
        raise ScheduleError(f"timezone is a name such as Europe/Berlin, not {zone!r:.60}", "timezone")
    words, suffix = _parted(text.split())
    if zone is not None and suffix is not None and zone != suffix:
        raise ScheduleError(f"two time zones: {suffix} behind the schedule, and {zone}", "timezone")
    chosen = zone or suffix or "UTC"
    plain = " ".join(words)
    lower = plain.lower()
    if not words:
        raise ScheduleError(f"the schedule is empty; {_HELP}")
    if lower.startswith("@"):
        return Cron(plain, chosen, _nickname(lower))
    if words[0].lower() == "every":
        return _every(plain, chosen)
    if len(words) not in (5, 6):
        raise ScheduleError(f"{plain!r} has {len(words)} fields; {_HELP}")
    _look_at_steps(plain, words)
    return Cron(plain, chosen, plain)


def time_zone(name: str) -> tzinfo:
    """The time zone of this name.

    Raises:
        ScheduleError: there is none; with the nearest one that there is.
    """
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: it is a directory of zones
        known = _zones()
    if not known:
        raise MissingExtraError(
            f"no time zones are known here, so not {name!r} either; install tzdata:"
            " pip install 'nobroker[schedules]'"
        )
    by_name = {zone.lower(): zone for zone in known}
    near = get_close_matches(name.lower(), by_name, 1, 0.5) if len(name) <= _LONGEST else []
    hint = f"did you mean {by_name[near[0]]}?" if near else "names are such as Europe/Berlin"
    raise ScheduleError(f"there is no time zone {name[:60]!r}; {hint}", "timezone")


@cache
def _zones() -> set[str]:
    """Names of all time zones; it takes a look at each of their files."""
    from zoneinfo import available_timezones

    return available_timezones()


def _library() -> type[CronSim]:
    try:
        from cronsim import CronSim
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "schedules by the calendar need cronsim: pip install 'nobroker[schedules]'"
        ) from error
    return CronSim


def _parted(words: list[str]) -> tuple[list[str], str | None]:
    """The words of a schedule, and the time zone behind them."""
    if len(words) < 2 or not _ZONE.fullmatch(words[-1]) or _CRON_WORD.fullmatch(words[-1]):
        return words, None
    if words[0].lower() == "every":
        is_zone = "/" in words[-1] or words[-1].isupper()
    else:
        is_zone = words[0].startswith("@") or len(words) in (6, 7)
    return (words[:-1], words[-1]) if is_zone else (words, None)


def _nickname(name: str) -> str:
    if name in _NICKNAMES:
        return _NICKNAMES[name]
    if name == "@reboot":
        raise ScheduleError("@reboot is no time; for work at the start of a worker there is @app.on_start")
    near = get_close_matches(name, _NICKNAMES, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_NICKNAMES)}"
    raise ScheduleError(f"there is no nickname {name[:40]!r}; {hint}")


def _every(text: str, zone: str) -> Schedule:
    lower = text.lower()
    at = _AT.fullmatch(lower)
    if at is not None:
        day, hour, minute, second = at[1], int(at[2] or 0), int(at[3] or 0), int(at[4] or 0)
        if hour > 23 or minute > 59 or second > 59:
            raise ScheduleError(f"{text!r}: there is no such time of day; it goes from 00:00 to 23:59:59")
        return Cron(text, zone, f"{second} {minute} {hour} * * {_DAYS[day]}")
    interval = _INTERVAL.fullmatch(lower)
    if interval is not None:
        seconds = int(interval[1] or 1) * _UNITS[interval[2]]
        if not 0 < seconds <= 3660 * _DAY_S:
            raise ScheduleError(f"{text!r}: an interval has between a second and ten years")
        return Interval(text, zone, seconds)
    raise ScheduleError(
        f"{text!r} is no schedule; write 'every 15 minutes', 'every day at 03:00', 'every monday at 09:30'"
    )


def _look_at_steps(text: str, words: list[str]) -> None:
    """Refuse a step that leaves nothing but the first value: it is not what was meant."""
    for word, (field, size) in zip(words, _FIELDS[6 - len(words) :], strict=True):
        for step in re.findall(r"/(\d+)", word):
            if len(step) > 4 or int(step) >= size:
                raise ScheduleError(
                    f"{text!r} is no schedule: the step {step[:9]} leads out of its {field}s at once;"
                    " for times so far apart write an interval, such as 'every 90 minutes'"
                )


def _reason(expression: str, error: Exception) -> str:
    """What is wrong, in more words than the library's: it says which field."""
    words = expression.split()
    said = str(error).removeprefix("Bad ")
    names = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")[6 - len(words) :]
    if said not in names:
        return str(error)
    field = words[names.index(said)]
    if said == "day-of-month" and field.replace(",", "").isdigit() and 1 <= int(field.split(",")[0]) <= 31:
        return f"it never fires, no month that it names has a day {field}"
    return f"its {said} can't be {field!r:.40}"


def _offset(moment: int, tz: tzinfo) -> int:
    """Seconds by which local time is ahead of UTC."""
    if tz is UTC:
        return 0
    shift = datetime.fromtimestamp(moment, tz).utcoffset() or timedelta()
    return round(shift.total_seconds())


def _since_epoch(naive: datetime) -> int:
    return (naive - _EPOCH) // timedelta(seconds=1)


def _moment_of(local: datetime, tz: tzinfo) -> int | None:
    """A local time as a moment: the first of two; one left out is the end of the gap; None: on a day that is
    left out altogether.
    """
    if tz is UTC:
        return _since_epoch(local)
    aware = local.replace(tzinfo=tz)
    before, after = aware.utcoffset(), aware.replace(fold=1).utcoffset()
    if before is None or after is None or before >= after:
        return _since_epoch(local - (before or timedelta()))
    if after - before >= timedelta(days=1):
        return None
    change = _change_between(_since_epoch(local - after), _since_epoch(local - before), tz)
    return _since_epoch(local - before) if change is None else change


def _change_between(after: int, until: int, tz: tzinfo) -> int | None:
    """The first moment behind `after`, not behind `until`, at which clocks are put forward or back."""
    if tz is UTC:
        return None
    offset = _offset(after, tz)
    while after < until:
        step = min(after + _DAY_S, until)
        if _offset(step, tz) != offset:
            while step - after > 1:
                middle = (after + step) // 2
                if _offset(middle, tz) == offset:
                    after = middle
                else:
                    step = middle
            return step
        after = step
    return None


def as_utc(moment: int) -> datetime:
    """A moment for people's code."""
    return datetime.fromtimestamp(moment, UTC)
