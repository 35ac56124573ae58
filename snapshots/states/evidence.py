"""Captures read as evidence: what each asked, what it may have changed, and what was answered."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

import ada_url

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.dates import not_after
from stillweb.snapshots.http.bodies import EMPTY, JSON
from stillweb.snapshots.identity.irrelevant import irrelevant
from stillweb.snapshots.identity.keys import Parsed, digest, parse
from stillweb.snapshots.identity.rules import Rule, applied, builtin, reduced
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import CONDITIONAL, Request
from stillweb.snapshots.secrets.detect import secret_field
from stillweb.snapshots.states.answers import FILE_STATUSES, Answers, said_by
from stillweb.snapshots.states.answers import static as is_static
from stillweb.snapshots.states.conditions import short
from stillweb.snapshots.states.issued import SHORTEST, find_issued, named_values
from stillweb.snapshots.states.learning import Item, path_name
from stillweb.snapshots.states.operations import refused
from stillweb.snapshots.states.plain import PLAIN_URL, clients_of
from stillweb.snapshots.states.senders import sender_of
from stillweb.snapshots.states.slots import (
    ACKNOWLEDGEMENT,
    ONE_WAY,
    READ,
    SAFE_METHODS,
    WEAK,
    field_names,
    is_drawn,
    is_telling,
    sets_session,
    slot_of,
    touch_of,
)
from stillweb.snapshots.warc.messages import set_cookies

ReadRequest = Callable[[Capture], Request]
ReadResponse = Callable[[Capture], Response]
ReadCookies = Callable[[Capture], list[str]]  # the values of Set-Cookie of an answer

# Vary on these tells nothing that a state doesn't tell better, or would part a client from itself.
NEVER_VARY = frozenset({"accept-encoding", "cookie", "authorization", "proxy-authorization", "*"})


def vary_of(capture: Capture) -> tuple[tuple[str, str], ...]:
    """The request values that the answer's Vary makes count."""
    return tuple((n, v) for n, v in capture.vary if n not in NEVER_VARY)


MANY = 20_000  # requests kept in memory


