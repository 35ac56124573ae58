"""gRPC over HTTP/2: what came of a call stands behind the body of its answer, in trailers."""

from __future__ import annotations

from collections.abc import Iterable

# https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
TRAILERS = frozenset({b"grpc-status", b"grpc-message", b"grpc-status-details-bin"})


def is_grpc(fields: Iterable[tuple[str, str]]) -> bool:
    """Whether an answer with these header fields is such a one; gRPC-Web says it within the body."""
    kind = next((value.lower() for name, value in fields if name.lower() == "content-type"), "")
    return kind.startswith("application/grpc") and not kind.startswith("application/grpc-web")
