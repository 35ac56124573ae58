"""Choose the capture that a trace names as evidence: the first of several with the same content.

If a page was recorded often, the matcher chooses the capture that comes after the session's previous request. With
concurrent calls that choice differs from run to run. The content is the same, so a trace names the first recorded.
"""

from __future__ import annotations

from stillweb.snapshots import Snapshot
from stillweb.snapshots.capture import Capture


def first_alike(snapshot: Snapshot, capture: Capture) -> Capture:
    """Return the first capture of the same exact request with the same status, media type, payload and `Location`."""
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