class Evidence:
    """The captures of a site as evidence."""

    def __init__(
        self,
        captures: Iterable[Capture],
        read_request: ReadRequest,
        read_response: ReadResponse,
        read_cookies: ReadCookies | None = None,
    ) -> None:
        self.read_request = read_request
        self.read_response = read_response
        self.cookies_given = read_cookies or (lambda capture: set_cookies(read_response(capture).headers))
        self.answers = Answers(read_response)
        self.requests: dict[tuple[str, int], Request] = {}
        self._parsed: dict[tuple[str, int], Parsed] = {}
        self.items: dict[tuple[str, int], Item] = {}
        self.rules = _rules()
        self._collect(list(captures))
        self.dynamic = [item for item in self.items.values() if not item.static]
        self.keyed = False  # whether the site knows its clients by a cookie
        self.begins: set[tuple[str, int]] = set()  # captures whose answer gave a client such a cookie
        # captures from which nothing follows: the server would have nobody to keep it for, or refused a login
        self.unkept: set[tuple[str, int]] = set()
        self.brought: set[tuple[str, int]] = set()  # captures whose request had one that no answer gave
        # by session, cookies that its client came with and that tell what to show
        self.carried = self._carried()
        self._lives()
        self.issued = self._issued()
        self._values: dict[str, list[str]] = {}  # by line
        self._group()
        self._label()
        if len(self.requests) > MANY:
            self.requests.clear()  # read again where they are wanted
            self._parsed.clear()

    def asked(self, item: Item) -> Request:
        """The request of an exchange, as sent."""
        found = self.requests.get(item.place)
        if found is None:
            found = self.requests[item.place] = self.read_request(item.capture)
        return found

    def request(self, item: Item) -> tuple[Request, Parsed]:
        """The request of an exchange, as sent and taken apart."""
        request = self.asked(item)
        found = self._parsed.get(item.place)
        if found is None:
            found = self._parsed[item.place] = parse(request)
        return request, found

    def _collect(self, captures: list[Capture]) -> None:
        differing: dict[str, set[str]] = defaultdict(set)
        for capture in captures:
            told = capture.digest
            if capture.method == "HEAD":
                told = said_by(capture, self.read_response(capture))
            elif capture.status not in FILE_STATUSES:
                told = f"{capture.status} {told}"  # refused with the very same bytes, say
            differing[capture.key].add(told)
        ranks = _ranks(captures)
        written = {c.url.partition("?")[0] for c in captures if c.method in ("PUT", "PATCH", "DELETE")}
        self._read = {c.url.partition("?")[0] for c in captures if c.method == "GET" and "json" in c.mime}
        for capture in captures:
            static = (
                is_static(capture.method, capture.mime, capture.status)
                and len(differing[capture.key]) == 1
                and capture.url.partition("?")[0] not in written
            )
            begin, end = (capture.begin, capture.end) if capture.session else ranks[capture.place]
            item = Item(capture, capture.session, begin, end, capture.key, static=static)
            self.items[item.place] = item
            if not static:
                item.sender = sender_of(self.asked(item).headers)

    def _carried(self) -> dict[str, set[tuple[str, str]]]:
        """Those in requests that were made before any answer was there: names and values as 8 hex digits."""
        found: dict[str, set[tuple[str, str]]] = {}
        if not any(item.sender.hashes for item in self.dynamic):
            return found
        over: dict[str, int] = {}  # when the first answer of each was
        for item in self.dynamic:
            over[item.line] = min(over.get(item.line, item.end), item.end)
        for item in self.dynamic:
            if item.begin < over[item.line]:
                told = {(n, v) for name, n, v in item.sender.hashes if is_telling(name)}
                found.setdefault(item.line, set()).update(told)
        return found

    def _lives(self) -> None:
        """Parts each session's line where its client came without the cookie by which the server had known it.

        A recorder's session may hold several lives of a client (a browser whose cookies were cleared).
        """
        if not any(item.sender.clients for item in self.dynamic):
            return
        by_line: dict[str, list[Item]] = defaultdict(list)
        for item in self.dynamic:
            by_line[item.line].append(item)
        strangers: list[tuple[Item, int]] = []
        kept: list[Item] = []  # what they wrote without being given a cookie
        logins: set[str] = set()  # slots of those who gave a password and were given one
        for line in by_line.values():
            line.sort(key=_in_order)
            life_of: dict[str, int] = {}
            begun: list[tuple[int, int]] = []  # end of the answer that began it, number
            names: dict[str, int] = {}  # of cookies for logins that no answer gave: among how many
            for number, item in enumerate(line):
                mine, capture = item.sender.clients, item.capture
                for name in item.sender.logins if mine else ():
                    since = names.get(name, 0)
                    if since >= 0:
                        given_by = any(self._gives(one, name) for one in line[since:number])
                        names[name] = -1 if given_by else number
                        if not given_by:
                            self.brought.add(item.place)
                unsafe = capture.method not in SAFE_METHODS
                given: list[str] = []
                if not mine or unsafe:
                    given = _clients_given(self.cookies_given(capture))
                if mine:
                    latest = next((n for end, n in reversed(begun) if end <= item.begin), -1)
                    life = next((life_of[v] for v in mine if v in life_of), latest)
                elif given:
                    life = number
                    begun.append((item.end, number))
                    self.begins.add(item.place)
                    if unsafe and (login := self._login(item)):
                        logins.add(login)
                else:
                    life = -2  # sent without credentials: the server saw a stranger
                    strangers.append((item, number))
                    changed = unsafe and capture.status < 400 and not irrelevant(self.asked(item))
                    if changed and not sets_session(self.cookies_given(capture)):
                        kept.append(item)
                for value in given:
                    life_of[value] = life
                item.line = f"{item.line}\n{life}"
        refused = {item.place for item in kept if logins and self._login(item) in logins}
        self.keyed = keyed = len(refused) == len(kept)
        self.unkept = {item.place for item, _ in strangers} if keyed else refused
        # but where one of them wrote something for which it was given no cookie: that is then there for all of them
        for item, number in strangers if keyed else ():
            item.line += f".{number}"  # another one each time

    def _login(self, item: Item) -> str:
        """The slot of a request with a password; "" of any other."""
        parsed = self.request(item)[1]
        return slot_of(parsed) if any(secret_field(name, "?") for name in field_names(parsed)) else ""

    def _gives(self, item: Item, cookie: str) -> bool:
        """Whether an answer sets a cookie; those to clients that have it are not looked at, but for changes."""
        if item.capture.method in SAFE_METHODS and cookie in item.sender.cookies:
            return False
        return any(v.partition("=")[0].strip() == cookie for v in self.cookies_given(item.capture))

    def _issued(self) -> dict[tuple[str, int], frozenset[str]]:
        telling = {item.place for item in self.dynamic if not self._tokenless(item)}
        if not telling:
            return {}
        lines: dict[str, list[Item]] = defaultdict(list)
        for item in self.items.values():
            lines[item.line].append(item)
        ordered = []
        for key in sorted(lines):
            line = sorted(lines[key], key=_in_order)
            ordered.append([(i.capture, self.request(i)[1] if i.place in telling else None) for i in line])
        return find_issued(ordered, self.read_response)

    def _tokenless(self, item: Item) -> bool:
        """Whether a request can hold no value that the site issued, judged by its text alone."""
        request = self.asked(item)
        return request.method in ("GET", "HEAD") and not request.body and _judged(request.url)[0]

    def _group(self) -> None:
        """What each exchange asks and writes, without what can't decide the answer."""
        for item in self.dynamic:
            issued = self.issued.get(item.place, frozenset())
            told = item.capture.key  # the digest of the request as it is
            left = None
            if issued or not self._irreducible(self.asked(item)):
                parsed = self.request(item)[1]
                left = parsed if _nothing_to_reduce(parsed) else applied(self.rules, parsed, issued)
                told = digest(left)
            vary = vary_of(item.capture) if item.capture.vary else ()
            if item.capture.status in (206, 412, 416) or item.capture.method not in SAFE_METHODS:
                asked = self.asked(item)  # answers to another question: they are compared with their like
                vary = (*vary, *((n, v) for n in CONDITIONAL if (v := asked.header(n)) is not None))
            item.key = told if not vary else short(told, repr(vary)) + told
            self._touch(item, left, told)

    def _irreducible(self, request: Request) -> bool:
        """Whether no rule changes a request, judged by its text alone: True only for the plainest, which most are."""
        return request.method in ("GET", "HEAD") and not request.body and _judged(request.url)[1]

    def _touch(self, item: Item, left: Parsed | None, told: str) -> None:
        capture = item.capture
        safe = capture.method in SAFE_METHODS and not item.sender.overridden
        if safe and not 300 <= capture.status < 400:
            return
        request, parsed = self.request(item)
        if irrelevant(request):
            return
        if is_drawn(request, parsed):
            item.drawn = True
            return
        response = self.read_response(capture)
        if response.status >= 400 or item.place in self.unkept or refused(parsed, response):
            return
        touch = touch_of(request, parsed, response)
        if safe and touch.prior == READ and capture.status not in ONE_WAY:
            return
        asked = touch.prior == READ and parsed.body.kind == JSON and not touch.told
        if asked and parsed.url in self._read:
            # what is read at the very address may be what was written there
            touch = replace(touch, prior=WEAK)
        item.touch = touch
        item.slot = short(site_of(capture.url), slot_of(parsed if left is None else left))
        item.value = told[:8]
        item.shown = _shown_by(request.url, response)
        bare = 300 <= response.status < 400 or (response.status == 204 and not response.body)
        # of a write with a condition it shows that this was met
        item.plain = bare and not any(request.header(name) for name in CONDITIONAL)
        item.brief = len(response.body) < ACKNOWLEDGEMENT

    def _label(self) -> None:
        groups: dict[str, list[Item]] = defaultdict(list)
        for item in self.dynamic:
            groups[item.key].append(item)
        for members in groups.values():
            if any(m.touch is not None for m in members):
                for member in members:
                    capture = member.capture
                    issued = self.sent_values(capture)
                    member.label = said_by(capture, self.read_response(capture), issued)
                continue
            labels = self.answers.classes([m.capture for m in members], self.sent_values)
            for member, label in zip(members, labels, strict=True):
                member.label = label
            self._label_unmodified(members)

    def _label_unmodified(self, members: list[Item]) -> None:
        """A 304 says that the copy with its tag, or of the date asked about, is still the answer: what that one said, if it
        was recorded."""
        unmodified = [m for m in members if m.capture.status == 304]
        if not unmodified or len(unmodified) == len(members):
            return
        by_tag: dict[str, set[str]] = defaultdict(set)
        by_date: dict[str, set[str]] = defaultdict(set)
        for member in members:
            if member.capture.status == 200:
                by_tag[self._tag(member)].add(member.label)
                by_date[self.read_response(member.capture).header("last-modified") or ""].add(member.label)
        for member in unmodified:
            tag, since = self._tag(member), self.asked(member).header("if-modified-since")
            meant: set[str] = by_tag[tag]
            if not tag and since is not None:
                meant = set().union(*(labels for date, labels in by_date.items() if not_after(date, since)))
            if len(meant) == 1 and (tag or since):
                (member.label,) = meant

    def _tag(self, item: Item) -> str:
        return (self.read_response(item.capture).header("etag") or "").strip().removeprefix("W/")

    def sent_values(self, capture: Capture) -> list[str]:
        """The issued values that the session of a capture sent: what its answers show of them means nothing."""
        if not self._values and self.issued:
            for place, names in self.issued.items():
                item = self.items[place]
                values = self._values.setdefault(item.line, [])
                for where, name, value in named_values(self.request(item)[1]):
                    if f"{where}:{name}" in names and value not in values:
                        values.append(value)
            for values in self._values.values():
                values.sort(key=lambda v: (-len(v), v))
        return self._values.get(self.items[capture.place].line, [])


