"""What an exploration has left to try, in the order of promise.

Nearest states first. Among the moves on equally near ones come first what a state brought with it (a menu's entries),
then what was there before and stands on another address now (a second filter), then what was there before on the same
address (all that an open menu leaves as it was), and last what was tried elsewhere and never showed anything new (an
operator of an empty filter). Where an exploration ends by its views or its time, these are what it leaves out.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from proxy.graph import Node
from proxy.moves import Move

BROUGHT, ELSEWHERE, HERE, _BARREN, _AGAIN = range(5)  # the order of moves on equally near views


def _name(move: Move) -> str:
    return json.dumps(move.steps, sort_keys=True, ensure_ascii=False)


class Agenda:
    """A queue of (view, move). `to_json` is read again by `take_up`."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Node, Move]] = []
        self._count = 0
        self._paid: dict[str, bool] = {}  # move -> whether it ever showed anything new
        self._failed: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, node: Node, move: Move, turn: int = BROUGHT) -> None:
        """Queue a move: one that the view brought, or that its source had too, ELSEWHERE or HERE."""
        self._count += 1
        heapq.heappush(self._heap, (node.depth, turn, self._count, node, move))

    def take(self) -> tuple[Node, Move]:
        """The next to try. Raises IndexError when nothing is left."""
        while True:
            depth, turn, number, node, move = heapq.heappop(self._heap)
            if turn >= _BARREN or self._paid.get(_name(move), True):
                return node, move
            heapq.heappush(self._heap, (depth, _BARREN, number, node, move))

    def tell(self, move: Move, *, new: bool) -> None:
        """What a move gave: a view that was not known, or none."""
        self._paid[_name(move)] = new or self._paid.get(_name(move), False)

    def again(self, node: Node, move: Move) -> bool:
        """A move that could not be made goes to the end of the queue, once: the machine may have been busy."""
        key = (node.address, _name(move))
        if key in self._failed:
            return False
        self._failed.add(key)
        self.add(node, move, _AGAIN)
        return True

    def to_json(self, first: Iterable[tuple[Node, Move]] = ()) -> dict[str, Any]:
        """All that is left, `first` before the rest (what is being tried)."""
        left = [(BROUGHT, node, move) for node, move in first]
        left += [(one[1], one[3], one[4]) for one in sorted(self._heap, key=lambda one: one[:3])]
        return {
            "queue": [(node.address, asdict(move), turn) for turn, node, move in left],
            "paid": self._paid,
        }

    def take_up(self, known: dict[str, Any], nodes: dict[str, Node]) -> list[tuple[Node, Move]]:
        """What `to_json` gave, of the views that are still known."""
        self._paid.update(known.get("paid", {}))
        found = []
        for address, asked, *turn in known.get("queue", ()):
            if address in nodes:
                found.append((nodes[address], Move.from_json(asked)))
                self.add(*found[-1], *turn)
        return found
