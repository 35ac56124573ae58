"""Repeated names in the query or form of a request: the order of their values may matter."""

from __future__ import annotations

from collections import Counter

from stillweb.snapshots.http.bodies import FORM, MULTIPART
from stillweb.snapshots.identity.keys import parse
from stillweb.snapshots.request import Request


def repeated_pairs(request: Request) -> list[tuple[str, str]]:
    """Return the pairs of query and form whose name occurs more than once, by name, values in order."""
    if not request.body and "&" not in request.url:
        return []
    parsed = parse(request)
    pairs: list[tuple[str, str]] = [(f"?{p.partition('=')[0]}", p) for p in parsed.query or ()]
    if parsed.body.kind == FORM:
        pairs += [(p.name.decode("latin-1"), p.value.decode("latin-1")) for p in parsed.body.value]
    elif parsed.body.kind == MULTIPART:
        pairs += [(p.name, p.content.decode("latin-1")) for p in parsed.body.value]
    counts = Counter(name for name, _ in pairs)
    return sorted([p for p in pairs if counts[p[0]] > 1], key=lambda pair: pair[0])
