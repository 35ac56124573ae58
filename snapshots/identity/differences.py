"""Differences between two requests in words: `query page: asked '3', recorded '2'`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, AnyStr, NamedTuple
from urllib.parse import unquote_plus, urlsplit

from stillweb.snapshots.http.bodies import BYTES, EMPTY, JSON, MULTIPART, Body, canonical_body
from stillweb.snapshots.identity.issued_values import named_values
from stillweb.snapshots.identity.keys import ParsedRequest
from stillweb.snapshots.identity.model_calls import (
    TURNS,
    is_conversation,
    with_numbered_calls,
    without_moments,
)
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, secret_field
from stillweb.snapshots.words import pluralize

SHOWN = 60  # characters of a value
AROUND = 100  # characters around what differs in two turns, which say whether that is a moment
LOOKED_THROUGH = 1 << 12  # characters in which moments are looked for: some 2 ms
OF_TURN = "turn member"  # the place of what differs in the turn that is named
LEAD = 20  # of which stand before where two long ones part


def count_equal_leaves(asked: Body, stored: Body) -> int:
    """Return the number of equal JSON leaves before the first that differs: a conversation with a model grows at its end."""
    if asked.kind != JSON or stored.kind != JSON:
        return 0
    one, other = _leaves(asked.value), _leaves(stored.value)
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


class Values(NamedTuple):
    """The values of one name in which two requests differ; told in words only where they are shown."""

    place: str
    name: str
    asked: list[str]
    stored: list[str]

    def __str__(self) -> str:
        place, name, a, b = self
        if a and b and any(_secret(name, value) for value in (*a, *b)):
            return f"{place} {name}: another secret than the recorded one"
        if len(a) == len(b) == 1:
            return f"{place} {name}{_parted(a[0], b[0])}"
        if a and b:
            return f"{place} {name}: asked {show_value(a)}, recorded {show_value(b)}"
        if a:
            return f"{place} {name}: asked {show_value(_told_of(name, a))}, not recorded"
        return f"{place} {name}: not asked, recorded {show_value(_told_of(name, b))}"


def differences(asked: ParsedRequest, stored: ParsedRequest) -> Iterator[str | Values]:
    """Yield the differences between two requests, part by part, with both values; none if their keys are equal."""
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
            yield "query: the same pairs, encoded otherwise"
    elif (asked.query is None) != (stored.query is None):
        yield "query: one has a ? and the other has none"
    yield from _bodies(asked, stored)


def _query(parsed: ParsedRequest) -> list[tuple[str, str]]:
    out = []
    for pair in parsed.query or ():
        name, equals, value = pair.partition("=")
        out.append((unquote_plus(name), unquote_plus(value) if equals else "(no value)"))
    return [item for item in out if item != ("", "(no value)")]


def _differ(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> bool:
    return sorted(one) != sorted(other)


def _pairs(place: str, asked: list[tuple[str, str]], stored: list[tuple[str, str]]) -> Iterator[Values]:
    mine, theirs = Counter(asked), Counter(stored)
    values: dict[str, Values] = {}
    for name, value in (mine - theirs).elements():
        values.setdefault(name, Values(place, name, [], [])).asked.append(value)
    for name, value in (theirs - mine).elements():
        values.setdefault(name, Values(place, name, [], [])).stored.append(value)
    yield from values.values()


def _secret(name: str, value: str) -> bool:
    return PSEUDONYM_TEXT.search(value) is not None or secret_field(re.split(r"[.\[]", name)[-1], value)


def _told_of(name: str, values: list[str]) -> list[str]:
    return ["(a secret)" if _secret(name, value) else value for value in values]


def show_value(values: list[str]) -> str:
    text = ", ".join(repr(v if len(v) <= SHOWN else v[:SHOWN] + "…") for v in values[:3])
    return text + (" …" if len(values) > 3 else "")


def _parted(asked: str, stored: str) -> str:
    """Return both values; of long ones, such as prompts of a model, the part where they differ first."""
    begin = same_start(asked, stored) - LEAD
    if begin <= 0 or max(len(asked), len(stored)) <= SHOWN:
        return f": asked {show_value([asked])}, recorded {show_value([stored])}"
    one, other = (show_value([text[begin:]]) for text in (asked, stored))
    return f", from character {begin} on: asked {one}, recorded {other}"


def same_start(one: AnyStr, other: AnyStr) -> int:
    """Return how many characters (or bytes) two texts have in common at their start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _bodies(asked: ParsedRequest, stored: ParsedRequest) -> Iterator[str | Values]:
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
            yield f"body: {len(one.value)} bytes asked, {len(other.value)} different bytes recorded"
    elif one.kind == MULTIPART:
        found = list(_pairs("body field", _fields(one), _fields(other)))
        if not found and canonical_body(one) != canonical_body(other):
            yield "body: the same fields in another encoding"
        yield from found
    elif one.kind != EMPTY:
        mine = [(name, value) for place, name, value in named_values(asked) if place != "query"]
        theirs = [(name, value) for place, name, value in named_values(stored) if place != "query"]
        yield from _pairs("body field", mine, theirs)


