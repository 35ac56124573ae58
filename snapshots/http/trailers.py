"""Trailers: the response fields after the body (RFC 9110, 6.5). A capture stores them in its head, marked.

In a gRPC call they hold the status.
"""

from __future__ import annotations

from collections.abc import Iterable

from stillweb.snapshots.request import Headers

TRAILER = "trailer"

# https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
_GRPC = frozenset({"grpc-status", "grpc-message", "grpc-status-details-bin"})
# Fields of framing, routing and content format, which must not be trailers (RFC 9110, 6.5.1).
_NEVER = frozenset(
    {"connection", "content-encoding", "content-length", "content-range", "content-type", "host"}
    | {"keep-alive", "location", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)


def is_grpc(fields: Iterable[tuple[str, str]]) -> bool:
    """Return True if a response with these fields is gRPC.

    gRPC-Web has its trailers in the body and doesn't count.
    """
    kind = next((value.lower() for name, value in fields if name.lower() == "content-type"), "")
    return kind.startswith("application/grpc") and not kind.startswith("application/grpc-web")


def merged(fields: Headers, trailers: Headers) -> Headers:
    """Return one head with both; a Trailer field between them names the trailers."""
    kept = tuple((name, value) for name, value in trailers if name.lower() not in _NEVER)
    if not kept:
        return fields
    return (*fields, ("Trailer", ", ".join(dict.fromkeys(name for name, _ in kept))), *kept)


def parted(fields: Headers, size: int | None) -> tuple[Headers, Headers]:
    """Split a merged head into head and trailers, for a body of `size` bytes (None: unknown).

    A head is merged if it ends with a Trailer field and exactly the fields it names, apart from a length. In
    gRPC responses of older and foreign archives the Trailer field may be missing; a gRPC call without a body
    has its status in the head.
    """
    at = max((n for n, (name, _) in enumerate(fields) if name.lower() == TRAILER), default=-1)
    if at >= 0:
        named = {name.strip().lower() for name in fields[at][1].split(",")}
        length = tuple(field for field in fields[at + 1 :] if field[0].lower() == "content-length")
        behind = tuple(field for field in fields[at + 1 :] if field not in length)
        if named == {name.lower() for name, _ in behind}:
            return (*fields[:at], *length), behind
    if size != 0 and is_grpc(fields):
        behind = tuple(field for field in fields if field[0].lower() in _GRPC)
        return tuple(field for field in fields if field[0].lower() not in _GRPC), behind
    return fields, ()
