"""Whether an answer is of a kind that a request accepts: `Accept` of RFC 9110, 12.5.1, as far as it bears on identity.

Many servers choose between HTML and JSON by Accept and send no Vary. So an answer of a kind that a client did not ask
for is not surely the one it would have got, unless it was recorded for the same Accept.
"""

from __future__ import annotations

from functools import lru_cache

from snapshots.capture import Capture
from snapshots.request import Request
from snapshots.weighted import items_of


def accepts(request: Request, capture: Capture) -> bool:
    """Whether a request accepts the kind of a capture's answer. What says nothing accepts all; so with errors.

    Who asks for pages first takes JSON only for want of one, and the reverse: `*/*;q=0.8` is at the end of each browser's.
    """
    wanted = request.header("accept")
    return (
        wanted is None
        or capture.status not in (200, 206)
        or not capture.mime
        or _within(wanted, capture.mime)
    )


@lru_cache(maxsize=4096)
def _within(accept: str, mime: str) -> bool:
    if not accept.strip():
        return True
    kind = mime.lower()
    main, _, sub = kind.partition("/")
    fits = {
        "*/*",
        "*",
        kind,
        f"{main}/*",
        f"{main}/{sub.rpartition('+')[2]}",
        f"application/{sub.rpartition('+')[2]}",
    }
    first = first_kind(accept).partition(";")[0]
    return any(item.weight and item.name in fits for item in items_of(accept)) and not (
        (_is_page(first) and _is_data(kind)) or (_is_data(first) and _is_page(kind))
    )


def first_kind(accept: str) -> str:
    """The kind that an Accept asks for first, with its parameters: `application/json;odata=verbose` is one of its own."""
    best = max(
        items_of(accept), key=lambda item: item.weight, default=None
    )  # the first of those that weigh most
    if best is None or not best.weight:
        return "*/*"
    kept = sorted(p for p in best.parameters if not p.startswith("charset="))
    return ";".join((_ALIKE.get(best.name, best.name), *kept))


_ALIKE = dict.fromkeys(("text/json", "application/x-json"), "application/json")


def _is_page(kind: str) -> bool:
    return kind in ("text/html", "application/xhtml+xml")


def _is_data(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")