def _turns(asked: ParsedRequest, stored: ParsedRequest) -> list[str | Values] | None:
    """Return the first difference between two conversations with a model; None for other bodies.

    Later turns follow from that one, so they explain nothing.
    """
    if not (is_conversation(asked) and is_conversation(stored)):
        return None
    mine, theirs = (with_numbered_calls(one).body.value for one in (asked, stored))
    name = next((n for n in TURNS if all(isinstance(v.get(n), list) for v in (mine, theirs))), None)
    if name is None or mine[name] == theirs[name]:
        return None
    turns, known = mine[name], theirs[name]
    pairs = enumerate(zip(turns, known, strict=False))
    same = next((n for n, (a, b) in pairs if a != b and not _same_turn(a, b)), None)
    at = same if same is not None else min(len(turns), len(known))
    turn = turns[at] if at < len(turns) else known[at]
    role = turn.get("role") or turn.get("type") if isinstance(turn, dict) else None
    place = f"turn {at + 1}" + (f" ({role})" if role else "")
    earlier = (
        f"; the {pluralize(at, 'turn')} before it {'is' if at == 1 else 'are'} as recorded" if at else ""
    )
    found: list[str | Values]
    if same is None:
        which = "not recorded" if len(turns) > at else "not asked"
        found = [f"conversation: {place} is {which}{earlier}"]
    else:
        found = [f"conversation: {place} is the first that differs{earlier}"]
        found += _pairs(OF_TURN, *(_leaves(_bare(one[at]), f"{name}[{at}]") for one in (turns, known)))
    rest = ({n: v for n, v in one.items() if n != name} for one in (mine, theirs))
    return found + list(_pairs("body member", *(_leaves(one) for one in rest)))


def _bare(turn: Any) -> Any:
    """Return a turn without its own id."""
    return {n: v for n, v in turn.items() if n != "id"} if isinstance(turn, dict) else turn


def _same_turn(mine: Any, theirs: Any) -> bool:
    """Return True if two turns differ in their own ids and present moments only; those that differ over a long way don't."""
    one, other = (json.dumps(_bare(turn), sort_keys=True, ensure_ascii=False) for turn in (mine, theirs))
    begin = max(0, same_start(one, other) - AROUND)
    end = min(same_start(one[::-1], other[::-1]), min(len(one), len(other)) - begin) - AROUND
    parts = [text[begin : len(text) - max(0, end)] for text in (one, other)]
    return max(map(len, parts)) <= LOOKED_THROUGH and len(set(map(without_moments, parts))) == 1


def _fields(body: Body) -> list[tuple[str, str]]:
    """Return the fields of a multipart body; of a file its size, digest, name and type."""
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
    """Return the leaves of JSON with their paths; texts without their quotes if `plain`."""
    if isinstance(value, dict) and value:
        return [
            leaf
            for name, item in value.items()
            for leaf in _leaves(item, f"{path}.{name}" if path else name, plain=plain)
        ]
    if isinstance(value, list) and value:
        return [leaf for n, item in enumerate(value) for leaf in _leaves(item, f"{path}[{n}]", plain=plain)]
    return [(path or "(all)", value if plain and isinstance(value, str) else json.dumps(value))]
