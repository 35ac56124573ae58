"""Why a request was not answered: the captures that come nearest, what differs, and what would help."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, AnyStr
from urllib.parse import unquote_plus, urlsplit

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.evidence.issued import named_values
from stillweb.snapshots.evidence.lookup import MISS, Explainer, Lookup, Near
from stillweb.snapshots.evidence.peeking import Place
from stillweb.snapshots.evidence.preconditions import FAILS, FIELDS, REFUSED, judge, preconditions_of
from stillweb.snapshots.evidence.recognising import other_secrets
from stillweb.snapshots.evidence.varying import Fields, asked_of, counted, other_value
from stillweb.snapshots.http.bodies import BYTES, EMPTY, JSON, MULTIPART, Body, canonical_body
from stillweb.snapshots.identity.cookies import CREDENTIALS
from stillweb.snapshots.identity.keys import Parsed, parse
from stillweb.snapshots.identity.model_calls import TURNS, asks_a_model
from stillweb.snapshots.identity.rules import builtin, joining
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.request import SAFE_METHODS, Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, secret_field, secret_header
from stillweb.snapshots.words import counted as _counted

FEW = 3
LOOKED_AT = 400  # captures of a path, or of a host when the path has none
# Units of about 2 µs that an explanation may take to rank captures, and again to compare them.
WORK = 2000
EACH = 8  # units to look at a capture
READ = 30  # to read its request
STATE = 50  # to tell what had been done before it
RULES = 80  # to look for the rules that join it
TRIES = 24  # combinations of rules that are tried
SHOWN = 60  # characters of a value
LEAD = 20  # of which stand before where two long ones part
MANY = 5  # differences that are named of a capture
_MARKS = (b"&", b",", b"[", b"{", b"\n--")  # before each name or value of a form, JSON or a multipart body


def nearest(lookup: Lookup) -> list[Near]:
    """Return the few captures that come nearest to what was asked, nearest first.

    Time is linear in the request and bounded by `WORK`: the captures that look most like the request are compared
    with it name by name, the rest only if there is work left.
    """
    matcher = lookup.matcher
    assert matcher is not None
    request = lookup.request
    group = matcher.group(request.url)
    known: dict[tuple[str, str], list[str]] = {}  # captures of the very same request differ alike
    agreed: dict[tuple[str, str], int] = {}
    circumstances: dict[tuple[Any, ...], list[str]] = {}
    sent: dict[Place, Fields] = {}  # the fields that count

    def stored(capture: Capture) -> Request:
        return group.request(capture) if group.captures else Request(capture.method, capture.url)

    captures = _likest(request, group.captures or _neighbours(matcher, request.url), stored)
    work = _Work(WORK)
    mine = _size(request)
    asked = parse(request) if work.takes(mine) else None
    found: list[tuple[tuple[bool, int, int, int, str, tuple[str, int]], Capture, list[str]]] = []
    for capture in captures:
        text = capture.method, capture.exact
        if text not in known:
            recorded = stored(capture)
            if asked is not None and work.takes(mine + _size(recorded)):
                other = parse(recorded)
                known[text] = list(differences(asked, other))
                agreed[text] = _agreed(asked.body, other.body)
            elif not found:  # too long for names: at least one is told of
                known[text], agreed[text] = (
                    _roughly(lookup.key.canonical == capture.key, request, recorded),
                    0,
                )
            else:
                break
        differs = known[text]
        if not differs and lookup.verdict == MISS:
            safe = capture.method in SAFE_METHODS
            conditions = (capture.status, preconditions_of(stored(capture).headers)) if not safe else None
            if capture.place not in sent:
                same = [c for c in captures if c.key == capture.key]
                told = counted(same, request, matcher.peek)
                sent.update(zip((c.place for c in same), told, strict=True))
            fields = sent[capture.place]
            around = fields, conditions
            if around not in circumstances:
                if circumstances and not work.takes(STATE):
                    break
                circumstances[around] = list(_circumstances(lookup, capture, stored(capture), fields))
            differs = circumstances[around]
        weight = sum(_weight(difference) for difference in differs)
        # the very same request comes before any other, however much was done between the two
        order = (
            bool(known[text]),
            weight,
            -agreed[text],
            -_same(capture.url, request.url),
            capture.timestamp,
            capture.place,
        )
        found.append((order, capture, differs))
    found.sort(key=lambda item: item[0])
    out: list[Near] = []
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    for _, capture, differs in found:
        said = capture.method, capture.url, tuple(differs)
        if said not in seen:
            rule = None
            named = _cut(differs)
            recorded = stored(capture)
            if differs and asked is not None and work.takes(_rules_size(request) + _rules_size(recorded)):
                rule = joining(request, recorded, builtin().rules, matcher.issued(request), tries=TRIES)
                if rule and other_secrets(request, recorded)[1]:
                    rule = None  # no rule makes another password the same
            seen.add(said)
            out.append(Near(capture, named, rule or None))
        if len(out) == FEW:
            break
    return out


class _Work:
    """The work that an explanation may still do, in units of about 2 µs: no other request waits longer for it."""

    def __init__(self, units: int) -> None:
        self._left = units

    def takes(self, units: int) -> bool:
        """Spend `units` and return True, or return False where fewer are left."""
        if units > self._left:
            return False
        self._left -= units
        return True


def _size(request: Request) -> int:
    """Return an upper bound of the work to take a request apart and compare it: its names and values, and its bytes."""
    return EACH + 2 * _names(request) + (len(request.url) + len(request.body)) // 256


def _rules_size(request: Request) -> int:
    """Return an upper bound of the work to find the rules that join a request with another one."""
    return RULES + 24 * _names(request) + (len(request.url) + len(request.body)) // 8


def _names(request: Request) -> int:
    body = request.body
    return request.url.count("&") + (sum(body.count(mark) for mark in _MARKS) if body else 0)


def _likest(
    request: Request, captures: Iterable[Capture], stored: Callable[[Capture], Request]
) -> list[Capture]:
    """Return the captures in the order in which they are worth comparing, by what they begin with."""
    ranked: list[tuple[tuple[bool, int, int], str, Place, Capture]] = []
    work = _Work(WORK)
    for capture in islice(captures, LOOKED_AT):
        body = request.body if capture.method == request.method else b""
        if not work.takes(READ + len(body) // 1024 if body else 2) and len(ranked) >= FEW:
            break
        alike = _same(body, stored(capture).body) if body else 0
        order = not body and capture.method != request.method, -_same(capture.url, request.url), -alike
        ranked.append((order, capture.timestamp, capture.place, capture))
    return [capture for *_, capture in sorted(ranked, key=lambda item: item[:3])]


def _roughly(same: bool, request: Request, recorded: Request) -> list[str]:
    """Return what differs between two requests of which one has too many names to compare them one by one."""
    if same:
        return []
    found = []
    if request.method != recorded.method:
        found.append(f"method: asked {request.method}, recorded {recorded.method}")
    mine, theirs = request.url.partition("?"), recorded.url.partition("?")
    if mine[0] != theirs[0]:
        found.append("path: another one")
    for part, one, other in (("query", mine[2], theirs[2]), ("body", request.body, recorded.body)):
        if one != other:
            unit = "character" if part == "query" else "byte"
            asked = _counted(len(one), unit)
            found.append(f"{part}: {asked} asked, {len(other)} recorded, too many names to compare them")
    return found


def _cut(differs: list[str]) -> list[str]:
    more = len(differs) - MANY
    return [*differs[:MANY], f"{more} more"] if more > 1 else differs


def _neighbours(matcher: Explainer, url: str) -> Iterator[Capture]:
    """Return captures of the same host, when none has the path."""
    host = surt(url).partition(")")[0]
    return matcher.around(host + ")") if host else iter(())


def _weight(difference: str) -> int:
    if difference.startswith(("path", "host", "method")):
        return 20
    return 5 if difference.startswith("body: ") else 1


def _agreed(asked: Body, stored: Body) -> int:
    """How many leaves of JSON are the same before the first that differs: what was said to a model grows at its end."""
    if asked.kind != JSON or stored.kind != JSON:
        return 0
    one, other = _leaves(asked.value), _leaves(stored.value)
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def differences(asked: Parsed, stored: Parsed) -> Iterator[str]:
    """What differs between two requests, part by part, with both values; nothing if their keys are the same."""
    if asked.method != stored.method:
        yield f"method: asked {asked.method}, recorded {stored.method}"
    if asked.url != stored.url:
        one, other = urlsplit(asked.url), urlsplit(stored.url)
        for part, a, b in (
            ("scheme", one.scheme, other.scheme),
            ("host", one.netloc, other.netloc),
            ("path", one.path, other.path),
        ):
            if a != b:
                yield f"{part}: asked {a}, recorded {b}"
    if asked.operation != stored.operation:
        yield f"operation: asked {dict(asked.operation)}, recorded {dict(stored.operation)}"
    yield from _pairs("query", _query(asked), _query(stored))
    if sorted(asked.query or ()) != sorted(stored.query or ()):
        if not _differ(_query(asked), _query(stored)):
            yield "query: the same in another spelling"
    elif (asked.query is None) != (stored.query is None):
        yield "query: one has a ? and the other has none"
    yield from _bodies(asked, stored)


def _query(parsed: Parsed) -> list[tuple[str, str]]:
    out = []
    for pair in parsed.query or ():
        name, equals, value = pair.partition("=")
        out.append((unquote_plus(name), unquote_plus(value) if equals else "(no value)"))
    return [item for item in out if item != ("", "(no value)")]


def _differ(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> bool:
    return sorted(one) != sorted(other)


def _pairs(place: str, asked: list[tuple[str, str]], stored: list[tuple[str, str]]) -> Iterator[str]:
    mine, theirs = Counter(asked), Counter(stored)
    values: dict[str, tuple[list[str], list[str]]] = {}  # by name: those only asked, and those only recorded
    for side, only in enumerate((mine - theirs, theirs - mine)):
        for name, value in only.elements():
            values.setdefault(name, ([], []))[side].append(value)
    for name, (a, b) in values.items():
        if a and b and any(_secret(name, value) for value in (*a, *b)):
            yield f"{place} {name}: another secret than the recorded one"
        elif len(a) == len(b) == 1:
            yield f"{place} {name}{_parted(a[0], b[0])}"
        elif a and b:
            yield f"{place} {name}: asked {_shown(a)}, recorded {_shown(b)}"
        elif a:
            yield f"{place} {name}: asked {_shown(_told_of(name, a))}, not recorded"
        else:
            yield f"{place} {name}: not asked, recorded {_shown(_told_of(name, b))}"


def _secret(name: str, value: str) -> bool:
    return PSEUDONYM_TEXT.search(value) is not None or secret_field(re.split(r"[.\[]", name)[-1], value)


def _told_of(name: str, values: list[str]) -> list[str]:
    return ["(a secret)" if _secret(name, value) else value for value in values]


def _shown(values: list[str]) -> str:
    text = ", ".join(repr(v if len(v) <= SHOWN else v[:SHOWN] + "…") for v in values[:3])
    return text + (" …" if len(values) > 3 else "")


def _parted(asked: str, stored: str) -> str:
    """Both values; of long ones, such as prompts of a model, the part where they differ first."""
    begin = _same(asked, stored) - LEAD
    if begin <= 0 or max(len(asked), len(stored)) <= SHOWN:
        return f": asked {_shown([asked])}, recorded {_shown([stored])}"
    one, other = (_shown([text[begin:]]) for text in (asked, stored))
    return f", from character {begin} on: asked {one}, recorded {other}"


def _same(one: AnyStr, other: AnyStr) -> int:
    """Return how many characters (or bytes) two texts have in common at their start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _bodies(asked: Parsed, stored: Parsed) -> Iterator[str]:
    one, other = asked.body, stored.body
    if one.kind != other.kind or one.label != other.label:
        yield f"body: asked {_kind(one.kind, one.label)}, recorded {_kind(other.kind, other.label)}"
    elif one.kind == JSON and (turns := _turns(asked, stored)) is not None:
        yield from turns
    elif one.kind == JSON:
        found = list(_pairs("body member", _leaves(one.value), _leaves(other.value)))
        if not found and one.value != other.value:  # a text and a number, say, of the same spelling
            found = list(
                _pairs("body member", _leaves(one.value, plain=False), _leaves(other.value, plain=False))
            )
        yield from found
    elif one.kind == BYTES:
        if one.value != other.value:
            yield f"body: {len(one.value)} bytes asked, {len(other.value)} others recorded"
    elif one.kind == MULTIPART:
        found = list(_pairs("body field", _fields(one), _fields(other)))
        if not found and canonical_body(one) != canonical_body(other):
            found = ["body: the same fields, told in another way"]
        yield from found
    elif one.kind != EMPTY:
        mine = [(name, value) for place, name, value in named_values(asked) if place != "query"]
        theirs = [(name, value) for place, name, value in named_values(stored) if place != "query"]
        yield from _pairs("body field", mine, theirs)


