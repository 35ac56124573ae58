"""Bodies of any size on their way into a record: in memory if small, else in a file that is read twice."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stillweb.snapshots._os.places import CHUNK
from stillweb.snapshots.warc import warc

IN_MEMORY = 1 << 20  # bytes above which a body is read and compressed in pieces


def whole_if_small(body: bytes | BinaryIO, stack: contextlib.ExitStack) -> bytes | BinaryIO:
    """Return a small body as bytes, and a large one as a file that can be read again from its start."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    if body.seekable():
        body.seek(0)
    lead = body.read(IN_MEMORY + 1)
    while len(lead) <= IN_MEMORY and (more := body.read(IN_MEMORY + 1 - len(lead))):
        lead += more  # a raw stream may return less than requested
    if len(lead) <= IN_MEMORY:
        return lead
    if body.seekable():
        return body
    spool = temporary(stack, None)
    spool.write(lead)
    while piece := body.read(CHUNK):
        spool.write(piece)
    return spool


def temporary(stack: contextlib.ExitStack, folder: Path | None) -> BinaryIO:
    """Return a nameless temporary file that is closed with the stack."""
    import tempfile  # imported late: it loads all compression modules

    spool = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    stack.callback(spool.close)
    return spool


def pieces(body: bytes | BinaryIO) -> Iterator[bytes]:
    """Yield a body's bytes from the start."""
    if isinstance(body, bytes):
        yield body
        return
    body.seek(0)
    while piece := body.read(CHUNK):
        yield piece


def measure(body: bytes | BinaryIO) -> tuple[int, str]:
    """Return the size and the payload digest of a body."""
    if isinstance(body, bytes):
        return len(body), warc.digest(body)
    size, value = 0, hashlib.sha256()
    for piece in pieces(body):
        size += len(piece)
        value.update(piece)
    return size, "sha256:" + value.hexdigest()


def block_digest(head: bytes, body: bytes | BinaryIO) -> str:
    """Return the digest of an HTTP head followed by its body."""
    value = hashlib.sha256(head)
    for piece in pieces(body):
        value.update(piece)
    return "sha256:" + value.hexdigest()
