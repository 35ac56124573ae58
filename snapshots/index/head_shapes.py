"""Fast reader of WARC heads by their shape: the ordered names of their fields, alike in most records of a file.

A shape is learned from the first record that has it and becomes one regular expression, which reads the next records
at once. Heads that match no shape are left to `stillweb.snapshots.warc.warc`, which reads every head. Tests compare
the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from stillweb.snapshots.warc.warc import end_of_head

LIMIT = 64  # shapes that are learned
TRIED = 6  # shapes, the latest ones, that are tried before a head's field names are looked up

# Values of the fields in use that are read here. They are the same in JSON, without escapes, and have no white space.
_TEXT = rb"[!#-\[\]-~]+"
_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
_DATE = (
    rb"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    rb"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?Z"
)
_OF_BOTH = {
    b"warc-record-id": rb"<[!-~]+>",
    b"warc-target-uri": rb"https?://[!$-\[\]-~]+",  # without a fragment
    b"warc-concurrent-to": rb"<[!-~]+>",
    b"content-length": rb"[0-9]{1,9}",
}
_OF_ANSWERS = _OF_BOTH | {
    b"warc-date": _DATE,
    b"warc-payload-digest": _TEXT,
    b"warc-protocol": rb"[A-Za-z0-9/.]+",
    b"warc-stillweb-session": _TEXT,
    b"warc-stillweb-events": _NUMBER + b"-" + _NUMBER,
    b"warc-refers-to-target-uri": rb"[!-~]+",
    b"warc-refers-to-date": _DATE,
}
_OTHER = rb".*"
_KINDS = {b"request": _OF_BOTH, b"response": _OF_ANSWERS, b"revisit": _OF_ANSWERS}
_NEEDED = (b"warc-record-id", b"warc-date", b"warc-target-uri", b"content-length")
_ODD = (b"warc-truncated", b"warc-refers-to", b"warc-segment-number")  # left to the slow reader
_FIELD = re.compile(rb"([A-Za-z0-9-]+): ([^\r\n]+)\r\n")

# Record kind, offset of the block, and the values of the fields in `_KINDS` in that order, b"" for missing fields.
Head = tuple[bytes, int, tuple[bytes, ...]]


class _Shape:
    """A regular expression for the heads of a kind of record with these field names."""

    def __init__(self, kind: bytes, names: tuple[bytes, ...]) -> None:
        self.kind = kind
        values = _KINDS[kind]
        lines = [rb"WARC/1\.[01]"]
        order: list[bytes] = []
        for name in names:
            low = name.lower()
            text = kind if low == b"warc-type" else _OTHER
            if low in values:
                order.append(low)
                text = b"(" + values[low] + b")"
            lines.append(name + b": " + text)
        self.match: Callable[[bytes], re.Match[bytes] | None]
        # the last group, always empty, is the value of missing fields
        self.match = re.compile(b"\r\n".join(lines) + b"\r\n\r\n()").match
        # the first of repeated fields counts
        self.numbers = [order.index(low) + 1 if low in order else len(order) + 1 for low in values]


class Shapes:
    """Shapes of the heads read so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], _Shape | None] = {}
        self._latest: list[_Shape] = []

    def read(self, data: bytes) -> Head | None:
        """Return the head of a request, response or revisit; None if it has no learnable shape."""
        for shape in self._latest:
            if (found := shape.match(data)) is not None:
                return shape.kind, found.end(), found.group(*shape.numbers)
        learned = self._learn(data)
        if learned is None or (found := learned.match(data)) is None:
            return None
        if learned not in self._latest:
            self._latest = [*self._latest[1 - TRIED :], learned]
        return learned.kind, found.end(), found.group(*learned.numbers)

    def _learn(self, data: bytes) -> _Shape | None:
        """Return the shape of a record's head; None if the slow reader must read it."""
        end = end_of_head(data)
        if end is None:
            return None
        fields = _FIELD.findall(data, len(b"WARC/1.1\r\n"), end[0] + 2)
        names = tuple(name for name, _ in fields)
        kind = next((value for name, value in fields if name.lower() == b"warc-type"), b"")
        if (kind, *names) not in self._known:
            if len(self._known) >= LIMIT:
                return None
            low = [name.lower() for name in names]
            plain = kind in _KINDS and all(n in low for n in _NEEDED) and not any(n in low for n in _ODD)
            self._known[(kind, *names)] = _Shape(kind, names) if plain else None
        return self._known[(kind, *names)]
