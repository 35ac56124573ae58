"""What a writer knows of what was recorded so far: event numbers, payloads by digest, and the lines of the index.

Lines that were there when the writer was opened stay as they are, unread, until something has to be known of their
captures. States are assigned anew only after captures have come: sealing adds texts, which change none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from stillweb.snapshots.archives import messages
from stillweb.snapshots.archives.reading import Archives
from stillweb.snapshots.capture import Capture, with_state
from stillweb.snapshots.contents.records import Original
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.index.build import finish
from stillweb.snapshots.index.cdxj import parse_line, sorted_lines, to_capture
from stillweb.snapshots.request import Request

# lines of captures with their states, or None and what they are made of; lines of other records
Now = tuple[list[bytes] | None, list[Capture], dict[tuple[str, int], str], list[bytes]]


class Recorded:
    """Event numbers have a lock of their own, since every request asks for some; the rest is the writer's to lock."""

    def __init__(self) -> None:
        self.others: list[bytes] = []  # lines of records that are no exchange
        self._stated: list[bytes] | None = []  # lines of all captures, states included; None: to be made
        self._unread: list[bytes] = []  # lines whose captures were not taken up yet
        self._captures: list[Capture] = []
        self._loaded = 0  # how many of the captures were there before, and have what was learned of them
        self._bare: list[Capture] | None = None  # these without it
        self._identities: dict[tuple[str, int], str] = {}
        self._payloads: dict[str, Original] = {}  # by digest
        self._events: dict[str, int] = {}
        self._lock = threading.Lock()

    def load(self, captures: list[bytes], others: Iterable[bytes]) -> None:
        """Takes over the lines of a snapshot that is gone on with."""
        self._stated = self._unread = captures
        self.others += others

    def _read(self) -> None:
        if self._unread:
            with self._lock:
                for line in self._unread:
                    urlkey, timestamp, entry = parse_line(line)
                    self._take(to_capture(urlkey, timestamp, entry), entry["id"])
                self._loaded = len(self._captures)
                self._unread = []  # not before: whoever comes meanwhile has to wait

    def _take(self, capture: Capture, identity: str) -> None:
        self._captures.append(capture)
        self._identities[capture.place] = identity
        if capture.original is None and capture.digest:
            place = capture.filename, capture.offset, capture.length
            self._payloads.setdefault(capture.digest, (capture.url, iso_date(capture.timestamp), place))
        self._follow(capture)

    def _follow(self, capture: Capture) -> None:
        last = max(capture.begin, capture.end)
        if last > self._events.get(capture.session, 0):
            self._events[capture.session] = last

    def add(self, capture: Capture, identity: str, request: Request) -> None:
        """A capture that was just recorded, the answer to `request`."""
        self._read()
        with self._lock:
            self._take(capture, identity)
            self._stated = None

    def payload(self, digest: str) -> Original | None:
        """Where a payload was stored already."""
        self._read()
        return self._payloads.get(digest)

    def event(self, session: str) -> int:
        """See `Writer.event`."""
        self._read()
        with self._lock:
            self._events[session] = number = self._events.get(session, 0) + 1
            return number

    def last_event(self, session: str) -> int:
        """See `Writer.last_event`."""
        self._read()
        with self._lock:
            return self._events.get(session, 0)

    def __len__(self) -> int:
        """The number of captures."""
        return len(self._captures) + len(self._unread)

    def now(self) -> Now:
        """All of it as it is now, for `lines`; to be asked for under the writer's lock."""
        if self._stated is not None:
            return self._stated, [], {}, list(self.others)
        return None, list(self._captures), dict(self._identities), list(self.others)

    def lines(self, now: Now, archives: Archives) -> Iterable[bytes]:
        """The sorted lines of what `now` gave, a list where they are in memory."""
        stated, captures, identities, others = now
        if stated is None:
            if self._bare is None:
                self._bare = [unlearned(capture, archives) for capture in captures[: self._loaded]]
            captures[: self._loaded] = self._bare
            stated = finish(captures, identities, [], archives)
            with self._lock:
                if len(captures) == len(self._captures):
                    self._stated = stated
        return sorted_lines([*stated, *others]) if others else stated

    def close(self) -> None:
        """Frees what is held elsewhere."""


def unlearned(capture: Capture, archives: Archives) -> Capture:
    """A capture of an index as it was before anything was learned of it: `vary` is what its answer says, and no more."""
    if not capture.vary:
        return capture
    try:
        named = messages.vary_of(archives.head(capture).headers)
        vary = messages.vary_values(named, archives.read_request(capture).headers) if named else ()
    except DamagedInput:  # which whoever learns from it finds as well
        return capture
    return with_state(capture, (vary, "", "", False))
