"""Comparison of the requests that failed while two snapshots were recorded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.secrets.redact import mask

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

Named = tuple[str, str, str]  # URL and method with secrets masked, and the key of the masked request


@dataclass(frozen=True, slots=True)
class FailureChange:
    """A request that failed in one snapshot only ("added", "removed"), or for another reason ("changed").

    A tunnel has the method CONNECT.
    """

    kind: str
    method: str
    url: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def failures_apart(a: Snapshot, b: Snapshot) -> list[FailureChange]:
    """Return the differences from `a` to `b`, by address.

    A failed request that was also captured is ignored: the capture answers it.
    """
    old, new = _reasons(a), _reasons(b)
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = (tuple(sorted(side.get(name, ()))) for side in (old, new))
        if before != after:
            kind = "added" if not before else "removed" if not after else "changed"
            found.append(FailureChange(kind, name[1], name[0], before, after))
    return found


def _reasons(snapshot: Snapshot) -> dict[Named, set[str]]:
    found: dict[Named, set[str]] = defaultdict(set)
    for failure in snapshot.failures():
        captures = snapshot.candidates(request_key(failure.request).urlkey)
        if not any(capture.key == failure.key for capture in captures):
            masked = mask(failure.request)  # mask secrets, since each recording has its own pseudonyms
            key = failure.key if failure.left_out else request_key(masked).canonical
            found[masked.url, masked.method, key].add(failure.reason)
    return found
