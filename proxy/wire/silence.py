"""Whether the streams of a page have said all: while recording they speak when they like, and a busy machine is late.

What the page sent over its web sockets must have come to the recorder, and what came from there to the page; then
neither may hear anything for a while. How long an origin thinks is its own affair, unless the page shows nothing yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

LISTEN = 0.5  # s of this machine's time in which streams must be silent
LATE = 5.0  # s after which what is under way between page and recorder is not waited for: it is counted otherwise
AGAIN = 0.02  # s between looks


class Said(NamedTuple):
    """What the open streams of a session have said so far: messages of web sockets by side, bytes of event streams."""

    mine: int = 0
    theirs: int = 0
    streamed: int = 0


Ask = Callable[[], Awaitable[Mapping[str, Any] | None]]  # the page's state, after two frames; None: it goes


@dataclass(slots=True)
class Silence:
    """The streams of a context. `said` tells what a recorder heard; None where there is none."""

    said: Callable[[], Said] | None = None
    _apart: tuple[int, int] = (0, 0)  # of recorder and page, for good: other tabs have sockets, too

    async def kept(self, before: Mapping[str, Any], ask: Ask) -> bool:
        """Whether nothing was said for a while to a page that was in the state `before`."""
        loop = asyncio.get_running_loop()
        said = await self._arrived(ask)
        begun = loop.time()
        await asyncio.sleep(LISTEN)
        if loop.time() - begun > 1.5 * LISTEN:
            return False  # held up; so were they, and may be about to speak
        state = await ask()
        if state is None or state["mutations"] != before["mutations"]:
            return False
        return said is None or (self._heard() == said and self._between(said, state) == self._apart)

    async def broken(self, before: Mapping[str, Any], ask: Ask, until: float) -> bool:
        """Whether something is said before the loop's time is `until`, to a page that was in the state `before`."""
        while asyncio.get_running_loop().time() < until:
            if not await self.kept(before, ask):
                return True
        return False

    async def _arrived(self, ask: Ask) -> Said | None:
        """What has been said, when all of it is where it was meant for."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + LATE
        while (said := self._heard()) is not None and (state := await ask()) is not None:
            apart = self._between(said, state)
            if apart not in ((0, 0), self._apart) and loop.time() < limit:
                await asyncio.sleep(AGAIN)
                continue
            self._apart = apart
            break
        return said

    def _heard(self) -> Said | None:
        return self.said() if self.said is not None else None

    @staticmethod
    def _between(said: Said, state: Mapping[str, Any]) -> tuple[int, int]:
        return said.mine - state["sent"], said.theirs - state["heard"]
