"""Replacement of recorded ids in an answer by the ids that the client generated itself.

See `stillweb.snapshots.identity.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stillweb.snapshots.capture import Response
from stillweb.snapshots.http.encodings import EncodingProblem, decode
from stillweb.snapshots.identity.echoes import Echo, with_echoes
from stillweb.snapshots.identity.numbering import renumbered
from stillweb.snapshots.secrets.redact import TEXTUAL

_OF_THE_BYTES = frozenset({"content-encoding", "content-length"})


def with_ids(stored: Response, ids: Mapping[str, str]) -> Response | None:
    """Return the answer with a client's own ids in its text and fields; None if it names none of them."""
    headers = tuple((name, renumbered(value, ids)) for name, value in stored.headers)
    media = (stored.header("content-type") or "").partition(";")[0].strip().lower()
    body = plain = stored.body
    if body and TEXTUAL.search(media):
        try:
            plain = decode(body, stored.header("content-encoding"))
        except EncodingProblem:  # already damaged at the origin: served as recorded
            plain = body
        body = renumbered(plain, ids)
    if body == plain:
        return replace(stored, headers=headers) if headers != stored.headers else None
    return _with_body(replace(stored, headers=headers), body)


def with_echoed(stored: Response, found: list[Echo]) -> Response | None:
    """Return the answer with the asked values in place of the recorded ones; None if it repeats none of them."""
    try:
        plain = decode(stored.body, stored.header("content-encoding"))
    except EncodingProblem:  # already damaged at the origin: served as recorded
        return None
    media = (stored.header("content-type") or "").partition(";")[0].strip().lower()
    body = with_echoes(plain, media, found)
    return None if body == plain else _with_body(stored, body)


def _with_body(stored: Response, body: bytes) -> Response:
    left = tuple(field for field in stored.headers if field[0].lower() not in _OF_THE_BYTES)
    return replace(stored, headers=(*left, ("Content-Length", str(len(body)))), body=body)
