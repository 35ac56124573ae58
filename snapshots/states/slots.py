"""What an exchange may change on its server, judged from itself alone.

A slot is a place that a request writes to: a form (its path and the names of its fields), or a resource
(PUT, PATCH, DELETE). Two posts of one form write to the same slot; what they say are two values of it. This
first judgement is a prior: the recording's own evidence confirms or overrules it (`stillweb.snapshots.states.learning`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from stillweb.snapshots.capture import Response
from stillweb.snapshots.http.bodies import BYTES, FORM, JSON, MULTIPART
from stillweb.snapshots.identity.irrelevant import irrelevant, irrelevant_cookie
from stillweb.snapshots.identity.keys import METHODS, Parsed
from stillweb.snapshots.identity.model_calls import draws
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets.detect import looks_random, secret_cookie
from stillweb.snapshots.states.operations import Operation, operations_of
from stillweb.snapshots.warc.messages import set_cookies

# How sure it is, before any evidence, that an exchange changes what is answered later.
STRONG, WEAK, READ = "strong", "weak", "read"
# In place of a Vary field: the request's Authorization, which servers mind without naming it (RFC 9111, 3.5).
CREDENTIALS = "credentials"
# Schemes of Authorization whose text is another one for each request, out of a challenge, the time or the request.
MADE_ANEW = frozenset(
    (
        "digest",
        "negotiate",
        "ntlm",
        "hawk",
        "oauth",
        "signature",
        "aws4-hmac-sha256",
        "aws4-ecdsa-p256-sha256",
    )
)
# What it does to its slot: put a new value there, or add to what is there.
SET, APPEND = "set", "append"

SAFE_METHODS = frozenset(
    {"GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "SEARCH", "PROPFIND", "REPORT", "CONNECT"}
)
ONE_WAY = (302, 303, 307)  # redirects that may lead elsewhere another time
ACKNOWLEDGEMENT = 200  # bytes; a shorter JSON answer may say no more than "done"

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_APPENDING = _words(
    "add append insert create new remove delete cart basket bag order orders checkout buy purchase vote upvote"
    " downvote like unlike follow increment inc decrement dec counter count comment comments reply upload toggle"
    " undo redo transfer deposit withdraw pay move next advance roll push pop enqueue subscribe bid guess"
)
_SETTING = _words(
    "set select choose login signin logon logout signout logoff authenticate auth session preference preferences"
    " setting settings option options switch update save apply reset clear change edit profile register signup"
)
_LEAVING = _words("logout signout logoff login signin logon")
_PARTING = _words("logout signout logoff")
# a GET with these may choose, or only show
_CHOOSING = _words("lang language locale currency country region theme")
# In the path of a JSON body these name what is asked for: /runs/count, /_count, /count-by/day, /next-runs.
_ASKED_FOR = re.compile(r"(?<=/)(?:_?count|(?:count|next)[-_][^/]+)(?=/|$)")
_ACTION = re.compile(
    r"^(?:action|act|op|operation|cmd|command|do|task|event|method|_method|intent|__EVENTTARGET)$"
)


@dataclass(frozen=True, slots=True)
class Touch:
    """What an exchange may write: the slot (readable), how, and how sure that is; `told`: by the request's own text."""

    slot: str
    op: str
    prior: str
    told: bool = False


def words_of(path: str) -> frozenset[str]:
    """The lower-case words of a path."""
    return frozenset(w.lower() for w in _WORD.findall(unquote(path)))


def field_names(parsed: Parsed) -> tuple[str, ...]:
    """The names of what a request says, with the values of those that name an action; sorted."""
    return parsed.derived("field names", _field_names)


def _field_names(parsed: Parsed) -> tuple[str, ...]:
    names = set()
    for pair in parsed.query or ():
        name, _, value = pair.partition("=")
        names.add(f"{name}={value}" if _ACTION.match(name) else name)
    body = parsed.body
    if body.kind == FORM:
        for item in body.value:
            name = item.name.decode("utf-8", "replace")
            names.add(f"{name}={item.value.decode('utf-8', 'replace')[:60]}" if _ACTION.match(name) else name)
    elif body.kind == MULTIPART:
        names.update(part.name for part in body.value)
    elif body.kind == JSON and isinstance(body.value, dict):
        for name, value in body.value.items():
            said = isinstance(value, str) and (_ACTION.match(name) or name == "operationName")
            names.add(f"{name}={value[:60]}" if said else name)
    return tuple(sorted(names))


