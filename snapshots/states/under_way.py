"""What slots may have held while an exchange was under way beside those that wrote them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from stillweb.snapshots.states.coarsening import Listed
from stillweb.snapshots.states.conditions import UNSET
from stillweb.snapshots.states.learning import Item, Model, Recording, State, States


class UnderWay:
    """The exchanges of a site; `states` are those after each number of them that were over."""

    def __init__(self, recording: Recording, model: Model, states: States) -> None:
        self._recording = recording
        self._model = model
        self._states = states
        self._sent: dict[str, tuple[list[int], list[State]]] = {}

    def held(self, item: Item, slot: str) -> frozenset[str]:
        """What a slot held when an exchange began, and what was written to it until that was over."""
        states = self._states[item.line][item.before : item.late + 1]
        return frozenset(dict(state).get(slot, UNSET) for state in (*states, self._as_sent(item)))

    def untested(self, item: Item, known: Listed) -> Listed:
        """The slots that held something then which is not among what is known of them, with that, too."""
        held = {slot: values | self.held(item, slot) for slot, values in known.items()}
        return {slot: values for slot, values in held.items() if values != known[slot]}

    def _as_sent(self, item: Item) -> State:
        """The state after all that was sent before an exchange, over or not: the one that a replay is in then."""
        if item.line not in self._sent:
            events = sorted(self._recording.events[item.line], key=lambda event: event.begin)
            nothing: State = ()
            states = [*accumulate(events, self._model.step, initial=nothing)]
            self._sent[item.line] = [event.begin for event in events], states
        begins, after = self._sent[item.line]
        return after[bisect_left(begins, item.begin)]
