"""gRPC over HTTP/2: what came of a call stands behind the body of its answer, in trailers."""

from __future__ import annotations

from collections.abc import Iterable

from snapshots.request import Headers

TRAILER = "trailer"

# https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
_ALWAYS = frozenset({"grpc-status", "grpc-message", "grpc-status-details-bin"})


def is_grpc(fields: Iterable[tuple[str, str]]) -> bool:
    """Whether an answer with these header fields is such a one; gRPC-Web says it within the body."""
    kind = next((value.lower() for name, value in fields if name.lower() == "content-type"), "")
    return kind.startswith("application/grpc") and not kind.startswith("application/grpc-web")


def merged(fields: Headers, trailers: Headers) -> Headers:
    """Both in one head, with a Trailer field between them that names the latter."""
    names = ", ".join(dict.fromkeys(name for name, _ in trailers))
    return (*fields, ("Trailer", names), *trailers)


def parted(fields: Headers) -> tuple[Headers, Headers | None]:
    """The head and the trailers of a head in which they are merged.

    None for these where nothing says that there were any: a call without an answer has its status in its head, and older
    and others' archives may have left the Trailer field out.
    """
    at = max((n for n, (name, _) in enumerate(fields) if name.lower() == TRAILER), default=-1)
    named = frozenset(name.strip().lower() for name in fields[at][1].split(",")) if at >= 0 else frozenset()
    behind = [n for n in range(at + 1, len(fields)) if fields[n][0].lower() in named]
    if not behind:
        return fields, None
    head = tuple(field for n, field in enumerate(fields) if n != at and n not in behind)
    return head, tuple(fields[n] for n in behind)


def known_apart(fields: Headers) -> tuple[Headers, Headers]:
    """The same where nothing but its name says of a field that it stands behind the body."""
    trailers = tuple(field for field in fields if field[0].lower() in _ALWAYS)
    return tuple(field for field in fields if field[0].lower() not in _ALWAYS), trailers
