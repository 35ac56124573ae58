"""Values that the site itself gave out and the client sent back: CSRF tokens, nonces, ids of requests.

A value counts as issued when it appeared in an earlier answer (body, header or cookie) of the same session. It
may be matched by where it came from, and not by value, only if it changes at every visit: its name says so, or
two visits that said the same gave out different values, each its own; of a value beside a password, any two. An id
that a list shows for its entries is issued too, but one answer gives several of them or the next visit gives the same,
so it keeps captures apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import quote, unquote_plus

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.http.bodies import FORM, JSON, MULTIPART
from stillweb.snapshots.http.encodings import EncodingProblem, decode
from stillweb.snapshots.identity.equality import LIMIT, answer_digest
from stillweb.snapshots.identity.keys import ParsedRequest
from stillweb.snapshots.identity.rules import DECIDING, path_of
from stillweb.snapshots.secrets.detect import looks_random
from stillweb.snapshots.secrets.redact import PREFIX, TEXTUAL

SHORTEST = 8  # characters of a value that a site may have issued; a shorter one is in every page by chance
BACK = 60  # answers looked through, the nearest first

_HINT = re.compile(
    r"csrf|xsrf|nonce|authenticity|verification_?token|antiforgery|__eventvalidation|form_?key|form_build_id"
    r"|form_token|sesskey|^_?token$|^_?state$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a request sent: where ("form:csrf") and what."""

    place: str
    text: str


def token_like(name: str, value: str) -> bool:
    """Return True if a value can be one that the site made up."""
    if len(value) < SHORTEST or len(value) > 8192 or DECIDING.fullmatch(name):
        return False
    return looks_random(value) or (_HINT.search(name) is not None and not value.isalpha())


def values_of(parsed: ParsedRequest) -> Iterator[Value]:
    """Yield the token-like values of a request."""
    for place, name, value in named_values(parsed):
        if token_like(name, value):
            yield Value(f"{place}:{name}", value)


def named_values(parsed: ParsedRequest) -> Iterator[tuple[str, str, str]]:
    """Yield place, name and text of each named value of a request."""
    for pair in parsed.query or ():
        name, equals, value = pair.partition("=")
        if equals:
            yield "query", unquote_plus(name), unquote_plus(value)
    body = parsed.body
    if body.kind == FORM:
        for item in body.value:
            yield "form", item.name.decode("utf-8", "replace"), item.value.decode("utf-8", "replace")
    elif body.kind == MULTIPART:
        for part in body.value:
            if len(part.content) <= 8192:
                yield "part", part.name, part.content.decode("utf-8", "replace")
    elif body.kind == JSON:
        yield from _members(body.value)


def _members(value: Any) -> Iterator[tuple[str, str, str]]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            for name, inner in item.items():
                if isinstance(inner, str):
                    yield "json", name, inner
                elif isinstance(inner, (dict, list)):
                    stack.append(inner)


def text_of(response: Response) -> str:
    """Return the text of an answer, header fields and decoded body, in which values are looked up."""
    head = "\n".join(
        v for n, v in response.headers if n.lower() in ("set-cookie", "location") or n[:2] in "Xx-"
    )
    media = (response.header("content-type") or "").partition(";")[0].strip().lower()
    if not response.body or len(response.body) > LIMIT or not (not media or TEXTUAL.search(media)):
        return head
    try:
        body = decode(response.body, response.header("content-encoding"), limit=LIMIT)
    except EncodingProblem:
        body = response.body
    return head + "\n" + body.decode("utf-8", "replace")


def forms_of(value: str) -> set[str]:
    """Return the spellings of a value in a page, a script or a header."""
    return {value, escape(value), quote(value, safe=""), value.replace("/", "\\/")}


def is_shown_in(value: str, text: str) -> bool:
    return any(form in text for form in forms_of(value))


@dataclass(slots=True)
class IssuedValue:
    """A token-like value in a recorded request, and the answer that gave it out."""

    capture: Capture
    value: str
    source: Capture
    signs_in: bool  # whether a password is sent with it


def find_issued(
    sessions: Iterable[Sequence[tuple[Capture, ParsedRequest | None]]],
    read_response: Callable[[Capture], Response],
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """Return by method and path the places of values that were always issued: of those that change at every visit, and of all.

    `sessions` are lines of exchanges in order; the parsed request is None where it can hold no such value.
    """

    @lru_cache(maxsize=256)
    def text(place: tuple[str, int]) -> str:
        return text_of(read_response(captures[place]))

    captures: dict[tuple[str, int], Capture] = {}
    sent: dict[tuple[str, str], list[IssuedValue]] = defaultdict(list)
    found: dict[str, set[str]] = defaultdict(set)
    unsourced: set[tuple[str, str]] = set()
    for line in sessions:
        earlier: list[Capture] = []
        for capture, parsed in line:
            captures[capture.place] = capture
            secrets = {v for *_, v in named_values(parsed) if PREFIX in v} if parsed is not None else set()
            for value in values_of(parsed) if parsed is not None else ():
                where = (path_of(capture.method, parsed.url if parsed else capture.url), value.place)
                source = next(
                    (
                        c
                        for c in reversed(earlier[-BACK:])
                        if c.end <= capture.begin and is_shown_in(value.text, text(c.place))
                    ),
                    None,
                )
                if source is None:
                    unsourced.add(where)
                else:
                    sent[where].append(IssuedValue(capture, value.text, source, bool(secrets - {value.text})))
            if not capture.mime.startswith(("image/", "video/", "audio/", "font/")):
                earlier.append(capture)
    every: dict[str, set[str]] = defaultdict(set)
    for (path, place), items in sent.items():
        if (path, place) in unsourced:
            continue
        every[path].add(place)
        if _changes_at_every_visit(place, items, text, read_response):
            found[path].add(place)
    changing, given = ({path: frozenset(places) for path, places in one.items()} for one in (found, every))
    return changing, given


def _changes_at_every_visit(
    place: str,
    items: list[IssuedValue],
    text: Callable[[tuple[str, int]], str],
    read_response: Callable[[Capture], Response],
) -> bool:
    by_source: dict[tuple[str, int], set[str]] = defaultdict(set)
    for item in items:
        by_source[item.source.place].add(item.value)
    if any(len(values) > 1 for values in by_source.values()):
        return False  # one answer gave several: they name different things
    if _HINT.search(place.partition(":")[2]):
        return True
    visits: dict[str, dict[tuple[str, int], IssuedValue]] = defaultdict(dict)
    for item in items:
        visits["" if item.signs_in else item.source.key][item.source.place] = item
    proven = False
    for key, group in visits.items():
        members = list(group.values())
        values = {m.value for m in members}
        for member in members:
            others = values - {member.value}
            if any(is_shown_in(other, text(member.source.place)) for other in others):
                return False
        saying = {answer_digest(read_response(m.source), values) for m in members}
        if len(values) > 1:
            if key and len(saying) > 1:
                return False
            proven = True
    return proven
