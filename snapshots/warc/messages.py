"""HTTP messages in records: parsing, serializing, and headers corrected to match the stored body.

Archives made by other tools keep headers that no longer describe the stored body: chunked transfer coding
on a de-chunked body, a content encoding on a decoded one, wrong lengths. `agree` corrects the headers,
never the payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stillweb.snapshots.cache import cached
from stillweb.snapshots.capture import Response
from stillweb.snapshots.decompression import DEFLATE, GZIP, ZLIB, Brotli, Inflate, Stream
from stillweb.snapshots.http.encodings import (
    KNOWN,
    EncodingProblem,
    LongBody,
    codings,
    decode_pieces,
    one_coding,
)
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc.warc import end_of_head, in_utf8, is_regular
from stillweb.snapshots.words import whole_number

# SHOUTcast says "ICY 200 OK", which browsers read as HTTP/1.0
_STATUS = re.compile(r"(?:HTTP/[0-9.]+|ICY)[ \t]+([0-9]{3})(?:[ \t]+(.*))?$", re.I)
_REGULAR_STATUS = re.compile(rb"HTTP/1\.[0-9] [0-9]{3}[ \r]")
_REQUEST = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) +(\S.*?)(?: +HTTP/[0-9.]+)?$")
_TEXTUAL = re.compile(r"text/|json|javascript|ecmascript|xml|x-www-form-urlencoded")
_BODILESS = frozenset({204, 304})
# ASCII white space only: bytes 85 and A0 are spaces in Latin-1, but parts of letters in UTF-8.
_SPACE = " \t\r\n\v\f"
SAMPLE = 1 << 16  # bytes of a body that suffice to verify its encoding
SEEN = 1 << 24  # uncompressed bytes after which verification stops


def split(block: bytes) -> tuple[str, Headers, int]:
    """Return start line, headers and offset of the body, or ("", (), 0) if there is no HTTP head."""
    end = end_of_head(block)
    if end is None:
        if not block.startswith(b"HTTP/") and not _REQUEST.match(
            block[:4096].decode("latin-1").split("\r\n")[0]
        ):
            return "", (), 0
        stop = start = len(block)  # a head without its final empty line has no body
    else:
        stop, start = end
    head = block[:stop]
    if is_regular(head):
        first, _, rest = head.partition(b"\r\n")
        return first.decode("latin-1").rstrip(_SPACE), _fields(rest), start
    lines = head.decode("latin-1").replace("\r", "").split("\n")
    headers: list[tuple[str, str]] = []
    for line in lines[1:]:
        if line[:1] in (" ", "\t") and headers:
            name, value = headers[-1]
            headers[-1] = (name, f"{value} {line.strip(_SPACE)}")
            continue
        name, colon, value = line.partition(":")
        if colon and name.strip():
            headers.append((name.strip(), value.strip(_SPACE)))
    return lines[0].rstrip(_SPACE), tuple(headers), start


@cached
def _fields(lines: bytes) -> Headers:
    """Parse the fields of a regular head without its start line. Cached: clients repeat their heads."""
    parts = [line.partition(":") for line in lines.decode("latin-1").split("\r\n")]
    return tuple([(n, v.strip(_SPACE)) for n, colon, v in parts if colon and n])


def head_facts(head: bytes) -> tuple[int, str, tuple[str, ...], bool] | None:
    """Return status, Content-Type, the request fields named in Vary, and whether it sets cookies, of a response head.

    None if it is none. Much faster than `split`, for indexing. Accept-Encoding is left out: the server of a snapshot honours
    it.
    """
    if not _REGULAR_STATUS.match(head) or not is_regular(head):
        line, headers, _ = split(head)
        status = status_line(line)
        if status is None:
            return None
        media = next((v for n, v in headers if n.lower() == "content-type"), "")
        return status[0], media, vary_of(headers), bool(set_cookies(headers))
    low = head.lower()
    names: tuple[str, ...] = ()
    if b"\r\nvary:" in low:
        names = vary_of(split(head)[1])
    at = low.find(b"\r\ncontent-type:")
    media = head[at + 15 : low.find(b"\r\n", at + 15)].decode("latin-1").strip() if at >= 0 else ""
    return int(head[9:12]), media, names, b"\r\nset-cookie" in low


def vary_of(headers: Headers) -> tuple[str, ...]:
    """Return the request fields named in Vary, in lower case and sorted, without Accept-Encoding."""
    names = {
        name.strip().lower()
        for field_name, value in headers
        if field_name.lower() == "vary"
        for name in value.split(",")
    }
    return tuple(sorted(names - {"", "accept-encoding"}))


def set_cookies(headers: Headers) -> list[str]:
    """Return the values of all Set-Cookie fields."""
    return [value for name, value in headers if name.lower() == "set-cookie"]


def vary_values(names: tuple[str, ...], headers: Headers) -> tuple[tuple[str, str], ...]:
    """Return each field name with the request's value, or "" if the request lacks the field."""
    return tuple((n, ", ".join(v for h, v in headers if h.lower() == n)) for n in names)


