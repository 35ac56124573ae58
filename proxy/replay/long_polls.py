"""Long polls in replay: they hang until there is news, as they did while recording.

See `stillweb.snapshots.evidence.polls`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from stillweb.proxy.replay.replies import Held, Reply
from stillweb.snapshots.evidence.lookup import HANGS, Lookup
from stillweb.snapshots.identity.keys import request_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from stillweb.proxy.replay.replies import Line
    from stillweb.snapshots.evidence.matcher import Matcher
    from stillweb.snapshots.request import Request

LEFT = "a long poll: its client left before there was news, or more of it than was recorded"


class Desk(Protocol):
    """The part of `stillweb.proxy.replay.answering.Answerer` that is used here."""

    matcher: Matcher

    @property
    def tail(self) -> Callable[..., str]: ...
    def note(self, line: Line, tail: str, /) -> None: ...
    def lookup(self, request: Request, line: Line, *, patient: bool = False) -> Lookup: ...
    def answer(self, request: Request, line: Line, /) -> Reply: ...


def hanging(desk: Desk, request: Request, line: Line) -> Reply:
    """Return a reply that is held until the request has an answer."""

    def due() -> bool:
        return desk.lookup(request, line, patient=True).verdict != HANGS

    reply = Reply(504, "Hanging", ())
    reply.held = Held(
        0,
        lambda: desk.answer(request, line),
        until=lambda: line.until(due),
        left=lambda: unanswered(desk, request, line, "exact"),
    )
    return reply


def unanswered(desk: Desk, request: Request, line: Line, verdict: str) -> None:
    """Write the ledger line of a poll whose client left without an answer."""
    rule = verdict.partition("rule:")[2] or None
    asked = Lookup(verdict, None, rule, request_key(request), request)
    desk.note(line, desk.tail(request, asked, verdict, "", 0, more={"why": LEFT}))


async def never() -> None:
    """Wait forever."""
    await asyncio.get_running_loop().create_future()
