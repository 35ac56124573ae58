"""Decode response bodies exactly as httpx does, with its leniency.

The real fetch server reads pages by httpx. Modelled on httpx 0.28 (BSD-3-Clause, Encode OSS), `_decoders.py` and
`_models.py`.
"""

from __future__ import annotations

import codecs
from email.message import Message

from stillweb.snapshots.capture import Response
from stillweb.snapshots.decompression import DEFLATE, GZIP, IN_MEMORY, ZLIB, Inflate, too_large, within
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.encodings import EncodingProblem


def httpx_text(response: Response) -> str:
    """Return the body as text, by the charset of Content-Type if Python knows it, else UTF-8.

    A compressed body that ends early is decoded as far as it goes; bytes after its end are ignored. Raise
    EncodingProblem, with zlib's message, where httpx fails.
    """
    body = _unpacked(response.body, response.header("content-encoding"))
    return body.decode(_charset(response.header("content-type")), "replace")


def _charset(content_type: str | None) -> str:
    message = Message()
    message["content-type"] = content_type or ""
    label = message.get_content_charset()
    return text_codec(label)


def text_codec(label: str | None) -> str:
    """Return the name of the Python codec for a charset label; `utf-8` if unknown or no text encoding (`hex`)."""
    try:
        b"a".decode(label or "utf-8", "replace")
        return codecs.lookup(label or "utf-8").name
    except (LookupError, UnicodeError):
        return "utf-8"


def _unpacked(body: bytes, encoding: str | None) -> bytes:
    for name in reversed([part.strip().lower() for part in (encoding or "").split(",")]):
        if name == "gzip":
            body = _inflated(body, GZIP)
        elif name == "deflate":
            try:
                body = _inflated(body, ZLIB)
            except EncodingProblem:
                body = _inflated(body, DEFLATE)
        elif name in ("br", "zstd"):  # the real server doesn't accept these, but browsers do
            body = encodings.decode(body, name)
    return body


def _inflated(body: bytes, form: int) -> bytes:
    refusal = EncodingProblem(too_large("the body", IN_MEMORY))
    try:
        return b"".join(within(Inflate(form).feed(body), IN_MEMORY, lambda: refusal))
    except ValueError as error:
        raise EncodingProblem(str(error)) from error
