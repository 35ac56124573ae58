"""Parts of a request that may decide its answer beside its key: header fields, cookies, and what rules leave out of the key.

Each part has a name (`~header accept`, `~cookie lang`, `~rule cache-buster`) and a value; "" where a request lacks it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote

from stillweb.snapshots.evidence.events import parameters_of, shortened
from stillweb.snapshots.evidence.model import ANEW, OTHER
from stillweb.snapshots.evidence.priors import of_part
from stillweb.snapshots.http.acceptance import first_kind
from stillweb.snapshots.http.bodies import FORM, JSON, MULTIPART, Body
from stillweb.snapshots.http.header_values import sorted_languages
from stillweb.snapshots.identity.cookies import cookies_of, credentials_of, is_session, logins_of
from stillweb.snapshots.identity.differences import differences
from stillweb.snapshots.identity.header_fields import (
    FRAGMENT,
    PRESENT,
    fields_of,
    fields_that_count,
    is_drawn,
    is_secret,
    is_token,
    own_name,
    own_of,
)
from stillweb.snapshots.identity.irrelevant import irrelevant, irrelevant_cookie, irrelevant_key
from stillweb.snapshots.identity.issued_values import named_values, token_like
from stillweb.snapshots.identity.keys import ParsedRequest, digest, is_plain, mix, parse, unpacked_body
from stillweb.snapshots.identity.rules import Issued, Rule, RuleSet, apply_rules, reduce_request
from stillweb.snapshots.request import CONDITIONAL, Request
from stillweb.snapshots.secrets.redact import MASK
from stillweb.snapshots.yielding import free, in_order, write_json

TELLING = 0.25  # from this prior on a header field is what an application says with it
WHO = "~header authorization"  # whose credentials it is sent with, in whatever field
GIVEN = "(given)"  # in place of a value that the site itself gave to the client
# whom a proxy asks for, and under what address; a client that says so itself asks for links to there
FORWARDED = (
    *("x-forwarded-for", "x-real-ip", "forwarded"),
    *(f"x-forwarded-{what}" for what in ("host", "proto", "prefix", "port", "path", "scheme")),
)
# Fields of a connection (RFC 9110, 7.6.1), and those that follow from the rest of a request or are other parts.
_TOLD_ELSEWHERE = re.compile(
    r":.*|connection|keep-alive|proxy-.*|trailer|transfer-encoding|upgrade|http2-settings|alt-used|expect|host|content-length"
    r"|accept-encoding|accept-language|cookie2?|authorization|sec-websocket-.*|warcprox-.*"
)
SHOWN = 200  # characters of a spelling; of longer ones a number tells the rest
REPEATED = "idempotency-key"  # a request with the key of an earlier one repeats it, and is answered alike
CLOCKS = ("timestamp", "cache-buster", "bare-time")  # rules that leave out a client's clock
# Fields of Vary that are parts of their own, or that choose nothing.
_NO_CHOICE = ("accept-encoding", "accept-language", "cookie", "origin", "credentials")
# Names of values that a site gives out to be sent back once.
ONCE = re.compile(
    r"csrf|xsrf|nonce|authenticity|verification_?token|antiforgery|form_?key|form_build_id|form_token|sesskey|^_?token$",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Given:
    """Cookies that a site gave a client, and the keys with which the client may repeat its requests."""

    # by name and value of a cookie: the event that gave it, and its number among the values that this event gave
    givers: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    last: dict[tuple[str, str], int] = field(default_factory=dict)  # the last number, by name and event
    fleeting: set[tuple[str, str]] = field(default_factory=set)  # cookies that are sent or not by chance
    orders: dict[str, dict[str, int]] = field(default_factory=dict)  # the number of each key, by request

    def copy(self) -> Given:
        """Return a copy that changes by itself."""
        orders = {request: dict(keys) for request, keys in self.orders.items()}
        return Given(dict(self.givers), dict(self.last), set(self.fleeting), orders)


def other_parts(
    request: Request, vary: Iterable[str], given: Given, normal: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the parts of a request outside its key, and the header fields that an application made up."""
    found = header_parts(request, vary)
    if key := key_of_order(request):
        keys = given.orders.get(normal, {})
        found[f"~header {REPEATED}"] = str(keys.get(key, len(keys) + 1))
    fields = application_fields(found)
    if repeated := repeated_pairs(request):
        found["~order"] = repeated
    return found | cookie_parts(request, given), fields


def key_of_order(request: Request) -> str:
    """Return the key by which a client sends a request again; "" without one."""
    names = (REPEATED, "x-idempotency-key", "paypal-request-id")
    return next(filter(None, map(request.header, names)), "")


