"""Lifetimes of replayed cookies: the time that they had left when they were recorded.

Every client drops a `Set-Cookie` whose absolute `Expires` has passed, so no login would replay a year later.
Such a cookie gets a `Max-Age` of the time that it had left when it was recorded; clients prefer `Max-Age` to
`Expires` (RFC 6265, 5.3). Today's clock takes no part, so the same answer has the same bytes on any day.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from stillweb.snapshots.dates import parse_timestamp
from stillweb.snapshots.request import Headers

AGED = "cookie-age"  # its name in the ledger and in `Stillweb-Derived`

_EXPIRES = re.compile(r";\s*expires\s*=\s*([^;]*)", re.IGNORECASE)
_MAX_AGE = re.compile(r";\s*max-age\s*=", re.IGNORECASE)

# The parts of a date, in any order (RFC 6265, 5.1.1).
_BETWEEN = re.compile(r"[\t -/;-@\[-`{-~]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)")
_DAY = re.compile(r"(\d{1,2})(?!\d)")
_YEAR = re.compile(r"(\d{2,4})(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def with_ages(headers: Headers, recorded: str) -> Headers:
    """Return the headers with a Max-Age for each cookie that has only an Expires.

    `recorded` is a timestamp of at least 14 digits. Returns the same object if nothing changes. A cookie that
    had already expired when it was recorded (a deletion) stays as it is.
    """
    if not any(name.lower() == "set-cookie" for name, _ in headers):
        return headers
    out = tuple((n, _aged(v, recorded) if n.lower() == "set-cookie" else v) for n, v in headers)
    return headers if out == headers else out


def _aged(value: str, recorded: str) -> str:
    found = _EXPIRES.search(value)
    if found is None or _MAX_AGE.search(value):
        return value
    last = cookie_date(found[1])
    moment = parse_timestamp(recorded[:14])
    if last is None or moment is None or last <= moment:
        return value
    return f"{value}; Max-Age={int((last - moment).total_seconds())}"


def cookie_date(text: str) -> datetime | None:
    """Parse a cookie date as clients do (RFC 6265, 5.1.1), ignoring zones. Return None if it is none.

    `http.cookiejar` can't serve: it derives the century of "70" from today's clock.
    """
    time = day = month = year = None
    for token in _BETWEEN.split(text):
        if time is None and (found := _TIME.match(token)):
            time = found
        elif day is None and (found := _DAY.match(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _YEAR.match(token)):
            year = int(found[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    try:
        hour, minute, second = map(int, time.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC) if year >= 1601 else None
    except ValueError:
        return None
