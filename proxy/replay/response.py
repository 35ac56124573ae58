"""Responses made from captures: fields, content codings, cookies, byte ranges (RFC 9110, 14) and streamed parts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from stillweb.snapshots.cache import cached
from stillweb.snapshots.capture import Response
from stillweb.snapshots.dates import not_after, parse_timestamp
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.header_values import TRAILER, is_grpc, items_of, split_trailers
from stillweb.snapshots.http.spans import Span, covered_range, is_whole, parse, recorded_span
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.words import whole_number

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot


def content_range(span: Span, size: int) -> str:
    return f"bytes {span[0]}-{span[1] - 1}/{size}"


def boundary(seed: str) -> str:
    """Return a multipart boundary that depends only on `seed`."""
    return "stillweb" + hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def multipart(spans: list[Span], size: int, media: str | None, mark: str) -> list[bytes | Span]:
    """Return the body of a multipart/byteranges answer: literal bytes, and spans of the whole in between."""
    parts: list[bytes | Span] = []
    kind = f"Content-Type: {media}\r\n" if media else ""
    for number, span in enumerate(spans):
        head = f"{'' if number == 0 else chr(13) + chr(10)}--{mark}\r\n{kind}Content-Range: {content_range(span, size)}\r\n\r\n"
        parts += [head.encode("latin-1", "replace"), span]
    parts.append(f"\r\n--{mark}--\r\n".encode())
    return parts


ASKED = 32  # recorded requests that are examined


def coding(stored: Response) -> str | None:
    """Return the Content-Encoding of a response, its lines joined; None if it has none."""
    return ", ".join(v for n, v in stored.headers if n.lower() == "content-encoding") or None


def accepts_coding(stored: Response, request: Request) -> bool:
    """Return True if the client accepts the stored content encoding, or if we don't know that encoding."""
    names = encodings.codings(coding(stored))
    return not names or not encodings.KNOWN.issuperset(names) or _reads(request, names)


def must_decode(snapshot: Snapshot, capture: Capture, stored: Response, request: Request) -> bool:
    """Return True if the stored body must be decoded for the client.

    A server that sent this very response to a client that does not accept its encoding sends it to all
    clients. Apache, for example, labels a `.tar.gz` as encoded, and a client that asks for it without
    Accept-Encoding keeps it as it comes. Raises Refusal for a body that is packed with a dictionary which the client lacks.
    """
    _check_dictionary(snapshot, capture, stored, request)
    return not accepts_coding(stored, request) and all(
        accepts_coding(stored, recorded) for recorded in islice(_asked(snapshot, capture), ASKED)
    )


# Bytes before the hash of the dictionary, at the start of a body (RFC 9842, 4 and 5)
_DICTIONARY = {"dcb": 4, "dcz": 8}


def _check_dictionary(snapshot: Snapshot, capture: Capture, stored: Response, request: Request) -> None:
    """Raise Refusal for a body that is packed with a dictionary, unless the client tells to have that one."""
    start = next(
        (_DICTIONARY[name] for name in encodings.codings(coding(stored)) if name in _DICTIONARY), None
    )
    if start is None:
        return
    with snapshot.open_body(capture) as body:
        digest = body.read(start + 32)[start:]
    if request.header("available-dictionary") != f":{base64.b64encode(digest).decode()}:":
        raise Refusal("its body is packed with a dictionary that the client does not have")


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


@cached
def _accepts(field: str, coding: str) -> bool:
    """Return True if an Accept-Encoding field allows a coding (RFC 9110, 12.5.3).

    A client that names no coding gets none, as servers do it.
    """
    wanted = {item.name: item.weight > 0 for item in reversed(items_of(field))}
    plain = {"x-gzip": "gzip"}.get(coding, coding)
    return next((wanted[name] for name in (plain, coding, "*") if name in wanted), False)


AGED = "cookie-age"  # its name in the ledger and in `Stillweb-Derived`

_EXPIRES = re.compile(r";\s*expires\s*=\s*([^;]*)", re.IGNORECASE)
_MAX_AGE = re.compile(r";\s*max-age\s*=", re.IGNORECASE)

