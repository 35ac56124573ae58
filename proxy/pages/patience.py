"""How long a page is waited for, and how that ended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a page is waited for.

    `virtual` is the page's own time granted after its last request (ms), `total` at most in one settling (ms);
    `real` bounds the settling by this machine's clock (s); a request older than `stuck` (s) holds nothing up, nor does a
    message of a web socket. A page with streams that says that it is at work is waited for `busy` s while nothing comes;
    `vain` are such signs that nothing followed.
    """

    virtual: float = 3000.0
    total: float = 15000.0
    real: float = 60.0
    stuck: float = 8.0
    busy: float = 30.0
    vain: set[str] = field(default_factory=set, compare=False)


@dataclass(frozen=True, slots=True)
class Calm:
    """How a settling ended. `reason` says in a few words why the page was not quiet, "" when it was."""

    quiet: bool
    moved: float
    rounds: int
    reason: str = ""
