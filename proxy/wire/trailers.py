"""Trailers: the fields of an answer that stand behind its body (RFC 9110, 6.5). A capture has them in its head, marked.

Of a gRPC call they say what came of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from stillweb.snapshots.request import Headers

TRAILER = "trailer"

# https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
_GRPC = frozenset({"grpc-status", "grpc-message", "grpc-status-details-bin"})
# They say how the body is read, or are heeded in a head alone: none of them may stand behind it (RFC 9110, 6.5.1).
_NEVER = frozenset(
    {"connection", "content-encoding", "content-length", "content-range", "content-type", "host"}
    | {"keep-alive", "location", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)


def is_grpc(fields: Iterable[tuple[str, str]]) -> bool:
    """Whether an answer with these header fields is such a one; gRPC-Web says it within the body."""
    kind = next((value.lower() for name, value in fields if name.lower() == "content-type"), "")
    return kind.startswith("application/grpc") and not kind.startswith("application/grpc-web")


def merged(fields: Headers, trailers: Headers) -> Headers:
    """Both in one head, with a Trailer field between them that names the latter."""
    kept = tuple((name, value) for name, value in trailers if name.lower() not in _NEVER)
    if not kept:
        return fields
    return (*fields, ("Trailer", ", ".join(dict.fromkeys(name for name, _ in kept))), *kept)


def parted(fields: Headers, size: int | None) -> tuple[Headers, Headers]:
    """The head and the trailers of a head in which they are merged, of an answer with a body of `size` bytes (None: unknown).

    Merged is what ends with a Trailer field and all that it names, and nothing else but a length. Of gRPC older and others' archives may
    have left that field out; a call without an answer has its status in its head.
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
