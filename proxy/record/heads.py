"""Heads of answers as browsers read them, made into heads that all read alike. Bytes in, bytes out.

Origins send what no standard allows and every browser takes: a line without a colon, a blank before it, the same
Content-Length twice. mitmproxy refuses such an answer, or passes on what others would split differently. Here fields
that no client reads are left out, and the length of the body is said once. What clients read differently is refused.
"""

from __future__ import annotations

import re

MOST = 1 << 20  # bytes of a head; Chromium takes 256 KiB, curl 300 kB
SLOP = 4  # bytes of an answer before that may stand in front of the status line, as in Chromium
TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"  # RFC 9110, 5.6.2: what a field may be called
PACKING = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"})  # RFC 9112, 7.2

_LENGTHS = (b"content-length", b"transfer-encoding")

_TOKEN = re.compile(TOKEN)
_PLAIN = re.compile(rb"HTTP/1\.[01] [2-9][0-9]{2}(?: [^\r\n\0]*+)?\r\n(?:%b:[^\r\n\0]*+\r\n)*\r\n" % TOKEN)
_FRAMING = re.compile(rb"\n(?:content-length|transfer-encoding)[^\n]*", re.I)
_LENGTH = re.compile(rb"\ncontent-length:[ \t]*(?:0|[1-9][0-9]{0,17})[ \t]*\r", re.I)
_CHUNKED = re.compile(rb"\ntransfer-encoding:[ \t]*chunked[ \t]*\r", re.I)
_END = re.compile(rb"\n\r?\n")
_STATUS = re.compile(rb"http(?:/([0-9]+)(?:\.([0-9])[0-9]*)?)?[ \t]+0*([0-9]+)[ \t]*(.*)", re.I | re.S)


class Refused(Exception):
    """An answer that clients read differently, or not at all. The message says why; it quotes nothing of a body."""


def mended_head(data: bytes) -> bytes | None:
    """The bytes of an answer with its head mended; None where there is nothing to mend, or not all of the head yet.

    Raises Refused.
    """
    plain = _PLAIN.match(data)
    if plain is not None and _framed_plainly(data, plain.end()):
        return None
    start = data[: SLOP + 4].lower().find(b"http")
    if start < 0:
        if len(data) < SLOP + 4:
            return None
        raise Refused("its answer is no HTTP/1: it begins with no status line")
    end = _END.search(data, start)
    if end is None:
        if len(data) > MOST:
            raise Refused(f"the head of its answer is longer than {MOST} bytes")
        return None
    return _mended(data[start : end.start()]) + data[end.end() :]


def _framed_plainly(data: bytes, end: int) -> bool:
    """Whether the fields of a head that say how long the body is are none, or one that can't be misread."""
    found = _FRAMING.findall(data, 0, end)
    if not found:
        return True
    if len(found) > 1:
        return False
    if _LENGTH.fullmatch(found[0]):
        return True
    # HTTP/1.0 has no chunks, nor has an answer without a body
    return data[7:8] == b"1" and data[9:12] != b"204" and _CHUNKED.fullmatch(found[0]) is not None


def _mended(head: bytes) -> bytes:
    if b"\0" in head:
        raise Refused("there is a NUL in the head of its answer")
    first, *lines = [line.removesuffix(b"\r").replace(b"\r", b" ") for line in head.split(b"\n")]
    status = _STATUS.match(first)
    if status is None or not 100 <= int(status[3][:4]) <= 999:
        said = first[:60].decode("latin-1")
        raise Refused(f"the status line of its answer has no status: {said!r}")
    newer = (int((status[1] or b"1")[:4]), int(status[2] or b"0")) >= (1, 1)
    fields: list[tuple[bytes, bytes]] = []
    dropped = True  # what a line that begins with a blank goes on with is not there
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            if not dropped:
                fields[-1] = fields[-1][0], (fields[-1][1] + b" " + line.strip()).strip()
            continue
        name, colon, value = line.partition(b":")
        name = name.rstrip(b" \t")
        dropped = not colon or _TOKEN.fullmatch(name) is None
        if not dropped:
            fields.append((name, value.strip(b" \t")))
    fields = _framed(fields, int(status[3]), newer)
    start = b"HTTP/1.%d %d %b" % (newer, int(status[3]), status[4])
    return b"\r\n".join([start, *(name + b": " + value for name, value in fields)]) + b"\r\n\r\n"


def _framed(fields: list[tuple[bytes, bytes]], status: int, newer: bool) -> list[tuple[bytes, bytes]]:
    """The fields with one that says how long the body is, or none, as RFC 9112, 6.3 and browsers have it."""
    lengths = _tokens(fields, b"content-length")
    codings = [coding.lower() for coding in _tokens(fields, b"transfer-encoding")]
    others = [field for field in fields if field[0].lower() not in _LENGTHS]
    at = next((n for n, (name, _) in enumerate(fields) if name.lower() in _LENGTHS), 0)
    if status in (204, 304) or status < 200:
        codings = []
    packed = [coding.removeprefix(b"x-") for coding in codings if coding in PACKING]
    if b"chunked" in codings or packed:
        if not newer:
            raise Refused("it names a transfer coding in an HTTP/1.0 answer, which clients read differently")
        if packed and (len(packed) > 1 or (lengths and b"chunked" not in codings)):
            raise Refused(
                f"its body is packed by the transfer codings {b', '.join(codings).decode('latin-1')!r}"
            )
        kept = packed + [b"chunked"] * (b"chunked" in codings)
        return [*others[:at], (b"Transfer-Encoding", b", ".join(kept)), *others[at:]]
    if any(not length.isdigit() for length in lengths):
        if len(set(lengths)) > 1:
            raise Refused("it says several lengths of its body, not all of them numbers")
        return others  # to the end of the connection
    sizes = {int(length) for length in lengths if len(length) < 40}
    if len(sizes) > 1:
        raise Refused(f"it says several lengths of its body: {', '.join(map(str, sorted(sizes)))}")
    return [*others[:at], *((b"Content-Length", b"%d" % size) for size in sizes), *others[at:]]


def _tokens(fields: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """The members of a field that is a list, all its lines together."""
    values = [value for field, value in fields if field.lower() == name]
    return [token.strip() for value in values for token in value.split(b",") if token.strip()]
