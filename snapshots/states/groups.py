"""The captures of one path, whatever their query, method and body: where rules find what they may join."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.identity.keys import digest, request_key, split_url
from stillweb.snapshots.identity.rules import Issued, Refused, Rule, RuleSet, builtin, path_of, reduced
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import path_prefix
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.answers import Answers, by_head
from stillweb.snapshots.states.conditions import UNSET, Conditions, read, short
from stillweb.snapshots.states.evidence import vary_of
from stillweb.snapshots.states.slots import SAFE_METHODS, slot_of

ReadRequest = Callable[[Capture], Request]
ReadResponse = Callable[[Capture], Response]


# By how many seconds a capture's clock may be early: jQuery's is when its page was loaded, a time without a name may be a version's.
CLOCKS = {"cache-buster": 3600.0, "bare-time": 5.0}
_MOMENT = re.compile(r"(?<=[?&=])[12]\d{12}(?=&|$)")
_FRACTION = re.compile(r"(?<=[?&=])0?\.\d{12,20}(?=&|$)")


def drawn_anew(capture: Capture, early: float) -> bool:
    """Whether a query names the moment in milliseconds at which it was asked for, or `early` seconds before; or a random fraction."""
    if _FRACTION.search(capture.url):
        return True
    asked = seconds_of(capture.timestamp)
    return asked is not None and any(
        -early < int(one) / 1000 - asked < 10 for one in _MOMENT.findall(capture.url)
    )


def group_prefix(url: str) -> str:
    """The index key that all captures of a path have, or begin with: without query and `;` parameters."""
    return path_prefix(split_url(url)[0].partition(";")[0])


class Group:
    """The captures of a path, and what rules make of them; all of it found out when first asked."""

    def __init__(
        self,
        captures: Iterable[Capture],
        rules: RuleSet,
        read_request: ReadRequest,
        read_response: ReadResponse,
    ) -> None:
        self.captures = tuple(captures)
        self._rules = rules
        self._read_request = read_request
        self._read_response = read_response
        self.by_key: dict[str, list[Capture]] = defaultdict(list)
        for capture in self.captures:
            self.by_key[capture.key].append(capture)
        self._requests: dict[tuple[str, int], Request] = {}
        self._issued: dict[str, Issued] = {}
        self._slots: dict[str, dict[str, list[Capture]]] = {}
        self._joined: dict[tuple[str, bool], dict[str, list[Capture]]] = {}
        self._on: dict[str, tuple[Rule, ...]] = {}
        self._changing: dict[str, frozenset[str]] = {}

    def request(self, capture: Capture) -> Request:
        """The request of a capture of this path; a GET without body needs no reading."""
        found = self._requests.get(capture.place)
        if found is None:
            found = Request(capture.method, capture.url)
            if capture.method not in ("GET", "HEAD") or request_key(found).canonical != capture.key:
                found = self._read_request(capture)  # it has a body, or a field that replaces its method
            self._requests[capture.place] = found
        return found

    def issued(self, method: str) -> Issued:
        """The places of values that the site issues to this path."""
        found = self._issued.get(method)
        if found is None:
            states = {c.state for c in self.captures if c.method == method and "$" in c.state}
            found = self._issued[method] = frozenset().union(*(read(state).issued for state in states))
        return found

    def rules(self, method: str) -> tuple[Rule, ...]:
        """The rules in force: those that would join captures of different answers are not."""
        found = self._on.get(method)
        if found is None:
            captures = [c for c in self.captures if c.method == method]
            off = {r.rule for r in refused(captures, self._rules.rules, self.request, self._read_response)}
            paths = {path_of(method, split_url(c.url)[0]) for c in captures}
            off |= {r.rule for r in self._rules.refused if r.path in paths}
            found = tuple(r for r in self._rules.rules if r.id not in off)
            self._on[method] = found
        return found

    def changing(self, method: str) -> frozenset[str]:
        """The rules in force that join different answers all the same: what they leave out is when each was asked for."""
        found = self._changing.get(method)
        if found is None:
            captures = [c for c in self.captures if c.method == method]
            on = [r for r in self.rules(method) if r.id in CLOCKS]
            all_told = refused(captures, on, self.request, self._read_response, timely=False)
            found = self._changing[method] = frozenset(r.rule for r in all_told)
        return found

    def slots(self, method: str) -> dict[str, list[Capture]]:
        """The captures by what they write to."""
        found = self._slots.get(method)
        if found is None:
            found = self._slots[method] = defaultdict(list)
            rules, issued = self.rules(method), self.issued(method)
            for capture in self.captures:
                if capture.method == method:
                    left = reduced(self.request(capture), rules, issued)
                    found[short(site_of(capture.url), slot_of(left))].append(capture)
        return found

    def joined(self, request: Request) -> list[Capture]:
        """The captures that all rules in force together make the same as a request."""
        return self._like(request, self.rules(request.method), False)

    def twins(self, request: Request) -> list[Capture]:
        """Those that are the same but for their secrets, whether the rule for these is in force or not."""
        rules = self.rules(request.method)
        if any(rule.kind == "redacted" for rule in rules):
            return self.joined(request)
        return self._like(request, (*rules, *(r for r in builtin().rules if r.kind == "redacted")), True)

    def indifferent(self, rule: str, chosen: Capture, joined: Iterable[Capture]) -> bool:
        """Whether requests that only a rule joins were recorded in the state of a capture: then they said the same."""
        method, state = chosen.method, chosen.state.partition(">")[0]
        others, issued = [r for r in self.rules(method) if r.id != rule], self.issued(method)
        alike = [c for c in joined if c.state.partition(">")[0] == state]
        return len({digest(reduced(self.request(c), others, issued, stored=True)) for c in alike}) > 1

    def _like(self, request: Request, rules: tuple[Rule, ...], masked: bool) -> list[Capture]:
        method = request.method
        issued = self.issued(method)
        if (method, masked) not in self._joined:
            table: dict[str, list[Capture]] = defaultdict(list)
            for capture in self.captures:
                if capture.method == method:
                    left = reduced(self.request(capture), rules, issued, stored=True)
                    table[digest(left)].append(capture)
            self._joined[method, masked] = table
        return self._joined[method, masked].get(digest(reduced(request, rules, issued)), [])


def exclusive(one: Capture, other: Capture) -> bool:
    """Whether two captures of the same request can't both be answers: their states or Vary fields differ."""
    if dict(vary_of(one)) != dict(vary_of(other)):
        return True
    first, second = read(one.state), read(other.state)
    if dict(first.cookies) != dict(second.cookies):
        return True
    if first.any or second.any:
        return False
    own = first.effect.slot if first.effect and one.method in SAFE_METHODS else ""
    for slot in first.named | second.named:
        if slot == own:
            continue  # that it was asked before is no reason for a redirect to lead elsewhere: what differs is
        mine, theirs = _allowed(first, slot), _allowed(second, slot)
        if mine is not None and theirs is not None and not mine & theirs:
            return True
    return False