def parse_request(block: bytes, uri: str) -> Request:
    """Parse the block of a `request` record. `uri`, the record's target URI, is the absolute URL."""
    line, headers, start = split(block)
    match = _REQUEST.match(line)
    url = uri.partition("#")[0]
    if match is None:
        return Request("GET", url, headers).signed_in()
    body = block[start:]
    if is_chunked(headers):
        body = dechunk(body)
    return Request(match[1], url, headers, body).signed_in()


def status_line(line: str) -> tuple[int, str] | None:
    """Return status and reason (which may be empty) of a status line, or None if the line is none."""
    match = _STATUS.match(line)
    return (int(match[1]), (match[2] or "").strip()) if match else None


def parse_response(block: bytes, *, ours: bool, method: str = "GET") -> Response:
    """Parse the block of a `response` record. `ours`: written by Stillweb, its headers are right."""
    line, headers, start = split(block)
    status = status_line(line)
    if status is None:  # no HTTP head: the block is the payload
        return Response(200, "OK", (("Content-Length", str(len(block))),), block)
    body = block[start:]
    if ours:
        return Response(*status, headers, body)
    if is_chunked(headers):
        body = dechunk(body)
    return Response(*status, agree(headers, body, len(body), status[0], method), body)


def resource_response(media: str, block: bytes) -> Response:
    """Return the response for a `resource` record with an http address."""
    headers = [("Content-Type", media)] if media else []
    return Response(200, "OK", (*headers, ("Content-Length", str(len(block)))), block)


_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,64})?\r\n")
MOST_UNPACKED = 1 << 24  # bytes of a packed body whose end is looked for


def is_chunked(headers: Headers) -> bool:
    """Return True if the headers declare chunked transfer coding."""
    return any(n.lower() == "transfer-encoding" and "chunked" in v.lower() for n, v in headers)


def is_encoded(body: bytes, encoding: str) -> bool:
    """Return True if a body (at least its first 64 KiB) really has the content encoding `encoding`."""
    sample = body[:SAMPLE]
    if encoding in ("gzip", "x-gzip"):
        return sample[:2] == b"\x1f\x8b" and _unpacks(sample, Inflate(GZIP))
    if encoding == "deflate":
        # Decode bare deflate to its end if the sample is complete: some texts begin like bare deflate.
        return _unpacks(sample, Inflate(ZLIB)) or _unpacks(
            sample, Inflate(DEFLATE), whole=len(body) <= SAMPLE
        )
    if encoding == "zstd":
        return sample[:4] == b"\x28\xb5\x2f\xfd"
    if encoding == "br":
        return _unpacks(sample, Brotli(), whole=len(body) <= SAMPLE)
    return True  # unknown encoding: no evidence against it


def _unpacks(sample: bytes, stream: Stream, *, whole: bool = False) -> bool:
    """Return True if the inspected part of a sample decompresses; with `whole`, it must reach the end."""
    seen = 0
    try:
        for part in stream.feed(sample):
            seen += len(part)
            if seen > SEEN:
                return True
    except ValueError:
        return False
    return stream.eof or not whole


def cut_short(block: bytes, method: str) -> str:
    """Return why the body in the block of a foreign `response` record is incomplete, "" if nothing says so."""
    line, headers, start = split(block)
    status = status_line(line)
    body = block[start:]
    if is_chunked(headers):
        if _lacks_last_chunk(body):
            return "its last chunk is missing"
        body = dechunk(body)
    return "" if status is None else incomplete(status[0], headers, body, method)