@lru_cache(maxsize=1)
def _rules() -> tuple[Rule, ...]:
    return tuple(r for r in builtin().rules if r.kind != "redacted")


def _in_order(item: Item) -> tuple[int, int, tuple[str, int]]:
    return item.begin, item.end, item.place


def _ranks(captures: list[Capture]) -> dict[tuple[str, int], tuple[int, int]]:
    """An order for captures of other tools, which have no events: by time, then by place."""
    foreign = sorted((c for c in captures if not c.session), key=lambda c: (c.timestamp, c.place))
    return {c.place: (2 * n, 2 * n + 1) for n, c in enumerate(foreign)}


@lru_cache(maxsize=1 << 12)
def _judged(url: str) -> tuple[bool, bool]:
    """Whether a GET of a URL can hold no value that its site issued, and whether no rule changes it.

    By its text alone: both only for the plainest.
    """
    plain = PLAIN_URL.fullmatch(url)
    if plain is None:
        return False, False
    pairs = plain[1][1:].split("&") if plain[1] else []
    return all(len(pair.partition("=")[2]) < SHORTEST for pair in pairs), all(map(_unchanged, pairs))


@lru_cache(maxsize=1 << 15)
def _unchanged(pair: str) -> bool:
    """Whether no rule changes a pair of a query; rules look at one pair at a time."""
    request = Request("GET", f"https://a.test/?{pair}")
    return reduced(request, _rules()) == parse(request)


def _nothing_to_reduce(parsed: Parsed) -> bool:
    return (
        parsed.query is None and parsed.body.kind == EMPTY and ";" not in parsed.url and "%" not in parsed.url
    )


def _shown_by(url: str, response: Response) -> frozenset[str]:
    """The paths where a change is likeliest to show: its own, and the one that its answer leads to."""
    paths = {path_name(url)}
    location = response.header("location")
    if location:
        with contextlib.suppress(ValueError):  # it leads nowhere
            paths.add(path_name(ada_url.join_url(url, location)))
    return frozenset(paths)


def _clients_given(values: list[str]) -> list[str]:
    return clients_of(tuple([("cookie", value.partition(";")[0]) for value in values]))
