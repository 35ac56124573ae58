"""Recorded web socket conversations and their replay, in recorded order.

A conversation is a `metadata` record under the socket's address (docs/snapshot.md). The server's messages are
sent as far as the client's own messages have come. If those differ from the recorded ones, there is no
answer.
"""

from __future__ import annotations

import base64
import operator
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stillweb.proxy.net.moments import with_moments
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.matching.numbering import drawn_apart, ids_in, plain, renumbered
from stillweb.snapshots.matching.recognising import Recogniser, other_secrets, pseudonyms_in
from stillweb.snapshots.matching.spoken import word
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import mask

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

Said = str | bytes
_JSON = (("Content-Type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One recorded web socket.

    `messages` are (from the client?, message); `close` is (code, reason) or None. `begin` is the event number
    of its handshake in `session`, `protocol` the subprotocol that the server chose. `looks` are (steps done,
    messages so far) at each stored view: messages after a look came by time alone. `events` holds the last
    event of the session before each message, `times` when the message passed the recorder, in seconds since
    1970 (empty in older records), `words` each message in the form that `spoken` counts.
    """

    url: str
    session: str
    begin: int
    messages: tuple[tuple[bool, Said], ...]
    close: tuple[int, str] | None = None
    protocol: str = ""
    looks: tuple[tuple[int, int], ...] = ()
    events: tuple[int, ...] = ()
    times: tuple[float, ...] = ()
    words: tuple[str, ...] = ()

    def heard(self) -> list[int]:
        """Return the indexes of the client's messages."""
        return [at for at, (mine, _) in enumerate(self.messages) if mine]


def conversation(value: Mapping[str, Any]) -> Conversation | None:
    """Parse the conversation in a metadata record; return None if it is incomplete or foreign."""
    if not isinstance(value.get("messages"), list) or value.get("left_out"):
        return None
    try:
        return _read(value)
    except (KeyError, TypeError, ValueError, IndexError):  # another tool's record for the same address
        return None


def _read(value: Mapping[str, Any]) -> Conversation:
    said: list[tuple[bool, Said]] = []
    for one in value["messages"]:
        what: Said = str(one["text"]) if "text" in one else base64.b64decode(one["base64"], validate=True)
        said.append((one["from"] == "client", what))
    # older records have a single look
    looks = value.get("looks", [[0, value["looked"]]] if "looked" in value else [])
    close = value.get("close")
    return Conversation(
        str(value["url"]),
        str(value.get("session", "")),
        int(value.get("begin", 0)),
        tuple(said),
        (int(close[0]), str(close[1])) if close else None,
        str(value.get("protocol", "")),
        tuple((operator.index(steps), operator.index(at)) for steps, at in looks),
        tuple(operator.index(at) for at in value.get("events", ())),
        tuple(operator.index(at) / 1000 for at in value.get("times", ())),
        tuple(word(one) for one in value["messages"]),
    )


def conversations(snapshot: Snapshot, url: str) -> list[Conversation]:
    """Return the conversations at an address, in recorded order."""
    found = [conversation(value) for value in snapshot.all_metadata(url) if isinstance(value, dict)]
    return sorted((one for one in found if one is not None), key=lambda one: (one.session, one.begin))


def same(url: str, one: Said, other: Said) -> bool | None:
    """Return True if a client's message equals the recorded one: the same bytes or the same JSON.

    `one` is the recorded message, `other` the client's. None means that they differ in secrets only. A secret
    that is proven to be the recorded one is equal; a password proven to be another one makes it False.
    """
    if one == other:
        return True
    if isinstance(one, bytes) is not isinstance(other, bytes):
        return False
    bodies = (said if isinstance(said, bytes) else said.encode("utf-8", "replace") for said in (one, other))
    stored, asked = (Request("POST", url, _JSON, body) for body in bodies)
    if alike(stored, asked):
        return True
    if not alike(mask(stored), mask(asked)):
        return False
    known = Recogniser()
    known.know(dict.fromkeys(pseudonyms_in(stored, headers=False), 1))
    told = known.request(asked)
    if alike(stored, told):
        return True
    return False if other_secrets(told, stored)[1] else None


def alike(one: Request, other: Request) -> bool:
    """Return True if two requests have the same key."""
    return request_key(one).canonical == request_key(other).canonical


class Player:
    """The replay of an address's conversations to one client. Sans-io: messages in, messages out.

    `turn` is the number of sockets that the session opened at this address before. `ambiguous` is set once
    the conversations that still fit differ in what the server says. `written` returns the writes (event
    numbers and keys) that a recorded session sent by HTTP to the socket's site: a server message recorded
    after such a write waits until the write is `made`. `given` returns True if the site issued an id by HTTP;
    without `given`, a message with other ids than the recorded ones is a different message. `named` collects
    the ids sent to all sockets of the session.
    """

    def __init__(
        self,
        known: list[Conversation],
        turn: int,
        written: Callable[[Conversation], Sequence[tuple[int, str]]] = lambda one: (),
        given: Callable[[str], bool] | None = None,
        named: set[str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        own = known[min(turn, len(known) - 1)]
        self._alive = [own, *(one for one in known if one is not own)]
        self._at = 0  # messages of the leading conversation so far
        self._told = 0  # of these, sent since the client's last message
        self._awaited = {id(one): _awaited(one, written(one)) for one in known}
        self._made = Counter[str]()
        self._steps = 0  # steps that the client has done
        self._count = 0  # the client's messages so far
        self._given = given
        self._now = now
        self._named = set[str]() if named is None else named
        # for each conversation: recorded id -> the client's own
        self._ids: dict[int, dict[str, str]] = {id(one): {} for one in known}
        self._timed: set[int] = set()  # ids of conversations in which the client sent other timestamps
        self.ambiguous = False
        self.protocol = own.protocol

    def opened(self) -> list[Said]:
        """Return the server's first messages."""
        return self._more()

    def client(self, url: str, said: Said) -> list[Said] | None:
        """Return the server's messages after a client's message; None if it was not recorded here."""
        fits: list[Conversation] = []
        doubtful: list[Conversation] = []
        for one in self._alive:
            heard = one.heard()
            if self._count < len(heard):
                at = heard[self._count]
                stored, told = one.messages[at][1], renumbered(said, _turned(self._ids[id(one)]))
                found = same(url, stored, told)
                if found is False and self._but_for_drawn(one, at, stored, told):
                    found = None
                if found is not False:
                    (fits if found else doubtful).append(one)
        if not fits:
            self.ambiguous = self.ambiguous or bool(
                doubtful
            )  # with another secret or id the server may have said something else
            fits = doubtful
        if not fits:
            return None
        # server messages that came by time before this message
        late = [self._turn(one, whole=True)[self._told :] for one in fits]
        held = any(not self._due(one, at) for one in fits for at in range(*self._span(one)))
        self.ambiguous = self.ambiguous or held or any(one != late[0] for one in late[1:])
        self._alive = fits
        self._count += 1
        self._at = fits[0].heard()[self._count - 1] + 1
        self._told = 0
        return self._own(late[0]) + self._more()

    def step(self, number: int) -> list[Said]:
        """Return the server's messages up to the view after `number` steps.

        Call it when the last of these steps is about to be done.
        """
        self._steps = number
        return self._more()

    def made(self, key: str | None) -> list[Said]:
        """Return the server's messages after a write by HTTP.

        `key` is the key with which the write was recorded; None if it was not.
        """
        before, leading = self._told, self._awaited[id(self._alive[0])]
        if key is not None:
            self._made[key] += 1
        new = self._more()
        told = range(self._at - self._told + before, self._at)
        due = any(
            awaits == key and count == self._made[awaits]
            for at, (awaits, count) in leading.items()
            if at not in told
        )
        # the real server would now say something that was recorded later, or was never recorded
        if leading and (key is None or due):
            self.ambiguous = True
        return new

    def word(self) -> str:
        """Return the client's last message in the form that `spoken` counts; "" if there is none."""
        leads = self._alive[0]
        return leads.words[leads.heard()[self._count - 1]] if leads.words and self._count else ""

    def expected(self) -> Said | None:
        """Return the client's next recorded message; None after the last."""
        heard = self._alive[0].heard()
        return self._alive[0].messages[heard[self._count]][1] if self._count < len(heard) else None

    @property
    def rules(self) -> str:
        """Return the rules needed to match the client's messages, joined by "+"; "" if none was."""
        leads = id(self._alive[0])
        return "+".join(
            rule
            for rule, needed in (("timestamp", leads in self._timed), ("visit-id", bool(self._ids[leads])))
            if needed
        )

    @property
    def close(self) -> tuple[int, str] | None:
        """Return the server's close code and reason once all messages are sent; else None."""
        return self._alive[0].close if self._at >= len(self._alive[0].messages) else None

    def _more(self) -> list[Said]:
        """Return the leading conversation's messages up to the client's next one, or to the next view.

        If the other fitting conversations differ here, the replay becomes ambiguous.
        """
        turns = [self._turn(one) for one in self._alive]
        if any(turn != turns[0] for turn in turns[1:]):
            self.ambiguous = True
        new = turns[0][self._told :]
        self._told += len(new)
        self._at += len(new)
        return self._own(new)

    def _own(self, messages: list[Said]) -> list[Said]:
        """Replace recorded ids by the client's own in messages to send."""
        ids = self._ids[id(self._alive[0])]
        told = [renumbered(one, ids) for one in messages]
        self._named.update(plain(value) for one in told for value in ids_in(one))
        return told

    def _but_for_drawn(self, one: Conversation, at: int, stored: Said, said: Said) -> bool:
        """Return True if a message differs from the recorded one only in drawn ids and timestamps.

        Drawn ids are those that the client chose itself. They are remembered.
        """
        given = self._given
        if given is None:
            return False
        timed = with_moments(stored, said, one.times[at], self._now()) if at < len(one.times) else said
        if timed is not said:
            self._timed.add(id(one))
            if same(one.url, stored, timed):
                return True
        if not ids_in(stored):
            return False
        ids = self._ids[id(one)]
        told = [value for mine, what in one.messages[:at] if not mine for value in ids_in(what)]
        known = self._named | {plain(value) for value in (*told, *ids, *ids.values())}
        apart = drawn_apart(stored, timed, lambda value: plain(value) in known or given(value))
        ids.update(apart or {})
        return bool(apart)

    def _turn(self, one: Conversation, *, whole: bool = False) -> list[Said]:
        """Return the server's messages since the client's last one, up to the view after the steps done.

        With `whole`, up to the client's next message.
        """
        start, stop = self._span(one)
        # no look: the messages are an answer after the last view
        seen = [(steps, at) for steps, at in one.looks if at >= start]
        if seen and not whole:
            stop = min(stop, next((at for steps, at in seen if steps >= self._steps), seen[-1][1]))
        if not whole:
            stop = next((at for at in range(start, stop) if not self._due(one, at)), stop)
        return [what for _, what in one.messages[start:stop]]

    def _span(self, one: Conversation) -> tuple[int, int]:
        """Return the index after the client's last message, and the index of its next one."""
        heard = one.heard()
        start = heard[self._count - 1] + 1 if self._count else 0
        return start, heard[self._count] if self._count < len(heard) else len(one.messages)

    def _due(self, one: Conversation, at: int) -> bool:
        """Return True if the write that was recorded before a message has been made as often as then."""
        awaits, count = self._awaited[id(one)].get(at, ("", 0))
        return self._made[awaits] >= count


def _turned(ids: Mapping[str, str]) -> dict[str, str]:
    return {own: recorded for recorded, own in ids.items()}


def _awaited(one: Conversation, written: Sequence[tuple[int, str]]) -> dict[int, tuple[str, int]]:
    """Map the index of each server message that waits for a write to (key of the last write, its count).

    Only writes since the client's last message count as the cause; they are counted from the socket's
    opening.
    """
    found: dict[int, tuple[str, int]] = {}
    since = one.begin
    for at, ((mine, _), event) in enumerate(zip(one.messages, one.events, strict=False)):
        if mine:
            since = event
            continue
        keys = [(begin, key) for begin, key in written if one.begin < begin <= event]
        if keys and keys[-1][0] > since:
            last = keys[-1][1]
            found[at] = last, sum(key == last for _, key in keys)
    return found
