"""Replay order of concurrent model calls: answers come in the order in which they were recorded.

An agent with several calls under way sees which answer comes first and may act on it, so this order is part
of the recording. Among overlapping calls (a bunch), an answer waits until all calls are made that were made
before it came, and all answers are given that came before it. An agent that calls in another order would wait
for ever: after PATIENCE seconds without progress the order is given up, and the consequences show in the
trace. Sequential calls are bunches of one and never wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

PATIENCE = 15.0  # seconds


@dataclass(slots=True, eq=False)
class Turn:
    """Recorded call: the session's event numbers when it was made and when its answer came, if `due`."""

    begin: int
    end: int
    due: bool
    made: bool = False
    given: bool = False
    taken: bool = False  # its caller has its answer, or waits for it no longer
    waiter: asyncio.Future[None] | None = None
    bunch: int = 0


class Turns:
    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        every = sorted(turns, key=lambda turn: turn.begin)
        self._every = every
        self._calls: list[deque[Turn]] = []  # by bunch; the front of each deque is the next call to be made
        until = -1
        for turn in every:
            if turn.begin > until:
                self._calls.append(deque())
            until = max(until, turn.end)
            turn.bunch = len(self._calls) - 1
            self._calls[-1].append(turn)
        self._answers = deque(sorted((turn for turn in every if turn.due), key=lambda turn: turn.end))
        self._held: set[asyncio.Future[None]] = set()
        self._resting: set[asyncio.Future[None]] = set()
        self._moves = 0
        self._given_up = False

    def note_made(self, turn: Turn) -> None:
        """Note that a recorded call is made again."""
        turn.made = True
        self._move()

    def leave_out(self, turn: Turn) -> None:
        """Skip a call that is not answered from the tape."""
        turn.made = turn.given = turn.taken = True
        self._move()

    def note_taken(self, turn: Turn) -> None:
        """Note that the caller has the answer of a call, or waits for it no longer."""
        turn.taken = True
        self._move()

    async def wait_for(self, turn: Turn) -> None:
        """Wait until the answer is due. Raises the error passed to `stop`."""
        turn.waiter = waiter = asyncio.get_running_loop().create_future()
        self._move()
        try:
            while not waiter.done():
                moves = self._moves
                await asyncio.wait([waiter], timeout=PATIENCE)
                if not waiter.done() and moves == self._moves:
                    self._given_up = True
                    self._move()
            waiter.result()
        finally:
            turn.given = True
            self._move()

    async def hold(self, seconds: float) -> None:
        """Wait `seconds` at a call that was never answered. Raises the error passed to `stop`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=seconds)
            if waiter.done():
                waiter.result()
        finally:
            self._held.discard(waiter)

    async def wait_until_idle(self) -> None:
        """Wait until all recorded calls are made and their callers have the answers, or nothing moves.

        Raises the error passed to `stop`.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resting.add(waiter)
        try:
            moves = -1
            while not self._complete() and moves != self._moves and not (self._given_up or waiter.done()):
                moves = self._moves
                await asyncio.wait([waiter], timeout=PATIENCE)
            if waiter.done():
                waiter.result()
        finally:
            self._resting.discard(waiter)

    def stop(self, error: BaseException | None) -> None:
        """Raise `error` in all waiting callers; without one, cancel them."""
        waiting = [turn.waiter for turn in self._answers if turn.waiter and not turn.given]
        for waiter in (*waiting, *self._held, *self._resting):
            _settle(waiter, error or asyncio.CancelledError())

    def _move(self) -> None:
        self._moves += 1
        while self._answers and self._answers[0].given:
            self._answers.popleft()
        if self._resting and self._complete():
            for waiter in self._resting:
                _settle(waiter)
        skipped: set[int] = set()  # bunches with an earlier answer whose call is not made yet
        for turn in self._answers:
            if not turn.made:
                skipped.add(turn.bunch)
            elif not turn.given:
                awaited = turn.bunch in skipped or self._unmade(turn)
                if turn.waiter is not None and (self._given_up or not awaited):
                    _settle(turn.waiter)
                if not self._given_up:
                    return

    def _complete(self) -> bool:
        return all(turn.taken if turn.due else turn.made for turn in self._every)

    def _unmade(self, turn: Turn) -> bool:
        """Return True if a call of the bunch, made before this answer came, is still to be made."""
        calls = self._calls[turn.bunch]
        while calls and calls[0].made:
            calls.popleft()
        return bool(calls) and calls[0].begin < turn.end


def _settle(waiter: asyncio.Future[None], error: BaseException | None = None) -> None:
    def settle() -> None:
        if waiter.done():
            return
        if isinstance(error, asyncio.CancelledError):
            waiter.cancel()
        elif error is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(None)

    loop = waiter.get_loop()
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        settle()
    else:
        loop.call_soon_threadsafe(settle)
