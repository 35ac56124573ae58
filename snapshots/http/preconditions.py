"""Conditions that a write is sent with: `If-Match`, `If-None-Match`, `If-Unmodified-Since` (RFC 9110, 13.1).

A recorded answer says that they held, or (412) that one did not. It stands for another request's where the same
follows for that one's; where the opposite follows, or nothing of a refusal, it is none; otherwise it is not sure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stillweb.snapshots.cache import cached
from stillweb.snapshots.dates import not_after
from stillweb.snapshots.request import Headers

FAILS, UNSURE, FITS = 0, 1, 2  # what a capture is for a request

FIELDS = ("if-match", "if-none-match", "if-unmodified-since")
REFUSED = frozenset({409, 412, 428})  # what a server says to a condition, or to a write that comes without

_TAG = re.compile(r'(?:W/)?"[^"]*"')


class Preconditions(NamedTuple):
    """The values of the fields, None where one is not sent."""

    match: str | None = None
    none_match: str | None = None
    unmodified: str | None = None


NONE = Preconditions()


@cached
def preconditions_of(headers: Headers) -> Preconditions:
    """Return the conditions in header fields. With `If-Match`, dates are ignored (RFC 9110, 13.1.4)."""
    found: dict[str, str] = {}
    for name, value in headers:
        if (lower := name.lower()) in FIELDS:
            found[lower] = f"{found[lower]}, {value.strip()}" if lower in found else value.strip()
    if not found:
        return NONE
    match, none_match, unmodified = (found.get(field) for field in FIELDS)
    return Preconditions(match, none_match, unmodified if match is None else None)


def judge(asked: Preconditions, recorded: Preconditions, status: int) -> int:
    """Return FITS, UNSURE or FAILS: what a recorded write, answered with `status`, is for one with conditions `asked`."""
    if asked == recorded:
        return FITS
    if status in REFUSED:
        # Which of several was not met isn't known; nor what is said where there is none.
        only = len([value for value in recorded if value is not None]) == 1
        return FITS if status == 412 and only and _fails_too(asked, recorded) else FAILS
    if status >= 400:
        return UNSURE  # other errors come before the conditions (RFC 9110, 13.2.1), if the server knows that
    if recorded.none_match == "*" and asked.match is not None:
        return FAILS  # there was nothing that could match
    if recorded.match is not None and asked.none_match == "*":
        return FAILS  # there was something
    return min(
        _still_matches(asked.match, recorded.match),
        _still_none(asked.none_match, recorded.none_match),
        _still_unmodified(asked.unmodified, recorded.unmodified),
    )


def _fails_too(asked: Preconditions, recorded: Preconditions) -> bool:
    """Return True if the condition that failed while recording fails for the other request, too."""
    if recorded.match is not None:
        wanted = _tags(asked.match)
        return bool(wanted) and (recorded.match == "*" or wanted <= _tags(recorded.match))
    if asked.match is not None:
        return False  # it might be refused for that, with another text
    if recorded.none_match is not None:
        return asked.none_match == "*" or _tags(recorded.none_match) <= _tags(asked.none_match)
    return asked.none_match is None and not_after(asked.unmodified, recorded.unmodified)


def _still_matches(asked: str | None, held: str | None) -> int:
    if asked == held:
        return FITS
    if asked is None or held is None or held == "*":
        return UNSURE
    if asked == "*" or _tags(held) <= _tags(asked):
        return FITS
    return UNSURE if _opaque(held) & _opaque(asked) else FAILS


def _still_none(asked: str | None, held: str | None) -> int:
    if asked == held:
        return FITS
    if asked is None or held is None or asked == "*":
        return UNSURE
    return FITS if held == "*" or _tags(asked) <= _tags(held) else UNSURE


def _still_unmodified(asked: str | None, held: str | None) -> int:
    return FITS if asked == held or (asked is not None and not_after(held, asked)) else UNSURE


def _tags(field: str | None) -> frozenset[str]:
    """Return the entity tags of a field; a text without any is taken as one."""
    return frozenset(_TAG.findall(field) or [field]) if field else frozenset()


def _opaque(field: str) -> frozenset[str]:
    return frozenset(tag.removeprefix("W/") for tag in _tags(field))
