"""Long polls: requests that hang until there is news, and what each was recorded after.

Engine.IO's channels, on which Socket.IO talks until a web socket is open, say what they are. A poll (GET) is answered once the
server has something to say, mostly since the client said something by a POST beside it. In replay the answers on a channel come in
recorded order, each when all was said that had been sent before it came (https://socket.io/docs/v4/engine-io-protocol). If its client
says what it said only later, or never, the server would answer that: what was recorded is doubtful then, and soon a miss.

Any other path is seen to be polled from the recording: an answer came only after its client had written something elsewhere, half a
second or more after it had asked; and it asked again at once, or left while it waited. Nothing that the client did hung on
the answer, so in replay the answer waits until the client has written the same again. After the last answer a poll stays open, but
for one on a channel that has gone on in its web socket: its client waits for the end of that poll, and is told "nothing".
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from stillweb.proxy.replay.websocket_player import conversation
from stillweb.snapshots.cache import Cache, cached
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.http.static import static_mime
from stillweb.snapshots.identity.keys import group_prefix, split_url
from stillweb.snapshots.request import SAFE_METHODS, Request

if TYPE_CHECKING:
    from stillweb.snapshots.evidence.matcher import Matcher

HUNG = 0.5  # seconds
_IN_ADDRESS = "transport="  # in that of each request on a channel
_POLLING, _SOCKET = "polling", "websocket"
# What equal polls have in common: their key, or on a channel the address without `t`, and the body
Name = str | tuple[object, ...]


def _channel_of(url: str) -> tuple[str, str]:
    """Return the channel of an Engine.IO address, and its transport; "" for a handshake and for any other address."""
    return _channel(url) if _IN_ADDRESS in url else ("", "")


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

    # places of the captures that answer its polls once they are due, and of those that did
    asked: set[tuple[str, int]] = field(default_factory=set)
    polled: set[tuple[str, int]] = field(default_factory=set)
    wrote: Counter[str] = field(default_factory=Counter)  # keys of writes
    sockets: set[str] = field(default_factory=lambda: {""})  # channels that went on in a web socket
    # the last answer on a channel that went on in a web socket, where the last poll asked for more
    beyond: Capture | None = None

    def asks(self, capture: Capture) -> None:
        """Note that a session sent the poll that `capture` answers. A poll that is a write counts as written now."""
        if capture.place not in self.asked and capture.method not in SAFE_METHODS:
            self.wrote[capture.key] += 1
        self.asked.add(capture.place)

    def answered(self, capture: Capture, polled: bool) -> None:
        """Note an answer that was given; with `polled`, that to a long poll."""
        if polled or _channel_of(capture.url)[0]:
            self.asks(capture)
            self.polled.add(capture.place)
        elif capture.method not in SAFE_METHODS:
            self.wrote[capture.key] += 1

    def opened(self, url: str) -> None:
        """Note that a web socket was opened."""
        self.sockets.add(_channel_of(url)[0])


class Poll(NamedTuple):
    """A recorded poll, and the events between the answer of the poll before and its own."""

    capture: Capture
    after: tuple[tuple[str, int], ...]  # keys of writes, and how often each was made by then
    socket: str  # the channel whose web socket was open, "" for none
    has_successor: bool  # the same request had another answer later, or none
    order: Mapping[str, Sequence[int]] = {}  # of what is said on channels: the places of each write among all
    before: int = 0  # how many of these writes were made by then

    def due(self, session: PollProgress) -> bool:
        """Return True if a session has done what preceded the answer in the recording, and has not had the last answer yet."""
        if self.has_successor and self.capture.place in session.polled:
            return False
        return self.socket in session.sockets and all(session.wrote[key] >= n for key, n in self.after)

    def overtaken(self, session: PollProgress) -> bool:
        """Return True if a session has said what was recorded after the answer alone, or more often than it was recorded."""
        beyond = self.has_successor and self.capture.place in session.polled
        return any(
            n > len(places) or (places[n - 1] >= self.before and not beyond)
            for key, n in session.wrote.items()
            if n and (places := self.order.get(key))
        )


class Polls:
    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._polls = Cache[tuple[str, str], dict[Name, list[Poll]]]()

    def next(
        self, session: PollProgress, request: Request, follows: str, same: Sequence[Capture]
    ) -> tuple[Capture, bool, bool] | None:
        """Return the capture that answers a poll, the first that the session was not given or the last, whether it is due, and whether its client said more by then.

        None where nothing is known to be polled so. `follows` is the recorded session that it follows, `same` are the captures
        with the key of the request. The session has asked for it from then on.
        """
        channel, transport = _channel_of(request.url)
        if channel and transport == _POLLING:
            name: Name = *_but_t(request.url), request.body
        elif any(capture.end - capture.begin > 2 and not _page_or_file(capture) for capture in same):
            name = same[0].key
        else:
            return None  # which costs nothing to see: no other request began and ended while it was under way
        found = self.on(request.method, request.url).get(name)
        if not found:
            return None
        own = [poll for poll in found if poll.capture.session == follows] or found
        left = (poll for poll in own if poll.capture.place not in session.polled)
        poll = next(left, own[-1])
        over = poll.has_successor and channel in session.sockets and poll.capture.place in session.polled
        session.beyond = poll.capture if channel and over else None
        session.asks(poll.capture)
        return poll.capture, poll.due(session), poll.overtaken(session)

    def opens(self, url: str, session: PollProgress) -> bool:
        """Return False while recorded polls of a channel must come before the web socket at `url` opens.

        Polls behind one whose answer waits for the socket need not come before.
        """
        channel, transport = _channel_of(url)
        if not channel or transport != _SOCKET:
            return True
        for method in ("GET", "POST"):
            polls = [poll for some in self.on(method, url).values() for poll in some]
            for poll in sorted(polls, key=lambda poll: poll.capture.begin):
                if _channel_of(poll.capture.url)[0] != channel:
                    continue
                if poll.capture.place not in session.asked:
                    return False
                if poll.socket:
                    break
        return True

    def on(self, method: str, url: str) -> dict[Name, list[Poll]]:
        path = method, group_prefix(url)
        found = self._polls.get(path)
        if found is None:
            found = self._polls.keep(path, self._found(method, url))
        return found

    def _found(self, method: str, url: str) -> dict[Name, list[Poll]]:
        group, found = self._matcher.group(url), defaultdict[Name, list[Poll]](list)
        by_channel, by_session = (defaultdict[str, list[Capture]](list) for _ in range(2))
        for capture in sorted(group.captures, key=lambda c: (c.begin, c.timestamp, c.place)):
            channel, transport = _channel_of(capture.url)
            if capture.method != method:
                continue
            if channel and transport == _POLLING:
                by_channel[channel].append(capture)
            elif not _page_or_file(capture):
                by_session[capture.session].append(capture)
        for polls in by_channel.values():
            for poll in self._of_channel(polls):
                found[*_but_t(poll.capture.url), group.request(poll.capture).body].append(poll)
        failures = self._matcher.snapshot.failures(split_url(url)[0])
        left = [f for f in failures if f.seconds_waited and f.request.method == method]
        for session, line in by_session.items():
            keys = [failure.key for failure in left if failure.session == session]
            for poll in _of_path(line, self._matcher.socket_messages.writes(url, session), keys):
                found[poll.capture.key].append(poll)
        return found

    def _of_channel(self, polls: Sequence[Capture]) -> Iterator[Poll]:
        """Yield the polls of a channel: the answers to GETs came after what was sent by POST on any channel.

        Those that came after the first message on the web socket with which the channel went on wait for that, too.
        """
        url = polls[0].url
        (channel, _), reads = _channel_of(url), polls[0].method in SAFE_METHODS
        written = self._matcher.socket_messages.writes(url, polls[0].session) if reads else ()
        sent = [w for w in written if _channel_of(w.url)[0]]  # another page's, too
        snapshot, found = self._matcher.snapshot, []
        for address in snapshot.metadata_addresses(url.partition("?")[0]):
            if _channel_of(address) == (channel, _SOCKET):
                found += [talk for said in snapshot.said_at(address) if (talk := conversation(said))]
        first = min((next((m.event for m in talk.messages), talk.begin) for talk in found), default=math.inf)
        order, before = defaultdict[str, list[int]](list), 0
        for place, write in enumerate(sent):
            order[write.key].append(place)
        for poll, after in _between(polls, sent):
            before += len(after)
            yield Poll(poll, tuple(after), channel if first < poll.end else "", reads, order, before)


def _of_path(line: Sequence[Capture], writes: Sequence[Capture], left: Sequence[str]) -> Iterator[Poll]:
    """Yield the polls among the captures of a path in one session. `left`: keys of those that had no answer."""
    hung = False
    polls: list[Capture] = []
    again = bool(left)
    for before, capture in zip([None, *line], line, strict=False):
        inside = [w for w in writes if w is not capture and capture.begin < w.begin < capture.end]
        follows = before is not None and before in polls and capture.begin == before.end + 1
        again = again or follows
        hung = hung or any(_seconds(capture, w) >= HUNG for w in inside)
        if inside or follows:
            polls.append(capture)
    if not hung or not again:
        return
    keys, places = Counter([*(capture.key for capture in polls), *left]), {poll.place for poll in polls}
    others = [w for w in writes if w.begin > polls[0].begin and w.place not in places]
    for poll, after in _between(polls, others):
        yield Poll(poll, tuple(after[-1:]), "", keys[poll.key] > 1)


def _between(
    polls: Iterable[Capture], writes: Iterable[Capture]
) -> Iterator[tuple[Capture, list[tuple[str, int]]]]:
    """Yield each poll with the keys of the writes since the poll before it, and how often each was made so far."""
    made, left = Counter[str](), deque(writes)
    for poll in polls:
        after = []
        while left and left[0].begin < poll.end:
            key = left.popleft().key
            made[key] += 1
            after.append((key, made[key]))
        yield poll, after


def _page_or_file(capture: Capture) -> bool:
    return "html" in capture.mime or static_mime(capture.mime)


def _seconds(first: Capture, second: Capture) -> float:
    """Return the seconds from one capture to another, 0 where either is undated."""
    began, then = seconds_of(first.timestamp), seconds_of(second.timestamp)
    return 0.0 if began is None or then is None else then - began
