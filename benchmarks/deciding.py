"""The code that decides which answer is served, whose conditions `mutations` takes away, and those that only save time."""

from __future__ import annotations

DECIDING = {
    "snapshots/evidence/conditional.py": None,  # all its functions
    "snapshots/evidence/doubts.py": None,
    "snapshots/evidence/parts.py": None,
    "snapshots/evidence/preconditions.py": None,
    "snapshots/evidence/reductions.py": None,
    "snapshots/evidence/situation.py": None,
    "snapshots/evidence/varying.py": None,
    "snapshots/evidence/sessions.py": {"answered", "repeated", "happened"},
    "snapshots/http/acceptance.py": None,
    "snapshots/http/weighted.py": None,
    "snapshots/http/languages.py": None,
    "snapshots/http/spans.py": {"inside", "is_whole"},
    "snapshots/identity/header_fields.py": None,
    "snapshots/identity/keys.py": None,
    "snapshots/identity/flags.py": None,
    "snapshots/identity/model_calls.py": None,
    "snapshots/identity/operations.py": None,
    "snapshots/identity/told_moments.py": None,
}
# Conditions without which the answers stay the same: only quicker, or a text nobody parses.
SAME = {
    "varying.py counted: if len(captures) < 2": "shortcut",
    "conditional.py whole_or_asked: if len(whole) == len(captures)": "shortcut",
    "conditional.py whole_or_asked: if whole and (not now.request.conditional())": "shortcut: a part that nobody asked for aside",
    "acceptance.py accepts: if wanted is None and capture.mime == 'text/html'": "shortcut: a page is plainly for who wants anything",
    "situation.py _asked: ever is None or since is None without ever is None": "both are None at once",
    "situation.py _asked: ever is None or since is None without since is None": "both are None at once",
    "situation.py cookies: if self._cookies is None": "remembered",
    "situation.py identified: if self._identified is None": "remembered",
    "exact without _method(parsed)": "the canonical key has it",
    "exact without _operation(parsed)": "the canonical key has it",
    "exact without _body_type(parsed)": "the canonical key has it",
    "keys.py parse: if not request.body and request.method in ('GET', 'HEAD') and (not overridden(request))": "shortcut",
    "doubts.py no_fragment: not asked or read(chosen.state).any without not asked": "shortcut: of nothing nothing is looked for",
    "doubts.py other_fields: not asked or read(chosen.state).any without not asked": "shortcut: of nothing nothing is looked for",
    "doubts.py other_client: not asked or read(chosen.state).any without not asked": "shortcut: of nothing nothing is looked for",
    "doubts.py other_client: if not any((name.lower() == 'cookie' for name, _ in headers))": "shortcut",
    "doubts.py other_kind: if accepts(now.request, chosen)": "shortcut",
    "doubts.py other_type: if not now.request.body": "shortcut: who sends no body sends none of a type",
    "preconditions.py preconditions_of: if not found": "shortcut",
    "sessions.py answered: lookup.site or site_of(capture.url) without lookup.site": "remembered",
    "sessions.py answered: if lookup.inert": "shortcut: what changes nothing finds nothing to change",
}
