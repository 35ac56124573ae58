"""Limits of the wait for a page, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of the wait for a page.

    `virtual` is the page's own time granted after its last request (ms), `total` the most in one settling
    (ms). `real` bounds the settling by this machine's clock (s). A request older than `stuck` (s) holds
    nothing up, nor does a web socket's message. A page with streams that says it is at work is waited for
    `busy` s while nothing comes; `vain` holds such signs that nothing followed.
    """

    virtual: float = 3000.0
    total: float = 15000.0
    real: float = 60.0
    stuck: float = 8.0
    busy: float = 30.0
    vain: set[str] = field(default_factory=set, compare=False)


@dataclass(frozen=True, slots=True)
class Calm:
    """The outcome of a settling. `reason` says in a few words why the page was not quiet, "" if it was."""

    quiet: bool
    moved: float
    rounds: int
    reason: str = ""
