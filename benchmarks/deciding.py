"""The code that decides which answer is served, whose conditions `mutations` takes away, and those that only save time."""

from __future__ import annotations

DECIDING = {
    "snapshots/evidence/conditions.py": None,  # all its functions
    "snapshots/evidence/lookup.py": {"answered", "repeated", "happened"},
    "snapshots/evidence/parts.py": None,
    "snapshots/evidence/reductions.py": None,
    "snapshots/http/acceptance.py": None,
    "snapshots/http/header_values.py": None,
    "snapshots/http/preconditions.py": None,
    "snapshots/http/spans.py": {"inside", "is_whole", "holds", "part_of"},
    "snapshots/identity/header_fields.py": None,
    "snapshots/identity/keys.py": None,
    "snapshots/identity/model_calls.py": None,
    "snapshots/identity/operations.py": None,
}
# Conditions without which the answers stay the same: only quicker, or a text nobody parses.
SAME = {
    "conditions.py whole_or_asked: if len(whole) == len(captures)": "shortcut",
    "conditions.py whole_or_asked: if whole and (not now.request.conditional())": "shortcut: a part that nobody asked for aside",
    "acceptance.py accepts: if wanted is None and capture.mime == 'text/html'": "shortcut: a page is plainly for who wants anything",
    "exact without _method(parsed)": "the canonical key has it",
    "exact without _operation(parsed)": "the canonical key has it",
    "exact without _body_type(parsed)": "the canonical key has it",
    "keys.py parse: if not request.body and request.method in ('GET', 'HEAD') and (not overridden(request))": "shortcut",
    "preconditions.py preconditions_of: if not found": "shortcut",
    "sessions.py answered: lookup.site or site_of(capture.url) without lookup.site": "remembered",
    "sessions.py answered: if lookup.inert": "shortcut: what changes nothing finds nothing to change",
}
