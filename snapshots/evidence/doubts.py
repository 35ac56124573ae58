"""What makes an answer that was chosen unsure: the request says more than those that were recorded, or something else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.http.fragments import fragment_fields
from stillweb.snapshots.identity.irrelevant import irrelevant_cookie
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.evidence.situation import Situation
from stillweb.snapshots.evidence.varying import ANYTHING, ORIGIN, asked_of
from stillweb.snapshots.request import Headers
from stillweb.snapshots.states.acceptance import accepts, first_kind, may_be_chosen, tolerates, usual
from stillweb.snapshots.states.conditions import ONCE, read
from stillweb.snapshots.states.header_fields import ACCEPT, PRESENT, all_of, counting, is_secret, own_of
from stillweb.snapshots.states.slots import cookies_of, credentials_of, is_session, logins_of, telling_of

Doubt = Callable[[Capture, list[Capture], Situation], bool]


def cut_short(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Only the first of its body was kept: a client would have got more."""
    return bool(chosen.truncated)


def no_fragment(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """A page for a fragment: a server that makes fragments would have sent one."""
    asked = fragment_fields(now.request)
    if not asked or read(chosen.state).any:
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


def names_somebody(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Asked for with Authorization, and recorded without: a server that minds it may have said something else."""
    if not credentials_of(now.request.headers) or read(chosen.state).any:
        return False
    return not credentials_of(now.peek.fields(chosen))


def anything_counts(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """`Vary: *` (RFC 9110, 12.5.5): an answer to nothing but a request that says all the same."""
    if all(name != ANYTHING for name, _ in chosen.vary):
        return False
    return all_of(now.peek.fields(chosen)) != all_of(now.request.headers)


def other_fields(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Fields of an application that were recorded with other values or not at all, where it was not seen that they
    don't decide.
    """
    asked = counting(own_of(now.request.headers), now.request.method, now.request.url)
    if not asked or read(chosen.state).any:
        return False
    recorded = own_of(now.peek.fields(chosen))
    counted = {name for name, value in chosen.vary if value != PRESENT}  # those were looked at already
    for name, value in asked.items():
        if name in counted or recorded.get(name) == value:
            continue
        seen = _seen(captures, now, partial(_field, name))
        # of a secret no other one is known to be good
        secret = is_secret(name, value) or is_secret(name, recorded.get(name, ""))
        if not _known_alike(value, seen, other=not secret):
            return True
    return False


def other_client(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Cookies that tell who asks, or what for, which the client has from elsewhere than from this replay and with which
    nothing was recorded, where it was not seen that they don't decide.
    """
    headers = now.request.headers
    if not any(name.lower() == "cookie" for name, _ in headers):
        return False
    names = set() if now.given else set(logins_of(headers))
    asked = telling_of(headers) + [(n, v) for n, v in cookies_of(headers) if n in names]
    if any(name == "cookie" for name, _ in chosen.vary):  # the server itself says that they decide
        asked = [
            (n, v)
            for n, v in cookies_of(headers)
            if not irrelevant_cookie(n) and not (now.given and is_session(n, v))
        ]
    if not asked or read(chosen.state).any:
        return False
    recorded = cookies_of(now.peek.fields(chosen))
    for name, value in asked:
        if (name, value) in recorded or _gave(now, name, value):
            continue
        seen = _seen(captures, now, partial(_cookie, name))
        if not _known_alike(value, seen):
            return True
    return False


def said_otherwise(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Over web sockets the session has said something else than was said before it, where it was not seen that it
    doesn't matter. What writes is answered as it is.
    """
    spoken = now.spoken
    if spoken is None or read(chosen.state).any or chosen.changes or spoken.before(chosen) == now.told():
        return False
    seen: dict[frozenset[tuple[str, int]], set[str]] = defaultdict(set)
    for capture in captures:
        seen[frozenset(spoken.before(capture).items())].add(now.said(capture))
    return len(seen) < 2 or len(set.union(*seen.values())) > 1


def more_often(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Asked for more often in a row than was ever recorded, where answers changed without a cause that is known."""
    order = read(chosen.state).sequence
    if order is None or order.since == ONCE or now.state is None or now.worded:
        return False
    orders = [(c, o) for c in captures if (o := read(c.state).sequence) and o.key == order.key]
    if now.state.asked(order) <= max(o.place for _, o in orders):
        return False
    return len({now.said(c) for c, _ in orders}) > 1


def _media(headers: Headers) -> str:
    """The media type of a request's body if it is one of JSON."""
    media = asked_of(headers, "content-type").partition(";")[0].strip().lower()
    return usual(media) if "json" in media else ""


def _field(name: str, headers: Headers) -> str:
    return own_of(headers).get(name, "")


def _cookie(name: str, headers: Headers) -> str:
    return dict(cookies_of(headers)).get(name, "")


def _gave(now: Situation, name: str, value: str) -> bool:
    """Whether an answer of this replay gave the client a cookie."""
    site = site_of(now.request.url)
    return any((name, value) in now.peek.gives(c) for c in reversed(now.served) if site_of(c.url) == site)


def _seen(
    captures: Sequence[Capture], now: Situation, value: Callable[[Headers], str]
) -> Mapping[str, set[str]]:
    """What was said to each value of something that requests say in their fields; "" where they don't say it."""
    found: dict[str, set[str]] = defaultdict(set)
    for capture in captures:
        found[value(now.peek.fields(capture))].add(now.said(capture))
    return found


def _known_alike(asked: str, seen: Mapping[str, set[str]], *, other: bool = True) -> bool:
    """Whether a value is known to get what others got: all were answered alike, and it is one of them, or may be an
    `other` one where two were seen.
    """
    if len({frozenset(answers) for answers in seen.values()}) > 1:
        return False
    return asked in seen or (other and len(seen.keys() - {""}) > 1)


DOUBTS: list[Doubt] = [
    cut_short,
    no_fragment,
    other_kind,
    other_type,
    other_reader,
    names_somebody,
    anything_counts,
    other_fields,
    other_client,
    said_otherwise,
    more_often,
]


def doubtful(chosen: Capture, captures: list[Capture], now: Situation) -> bool:
    """Whether anything speaks against the chosen one of the captures of a request."""
    return any(doubt(chosen, captures, now) for doubt in DOUBTS)
