"""Planning of answers: from a stored response and a request to what is served. Pure functions.

The answer is what the origin would have sent from the same bytes: the headers of a captured GET for HEAD,
ranges of a captured whole, 304 if the client's copy is the captured one, a decoded body for a client that
can't read its encoding. What the capture can't answer is a `Refusal`, and so a miss: a part of a body that
was not recorded, a 304 for a client that has no copy. No socket and no clock takes part.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from stillweb.proxy.net.trailers import TRAILER, is_grpc, parted
from stillweb.proxy.replay import ranges
from stillweb.snapshots.capture import Response
from stillweb.snapshots.dates import not_after
from stillweb.snapshots.http.spans import Span, inside, is_whole, parse, recorded_span
from stillweb.snapshots.request import Headers, Request

# RFC 9110, 7.6.1, with what older software sends
HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    ]
)
# Fields about the encoded bytes, wrong once these are decoded.
OF_ENCODED = frozenset(
    {"content-encoding", "content-length", "content-md5", "content-digest", "repr-digest", "digest"}
)
BODILESS = frozenset({204, 304})

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_UNSAFE = re.compile(r"[\r\n\0]+")


class Refusal(Exception):
    """A capture that can't answer this request; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A planned answer. `parts` are literal bytes and spans of the stored body (decoded if `decoded`).

    `derived` names what was done to the capture: "", "head", "range", "whole", "conditional". `length` is the
    size of the body that is sent, None if only decoding will tell. `trailers` follow the body.
    """

    status: int
    reason: str
    headers: Headers
    parts: tuple[bytes | Span, ...]
    length: int | None
    decoded: bool = False
    derived: str = ""
    trailers: Headers = ()


def join(parts: Iterable[bytes | Span], body: bytes) -> bytes:
    """Return the bytes of an answer's parts."""
    return b"".join(part if isinstance(part, bytes) else body[part[0] : part[1]] for part in parts)


def plan(
    stored: Response,
    size: int | None,
    request: Request,
    recorded: Request | None = None,
    *,
    decoded: bool = False,
) -> Answer:
    """Plan the answer to `request` from `stored`. Raises Refusal.

    The stored body has `size` bytes; `stored.body` is not read. `size` None (a large body that would have to
    be decoded first) allows only the whole.
    """
    head, trailers = parted(stored.headers, size)
    if size and is_grpc(head) and not any(n.lower() == "grpc-status" for n, _ in trailers):
        raise Refusal("what came of this gRPC call was not recorded: it stood in trailers")
    if not trailers:
        return _planned(stored, size, request, recorded, decoded)
    made = _planned(replace(stored, headers=head), size, request, recorded, decoded)
    if request.method == "HEAD" or made.status in BODILESS or made.derived not in ("", "whole"):
        return made
    # a reader of chunks is not told their length beforehand
    told = tuple(f for f in head if f[0].lower() == TRAILER)
    return replace(
        made,
        headers=(*_without_length(made.headers), *told),
        trailers=clean(trailers, decoded=decoded),
    )


def _planned(
    stored: Response, size: int | None, request: Request, recorded: Request | None, decoded: bool
) -> Answer:
    again = _asked_again(request, recorded)
    derived = ""
    if (
        stored.status == 206
        and not again
        and is_whole(*map(stored.header, ("content-range", "content-length")))
    ):
        fields = tuple((n, v) for n, v in stored.headers if n.lower() != "content-range")
        stored, derived = replace(stored, status=200, reason="OK", headers=fields), "whole"
    headers = clean(stored.headers, decoded=decoded)
    status, reason = stored.status, stored.reason
    if status == 304:
        _must_hold(stored, request, again)
        return Answer(status, reason, _without_length(headers), (), 0)
    if again and request.method == "HEAD":
        return Answer(status, reason, headers, (), 0)
    if status == 206:
        return _recorded_part(stored, headers, size, request, again, decoded)
    if status in (412, 416) and not again and request.method in ("GET", "HEAD"):
        raise Refusal(
            f"the capture answered a condition, or a Range ({status}), and this request has another"
        )
    if 100 <= status < 200:
        raise Refusal(f"an interim answer ({status}) was recorded, and none after it")
    if status in BODILESS:
        return Answer(status, reason, _without_length(headers), (), 0)
    if status == 200 and request.method in ("GET", "HEAD") and not again:
        unheeded = _unheeded(stored, size, None if derived else recorded)
        _, known = _condition(stored, request, unheeded)
        if known == 304:
            kept = tuple((n, v) for n, v in headers if not _describes_body(n.lower()))
            return Answer(304, "Not Modified", kept, (), 0, decoded, "conditional")
        if known == 412:
            kept = (*((n, v) for n, v in headers if not _describes_body(n.lower())), ("Content-Length", "0"))
            return Answer(412, "Precondition Failed", kept, (), 0, decoded, "conditional")
        made = _ranged(stored, headers, size, request, decoded)
        if made is not None and "range" not in unheeded and _kind(request) not in unheeded:
            return made
    if request.method == "HEAD":
        if recorded is not None and recorded.method == "HEAD":
            return Answer(status, reason, headers, (), 0)  # with the length of the body that was not sent
        return Answer(status, reason, _with_length(headers, size), (), 0, decoded, "head")
    whole: tuple[Span, ...] = ((0, size if size is not None else -1),) if size != 0 else ()
    return Answer(status, reason, _with_length(headers, size), whole, size, decoded, derived)


