"""Which of several captures is named as evidence: the first that says the same.

A page that was recorded often is answered by the capture that comes next to what its session asked before, which of
calls under way at once is another one each time. What they say is the same, so a trace names the first recorded.
"""

from __future__ import annotations

from stillweb.snapshots import Snapshot
from stillweb.snapshots.capture import Capture


def first_alike(snapshot: Snapshot, capture: Capture) -> Capture:
    """The first capture of the very same request with the same status, media type, payload and, of a redirect, aim."""
    near = snapshot.candidates(capture.urlkey)
    if len(near) < 2 or not capture.exact:
        return capture
    known = _known(capture)
    alike = (one for one in near if _known(one) == known and _aim(snapshot, one) == _aim(snapshot, capture))
    return next(alike, capture)


def _known(capture: Capture) -> tuple[str, str, int, str, str]:
    return capture.exact, capture.method, capture.status, capture.mime, capture.digest


def _aim(snapshot: Snapshot, capture: Capture) -> str | None:
    return snapshot.read(capture).header("location") if 300 <= capture.status < 400 else None