def _turns(asked: Parsed, stored: Parsed) -> list[str] | None:
    """Return what differs between two conversations with a model, up to the first turn that does; None if they are none.

    Later turns follow from that one, so they explain nothing.
    """
    mine, theirs = asked.body.value, stored.body.value
    if not (asks_a_model(asked) and asks_a_model(stored)):
        return None
    name = next((n for n in TURNS if all(isinstance(v.get(n), list) for v in (mine, theirs))), None)
    if name is None or mine[name] == theirs[name]:
        return None
    said, known = mine[name], theirs[name]
    same = next((n for n, (a, b) in enumerate(zip(said, known, strict=False)) if a != b), None)
    at = same if same is not None else min(len(said), len(known))
    turn = said[at] if at < len(said) else known[at]
    role = turn.get("role") or turn.get("type") if isinstance(turn, dict) else None
    place = f"turn {at + 1}" + (f" ({role})" if role else "")
    earlier = f"; the {_counted(at, 'turn')} before it {'is' if at == 1 else 'are'} as recorded" if at else ""
    if same is None:
        which = "not recorded" if len(said) > at else "not asked"
        found = [f"conversation: {place} is {which}{earlier}"]
    else:
        found = [f"conversation: {place} is the first that differs{earlier}"]
        found += _pairs(
            "body member", _leaves(said[at], f"{name}[{at}]"), _leaves(known[at], f"{name}[{at}]")
        )
    rest = ({n: v for n, v in one.items() if n != name} for one in (mine, theirs))
    return found + list(_pairs("body member", *(_leaves(one) for one in rest)))


