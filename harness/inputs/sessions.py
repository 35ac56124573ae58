"""Names of sessions: what proxies, headers and WARC fields all take."""

from __future__ import annotations

import re
from hashlib import sha256

_ODD = re.compile(r"[^A-Za-z0-9_./()\[\]=,+ -]")


def session_of(text: str) -> str:
    """A session's name for any text: plain ASCII without `:` and `%`, different for different texts."""
    plain = _ODD.sub("_", text).strip()
    if plain == text and len(plain) <= 200 and plain:
        return plain
    return f"{plain[:180]}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
