"""The moments at which a client says that it asks: other ones in each replay.

A recorded value is such a moment only if it named the time at which its request passed the recorder, whatever its name, in
whatever form: ISO 8601 (also without separators, as TiddlyWiki has it), or seconds, milliseconds, microseconds or nanoseconds since 1970. A chosen time, such as the end of a
range, did not. A client's value is one if it names the present, or a time near the recorded one, for a client whose clock is
set to the recording.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, zip_longest
from typing import overload

from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.identity.packets import Payload, payload_text
from stillweb.snapshots.yielding import matches

EARLY, LATE = 10.0, 2.0  # seconds by which a message may pass the recorder after its timestamp, and before
AROUND = 3600.0  # seconds by which a client's clock may be off
MOST = 64  # stamps of a message that are looked at
REACH = 48  # characters of a stamp, and the one after it
_STAMP = re.compile(
    r"(?<![\w.])\d{4}-\d\d-\d\dT\d\d(?P<colon>:|%3A)\d\d(?P=colon)\d\d(?:[.,]\d{1,9})?(?:Z|(?:[+-]|%2B)\d\d(?:(?P=colon)?\d\d))?(?!\w)"
    r"|(?<![\w.])20\d{6}T?\d{6}(?:\.?\d{3})?Z?(?![\w.])"
    r"|(?<![\w.])(?P<since>[12](?:\d{9}|\d{12}|\d{15}|\d{18}))(?:\.\d{1,9})?(?![\w.])",
    re.IGNORECASE | re.ASCII,
)


@overload
def with_moments(stored: Payload, message: str, passed: float, now: float) -> str: ...
@overload
def with_moments(stored: Payload, message: bytes, passed: float, now: float) -> bytes: ...
@overload
def with_moments(stored: Payload, message: Payload, passed: float, now: float) -> Payload: ...
def with_moments(stored: Payload, message: Payload, passed: float, now: float) -> Payload:
    """Replace the timestamps in a client's message by those of the recorded one.

    `passed` is when the recorded message passed the recorder, `now` the present; both in seconds since 1970.
    The message is returned unchanged if there is nothing to replace.
    """
    if isinstance(stored, str) is not isinstance(message, str):
        return message
    text = payload_text(message)
    parts: list[str] = []
    end = 0
    for one, other in islice(zip_longest(_stamps(payload_text(stored)), _stamps(text)), MOST):
        if one is None or other is None:
            return message
        if one[0] != other[0] and _moment(one, other, passed, now):
            parts += text[end : other.start()], one[0]
            end = other.end()
    if not parts:
        return message
    moved = "".join((*parts, text[end:]))
    return moved if isinstance(message, str) else moved.encode("latin-1")


def stamps_apart(stored: Payload, message: Payload) -> dict[str, str]:
    """Return the timestamps of a recorded message by those of a client's that differ."""
    pairs = islice(zip(_stamps(payload_text(stored)), _stamps(payload_text(message)), strict=False), MOST)
    return {one[0]: other[0] for one, other in pairs if one[0] != other[0]}


def with_stamps(message: Payload, own: Mapping[str, str]) -> Payload:
    """Return a server's message with a client's timestamps in place of the recorded ones that it repeats."""
    text = payload_text(message)
    if not any(stamp in text for stamp in own):
        return message
    text = _STAMP.sub(lambda match: own.get(match[0], match[0]), text)
    return text if isinstance(message, str) else text.encode("latin-1")


def tells_moment(text: str) -> bool:
    return next(_stamps(text), None) is not None


def _stamps(text: str) -> Iterator[re.Match[str]]:
    return matches(_STAMP, text, REACH)


def _moment(stored: re.Match[str], match: re.Match[str], passed: float, now: float) -> bool:
    """Return True if both stamps name the time at which they were sent, in one form."""
    if len(stored["since"] or stored[0]) != len(match["since"] or match[0]):
        return False
    then, own = map(_seconds, (stored, match))
    if then is None or own is None:
        return False
    return -LATE <= passed - then <= EARLY and min(abs(now - own), abs(passed - own)) <= AROUND


def _seconds(stamp: re.Match[str]) -> float | None:
    """Return a stamp in seconds since 1970; None for an impossible date, such as the 31st of June."""
    if since := stamp["since"]:
        return float(stamp[0]) / 10.0 ** (len(since) - 10)
    return seconds_of(re.sub("%3A", ":", stamp[0], flags=re.I).replace("%2B", "+").replace("%2b", "+"))