def _fields(body: Body) -> list[tuple[str, str]]:
    """The fields of a multipart body; of a file what tells it from others, first what can't be long."""
    found = []
    for part in body.value:
        value = part.content.decode("utf-8", "replace")
        if part.filename is not None:
            media = next(
                (text.decode("latin-1") for name, text in part.headers if name == b"content-type"), ""
            )
            digest = f"sha256:{sha256(part.content).hexdigest()[:12]}"
            value = f"{len(part.content)} bytes, {digest}, {part.filename}, {media}"
        found.append((part.name, value))
    return found


def _kind(kind: str, label: str) -> str:
    return "no body" if kind == EMPTY else f"{kind} ({label})" if label else kind


def _leaves(value: Any, path: str = "", *, plain: bool = True) -> list[tuple[str, str]]:
    """The leaves of JSON with their paths; texts without their quotes if `plain`."""
    if isinstance(value, dict) and value:
        return [
            leaf
            for name, item in value.items()
            for leaf in _leaves(item, f"{path}.{name}" if path else name, plain=plain)
        ]
    if isinstance(value, list) and value:
        return [leaf for n, item in enumerate(value) for leaf in _leaves(item, f"{path}[{n}]", plain=plain)]
    return [(path or "(all)", value if plain and isinstance(value, str) else json.dumps(value))]


