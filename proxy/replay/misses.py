"""Missed requests in the ledger, without their secrets."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from stillweb.snapshots.cache import cached
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import mask

if TYPE_CHECKING:
    from stillweb.snapshots.evidence.lookup import Lookup, NearCapture

# How frozen pages (freeze.js) mark requests for a worker's script, and for a stream.
MARKED = re.compile(r"[?&]stillweb-(worker(=shared)?(=module)?|stream(=[^#]*)?)(?=#|$)")
LINKS = 20  # to recorded pages, in the answer to a browser
KEPT_BODY = 1 << 16  # bytes of a missed request's body that are kept, to record it later

_KINDS = {  # Sec-Fetch-Dest (Fetch Metadata) -> the browser's name of the kind
    "": "other", "empty": "fetch", "style": "stylesheet", "iframe": "document", "frame": "document", "embed": "document",
    "object": "document", "worker": "script", "sharedworker": "script", "video": "media", "audio": "media", "track": "media",
}  # fmt: skip


class MissedRequest(NamedTuple):
    """A missed request: its URL without secrets, its kind, and whether it could matter.

    `kind` is a browser's name of it, "other" if unknown. `matters` is false for a prefetch and for a request
    that rules call irrelevant.
    """

    url: str
    kind: str
    matters: bool


def missed_of(request: Request, irrelevant: bool) -> MissedRequest:
    """Return the record of a miss that a session keeps."""
    to = request.header("sec-fetch-dest") or ""
    ahead = "prefetch" in (request.header("sec-purpose") or request.header("purpose") or "")
    return MissedRequest(masked_url_of(request), _KINDS.get(to, to), not irrelevant and not ahead)


def masked_url(url: str) -> str:
    """Return a URL without the secrets in it, for the ledger and messages."""
    return masked_url_of(Request("GET", url))


def masked_url_of(request: Request) -> str:
    """Return the URL of a request without the secrets in it, for the ledger and messages."""
    return mask(request).url if request.remembers else _masked(request.url)


@cached
def _masked(url: str) -> str:
    return mask(Request("GET", url)).url


def masked_key(request: Request) -> str | None:
    """Return the key of a request with its secrets masked; None if it has no secrets.

    A hash that includes secrets would let them be guessed.
    """
    masked = mask(request)
    return None if masked is request else request_key(masked).canonical


def unseen_by_browser(seen: Iterable[str], missed: Iterable[MissedRequest]) -> list[MissedRequest]:
    """Return the misses whose URLs a browser did not report.

    A browser does not report answers that another origin may not read, nor those to shared workers.
    """
    known = {one_name(url) for url in seen}
    return [one._replace(url=_plain(one.url)) for one in missed if one_name(one.url) not in known]


def one_name(url: str) -> str:
    """Return a missed URL in the form that a browser's and the gateway's reports share."""
    return masked_url(_plain(url))


def _plain(url: str) -> str:
    """Strip the mark of frozen pages from a stream's or worker's URL; turn ws: into http:."""
    return MARKED.sub("", re.sub(r"^ws(?=s?:)", "http", url))


def near_entry(near: NearCapture) -> dict[str, Any]:
    """Return the ledger's form of a capture that comes near."""
    capture, differs = near.capture, list(near.differs)
    if not differs:
        differs = [
            f"the recorded answer: a {capture.status} to a conditional or range request"
            if capture.status in (206, 304, 412, 416)
            else "the state: the same request was recorded in another one"
        ]
    return {"method": capture.method, "url": capture.url, "differs": differs, "rule": near.rule}


def miss_body(
    request: Request, text: str, near: Iterable[Mapping[str, Any]], pages: Iterable[str]
) -> tuple[str, bytes]:
    """Return the media type and body of the answer to a missed request, as its client reads it.

    A browser that opens a page gets one with links to the nearest captures and `pages` of the site, its scripts get
    JSON, and any other client gets the text.
    """
    kind, accepts = request.header("sec-fetch-dest"), request.header("accept") or ""
    if kind in ("document", "iframe", "frame") or (kind is None and accepts.startswith("text/html")):
        links = dict.fromkeys(one["url"] for one in near if one["method"] == "GET")
        links |= dict.fromkeys(islice(pages, LINKS))
        items = "".join(
            f'<li><a href="{html.escape(url)}">{html.escape(url)}</a>' for url in islice(links, LINKS)
        )
        listed = f"<p>Recorded there:<ul>{items}</ul>" if items else "<p>No page was recorded there."
        page = f"<!doctype html><meta charset=utf-8><title>stillweb: miss</title><p>{html.escape(text)}{listed}\n"
        return "text/html; charset=utf-8", page.encode("utf-8", "replace")
    if kind == "empty":
        return "application/json", json.dumps({"error": text}).encode() + b"\n"
    return "text/plain; charset=utf-8", f"{text}\n".encode("utf-8", "replace")


def why_unsure(lookup: Lookup, threshold: float) -> tuple[str, list[dict[str, Any]]]:
    """Return why the likeliest answer to a request is not served, and the ledger's form of the likeliest answers."""
    rivals = lookup.rivals(lookup.confidence) if lookup.rivals is not None else []
    reasons, entries = [], []
    for rival in rivals:
        capture, confidence = rival.capture, Confidence.of(rival.confidence)
        place = {"file": capture.filename, "offset": capture.offset, "digest": capture.digest}
        entries.append(
            {
                "confidence": confidence.value,
                "capture": place,
                "timestamp": capture.timestamp,
                "status": capture.status,
                "grounds": rival.grounds,
            }
        )
        reasons.append(
            f"the {capture.status} of {iso_date(capture.timestamp)}, {confidence} ({'; '.join(rival.grounds)})"
        )
    likeliest = " or ".join(reasons) or f"{Confidence.of(lookup.confidence)}"
    return f"the likeliest answer is less sure than --min-confidence {threshold:g}: {likeliest}", entries


def body_entry(request: Request) -> dict[str, Any]:
    """Return the members that allow resending a missed request: its body's type and bytes, secrets masked."""
    if not request.body:
        return {}
    masked = mask(request)
    body = masked.body
    entry: dict[str, Any] = {"type": masked.header("content-type") or ""}
    if len(body) > KEPT_BODY:
        return entry | {"body_size": len(body)}
    try:
        return entry | {"body": body.decode()}
    except UnicodeDecodeError:
        return entry | {"body_base64": base64.b64encode(body).decode("ascii")}