def _allowed(conditions: Conditions, slot: str) -> frozenset[str] | None:
    """What a slot may hold; None for anything."""
    for held, value in conditions.held:
        if held == slot:
            return frozenset((value,))
    for held, values in conditions.one_of:
        if held == slot:
            return values
    return None if slot in conditions.named else frozenset((UNSET,))


def refused(
    captures: Iterable[Capture],
    rules: Iterable[Rule],
    read_request: ReadRequest,
    read_response: ReadResponse,
    *,
    timely: bool = True,
) -> list[Refused]:
    """The rules that would join captures of one path and method that answered differently in the same state.

    What a rule joins in different states or for different values of a Vary field, those keep apart; but not two
    secrets that were replaced, which say nothing of a third. If `timely`, a clock's rule is not refused for what names
    the time at which it was asked for: who asks how far something is gets other answers, whatever keeps caches from answering.
    """
    captures = sorted(captures, key=lambda c: (c.timestamp, c.place))
    if len({c.key for c in captures}) < 2:
        return []
    if len({(c.digest, c.status) for c in captures}) < 2 and not any(map(by_head, captures)):
        return []
    answers = Answers(read_response)
    found = []
    for rule in (rule for rule in rules if not rule.certain):
        joined: dict[str, list[Capture]] = defaultdict(list)
        for capture in captures:
            left = reduced(read_request(capture), (rule,), read(capture.state).issued, stored=True)
            joined[digest(left)].append(capture)
        for members in joined.values():
            if timely and rule.id in CLOCKS and all(drawn_anew(one, CLOCKS[rule.id]) for one in members):
                continue
            pair = _told_apart(members, answers, rule.kind == "redacted")
            if pair is not None:
                path = path_of(pair[0].method, split_url(pair[0].url)[0])
                found.append(Refused(rule.id, path, (pair[0].url, pair[1].url)))
                break
    return found


def _told_apart(members: list[Capture], answers: Answers, always: bool) -> tuple[Capture, Capture] | None:
    """Two captures that a rule joins, of different requests and with different answers, and nothing else apart."""
    if len({m.key for m in members}) < 2:
        return None
    labels = answers.classes(members)
    if len(set(labels)) < 2:
        return None
    by_key: dict[str, set[str]] = defaultdict(set)
    kinds: dict[tuple[str, str, str, str], Capture] = {}  # one of each is enough
    for member, label in zip(members, labels, strict=True):
        by_key[member.key].add(label)
        kinds.setdefault((member.key, label, member.state.partition(">")[0], repr(vary_of(member))), member)
    items = list(kinds.items())
    for number, ((key, label, _, _), one) in enumerate(items):
        for (other_key, other_label, _, _), other in items[number + 1 :]:
            if key == other_key or label == other_label or by_key[key] == by_key[other_key]:
                continue
            if always or not exclusive(one, other):
                return one, other
    return None


def check_rules(
    captures: Iterable[Capture],
    read_request: ReadRequest,
    read_response: ReadResponse,
    rules: RuleSet,
) -> RuleSet:
    """The rules with all that the captures of a snapshot speak against: to be stored, and told, at sealing.

    `captures` in the order of their index keys, so that one host is looked at after the other.
    """
    found: list[tuple[tuple[str, str], Refused]] = []

    def look(paths: dict[tuple[str, str], list[Capture]]) -> None:
        for key in sorted(paths):
            found.extend((key, one) for one in refused(paths[key], rules.rules, read_request, read_response))

    odd: dict[tuple[str, str], list[Capture]] = defaultdict(list)  # of keys without a host
    for host, members in groupby(captures, key=lambda c: c.urlkey.partition(")")[0]):
        paths: dict[tuple[str, str], list[Capture]] = odd if ":/" in host else defaultdict(list)
        for capture in members:
            paths[capture.method, group_prefix(capture.url)].append(capture)
        if paths is not odd:
            look(paths)
    look(odd)
    off = list(rules.refused)
    for _, one in sorted(found, key=itemgetter(0)):
        if all((one.rule, one.path) != (o.rule, o.path) for o in off):
            off.append(one)
    return RuleSet(rules.rules, tuple(off))
