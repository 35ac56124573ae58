"""The model of a web socket: what the server says after what its client said, weighed as a site's answers to writes are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from stillweb.snapshots.evidence.events import MOST, SAY, Event, History, flat, shortened
from stillweb.snapshots.evidence.explain import grounds
from stillweb.snapshots.evidence.model import NO_PARTS, Model, Parts
from stillweb.snapshots.identity.keys import mix
from stillweb.snapshots.identity.numbering import ids_in

# Members whose values say what a message is, as paths do of requests
_NAMING = re.compile(
    r"(?:.*\.)?(?:\d|action|cmd|command|event|kind|method|msg|msg_type|name|op|type)=[^\W\d][^\d]{0,60}"
)
_WORD = re.compile(r"[A-Za-z]{2,40}")


class Turn(NamedTuple):
    """A turn of a conversation: the messages of the client, and a number for the server's answer to them."""

    messages: Sequence[Event]
    answer: int


def message_event(text: str) -> Event:
    """Return a client's message as an event, without drawn ids. Its type is the names in its JSON, or a text's first word."""
    bare = text
    for one in set(ids_in(text)):
        bare = bare.replace(one, "")
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list):
        value = {str(number): one for number, one in enumerate(value)}
    pairs = [*flat("", value, len(bare))] if isinstance(value, dict) and len(value) <= MOST else []
    found = ((n, _NAMING.fullmatch(f"{n}={v}")) for n, v in pairs)
    names = ",".join(sorted({name[0] if name else n for n, name in found}))
    if not pairs and (first := _WORD.match(bare)):
        names = first[0]
    # no parameters: an answer shows what changed, so that words which it lacks say nothing
    return Event(f"{SAY} / {shortened(names)}", "write", mix(bare), (), ())


class ClientMessages:
    """The messages of one client so far. The order of those between two answers of the server does not count."""

    def __init__(self, recorded: int) -> None:
        """Start without messages; `recorded` is the number of those in the longest recorded conversation."""
        self._history = History()
        self._recorded = recorded
        self._turn: list[Event] = []
        self._answered = False

    def add(self, event: Event, *, recorded: bool = True) -> None:
        """Note a message; one that was not recorded belongs to no recorded turn."""
        if self._answered and event is not WRITE:
            for one in _in_order(self._turn) or [NOTHING]:
                self._history.add(one)
            self._history = self._history.trimmed(self._recorded)
            self._turn, self._answered = [], False
        if recorded:
            self._turn.append(event)
        else:
            self._history.add(event)

    def note_answer(self) -> None:
        """Note a message of the server: the client's next message begins another turn."""
        self._answered = True

    def pending(self) -> list[int]:
        """Return the keys of the messages that the server has not answered yet."""
        return [] if self._answered else [one.key for one in self._turn]

    def pasts(self, following: Event | None = None) -> Iterator[tuple[int, tuple[History, int]]]:
        """Yield the key of each message of the turn that may be its last (or of `following`), with the past before it."""
        turn = _in_order(self._turn) or [NOTHING]
        lasts = [following] if following is not None else turn[::-1]
        for last in lasts:
            others = self._turn if following is not None else [one for one in turn if one is not last]
            past = self._history.branch(len(self._history), _in_order(others))
            yield last.key, (past, len(past))


NOTHING = Event(f"{SAY} / ", "write", 0, (), ())  # in place of a client's message
WRITE = Event(f"{SAY} / by HTTP", "weak write", 1, (), ())  # one that was not recorded there


def _in_order(turn: Iterable[Event]) -> list[Event]:
    return sorted(turn, key=lambda one: one.key)


class SocketModel:
    """The model of the web sockets of one address."""

    def __init__(self, conversations: Iterable[Iterable[Turn]]) -> None:
        """Learn from the turns of recorded sockets."""
        moments = count()

        def recorded(
            number: int, turns: Iterable[Turn]
        ) -> Iterator[tuple[str, Event, int, Parts, tuple[int, int]]]:
            for turn in turns:
                for one in _in_order(turn.messages) or [NOTHING]:
                    yield f"socket {number}", one, turn.answer, NO_PARTS, (next(moments), 0)

        self._model = Model(one for talk in enumerate(conversations) for one in recorded(*talk))

    def chance(
        self, client: ClientMessages, answer: int, number: int, following: Event | None = None
    ) -> tuple[float, list[str]]:
        """Return the chance of an answer to what a client of the socket of a `number` said last, or says next, and the grounds.

        It is certain where no answer was recorded to compare.
        """
        for key, past in client.pasts(following):
            if key in self._model.targets and answer in self._model.targets[key].answers:
                chance = self._model.predict(key, past, name=str(number)).get(answer, 0.0)
                return chance, grounds(self._model, key, past, NO_PARTS, answer)
        return 1.0, []