def _asked_again(request: Request, recorded: Request | None) -> bool:
    """Return True if the request has the recorded one's conditions or range, and so gets the same answer."""
    if recorded is None or recorded.method != request.method:
        return False
    asked = request.conditional()
    return bool(asked) and asked == recorded.conditional()


def _unheeded(stored: Response, size: int | None, recorded: Request | None) -> set[str]:
    """Return the conditional fields that the server ignored: it sent the whole in spite of them."""
    found: set[str] = set()
    if recorded is None or not recorded.conditional():
        return found
    while (name := _condition(stored, recorded, found)[0]) is not None:
        found.add(name)
    if _ranged(stored, (), size, recorded, False) is not None:
        found.add(_kind(recorded))
    return found


def _kind(request: Request) -> str:
    """Return `ranges` for a Range of several parts, which fewer servers know, else `range`."""
    return "ranges" if "," in (request.header("range") or "") else "range"


def _ranged(
    stored: Response, headers: Headers, size: int | None, request: Request, decoded: bool
) -> Answer | None:
    value = request.header("range")
    if (
        request.method != "GET"
        or value is None
        or (stored.header("accept-ranges") or "").strip().lower() == "none"
    ):
        return None
    if not _if_range(request.header("if-range"), stored) or size is None:
        return None
    spans = parse(value, size)
    if spans is None:
        return None
    if not spans:
        kept = tuple((n, v) for n, v in headers if not _describes_body(n.lower()))
        unmet = (*kept, ("Content-Range", f"bytes */{size}"), ("Content-Length", "0"))
        return Answer(416, "Range Not Satisfiable", unmet, (), 0, decoded, "range")
    if len(spans) == 1:
        span = spans[0]
        length = span[1] - span[0]
        cut = (*_with_length(_of_part(headers), length), ("Content-Range", ranges.content_range(span, size)))
        return Answer(206, "Partial Content", cut, (span,), length, decoded, "range")
    media = stored.header("content-type")
    mark = ranges.boundary(f"{size} {stored.header('etag')} {stored.header('last-modified')} {value}")
    parts = ranges.multipart(spans, size, media, mark)
    length = sum(len(p) if isinstance(p, bytes) else p[1] - p[0] for p in parts)
    kept = tuple((n, v) for n, v in _with_length(_of_part(headers), length) if n.lower() != "content-type")
    kind = ("Content-Type", f"multipart/byteranges; boundary={mark}")
    return Answer(206, "Partial Content", (*kept, kind), tuple(parts), length, decoded, "range")


def _of_part(headers: Headers) -> Headers:
    """Remove the digests of the recorded bytes, as fewer are sent now (RFC 9530, 2)."""
    return tuple((n, v) for n, v in headers if n.lower() not in ("content-md5", "content-digest"))


def _recorded_part(
    stored: Response, headers: Headers, size: int | None, request: Request, again: bool, decoded: bool
) -> Answer:
    """Answer from a recorded 206: the very same request again, or a range within the recorded part."""
    asked, told = request.header("range"), stored.header("content-range")
    if asked is None:
        raise Refusal("only a part of the body was recorded (206), and the whole is asked for")
    if decoded:
        raise Refusal("the recorded part (206) is content-encoded, and the client can't read that encoding")
    have = recorded_span(told)
    several = have is None and (stored.header("content-type") or "").lower().startswith(
        "multipart/byteranges"
    )
    if size is None or not (several or (have is not None and have[1] - have[0] == size)):
        raise Refusal("the recorded 206 does not say which part it is")
    if again:
        return Answer(206, stored.reason, _with_length(headers, size), ((0, size),), size)
    if not _if_range(request.header("if-range"), stored):
        raise Refusal("only a part of the body was recorded (206), and If-Range asks for the whole")
    span = inside(asked, told)
    if have is None or span is None:
        raise Refusal(f"{asked} is asked for, and of the body {told or 'several parts'} were recorded (206)")
    first, last = span
    derived = "" if span == have[:2] else "range"
    fields = _of_part(headers) if derived else headers
    kept = tuple((n, v) for n, v in _with_length(fields, last - first) if n.lower() != "content-range")
    place = f"bytes {first}-{last - 1}/{have[2] if have[2] >= 0 else '*'}"
    part = first - have[0], last - have[0]
    return Answer(
        206, stored.reason, (*kept, ("Content-Range", place)), (part,), last - first, False, derived
    )


