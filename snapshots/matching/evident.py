"""The short way of a lookup: one capture, and nothing that could speak against it.

Most requests of most snapshots are such. What is said here is what the steps of `stillweb.snapshots.matching.choosing` come to; a test
holds one against the other.
"""

from __future__ import annotations

from stillweb.snapshots.capture import PARTIAL, Capture
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.acceptance import accepts
from stillweb.snapshots.states.conditions import ANY
from stillweb.snapshots.states.senders import SILENT, bearing


def evident(request: Request, key: Key, capture: Capture, borne: int = SILENT) -> bool:
    """Whether the only capture of a plain request (`keys.is_plain`) is its exact answer in every session that has
    changed nothing on its site, if the request bears no more than `borne` (`senders.bearing`).
    """
    return (
        capture.state in ("", ANY)
        and capture.exact == key.exact
        and not (capture.vary or capture.truncated or capture.status in PARTIAL)
        and accepts(request, capture)
        and bearing(request.headers) <= borne
    )
