"""What a lookup must know of captures beyond their index lines; each is read once and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from snapshots.capture import Capture, Response
from snapshots.dates import not_after
from snapshots.preconditions import Preconditions, preconditions_of
from snapshots.request import Headers, Request
from snapshots.spans import inside, is_whole, recorded_span

REMEMBERED = 1 << 15

Place = tuple[str, int]
Readers = tuple[str | None, str | None]  # Access-Control-Allow-Origin and -Credentials


@dataclass(frozen=True, slots=True)
class Part:
    """A recorded 206: its Content-Range and the validators that its bytes are of (RFC 9110, 8.8)."""

    content_range: str | None
    tag: str | None
    modified: str | None
    whole: bool  # whether it is all of the file

    @property
    def representation(self) -> tuple[str, int] | None:
        """A strong tag, or else the date and any weak tag, and the size of the whole: the same bytes have the same.

        None where nothing tells.
        """
        validator = self.tag
        if validator is None or validator.startswith("W/"):
            validator = None if self.modified is None else f"{self.modified} {self.tag}"
        have = recorded_span(self.content_range)
        return None if validator is None or have is None else (validator, have[2])

    def holds(self, asked: str, if_range: str | None) -> bool:
        """Whether the one range that is asked lies in this part, of the representation that If-Range names."""
        named = if_range is None or if_range.strip() in (self.tag, self.modified)
        return named and inside(asked, self.content_range) is not None


class Peek:
    """Looks into the records of captures."""

    def __init__(
        self, read_request: Callable[[Capture], Request], head: Callable[[Capture], Response]
    ) -> None:
        self._read_request = read_request
        self._head = head
        self._preconditions: dict[Place, Preconditions] = {}
        self._parts: dict[Place, Part] = {}
        self._fields: dict[Place, Headers] = {}
        self._readers: dict[Place, Readers] = {}

    def fields(self, capture: Capture) -> Headers:
        """The header fields that a recorded request was sent with."""
        found = self._fields.get(capture.place)
        if found is None:
            if len(self._fields) >= REMEMBERED:
                self._fields.clear()
            found = self._fields[capture.place] = self._read_request(capture).headers
        return found

    def readers(self, capture: Capture) -> Readers:
        """Which other origins an answer lets read it, and whether with credentials (Fetch standard, 3.2.3)."""
        found = self._readers.get(capture.place)
        if found is None:
            if len(self._readers) >= REMEMBERED:
                self._readers.clear()
            head = self._head(capture)
            found = (
                head.header("access-control-allow-origin"),
                head.header("access-control-allow-credentials"),
            )
            self._readers[capture.place] = found
        return found

    def preconditions(self, capture: Capture) -> Preconditions:
        """The conditions that a recorded request was sent with."""
        found = self._preconditions.get(capture.place)
        if found is None:
            if len(self._preconditions) >= REMEMBERED:
                self._preconditions.clear()
            found = preconditions_of(self._read_request(capture).headers)
            self._preconditions[capture.place] = found
        return found

    def part(self, capture: Capture) -> Part:
        """Of which bytes a recorded 206 is."""
        found = self._parts.get(capture.place)
        if found is None:
            if len(self._parts) >= REMEMBERED:
                self._parts.clear()
            found = self._parts[capture.place] = _part(self._head(capture))
        return found


def _part(head: Response) -> Part:
    told, modified = head.header("content-range"), head.header("last-modified")
    if not_after(head.header("date"), modified):
        modified = None  # it may have changed again in the same second (RFC 9110, 8.8.2.2)
    return Part(told, head.header("etag"), modified, is_whole(told, head.header("content-length")))
