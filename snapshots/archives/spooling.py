"""Bodies of any size on their way into a record: in memory when small, else a file that is read twice."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stillweb.snapshots.archives import warc
from stillweb.snapshots.machine.places import CHUNK

IN_MEMORY = 1 << 20  # a body larger than this is read and packed in pieces


def whole_if_small(body: bytes | BinaryIO, stack: contextlib.ExitStack) -> bytes | BinaryIO:
    """The body as bytes when it is small, else as a file that can be read again from its start."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    if body.seekable():
        body.seek(0)
    lead = body.read(IN_MEMORY + 1)
    while len(lead) <= IN_MEMORY and (more := body.read(IN_MEMORY + 1 - len(lead))):
        lead += more  # a raw stream may give less than asked for
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
    """A temporary file without a name, closed with the stack."""
    import tempfile  # which brings all compressors along

    spool = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    stack.callback(spool.close)
    return spool


def pieces(body: bytes | BinaryIO) -> Iterator[bytes]:
    """The bytes from the start."""
    if isinstance(body, bytes):
        yield body
        return
    body.seek(0)
    while piece := body.read(CHUNK):
        yield piece


def measure(body: bytes | BinaryIO) -> tuple[int, str]:
    """Size and payload digest."""
    if isinstance(body, bytes):
        return len(body), warc.digest(body)
    size, value = 0, hashlib.sha256()
    for piece in pieces(body):
        size += len(piece)
        value.update(piece)
    return size, "sha256:" + value.hexdigest()


def block_digest(head: bytes, body: bytes | BinaryIO) -> str:
    """The digest of an HTTP head and its body."""
    value = hashlib.sha256(head)
    for piece in pieces(body):
        value.update(piece)
    return "sha256:" + value.hexdigest()
