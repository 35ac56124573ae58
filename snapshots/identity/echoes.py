"""Values that a client draws for a request and that the answer repeats: a JSON-RPC id, a JSONP callback, `X-Request-Id`, a tab's id in a prompt.

A rule that leaves such a value out of the key is `echoed`: the recorded answer goes out with the asked value in
place of the recorded one. A short value is replaced only where the answer's form says that it is the one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from stillweb.snapshots.http.bodies import JSON
from stillweb.snapshots.identity.header_fields import names_request
from stillweb.snapshots.identity.keys import ParsedRequest, parse
from stillweb.snapshots.identity.model_calls import handles, replace_words
from stillweb.snapshots.identity.rules import Field, Rule, as_json, content_ids, named_pairs
from stillweb.snapshots.identity.soap import message_id
from stillweb.snapshots.identity.spelling import BLANK
from stillweb.snapshots.request import Request

ANYWHERE = 16  # characters from which on a value is replaced wherever it stands as a word
HANDLE = BLANK  # no member of JSON has this name
FIELD = f"{BLANK}field "  # before the name of a header field
_ESCAPED = re.compile("[\udc80-\udcff]")  # a byte that is no UTF-8
_CALL_WITHIN = 256  # bytes at the start of a JSONP answer that name the callback
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')


class Echo(NamedTuple):
    """A named value of the recorded request, and the asked request's value in its place."""

    name: str
    recorded: Any
    own: Any

    @property
    def anywhere(self) -> bool:
        """Return True if any text of the answer may repeat the value."""
        return self.name == HANDLE

    @property
    def mirrored(self) -> bool:
        """Return True for a request's id in a header field, which the answer need not repeat."""
        return self.name.startswith(FIELD)


class Unrepeatable(Exception):
    """An answer that should repeat a value, in a form in which values can't be replaced."""


def repeated_values(request: Request, rules: Iterable[Rule]) -> list[tuple[str, Any]]:
    """Return the names and values of a request that its answer repeats, in an order that their spelling can't change."""
    ids = [(f"{FIELD}{n.lower()}", v) for n, v in request.headers if len(v) >= ANYWHERE and names_request(n)]
    return [pair for rule in rules if rule.echoed for pair in _drawn(rule, parse(request))] + sorted(ids)


def echoes(asked: Iterable[tuple[str, Any]], stored: Iterable[tuple[str, Any]]) -> list[Echo]:
    """Return the repeated values in which two requests differ that a rule has joined."""
    pairs = zip(asked, stored, strict=False)
    return [Echo(name, was, now) for (name, now), (same, was) in pairs if was != now and name == same]


def _drawn(rule: Rule, parsed: ParsedRequest) -> Iterator[tuple[str, Any]]:
    if rule.kind == "handles":
        yield from ((HANDLE, one) for one in handles(parsed))
        return
    if rule.kind == "content-ids":
        yield from (("Content-ID", one) for one in content_ids(parsed))
        return
    if rule.kind == "soap":
        if (drawn := message_id(parsed)) is not None:
            yield "RelatesTo", drawn
        return
    yield from sorted(named_pairs(parsed, [f for f in rule.blank if f.place == "query"]))
    body = as_json(parsed.body)
    if body.kind == JSON:
        yield from _members(body.value, [f for f in rule.blank if f.place == "json"])


