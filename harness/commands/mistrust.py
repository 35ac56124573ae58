"""What to do where a certificate was not taken: an origin's by the recorder, or ours by a client."""

from __future__ import annotations

from collections.abc import Iterable

_CLIENT = "TLS with the client failed"  # as mitmproxy says it


def advice(reasons: Iterable[str]) -> list[str]:
    """Lines for people, by why something could not be recorded."""
    told = [reason for reason in reasons if "certificate" in reason.lower() or _CLIENT in reason]
    lines = []
    if any(_CLIENT in reason for reason in told):
        lines.append(
            'a client that mistrusts our certificate: docs/recording.md, "What a client must be told"'
        )
    if any(_CLIENT not in reason for reason in told):
        lines.append(
            "to record an origin in spite of its certificate: --trust FILE (its authority) or --insecure"
        )
    return lines
