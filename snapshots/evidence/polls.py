"""Long polls: requests that hang until there is news, and what each was recorded after.

Engine.IO's channels, on which Socket.IO talks until a web socket is open, say what they are. A poll (GET) is answered once the
server has something to say, mostly since the client said something by a POST beside it. In replay the answers on a channel come in
recorded order, each when all was said that had been sent before it came (https://socket.io/docs/v4/engine-io-protocol).

Any other path is seen to be polled from the recording: an answer came only after its client had written something elsewhere, half a
second or more after it had asked; and it asked again at once, or left while it waited. Nothing that the client did hung on
the answer, so in replay the answer waits until the client has written the same again. After the last answer a poll stays open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl

from stillweb.snapshots.cache import Cache, cached
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.http.static import static_mime
from stillweb.snapshots.identity.group import Group
from stillweb.snapshots.identity.keys import group_prefix, split_url
from stillweb.snapshots.request import SAFE_METHODS, Request

TRANSPORT = "transport="  # in the address of each request
POLLING = "polling"
_SOCKET = "websocket"


class Turn(NamedTuple):
    """The capture that is next. `due`: all was said that it came after; `last`: it was given before, and none is left."""

    capture: Capture
    due: bool
    last: bool


def channel_of(url: str) -> tuple[str, str]:
    """Return the channel of an address, and its transport; "" for a handshake, which begins one, and for any other address."""
    return _channel(url) if TRANSPORT in url else ("", "")


@cached
def _channel(url: str) -> tuple[str, str]:
    address, _, query = url.partition("?")
    named = dict(parse_qsl(query, keep_blank_values=True))
    if "EIO" not in named or "transport" not in named:
        return "", ""
    return f"{address}?{named['sid']}" if named.get("sid") else "", named["transport"]


@cached
def _but_t(url: str) -> tuple[str, ...]:
    address, _, query = url.partition("?")
    return address, *sorted(pair for pair in query.split("&") if not pair.startswith("t="))


@dataclass(slots=True)
class PollProgress:
    """The progress of a session on its channels and long polls."""

    polls: dict[str, int] = field(default_factory=dict)  # answers given to polls, by channel
    sent: set[tuple[str, int]] = field(default_factory=set)  # places of the handshakes and POSTs answered
    upgraded: set[str] = field(default_factory=set)  # channels that went on in a web socket
    # the captures by which long polls were answered, and the keys of what was written
    polled: set[tuple[str, int]] = field(default_factory=set)
    wrote: Counter[str] = field(default_factory=Counter)

    def answered(self, capture: Capture, polled: bool) -> None:
        """Note an answer that was given; with `polled`, that to a long poll."""
        if polled:
            self.polled.add(capture.place)
        elif capture.method not in SAFE_METHODS:
            self.wrote[capture.key] += 1
        channel, transport = channel_of(capture.url)
        if channel and capture.method == "GET" and transport == POLLING:
            self.polls[channel] = self.polls.get(channel, 0) + 1
        elif transport:
            self.sent.add(capture.place)


class _Channel(NamedTuple):
    """The recording of a channel: its POSTs, and whether it went on in a web socket."""

    posts: tuple[Capture, ...]
    switched: bool


class Polling:
    """The Engine.IO channels of a snapshot. `group` gives the captures of a path, `spoken` addresses of web sockets by their start."""

    def __init__(self, group: Callable[[str], Group], spoken: Callable[[str], Iterable[str]]) -> None:
        self._group = group
        self._spoken = spoken
        self._channels = Cache[str, _Channel]()

    def turn(self, request: Request, session: PollProgress) -> Turn | None:
        """Return the capture that is next, of those equal but for `t`; None where the request is on no recorded channel."""
        channel, transport = channel_of(request.url)
        if not channel or transport != POLLING:
            return None
        group, same = self._group(request.url), _but_t(request.url)
        alike = (c for c in group.captures if c.method == request.method and _but_t(c.url) == same)
        found = sorted((c for c in alike if group.request(c).body == request.body), key=_order)
        if not found:
            return None
        if request.method != "GET":
            left = [capture for capture in found if capture.place not in session.sent]
            return Turn(left[0] if left else found[-1], True, not left)
        given = session.polls.get(channel, 0)
        if given >= len(found):
            return Turn(found[-1], False, True)
        return Turn(found[given], self._due(channel, found[given], session), False)

    def _due(self, channel: str, answer: Capture, session: PollProgress) -> bool:
        """Return True if a session has said all that was sent on a channel before an answer came.

        If nothing was sent by a POST after it, what the client said to it went over a web socket, which must be open then.
        """
        posts, switched = self._on(channel, answer.url)
        before = (
            capture
            for capture in self._group(answer.url).captures  # of other channels, too: another page's
            if capture.session == answer.session and capture.begin < answer.end and capture.method == "POST"
        )
        if any(channel_of(capture.url)[0] and capture.place not in session.sent for capture in before):
            return False
        after = any(capture.begin >= answer.end for capture in posts)
        return channel in session.upgraded or not switched or after

    def _on(self, channel: str, url: str) -> _Channel:
        found = self._channels.get(channel)
        if found is None:
            captures = (c for c in self._group(url).captures if c.method == "POST")
            posts = tuple(capture for capture in captures if channel_of(capture.url)[0] == channel)
            sockets = map(channel_of, self._spoken(url.partition("?")[0]))
            found = self._channels.keep(channel, _Channel(posts, (channel, _SOCKET) in sockets))
        return found

    def waits(self, request: Request, session: PollProgress) -> bool:
        """Return True while the answer to a poll is not due, or a web socket opens before all POSTs were sent."""
        channel, transport = channel_of(request.url)
        if not channel:
            return False
        if transport == _SOCKET:
            return not all(capture.place in session.sent for capture in self._on(channel, request.url).posts)
        turn = self.turn(request, session)
        return turn is not None and not turn.due


def _order(capture: Capture) -> tuple[int, str, tuple[str, int]]:
    return capture.begin, capture.timestamp, capture.place


HUNG = 0.5  # seconds


class Poll(NamedTuple):
    """A recorded poll, and the last write before its answer came."""

    capture: Capture
    wrote: str  # the key of the write, "" for none
    times: int  # how often it was made since the first poll
    again: bool  # the same request had another answer later, or none


Polls = dict[str, list[Poll]]


class Hanging:
    """The long polls of a snapshot.

    `group` gives the captures of a path, `written` the writes of a session to the site of an address, `failures` those at an address.
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
        self._polls = Cache[tuple[str, str], Polls]()

    def next(
        self, request: Request, session: PollProgress, follows: str, same: Sequence[Capture]
    ) -> Poll | None:
        """Return the poll that answers a request: the first of the `same` that the session was not given, or the last.

        None where nothing is known to be polled so. `follows` is the recorded session that it follows.
        """
        if not any(capture.end - capture.begin > 2 and not _page_or_file(capture) for capture in same):
            return None  # which costs nothing to see: no other request began and ended while it was under way
        found = self.polls(request.method, request.url).get(same[0].key)
        if not found:
            return None
        own = [poll for poll in found if poll.capture.session == follows] or found
        left = (poll for poll in own if poll.capture.place not in session.polled)
        return next(left, own[-1])

    def polls(self, method: str, url: str) -> Polls:
        """Return the polls of a path, by the key of the request."""
        path = method, group_prefix(url)
        found = self._polls.get(path)
        if found is None:
            found = self._polls.keep(path, self._found(method, url))
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
        """Yield the polls among the captures of a path in one session."""
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


def hangs(poll: Poll, session: PollProgress) -> bool:
    """Return True while a session has not written what came before the answer, or once it was given the last answer."""
    if poll.again and poll.capture.place in session.polled:
        return True
    return bool(poll.wrote) and session.wrote.get(poll.wrote, 0) < poll.times


def _page_or_file(capture: Capture) -> bool:
    return "html" in capture.mime or static_mime(capture.mime)


def _between(first: Capture, second: Capture) -> float:
    """Return the seconds from one capture to another, 0 where either is undated."""
    began, then = seconds_of(first.timestamp), seconds_of(second.timestamp)
    return 0.0 if began is None or then is None else then - began
