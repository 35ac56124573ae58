"""Feature-flag requests: remove the random ids that a program generates for an installation and a run."""

from __future__ import annotations

import re
from dataclasses import replace

from stillweb.snapshots.identity.keys import Parsed
from stillweb.snapshots.secrets.detect import drawn

# GrowthBook's remote evaluation: https://docs.growthbook.io/self-host/proxy
_ASKED = re.compile(r"/api/eval/[^/?]+\Z")
_NAMES = re.compile(r"(?:(?:device|session|anonymous|installation)[-_]?)?id", re.I)


def without_whom(parsed: Parsed) -> Parsed:
    """Return a feature-flag request without the random ids of its subject, or `parsed` itself."""
    value = parsed.body.value
    if not isinstance(value, dict) or "forcedVariations" not in value or not _ASKED.search(parsed.url):
        return parsed
    whom = value.get("attributes")
    if not isinstance(whom, dict):
        return parsed
    kept = {
        name: item
        for name, item in whom.items()
        if not (_NAMES.fullmatch(name) and isinstance(item, str) and drawn(item))
    }
    return replace(parsed, body=parsed.body.with_value(value | {"attributes": kept}))
