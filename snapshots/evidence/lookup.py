"""What a request is answered with, and why."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.contents.failing import Failed
from stillweb.snapshots.evidence.conditions import Peek
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.evidence.sessions import Session
from stillweb.snapshots.identity.group import Group
from stillweb.snapshots.identity.irrelevant import irrelevant, irrelevant_url
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.identity.rules import Issued
from stillweb.snapshots.request import Request

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
    """The part of a matcher that says why."""

    @property
    def peek(self) -> Peek: ...
    def group(self, url: str, /) -> Group: ...
    def issued(self, request: Request, /) -> Issued: ...
    def around(self, start: str, /) -> Iterator[Capture]: ...
    def nearest(self, lookup: Lookup, /) -> list[Near]: ...
    def note(self, session: Session, request: Request, capture: Capture, trust: float, /) -> None: ...
    def note_live(self, session: Session, request: Request, response: Response, /) -> None: ...


@dataclass(slots=True, eq=False)
class Lookup:
    """What a request is answered with, and why.

    `verdict` is `exact`, `canonical`, `varies:<field>`, `rule:<ids>`, or, with `capture` None, `failed:<reason>` (then `failed` says of what)
    or `miss`; `hangs` where a long poll is not answered yet, for those who can wait. `rule` holds the ids alone.
    """

    verdict: str
    capture: Capture | None
    rule: str | None
    key: Key
    request: Request
    confidence: float = 0.0  # the chance that this is the right answer
    ambiguous: bool = False  # whether that is too small to be sure
    inert: bool = False  # nothing follows from it for the session, in which only the request decided
    state: str = ""  # a label of what the session did at the site, "" for nothing that may decide
    lasting: bool = False  # and it is the same whatever the session does
    why: tuple[str, ...] = ()
    # recorded ones, and those that the client drew in their places
    ids: Mapping[str, str] = field(default_factory=dict)
    matcher: Explainer | None = field(default=None, repr=False)
    failed: Failed | None = None
    grounds: Callable[[], list[str]] | None = field(default=None, repr=False)  # of the confidence, in words
    rivals: Callable[[], list[Rival]] | None = field(default=None, repr=False)  # the two likeliest answers
    polled: bool = False  # whether it is a long poll
    _nearest: list[Near] | None = field(default=None, repr=False)

    @property
    def told(self) -> Confidence | None:
        """The confidence in the answer as users are told it; None for a miss."""
        return Confidence.of(self.confidence) if self.confidence and self.capture is not None else None

    @property
    def hundredths(self) -> float | None:
        """The confidence rounded down to hundredths; None as for `told`."""
        return self.told.value if self.told is not None else None

    @property
    def irrelevant(self) -> bool:
        """Return True if nothing that is read depends on it; found out when asked, which costs a tenth of a lookup."""
        if self.capture is None:
            return irrelevant(self.request)
        return irrelevant_url(self.request.url.partition("?")[0])

    def explain(self) -> list[Near]:
        """Return the captures that come nearest, what differs in each, and the rule that would join them."""
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
    """Return the command that would record what a miss asked for, as a layer over the snapshot."""
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


def doubted(lookup: Lookup) -> Confidence | None:
    """Return the confidence in the answer to a lookup; None if there is no doubt, or none that matters."""
    told = lookup.told
    return told if told is not None and told.millionths and not lookup.irrelevant else None
