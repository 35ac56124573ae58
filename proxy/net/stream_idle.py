"""Detection of silent streams: waits until a page's web sockets and event streams have said everything.

While recording, streams speak at any time, and a busy machine delays them. Messages sent by the page must
have reached the recorder, and those of the server the page; then both must hear nothing for a while. The
origin's own delays don't count, unless the page shows nothing yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

LISTEN = 0.5  # s of real time for which streams must be silent
LATE = 5.0  # s after which a difference between page and recorder is taken for lasting
AGAIN = 0.02  # s between two checks


class StreamCounters(NamedTuple):
    """Counters of a session's open streams: web socket messages by side, bytes of event streams."""

    from_client: int = 0
    from_server: int = 0
    streamed: int = 0


# returns the page's state after two frames; None if the page is leaving
Ask = Callable[[], Awaitable[Mapping[str, Any] | None]]


@dataclass(slots=True)
class Silence:
    """The streams of a browser context. `said` returns the recorder's counters; None without a recorder."""

    counters: Callable[[], StreamCounters] | None = None
    # lasting difference between recorder and page: other tabs have sockets, too
    _lasting: tuple[int, int] = (0, 0)

    def has_traffic(self) -> bool:
        """Return True if a message or a byte has come by an open stream, from either side."""
        counters = self._read_counters()
        return counters is None or any(counters)

    async def holds(self, before: Mapping[str, Any], ask: Ask) -> bool:
        """Return True if the page, in the state `before`, and its streams stay silent for a while."""
        loop = asyncio.get_running_loop()
        counters = await self._wait_for_arrival(ask)
        begun = loop.time()
        await asyncio.sleep(LISTEN)
        if loop.time() - begun > 1.5 * LISTEN:
            return False  # this process was delayed; so were the streams, which may be about to speak
        state = await ask()
        if state is None or state["mutations"] != before["mutations"]:
            return False
        return counters is None or (
            self._read_counters() == counters and self._difference(counters, state) == self._lasting
        )

    async def breaks(self, before: Mapping[str, Any], ask: Ask, until: float) -> bool:
        """Return True if something is said before the loop's time is `until`.

        The page was in the state `before`.
        """
        while asyncio.get_running_loop().time() < until:
            if not await self.holds(before, ask):
                return True
        return False

    async def _wait_for_arrival(self, ask: Ask) -> StreamCounters | None:
        """Wait until the messages under way have arrived, at most LATE seconds; return the counters."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + LATE
        while (counters := self._read_counters()) is not None and (state := await ask()) is not None:
            apart = self._difference(counters, state)
            if apart not in ((0, 0), self._lasting) and loop.time() < limit:
                await asyncio.sleep(AGAIN)
                continue
            self._lasting = apart
            break
        return counters

    def _read_counters(self) -> StreamCounters | None:
        return self.counters() if self.counters is not None else None

    @staticmethod
    def _difference(counters: StreamCounters, state: Mapping[str, Any]) -> tuple[int, int]:
        return counters.from_client - state["sent"], counters.from_server - state["heard"]
