"""The payload of a record: its offset in the block, and digests of a streamed block."""

from __future__ import annotations

import hashlib
from typing import Any

from stillweb.snapshots.warc import warc

HTTP_KINDS = ("response", "request", "revisit")


def payload_at(kind: str, fields: warc.Fields, block: bytes) -> int:
    """Return the offset of the payload in a block: after the HTTP head, or 0 without one."""
    if kind not in HTTP_KINDS:
        return 0
    media = fields.get("content-type", "")
    if not media.startswith("application/http") and not block.startswith(b"HTTP/"):
        return 0
    end = warc.end_of_head(block)
    if end is not None:
        if kind != "request" and not block.startswith(b"HTTP/"):
            return 0
        return end[1]
    return len(block) if block.startswith(b"HTTP/") or kind == "request" else 0


class Hasher:
    """Digests of a streamed block and of its payload."""

    def __init__(self, wanted: tuple[tuple[str, str], ...], kind: str, fields: warc.Fields) -> None:
        self._hashes = {pair: hashlib.new(pair[1], usedforsecurity=False) for pair in wanted}
        self._kind = kind
        self._fields = fields
        self._head: bytes | None = b""  # collected until the payload begins

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the block."""
        if not self._hashes:
            return
        payload = piece
        if self._head is not None:
            self._head += piece
            at = payload_at(self._kind, self._fields, self._head)
            ended = at < len(self._head) or warc.end_of_head(self._head) is not None
            if not ended and self._kind in HTTP_KINDS and len(self._head) < warc.MAX_HEAD:
                payload = b""
            else:
                payload, self._head = self._head[at:], None
        for (part, _), value in self._hashes.items():
            value.update(piece if part == "block" else payload)

    def done(self) -> dict[str, Any]:
        """Return the hash objects by "part:algorithm"."""
        return {f"{part}:{name}": value for (part, name), value in self._hashes.items()}
