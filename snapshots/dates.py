"""Conversion of times between WARC dates, CDXJ timestamps and `datetime`."""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from datetime import UTC, datetime, timedelta

from stillweb.snapshots.errors import UsageError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # stands for the date of a record that has none
UNDATED = "0" * 14  # timestamp of a record whose date is missing or impossible

_LAST = datetime.max.replace(tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# The usual form of a WARC-Date. Days from the 29th on need the calendar, so they take the slow path.
_USUAL = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?Z"
)
# Any other form: a partial date (WARC 1.1 allows "2025-01"), 14 digits, or a time in another zone.
_ANY = re.compile(
    r"\s*([0-9]{4})(?:-?([0-9]{2})(?:-?([0-9]{2})(?:[Tt ]?([0-9]{2}):?([0-9]{2})"
    r"(?::?([0-9]{2})(?:[.,]?([0-9]+))?)?)?)?)?\s*(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2}))?\s*"
)


def iso_date(moment: datetime | str | None) -> str:
    """Format a WARC-Date with milliseconds from a time, from 14 or 17 digits, or from now."""
    if isinstance(moment, str):
        d = moment.ljust(17, "0")
        fraction = "" if len(moment) <= 14 else f".{d[14:17]}"
        return f"{d[:4]}-{d[4:6]}-{d[6:8]}T{d[8:10]}:{d[10:12]}:{d[12:14]}{fraction}Z"
    moment = datetime.now(UTC) if moment is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_of(date: str) -> str:
    """Return the 14 or 17 digits (UTC) of a WARC-Date; `UNDATED` if the date is impossible."""
    usual = _USUAL.fullmatch(date)
    if usual is not None and usual[1] != "0000":
        *parts, fraction = usual.groups()
        return "".join(parts) + (fraction[:3].ljust(3, "0") if fraction else "")
    found = _read(date)
    if found is None:
        return UNDATED
    moment, leap, fraction = found
    seconds = "60" if leap else f"{moment.second:02}"
    return f"{moment.year:04}{moment:%m%d%H%M}{seconds}{fraction[:3].ljust(3, '0') if fraction else ''}"


def _read(text: str) -> tuple[datetime, bool, str] | None:
    """Parse a time: return it in UTC, True if its second is 60, and the digits of its fraction.

    Python's datetime has no leap seconds, so second 60 is returned as 59. None if the text is not a time.
    """
    found = _ANY.fullmatch(text)
    if found is None:
        return None
    *parts, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = (
        int(part or least) for part, least in zip(parts, (0, 1, 1, 0, 0, 0), strict=True)
    )
    leap = second == 60  # UTC has leap seconds, Python's datetime does not
    try:
        moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
        if sign:
            moment -= timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    except (ValueError, OverflowError):
        return None
    return moment, leap, fraction or ""


def read_at(text: str) -> str:
    """Return "latest", or the 17 digits of the last moment of a date such as 2026-03-01, 2026-03 or 2026-03-01T12:00Z.

    Raises UsageError for any other text.
    """
    if text == "latest":
        return text
    found = _ANY.fullmatch(text)
    begin = parse_timestamp(text)
    if found is None or begin is None:
        raise UsageError(
            f"{text!r}: is not a date. Write it as 2026-03-01 or 2026-03-01T12:00:00Z, or 'latest'"
        )
    year, month, day, hour, _, second, fraction, *_ = found.groups()
    if fraction:
        span = _MILLISECOND
    elif second or hour:
        span = timedelta(seconds=1) if second else timedelta(minutes=1)
    elif day or month:
        span = timedelta(days=1 if day else monthrange(int(year), int(month))[1])
    else:
        span = timedelta(days=365 + isleap(int(year)))
    last = begin + min(span - _MILLISECOND, _LAST - begin)
    return f"{last:%Y%m%d%H%M%S}{last.microsecond // 1000:03}"


def parse_timestamp(text: str) -> datetime | None:
    """Parse ISO 8601 or 14 to 17 digits; return None for any other text. Second 60 is the next minute."""
    found = _read(text)
    if found is None:
        return None
    moment, leap, fraction = found
    try:
        return moment + timedelta(seconds=leap, microseconds=int(fraction[:6].ljust(6, "0")))
    except OverflowError:
        return None


def seconds_of(timestamp: str) -> float | None:
    """Return a capture timestamp in seconds since 1970; None if it is undated."""
    moment = parse_timestamp(timestamp)
    return None if moment is None else moment.timestamp()


def not_after(one: str | None, other: str | None) -> bool:
    """Return True if one header date is no later than another.

    Two equal texts are; dates that are absent or can't be parsed are not.
    """
    if one is None or other is None:
        return False
    from email.utils import parsedate_to_datetime  # imported late: it loads socket and random

    try:
        return one == other or parsedate_to_datetime(one) <= parsedate_to_datetime(other)
    except (ValueError, TypeError, OverflowError):  # OverflowError: for absurdly large numbers
        return False
