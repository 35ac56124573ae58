"""Explanations in words: the grounds of an answer, and of a miss the captures that come nearest and what differs."""

from __future__ import annotations

from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any
from urllib.parse import urlsplit

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.evidence.conditions import CaptureFacts, Place
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.evidence.events import SAY, Event, History
from stillweb.snapshots.evidence.lookup import MISS, Lookup, Matching, NearCapture
from stillweb.snapshots.evidence.model import ANEW, OTHER, PART, Model, Parts
from stillweb.snapshots.http.preconditions import FAILS, FIELDS, REFUSED, judge, preconditions_of
from stillweb.snapshots.identity.cookies import CREDENTIALS, credentials_of
from stillweb.snapshots.identity.differences import (
    OF_TURN,
    Values,
    count_equal_leaves,
    differences,
    same_start,
    show_value,
)
from stillweb.snapshots.identity.header_fields import PRESENT
from stillweb.snapshots.identity.keys import parse
from stillweb.snapshots.identity.recognising import other_secrets
from stillweb.snapshots.identity.rules import builtin, rules_that_join
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.request import SAFE_METHODS, Headers, Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, secret_header
from stillweb.snapshots.words import pluralize

NO_BLOCKS: Mapping[int, tuple[float, str]] = {}
LEAST = 0.02  # the chance from which something is named
NAMED = 4  # things that are named at most
LONG = 60  # characters of the values of an event
FEW = 3  # captures that are named
LOOKED_AT = 400  # captures of a path, or of a host when the path has none
# Units of about 2 µs that it may take to rank captures, and again to compare them: on the event loop, and of a
# request that a thread prepares. So long no other request waits.
WORK, PREPARED = 1000, 2000
EACH = 8  # units to look at a capture
READ = 30  # to read its request
RULES = 80  # to look for the rules that join it
TRIES = 24  # combinations of rules that are tried
TOO_MANY = "too many names to compare them"
MANY = 5  # differences that are named of a capture
# Fields of Vary that tell nothing that the past of the session does not tell better.
NEVER_VARY = frozenset({"accept-encoding", "cookie", "authorization", "proxy-authorization", "*"})
_MARKS = (b"&", b",", b"[", b"{", b"\n--")  # before each name or value of a form, JSON or a multipart body


def grounds(
    model: Model,
    key: int,
    past: tuple[History, int],
    parts: Parts,
    answer: int,
    unlike: Mapping[int, tuple[float, str]] = NO_BLOCKS,
) -> list[str]:
    """Return why an answer to a request is how likely, after what happened before a place of a history.

    `unlike` holds by answer the chance and the label of its least likely block.
    """
    target, (history, place) = model.targets[key], past
    alike = Counter(map(_type, model.kinds))

    def told(t: str) -> str:
        """Return a type by its method and path, and by the names of its parameters where these tell it from others."""
        names = "" if t.startswith(PART) else t.split(" ")[2][:LONG]
        return f"{_type(t)} ({names})" if names and alike[_type(t)] > 1 else _type(t)

    given = [o for o in target.observations if o.answer == answer]
    found = [_times(len(given), len(target.observations), len(target.answers))]
    candidates = model.candidates(key)
    decide = []
    for group, chance in model.inclusion(key).items():
        likely = takewhile(lambda member: chance * member[1] >= LEAST, candidates.groups[group])  # noqa: B023
        decide += [(chance * share, t) for t, share in likely]
    decide.sort(key=_likeliest)
    for chance, t in decide[:NAMED]:
        then, now = given[-1].history.of(t, given[-1].place, 1), history.of(t, place, 1)
        if t.startswith(PART):
            phrase = f"recorded with {_part(t, given[-1].parts)}"
            if given[-1].parts.get(t) != parts.get(t):
                phrase += f"; {_part(t, parts)} now"
        elif then:
            phrase = f"recorded after {_event(then[-1])}"
            if not now:
                phrase += ", which has not happened now"
            elif now[-1].key != then[-1].key:
                phrase += f"; after {_event(now[-1])} now"
        else:
            phrase = f"recorded before any {told(t)}" + (", which has happened now" if now else "")
        found.append(f"{phrase}; decides ({Confidence.of(chance)})")
    unseen = {t: 1 - kept[answer] for t, kept in model.untried(key, past, parts).items()}
    unseen |= {part: 1 - kept for part, kept in model.strange(target, parts).items()}
    doubts = sorted(((chance, t) for t, chance in unseen.items() if chance >= LEAST), key=_likeliest)
    found += [
        f"the recording does not show whether {told(t)} matters ({Confidence.of(chance)})"
        for chance, t in doubts[:NAMED]
    ]
    chance, label = unlike.get(answer, (1.0, ""))
    if 1 - chance >= LEAST:
        found.append(
            f"other pages show a block, too, which may be another one now: {label[:LONG]} ({Confidence.of(1 - chance)})"
        )
    return found


