"""Decoding of stored bodies for clients that can't read their content encoding."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.weighted import items_of

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture, Response
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Snapshot

ASKED = 32  # recorded requests that are examined


def coding(stored: Response) -> str | None:
    """Return the Content-Encoding of a response, its lines joined; None if it has none."""
    return ", ".join(v for n, v in stored.headers if n.lower() == "content-encoding") or None


def readable(stored: Response, request: Request) -> bool:
    """Return True if the client accepts the stored content encoding, or if we don't know that encoding."""
    names = encodings.codings(coding(stored))
    return not names or not encodings.KNOWN.issuperset(names) or _reads(request, names)


def must_decode(snapshot: Snapshot, capture: Capture, stored: Response, request: Request) -> bool:
    """Return True if the stored body must be decoded for the client.

    A server that sent this very response to a client that does not accept its encoding sends it to all
    clients. Apache, for example, labels a `.tar.gz` as encoded, and a client that asks for it without
    Accept-Encoding keeps it as it comes.
    """
    return not readable(stored, request) and all(
        readable(stored, recorded) for recorded in islice(_asked(snapshot, capture), ASKED)
    )


def _asked(snapshot: Snapshot, capture: Capture) -> Iterator[Request]:
    """Yield the recorded requests that got this same response, as far as they are stored."""
    others = (
        c
        for c in snapshot.candidates(capture.urlkey)
        if c.place != capture.place
        and (c.key, c.status, c.digest) == (capture.key, capture.status, capture.digest)
    )
    for one in (capture, *others):
        if one.request_offset >= 0 and (recorded := snapshot.read_request(one)).headers:
            yield recorded


def _reads(request: Request, names: Collection[str]) -> bool:
    accepted = ", ".join(v for n, v in request.headers if n.lower() == "accept-encoding")
    return all(_accepts(accepted, name) for name in names)


@lru_cache(maxsize=4096)
def _accepts(field: str, coding: str) -> bool:
    """Return True if an Accept-Encoding field allows a coding (RFC 9110, 12.5.3).

    A client that names no coding gets none, as servers do it.
    """
    wanted = {item.name: item.weight > 0 for item in reversed(items_of(field))}
    plain = {"x-gzip": "gzip"}.get(coding, coding)
    return next((wanted[name] for name in (plain, coding, "*") if name in wanted), False)
