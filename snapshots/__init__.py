"""The frozen web: captures, views, texts, search. Knows no socket, browser or agent.

Reading    snapshot.py (open, look up, layers) on opening.py (what lies at a path), container.py, build.py and indexing.py
           (records to index lines), cdxj.py (the index), reading.py, messages.py (HTTP in records), warc.py and
           scan.py (records), places.py (bytes anywhere)
           gathering.py (lines by site), plain.py (what can't have a state), resolving.py (revisits);
           changing.py (which sites have a state), parallel.py and stating.py (on all cores, by forks.py)
Writing    writer.py, recorded.py, appending.py; wacz.py (seal), package.py (datapackage.json, the id); verifying.py; importers/
Matching   keys.py, rules.py and rules.toml, matching.py (the ladder), state.py (what came after what)
Text       text.py and freezing.py (frozen extraction), search.py, redact.py
Types      request.py, capture.py, view.py, profile.py, errors.py, words.py

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshots.capture import Capture, Exchange, Response
    from snapshots.profile import Profile
    from snapshots.request import Request
    from snapshots.snapshot import Snapshot
    from snapshots.verifying import Problem, verify
    from snapshots.view import View
    from snapshots.wacz import SealReport, seal
    from snapshots.writer import Writer

_HOME = {
    "Capture": "capture",
    "Exchange": "capture",
    "Response": "capture",
    "Profile": "profile",
    "Request": "request",
    "Snapshot": "snapshot",
    "Problem": "verifying",
    "verify": "verifying",
    "View": "view",
    "SealReport": "wacz",
    "seal": "wacz",
    "Writer": "writer",
}

__all__ = [
    "Capture",
    "Exchange",
    "Problem",
    "Profile",
    "Request",
    "Response",
    "SealReport",
    "Snapshot",
    "View",
    "Writer",
    "seal",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'snapshots' has no attribute {name!r}")
    value = getattr(import_module(f"snapshots.{_HOME[name]}"), name)
    globals()[name] = value  # over the module of the same name, which importing it has put here
    return value