def header_parts(request: Request, vary: Iterable[str]) -> dict[str, str]:
    """Return the header fields of a request that may decide; those in `vary` the site itself names."""
    headers = request.headers
    found: dict[str, str] = {}
    if not headers:
        return found
    by_name: dict[str, str] = {}
    for name, value in headers:
        low = name.lower()
        by_name[low] = f"{by_name[low]}, {value}" if low in by_name else value
    plain = fields_that_count(own_of(headers), request.method, request.url)
    for name, value in by_name.items():
        if name in plain:
            found[f"~header {name}"] = plain[name]
            if is_token(name) and unquote(by_name[name]) in (unquote(v) for _, v in cookies_of(headers)):
                found[f"~header {name} as cookie"] = GIVEN
        elif name in FORWARDED or (
            own_name(name) and value.strip() and not is_token(name) and not irrelevant_key(request.url)
        ):
            found[f"~drawn {name}"] = value  # it looks drawn for this request, and may be an id all the same
        if value and name in FRAGMENT:
            found[f"~header {name}"] = value
    who = credentials_of(headers)
    if who:
        found[WHO] = who
    if kind := _wanted_kind(by_name):
        found["~header accept"] = kind
    if "x-requested-with" in by_name:
        found["~header x-requested-with"] = by_name["x-requested-with"]
    if "accept-language" in by_name:
        found |= _languages("~vary" if "accept-language" in vary else "~header", by_name["accept-language"])
    for name in vary:
        if name in by_name and name not in _NO_CHOICE:
            found.pop(f"~header {name}", None)
            value = _wanted_kind(by_name) if name == "accept" else by_name[name]
            if value:
                found[f"~vary {name}"] = value
    return found


def _wanted_kind(by_name: Mapping[str, str]) -> str:
    """Return the kind that Accept asks for first; "" for any, as without the field (RFC 9110, 12.5.1)."""
    kind = first_kind(by_name.get("accept", ""))
    return "" if kind == "*/*" else kind


def _languages(kind: str, field: str) -> dict[str, str]:
    """Return the parts of an Accept-Language: the language wanted most, its region, and the languages after it.

    Region and further languages are parts of the first language, "-" where it has none: what they do tells nothing of another's.
    """
    tags = sorted_languages(field)
    if not tags:
        return {}
    first = tags[0]
    after = dict.fromkeys(tag.language for tag in tags[1:] if tag.language != first.language)
    found = {f"{kind} accept-language": f"{first.language} {first.script}".strip()}
    found[f"{kind} accept-language region of {first.language}"] = (
        " ".join((first.region, *first.variants)).strip() or "-"
    )
    found[f"{kind} accept-language after {first.language}"] = " ".join(after) or "-"
    return found


