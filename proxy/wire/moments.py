"""When a client says that it says something over a web socket: the `date` of a message, others in each replay.

A stamp is such a moment only if it named, when it was recorded, just the time at which its message passed the recorder. One that
was chosen, such as the end of a range, did not. A client's own is one if it names the present, or, for a client that is
given the clock of the recording, a time near the recorded one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import zip_longest

Said = str | bytes
# as JavaScript's toISOString and Python's isoformat write it
_STAMP = re.compile(r"(?<!\d)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(?:\d{3})?(?:Z|\+00:00)(?!\d)")
EARLY, LATE = 10.0, 2.0  # seconds by which a message may pass the recorder after its moment, and before
AROUND = 3600.0  # seconds by which a client's clock may be off


def with_moments(stored: Said, said: Said, passed: float, now: float) -> Said:
    """A client's message with the moments of a recorded one that `passed` then, where it has its own; itself where it has none."""
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
    """Whether two stamps both name when they were said."""
    if len(stored) != len(said):
        return False
    try:
        then, own = (datetime.fromisoformat(one).astimezone(UTC).timestamp() for one in (stored, said))
    except ValueError:  # the 31st of June
        return False
    return -LATE <= passed - then <= EARLY and min(abs(now - own), abs(passed - own)) <= AROUND


def _text(said: Said) -> str:
    return said if isinstance(said, str) else said.decode("latin-1")
