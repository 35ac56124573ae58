"""Byte ranges of a captured whole (RFC 9110, 14), and multipart/byteranges bodies."""

from __future__ import annotations

import hashlib

from stillweb.snapshots.http.spans import Span


def content_range(span: Span, size: int) -> str:
    """Return the Content-Range value of a part."""
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