def incomplete(status: int, headers: Headers, body: bytes, method: str) -> str:
    """Return why a transfer-decoded body is not all that its fields tell, "" if nothing says so."""
    if method == "HEAD" or status in _BODILESS or status < 200:
        return ""
    fields = {n.lower(): v for n, v in headers}
    coding = ", ".join(codings(fields.get("content-encoding")))
    packed = begins_packed(body, coding)
    if not is_chunked(headers) and (packed or not coding or not body):
        length = whole_number(fields.get("content-length", "").strip())
        if length is not None and len(body) < length:
            return f"it has {len(body)} bytes of {length}"
    return half_packed(body, coding)


def half_packed(body: bytes, coding: str) -> str:
    """Return a message if a body can't be unpacked to its end; "" if it can, is not packed or is too large to try."""
    if not body or not coding or len(body) > MOST_UNPACKED or not KNOWN.issuperset(codings(coding)):
        return ""
    try:
        for _ in decode_pieces([body], coding):
            pass
    except LongBody:
        return ""
    except EncodingProblem:
        return f"its {coding} can't be unpacked to its end" if begins_packed(body, coding) else ""
    return ""


def _lacks_last_chunk(body: bytes) -> bool:
    """Return True if a body that is still chunked has no last chunk (RFC 9112, 7.1)."""
    at = 0
    while (found := _CHUNK.match(body, at)) is not None:
        size = int(found[1], 16)
        if size == 0:
            return False
        at = found.end() + size
        if body[at : at + 2] != b"\r\n":
            return at >= len(body)
        at += 2
    return 0 < at == len(body)  # else it is not chunked any more


def begins_packed(body: bytes, coding: str) -> bool:
    """Return True if the first bytes of a body are those of the content encodings in `coding`."""
    if not coding or _reads_as_text(body):
        return False
    last = codings(coding)[-1]
    if last in ("gzip", "x-gzip"):
        return body.startswith(b"\x1f\x8b\x08")
    begun: dict[str, Stream] = {"br": Brotli(), "deflate": Inflate(DEFLATE)}
    return is_encoded(body, last) or (last in begun and _unpacks(body[:SAMPLE], begun[last]))


def agree(headers: Headers, sample: bytes, size: int, status: int, method: str) -> Headers:
    """Return headers that describe a transfer-decoded body of `size` bytes that begins with `sample`."""
    # a transfer coding that packs (RFC 9112, 7.2) is undone like a content coding, of which it is the last
    transfer = (c for n, v in headers if n.lower() == "transfer-encoding" for c in codings(v))
    headers = one_coding((*headers, *(("Content-Encoding", one) for one in transfer if one != "chunked")))
    names = {n.lower() for n, _ in headers}
    kept: list[tuple[str, str]] = []
    length_at = -1
    encodings = [
        e.strip().lower()
        for n, v in headers
        if n.lower() == "content-encoding"
        for e in v.split(",")
        if e.strip()
    ]
    # only the outermost encoding can be verified
    last = encodings[-1] if sample and encodings else ""
    plain = bool(last) and not is_encoded(sample, last) and not begins_packed(sample, last)
    for name, value in headers:
        lower = name.lower()
        if lower in ("transfer-encoding", "x-orig-transfer-encoding", "x-orig-content-length"):
            continue
        if lower == "content-length":
            if length_at < 0:
                length_at = len(kept)
                kept.append((name, value))
            continue
        if lower == "content-encoding" and plain:
            continue
        if lower == "x-orig-content-encoding":
            media = next((v for n, v in headers if n.lower() == "content-type"), "")
            if "content-encoding" in names or not _still_encoded(sample, value, media):
                continue
            name = "Content-Encoding"
        kept.append((name, value))
    if size == 0 and (method == "HEAD" or status in _BODILESS or 100 <= status < 200):
        return tuple(kept)  # keep Content-Length: it describes the body that was not sent
    if length_at < 0:
        kept.append(("Content-Length", str(size)))
    else:
        kept[length_at] = (kept[length_at][0], str(size))
    return tuple(kept)


def _still_encoded(sample: bytes, value: str, media: str) -> bool:
    """Return True if a text still has the encoding from X-Orig-Content-Encoding.

    Only texts are checked: a download may be a gzip file by nature.
    """
    encoding = value.strip().lower()
    known = encoding in ("gzip", "x-gzip", "deflate", "br", "zstd")
    if not (known and sample and _TEXTUAL.search(media)) or _reads_as_text(sample):
        return False
    return is_encoded(sample, encoding)


