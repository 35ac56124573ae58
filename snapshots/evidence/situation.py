"""A request in a session: all that decides the choice among captures beside the captures themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.evidence.peeking import Peek
from stillweb.snapshots.evidence.sessions import Followed
from stillweb.snapshots.request import Request


@dataclass(slots=True)
class Situation:
    """A request, the session that it is of, and what was found out about the choice so far."""

    request: Request
    name: str  # of the session
    followed: Followed
    page: Followed | None  # the same as of the last page, whatever it brought in
    read_request: Callable[[Capture], Request]
    peek: Peek
    unsure: bool = False
    why: list[str] = field(default_factory=list)

    def own(self, captures: list[Capture]) -> str:
        """Return the recorded session that this one follows among captures: of its own name, else of the last page or answer."""
        if any(c.session == self.name for c in captures):
            return self.name
        return (self.page or self.followed).session
