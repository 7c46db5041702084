"""Parsing and formatting of times.

Times are integers since 1970-01-01T00:00:00Z: milliseconds in a store, microseconds in tables. A time
has an ISO 8601 form in the years 1 to 9999.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_BEYOND = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND + 1

# 0001-01-01T00:00:00Z and 10000-01-01T00:00:00Z in milliseconds: times in [FIRST_MILLI, END_MILLI) have an ISO form.
FIRST_MILLI, END_MILLI = _FIRST // 1000, _BEYOND // 1000

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_STEP = r"(\d+)(ms|[smhdw])"
_RELATIVE = re.compile(rf"(now|last)?(?:-((?:{_STEP})+))?", re.ASCII)
_MILLIS = re.compile(r"-?\d+", re.ASCII)
_ZONE_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})", re.ASCII)

# The format of RocketMQ's mqadmin: yyyy-MM-dd#HH:mm:ss:SSS.
_MQADMIN = re.compile(r"(\d{4}-\d{2}-\d{2})#(\d{2}:\d{2}:\d{2})(?::(\d{3}))?", re.ASCII)

_FORMS = "ISO 8601, epoch milliseconds, yyyy-MM-dd#HH:mm:ss:SSS, -2h, last-5m, now"


def parse_zone(name: str) -> tzinfo:
    """Return a time zone by name: `UTC`, `Asia/Shanghai`, `+08:00`.

    :raises ValueError: no such zone is installed.
    """
    if name.upper() in ("UTC", "Z"):
        return UTC
    if offset := _ZONE_OFFSET.fullmatch(name):
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if span >= timedelta(hours=24):
            raise ValueError(f"{name!r} is not an offset from UTC")
        return timezone(-span if offset[1] == "-" else span)
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most commands print UTC

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a known time zone; write UTC, Asia/Shanghai or +08:00") from error


def to_micros(moment: datetime) -> int:
    """Return a time-zone-aware datetime as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def _parse_span(text: str) -> timedelta:
    return sum((int(number) * _UNITS[unit] for number, unit in re.findall(_STEP, text)), timedelta())


def parse_time(text: str, zone: tzinfo, now: Callable[[], datetime], last_record: Callable[[], int | None]) -> int:
    """Return a time given by a user as microseconds since 1970, in the years 1 to 9999.

    Accepts ISO 8601, epoch milliseconds, `yyyy-MM-dd#HH:mm:ss:SSS` (mqadmin), `now`, `-2h` (before
    now), `last` and `last-5m` (before the last record). Text without a zone is in `zone`.
    `last_record` returns the store time of the last record in microseconds, or None. It and `now`
    (time-zone-aware) are called only if needed.

    :raises ValueError: none of these forms, or the store has no record.
    """
    text = text.strip()
    relative = _RELATIVE.fullmatch(text)
    try:
        if _MILLIS.fullmatch(text):
            micros = _from_millis(text)
        elif text and relative:
            start = to_micros(now()) if relative[1] != "last" else _last_of(text, last_record)
            micros = start - _parse_span(relative[2] or "") // _MICROSECOND
        else:
            moment = _parse_calendar(text)
            micros = to_micros(moment if moment.tzinfo else moment.replace(tzinfo=zone))
    except OverflowError:
        micros = _BEYOND
    if not _FIRST <= micros < _BEYOND:
        raise ValueError(f"{text!r} lies outside the years 1 to 9999")
    return micros


def _from_millis(text: str) -> int:
    if len(text) == 10:
        raise ValueError(f"{text!r} looks like seconds since 1970; give milliseconds: {text}000")
    return int(text) * 1000 if len(text) < 20 else _BEYOND


def _last_of(text: str, last_record: Callable[[], int | None]) -> int:
    last = last_record()
    if last is None:
        raise ValueError(f"{text!r} counts from the last record, and none was found")
    return last


def _parse_calendar(text: str) -> datetime:
    mqadmin = _MQADMIN.fullmatch(text)
    try:
        return datetime.fromisoformat(f"{mqadmin[1]}T{mqadmin[2]}.{mqadmin[3] or '000'}" if mqadmin else text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time; write {_FORMS}") from error


def format_micros(micros: int, zone: tzinfo = UTC) -> str:
    """Return microseconds since 1970 as ISO 8601 with milliseconds: `2022-03-02T02:04:22.123Z`.

    `micros` must lie in the years 1 to 9999, as in the tables; in UTC if its local time does not.
    """
    moment = _EPOCH + timedelta(microseconds=micros)
    if zone is not UTC:
        try:
            return moment.astimezone(zone).isoformat(timespec="milliseconds")
        except OverflowError:
            pass
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def millis_to_micros(millis: int) -> int | None:
    """Return milliseconds as microseconds; None outside the years 1 to 9999."""
    return millis * 1000 if FIRST_MILLI <= millis < END_MILLI else None


def format_millis(millis: int, zone: tzinfo = UTC) -> str | None:
    """Return milliseconds since 1970 as `format_micros` does; None outside the years 1 to 9999."""
    micros = millis_to_micros(millis)
    return None if micros is None else format_micros(micros, zone)


def format_seconds(millis: int, zone: tzinfo = UTC) -> str | None:
    """Return milliseconds since 1970 as `format_millis` does, to the second: `2022-03-02T02:04:22Z`."""
    text = format_millis(millis, zone)
    return None if text is None else text[: len("2022-03-02T02:04:22")] + text[len("2022-03-02T02:04:22.123") :]


def time_words(millis: int, zone: tzinfo = UTC) -> str:
    """Return milliseconds since 1970 as `format_micros` does; outside the years 1 to 9999 as a number."""
    return format_millis(millis, zone) or f"{millis} ms since 1970"


def format_nanos(nanos: int) -> str:
    """Return nanoseconds since 1970 as ISO 8601: `2026-11-21T08:48:46.708123456Z`.

    Outside the years 1 to 9999 as seconds: `253402300800.000000000`.
    """
    seconds, rest = divmod(nanos, 1_000_000_000)
    text = format_millis(seconds * 1000)
    return f"{seconds}.{rest:09}" if text is None else f"{text.partition('.')[0]}.{rest:09}Z"
