"""Engine.IO's channels, on which Socket.IO talks by long polls until a web socket is open: what is next, and what it waits for.

A poll (GET) is answered once the server has something to say, mostly since the client said something by a POST beside it.
In replay the answers on a channel come in recorded order, each when all was said that had been sent before it came. After the
last a poll stays open, as it was when the recording ended. (https://socket.io/docs/v4/engine-io-protocol)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.evidence.group import Group
from stillweb.snapshots.request import Request

TRANSPORT = "transport="  # in the address of each request
POLLING = "polling"
_SOCKET = "websocket"
REMEMBERED = 1 << 11  # channels


class Said(Protocol):
    """What a session has said and was told on its channels."""

    polls: dict[str, int]  # answers given to polls, by channel
    sent: set[tuple[str, int]]  # places of the handshakes and POSTs answered
    upgraded: set[str]  # channels that went on in a web socket


class Turn(NamedTuple):
    """The capture that is next. `due`: all was said that it came after; `last`: it was given before, and none is left."""

    capture: Capture
    due: bool
    last: bool


def channel_of(url: str) -> tuple[str, str]:
    """The channel that an address belongs to, and its transport; "" where it is that of a handshake, which begins one, or
    of something else, then without a transport."""
    return _channel(url) if TRANSPORT in url else ("", "")


@lru_cache(maxsize=1024)
def _channel(url: str) -> tuple[str, str]:
    address, _, query = url.partition("?")
    named = dict(parse_qsl(query, keep_blank_values=True))
    if "EIO" not in named or "transport" not in named:
        return "", ""
    return f"{address}?{named['sid']}" if named.get("sid") else "", named["transport"]


@lru_cache(maxsize=1024)
def _but_t(url: str) -> tuple[str, ...]:
    address, _, query = url.partition("?")
    return address, *sorted(pair for pair in query.split("&") if not pair.startswith("t="))


class _Channel(NamedTuple):
    """What was recorded on a channel: its POSTs, and whether it went on in a web socket."""

    posts: tuple[Capture, ...]
    switched: bool


class Polling:
    """The channels of a snapshot. `group` gives the captures of a path, `spoken` the addresses of web sockets that begin so."""

    def __init__(self, group: Callable[[str], Group], spoken: Callable[[str], Iterable[str]]) -> None:
        self._group = group
        self._spoken = spoken
        self._channels: dict[str, _Channel] = {}

    def turn(self, request: Request, session: Said) -> Turn | None:
        """Which of the captures that are the same but for `t` answers a request; None where it is on no recorded channel."""
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

    def _due(self, channel: str, answer: Capture, session: Said) -> bool:
        """Whether a session has said all that was sent on a channel before an answer came.

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
            if len(self._channels) >= REMEMBERED:
                self._channels.clear()
            captures = (c for c in self._group(url).captures if c.method == "POST")
            posts = tuple(capture for capture in captures if channel_of(capture.url)[0] == channel)
            sockets = map(channel_of, self._spoken(url.partition("?")[0]))
            found = self._channels[channel] = _Channel(posts, (channel, _SOCKET) in sockets)
        return found

    def waits(self, request: Request, session: Said) -> bool:
        """Whether there is nothing to say yet: to a poll, or to a web socket before which more was said by POSTs."""
        channel, transport = channel_of(request.url)
        if not channel:
            return False
        if transport == _SOCKET:
            return not all(capture.place in session.sent for capture in self._on(channel, request.url).posts)
        turn = self.turn(request, session)
        return turn is not None and not turn.due


def unused(captures: list[Capture], session: Said) -> list[Capture]:
    """Those handshakes that a session was not given yet: each begins a channel of its own. None where they are others."""
    return [c for c in captures if c.place not in session.sent] if any(map(_begins, captures)) else captures


def _begins(capture: Capture) -> bool:
    channel, transport = channel_of(capture.url)
    return bool(transport) and not channel


def _order(capture: Capture) -> tuple[int, str, tuple[str, int]]:
    return capture.begin, capture.timestamp, capture.place
