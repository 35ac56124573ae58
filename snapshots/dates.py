"""Times as WARC, CDXJ and people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_NO_DIGITS = re.compile(r"\D+")


def iso_date(moment: datetime | str | None) -> str:
    """A WARC-Date with milliseconds; from a time, from 14 or 17 digits, or now."""
    if isinstance(moment, str):
        d = moment.ljust(17, "0")
        fraction = "" if len(moment) <= 14 else f".{d[14:17]}"
        return f"{d[:4]}-{d[4:6]}-{d[6:8]}T{d[8:10]}:{d[10:12]}:{d[12:14]}{fraction}Z"
    moment = datetime.now(UTC) if moment is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_of(date: str) -> str:
    """14 or 17 digits from a WARC-Date."""
    digits = _NO_DIGITS.sub("", date)
    if len(digits) <= 14:
        return digits.ljust(14, "0")
    return digits[:17].ljust(17, "0")


def parse_timestamp(text: str) -> datetime | None:
    """A time from ISO 8601 or 14 to 17 digits; None from anything else."""
    try:
        if text.isdigit():
            text = iso_date(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def not_after(one: str | None, other: str | None) -> bool:
    """Whether a date of a header field is no later than another; the same text is not later, what is no date is."""
    if one is None or other is None:
        return False
    from email.utils import parsedate_to_datetime  # brings sockets and random numbers along

    try:
        return one == other or parsedate_to_datetime(one) <= parsedate_to_datetime(other)
    except (ValueError, TypeError, OverflowError):  # the last for numbers beyond all bounds
        return False
