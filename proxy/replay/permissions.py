"""CORS preflights that were not recorded, answered from the requests they ask for (Fetch standard, 3.2).

If a cross-origin request was recorded and its answer let that origin read it, the preflight before it was
granted too. Nothing more is granted: no other origin, method or field, and no credentials that were not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.identity.keys import canonical_url, request_key
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot

_UNSAFE = re.compile(r"[\r\n\0]+")


def is_preflight(request: Request) -> bool:
    """Return True if the request asks for permission to send another one."""
    return (
        request.method == "OPTIONS"
        and request.header("origin") is not None
        and request.header("access-control-request-method") is not None
    )


def permission(snapshot: Snapshot, request: Request) -> tuple[Response, Capture] | str:
    """Return the granting response and the capture that shows the grant, or the reason for a miss."""
    why = ""
    for capture in captured(snapshot, request.url, _asked(request)):
        try:
            refusal = refused(request, snapshot.read_request(capture), answer := snapshot.head(capture))
        except DamagedInput:
            continue
        if not refusal:
            return granted(request, answer), capture
        why = why or refusal
    return why


def captured(snapshot: Snapshot, url: str, method: str) -> Iterator[Capture]:
    """Return the captures of that URL (in canonical form) and method, whatever their bodies."""
    wanted = canonical_url(url)
    # for other methods, the index key is the URL's with __wb_method and the body in its query
    key = request_key(Request(method, url)).urlkey
    found = iter(snapshot.candidates(key)) if method == "GET" else snapshot.prefix(key)
    return (c for c in found if c.method == method and canonical_url(c.url) == wanted)


def refused(request: Request, recorded: Request, answer: Response) -> str:
    """Return why a recorded exchange does not show that a preflight would be granted, "" if it does."""
    allowed, origin = answer.header("access-control-allow-origin"), request.header("origin")
    if allowed is None:
        return "the recorded answer lets no other origin read it"
    if allowed not in ("*", origin):
        return f"the recorded answer is for the origin {allowed}"
    sent = {name.lower() for name, _ in recorded.headers}
    more = [name for name in _fields(request) if name not in sent]
    return f"the recorded request had no {more[0]}" if more else ""


def granted(request: Request, answer: Response) -> Response:
    """Return the response that grants a preflight, in the words of the recorded answer."""
    headers = [
        ("Access-Control-Allow-Origin", answer.header("access-control-allow-origin") or ""),
        ("Access-Control-Allow-Methods", _asked(request)),
    ]
    if answer.header("access-control-allow-credentials") == "true":
        headers.append(("Access-Control-Allow-Credentials", "true"))
    if fields := _fields(request):
        headers.append(("Access-Control-Allow-Headers", ", ".join(fields)))
    if (request.header("access-control-request-private-network") or "").lower() == "true":
        # the browser asks because it sees the gateway's address, not the site's
        headers.append(("Access-Control-Allow-Private-Network", "true"))
    headers.append(("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"))
    return Response(204, "No Content", tuple((n, _UNSAFE.sub(" ", v)) for n, v in headers), b"")


def _asked(request: Request) -> str:
    return (request.header("access-control-request-method") or "").upper()


def _fields(request: Request) -> list[str]:
    told = (request.header("access-control-request-headers") or "").split(",")
    return [name.strip().lower() for name in told if name.strip()]
