"""What an exploration has left to try, in the order of promise.

Nearest states first. Among the moves on equally near ones every combination of controls gets its turn before any gets
its second (as in pairwise testing): one year with one region before all years with all regions, whichever was set
first. Within such a round come first what a state brought with it (a menu's entries), then what was there before and
stands on another address now (a second filter), then what was there before on the same address (all that an open menu
leaves as it was). Last of all is what was tried elsewhere and never showed anything new (an operator of an empty
filter). Where an exploration ends by its views or its time, these are what it leaves out.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from stillweb.proxy.exploring.graph import Node
from stillweb.proxy.exploring.moves import Move
from stillweb.snapshots.view import Step

BROUGHT, ELSEWHERE, HERE, _BARREN, _AGAIN = range(5)  # the order of moves on equally near views


def _name(move: Move) -> str:
    return json.dumps(move.steps, sort_keys=True, ensure_ascii=False)


def _controls(steps: Iterable[Step]) -> tuple[str, ...]:
    """What steps operate, in whatever order, and whatever is chosen or typed there."""
    found = []
    for step in steps:
        action, given = next(iter(step.items()))
        place = {key: value for key, value in given.items() if key not in ("option", "value", "key")}
        found.append(json.dumps([action.removeprefix("un"), place], sort_keys=True, ensure_ascii=False))
    return tuple(sorted(found))


class Agenda:
    """A queue of (view, move). `to_json` is read again by `take_up`."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, int, Node, Move]] = []
        self._count = 0
        self._rounds: Counter[tuple[str, ...]] = Counter()  # controls -> moves that operate just these
        self._paid: dict[str, bool] = {}  # move -> whether it ever showed anything new
        self._failed: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, node: Node, move: Move, turn: int = BROUGHT, number: int | None = None) -> None:
        """Queue a move: one that the view brought, or that its source had too, ELSEWHERE or HERE.

        `number` is its round, where one is known; else the next of its controls.
        """
        controls = _controls([*node.steps, *move.steps])
        self._put(node, move, turn, self._rounds[controls] if number is None else number)
        self._rounds[controls] += 1

    def _put(self, node: Node, move: Move, turn: int, number: int) -> None:
        self._count += 1
        late = turn if turn >= _BARREN else 0
        heapq.heappush(self._heap, (node.depth, late, number, turn, self._count, node, move))

    def take(self) -> tuple[Node, Move]:
        """The next to try. Raises IndexError when nothing is left."""
        while True:
            depth, late, number, _, count, node, move = heapq.heappop(self._heap)
            if late or self._paid.get(_name(move), True):
                return node, move
            heapq.heappush(self._heap, (depth, _BARREN, number, _BARREN, count, node, move))

    def tell(self, move: Move, *, new: bool) -> None:
        """What a move gave: a view that was not known, or none."""
        self._paid[_name(move)] = new or self._paid.get(_name(move), False)

    def again(self, node: Node, move: Move) -> bool:
        """A move that could not be made goes to the end of the queue, once: the machine may have been busy."""
        key = (node.address, _name(move))
        if key in self._failed:
            return False
        self._failed.add(key)
        self._put(node, move, _AGAIN, 0)
        return True

    def to_json(self, first: Iterable[tuple[Node, Move]] = ()) -> dict[str, Any]:
        """All that is left, `first` before the rest (what is being tried)."""
        left = [(BROUGHT, 0, node, move) for node, move in first]
        left += [(one[3], one[2], one[5], one[6]) for one in sorted(self._heap, key=lambda one: one[:5])]
        return {
            "queue": [(node.address, asdict(move), turn, number) for turn, number, node, move in left],
            "paid": self._paid,
        }

    def take_up(self, known: dict[str, Any], nodes: dict[str, Node]) -> list[tuple[Node, Move]]:
        """What `to_json` gave, of the views that are still known. `done` in `known` is what was tried, as JSON of steps."""
        self._paid.update(known.get("paid", {}))
        self._rounds.update(_controls(json.loads(key)) for key in known.get("done", ()))
        found = []
        for address, asked, *place in known.get("queue", ()):  # an older version left no round
            if address in nodes:
                found.append((nodes[address], Move.from_json(asked)))
                self.add(*found[-1], *place)
        return found
