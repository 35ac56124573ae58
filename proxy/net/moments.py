"""Timestamps in web socket messages, such as a message's `date`, which differ in each replay.

A recorded stamp is a timestamp only if it named the time at which its message passed the recorder. A chosen
time, such as the end of a range, did not. A client's stamp is a timestamp if it names the present, or a time
near the recorded one, for a client whose clock is set to the recording.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import zip_longest

Said = str | bytes
# the form of JavaScript's toISOString and Python's isoformat
_STAMP = re.compile(r"(?<!\d)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:\d{3})?(?:Z|\+00:00)(?!\d)")
EARLY, LATE = 10.0, 2.0  # seconds by which a message may pass the recorder after its timestamp, and before
AROUND = 3600.0  # seconds by which a client's clock may be off


def with_moments(stored: Said, said: Said, passed: float, now: float) -> Said:
    """Replace the timestamps in a client's message by those of the recorded one.

    `passed` is when the recorded message passed the recorder, `now` the present; both in seconds since 1970.
    The message is returned unchanged if there is nothing to replace.
    """
    if isinstance(stored, str) is not isinstance(said, str):
        return said
    text = _text(said)
    theirs, mine = list(_STAMP.finditer(_text(stored))), list(_STAMP.finditer(text))
    parts: list[str] = []
    end = 0
    for one, other in zip_longest(theirs, mine):
        if one is None or other is None:
            return said
        if one[0] != other[0] and _moment(one[0], other[0], passed, now):
            parts += text[end : other.start()], one[0]
            end = other.end()
    if not parts:
        return said
    told = "".join((*parts, text[end:]))
    return told if isinstance(said, str) else told.encode("latin-1")


def _moment(stored: str, said: str, passed: float, now: float) -> bool:
    """Return True if both stamps name the time at which they were sent."""
    if len(stored) != len(said):
        return False
    try:
        then, own = (datetime.fromisoformat(one).astimezone(UTC).timestamp() for one in (stored, said))
    except ValueError:  # an impossible date, such as the 31st of June
        return False
    return -LATE <= passed - then <= EARLY and min(abs(now - own), abs(passed - own)) <= AROUND


def _text(said: Said) -> str:
    return said if isinstance(said, str) else said.decode("latin-1")
