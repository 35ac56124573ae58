"""Whether two answers are the same to a client: status, body and fields, but for time, and for what is drawn for each answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.evidence.events import ASSET, mix
from stillweb.snapshots.states.answers import by_head, said, static_mime

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


def _label(read: Callable[[Capture], Response], capture: Capture) -> int:
    try:
        return label_of(read(capture))
    except (DamagedInput, TooLarge):
        return mix(capture.status, capture.digest, capture.place)


class Equality:
    """Labels of captures. A body is read only where a request was answered with several, and each once.

    `names` holds by place what rules leave of a capture's key, where that is less: captures of one name are of one request.
    """

    def __init__(
        self,
        read: Callable[[Capture], Response],
        head: Callable[[Capture], Response],
        captures: Iterable[Capture],
        names: Mapping[tuple[str, int], str],
    ) -> None:
        self._read, self._names = read, names
        self._labels: dict[tuple[str, int], int] = {}
        told: dict[str, set[object]] = defaultdict(set)
        several: dict[str, list[Capture]] = defaultdict(list)
        for capture in captures:
            name = names.get(capture.place, capture.key)
            told[name].add((capture.status, capture.digest))
            several[name].append(capture)
        for name, own in several.items():
            if len(own) > 1 and any(by_head(c) or not c.digest for c in own):
                told[name] = set(map(self.read_label, own))
            elif len(own) > 1 and len(told[name]) == 1 and not static_mime(own[0].mime):
                told[name] = {_label(head, c) for c in own}  # bodies are equal, fields perhaps not
        self.varied = {key for key, answers in told.items() if len(answers) > 1}  # keys of several answers

    def label(self, capture: Capture) -> int:
        """Return a number for what a capture says, to be compared with those of the same request."""
        name = self._names.get(capture.place, capture.key)
        if name not in self.varied:
            return mix("only", name)
        if capture.status == 200 and capture.digest and ASSET.search(capture.mime):
            return mix("file", capture.digest, capture.mime)
        return self.read_label(capture)

    def read_label(self, capture: Capture) -> int:
        """Return the number for what a capture says, as `label_of` does for any answer."""
        found = self._labels.get(capture.place)
        if found is None:
            found = _label(self._read, capture)
            self._labels[capture.place] = found
        return found
