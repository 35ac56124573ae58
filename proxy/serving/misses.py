"""What the ledger says of a missed request, and what it may not say: secrets."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.identity.urlkeys import LONGEST_KEPT
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import mask

if TYPE_CHECKING:
    from stillweb.snapshots.matching.lookup import Near

# How frozen pages mark requests for the script of a worker, and for a stream (freeze.js).
MARKED = re.compile(r"[?&]stillweb-(worker(=shared)?(=module)?|stream)(?=#|$)")
KEPT_BODY = 1 << 16  # bytes of a missed request's body, to record it later

_KINDS = {  # Sec-Fetch-Dest (Fetch Metadata) -> the browser's name of the kind
    "": "other", "empty": "fetch", "style": "stylesheet", "iframe": "document", "frame": "document", "embed": "document",
    "object": "document", "worker": "script", "sharedworker": "script", "video": "media", "audio": "media", "track": "media",
}  # fmt: skip


class Missed(NamedTuple):
    """A request that got no answer: its URL without secrets, its kind as a browser names it ("other" if unknown), and
    whether it is one that could matter (no prefetch, nothing that rules call irrelevant)."""

    url: str
    kind: str
    matters: bool


def missed_of(request: Request, irrelevant: bool) -> Missed:
    """What a session remembers of a miss."""
    to = request.header("sec-fetch-dest") or ""
    ahead = "prefetch" in (request.header("sec-purpose") or request.header("purpose") or "")
    return Missed(masked_url(request.url), _KINDS.get(to, to), not irrelevant and not ahead)


def masked_url(url: str) -> str:
    """Return a URL without the secrets in it, for ledger and messages."""
    return _masked(url) if len(url) <= LONGEST_KEPT else mask(Request("GET", url)).url


@lru_cache(maxsize=4096)
def _masked(url: str) -> str:
    return mask(Request("GET", url)).url


def masked_key(request: Request) -> str | None:
    """The key of a request without the secrets in it; a hash with them would let them be guessed. None if it has none."""
    masked = mask(request)
    return None if masked is request else request_key(masked).canonical


def unseen(seen: Iterable[str], missed: Iterable[Missed]) -> list[Missed]:
    """What was missed beside the URLs that a browser told of: it keeps quiet about answers that another origin may
    not read, and about shared workers."""
    known = {one_name(url) for url in seen}
    return [one._replace(url=_plain(one.url)) for one in missed if one_name(one.url) not in known]


def one_name(url: str) -> str:
    """What a browser's and the gateway's word for a missed URL have in common."""
    return masked_url(_plain(url))


def _plain(url: str) -> str:
    """Without the mark that frozen pages put to requests for streams and workers; a web socket's as its request's."""
    return MARKED.sub("", re.sub(r"^ws(?=s?:)", "http", url))


def near_entry(near: Near) -> dict[str, Any]:
    """A capture that comes near, for the ledger."""
    capture, differs = near.capture, list(near.differs)
    if not differs:
        differs = [
            f"what was recorded: a ({capture.status}) answer to a condition or range"
            if capture.status in (206, 304, 412, 416)
            else "the situation: the same request was recorded in another"
        ]
    return {"method": capture.method, "url": capture.url, "differs": differs, "rule": near.rule}


def body_entry(request: Request) -> dict[str, Any]:
    """What it takes to send a missed request again: the type and bytes of its body, secrets masked."""
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