def method_of(parsed: Parsed) -> str:
    """The method by which a server acts: what a header field, or `_method` in a POST's form, puts in its place."""
    for name, value in parsed.operation:
        if name in METHODS and value:
            return value.upper()
    if parsed.method == "POST" and parsed.body.kind == FORM:
        for pair in parsed.body.value:
            if pair.name == b"_method" and pair.value.upper() in (b"PUT", b"PATCH", b"DELETE"):
                return str(pair.value.upper().decode())
    return parsed.method


def slot_of(parsed: Parsed) -> str:
    """The slot that a request writes to, in readable text."""
    return _slot(parsed, operations_of(parsed))


def _slot(parsed: Parsed, operations: tuple[Operation, ...]) -> str:
    if method_of(parsed) in ("PUT", "PATCH", "DELETE"):
        query = "" if parsed.query is None else "?" + "&".join(sorted(parsed.query))
        return f"resource {parsed.url}{query}"
    if parsed.method == "GET" and _CHOOSING & words_of(parsed.url.rpartition("/")[0].rpartition("/")[2]):
        return f"GET {parsed.url.rpartition('/')[0]}/*"  # /lang/fr and /lang/de
    # one that goes by a name is the same with its text, which a server is told once
    names = [name for operation in operations for name in operation.names]
    return f"{parsed.method} {parsed.url} {' '.join(names or field_names(parsed))}".rstrip()


def touch_of(request: Request, parsed: Parsed, response: Response | None = None) -> Touch:
    """What an exchange may change; without an answer, what its request alone says."""
    path = f"/{parsed.url.partition('//')[2].partition('/')[2]}"
    words = words_of(_ASKED_FOR.sub("", path) if parsed.body.kind == JSON else path)
    operations = operations_of(parsed)
    slot = _slot(parsed, operations)
    op = APPEND if words & _APPENDING and not words & _LEAVING else SET
    method = method_of(parsed)
    unanswered = response is not None and response.status >= 400
    if method in SAFE_METHODS or irrelevant(request) or unanswered or is_drawn(request, parsed):
        return Touch(slot, op, _safe_prior(request, parsed, response, words))
    if method in ("PUT", "DELETE"):
        return Touch(slot, SET, STRONG)
    if method != "POST":
        return Touch(slot, APPEND, STRONG)
    if operations:
        said = {operation.changes for operation in operations}
        told = all(operation.text for operation in operations)
        return Touch(slot, op, STRONG if True in said else WEAK if None in said else READ, told)
    if _callback(parsed):  # the words of its one address say nothing of what it asks
        return Touch(slot, op, READ)
    if response is None:
        form = parsed.body.kind in (FORM, MULTIPART) or words & (_APPENDING | _SETTING)
        return Touch(slot, op, STRONG if form else WEAK)
    if response.status == 201:
        return Touch(slot, APPEND, STRONG)
    # a first cookie is given to whoever has none; another one means that the client became somebody else
    renewed = has_session(request.headers) and sets_session(set_cookies(response.headers))
    if 300 <= response.status < 400 or words & (_APPENDING | _SETTING) or renewed:
        return Touch(slot, op, STRONG)
    return Touch(slot, op, _page_prior(request, parsed, response))


def is_drawn(request: Request, parsed: Parsed) -> bool:
    """Whether a model draws the answer from the request alone: not so where an application knows its client by a cookie."""
    return draws(parsed) and not any(is_session(n, v) for n, v in cookies_of(request.headers))


def _page_prior(request: Request, parsed: Parsed, response: Response) -> str:
    """A POST that is answered by content: a question, or a change whose result is shown at once?"""
    media = (response.header("content-type") or "").partition(";")[0].strip().lower()
    if parsed.body.kind in (FORM, MULTIPART) and media in ("text/html", "application/xhtml+xml"):
        if any(p.name.startswith(b"__VIEWSTATE") for p in parsed.body.value if parsed.body.kind == FORM):
            return WEAK
        return STRONG if has_session(request.headers) else WEAK
    if parsed.body.kind == BYTES and not parsed.body.label and not response.body:
        return READ  # a string or blob without a type, answered by nothing: navigator.sendBeacon
    if len(response.body) < ACKNOWLEDGEMENT or response.status == 204:
        return WEAK
    return READ


