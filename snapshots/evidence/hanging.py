"""Long polls: requests that hang until there is news, one after the other, and what each was recorded after.

That a path is polled so is seen from the recording: an answer came only after its client had written something elsewhere, which it
did half a second or more after it had asked; and it asked again at once when it was told, or left while it waited. So nothing
that it did hung on the answer, and in replay the answer may wait until the client has written the same again.
(Engine.IO's channels say of themselves what they are: `polling`.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.evidence.group import Group
from stillweb.snapshots.http.static import static_mime
from stillweb.snapshots.identity.keys import group_prefix, split_url
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.snapshots.evidence.sessions import Followed

HUNG = 0.5  # seconds
REMEMBERED = 1 << 12  # paths


class Poll(NamedTuple):
    """A recorded poll: the request that wrote last before its answer came, and how often that was made since the first poll; ""
    for none. `again`: what is asked the same way was answered otherwise later, or not at all."""

    capture: Capture
    wrote: str
    times: int
    again: bool


class Poller(Protocol):
    """What a session has written, by key, which polls it was given, and whom it follows."""

    @property
    def wrote(self) -> Mapping[str, int]: ...
    @property
    def polled(self) -> Collection[tuple[str, int]]: ...
    def following(self, site: str, /) -> Followed: ...


Polls = dict[str, list[Poll]]


class Hanging:
    """The long polls of a snapshot. `group` gives the captures of a path, `written` what a session wrote to the site of an address,
    `failures` what came to no answer at one.
    """

    def __init__(
        self,
        group: Callable[[str], Group],
        written: Callable[[str, str], list[Capture]],
        failures: Callable[[str], Iterable[Failure]],
    ) -> None:
        self._group = group
        self._written = written
        self._failures = failures
        self._polls: dict[tuple[str, str], Polls] = {}

    def next(self, request: Request, session: Poller, same: Sequence[Capture]) -> Poll | None:
        """The poll that answers a request: of those asked for in the `same` way the first that the session was not given, or the
        last. None where nothing is known to be polled so.
        """
        if not any(capture.end - capture.begin > 2 and not _page_or_file(capture) for capture in same):
            return None  # which costs nothing to see: no other request began and ended while it was under way
        found = self.polls(request.method, request.url).get(same[0].key)
        if not found:
            return None
        follows = session.following(site_of(request.url)).session
        own = [poll for poll in found if poll.capture.session == follows] or found
        left = (poll for poll in own if poll.capture.place not in session.polled)
        return next(left, own[-1])

    def polls(self, method: str, url: str) -> Polls:
        """Those of a path, by the key of the request; none where it is not polled so."""
        path = method, group_prefix(url)
        found = self._polls.get(path)
        if found is None:
            if len(self._polls) >= REMEMBERED:
                self._polls.clear()
            found = self._polls[path] = self._found(method, url)
        return found

    def _found(self, method: str, url: str) -> Polls:
        own = [c for c in self._group(url).captures if c.method == method and not _page_or_file(c)]
        left = [f for f in self._failures(split_url(url)[0]) if f.waited and f.request.method == method]
        found: Polls = {}
        for session in sorted({capture.session for capture in own}):
            line = sorted((c for c in own if c.session == session), key=lambda c: c.begin)
            mine = [failure for failure in left if failure.session == session]
            for poll in self._of(line, self._written(url, session), mine):
                found.setdefault(poll.capture.key, []).append(poll)
        return found

    def _of(self, line: list[Capture], writes: list[Capture], left: Sequence[Failure]) -> Iterator[Poll]:
        """Those among the captures of a path in one session."""
        hung = False
        polls: list[Capture] = []
        again = bool(left)
        for before, capture in zip([None, *line], line, strict=False):
            inside = [w for w in writes if w is not capture and capture.begin < w.begin < capture.end]
            follows = before is not None and before in polls and capture.begin == before.end + 1
            again = again or follows
            hung = hung or any(_between(capture, w) >= HUNG for w in inside)
            if inside or follows:
                polls.append(capture)
        if not hung or not again:
            return
        keys = Counter([*(capture.key for capture in polls), *(failure.key for failure in left)])
        places = {capture.place for capture in polls}
        for poll in polls:
            since = [
                w.key for w in writes if polls[0].begin < w.begin < poll.end and w.place not in places
            ]  # not other polls
            last = since[-1] if since else ""
            yield Poll(poll, last, since.count(last), keys[poll.key] > 1)


def hangs(poll: Poll, session: Poller) -> bool:
    """Whether a session has not yet written what was written before the answer came, or was given all that there was."""
    if poll.again and poll.capture.place in session.polled:
        return True
    return bool(poll.wrote) and session.wrote.get(poll.wrote, 0) < poll.times


def _page_or_file(capture: Capture) -> bool:
    return "html" in capture.mime or static_mime(capture.mime)


def _between(first: Capture, second: Capture) -> float:
    """Return the seconds from one capture to another, 0 where either is undated."""
    began, then = seconds_of(first.timestamp), seconds_of(second.timestamp)
    return 0.0 if began is None or then is None else then - began