# The parts of a date, in any order (RFC 6265, 5.1.1).
_BETWEEN = re.compile(r"[\t -/;-@\[-`{-~]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)")
_DAY = re.compile(r"(\d{1,2})(?!\d)")
_YEAR = re.compile(r"(\d{2,4})(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def with_ages(headers: Headers, recorded: str) -> Headers:
    """Return the headers with a Max-Age for each cookie that has only an Expires.

    `recorded` is a timestamp of at least 14 digits. Returns the same object if nothing changes. A cookie that
    had already expired when it was recorded (a deletion) stays as it is.
    """
    if not any(name.lower() == "set-cookie" for name, _ in headers):
        return headers
    out = tuple((n, _aged(v, recorded) if n.lower() == "set-cookie" else v) for n, v in headers)
    return headers if out == headers else out


def _aged(value: str, recorded: str) -> str:
    found = _EXPIRES.search(value)
    if found is None or _MAX_AGE.search(value):
        return value
    last = cookie_date(found[1])
    moment = parse_timestamp(recorded[:14])
    if last is None or moment is None or last <= moment:
        return value
    return f"{value}; Max-Age={int((last - moment).total_seconds())}"


def cookie_date(text: str) -> datetime | None:
    """Parse a cookie date as clients do (RFC 6265, 5.1.1), ignoring zones. Return None if it is none.

    `http.cookiejar` can't serve: it derives the century of "70" from today's clock.
    """
    time = day = month = year = None
    for token in _BETWEEN.split(text):
        if time is None and (found := _TIME.match(token)):
            time = found
        elif day is None and (found := _DAY.match(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _YEAR.match(token)):
            year = int(found[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    try:
        hour, minute, second = map(int, time.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC) if year >= 1601 else None
    except ValueError:
        return None


PIECE = 1 << 17  # bytes read at a time


def read_head(snapshot: Snapshot, capture: Capture) -> tuple[Response, int]:
    """Return a capture's response without its body, and the number of bytes stored of the body."""
    stored = snapshot.head(capture)
    length = whole_number(stored.header("content-length") or "")
    if length is not None:
        return stored, length
    return stored, sum(len(p) for p in stored_pieces(snapshot, capture, None))


def stored_pieces(snapshot: Snapshot, capture: Capture, encoding: str | None) -> Iterator[bytes]:
    """Yield a capture's body, decoded from `encoding` if given. Raises encodings.EncodingProblem."""
    with snapshot.open_body(capture) as file:
        yield from encodings.decode_pieces(iter(lambda: file.read(PIECE), b""), encoding)


def cut(pieces: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a stream from `start` up to `stop` (-1: to the end)."""
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), len(piece) if stop < 0 else min(stop - at, len(piece))
        if first < last:
            yield piece[first:last]
        at += len(piece)
        if 0 <= stop <= at:
            return


# RFC 9110, 7.6.1, with what older software sends
HOP_BY_HOP = frozenset(
    [
        "connection", "keep-alive", "proxy-authenticate", "proxy-authentication-info",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
        "http2-settings"
    ]
)  # fmt: skip
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
class PlannedResponse:
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
    return b"".join(part if isinstance(part, bytes) else body[part[0] : part[1]] for part in parts)


def plan(
    stored: Response,
    size: int | None,
    request: Request,
    recorded: Request | None = None,
    *,
    decoded: bool = False,
) -> PlannedResponse:
    """Plan the answer to `request` from `stored`. Raises Refusal.

    The stored body has `size` bytes; `stored.body` is not read. `size` None (a large body that would have to
    be decoded first) allows only the whole.
    """
    head, trailers = split_trailers(stored.headers, size)
    if size and is_grpc(head) and not any(n.lower() == "grpc-status" for n, _ in trailers):
        raise Refusal("the status of this gRPC call was not recorded: it was in the trailers")
    if not trailers:
        return _planned(stored, size, request, recorded, decoded)
    made = _planned(replace(stored, headers=head), size, request, recorded, decoded)
    if request.method == "HEAD" or made.status in BODILESS or made.derived not in ("", "whole"):
        return made
    # a client that reads chunks does not know their length beforehand
    declared = tuple(f for f in head if f[0].lower() == TRAILER)
    return replace(
        made,
        headers=(*_without_length(made.headers), *declared),
        trailers=clean(trailers, decoded=decoded),
    )


def _planned(
    stored: Response, size: int | None, request: Request, recorded: Request | None, decoded: bool
) -> PlannedResponse:
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
        return PlannedResponse(status, reason, _without_length(headers), (), 0)
    if again and request.method == "HEAD":
        return PlannedResponse(status, reason, headers, (), 0)
    if status == 206:
        return _recorded_part(stored, headers, size, request, again, decoded)
    if status in (412, 416) and not again and request.method in ("GET", "HEAD"):
        raise Refusal(
            f"the capture answered a condition, or a Range ({status}), and this request has another"
        )
    if 100 <= status < 200:
        raise Refusal(f"an interim answer ({status}) was recorded, and none after it")
    if status in BODILESS:
        return PlannedResponse(status, reason, _without_length(headers), (), 0)
    if status == 200 and request.method in ("GET", "HEAD") and not again:
        unheeded = _ignored_conditionals(stored, size, None if derived else recorded)
        _, known = _condition(stored, request, unheeded)
        if known == 304:
            kept = tuple((n, v) for n, v in headers if not _describes_body(n.lower()))
            return PlannedResponse(304, "Not Modified", kept, (), 0, decoded, "conditional")
        if known == 412:
            kept = (*((n, v) for n, v in headers if not _describes_body(n.lower())), ("Content-Length", "0"))
            return PlannedResponse(412, "Precondition Failed", kept, (), 0, decoded, "conditional")
        made = _ranged(stored, headers, size, request, decoded)
        if made is not None and "range" not in unheeded and _kind(request) not in unheeded:
            return made
    if request.method == "HEAD":
        if recorded is not None and recorded.method == "HEAD":
            # with the length of the body that was not sent
            return PlannedResponse(status, reason, headers, (), 0)
        return PlannedResponse(status, reason, _with_length(headers, size), (), 0, decoded, "head")
    whole: tuple[Span, ...] = ((0, size if size is not None else -1),) if size != 0 else ()
    return PlannedResponse(status, reason, _with_length(headers, size), whole, size, decoded, derived)


def _asked_again(request: Request, recorded: Request | None) -> bool:
    """Return True if the request has the recorded one's conditions or range, and so gets the same answer."""
    if recorded is None or recorded.method != request.method:
        return False
    asked = request.conditional()
    return bool(asked) and asked == recorded.conditional()


def _ignored_conditionals(stored: Response, size: int | None, recorded: Request | None) -> set[str]:
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
) -> PlannedResponse | None:
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
        return PlannedResponse(416, "Range Not Satisfiable", unmet, (), 0, decoded, "range")
    if len(spans) == 1:
        span = spans[0]
        length = span[1] - span[0]
        cut = (*_with_length(_of_part(headers), length), ("Content-Range", content_range(span, size)))
        return PlannedResponse(206, "Partial Content", cut, (span,), length, decoded, "range")
    media = stored.header("content-type")
    mark = boundary(f"{size} {stored.header('etag')} {stored.header('last-modified')} {value}")
    parts = multipart(spans, size, media, mark)
    length = sum(len(p) if isinstance(p, bytes) else p[1] - p[0] for p in parts)
    kept = tuple((n, v) for n, v in _with_length(_of_part(headers), length) if n.lower() != "content-type")
    kind = ("Content-Type", f"multipart/byteranges; boundary={mark}")
    return PlannedResponse(206, "Partial Content", (*kept, kind), tuple(parts), length, decoded, "range")


def _of_part(headers: Headers) -> Headers:
    """Remove the digests of the recorded bytes, as fewer are sent now (RFC 9530, 2)."""
    return tuple((n, v) for n, v in headers if n.lower() not in ("content-md5", "content-digest"))


def _recorded_part(
    stored: Response, headers: Headers, size: int | None, request: Request, again: bool, decoded: bool
) -> PlannedResponse:
    """Answer from a recorded 206: the very same request again, or a range within the recorded part."""
    asked, told = request.header("range"), stored.header("content-range")
    if asked is None:
        raise Refusal("only a part of the body was recorded (206), and the whole is asked for")
    if decoded:
        raise Refusal(
            "the recorded part (206) is content-encoded, and the client does not accept that encoding"
        )
    have = recorded_span(told)
    several = have is None and (stored.header("content-type") or "").lower().startswith(
        "multipart/byteranges"
    )
    # only the origin knows how many bytes a range of another unit has (RFC 9110, 14.1)
    unit = (told or "").strip().lower().partition(" ")[0]
    foreign = again and unit not in ("", "bytes")
    if size is None or not (several or foreign or (have is not None and have[1] - have[0] == size)):
        raise Refusal("the recorded 206 does not say which part it is")
    if again:
        return PlannedResponse(206, stored.reason, _with_length(headers, size), ((0, size),), size)
    if not _if_range(request.header("if-range"), stored):
        raise Refusal("only a part of the body was recorded (206), and If-Range asks for the whole")
    span = covered_range(asked, told)
    if have is None or span is None:
        raise Refusal(f"{asked} is asked for, and of the body {told or 'several parts'} were recorded (206)")
    first, last = span
    derived = "" if span == have[:2] else "range"
    fields = _of_part(headers) if derived else headers
    kept = tuple((n, v) for n, v in _with_length(fields, last - first) if n.lower() != "content-range")
    place = f"bytes {first}-{last - 1}/{have[2] if have[2] >= 0 else '*'}"
    part = first - have[0], last - have[0]
    return PlannedResponse(
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
        raise Refusal(
            "the capture is a 304, and this client does not say that it has the copy that it confirms"
        )


def _condition(
    stored: Response, request: Request, unheeded: Collection[str] = ()
) -> tuple[str | None, int | None]:
    """Return the request field that decides (RFC 9110, 13.2.2) and its result, 304 or 412.

    Both are None if no field decides. `unheeded` names the fields that the server ignores.
    """
    tag, modified = stored.header("etag"), stored.header("last-modified")
    match, unmodified = request.combined("if-match"), request.header("if-unmodified-since")
    if match is not None:
        holds = match.strip() == "*" or (tag is not None and not tag.startswith("W/") and tag in _tags(match))
        if not holds and "if-match" not in unheeded:
            return "if-match", 412
    elif unmodified is not None and modified is not None and "if-unmodified-since" not in unheeded:
        holds = not_after(modified, unmodified)
        if not holds:
            return "if-unmodified-since", 412
    tags, since = request.combined("if-none-match"), request.header("if-modified-since")
    if tags is not None:
        holds = tags.strip() == "*" or (tag is not None and _in_tags(tag, tags))
        if holds and "if-none-match" not in unheeded:
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
