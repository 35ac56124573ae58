"""Shared parts of the search and reader services: page look-up, hits within domains, and responses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from stillweb.harness.tools.store import FoundPage, Visit
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.request import Request
from stillweb.snapshots.text.search import Hit
from stillweb.snapshots.text.text import FrozenText
from stillweb.snapshots.view import id_in


def with_verdict(
    response: Response, verdict: str, doubted: bool = False, confidence: Confidence | None = None
) -> Response:
    """Return the response with `Stillweb-Verdict`, `Stillweb-Confidence` if there is one, and `Stillweb-Ambiguous` if `doubted`."""
    members = (("Stillweb-Verdict", verdict), *((("Stillweb-Ambiguous", "true"),) if doubted else ()))
    if confidence is not None:
        members = (*members, ("Stillweb-Confidence", confidence.header()))
    return Response(response.status, response.reason, (*response.headers, *members), response.body)


def miss_response(request: Request, found: FoundPage) -> Response:
    """Return the gateway's 504 answer to a request that was missed, or that failed while recording."""
    failed = found.verdict if found.verdict.startswith(("failed:", "fault:")) else ""
    what = f"{failed} (while recording, too)" if failed else "not in the snapshot"
    if found.fault:
        what = f"{failed} ({found.error})"
    lines = [f"stillweb: {what}: {request.method} {request.url}"]
    lines += [
        f"nearest: {n['method']} {n['url']} (differs: {', '.join(map(str, n['differs']))})"
        for n in found.nearest[:1]
    ]
    body = ("\n".join(lines) + "\n").encode("utf-8", "replace")
    fields = (("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))))
    return with_verdict(Response(504, "Gateway Timeout", fields, body), failed or "miss")


def recorded_response(request: Request, visit: Visit) -> tuple[Response | None, FoundPage]:
    """Return the recorded answer with its verdict header (None if there is none), and the lookup's result."""
    found = visit.look(request)
    if found.capture is None:
        return None, found
    return with_verdict(visit.read(found), found.verdict, found.ambiguous, found.confidence), found


def page(url: str, visit: Visit) -> tuple[FrozenText | None, FoundPage]:
    """Return the frozen text of a page or view (None if there is none), and the lookup's result."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no IPv6 address
        return None, FoundPage(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None, FoundPage(url)
    if id_in(url) is not None:
        seen = visit.store.view_text(url)
        return (seen[0], FoundPage(url, "rendered", view=seen[1])) if seen else (None, FoundPage(url))
    found = visit.follow(url)
    if found.capture is None or found.redirects or found.capture.status >= 400:
        return None, found
    return visit.store.text_of(found.capture), found


def best_hits(
    visit: Visit, query: str, count: int, include: Sequence[str], exclude: Sequence[str]
) -> list[Hit]:
    """Return the best `count` hits whose addresses lie in a domain of `include` and in none of `exclude`."""
    index = visit.store.index()
    if not include and not exclude:
        return index.search(query, count)
    asked = max(count, 1) * 4
    while True:
        found = index.search(query, asked)
        kept = [
            hit
            for hit in found
            if (not include or _within(hit.address, include)) and not _within(hit.address, exclude)
        ]
        if len(kept) >= count or len(found) < asked:
            return kept[:count]
        asked *= 4


def _within(address: str, domains: Sequence[str]) -> bool:
    """Return True if an address is at or below one of the domains: `host`, `*.host` or `host/path`."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    host = (parts.hostname or "").lower()
    for domain in domains:
        name, _, path = domain.lower().rpartition("://")[2].partition("/")
        name = name.removeprefix("www.")
        same = host == name or host.endswith("." + name) or ("*" in name and fnmatchcase(host, name))
        if same and parts.path.lower().startswith("/" + path):
            return True
    return False


def names(value: Any) -> list[str]:
    """Return the non-empty strings of a list; a single string counts as a list."""
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [one for one in values if isinstance(one, str) and one]


def request_number(request: Request) -> str:
    """Return 32 hex digits in place of a service's random request id; the same request has the same digits."""
    return hashlib.sha256(b"\n".join([request.url.encode("utf-8", "replace"), request.body])).hexdigest()[:32]
