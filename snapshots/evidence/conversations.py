"""The model of a web socket: what the server says after what its client said, weighed as a site's answers are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from stillweb.snapshots.evidence.events import Event, History
from stillweb.snapshots.evidence.explain import grounds
from stillweb.snapshots.evidence.model import Model, Parts
from stillweb.snapshots.evidence.priors import KINDS
from stillweb.snapshots.identity.keys import mix


class Turn(NamedTuple):
    """The words that a client said one after the other, and a number for what the server said then."""

    words: Sequence[str]
    answer: int


class Told:
    """A client's messages so far, which give the parts of its next one."""

    def __init__(self) -> None:
        self.last = ""  # recorded word; "" before the first
        self._words, self._count, self._order = 0, 0, 0

    def add(self, word: str, *, recorded: bool = True) -> None:
        """Note a word; one that was not recorded has no place in the recorded order, and a receipt ("") no more than that."""
        if word:
            self._words += mix(word)
            self._count += 1
        if recorded:
            self._order = mix(self._order, word)
            self.last = word or self.last

    def parts(self) -> dict[str, str]:
        return {
            "~messages": repr([(f"{self._words:x}", self._count)]),
            "~order of messages": f"{self._order:016x}",
        }


class Answers:
    """The model of the web sockets of one address."""

    def __init__(self, talks: Iterable[Iterable[Turn]]) -> None:
        """Learn from the turns of recorded sockets, of which the client follows the first."""
        moments = count()

        def recorded(number: int, turns: Iterable[Turn]) -> Iterator[tuple[str, Event, int, Parts, int]]:
            told = Told()
            for words, answer in turns:
                for word in words:
                    told.add(word)
                for word in words or ("",):
                    yield str(number), _event(word), answer, told.parts(), next(moments)

        self._model = Model((one for talk in enumerate(talks) for one in recorded(*talk)), KINDS)

    def chance(self, told: Told, answer: int) -> tuple[float, list[str]]:
        """Return the chance of an answer to a client's last word, and the grounds; certainty where none was recorded to compare."""
        key, past, parts = mix(told.last), (History(), 0), told.parts()
        if key not in self._model.targets or answer not in self._model.targets[key].answers:
            return 1.0, []
        chance = self._model.predict(key, past, None, parts)[answer]
        return chance, grounds(self._model, key, past, parts, answer)


def _event(word: str) -> Event:
    return Event(f"SAY /{word} ", "write", mix(word), (), frozenset())