def _safe_prior(request: Request, parsed: Parsed, response: Response | None, words: frozenset[str]) -> str:
    if parsed.method != "GET" or irrelevant(request):
        return READ
    if response is None:
        return WEAK if words & (_CHOOSING | _PARTING) else READ
    if not 300 <= response.status < 400:
        return READ
    target = response.header("location") or ""
    if "://" in target and site_of(target) != site_of(parsed.url):
        return READ
    if words & _LEAVING:
        return STRONG
    # "/set?filter=x" sends the reader back to where the choice shows
    dropped = parsed.query is not None and "=" in "".join(parsed.query) and "?" not in target
    if dropped or words & (_APPENDING | _SETTING):
        return STRONG
    if not words & _CHOOSING or response.status not in ONE_WAY:
        return READ
    kept = [v.partition(";")[0].partition("=") for v in set_cookies(response.headers)]
    by_client = any(is_choice(name.strip(), value) for name, _, value in kept)  # it holds the choice itself
    return READ if by_client else WEAK


def _callback(parsed: Parsed) -> bool:
    """Whether a body calls a function of what the page shows, with all that it may depend on (dash.plotly.com)."""
    body = parsed.body.value if parsed.body.kind == JSON else None
    return isinstance(body, dict) and {"output", "outputs", "inputs", "changedPropIds"} <= body.keys()


def sets_session(given: Iterable[str]) -> bool:
    """Whether an answer that sets these cookies hands out or takes away one by which the server knows its client."""
    for value in given:
        cookie, _, text = value.partition(";")[0].partition("=")
        if not irrelevant_cookie(cookie.strip()) and (is_session(cookie.strip(), text.strip()) or not text):
            return True
    return False


def is_session(name: str, value: str) -> bool:
    """Whether a cookie identifies its client rather than telling a choice."""
    return "stillweb-secret-" in value or secret_cookie(name, value)


_LOGIN = re.compile(
    r"sess(?!ion_?(?:start|count|time))|(?:^|[-_.])(?:sid|ssid|auth|jwt|login|remember|(?<!csrf.)(?<!xsrf.)token|sso)(?:$|[-_.\d])"
    r"|logged_?in|identity|authcookie|aspxauth|(?:access|refresh|id|user)_?token",
    re.I,
)


def logins_of(headers: Headers) -> list[str]:
    """The names of cookies by which a server knows its client, and not only a counter of visits does."""
    return [
        n
        for n, v in cookies_of(headers)
        if _LOGIN.search(n) and is_session(n, v) and not irrelevant_cookie(n)
    ]


_TELLING = (  # compiled where there are such cookies
    r"(?i)(?:^|[-_.])(?:lang|language|locale|i18n|currency|country|region|city|location|zip|postal|market|edition|store|shop"
    r"|cart|basket|sort|order|filters?|page_?size|per_?page|user|user_?name|uid|user_?id|account|tenant|role|member|customer"
    r"|admin|premium|plan|age|verified|group|preview)(?:$|[-_.\d])"
)


@lru_cache(maxsize=4096)
def is_telling(name: str) -> bool:
    """Whether a cookie by its name tells a server what to show, or to whom."""
    return re.search(_TELLING, name) is not None


def telling_of(headers: Headers) -> list[tuple[str, str]]:
    """The cookies of a request that are such; others may be a script's own memory."""
    return [(n, v) for n, v in choices_of(headers).items() if is_telling(n)]


def has_session(headers: Headers) -> bool:
    """Whether a request carries a cookie by which the server knows its client, or credentials."""
    return any(is_session(n, v) for n, v in cookies_of(headers)) or any(
        n.lower() == "authorization" for n, _ in headers
    )


@lru_cache(maxsize=1024)
def credentials_of(headers: Headers) -> str:
    """What a request's Authorization is: "" for none, else its scheme and, as 8 hex digits, who it names."""
    for name, value in headers:
        if name.lower() == "authorization" and value.strip():
            return f"{value.split()[0].lower()} {hashlib.sha256(value.encode(errors='surrogatepass')).hexdigest()[:8]}"
    return ""


def cookies_of(headers: Headers) -> list[tuple[str, str]]:
    """The cookies of a request in order."""
    found = []
    for name, value in headers:
        if name.lower() == "cookie":
            for item in value.split(";"):
                cookie, equals, text = item.strip().partition("=")
                if equals and cookie:
                    found.append((cookie, text.strip('"')))
    return found


@lru_cache(maxsize=4096)
def is_choice(name: str, value: str) -> bool:
    """Whether a cookie can be a choice that pages are made from: no tracker, no identity, no clock."""
    if not value or len(value) > 400 or irrelevant_cookie(name) or is_session(name, value):
        return False
    return re.search(r"\d{10}", value) is None and not looks_random(value) and "csrf" not in name.lower()


def choices_of(headers: Headers) -> dict[str, str]:
    """The cookies of a request that may be choices."""
    return dict(_choices(headers))


@lru_cache(maxsize=1024)
def _choices(headers: Headers) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in cookies_of(headers) if is_choice(name, value))
