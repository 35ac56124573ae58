"""Values that a client draws for a request and that the answer repeats: a JSON-RPC id, a JSONP callback.

A rule that leaves such a value out of the key is `echoed`: the recorded answer goes out with the asked value in
place of the recorded one. A short value is replaced only where the answer's form says that it is the one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from stillweb.snapshots.http.bodies import JSON
from stillweb.snapshots.identity.keys import Parsed, parse
from stillweb.snapshots.identity.rules import Field, Rule, as_json, named_pairs
from stillweb.snapshots.identity.soap import message_id
from stillweb.snapshots.request import Request

ANYWHERE = 16  # characters from which on a value is replaced wherever it stands as a word
_CALL_WITHIN = 256  # bytes at the start of a JSONP answer that name the callback
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')


class Echo(NamedTuple):
    """A named value of the recorded request, and the asked request's value in its place."""

    name: str
    recorded: Any
    own: Any


def repeated(request: Request, rules: Iterable[Rule]) -> list[tuple[str, Any]]:
    """Return the names and values of a request that its answer repeats, in an order that their spelling can't change."""
    return [pair for rule in rules if rule.echoed for pair in _drawn(rule, parse(request))]


def echoes(asked: Iterable[tuple[str, Any]], stored: Iterable[tuple[str, Any]]) -> list[Echo]:
    """Return the repeated values in which two requests differ that a rule has joined."""
    pairs = zip(asked, stored, strict=False)
    return [Echo(name, was, now) for (name, now), (same, was) in pairs if was != now and name == same]


def _drawn(rule: Rule, parsed: Parsed) -> Iterator[tuple[str, Any]]:
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
            elif any(field.among(value) and field.matches(name, str(item)) for field in fields):
                yield name, item


def with_echoes(body: bytes, media: str, found: Iterable[Echo]) -> bytes:
    """Return an answer's decoded body with the asked values in place of the recorded ones."""
    text = body.decode(errors="surrogateescape")  # in whatever charset: the values are ASCII
    found = list(found)
    if text.lstrip()[:1] in ("{", "[") and "script" not in media:  # not every server says that it is JSON
        text = _in_json(text, found)
    elif media == "text/event-stream":
        lines = text.splitlines(keepends=True)
        text = "".join(
            f"data:{_in_json(line[5:], found)}" if line.startswith("data:") else line for line in lines
        )
    else:
        for echo in found:
            text = _in_text(text, str(echo.recorded), str(echo.own))
    return text.encode(errors="surrogateescape")


def in_address(url: str, found: Iterable[Echo]) -> str:
    """Return the address of a redirect with the asked values in place of the recorded ones."""
    for echo in found:
        for form in (str, quote_plus, quote):
            url = _in_text(url, form(str(echo.recorded)), form(str(echo.own)))
    return url


def _in_text(text: str, recorded: str, own: str) -> str:
    word = rf"(?<![\w$]){re.escape(recorded)}(?![\w$])"
    if len(recorded) >= ANYWHERE:
        return re.sub(word, lambda _: own, text)
    called = re.sub(rf"{word}(?=\s*(?:\(|=|&&|\)))", lambda _: own, text[:_CALL_WITHIN])
    return called + text[_CALL_WITHIN:]


def _in_json(text: str, found: list[Echo]) -> str:
    """Replace members whose name and value are a recorded echo's; an `id` only in the outermost object, or those of a list."""
    out: list[str] = []
    nested: list[str] = []  # the open brackets
    end = 0
    name: str | None = None
    before = before_last = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "[{":
            nested.append(token)
        elif token in "]}" and nested:
            nested.pop()
        elif before == ":" and token not in "{[":
            name = _read(before_last)
            value = _read(token)
            for echo in found:
                if echo.name == "id" and nested not in (["{"], ["[", "{"]):
                    continue  # of something that the answer names
                if echo.name == name and type(echo.recorded) is type(value) and echo.recorded == value:
                    out += [text[end : match.start()], json.dumps(echo.own)]
                    end = match.end()
                    break
        before_last, before = before, token
    return "".join([*out, text[end:]])


def _read(token: str) -> Any:
    try:
        return json.loads(token)
    except ValueError:
        return None