def _likeliest(pair: tuple[float, str]) -> tuple[float, str]:
    return -pair[0], pair[1]


def _times(times: int, of: int, answers: int) -> str:
    if answers == 1:
        return f"the only answer recorded, {times} of {of} times" if of > 1 else "recorded once"
    return f"recorded {times} of {of} times, with {answers} different answers"


def _event(event: Event) -> str:
    """Return an event as its method, path and values."""
    method, address = event.type.split(" ")[:2]
    if method == SAY:
        return _type(event.type)
    _, slash, path = address.partition("/")
    shown = " ".join(f"{name}={value}" for name, value in event.parameters if not name.startswith("#"))
    numbers = [value for name, value in event.parameters if name.startswith("#")]
    if numbers:
        shown = f"({', '.join(numbers)}) {shown}".strip()
    return f"{method} {slash or '/'}{path} {shown[:LONG]}".strip()


def _type(t: str) -> str:
    if t.startswith(PART):
        return t[1:].replace("(given)", "").strip()
    method, address, names = t.split(" ", 2)
    if method == SAY:
        return f"message {names[:LONG]}".strip()
    return f"{method} {urlsplit(f'//{address}').path or '/'}"


def _part(t: str, parts: Parts) -> str:
    """Return a part by its name; values of cookies and credentials are not shown."""
    secret = "cookie" in t or "authorization" in t or t.startswith("~drawn")
    if t not in parts:
        return f"no {_type(t)}"
    if parts[t] in (ANEW, OTHER):
        return "no recorded value"
    if t == "~words":  # each word with how often it was said
        return (
            f"{pluralize(sum(times for _, times in literal_eval(parts[t])), 'message')} said over web sockets"
        )
    return f"a {_type(t)}" if secret else f"{_type(t)}: {parts[t][:LONG]}"


