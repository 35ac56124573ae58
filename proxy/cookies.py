"""How long a replayed cookie lives: as long as it would have when it was recorded.

A `Set-Cookie` with an absolute `Expires` is dropped by every client once that day has passed, and no login replays a
year later. Such a cookie gets a `Max-Age` of the time it had left when it was recorded, which clients prefer to
`Expires` (RFC 6265, 5.3). So no clock of today takes part, and the same answer has the same bytes on any day.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from snapshots.request import Headers

AGED = "cookie-age"  # what the ledger and `Stillweb-Derived` call it

_EXPIRES = re.compile(r";\s*expires\s*=\s*([^;]*)", re.IGNORECASE)
_MAX_AGE = re.compile(r";\s*max-age\s*=", re.IGNORECASE)


def with_ages(headers: Headers, recorded: str) -> Headers:
    """The same headers, with an age for cookies that have a last day only; `recorded` is a time of 14 digits or more.

    The same object where there is none. A cookie that had expired when it was recorded (a deletion) stays so.
    """
    if not any(name.lower() == "set-cookie" for name, _ in headers):
        return headers
    out = tuple((n, _aged(v, recorded) if n.lower() == "set-cookie" else v) for n, v in headers)
    return headers if out == headers else out


def _aged(value: str, recorded: str) -> str:
    found = _EXPIRES.search(value)
    if found is None or _MAX_AGE.search(value):
        return value
    from http.cookiejar import http2time  # type: ignore[attr-defined]

    # it reads all the forms of a date that clients do
    last = http2time(found[1].strip().strip('"'))
    try:
        moment = datetime.strptime(recorded[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return value
    if last is None or last <= moment:
        return value
    return f"{value}; Max-Age={int(last - moment)}"