def _reads_as_text(sample: bytes) -> bool:
    """Return True if the start of a body is printable ASCII, as no packed text is.

    Brotli also takes texts for stored blocks: b"/**\\n" is the head of one (RFC 7932, 9.2).
    """
    return all(32 <= byte < 127 or byte in b"\t\r\n\f" for byte in sample[:1024])


def _head(lines: list[str]) -> bytes:
    text = "\r\n".join(line.replace("\r", " ").replace("\n", " ") for line in lines) + "\r\n\r\n"
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return in_utf8(text)


def request_block(request: Request) -> bytes:
    """Serialize a request as HTTP/1.1, whatever version carried it, with an unchunked body."""
    target = request.url.partition("://")[2]
    slash = min((i for i in (target.find("/"), target.find("?")) if i >= 0), default=len(target))
    path = target[slash:] or "/"
    if path.startswith("?"):
        path = "/" + path
    lines = [f"{request.method} {path} HTTP/1.1"]
    lines += [f"{n}: {v}" for n, v in request.headers if n.lower() != "transfer-encoding"]
    return _head(lines) + request.body


def response_head(status: int, reason: str, headers: Headers, size: int, method: str) -> bytes:
    """Return the head of a transfer-decoded body of `size` bytes, framed by Content-Length only."""
    bodiless = size == 0 and (method == "HEAD" or status in _BODILESS or 100 <= status < 200)
    lines = [f"HTTP/1.1 {status} {reason}".rstrip() if not reason else f"HTTP/1.1 {status} {reason}"]
    if not reason:
        lines[0] += " "  # RFC 9112, 4: the space stays when the reason is empty
    framed = False
    for name, value in headers:
        lower = name.lower()
        if lower == "transfer-encoding":
            continue
        if lower == "content-length":
            if framed:
                continue
            framed = True
            if not bodiless:
                value = str(size)
        lines.append(f"{name}: {value}")
    if not framed and not bodiless:
        lines.append(f"Content-Length: {size}")
    return _head(lines)


LINE = 64  # bytes within which a chunk's header line must end
TRAILERS = 1 << 16  # maximum bytes of trailers

_TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n]*\r\n)+(?:\r\n)?")


def dechunk(body: bytes) -> bytes:
    """Decode a whole chunked body (RFC 9112, 7.1); see `dechunked`."""
    return b"".join(dechunked([body]))


def dechunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a body without chunk headers and trailers (RFC 9112, 7.1), with at most one chunk in memory.

    Some archives store chunked bodies undecoded, and malformed. From the first malformed chunk on, all bytes are
    passed through, except two bytes where a line break is missing. The output equals warcio's, which leaves trailers
    in, to the byte.
    """
    body = _Ahead(pieces)
    while True:
        lead = body.peek(LINE)
        line = lead[: lead.find(b"\n") + 1 or LINE]
        size = _chunk_size(line)
        if size < 0:
            break
        start = len(line)
        if size == 0:
            tail = body.peek(start + TRAILERS)[start:]
            if tail.startswith(b"\r\n") or (len(tail) < TRAILERS and _TRAILERS.fullmatch(tail)):
                return
            body.skip(start + 2)
            yield line
            break
        chunk = body.peek(start + size + 2)
        data, terminator = chunk[start : start + size], chunk[start + size :]
        if len(data) == size and terminator != b"\r\n":
            body.skip(start + size + 2)
            yield line + data
            break
        yield data
        if len(data) < size:
            return
        body.skip(start + size + 2)
    yield from body.rest()


class _Ahead:
    """A look-ahead buffer over an iterator of bytes."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._here = b""
        self._at = 0

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes, or fewer at the end, without consuming them."""
        missing = count - (len(self._here) - self._at)
        if missing > 0:
            parts = [self._here[self._at :]]
            while missing > 0 and (piece := next(self._pieces, None)) is not None:
                parts.append(piece)
                missing -= len(piece)
            self._here, self._at = b"".join(parts), 0
        return self._here[self._at : self._at + count]

    def skip(self, count: int) -> None:
        """Consume `count` bytes that `peek` has returned."""
        self._at += count

    def rest(self) -> Iterator[bytes]:
        yield self._here[self._at :]
        yield from self._pieces


def _chunk_size(line: bytes) -> int:
    if not line.endswith(b"\r\n"):
        return -1
    digits = line[:-2].split(b";")[0].strip()
    try:
        size = int(digits, 16)
    except ValueError:
        return -1
    return size if 0 <= size <= 1 << 31 else -1
