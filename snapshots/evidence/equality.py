"""Whether two answers are the same to a client: status, body and fields, but for time, and for what is drawn for each answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.evidence.events import ASSET, mix
from stillweb.snapshots.states.answers import said

# Fields that tell when an answer was made, or how it was carried.
_UNCOUNTED = """
    date age expires last-modified etag content-length transfer-encoding connection keep-alive server via alt-svc
    x-request-id x-runtime x-trace-id cf-ray set-cookie vary cache-control strict-transport-security server-timing
    report-to nel x-served-by x-cache x-cache-hits x-timer content-encoding accept-ranges location
"""
UNCOUNTED = frozenset(_UNCOUNTED.split())


def equal(one: Response, other: Response) -> bool:
    """Return True if two answers are the same to a client."""
    return label_of(one) == label_of(other)


def label_of(response: Response) -> int:
    """Return a number for what an answer says; equal answers have equal numbers."""
    fields = sorted({(n.lower(), v) for n, v in response.headers if n.lower() not in UNCOUNTED})
    return mix(said(response), fields)


class Equality:
    """Labels of captures; each body is read once."""

    def __init__(self, read: Callable[[Capture], Response]) -> None:
        self._read = read
        self._labels: dict[tuple[str, int], int] = {}

    def label(self, capture: Capture) -> int:
        """Return the number for what a capture says."""
        found = self._labels.get(capture.place)
        if found is None:
            file = capture.status == 200 and capture.digest and ASSET.search(capture.mime)
            label = mix("file", capture.digest, capture.mime) if file else label_of(self._read(capture))
            found = self._labels[capture.place] = label
        return found

    def labels(self, captures: Iterable[Capture]) -> list[int]:
        """Return the numbers of captures, in order."""
        return [self.label(c) for c in captures]

    @staticmethod
    def label_of(response: Response) -> int:
        """Return the number for a live answer."""
        return label_of(response)