def _members(value: Any, fields: list[Field]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield from _members(item, fields)
    elif isinstance(value, dict):
        for name in sorted(value):
            item = value[name]
            if isinstance(item, (dict, list)):
                yield from _members(item, fields)
            elif any(field.has_required_names(value) and field.matches(name, str(item)) for field in fields):
                yield name, item


def with_echoes(body: bytes, media: str, found: Iterable[Echo]) -> bytes:
    """Return an answer's decoded body with the asked values in place of the recorded ones. Raises Unrepeatable."""
    text = body.decode(errors="surrogateescape")  # in whatever charset: the values are ASCII
    found = list(found)
    if names := {echo.recorded: echo.own for echo in found if echo.anywhere}:
        if _ESCAPED.search(text):
            raise Unrepeatable(f"the answer may contain {', '.join(names)}, but is not text")
        text = _with_names(text, names)
        found = [echo for echo in found if not echo.anywhere]
    for echo in found:
        if echo.mirrored:
            text = _in_text(text, echo.recorded, echo.own)
    if text.lstrip()[:1] in ("{", "[") and "script" not in media:  # not every server says that it is JSON
        text = _in_json(text, found)
    elif media == "text/event-stream":
        lines = text.splitlines(keepends=True)
        text = "".join(
            f"data:{_in_json(line[5:], found)}" if line.startswith("data:") else line for line in lines
        )
    else:
        for echo in found:
            if not echo.mirrored:
                text = _in_text(text, str(echo.recorded), str(echo.own))
    return text.encode(errors="surrogateescape")


def in_address(url: str, found: Iterable[Echo]) -> str:
    """Return the address of a redirect with the asked values in place of the recorded ones."""
    for echo in found:
        for form in (str, quote_plus, quote):
            url = _in_text(url, form(str(echo.recorded)), form(str(echo.own)))
    return url


def as_recorded(request: Request, values: Mapping[str, str]) -> Request:
    """Return a request with recorded values in place of those that its client drew before, by the recorded ones."""
    found = [Echo("", own, recorded) for recorded, own in values.items()]
    url, body = in_address(request.url, found), request.body
    if body:
        body = in_address(body.decode("latin-1"), found).encode("latin-1")
    return request if (url, body) == (request.url, request.body) else replace(request, url=url, body=body)


def _in_text(text: str, recorded: str, own: str) -> str:
    word = rf"(?<![\w$]){re.escape(recorded)}(?![\w$])"
    if len(recorded) >= ANYWHERE:
        return re.sub(word, lambda _: own, text)
    called = re.sub(rf"{word}(?=\s*(?:\(|=|&&|\)))", lambda _: own, text[:_CALL_WITHIN])
    return called + text[_CALL_WITHIN:]


_OF_IDS = ('"methods"', '"subs"')  # lists of the ids of calls in DDP (Meteor)


def _in_json(text: str, found: list[Echo]) -> str:
    """Replace members whose name and value are a recorded echo's; an `id` only in the outermost object, or those of a list."""
    out: list[str] = []
    nested: list[str] = []  # the open brackets, that of a list of ids with its name
    end = 0
    name: str | None = None
    before = before_last = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            nested.append(before_last if before == ":" and before_last in _OF_IDS else token)
        elif token in "]}" and nested:
            nested.pop()
        elif (before == ":" and token not in "{[") or (token != "," and nested[1:] and nested[1] in _OF_IDS):
            name = _read(before_last) if before == ":" else "id"
            value = _read(token)
            for echo in found:
                if echo.name == "id" and nested not in (
                    ["{"],
                    ["[", "{"],
                    *(["{", name] for name in _OF_IDS),
                ):
                    continue  # of something that the answer names
                plain = echo.recorded == token  # text in the query, a number in the answer
                if echo.name == name and (
                    plain or (type(echo.recorded) is type(value) and echo.recorded == value)
                ):
                    number = plain and isinstance(_read(echo.own), (int, float))
                    out += [text[end : match.start()], echo.own if number else json.dumps(echo.own)]
                    end = match.end()
                    break
        before_last, before = before, token
    return "".join([*out, text[end:]])


def _with_names(text: str, names: Mapping[str, str]) -> str:
    """Return an answer (JSON, JSON lines, an event stream, a text) with other names in its texts.

    A streamed text comes in pieces, and a name may begin in one and end in the next: names are of one length.
    """
    whole = _read(text)
    lines: list[tuple[str, str, Any]] = []  # what comes before a value, its text, and the value
    if isinstance(whole, (dict, list)):
        lines.append(("", text, whole))
    else:
        for line in text.splitlines(keepends=True):
            head = next((one for one in ("data: ", "data:") if line.startswith(one)), "")
            value = _read(rest := line[len(head) :])
            lines.append((head, rest, value if isinstance(value, (dict, list)) else rest))
    texts: dict[tuple[object, ...], list[str]] = {}
    for _, _, value in lines:
        for place, piece in _pieces(value, ()):
            texts.setdefault(place, []).append(piece)
    renamed = {place: iter(_renamed(pieces, names)) for place, pieces in texts.items()}
    made = []
    for head, line, value in lines:
        new = _put(value, (), renamed)
        if new != value:
            line = new if isinstance(new, str) else json.dumps(new) + line[len(line.rstrip()) :]
        made.append(head + line)
    return "".join(made)


# Members that say which of several texts an event of a stream goes on with.
_WHICH = ("type", "index", "output_index", "content_index", "item_id")


def _within(value: Any, place: tuple[object, ...]) -> Iterator[tuple[Any, Any, tuple[object, ...]]]:
    """Yield the key, the item and the place of each item of a JSON object or array."""
    if isinstance(value, dict):
        which = tuple(value[name] for name in _WHICH if isinstance(value.get(name), (str, int)))
        yield from ((name, item, (*place, which, name)) for name, item in value.items())
    else:
        yield from ((at, item, (*place, at)) for at, item in enumerate(value))


def _pieces(value: Any, place: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], str]]:
    """Yield the texts in a JSON value, each with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, (dict, list)):
        for _, item, where in _within(value, place):
            yield from _pieces(item, where)


def _put(value: Any, place: tuple[object, ...], renamed: Mapping[tuple[object, ...], Iterator[str]]) -> Any:
    """Return a JSON value with the next of the `renamed` texts in each place."""
    if isinstance(value, str):
        return next(renamed[place])
    if not isinstance(value, (dict, list)):
        return value
    items = {key: _put(item, where, renamed) for key, item, where in _within(value, place)}
    return items if isinstance(value, dict) else list(items.values())


def _renamed(pieces: list[str], names: Mapping[str, str]) -> list[str]:
    text, out, at = replace_words("".join(pieces), names), [], 0
    for piece in pieces:
        out.append(text[at : at + len(piece)])
        at += len(piece)
        if out[-1] == piece and replace_words(piece, names) != piece:
            raise Unrepeatable(f"it is not clear whether the answer contains {', '.join(names)}")
    return out


def _read(token: str) -> Any:
    try:
        return json.loads(token)
    except ValueError:
        return None
