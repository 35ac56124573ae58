"""Gives each capture the state it was recorded in: when it is an answer, and what follows from it.

A happened before B in a session if A.end < B.begin. What the exchanges before a capture wrote is its state; how
they write is learnt from the recording itself (`stillweb.snapshots.states.learning`). The result is one line of text for each
capture (`stillweb.snapshots.states.conditions`), so that an index is all that replay needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from stillweb.snapshots.capture import Capture, Stated, with_state
from stillweb.snapshots.http.bodies import JSON
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.states.aside import Aside
from stillweb.snapshots.states.coarsening import MANY, Coarsener, Listed, by_values, free_slots
from stillweb.snapshots.states.conditions import (
    ANY_WRITE,
    ONCE,
    UNSET,
    Conditions,
    Effect,
    Sequence,
    short,
    write,
)
from stillweb.snapshots.states.evidence import Evidence, ReadCookies, ReadRequest, ReadResponse
from stillweb.snapshots.states.learning import EACH, Item, Learner, State, clean
from stillweb.snapshots.states.parting import Parting
from stillweb.snapshots.states.pasts import Pasts
from stillweb.snapshots.states.slots import APPEND, cookies_of, is_choice
from stillweb.snapshots.states.suspicion import Suspicion
from stillweb.snapshots.states.under_way import UnderWay

NOTHING = "-"  # begins the order of answers anew: it goes on whatever is written


def assign_states(
    captures: Iterable[Capture],
    read_request: ReadRequest,
    read_response: ReadResponse,
) -> list[Capture]:
    """The captures, in the same order, with `vary`, `cookies`, `state` and `changes` filled in.

    Needs `key`, `session`, `begin` and `end`. Reads the requests of all that is not plainly a static file, and
    the answers where one request was answered in several ways or may have changed something.
    """
    captures = list(captures)
    by_site: dict[str, list[Capture]] = defaultdict(list)
    for capture in captures:
        by_site[site_of(capture.url)].append(capture)
    found: dict[tuple[str, int], Capture] = {}
    for site in sorted(by_site):  # one after the other, so that not all of them have to be in memory
        for capture, stated in site_states(by_site[site], read_request, read_response):
            found[capture.place] = with_state(capture, stated)
    return [found[capture.place] for capture in captures]


def site_states(
    captures: Iterable[Capture],
    read_request: ReadRequest,
    read_response: ReadResponse,
    read_cookies: ReadCookies | None = None,
) -> Iterator[tuple[Capture, Stated]]:
    """As `assign_states` of captures of one site: each with what is to be filled in, in no order of theirs.

    By `read_cookies`, where that is given, answers of which nothing else matters need not be read.
    """
    evidence = Evidence(captures, read_request, read_response, read_cookies)
    for item, conditions, vary in _Site(evidence).results():
        changes = conditions.effect is not None
        yield item.capture, (vary, item.sender.chosen, write(conditions), changes)


class _Site:
    """The captures of one site on their way to their conditions."""

    def __init__(self, evidence: Evidence) -> None:
        items = list(evidence.items.values())
        self.keyed = evidence.keyed
        self.evidence = evidence
        self.items = items
        self.parting = Parting(evidence, items)
        self.recording = self.parting.recording
        learner = Learner(self.recording, self._chosen_cookies())
        self.model = learner.learn()
        self.states = self.recording.states(self.model)
        # Archives of other tools don't say whose requests were whose, so no change in them is sure to count.
        foreign = all(not item.capture.session for item in items)
        self.doubted = set(self.model.modes) if foreign and not self.recording.telling else set()
        self.orders = {
            key: self._sequence(self.recording.groups[key]) for key in sorted(self.recording.volatile)
        }
        coarsener = Coarsener(self.recording, self.model, self._pinned())
        self.model = coarsener.coarsen()
        self.replaced = coarsener.replaced()
        self.proven = coarsener.repeated(self.replaced)
        self.commuting = coarsener.commuting()
        self.suspicion = Suspicion(self.recording, set(self.model.modes))
        self.parts = self._parts()
        self.states = self.recording.states(self.model)
        self.aside = Aside(self.recording, self.model, self._pinned())
        self.under_way = UnderWay(self.recording, self.model, self.states)
        begun = {key for key, (since, _) in self.orders.items() if since not in (ANY_WRITE, NOTHING)}
        self.pasts = Pasts(self.recording, self.model, self.states, self._effect, begun)
        for key in (self.pasts.keys | self.pasts.alone) & self.orders.keys():
            self.orders[key] = self._any_order(self.recording.groups[key])

    def results(self) -> Iterable[tuple[Item, Conditions, tuple[tuple[str, str], ...]]]:
        """Each capture with its conditions and the request fields that count."""
        for key in sorted(self.recording.groups):
            members = self.recording.groups[key]
            for item, conditions in zip(members, self._conditions(key, members), strict=True):
                yield item, conditions, self.parting.vary.get(item.place, item.capture.vary)
        for item in self.items:
            if item.static:
                issued = self.evidence.issued.get(item.place, frozenset())
                yield item, Conditions(any=True, issued=issued), item.capture.vary

    # -- cookies

    def _chosen_cookies(self) -> set[str]:
        """Cookies that are surely choices: set by an answer to a request that chose (a form, a link with it)."""
        names = {name for item in self.items for name in item.choices}
        if not names:
            return set()
        found: set[str] = set()
        for item in self.items:
            if item.static or not self._may_set(item):
                continue
            for name, value in self._set_cookies(item):
                if name in names and (item.capture.method != "GET" or f"={value}" in item.capture.url):
                    found.add(name)
        return found

    def _set_cookies(self, item: Item) -> list[tuple[str, str]]:
        found = []
        for given in self.evidence.cookies_given(item.capture):
            found += cookies_of((("cookie", given.partition(";")[0]),))
        return [(name, value) for name, value in found if is_choice(name, value)]

    # -- conditions

    def _conditions(self, key: str, members: list[Item]) -> list[Conditions]:
        states = [self._state(m) for m in members]
        dropped = self._dropped(key, members, states)
        sequences: list[Sequence | None] = [None] * len(members)
        needed: Listed = {}
        if key in self.recording.volatile:
            since, places = self.orders[key]
            name = short(key)
            # of those that were under way at once none begins the order anew, nor does what was sent beside them
            at_once = since == ANY_WRITE and any(m.slot in m.during for m in members)
            sequences = [Sequence(name, place, UNSET if at_once else since) for place in places]
            if since != ANY_WRITE:  # nothing else that was written matters to these answers
                needed = _always({s: v for s, v in state if s != since} for state in states)
                states = [tuple(item for item in state if item[0] == since) for state in states]
                seen = {s: frozenset(self._held_before(s, members)) for s in self.model.modes if s != since}
                # whether it goes on after what was never written before its answers, or always the same, was not seen
                needed |= {s: values for s, values in seen.items() if len(values) == 1}
                dropped = {s: frozenset() for s in self.model.modes if s not in (since, *needed)}
        ordered = key in self.recording.volatile and since != ANY_WRITE
        indifferent = (
            {n for m in members for n in m.choices} if ordered else self._indifferent_cookies(members)
        )
        alike = len({m.label for m in members}) == 1
        decided = self.model.cookies | indifferent
        parted = by_values(dropped)
        chosen = tuple(
            [
                (short(slot[2:]), frozenset(short(v) if v != UNSET else UNSET for v in values))
                for slot, values in sorted(dropped.items())
                if slot.startswith("c.") and 0 < len(values) < MANY
            ]
        )
        held_at = [[(s, v) for s, v in state if s not in dropped] for state in states]
        beside = self.pasts.beside(key, [tuple(sorted(held)) for held in held_at])
        held_before: dict[str, frozenset[str]] = {}
        aside = self.aside.of(members[0])
        writing = self.model.modes.keys() - dropped.keys() - aside
        out = []
        for item, state, sequence, asked in zip(members, states, sequences, beside, strict=True):
            effect = self._effect(item)
            one_of, mostly, free = (values.copy() for values in parted)
            beside_writing = not clean(item, self.model)
            # it shows nothing of what makes no difference, and was answered all the same with what was held then
            untested = self.under_way.untested(item, one_of) if beside_writing else {}
            one_of |= untested
            mostly |= needed
            held = [(s, v) for s, v in self._as_sent(item, state) if s not in dropped]
            cookies = [(s[2:], v) for s, v in state if s not in dropped and s.startswith("c.")]
            own = effect.slot if effect else ""
            if effect and item.plain and effect.op in "=~-!" and alike:
                # a bare redirect tells nothing of what its own slot held before
                held = [(s, v) for s, v in held if s != own]
                for listed in (one_of, mostly, free):
                    listed.pop(own, None)
                if effect.op in "=-!":
                    free[own] = frozenset()
                else:
                    if own not in held_before:
                        held_before[own] = self._held_before(own, members)
                    mostly[own] = held_before[own]
            for slot in item.during & set(self.model.modes) - set(dropped) - mostly.keys() - free.keys():
                one_of[slot] = self.under_way.held(item, slot)
                held = [(s, v) for s, v in held if s != slot]
            for slot in aside - mostly.keys() - free.keys():
                mostly[slot] = one_of.pop(slot, frozenset()) or self.under_way.held(item, slot)
                held = [(s, v) for s, v in held if s != slot]
            for slot in self.doubted:
                if any(s == slot for s, _ in held):
                    mostly[slot] = frozenset({v for s, v in held if s == slot})
                    held = [(s, v) for s, v in held if s != slot]
            for slot, values in self.suspicion.around(item).items():
                mostly.setdefault(slot, values)
            kept = [(n, v) for name, n, v in item.sender.hashes if name not in decided]
            came = {n for n, v in kept if (n, v) in self.evidence.carried.get(item.capture.session, ())}
            if sequence is None and item.slot in self.suspicion.once:
                sequence = Sequence(short(key), 0, ONCE)
            named = {s for s, _ in held} | set(one_of)
            out.append(
                Conditions(
                    held=tuple(held),
                    ordered=len(held) > 1
                    and any(
                        frozenset((a, b)) not in self.commuting for (a, _), (b, _) in combinations(held, 2)
                    ),
                    one_of=tuple(sorted(one_of.items())),
                    mostly=tuple(sorted([(s, v) for s, v in mostly.items() if s not in named])),
                    free=frozenset(free),
                    cookies=tuple(
                        [
                            (short(name), short(value) if name in item.choices else UNSET)
                            for name, value in cookies
                        ]
                    ),
                    not_other=tuple([(n, v) for n, v in kept if n not in came]),
                    carried=tuple([(n, v) for n, v in kept if n in came]),
                    histories=self._histories(item, held),
                    chosen=chosen,
                    sets=self._sets(item),
                    sequence=sequence,
                    past=self.pasts.of(item),
                    asked=asked,
                    issued=self.evidence.issued.get(item.place, frozenset()),
                    during=beside_writing and (bool(untested) or not writing.isdisjoint(item.during)),
                    keyed=self.keyed,
                    begins=item.place in self.evidence.begins,
                    brought=self.parting.brought.get(item.place),
                    literal=item.place in self.parting.literal,
                    effect=effect,
                )
            )
        return out

    def _state(self, item: Item) -> State:
        state = self.states[item.line][item.before]
        return self.model.brought(item) + state if self.model.cookies else state

    def _sets(self, item: Item) -> frozenset[str]:
        """The deciding cookies that an answer sets, as names of 8 hex digits."""
        if not self.model.cookies or not self._may_set(item):
            return frozenset()
        return frozenset(short(n) for n, _ in self._set_cookies(item) if n in self.model.cookies)

    @staticmethod
    def _may_set(item: Item) -> bool:
        return item.capture.method != "GET" or "?" in item.capture.url or 300 <= item.capture.status < 400

    def _indifferent_cookies(self, members: list[Item]) -> set[str]:
        """The cookies with different values of which the answers were the same."""
        if len({m.label for m in members}) > 1:
            return set()
        names = {n for m in members for n in m.choices}
        return {n for n in names if len({m.choices.get(n) for m in members} - {None}) > 1}

    def _histories(self, item: Item, held: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """For slots that are only presumed to hold the last value: a hash of all that was written there."""
        modes, sure = self.model.modes, self.replaced
        presumed = [s for s, _ in held if modes[s] != APPEND and s not in sure]
        written = self.recording.written(item) if presumed else {}
        return tuple([(s, written[s][1]) for s in presumed if s in written])

    def _as_sent(self, item: Item, state: State) -> list[tuple[str, str]]:
        """What slots held, in the order in which their writing was sent: how quick its answer was is chance."""
        sent = {e.slot: e.begin for e in self._before(item) if (e.slot, e.label) not in self.model.void}
        return sorted([(s, v) for s, v in state if not s.startswith("c.")], key=lambda one: sent[one[0]])

    def _held_before(self, slot: str, members: list[Item]) -> frozenset[str]:
        return frozenset(dict(self.states[m.line][m.before]).get(slot, UNSET) for m in members)

    def _dropped(self, key: str, members: list[Item], states: list[State]) -> Listed:
        """The slots that make no difference to these answers, with the values seen."""
        if key in self.recording.volatile:
            return {}
        if len(members) < 2:
            return {}
        solid = {(m.label, state) for m, state in zip(members, states, strict=True) if clean(m, self.model)}
        return free_slots([(label, dict(state)) for label, state in solid], self.recording.near(key))

    def _pinned(self) -> set[str]:
        """The slots that answers which change by themselves may hang on."""
        found: set[str] = set()
        for key, (since, _) in self.orders.items():
            if since == ANY_WRITE:
                members = self.recording.groups[key]
                found |= {e.slot for m in members for e in self._before(m)} & set(self.model.modes)
            else:
                found.add(since)
        return found

    def _effect(self, item: Item) -> Effect | None:
        slot = item.slot
        if item.touch is None or (slot, item.label) in self.model.void:
            return None
        mode = self.model.modes.get(slot)
        if mode is None:
            own = slot in self.suspicion.own
            return Effect(slot, "~", item.value, True, own) if own or slot in self.suspicion.slots else None
        if slot in self.model.forgets:
            return Effect(slot, "!")
        if mode == APPEND or (mode == EACH and item.touch.op == APPEND):
            return Effect(slot, "+", item.value, weak=slot in self.doubted)
        sure = item.capture.method in ("PUT", "DELETE") and slot not in self.parts
        op = "=" if sure or (slot, item.value) in self.proven else "-" if slot in self.replaced else "~"
        return Effect(slot, op, item.value, weak=slot in self.doubted)

    def _parts(self) -> set[str]:
        """The slots to which members of other names were put each time: such a server keeps those that it isn't told."""
        names: dict[str, set[frozenset[str]]] = defaultdict(set)
        for event in (e for events in self.recording.events.values() for e in events):
            if event.capture.method == "PUT":
                body = self.evidence.request(event)[1].body
                if body.kind == JSON and isinstance(body.value, dict):
                    names[event.slot].add(frozenset(body.value))
        return {slot for slot, seen in names.items() if len(seen) > 1}

    def _sequence(self, members: list[Item]) -> tuple[str, list[int]]:
        """Where each of some answers that change by themselves is in their order, and what begins it anew.

        Best is a slot (or none, "-") since whose last writing the n-th answer was always the same, in at least
        two runs. Otherwise the order begins anew with every change, and only the same state has the same order.
        """
        slots = sorted(set(self.model.modes) & {e.slot for m in members for e in self._before(m)})
        if not slots and self.recording.drawn(members[0].key):
            return NOTHING, _counted([self._run(m, NOTHING) for m in members])
        near = self.recording.near(members[0].key)
        for since in [*sorted(slots, key=lambda s: s not in near), NOTHING]:
            runs = [self._run(m, since) for m in members]
            places = _counted(runs)
            labels: dict[tuple[str, int], set[str]] = defaultdict(set)
            lines: dict[tuple[str, int], set[object]] = defaultdict(set)
            for member, run, place in zip(members, runs, places, strict=True):
                labels[run[2], place].add(member.label)
                lines[run[2], place].add(run)
            if (
                all(len(found) == 1 for found in labels.values())
                and sum(len(r) > 1 for r in lines.values()) >= 2
            ):
                return since, places
        return self._any_order(members)

    def _any_order(self, members: list[Item]) -> tuple[str, list[int]]:
        return ANY_WRITE, _counted([self._run(m, ANY_WRITE) for m in members])

    def _before(self, item: Item) -> list[Item]:
        return self.recording.events[item.line][: item.before]

    def _run(self, item: Item, since: str) -> tuple[str, int, str]:
        """The line, the last event that begins a run, and what it wrote."""
        for number in range(item.before - 1, -1, -1):
            event = self.recording.events[item.line][number]
            begins = event.slot in self.model.modes and event.slot not in self.doubted
            if event.slot == since or (since == ANY_WRITE and begins):
                return item.line, number, event.value if since != ANY_WRITE else ""
        return item.line, -1, UNSET


def _always(states: Iterable[dict[str, str]]) -> Listed:
    """The slots that held something whenever an order went on, which nobody saw begin without: a job is asked for once made."""
    held = list(states)
    return {
        slot: frozenset(state[slot] for state in held)
        for slot in set.intersection(*map(set, held))
        if not slot.startswith("c.")
    }


def _counted(runs: list[tuple[str, int, str]]) -> list[int]:
    counts: dict[tuple[str, int, str], int] = defaultdict(int)
    out = []
    for run in runs:
        out.append(counts[run])
        counts[run] += 1
    return out