def nearest(lookup: Lookup) -> list[NearCapture]:
    """Return the few captures that come nearest to what was asked, nearest first.

    Time is linear in the request and bounded: as many of those that look most like the request are compared with it name
    by name as there is time for.
    """
    matcher = lookup.matcher
    assert matcher is not None
    request = lookup.request
    group = matcher.group(request.url)
    # captures of the very same request differ alike, and agree in so many members of the body
    known: dict[tuple[str, str], tuple[list[str | Values], int]] = {}
    circumstances: dict[tuple[Any, ...], list[str | Values]] = {}

    def stored(capture: Capture) -> Request:
        return group.request(capture) if group.captures else Request(capture.method, capture.url)

    work, mine = PREPARED if request.remembers else WORK, _size(request)
    captures = _most_alike(request, group.captures or _neighbours(matcher, request.url), stored, work)
    captures = captures[: max(FEW, work // (2 * mine))]
    each = work // max(1, len(captures))
    same = [c for c in captures if c.key == lookup.key.canonical]
    sent = dict(_varied(same, matcher.peek))  # the fields that count
    asked = parse(request) if mine <= each else None
    found: list[tuple[tuple[Any, ...], Capture, list[str | Values]]] = []
    for capture in captures:
        text, recorded = (capture.method, capture.exact), stored(capture)
        if text not in known:
            if asked is not None and mine + _size(recorded) <= each:
                other = parse(recorded)
                known[text] = list(differences(asked, other)), count_equal_leaves(asked.body, other.body)
            else:
                known[text] = [TOO_MANY] * (lookup.key.canonical != capture.key), 0
        own, alike = known[text]
        differs = own
        if not own and lookup.verdict == MISS:
            safe = capture.method in SAFE_METHODS
            conditions = (capture.status, preconditions_of(recorded.headers)) if not safe else None
            fields = sent.get(capture.place, ())
            around = fields, conditions
            if around not in circumstances:
                circumstances[around] = list(_circumstances(lookup, capture, recorded, fields))
            differs = circumstances[around]
        weight = sum(_weight(difference) for difference in differs)
        # the very same request comes before any other, however much was done between the two
        order = bool(own), weight, -alike, -same_start(capture.url, request.url)
        found.append(((*order, capture.timestamp, capture.place), capture, differs))
    found.sort(key=lambda item: item[0])
    out: list[NearCapture] = []
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    for _, capture, differs in found:
        shown = [str(one) for one in differs]
        seen_as = capture.method, capture.url, tuple(shown)
        if seen_as not in seen:
            rule, recorded = None, stored(capture)
            if shown and asked is not None and max(map(_rules_size, (request, recorded))) <= work:
                rule = rules_that_join(
                    request, recorded, builtin().rules, matcher.issued(request), tries=TRIES
                )
                if rule and other_secrets(request, recorded)[1]:
                    rule = None  # no rule makes another password the same
            seen.add(seen_as)
            out.append(NearCapture(capture, _cut(shown), rule or None))
        if len(out) == FEW:
            break
    return out


def _size(request: Request) -> int:
    """Return an upper bound of the work to take a request apart and compare it: its names and values, and its bytes."""
    return EACH + 2 * _names(request) + (len(request.url) + len(request.body)) // 256


def _rules_size(request: Request) -> int:
    """Return an upper bound of the work to find the rules that join a request with another one."""
    return RULES + 24 * _names(request) + (len(request.url) + len(request.body)) // 8


def _names(request: Request) -> int:
    body = request.body
    return request.url.count("&") + (sum(body.count(mark) for mark in _MARKS) if body else 0)


def _most_alike(
    request: Request, captures: Iterable[Capture], stored: Callable[[Capture], Request], work: int
) -> list[Capture]:
    """Return the captures sorted for comparison: those that share the longest beginning with the request first."""
    body, method = request.body, request.method
    looked_at = sorted(islice(captures, LOOKED_AT), key=lambda c: c.method != method)
    if body:
        looked_at = looked_at[: max(FEW, work // (READ + len(body) // 1024))]

    def order(capture: Capture) -> tuple[Any, ...]:
        alike = same_start(body, stored(capture).body) if body and capture.method == method else 0
        start = -same_start(capture.url, request.url)
        return not body and capture.method != method, start, -alike, capture.timestamp, capture.place

    return sorted(looked_at, key=order)


def _cut(differs: list[str]) -> list[str]:
    more = len(differs) - MANY
    return [*differs[:MANY], f"{more} more"] if more > 1 else differs


def _neighbours(matcher: Matching, url: str) -> Iterator[Capture]:
    """Return captures of the same host, when none has the path."""
    host = surt(url).partition(")")[0]
    return matcher.snapshot.prefix(host + ")") if host else iter(())


def _weight(difference: str | Values) -> int:
    if isinstance(difference, Values):
        return difference.place != OF_TURN  # of a conversation, the turn itself weighs
    if difference.startswith(("path", "host", "method")) or difference == TOO_MANY:
        return 20
    return 5 if difference.startswith("body: ") else 1


def _circumstances(lookup: Lookup, capture: Capture, recorded: Request, fields: Headers) -> Iterator[str]:
    """Yield why a capture of the very same request is no answer: a condition, a header field, or what happened before."""
    request = lookup.request
    conditions = [preconditions_of(r.headers) for r in (request, recorded)]
    if request.method not in SAFE_METHODS and judge(conditions[0], conditions[1], capture.status) == FAILS:
        refused = f" (answered {capture.status})" if capture.status in REFUSED else ""
        for name, wanted, known in zip(FIELDS, *conditions, strict=True):
            if wanted != known:
                yield f"header {name}: {_sent('asked', wanted)}, {_sent('recorded', known)}{refused}"
    for name, value in fields:
        asked = _field(request.headers, name)
        if name == CREDENTIALS:  # no hash of a secret is shown
            asked, value = asked.partition(" ")[0], value.partition(" ")[0]
        elif secret_header(name, asked) or PSEUDONYM_TEXT.search(value):
            asked, value = ("a secret" if text else "" for text in (asked, value))
        if asked != value and not (asked and value == PRESENT):
            yield f"header {name}: asked {asked!r}, recorded {value!r}"
    if lookup.grounds is not None:
        yield f"confidence: {Confidence.of(lookup.confidence)} that it is the answer; " + "; ".join(
            lookup.grounds()
        )


def _varied(captures: list[Capture], peek: CaptureFacts) -> Iterator[tuple[Place, Headers]]:
    """Yield, for each capture of one request, the fields that any of their answers names in Vary, with its values."""
    names = sorted({n for c in captures for n, _ in c.vary} - NEVER_VARY)
    for capture in captures:
        own = dict(capture.vary)
        yield (
            capture.place,
            tuple((n, own[n] if n in own else _field(peek.fields(capture), n)) for n in names),
        )


def _field(headers: Headers, name: str) -> str:
    """Return the value of a field that counts in a request; of CREDENTIALS, whichever field holds them."""
    if name == CREDENTIALS:
        return credentials_of(headers)
    return ", ".join(v for n, v in headers if n.lower() == name)


def _sent(how: str, value: str | None) -> str:
    return f"not {how}" if value is None else f"{how} {show_value([value])}"
