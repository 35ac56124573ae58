"""Captures read as evidence: what each asked, what it may have changed, and what was answered."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache

import ada_url

from snapshots.answers import Answers, said
from snapshots.bodies import EMPTY
from snapshots.capture import Capture, Response
from snapshots.conditions import short
from snapshots.irrelevant import irrelevant
from snapshots.issued import SHORTEST, find_issued, named_values
from snapshots.keys import Parsed, digest, overridden, parse
from snapshots.learning import Item, path_name
from snapshots.plain import PLAIN_URL, clients_of
from snapshots.plain import static as is_static
from snapshots.request import Request
from snapshots.rules import Rule, builtin, reduced
from snapshots.sites import site_of
from snapshots.slots import (
    SAFE_METHODS,
    choices_of,
    cookies_of,
    logins_of,
    sets_session,
    slot_of,
    touch_of,
)

ReadRequest = Callable[[Capture], Request]
ReadResponse = Callable[[Capture], Response]

# Request fields by which some servers decide the answer without naming them in Vary.
DECIDERS = (
    "hx-request",
    "hx-target",
    "x-requested-with",
    "x-pjax",
    "x-inertia",
    "rsc",
    "next-router-state-tree",
    "next-router-prefetch",
    "turbo-frame",
    "accept",
    "accept-language",
    "x-http-method-override",
    "origin",
    "user-agent",
)
# Vary on these tells nothing that a state doesn't tell better, or would part a client from itself.
NEVER_VARY = frozenset({"accept-encoding", "cookie", "authorization", "proxy-authorization", "*"})


def vary_of(capture: Capture) -> tuple[tuple[str, str], ...]:
    """The request values that the answer's Vary makes count."""
    return tuple((n, v) for n, v in capture.vary if n not in NEVER_VARY)


MANY = 20_000  # requests kept in memory


