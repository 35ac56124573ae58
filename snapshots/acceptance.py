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
    """Whether a request accepts the kind of a capture's answer. What says nothing accepts all; so with errors."""
    wanted = request.header("accept")
    return (
        wanted is None
        or capture.status not in (200, 206)
        or not capture.mime
        or _within(wanted, capture.mime)
    )


@lru_cache(maxsize=4096)
def _within(accept: str, mime: str) -> bool:
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
    return not accept.strip() or any(item.weight and item.name in fits for item in items_of(accept))
