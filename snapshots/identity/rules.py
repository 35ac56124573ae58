"""Rules that join requests which differ only in values that can't decide the answer (`rules.toml`)."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, combinations, islice
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as syntax  # type: ignore[attr-defined]
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from stillweb.snapshots.cache import Cache, cached
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.http.bodies import (
    BYTES,
    FORM,
    JSON,
    MAX_VALUES,
    MULTIPART,
    Body,
    MultipartField,
    Pair,
    typed_body,
)
from stillweb.snapshots.identity.keys import ParsedRequest, digest, parse, unpacked_body
from stillweb.snapshots.identity.model_calls import (
    with_numbered_calls,
    with_numbered_handles,
    without_sender,
    without_told_moments,
)
from stillweb.snapshots.identity.soap import without_message_ids, without_saml_ids
from stillweb.snapshots.identity.spelling import BLANK, PLAIN, one_escape, with_one_escape, with_one_json
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, drawn, looks_random
from stillweb.snapshots.secrets.redact import MASK, mask, mask_pseudonyms
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.words import as_text

PLACES = ("query", "form", "json", "part", "path", "segments")

# Values that the site issues and that change at every visit, although they decide the answer.
DECIDING = re.compile(
    r"__VIEWSTATE.*|__VSTATE|javax\.faces\.ViewState|.*(?:cursor|page_?token|continuation).*", re.I
)


@dataclass(frozen=True)
class Pattern:
    """A regular expression that looks at no text on which it could take long: it matches none of more than `longest` characters."""

    compiled: re.Pattern[str]
    longest: int

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self.compiled.fullmatch(text) if len(text) <= self.longest else None

    def search(self, text: str) -> re.Match[str] | None:
        return self.compiled.search(text) if len(text) <= self.found_in else None

    @cached_property
    def found_in(self) -> int:
        return _longest(f".*(?:{self.compiled.pattern})")


@dataclass(frozen=True, slots=True)
class Field:
    """A named value in a place of a request. Both patterns must match in full.

    In `segments` the name is looked for in the path, and the values are what its groups hold. In other places, what the group `blank`
    of `value` holds is blanked, if it has one, and the rest stays. `drawn`: the value must also look random. `beside`: each of these
    patterns must match a name in the same query, form or JSON object.
    """

    place: str
    name: Pattern
    value: Pattern | None = None
    drawn: bool = False
    beside: tuple[Pattern, ...] = ()

    def matches(self, name: str, value: str) -> bool:
        # the value's pattern first: of values with a common name, most fail at their first character
        return (
            (self.value is None or self.value.fullmatch(value) is not None)
            and self.name.fullmatch(name) is not None
            and (not self.drawn or drawn(value))
        )

    def fits(self, value: str) -> bool:
        if self.value and self.value.fullmatch(value) is None:
            return False
        return not self.drawn or drawn(value)

    def blanked(self, value: str) -> str:
        """Return a matching value with its blanked part replaced by a mark."""
        found = (
            self.value.fullmatch(value) if self.value and "blank" in self.value.compiled.groupindex else None
        )
        return value[: found.start("blank")] + BLANK + value[found.end("blank") :] if found else BLANK

    def has_required_names(self, names: Collection[str]) -> bool:
        """Return True if `names` holds all names that the field requires beside it."""
        named = names if isinstance(names, Names) else Names(names)
        return all(next(_matching(pattern, named), None) is not None for pattern in self.beside)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with examples of requests that it must join and requests that it must keep apart."""

    id: str
    about: str
    kind: str = "fields"
    drop: tuple[Field, ...] = ()
    blank: tuple[Field, ...] = ()
    join: tuple[tuple[str, str], ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    issued: frozenset[str] = frozenset()  # used only by the examples
    doubted: bool = False  # matches by this rule are unsure, unless the value was seen to make no difference
    # the removed values never decide: answers that differ also differ for identical requests
    certain: bool = False
    echoed: bool = False  # the answer repeats the blanked values
    returns: bool = False  # and what it leads to sends them back, as a sign-in does
    own: bool = False  # a user's, who knows that the values decide nothing


Issued = frozenset[str]  # "place:name" of values that the site issued
NOTHING: Issued = frozenset()
Kind = Callable[[Rule, ParsedRequest, Issued], ParsedRequest]


def _fields(rule: Rule, parsed: ParsedRequest, issued: Issued) -> ParsedRequest:
    """Drop and blank the named values."""
    return _edit(parsed, rule.drop, rule.blank)


_TOKEN = re.compile(r"(?<![\w-])eyJ[\w-]{8,512}\.([\w-]{8,4096})\.[\w-]{8,1024}(?![\w.-])")
# claims that are new in each token (RFC 7519, 4.1; OpenID Connect Core, 2)
_OF_TIME = frozenset(
    {"iat", "exp", "nbf", "jti", "auth_time", "nonce", "at_hash", "c_hash", "sid", "session_id"}
)


def _signed(rule: Rule, parsed: ParsedRequest, issued: Issued) -> ParsedRequest:
    """Drop and blank the named values, and reduce JSON web tokens to their claims."""
    parsed = _edit(parsed, rule.drop, rule.blank)
    query = parsed.query
    if query is not None and any("=eyJ" in pair for pair in query):
        query = tuple(timeless(pair) for pair in query)
    body = parsed.body
    if body.kind == FORM and any(pair.value.startswith(b"eyJ") for pair in body.value):
        values = tuple(
            replace(pair, value=timeless(_text(pair.value)).encode())
            if pair.value.startswith(b"eyJ")
            else pair
            for pair in body.value
        )
        body = body if values == body.value else body.with_value(values)
    if query == parsed.query and body is parsed.body:
        return parsed
    return replace(parsed, query=query, body=body)


def timeless(text: str) -> str:
    """Return a text in which each JSON web token is replaced by its claims without times and ids."""
    return _TOKEN.sub(_claimed, text)


def _claimed(token: re.Match[str]) -> str:
    """Return the claims of a JSON web token without its times and id; any other text unchanged."""
    try:
        claims = json.loads(base64.urlsafe_b64decode(token[1] + "=" * (-len(token[1]) % 4)))
    except (ValueError, RecursionError):
        return token[0]
    if not isinstance(claims, dict):
        return token[0]
    left = {name: value for name, value in claims.items() if name not in _OF_TIME}
    return f"{BLANK}{quote(json.dumps(left, sort_keys=True))}{BLANK}"


def _saml(rule: Rule, parsed: ParsedRequest, issued: Issued) -> ParsedRequest:
    """Drop and blank the named values, and remove the ids and times of a SAML request."""
    return without_saml_ids(_edit(parsed, rule.drop, rule.blank))


def _issued(rule: Rule, parsed: ParsedRequest, issued: Issued) -> ParsedRequest:
    """Blank the values that the site issued, except those that decide the answer."""
    blank = tuple(
        Field(place, _pattern(re.escape(name)))
        for place, _, name in (item.partition(":") for item in sorted(issued))
        if not DECIDING.fullmatch(name)
    )
    return _edit(parsed, (), blank) if blank else parsed


def _channel_alone(parsed: ParsedRequest) -> ParsedRequest:
    """Remove Engine.IO's `t`, and rename `sid` so that no rule for visitor ids removes it."""
    query = parsed.query or ()
    if not {"EIO", "transport", "t"} <= {pair.partition("=")[0] for pair in query}:
        return parsed
    left = (pair for pair in query if not pair.startswith("t="))
    return replace(parsed, query=tuple(f"EIO-{p}" if p.startswith("sid=") else p for p in left))


def _full_query(parsed: ParsedRequest) -> ParsedRequest:
    """Remove empty pairs, and a query that has no other pairs."""
    if parsed.query is None or "" not in parsed.query:
        return parsed
    return replace(parsed, query=tuple(p for p in parsed.query if p) or None)


def content_ids(parsed: ParsedRequest) -> list[str]:
    """Return the drawn ids by which the parts of a multipart body name each other (RFC 2392), in order."""
    parts = parsed.body.value if parsed.body.kind == MULTIPART else ()
    found = (value for part in parts for name, value in part.headers if name == b"content-id")
    ids = dict.fromkeys(value.strip(b"<>").decode("latin-1") for value in found)
    return [one for one in ids if looks_random(one)]


def _with_numbered_parts(parsed: ParsedRequest) -> ParsedRequest:
    """Return a multipart request with the drawn ids of its parts numbered wherever they stand, or `parsed` itself if it has none."""
    marks = {one: f"{BLANK}{number}{BLANK}".encode() for number, one in enumerate(content_ids(parsed))}
    if not marks:
        return parsed

    def marked(text: bytes) -> bytes:
        for one in sorted(marks, key=len, reverse=True):
            text = text.replace(one.encode("latin-1"), marks[one]).replace(quote(one).encode(), marks[one])
        return text

    parts = (
        MultipartField(tuple((n, marked(v)) for n, v in part.headers), marked(part.content))
        for part in parsed.body.value
    )
    return replace(parsed, body=parsed.body.with_value(tuple(parts)))


# GrowthBook's remote evaluation: https://docs.growthbook.io/self-host/proxy
_EVALUATED = re.compile(r"/api/eval/[^/?]+\Z")
_SUBJECT_IDS = re.compile(r"(?:(?:device|session|anonymous|installation)[-_]?)?id", re.I)


def _without_subject(parsed: ParsedRequest) -> ParsedRequest:
    """Return a feature-flag request without the random ids of its subject, or `parsed` itself."""
    value = parsed.body.value
    if not isinstance(value, dict) or "forcedVariations" not in value or not _EVALUATED.search(parsed.url):
        return parsed
    whom = value.get("attributes")
    if not isinstance(whom, dict):
        return parsed
    kept = {
        name: item
        for name, item in whom.items()
        if not (_SUBJECT_IDS.fullmatch(name) and isinstance(item, str) and drawn(item))
    }
    return replace(parsed, body=parsed.body.with_value(value | {"attributes": kept}))


def _bare(edit: Callable[[ParsedRequest], ParsedRequest]) -> Kind:
    """Return a rule kind that depends on the request alone."""
    return lambda rule, parsed, issued: edit(parsed)


KINDS: dict[str, Kind] = {
    "fields": _fields,
    "issued": _issued,
    "signed": _signed,
    "saml": _saml,
    "encoding": _bare(with_one_escape),
    "json-query": _bare(with_one_json),
    "empty-query": _bare(_full_query),
    "told-moments": _bare(without_told_moments),
    "model-sender": _bare(without_sender),
    "flags": _bare(_without_subject),
    "tool-calls": _bare(with_numbered_calls),
    "handles": _bare(with_numbered_handles),
    "soap": _bare(without_message_ids),
    "content-ids": _bare(_with_numbered_parts),
    "engine-io": _bare(_channel_alone),
    "redacted": _bare(lambda parsed: parsed),  # applied to the request before it is parsed
}

# What a query holds that a rule of a kind changes beside the fields it names
_MARKS = {"engine-io": "EIO=", "saml": "SAMLRequest=", "signed": "=eyJ"}


def _text(value: str | bytes) -> str:
    if isinstance(value, str):
        if "%" not in value:
            return value
        # of a trace or a HAR, with half a surrogate pair at worst
        value = unquote_to_bytes(value.encode("utf-8", "surrogatepass"))
    return as_text(value)


def _edit(parsed: ParsedRequest, drop: Iterable[Field], blank: Iterable[Field]) -> ParsedRequest:
    """Return a request without the values of `drop`, with a mark for those of `blank`, or `parsed` itself."""
    by_place: dict[str, tuple[list[Field], list[Field]]] = {}
    for index, fields in enumerate((drop, blank)):
        for item in fields:
            by_place.setdefault(item.place, ([], []))[index].append(item)
    changes: dict[str, Any] = {}
    if parsed.query is not None and "query" in by_place:
        names, sought = parsed.derived("names in the query", _names_in_query), by_place["query"]
        pairs = parsed.query
        if _concerned(sought, names):
            pairs = tuple(_edit_pairs(pairs, names, *sought))
        if pairs != parsed.query:
            changes["query"] = pairs or None
    url = parsed.url
    if ";" in url and "path" in by_place:
        url = _edit_path(url, *by_place["path"])
    if "segments" in by_place:
        url = _edit_segments(url, by_place["segments"][1])
    if url != parsed.url:
        changes["url"] = url
    body = as_json(parsed.body) if "json" in by_place else parsed.body
    if "form" in by_place:
        body = _as_form(body)
    place = {FORM: "form", JSON: "json", MULTIPART: "part"}.get(body.kind)
    if place in by_place:
        names, sought = parsed.derived("names in the body", _names_in_body), by_place[place]
        value = _EDITORS[body.kind](body.value, names, *sought) if _concerned(sought, names) else body.value
        if value is not body.value and value != body.value:
            changes["body"] = body.with_value(value)
    return replace(parsed, **changes) if changes else parsed


def _names_in_query(parsed: ParsedRequest) -> Names:
    return Names(_text(pair.partition("=")[0]) for pair in parsed.query or ())


def _names_in_body(parsed: ParsedRequest) -> Names:
    """Return the names of fields or parts in their order, or each name in JSON once."""
    body = _as_form(as_json(parsed.body))
    if body.kind == FORM:
        return Names(_text(pair.name) for pair in body.value)
    if body.kind == MULTIPART:
        return Names(part.name for part in body.value)
    left, names = [body.value], dict[str, None]()
    for value in left:
        if isinstance(value, dict):
            for name in value:  # one by one: `names |= value` holds the interpreter for 10 ms with 55,000
                names[name] = None
            value = list(value.values())
        if isinstance(value, list):  # else a body that is one number or text
            left += (item for item in value if isinstance(item, (dict, list)))
    return Names(names)


def as_json(body: Body) -> Body:
    """Return a body that is JSON under another media type, or lines of JSON, as JSON (a list of the lines); any other as it is."""
    if body.kind != BYTES or body.value[:1] not in (b"{", b"[") or body.label not in _JSON_LABELS:
        return body
    return _read_json(body.value, body.label) or body


def _as_form(body: Body) -> Body:
    """Return a text of lines `name=value` as a form: HTML's for text/plain, a call of DWR. Return any other body as it is."""
    if body.kind != BYTES or body.label or len(body.value) > LINES or _NAMED.match(body.value) is None:
        return body
    lines = body.value.splitlines()
    if len(lines) < 2 or any(_NAMED.match(line) is None for line in lines):
        return body
    pairs = tuple(Pair(name, value) for name, _, value in (line.partition(b"=") for line in lines))
    return Body(FORM, pairs, "lines", size=body.size)


LINES = 1 << 16  # bytes of a text that may be a form
_NAMED = re.compile(rb"[\w.:-]{1,64}=")
_JSON_LABELS = {
    *("", "application/json-rpc", "application/jsonrequest", "application/x-www-form-urlencoded"),
    *(f"application/{prefix}{name}" for prefix in ("", "x-") for name in ("ndjson", "jsonl", "jsonlines")),
}


@lru_cache(maxsize=1)  # each rule asks for the body of the same request
def _read_json(text: bytes, label: str) -> Body | None:
    found = typed_body(text, "application/json")
    if found.kind == JSON:
        return replace(found, label=label)
    if text.count(b"\n") > MAX_VALUES:
        return None
    lines = [typed_body(line, "application/json") for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or any(line.kind != JSON for line in lines):
        return None
    return Body(JSON, [line.value for line in lines], f"{label};lines", size=len(text))


def _judge(name: str, value: str, drop: list[Field], blank: list[Field]) -> str | None:
    """Return a value as the fields leave it, the same object where none matches; None where one drops it."""
    if any(item.matches(name, value) for item in drop):
        return None
    return next((item.blanked(value) for item in blank if item.matches(name, value)), value)


class Names(tuple[str, ...]):
    """Names of values in a request, and `pieces` of them without repetition: names, the short ones as lines, the long ones.

    One search is for many names, so that many take little: no other thread of the interpreter runs during a search.
    """

    @cached_property
    def pieces(self) -> list[tuple[list[str], str, list[str]]]:
        names, seen, found = iter(self), set[str](), []
        while listed := list(islice(names, 1000)):
            some = [name for name in dict.fromkeys(listed) if name not in seen]
            seen.update(some)
            short = "\n".join([name for name in some if len(name) <= SHORT])
            found.append((some, short, [name for name in some if len(name) > SHORT]))
        return found


def _concerned(fields: Iterable[list[Field]], names: Names) -> set[str]:
    """Return names among which are all that match a field; none if none does."""
    return {name for item in chain.from_iterable(fields) for name in _matching(item.name, names)}


def _matching(pattern: Pattern, names: Names) -> Iterator[str]:
    """Yield names among which are all that a pattern matches in full; none if it matches none."""
    line = _line(pattern.compiled.pattern)
    for some, short, long in names.pieces:
        left = long if line is not None and line.search(short) is None else some
        if any(map(pattern.fullmatch, left)):
            yield from left


# A class of all but some characters, an escape that may be a line break, the flag "dot matches all"
_BREAKS = re.compile(r"\[\^|\\[sSDWnxuUN0-9]|\(\?[a-z]*s|\n")


@lru_cache(maxsize=1024)
def _line(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern that finds each line that another one matches in full; None if that may match line breaks."""
    if _BREAKS.search(pattern):
        return None
    return re.compile(f"^(?:{pattern})$", re.IGNORECASE | re.MULTILINE)


def _found(fields: list[Field], names: Collection[str]) -> list[Field]:
    """Return the fields beside which all names stand that they need."""
    return [field for field in fields if not field.beside or field.has_required_names(names)]


def _edit_pairs(pairs: tuple[str, ...], names: Names, drop: list[Field], blank: list[Field]) -> Iterable[str]:
    drop, blank = _found(drop, names), _found(blank, names)
    named = _concerned((drop, blank), names)
    for pair, decoded in zip(pairs, names, strict=True):
        if decoded not in named:
            yield pair
            continue
        name, _, value = pair.partition("=")
        text = _text(value)
        judged = _judge(decoded, text, drop, blank)
        if judged is not None:
            yield pair if judged is text else f"{name}={judged}"


def named_pairs(parsed: ParsedRequest, fields: list[Field]) -> list[tuple[str, str]]:
    """Return the names and values in a request's query that match one of the fields."""
    pairs = [tuple(map(_text, pair.partition("=")[::2])) for pair in parsed.query or ()]
    on = _found(fields, [name for name, _ in pairs])
    return [(name, value) for name, value in pairs if any(field.matches(name, value) for field in on)]


def _edit_path(url: str, drop: list[Field], blank: list[Field]) -> str:
    head, *parameters = url.split(";")
    out = [head]
    for item in parameters:
        text, slash, rest = item.partition("/")
        name, _, given = text.partition("=")
        value = _text(given)
        judged = _judge(_text(name), value, drop, blank)
        if judged is None:
            out[-1] += slash + rest
        else:
            out.append(item if judged is value else f"{name}={judged}{slash}{rest}")
    return ";".join(out)


def _edit_segments(url: str, blank: list[Field]) -> str:
    for field in blank:
        found = field.name.search(url)
        if found is not None and all(field.fits(one) for one in found.groups()):
            for number in range(len(found.groups()), 0, -1):
                url = url[: found.start(number)] + BLANK + url[found.end(number) :]
    return url


def _edit_form(
    pairs: tuple[Pair, ...], names: Names, drop: list[Field], blank: list[Field]
) -> tuple[Pair, ...]:
    out = []
    drop, blank = _found(drop, names), _found(blank, names)
    named = _concerned((drop, blank), names)
    for pair, name in zip(pairs, names, strict=True):
        value = _text(pair.value)
        judged = _judge(name, value, drop, blank) if name in named else value
        if judged is not None:
            out.append(pair if judged is value else Pair(pair.name, judged.encode()))
    return tuple(out)


def _edit_parts(
    parts: tuple[MultipartField, ...], names: Names, drop: list[Field], blank: list[Field]
) -> tuple[MultipartField, ...]:
    out = []
    drop, blank = _found(drop, names), _found(blank, names)
    for part in parts:
        value = _text(part.content)
        judged = _judge(part.name, value, drop, blank)
        if judged is not None:
            out.append(part if judged is value else MultipartField(part.headers, judged.encode()))
    return tuple(out)


_DROPPED = object()


def _names_of_object(value: Mapping[str, Any]) -> Collection[str]:
    """Return the names in a JSON object, and `name=value` of its kind: the names that fields may require beside them."""
    kind = value.get("type")
    return [*value, f"type={kind}"] if isinstance(kind, str) else value


def _edit_json(value: Any, names: Names, drop: list[Field], blank: list[Field]) -> Any:
    return _edited(value, drop, blank, {})


Found = tuple[list[Field], list[Field], set[str]]


def _edited(value: Any, drop: list[Field], blank: list[Field], known: dict[Names, Found]) -> Any:
    """Return a value without what the fields name; the same object where they name nothing.

    `known` has the fields and names found in objects of the same names: lists hold many alike.
    """
    if isinstance(value, list):
        made = ((item, _edited(item, drop, blank, known)) for item in value if isinstance(item, (dict, list)))
        edits = {id(item): new for item, new in made if new is not item}
        return [edits.get(id(item), item) for item in value] if edits else value
    if not isinstance(value, dict):
        return value
    names = Names(_names_of_object(value))
    found = known.get(names)
    if found is None:
        ours, theirs = _found(drop, names), _found(blank, names)
        found = known[names] = ours, theirs, _concerned((ours, theirs), names)
    ours, theirs, named = found
    edited: dict[str, Any] = {}
    for name, item in value.items():
        new = item
        if isinstance(item, (dict, list)):
            new = _edited(item, drop, blank, known)
        elif name in named:
            text = item if isinstance(item, str) else str(item)
            judged = _judge(name, text, ours, theirs)
            new = _DROPPED if judged is None else item if judged is text else judged
        if new is not item:
            edited[name] = new
    if not edited:
        return value
    return {n: edited.get(n, item) for n, item in value.items() if edited.get(n) is not _DROPPED}


_EDITORS: dict[str, Callable[[Any, Names, list[Field], list[Field]], Any]] = {
    FORM: _edit_form,
    JSON: _edit_json,
    MULTIPART: _edit_parts,
}


# In a path, what rules may change: parameters, escapes, and ^, which URLs escape and rules do not
_TOUCHED = frozenset(";%^")
# A URL with no escapes, parameters of paths, empty pairs or JSON
_LETTERS = re.compile(rf"[A-Za-z0-9._~!$'()*+,=:@/-]*\?{PLAIN}(?:&{PLAIN})*")


@dataclass(frozen=True)
class RuleSet:
    """The rules in force. They apply in the order of the file."""

    rules: tuple[Rule, ...]
    refused: tuple[Any, ...] = ()  # paths where 0.1 held a rule off: only the id of its snapshots needs them
    own: tuple[str, ...] = ()  # the texts of users' files of rules

    def without(self, *ids: str) -> RuleSet:
        return RuleSet(tuple(r for r in self.rules if r.id not in ids), self.refused, self.own)

    def with_own(self, text: str, name: str = "rules") -> RuleSet:
        """Return the set with the rules of a user's file, in TOML. Raises UsageError if an example does not hold."""
        if text in self.own:
            return self
        added = tuple(replace(rule, own=True) for rule in load(text, name).rules)
        for rule in added:
            if any(rule.id == known.id for known in self.rules):
                raise UsageError(f"{name}: rule {rule.id}: another rule has this id; choose a different one")
            for pairs, joins in ((rule.join, True), (rule.apart, False)):
                for a, b in pairs:
                    if (rules_that_join(example(a), example(b), (rule,)) is not None) is not joins:
                        does = "keeps apart" if joins else "joins"
                        raise UsageError(
                            f"{name}: rule {rule.id}: it {does} {a!r} and {b!r}; mend rule or example"
                        )
        return RuleSet((*self.rules, *added), self.refused, (*self.own, text))

    def leaves(self, url: str) -> bool:
        """Return True if no rule but `redacted` changes a plain GET for a URL, as its letters show; False where one may."""
        for search, longest in self._in_paths:
            if len(url) <= longest and search(url) is not None:
                return False
        if "?" not in url:
            return _TOUCHED.isdisjoint(url)
        if _LETTERS.fullmatch(url) is None:
            return False
        pairs = [pair.partition("=")[::2] for pair in url.partition("?")[2].split("&")]
        by_pair = self._concerned[tuple([name for name, _ in pairs])]
        return not any(mark in url for mark in self._marks) and not any(
            field.value is None or field.value.fullmatch(value)
            for (_, value), fields in zip(pairs, by_pair, strict=True)
            for field in fields
        )

    @cached_property
    def _marks(self) -> list[str]:
        return [_MARKS[rule.kind] for rule in self.rules if rule.kind in _MARKS]

    @cached_property
    def _in_paths(self) -> list[tuple[Callable[[str], re.Match[str] | None], int]]:
        """The searches for the fields that are looked for in paths, each with the length of the longest URL it looks at."""
        names = [f.name for rule in self.rules for f in rule.blank if f.place == "segments"]
        return [(name.compiled.search, name.found_in) for name in names]

    @cached_property
    def _named(self) -> Callable[[str], list[Field]]:
        """The fields of a query that have a name, by the name."""
        fields = [f for rule in self.rules for f in (*rule.drop, *rule.blank) if f.place == "query"]
        return cached(lambda name: [f for f in fields if f.name.fullmatch(name)])

    @cached_property
    def _concerned(self) -> Cache[tuple[str, ...], list[list[Field]]]:
        """The fields of each pair of a query beside which all names stand that they need, by the query's names."""
        return Cache(lambda names: [_found(self._named(name), names) for name in names])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object to store with a snapshot; the inverse of `from_json`."""
        stored: dict[str, Any] = {
            "version": 1,
            "rules": [r.id for r in self.rules if not r.own],
            "refused": list(self.refused),
        }
        return {**stored, "own": list(self.own)} if self.own else stored

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RuleSet:
        """Return the built-in rules with which the snapshot was sealed, and its users' own."""
        names = set(value.get("rules", ()))
        rules = tuple(r for r in builtin().rules if not names or r.id in names)
        made = cls(rules, tuple(value.get("refused", ())))
        for text in value.get("own", ()):
            made = made.with_own(str(text), "the snapshot's own rules")
        return made


def reduce_request(
    request: Request, rules: Iterable[Rule], issued: Issued = NOTHING, *, stored: bool = False
) -> ParsedRequest:
    """Apply rules to a request. In a `stored` request, only pseudonyms count as secrets."""
    rules = tuple(rules)

    def reduce(request: Request) -> ParsedRequest:
        if any(rule.kind == "redacted" for rule in rules):
            request = _pseudonyms_masked(request) if stored else mask(request)
        return apply_rules(rules, parse(request), issued)

    return request.derived(("reduced", tuple(rule.id for rule in rules), issued, stored), reduce)


def apply_rules(rules: Iterable[Rule], parsed: ParsedRequest, issued: Issued = NOTHING) -> ParsedRequest:
    """Apply rules to a parsed request, except those of kind `redacted`, which need the unparsed one."""
    for rule in rules:
        parsed = KINDS[rule.kind](rule, parsed.remembering(), issued)
    return parsed


def _pseudonyms_masked(request: Request) -> Request:
    url = PSEUDONYM_TEXT.sub(MASK, request.url)
    plain = unpacked_body(request)
    body = mask_pseudonyms(plain)
    if url == request.url and body == plain:
        return request
    headers = tuple((n, v) for n, v in request.headers if n.lower() != "content-encoding")
    return replace(request, url=url, headers=headers, body=body)


def rules_that_join(
    asked: Request,
    stored: Request,
    rules: Iterable[Rule],
    issued: Issued = NOTHING,
    *,
    tries: int | None = None,
) -> str | None:
    """Return the ids of the fewest rules that make two requests the same, joined by "+", or None.

    Rules that change neither request are not tried; "" means that no rule is needed. With `tries`, returns
    None also after that many combinations.
    """
    sides = _Sides(asked, stored, issued)
    useful = [rule for rule in rules if sides.changed_by(rule)]
    counts = range(len(useful) + 1)
    choices = chain.from_iterable(combinations(useful, count) for count in counts)
    for chosen in islice(choices, tries):
        if sides.joined_by(chosen):
            return "+".join(rule.id for rule in chosen)
    return None


class _Sides:
    """Two parsed requests, each with and without masked secrets."""

    def __init__(self, asked: Request, stored: Request, issued: Issued) -> None:
        masked = mask(asked), _pseudonyms_masked(stored)
        self._issued = issued
        self._hides = masked[0] is not asked or masked[1] is not stored
        self._plain = parse(asked), parse(stored)
        self._masked = tuple(map(parse, masked)) if self._hides else self._plain

    def changed_by(self, rule: Rule) -> bool:
        """Return True if `rule` changes either request."""
        if rule.kind == "redacted":
            return self._hides
        return any(KINDS[rule.kind](rule, one, self._issued) is not one for one in self._plain)

    def joined_by(self, rules: Sequence[Rule]) -> bool:
        """Return True if `rules` make the two requests the same."""
        both = self._masked if any(rule.kind == "redacted" for rule in rules) else self._plain
        one, other = (digest(apply_rules(rules, parsed, self._issued)) for parsed in both)
        return one == other


def example(text: str) -> Request:
    """Parse an example of the form `METHOD URL [TYPE BODY]`. Raises UsageError."""
    parts = text.split(" ", 3)
    if len(parts) not in (2, 4):
        raise UsageError(f"rules.toml: {text!r}: an example is METHOD URL or METHOD URL TYPE BODY")
    if len(parts) == 2:
        return Request(parts[0], parts[1])
    media = {
        "form": "application/x-www-form-urlencoded",
        "json": "application/json",
        "lines": "application/x-ndjson",
        "mixed": "multipart/mixed; boundary=x",
        "text": "text/plain",
        "xml": "text/xml",
    }
    if parts[2] not in media:
        raise UsageError(f"rules.toml: {text!r}: the type is one of {', '.join(media)}")
    return Request(parts[0], parts[1], (("Content-Type", media[parts[2]]),), parts[3].encode())


@lru_cache(maxsize=1)
def builtin() -> RuleSet:
    return load(Path(__file__).with_name("rules.toml").read_text("utf-8"))


def load(text: str, name: str = "rules.toml") -> RuleSet:
    """Parse rules from TOML. Raises UsageError that names file, rule and field."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    except RecursionError:
        raise UsageError(f"{name}: is nested too deeply") from None
    items = data.get("rule")
    if set(data) != {"rule"} or not isinstance(items, list):
        raise UsageError(f"{name}: must hold rules and nothing else. Begin each with [[rule]]")
    rules = [_rule(item, name) for item in items]
    if len({r.id for r in rules}) != len(rules):
        raise UsageError(f"{name}: two rules have the same id")
    return RuleSet(tuple(rules))


def own_text(path: Path) -> str:
    """Return the text of a user's file of rules. Raises UsageError if it can't be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read: {error}") from error


def _rule(item: Any, name: str) -> Rule:
    if not isinstance(item, Mapping):
        raise UsageError(f"{name}: {item!r} is not a rule. Begin each with [[rule]]")
    label = item.get("id", "?")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", str(label)):
        raise UsageError(f"{name}: rule {label!r}: the id must be lower-case words joined by hyphens")
    known = {
        "id", "about", "kind", "drop", "blank", "join", "apart", "issued", "doubted", "certain", "echoed",
        "returns"
    }  # fmt: skip
    if odd := sorted(set(item) - known):
        raise UsageError(f"{name}: rule {label}: unknown field {odd[0]!r}")
    kind = item.get("kind", "fields")
    if kind not in KINDS:
        raise UsageError(f"{name}: rule {label}: kind must be one of {', '.join(KINDS)}")
    if not item.get("join") or not item.get("apart"):
        raise UsageError(f"{name}: rule {label}: needs examples, both join and apart")
    try:
        convert({key: item[key] for key in ("join", "apart")}, dict[str, list[tuple[str, str]]])
        convert({key: item.get(key, []) for key in ("drop", "blank")}, dict[str, list[dict[str, Any]]])
    except ValueError as error:
        raise UsageError(f"{name}: rule {label}: {error}") from error
    fields: dict[str, tuple[Field, ...]] = {}
    for key in ("drop", "blank"):
        fields[key] = tuple(one for f in item.get(key, []) for one in _read_fields(f, name, f"{label}.{key}"))
    return Rule(
        label,
        str(item.get("about", "")),
        kind,
        fields["drop"],
        fields["blank"],
        tuple((str(a), str(b)) for a, b in item["join"]),
        tuple((str(a), str(b)) for a, b in item["apart"]),
        frozenset(item.get("issued", ())),
        item.get("doubted") is True,
        item.get("certain") is True,
        item.get("echoed") is True,
        item.get("returns") is True,
    )


def _read_fields(item: Mapping[str, Any], name: str, label: str) -> list[Field]:
    places = item.get("in")
    if not isinstance(places, list) or not places or not all(place in PLACES for place in places):
        raise UsageError(
            f'{name}: rule {label}: `in` must be a list, such as ["query"], of {", ".join(PLACES)}'
        )
    try:
        value = _pattern(item["value"]) if "value" in item else None
        beside = tuple(_pattern(one, re.IGNORECASE) for one in item.get("beside", ()))
        named = _pattern(item["name"], re.IGNORECASE)
        return [Field(place, named, value, item.get("drawn") is True, beside) for place in places]
    except (re.error, KeyError, TypeError) as error:
        raise UsageError(f"{name}: rule {label}: {error}") from error


@lru_cache(maxsize=1024)
def _pattern(text: str, flags: int = 0) -> Pattern:
    """Compile a pattern. Raise re.error also for one that takes long even on short texts."""
    compiled = re.compile(text, flags)
    longest = _longest(text)
    if longest < SHORT:
        raise re.error(
            f"{text!r} repeats a part that can match in several ways, which can take exponential time; write (?>…) around the part"
        )
    return Pattern(compiled, longest)


# ways to match one text, at most: to try them takes 3 to 10 ms, in which no other thread runs
STEPS = 1 << 24
SHORT = 32  # characters of a text that each pattern must be able to judge


_LENGTHS = [STEPS]
while _LENGTHS[-1]:
    _LENGTHS.append(_LENGTHS[-1] - (_LENGTHS[-1] // 4 or 1))


def _longest(text: str) -> int:
    """Return the length of texts, among `_LENGTHS`, up to which a pattern takes no more than `STEPS` whatever they hold."""
    parsed = syntax.parse(text)
    return _LENGTHS[bisect_left(_LENGTHS, True, key=lambda length: sum(_tries(parsed, length)) <= STEPS)]


def _tries(parsed: Iterable[tuple[Any, Any]], length: int) -> tuple[int, int]:
    """Return in how many ways at most a pattern matches texts of a length, and the steps of what matches in one way."""
    ways, steps = 1, 0
    for code, value in parsed:
        match code:
            case codes.MAX_REPEAT | codes.MIN_REPEAT | codes.POSSESSIVE_REPEAT:
                least, most, inner = value
                times = min(most, length)
                each, inside = _tries(inner, length)
                more = times * (inside + 1)
                own = max(1, times - least + 1) if each == 1 else min(each, STEPS + 1) ** min(times, 32)
                if code is codes.POSSESSIVE_REPEAT:
                    own, more = 1, more + (own if each > 1 else 0)
            case codes.BRANCH:
                found = [_tries(one, length) for one in value[1]]
                own, more = sum(one for one, _ in found), sum(one for _, one in found)
            case codes.SUBPATTERN:
                own, more = _tries(value[-1], length)
            case codes.ATOMIC_GROUP | codes.ASSERT | codes.ASSERT_NOT:
                own, more = 1, sum(_tries(value if code is codes.ATOMIC_GROUP else value[1], length))
            case _:
                continue
        steps += ways * more
        ways *= own
    return ways, steps


def path_of(method: str, url: str) -> str:
    """Return the path for which rules can be off: method and URL before `?` and `;`, escapes normalized."""
    base = one_escape(url.partition("?")[0].partition(";")[0])
    return f"{method} {quote(base, safe=':/%[]@!$&()*+,=~')}"