def _must_hold(stored: Response, request: Request, again: bool) -> None:
    """Raise Refusal unless the recorded 304 speaks of the client's copy."""
    tags, since = request.combined("if-none-match"), request.header("if-modified-since")
    if tags is not None:
        own = stored.header("etag")
        known = own is not None and _in_tags(own, tags)
    else:
        known = since is not None and not_after(stored.header("last-modified"), since)
    if not (known or again):
        raise Refusal("the capture is a 304, and this client does not say that it has that copy")


def _condition(
    stored: Response, request: Request, unheeded: Collection[str] = ()
) -> tuple[str | None, int | None]:
    """Return the request field that decides (RFC 9110, 13.2.2) and its result, 304 or 412.

    Both are None if no field decides. `unheeded` names the fields that the server ignores.
    """
    tag, modified = stored.header("etag"), stored.header("last-modified")
    match, unmodified = request.combined("if-match"), request.header("if-unmodified-since")
    if match is not None:
        met = match.strip() == "*" or (tag is not None and not tag.startswith("W/") and tag in _tags(match))
        if not met and "if-match" not in unheeded:
            return "if-match", 412
    elif unmodified is not None and modified is not None and "if-unmodified-since" not in unheeded:
        met = not_after(modified, unmodified)
        if not met:
            return "if-unmodified-since", 412
    tags, since = request.combined("if-none-match"), request.header("if-modified-since")
    if tags is not None:
        met = tags.strip() == "*" or (tag is not None and _in_tags(tag, tags))
        if met and "if-none-match" not in unheeded:
            return "if-none-match", 304
    elif since is not None and not_after(modified, since) and "if-modified-since" not in unheeded:
        return "if-modified-since", 304
    return None, None


def _tags(field: str) -> list[str]:
    return re.findall(r'(?:W/)?"[^"]*"', field) or [field.strip()]


def _in_tags(tag: str, field: str) -> bool:
    """Return True if a tag is in a field by weak comparison (RFC 9110, 8.8.3.2)."""
    return tag.strip().removeprefix("W/") in [t.removeprefix("W/") for t in _tags(field)]


def _if_range(value: str | None, stored: Response) -> bool:
    """Return True if a Range applies: no If-Range, or one that names this representation (strongly)."""
    if value is None:
        return True
    value = value.strip()
    if value.startswith('"'):
        return stored.header("etag") == value
    return not value.startswith("W/") and stored.header("last-modified") == value


def _describes_body(name: str) -> bool:
    return name.startswith("content-") and name not in (
        "content-location",
        "content-security-policy",
        "content-security-policy-report-only",
    )


def clean(headers: Headers, *, decoded: bool = False) -> Headers:
    """Return the headers that may go to a client: no hop-by-hop fields, no malformed names.

    Fields that `Connection` names for another reason stay: browsers and other clients heed them (even
    Set-Cookie), and the recorder passed them on. With `decoded`, fields about the encoded bytes are removed
    too.
    """
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        lower = name.lower()
        if lower in HOP_BY_HOP or not _TOKEN.fullmatch(name):
            continue
        if lower.startswith("stillweb-") or (decoded and lower in OF_ENCODED):
            continue
        kept.append((name, _UNSAFE.sub(" ", value) if _UNSAFE.search(value) else value))
    return tuple(kept)


def _with_length(headers: Headers, size: int | None) -> Headers:
    """Return the headers with one Content-Length, in its old place; none if the size is unknown."""
    out: list[tuple[str, str]] = []
    placed = size is None
    for name, value in headers:
        if name.lower() == "content-length":
            if placed:
                continue
            placed = True
            value = str(size)
        out.append((name, value))
    if not placed:
        out.append(("Content-Length", str(size)))
    return tuple(out)


def _without_length(headers: Headers) -> Headers:
    return tuple((n, v) for n, v in headers if n.lower() != "content-length")
