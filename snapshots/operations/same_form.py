"""Matching of form posts that differ only in per-visit values: password pseudonyms and CSRF tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stillweb.snapshots.http.bodies import FORM, typed_body
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, looks_random
from stillweb.snapshots.secrets.redact import MASK

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot

Group = str  # key of captures
Form = tuple[str, str, tuple[tuple[str, str], ...]]


def same_forms(
    a: Snapshot, old: Mapping[Group, list[Capture]], b: Snapshot, new: Mapping[Group, list[Capture]]
) -> list[tuple[Group, Group]]:
    """Pair the groups of two snapshots that posted the same form, ignoring values that look random.

    Two groups of one snapshot that differ only in such values (a form sent twice) can't be paired.
    """
    before, after = _by_form(a, old.items()), _by_form(b, new.items())
    shared = sorted(before.keys() & after.keys())
    return [(before[f][0], after[f][0]) for f in shared if len(before[f]) == len(after[f]) == 1]


def _by_form(snapshot: Snapshot, groups: Iterable[tuple[Group, list[Capture]]]) -> dict[Form, list[Group]]:
    found: dict[Form, list[Group]] = defaultdict(list)
    for group, members in groups:
        if (form := _form_of(snapshot, members[0])) is not None:
            found[form].append(group)
    return found


def _form_of(snapshot: Snapshot, capture: Capture) -> Form | None:
    """Return method, URL and sorted fields, with random-looking values masked; None if no form was posted."""
    if capture.method != "POST" or capture.request_offset < 0:
        return None
    request = snapshot.read_request(capture)
    body = typed_body(request.body, request.header("content-type"), request.header("content-encoding"))
    if body.kind != FORM:
        return None
    fields = sorted((_masked(pair.name), _masked(pair.value)) for pair in body.value)
    return capture.method, capture.url, tuple(fields)


def _masked(data: bytes) -> str:
    value = data.decode("utf-8", "backslashreplace")
    return MASK if PSEUDONYM_TEXT.search(value) or looks_random(value) else value
