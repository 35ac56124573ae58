"""Times as WARC, CDXJ and people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # stands for the date of a record that has none
UNDATED = "0" * 14  # the timestamp of a record without a date, or with one that no calendar has

# A WARC-Date as nearly all are written; the 29th and later are looked at more closely.
_USUAL = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?Z"
)
# Also a part of one (WARC 1.1 allows "2025-01"), 14 digits, or a time in another zone.
_ANY = re.compile(
    r"\s*([0-9]{4})(?:-?([0-9]{2})(?:-?([0-9]{2})(?:[Tt ]?([0-9]{2}):?([0-9]{2})"
    r"(?::?([0-9]{2})(?:[.,]?([0-9]+))?)?)?)?)?\s*(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2}))?\s*"
)


def iso_date(moment: datetime | str | None) -> str:
    """A WARC-Date with milliseconds; from a time, from 14 or 17 digits, or now."""
    if isinstance(moment, str):
        d = moment.ljust(17, "0")
        fraction = "" if len(moment) <= 14 else f".{d[14:17]}"
        return f"{d[:4]}-{d[4:6]}-{d[6:8]}T{d[8:10]}:{d[10:12]}:{d[12:14]}{fraction}Z"
    moment = datetime.now(UTC) if moment is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_of(date: str) -> str:
    """Return the 14 or 17 digits of a WARC-Date, UTC; `UNDATED` for a date that no calendar has."""
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
    """The moment in UTC, its second 59 where it is a leap second; whether it is one; the digits of its fraction."""
    found = _ANY.fullmatch(text)
    if found is None:
        return None
    *parts, fraction, sign, hours, minutes = found.groups()
    year, month, day, hour, minute, second = (
        int(part or least) for part, least in zip(parts, (0, 1, 1, 0, 0, 0), strict=True)
    )
    leap = second == 60  # UTC has them, the calendar of Python has not
    try:
        moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
        if sign:
            moment -= timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    except (ValueError, OverflowError):
        return None
    return moment, leap, fraction or ""


def parse_timestamp(text: str) -> datetime | None:
    """Return the time that ISO 8601, or 14 to 17 digits, name; None for anything else. Second 60 is the next minute."""
    found = _read(text)
    if found is None:
        return None
    moment, leap, fraction = found
    try:
        return moment + timedelta(seconds=leap, microseconds=int(fraction[:6].ljust(6, "0")))
    except OverflowError:
        return None


def seconds_of(timestamp: str) -> float | None:
    """Return the seconds since 1970 of a capture's timestamp; None where it is undated."""
    moment = parse_timestamp(timestamp)
    return None if moment is None else moment.timestamp()


def not_after(one: str | None, other: str | None) -> bool:
    """Whether a date of a header field is no later than another; the same text is not later, what is no date is."""
    if one is None or other is None:
        return False
    from email.utils import parsedate_to_datetime  # brings sockets and random numbers along

    try:
        return one == other or parsedate_to_datetime(one) <= parsedate_to_datetime(other)
    except (ValueError, TypeError, OverflowError):  # the last for numbers beyond all bounds
        return False
