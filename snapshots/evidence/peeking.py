"""What a lookup must know of captures beyond their index lines; each is read once and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.dates import not_after
from stillweb.snapshots.evidence.preconditions import Preconditions, preconditions_of
from stillweb.snapshots.http.spans import inside, is_whole, recorded_span
from stillweb.snapshots.identity.cookies import cookies_of
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc.messages import set_cookies

REMEMBERED = 1 << 15

Place = tuple[str, int]
T = TypeVar("T")
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


class _Once(Generic[T]):
    """What is read of a capture, remembered while there is room."""

    def __init__(self, read: Callable[[Capture], T]) -> None:
        self._read = read
        self._known: dict[Place, T] = {}

    def __call__(self, capture: Capture) -> T:
        found = self._known.get(capture.place)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[capture.place] = self._read(capture)
        return found


class Peek:
    """Looks into the records of captures.

    `fields`: the header fields that a recorded request was sent with; `preconditions`: the conditions among them;
    `readers`: which other origins an answer lets read it, and whether with credentials (Fetch standard, 3.2.3);
    `part`: of which bytes a recorded 206 is; `gives`: names and values of the cookies that an answer sets.
    """

    def __init__(
        self, read_request: Callable[[Capture], Request], head: Callable[[Capture], Response]
    ) -> None:
        self.fields = _Once[Headers](lambda capture: read_request(capture).headers)
        self.preconditions = _Once[Preconditions](
            lambda capture: preconditions_of(read_request(capture).headers)
        )
        self.readers = _Once[Readers](lambda capture: _readers(head(capture)))
        self.part = _Once[Part](lambda capture: _part(head(capture)))
        self.gives = _Once[Headers](lambda capture: _gives(head(capture)))


def _readers(head: Response) -> Readers:
    return head.header("access-control-allow-origin"), head.header("access-control-allow-credentials")


def _gives(head: Response) -> Headers:
    given = (value.partition(";")[0] for value in set_cookies(head.headers))
    return tuple([cookie for pair in given for cookie in cookies_of((("cookie", pair),))])


def _part(head: Response) -> Part:
    told, modified = head.header("content-range"), head.header("last-modified")
    if not_after(head.header("date"), modified):
        modified = None  # it may have changed again in the same second (RFC 9110, 8.8.2.2)
    return Part(told, head.header("etag"), modified, is_whole(told, head.header("content-length")))