class Evidence:
    """The captures of a snapshot as evidence, by site."""

    def __init__(
        self,
        captures: Iterable[Capture],
        read_request: ReadRequest,
        read_response: ReadResponse,
        read_head: ReadResponse | None = None,
    ) -> None:
        self.captures = list(captures)
        self.read_request = read_request
        self.read_response = read_response
        self.read_head = read_head or read_response  # where the body plays no part
        self.answers = Answers(read_response)
        self.requests: dict[tuple[str, int], Request] = {}
        self._parsed: dict[tuple[str, int], Parsed] = {}
        self.items: dict[tuple[str, int], Item] = {}
        self.sites: dict[str, list[Item]] = defaultdict(list)
        self.rules = _rules()
        self._collect()
        self.keyed: set[str] = set()  # sites that know their clients by a cookie
        self.begins: set[tuple[str, int]] = set()  # captures whose answer gave a client such a cookie
        self.brought: set[tuple[str, int]] = set()  # captures whose request had one that no answer gave
        for site in sorted(self.sites):
            self._lives(site)
        self.issued = self._issued()
        self._values: dict[tuple[str, int], list[str]] = {}
        self._group()
        self._label()
        if len(self.requests) > MANY:
            self.requests.clear()  # read again where they are wanted
            self._parsed.clear()

    def asked(self, item: Item) -> Request:
        """The request of an exchange, as sent."""
        place = item.capture.place
        found = self.requests.get(place)
        if found is None:
            found = self.requests[place] = self.read_request(item.capture)
        return found

    def request(self, item: Item) -> tuple[Request, Parsed]:
        """The request of an exchange, as sent and taken apart."""
        request = self.asked(item)
        place = item.capture.place
        found = self._parsed.get(place)
        if found is None:
            found = self._parsed[place] = parse(request)
        return request, found

    def _collect(self) -> None:
        differing: dict[str, set[str]] = defaultdict(set)
        for capture in self.captures:
            differing[capture.key].add(capture.digest)
        ranks = self._ranks()
        for capture in self.captures:
            static = (
                is_static(capture.method, capture.mime, capture.status) and len(differing[capture.key]) == 1
            )
            begin, end = (capture.begin, capture.end) if capture.session else ranks[capture.place]
            item = Item(capture, capture.session, begin, end, capture.key, static=static)
            self.items[capture.place] = item
            self.sites[site_of(capture.url)].append(item)
            if not static:
                item.choices = choices_of(self.asked(item).headers)

    def _ranks(self) -> dict[tuple[str, int], tuple[int, int]]:
        """An order for captures of other tools, which have no events: by time, then by place."""
        foreign = sorted((c for c in self.captures if not c.session), key=lambda c: (c.timestamp, c.place))
        return {c.place: (2 * n, 2 * n + 1) for n, c in enumerate(foreign)}

    def _lives(self, site: str) -> None:
        """Parts each session's line where its client came without the cookie by which the server had known it.

        A recorder's session may hold several lives of a client (a browser whose cookies were cleared).
        """
        dynamic = [i for i in self.sites[site] if not i.static]
        known = {i.capture.place: clients_of(self.asked(i).headers) for i in dynamic}
        if not any(known.values()):
            return
        by_line: dict[str, list[Item]] = defaultdict(list)
        for item in dynamic:
            by_line[item.line].append(item)
        keyed = True
        for line in by_line.values():
            line.sort(key=lambda i: (i.begin, i.end, i.capture.place))
            life_of: dict[str, int] = {}
            begun: list[tuple[int, int]] = []  # end of the answer that began it, number
            names: dict[str, int] = {}  # of cookies for logins that no answer gave: among how many
            for number, item in enumerate(line):
                mine, capture = known[item.capture.place], item.capture
                for name in logins_of(self.request(item)[0].headers) if mine else ():
                    since = names.get(name, 0)
                    if since >= 0:
                        given_by = any(self._gives(one, name) for one in line[since:number])
                        names[name] = -1 if given_by else number
                        if not given_by:
                            self.brought.add(capture.place)
                unsafe = capture.method not in SAFE_METHODS
                given: list[str] = []
                if not mine or unsafe:
                    given = _given(self.read_head(capture))
                if mine:
                    latest = next((n for end, n in reversed(begun) if end <= item.begin), -1)
                    life = next((life_of[v] for v in mine if v in life_of), latest)
                elif given:
                    life = number
                    begun.append((item.end, number))
                    self.begins.add(capture.place)
                else:
                    life = -2 - number  # sent without credentials: the server saw a stranger
                    if unsafe and capture.status < 400 and not irrelevant(self.asked(item)):
                        keyed = keyed and sets_session(self.read_head(capture))
                for value in given:
                    life_of[value] = life
                item.line = f"{item.line}\n{life}"
        if keyed:
            self.keyed.add(site)

    def _gives(self, item: Item, cookie: str) -> bool:
        """Whether an answer sets a cookie; those to clients that have it are not looked at, but for changes."""
        request = self.request(item)[0]
        if item.capture.method in SAFE_METHODS and any(n == cookie for n, _ in cookies_of(request.headers)):
            return False
        fields = self.read_head(item.capture).headers
        return any(n.lower() == "set-cookie" and v.partition("=")[0].strip() == cookie for n, v in fields)

    def _issued(self) -> dict[tuple[str, int], frozenset[str]]:
        lines: dict[tuple[str, str], list[Item]] = defaultdict(list)
        for site, items in self.sites.items():
            for item in items:
                lines[site, item.line].append(item)
        ordered = []
        for key in sorted(lines):
            line = sorted(lines[key], key=lambda i: (i.begin, i.end, i.capture.place))
            ordered.append(
                [(i.capture, None if i.static or self._tokenless(i) else self.request(i)[1]) for i in line]
            )
        return find_issued(ordered, self.read_response)

    def _tokenless(self, item: Item) -> bool:
        """Whether a request can hold no value that the site issued, judged by its text alone."""
        request = self.asked(item)
        plain = (
            PLAIN_URL.fullmatch(request.url)
            if request.method in ("GET", "HEAD") and not request.body
            else None
        )
        return plain is not None and all(
            len(pair.partition("=")[2]) < SHORTEST for pair in (plain[1] or "").split("&")
        )

    def _group(self) -> None:
        """What each exchange asks and writes, without what can't decide the answer."""
        for items in self.sites.values():
            for item in items:
                if item.static:
                    continue
                issued = self.issued.get(item.capture.place, frozenset())
                told = item.capture.key  # the digest of the request as it is
                left = None
                if issued or not self._irreducible(self.asked(item)):
                    request, parsed = self.request(item)
                    left = parsed if _nothing_to_reduce(parsed) else reduced(request, self.rules, issued)
                    told = digest(left)
                vary = vary_of(item.capture)
                item.key = told if not vary else short(told, repr(vary)) + told
                self._touch(item, left, told)

    def _irreducible(self, request: Request) -> bool:
        """Whether no rule changes a request, judged by its text alone: True only for the plainest, which most are."""
        plain = (
            PLAIN_URL.fullmatch(request.url)
            if request.method in ("GET", "HEAD") and not request.body
            else None
        )
        if plain is None:
            return False
        return plain[1] is None or all(map(_unchanged, plain[1][1:].split("&")))

    def _touch(self, item: Item, left: Parsed | None, told: str) -> None:
        capture = item.capture
        safe = capture.method in SAFE_METHODS and (item.static or not overridden(self.asked(item)))
        if safe and not 300 <= capture.status < 400:
            return
        request, parsed = self.request(item)
        if irrelevant(request):
            return
        response = self.read_response(capture)
        if response.status >= 400:
            return
        touch = touch_of(request, parsed, response)
        if safe and touch.prior == "read":
            return
        item.touch = touch
        item.slot = short(site_of(capture.url), slot_of(parsed if left is None else left))
        item.value = told[:8]
        item.shown = _shown_by(request.url, response)
        item.plain = 300 <= response.status < 400 or (response.status == 204 and not response.body)

    def _label(self) -> None:
        groups: dict[str, list[Item]] = defaultdict(list)
        for items in self.sites.values():
            for item in items:
                if not item.static:
                    groups[item.key].append(item)
        for members in groups.values():
            if any(m.touch is not None for m in members):
                for member in members:
                    member.label = said(self.read_response(member.capture), self.sent_values(member.capture))
                continue
            labels = self.answers.classes([m.capture for m in members], self.sent_values)
            for member, label in zip(members, labels, strict=True):
                member.label = label

    def sent_values(self, capture: Capture) -> list[str]:
        """The issued values that the session of a capture sent: what its answers show of them means nothing."""
        if not self._values and self.issued:
            for place, names in self.issued.items():
                item = self.items[place]
                key = (item.line, 0)
                values = self._values.setdefault(key, [])
                for where, name, value in named_values(self.request(item)[1]):
                    if f"{where}:{name}" in names and value not in values:
                        values.append(value)
            for values in self._values.values():
                values.sort(key=lambda v: (-len(v), v))
        return self._values.get((capture.session, 0), [])


@lru_cache(maxsize=1)
def _rules() -> tuple[Rule, ...]:
    return tuple(r for r in builtin().rules if r.kind != "redacted")


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
    if location and response.status < 400:
        with contextlib.suppress(ValueError):  # it leads nowhere
            paths.add(path_name(ada_url.join_url(url, location)))
    return frozenset(paths)


def _given(response: Response) -> list[str]:
    set_cookies = tuple(
        ("cookie", v.partition(";")[0]) for n, v in response.headers if n.lower() == "set-cookie"
    )
    return clients_of(set_cookies)
