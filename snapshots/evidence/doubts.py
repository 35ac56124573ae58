"""What makes an answer that was chosen unsure: the request says more than those that were recorded, or something else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.evidence.situation import Situation
from stillweb.snapshots.evidence.varying import ORIGIN, asked_of
from stillweb.snapshots.http.acceptance import accepts, first_kind, may_be_chosen, tolerates, usual
from stillweb.snapshots.http.fragments import fragment_fields
from stillweb.snapshots.http.static import static_mime
from stillweb.snapshots.identity.header_fields import ACCEPT
from stillweb.snapshots.request import Headers

Doubt = Callable[[Capture, list[Capture], Situation], bool]


def cut_short(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Only the first of its body was kept: a client would have got more."""
    return bool(chosen.truncated)


def no_fragment(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """A page for a fragment: a server that makes fragments would have sent one."""
    asked = fragment_fields(now.request)
    if not asked or static_mime(chosen.mime):
        return False  # no such thing matters here
    known = {name for name, _ in chosen.vary}.union(*(fragment_fields(now.read_request(c)) for c in captures))
    return not asked <= known  # one was made, or is told from a page already


def other_kind(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Of a kind that is not accepted, or was asked for by its name: a server that chooses by Accept may have sent another."""
    if accepts(now.request, chosen):
        return False
    asked, recorded = asked_of(now.request.headers, ACCEPT), asked_of(now.peek.fields(chosen), ACCEPT)
    first = first_kind(asked)
    if first == first_kind(recorded):
        return False
    taken = tolerates(asked, chosen)
    if taken and not may_be_chosen(recorded, asked, chosen.mime):
        return False
    seen = _seen(captures, now, lambda sent: first_kind(asked_of(sent, ACCEPT)))
    return not _known_alike(first, seen, other=taken)


def other_type(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """The same JSON as another media type (RFC 6902's and RFC 7396's patches): it may mean another thing, or nothing."""
    if not now.request.body:
        return False
    asked, recorded = (_media(headers) for headers in (now.request.headers, now.peek.fields(chosen)))
    return asked != recorded


def other_reader(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Asked by a page of another origin than the recorded one, where the answer doesn't let all of them read it."""
    origin = now.request.header(ORIGIN)
    if origin is None or f"{now.request.url}/".startswith(f"{origin}/"):
        return False
    allowed = now.peek.readers(chosen)[0]
    return allowed not in ("*", origin) and asked_of(now.peek.fields(chosen), ORIGIN) != origin


def _media(headers: Headers) -> str:
    """The media type of a request's body if it is one of JSON."""
    media = asked_of(headers, "content-type").partition(";")[0].strip().lower()
    return usual(media) if "json" in media else ""


def _seen(
    captures: Sequence[Capture], now: Situation, value: Callable[[Headers], str]
) -> Mapping[str, set[str]]:
    """What was said to each value of something that requests say in their fields; "" where they don't say it."""
    found: dict[str, set[str]] = defaultdict(set)
    for capture in captures:
        found[value(now.peek.fields(capture))].add(f"{capture.status} {capture.digest}")
    return found


def _known_alike(asked: str, seen: Mapping[str, set[str]], *, other: bool = True) -> bool:
    """Whether a value is known to get what others got: all were answered alike, and it is one of them, or may be an
    `other` one where two were seen.
    """
    if len({frozenset(answers) for answers in seen.values()}) > 1:
        return False
    return asked in seen or (other and len(seen.keys() - {""}) > 1)


UNSURE = 0.75  # what an answer of another kind than is asked for is worth
CUT = 0.9  # what an answer is worth of which only the first was kept
DOUBTS: list[tuple[Doubt, float]] = [
    (cut_short, CUT),
    (no_fragment, UNSURE),
    (other_kind, UNSURE),
    (other_type, UNSURE),
    (other_reader, UNSURE),
]


def worth(chosen: Capture, captures: list[Capture], now: Situation) -> float:
    """Return by how much the chance of an answer is less because of what the request says more, or otherwise."""
    found = [worth for doubt, worth in DOUBTS if doubt(chosen, captures, now)]
    return min([*found, UNSURE] if now.unsure else found, default=1.0)
