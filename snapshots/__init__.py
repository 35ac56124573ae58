"""The frozen web: captures, views, texts, search. Imports no socket, browser or agent code.

Words        request.py, capture.py, view.py, profile.py, errors.py, dates.py, software.py, words.py
Whole        snapshot.py (open, look up, layers), opening.py (paths, formats), writer.py, wacz.py (seal), searching.py

From the top down, each folder imports only those below it:
operations/  whole snapshots: verify, diff, cut, upgrade texts, search for secrets
importers/   foreign recordings that are no archives: HAR, mitmproxy flows
evidence/    which capture answers a request, and how surely: one model of what answers depend on
contents/    records as they are written, the list of files and the id, frozen texts
index/       from records to sorted index lines, on all cores; reading the index
text/        text extraction from pages and PDFs
identity/    what makes two requests the same: the key, and the rules
warc/        WARC records, gzip members, HTTP in records
secrets/     detection of secrets, and their pseudonyms
http/        bodies, encodings, weights, languages, ranges
_os/         bytes at any offset, caches, locks, processes

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture, Exchange, Response
    from stillweb.snapshots.operations.verifying import Problem, verify
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.view import View
    from stillweb.snapshots.wacz import SealReport, seal
    from stillweb.snapshots.writer import Writer

_HOME = {
    "Capture": "capture",
    "Exchange": "capture",
    "Response": "capture",
    "Profile": "profile",
    "Request": "request",
    "Snapshot": "snapshot",
    "Problem": "operations.verifying",
    "verify": "operations.verifying",
    "View": "view",
    "SealReport": "wacz",
    "seal": "wacz",
    "Writer": "writer",
}

__all__ = [
    "Capture", "Exchange", "Problem", "Profile", "Request", "Response", "SealReport", "Snapshot", "View",
    "Writer", "seal", "verify"
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stillweb.snapshots' has no attribute {name!r}")
    value = getattr(import_module(f"stillweb.snapshots.{_HOME[name]}"), name)
    globals()[name] = value  # replace the submodule of the same name, which the import has set here
    return value
