"""The tail of a ledger line: the request and its answer, from after its number up to its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stillweb.proxy.replay.ledger import encode
from stillweb.proxy.replay.misses import masked_key, masked_url_of
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.evidence.lookup import Lookup

TAILS = 1 << 13  # tails cached for captures that are requested again


class Tails:
    """A builder of ledger line tails, which caches those of captures."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], str] = {}

    def of(
        self,
        request: Request,
        lookup: Lookup | None,
        verdict: str,
        derived: str,
        status: int,
        asked: Lookup | None = None,
        *,
        capture: Capture | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a ledger line from after its number up to the time.

        `asked` has the key if `lookup` is of another request.
        """
        keyed = asked or lookup
        if capture is None and lookup is not None and verdict != "miss":
            capture = lookup.capture
        key = keyed.key.canonical if keyed is not None else None
        if key is not None and (capture is None or "redacted" in verdict):
            key = masked_key(request) or key
        known = None
        if more is None and capture is not None and lookup is not None:
            flags = (lookup.rule, lookup.state, lookup.ambiguous, lookup.irrelevant, lookup.told)
            known = (key, request.method, request.url, verdict, capture.place, status, derived, flags)
            if (made := self._known.get(known)) is not None:
                return made
        entry: dict[str, Any] = {
            "key": key,
            "method": request.method,
            "url": masked_url_of(request),
            "verdict": verdict,
            "rule": lookup.rule if lookup is not None else None,
            "capture": {"file": capture.filename, "offset": capture.offset, "digest": capture.digest}
            if capture is not None
            else None,
            "state": lookup.state if lookup is not None else "",
            "ambiguous": bool(lookup is not None and lookup.ambiguous),
            "irrelevant": bool(lookup is not None and lookup.irrelevant),
            "status": status,
        }
        if lookup is not None and lookup.told is not None:
            entry |= lookup.told.members()
        if derived:
            entry["derived"] = derived
        entry |= more or {}
        made = f',{encode(entry)[1:-1]},"ms":'
        if known is not None:
            if len(self._known) >= TAILS:
                self._known.clear()
            self._known[known] = made
        return made