def application_fields(parts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of the header fields that an application made up, which say what a request does."""
    found = {}
    for part, value in parts.items():
        kind, _, name = part.partition(" ")
        if kind in ("~header", "~vary") and of_part(f"~header {name}") >= TELLING:
            found[name] = value
    return tuple(shortened(f"{name}: {value}") for name, value in sorted(found.items()))


def cookie_parts(request: Request, given: Given) -> dict[str, str]:
    """Return the cookies of a request that may decide; of equal events that gave one, the last counts apart."""
    found: dict[str, str] = {}
    for name, value in cookies_of(request.headers):
        if irrelevant_cookie(name):
            continue
        if is_session(name, value):
            # drawn by the client itself, in another run than the recorded one; of a login it is another's
            drawn = MASK in value and name not in logins_of(request.headers)
            giver, number = given.givers.get((name, value), (OTHER if drawn else f"brought {value}", 0))
            later = given.last[name, giver] - number if number else 0
            found[f"~cookie given {name}"] = "given"
            found[f"~cookie giver {name}"] = f"{giver} {later} later" if later else giver
        elif (name, value) in given.fleeting:
            found[f"~cookie fleeting {name}"] = value
        else:
            found[f"~cookie {name}"] = value
    return found


def issued_in(request: Request, known: Issued) -> tuple[Issued, list[str]]:
    """Return where a request holds values that its site gave out, by name or as `known`, and the values."""
    return request.derived(("issued", known), partial(_issued_in, known=known))


def _issued_in(request: Request, *, known: Issued) -> tuple[Issued, list[str]]:
    places: set[str] = set()
    values = []
    for place, name, value in named_values(parse(request)):
        if (f"{place}:{name}" in known or ONCE.search(name)) and token_like(name, value):
            places.add(f"{place}:{name}")
            values.append(value)
    return frozenset(places), values


def rule_parts(
    request: Request, rules: RuleSet, issued: Issued, *, given: str, stored: bool
) -> tuple[str, dict[str, str]]:
    """Return the key that rules leave of a request, and what each of them left out; `given` in place of what is `issued`, unless empty."""
    made = partial(_rule_parts, rules=rules, issued=issued, given=given, stored=stored)
    key, parts = request.derived(("rule parts", issued, given, stored), made)
    return key, dict(parts)


def _rule_parts(
    request: Request, *, rules: RuleSet, issued: Issued, given: str, stored: bool
) -> tuple[str, dict[str, str]]:
    if is_plain(request) and "?" not in request.url and rules.leaves(request.url):
        return digest(parse(request)), {}
    if irrelevant(request):
        bare = digest(parse(Request(request.method, request.url.partition("?")[0])))
        return bare, {"~rule irrelevant": digest(parse(request))}
    rules = rules.without("redacted")  # a secret is recognised by its proof, not by a rule
    parsed, left = parse(request), reduce_request(request, rules.rules, issued, stored=stored)
    key, found = digest(left), dict[str, str]()
    if key == digest(parsed):
        return key, found
    alone = [(rule, apply_rules((rule,), parsed, issued)) for rule in rules.rules]
    useful = [(rule, without) for rule, without in alone if without is not parsed]
    several: dict[str, list[tuple[Rule, str]]] = {}  # places whose values more than one rule covers
    seen: set[str] = set()
    for rule, without in useful:
        less = reduce_request(request, [r for r in rules.rules if r is not rule], issued, stored=stored)
        if digest(less) != key and (not rule.own or rule.doubted):
            found[f"~rule {rule.id}"] = given if given and rule.kind == "issued" else digest(less)
        if len(useful) > 1:
            seen.update(_changed(less, left))
            for place, value in _changed(parsed, without).items():
                several.setdefault(place, []).append((rule, value))
    for place in sorted(several.keys() - seen):
        gave = [one for one in several[place] if given and one[0].kind == "issued"]
        rule, value = min(gave or several[place], key=lambda one: of_part(f"~rule {one[0].id}"))
        if not any(rule.own and not rule.doubted for rule, _ in several[place]):
            part = f"~rule {rule.id}"
            found[part] = given if gave else _short(f"{found.get(part)} {value}")
    return key, found


def _changed(one: ParsedRequest, other: ParsedRequest) -> dict[str, str]:
    """Return the places in which two requests differ, with what the first has there."""
    found = {}
    for item in differences(one, other):
        if isinstance(item, str):
            found[item.partition(":")[0]] = digest(one)
        else:
            found[f"{item.place} {item.name}"] = repr(item.asked)
    return found


def spelling_parts(request: Request, left: ParsedRequest) -> dict[str, str]:
    """Return how a request is spelt: its letters, and the order of its members.

    `left` is what rules leave of it. A request that rules change has other letters each time: they are left out.
    """
    found: dict[str, str] = {}
    if digest(left) == digest(parse(request)):
        letters = unpacked_body(request) if left.body.kind in (JSON, FORM) else b""
        found["~spelling letters"] = _short(
            f"{request.url.partition('#')[0]} {letters.decode('utf-8', 'replace')}"
        )
    found["~spelling order"] = _short(f"{'&'.join(_names(left.query or ()))} {_order_in(left.body)}")
    return found


def field_parts(request: Request, parts: Mapping[str, str]) -> dict[str, str]:
    """Return the header fields that are none of its `parts`: hardly any server heeds them without naming them in Vary."""
    told = {
        name.partition(" ")[2]: value
        for name, value in parts.items()
        if name.startswith(("~header", "~vary", "~drawn"))
    }
    found = {}
    for name, value in fields_of(request.headers).items():
        if not (
            name in CONDITIONAL
            or _TOLD_ELSEWHERE.fullmatch(name)
            or told.get(name) in (value, PRESENT)
            or is_secret(name, value)
        ):
            # a boundary is drawn anew each time
            own = value.partition("boundary=")[0] if name == "content-type" else value
            found[f"~anew {name}" if is_drawn(name) else f"~field {name}"] = own
    return found


def as_recorded(parts: Mapping[str, str], recorded: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Return the parts of a live request among those that tell its `recorded` answers apart, by name and values.

    A field's value that was never recorded says nothing of which recorded one the server would have taken it for.
    """
    found = {name: parts.get(name, "") for name in recorded}
    for name, value in found.items():
        if value not in recorded[name] and name.startswith(("~anew", "~field")):
            found[name] = ANEW if name.startswith("~anew") else OTHER
    return {name: value for name, value in found.items() if value}


def _names(query: Iterable[str]) -> list[str]:
    return [pair.partition("=")[0] for pair in query]


def _order_in(body: Body) -> str:
    """Return the members of a body in their order; the order of equal names is a part of its own."""
    if body.kind == JSON:
        return write_json(body.value, body.size)
    if body.kind == FORM:
        return "&".join(pair.name.decode("latin-1") for pair in body.value)
    return "&".join(part.name for part in body.value) if body.kind == MULTIPART else ""


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} {mix(text):x}"


def repeated_pairs(request: Request) -> str:
    """Return the pairs of query and form whose name occurs more than once, by name, values in order; "" for none."""
    if not request.body and "&" not in request.url:
        return ""
    return request.derived("repeated pairs", _repeated_pairs)


def _repeated_pairs(request: Request) -> str:
    pairs = parameters_of(parse(request))
    names = Counter(name for name, _ in pairs)
    repeated = in_order([pair for pair in pairs if names[pair[0]] > 1], key=lambda pair: pair[0])
    text = ", ".join(map(repr, repeated))
    del repeated
    free(pairs)
    return text
