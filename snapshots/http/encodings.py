"""Content encodings: decode and encode bodies, whole or in pieces.

Codings: gzip, deflate (with or without the zlib wrapper), br, zstd and identity, in any combination that
`Content-Encoding` lists (RFC 9110, 8.4), and in requests aws-chunked. Encoding is deterministic: no time, no file name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from isal import isal_zlib

from stillweb.snapshots.decompression import (
    DEFLATE,
    GZIP,
    IN_MEMORY,
    MOST,
    ZLIB,
    Brotli,
    Inflate,
    Stream,
    Zstd,
    bounded_parts,
    too_large,
    zstd_library,
)
from stillweb.snapshots.request import Headers

PLAIN = frozenset({"", "identity"})
MOST_CODINGS = 16  # of a body, each of which is a generator around the next
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})(?:;[^\r\n]{0,200})?\r\n")
_SIGNED_CHUNK = re.compile(rb"[0-9a-f]{1,8};chunk-signature=[0-9a-f]{64}\r\n")
KNOWN = PLAIN | {"gzip", "x-gzip", "deflate", "br", "zstd"}


_STARTS = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    *((start, "deflate") for start in (b"\x78\x01", b"\x78\x9c", b"\x78\xda")),
)


class EncodingProblem(ValueError):
    """A body does not have its declared Content-Encoding, or the coding is unknown."""


class LongBody(EncodingProblem):
    """A body decompresses to more bytes than the limit."""


def codings(value: str | None) -> tuple[str, ...]:
    """Return the codings of a Content-Encoding value in the order applied, without identity."""
    names = (name.strip().lower() for name in (value or "").split(","))
    return tuple(name for name in names if name not in PLAIN)


def request_coding(body: bytes, header: str | None) -> str | None:
    """Return the encoding of a request's body, or of a file: as it is `header`, or as the first bytes show.

    Scripts that pack what they report often tell none, as that would need a preflight (CORS), and some clients of S3
    none for the chunks that they sign.
    """
    if codings(header):
        return header
    if _SIGNED_CHUNK.match(body):
        return "aws-chunked"
    return next((name for start, name in _STARTS if body.startswith(start)), None)


def one_coding(headers: Headers) -> Headers:
    """Join all Content-Encoding fields in the first one (RFC 9110, 5.3).

    A client that reads only the first field would otherwise decode too little.
    """
    lines = [n for n, (name, _) in enumerate(headers) if name.lower() == "content-encoding"]
    if len(lines) < 2:
        return headers
    codings = ", ".join(headers[n][1] for n in lines)
    first, others = lines[0], set(lines[1:])
    return tuple(
        (name, codings if n == first else value) for n, (name, value) in enumerate(headers) if n not in others
    )


def decode(body: bytes, encoding: str | None, *, limit: int | None = None) -> bytes:
    """Return the body without its content encodings, or its first `limit` bytes.

    Raises EncodingProblem if the body can't be decoded, and LongBody if it would fill the memory.
    """
    names = codings(encoding)
    if not names:
        return body if limit is None else body[:limit]
    if names == ("gzip",) and limit is None:
        try:
            z = isal_zlib.decompressobj(GZIP)
            data: bytes = z.decompress(body, IN_MEMORY)
            if z.eof and not z.unused_data:
                return data
            if len(data) >= IN_MEMORY:
                raise LongBody(too_large("the body", IN_MEMORY))
        except isal_zlib.error as error:  # type: ignore[misc]
            raise EncodingProblem(f"not gzip: {error}") from error
    out: list[bytes] = []
    have = 0
    for piece in decode_pieces([body], encoding, most=IN_MEMORY if limit is None else MOST):
        out.append(piece)
        have += len(piece)
        if limit is not None and have >= limit:
            break
    joined = b"".join(out)
    return joined if limit is None else joined[:limit]


def decode_pieces(
    pieces: Iterable[bytes], encoding: str | None, *, most: int | None = None
) -> Iterator[bytes]:
    """Yield the decoded body in pieces, using little memory.

    Raises LongBody if a coding yields more than `most` bytes (default `MOST`).
    """
    bound = MOST if most is None else most
    stream: Iterator[bytes] = iter(pieces)
    names = codings(encoding)
    if len(names) > MOST_CODINGS:
        raise EncodingProblem(f"{len(names)} codings, of which {MOST_CODINGS} are undone at most")
    for name in reversed(names):
        stream = bounded_parts(_unpack(stream, name), bound, lambda: LongBody(too_large("the body", bound)))
    return stream


def encode(body: bytes, encoding: str | None) -> bytes:
    """Return the body with the content encodings applied; the inverse of `decode`."""
    return b"".join(encode_pieces([body], encoding))


def encode_pieces(pieces: Iterable[bytes], encoding: str | None) -> Iterator[bytes]:
    stream: Iterator[bytes] = iter(pieces)
    for name in codings(encoding):
        stream = _pack(stream, name)
    return stream


def _unpack(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    if name == "br":
        return _members(pieces, "brotli", lambda _: Brotli())
    if name == "zstd":
        return _members(pieces, name, lambda _: Zstd())
    if name in ("gzip", "x-gzip"):
        return _members(pieces, "gzip", lambda _: Inflate(GZIP))
    if name == "deflate":
        return _members(_first_two_together(pieces), name, _inflater)
    if name == "aws-chunked":
        return _chunks(b"".join(pieces))
    raise EncodingProblem(f"unknown coding {name!r}")


def _chunks(body: bytes) -> Iterator[bytes]:
    """Yield the data of the chunks that an upload to S3 is sent in, without their sizes, signatures and trailers.

    See https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html.
    """
    at = 0
    while (head := _CHUNK.match(body, at)) is not None:
        at, size = head.end(), int(head[1], 16)
        if not size:
            return
        if body[at + size : at + size + 2] != b"\r\n":
            break
        yield body[at : at + size]
        at += size + 2
    raise EncodingProblem("not aws-chunked, or the encoded body ends early")


def _first_two_together(pieces: Iterator[bytes]) -> Iterator[bytes]:
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= 2:
            break
    if start:
        yield start
    yield from pieces


def _inflater(start: bytes) -> Inflate:
    """Return a decompressor for deflate with or without the zlib wrapper, told apart by the first two bytes.

    Many servers send bare deflate, although RFC 9110 demands the wrapper.
    """
    wrapped = len(start) >= 2 and start[0] & 0x0F == 8 and (start[0] << 8 | start[1]) % 31 == 0
    return Inflate(ZLIB if wrapped else DEFLATE)


def _members(pieces: Iterator[bytes], name: str, start: Callable[[bytes], Stream]) -> Iterator[bytes]:
    """Decompress concatenated members. Only zero padding may stand between and after them."""
    stream: Stream | None = None
    for piece in pieces:
        while piece:
            if stream is None:
                stream = start(piece)
            try:
                yield from stream.feed(piece)
            except ValueError as error:
                raise EncodingProblem(f"not {name}: {error}") from error
            piece = stream.rest if stream.eof else b""
            if stream.eof:
                stream = None
                piece = piece.lstrip(b"\0")  # zero padding after a member is common
    if stream is not None:
        raise EncodingProblem("the encoded body ends early")


def _pack(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    z: Any
    if name == "br":
        import brotli

        z = brotli.Compressor(quality=5)
        for piece in pieces:
            yield z.process(piece)
        yield z.finish()
        return
    if name == "aws-chunked":
        for piece in filter(None, pieces):
            yield b"%x;chunk-signature=%064x\r\n%s\r\n" % (len(piece), 0, piece)
        yield b"0;chunk-signature=%064x\r\n\r\n" % 0
        return
    if name == "zstd":
        z = zstd_library().ZstdCompressor(level=3)
    elif name in ("gzip", "x-gzip"):
        z = isal_zlib.compressobj(2, isal_zlib.DEFLATED, GZIP)
    elif name == "deflate":
        z = zlib.compressobj(6)
    else:
        raise EncodingProblem(f"unknown coding {name!r}")
    for piece in pieces:
        yield z.compress(piece)
    yield z.flush()
