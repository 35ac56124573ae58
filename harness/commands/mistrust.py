"""Advice on certificates that were refused: an origin's by the recorder, or ours by a client."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CLIENT = "TLS with the client failed"  # part of the recorder's reason
# reasons that trusting a CA does not repair
_BY_NOBODY = re.compile(r"expired|not yet valid|hostname mismatch|not valid for", re.I)


def advice(reasons: Iterable[str]) -> list[str]:
    """Return lines of advice for the reasons why requests could not be recorded."""
    told = [reason for reason in reasons if "certificate" in reason.lower() or _CLIENT in reason]
    lines = []
    if any(_CLIENT in reason for reason in told):
        lines.append(
            'a client that mistrusts our certificate: docs/recording.md, "What a client must be told"'
        )
    origins = [reason for reason in told if _CLIENT not in reason]
    if any(not _BY_NOBODY.search(reason) for reason in origins):
        lines.append(
            "to record an origin in spite of its certificate: --ca-file FILE (its authority) or --insecure"
        )
    elif origins:
        lines.append("to record an origin in spite of its certificate: --insecure")
    return lines