def _circumstances(lookup: Lookup, capture: Capture, recorded: Request, fields: Fields) -> Iterator[str]:
    """Why a capture of the very same request is no answer: a condition, a header field, or what happened before."""
    request = lookup.request
    told = [preconditions_of(r.headers) for r in (request, recorded)]
    if request.method not in SAFE_METHODS and judge(told[0], told[1], capture.status) == FAILS:
        refused = f" (answered {capture.status})" if capture.status in REFUSED else ""
        for name, wanted, known in zip(FIELDS, *told, strict=True):
            if wanted != known:
                yield f"header {name}: {_sent('asked', wanted)}, {_sent('recorded', known)}{refused}"
    for name, value in fields:
        asked = asked_of(request.headers, name)
        if name == CREDENTIALS:  # no hash of a secret is shown
            asked, value = asked.partition(" ")[0], value.partition(" ")[0]
        elif secret_header(name, asked) or PSEUDONYM_TEXT.search(value):
            asked, value = ("a secret" if text else "" for text in (asked, value))
        if other_value(asked, value):
            yield f"header {name}: asked {asked!r}, recorded {value!r}"
    if lookup.grounds is not None:
        yield f"confidence: {Confidence.of(lookup.confidence)} that it is the answer; " + "; ".join(
            lookup.grounds()
        )


def _sent(how: str, value: str | None) -> str:
    return f"not {how}" if value is None else f"{how} {_shown([value])}"
