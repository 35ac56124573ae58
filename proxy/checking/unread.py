"""Requests whose answers no page reads: they come when the browser likes, and what a page shows hangs on none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.identity.urlkeys import surt

if TYPE_CHECKING:
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Snapshot


def is_unread(request: Request) -> bool:
    """Whether it fetches ahead (Resource Hints, Speculation Rules), or only tells: a beacon, a ping, a report.

    By Fetch Metadata: a POST that is no navigation and wants no right to read the answer is a beacon's, or as good as one.
    """
    if "prefetch" in (request.header("sec-purpose") or request.header("purpose") or ""):
        return True
    told = request.header("sec-fetch-dest") or ""
    tells = told == "empty" and request.header("sec-fetch-mode") == "no-cors"
    return request.method == "POST" and (told == "report" or tells or request.header("ping-to") is not None)


def unread_among(snapshot: Snapshot, captures: Iterable[Mapping[str, Any]]) -> set[str]:
    """The URLs of which each of these captures of a view (as its `captures` are) was recorded for such a request."""
    read: dict[str, bool] = {}
    for one in captures:
        url = str(one["url"])
        read[url] = read.get(url, False) or not _recorded_unread(snapshot, one)
    return {url for url, was_read in read.items() if not was_read}


def _recorded_unread(snapshot: Snapshot, one: Mapping[str, Any]) -> bool:
    url, method, digest = str(one["url"]), one.get("method", "GET"), one.get("digest")
    same = [
        capture
        for capture in snapshot.prefix(surt(url))
        if (capture.url, capture.method, capture.digest) == (url, method, digest)
    ]
    try:
        return bool(same) and all(is_unread(snapshot.read_request(capture)) for capture in same)
    except DamagedInput:
        return False
