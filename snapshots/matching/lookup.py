"""What a request is answered with, and why."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.identity.irrelevant import irrelevant, irrelevant_url
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.matching.changers import Changers
from stillweb.snapshots.matching.confidence import Confidence
from stillweb.snapshots.matching.failing import Failed
from stillweb.snapshots.matching.peeking import Peek
from stillweb.snapshots.matching.sessions import Session
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.conditions import Effect, SiteState, read
from stillweb.snapshots.states.groups import Group

MISS = "miss"
HANGS = "hangs"


@dataclass(frozen=True, slots=True)
class Near:
    """A capture that comes near, what differs in it, and the rule that would join it, were it in force."""

    capture: Capture
    differs: list[str]
    rule: str | None


@dataclass(frozen=True, slots=True)
class Rival:
    """A recorded answer to a request, the chance that it is right now, and the grounds of that chance in words."""

    capture: Capture
    confidence: float
    grounds: list[str]


class Explainer(Protocol):
    """What is asked of a matcher to say why."""

    @property
    def peek(self) -> Peek: ...
    def group(self, url: str, /) -> Group: ...
    def around(self, start: str, /) -> Iterator[Capture]: ...
    def changes(self, site: str, /) -> bool: ...
    def changers(self, site: str, /) -> Changers: ...
    def nearest(self, lookup: Lookup, /) -> list[Near]: ...


@dataclass(slots=True, eq=False)
class Lookup:
    """What a request is answered with, and why.

    `verdict` is `exact`, `canonical`, `varies:<header>`, `rule:<ids>`, or, with `capture` None, `failed:<reason>` (then
    `failed` says of what) or `miss`; `hangs` where a long poll is not answered yet, for those who can wait. `rule` holds the
    ids alone. `ambiguous`: the evidence does not decide that this is the answer. `state` is the session's state at the site,
    "" where none can matter.
    """

    verdict: str
    capture: Capture | None
    rule: str | None
    ambiguous: bool
    state: str
    key: Key
    request: Request
    timeless: bool = False  # any session that has changed nothing has the same answer
    inert: bool = False  # nothing follows from it for the session
    shared: bool = False  # several recorded sessions were answered so
    site: str = ""
    others: tuple[Effect, ...] = ()  # what it may have done, if it was not answered so
    why: tuple[str, ...] = ()
    # recorded ones, and those that the client drew in their places
    ids: Mapping[str, str] = field(default_factory=dict)
    matcher: Explainer | None = field(default=None, repr=False)
    session: Session | None = field(default=None, repr=False)
    before: SiteState | None = field(default=None, repr=False)  # of a miss: the state that it was asked in
    failed: Failed | None = None
    confidence: float = 0.0  # the chance that this is the right answer; told by the model of evidence alone
    grounds: Callable[[], list[str]] | None = field(default=None, repr=False)  # of that chance, in words
    rivals: Callable[[], list[Rival]] | None = field(default=None, repr=False)  # the two likeliest answers
    polled: bool = False  # whether it is a long poll
    _nearest: list[Near] | None = field(default=None, repr=False)

    @property
    def told(self) -> Confidence | None:
        """The confidence in the answer as users are told it; None for a miss, and without the model of evidence."""
        return Confidence.of(self.confidence) if self.confidence and self.capture is not None else None

    @property
    def hundredths(self) -> float | None:
        """The confidence rounded down to hundredths; None as for `told`."""
        return self.told.value if self.told is not None else None

    @property
    def irrelevant(self) -> bool:
        """Whether nothing that is read depends on it; found out when asked, which costs a tenth of a lookup."""
        if self.capture is None:
            return irrelevant(self.request)
        return irrelevant_url(self.request.url.partition("?")[0])

    @property
    def settled(self) -> bool:
        """Whether the same request of any session at any time has the same answer."""
        if not self.timeless or self.capture is None:
            return False
        if read(self.capture.state).lasting:
            return True
        return self.matcher is not None and not self.matcher.changes(site_of(self.request.url))

    def explain(self) -> list[Near]:
        """The captures that come nearest, what differs in each, and the rule that would join them."""
        if self._nearest is None:
            self._nearest = self.matcher.nearest(self) if self.matcher is not None else []
        return self._nearest

    @property
    def nearest(self) -> list[Near]:
        """See `explain`."""
        return self.explain()

    @property
    def remedy(self) -> str:
        """The command that would record what is missing, into a layer over the snapshot."""
        return remedy(self.request)


def remedy(request: Request) -> str:
    """The command that would record what a miss asked for, as a layer over the snapshot."""
    if request.method == "GET" and not request.body:
        return f"stillweb record -o LAYER {shlex.quote(request.url)}"
    words = ["curl", "-X", request.method]
    media = request.header("content-type")
    if media:
        words += ["-H", f"Content-Type: {media}"]
    if request.body:
        try:
            words += ["--data-raw", request.body.decode("ascii")]
        except UnicodeDecodeError:
            words += ["--data-binary", "@BODY"]
    return f"stillweb record -o LAYER -- {shlex.join([*words, request.url])}"
