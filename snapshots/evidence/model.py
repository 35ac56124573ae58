"""The model: hypotheses of what decides an answer, weighed by what was recorded.

A hypothesis (S, R) says: the answer to a request is a function of the state `R(events of the session whose types are in S)`. Its posterior is
its prior times the probability of the recorded answers, so a small hypothesis that explains them beats a large one, and one that they
contradict dies. The chance of an answer is the sum of the posteriors that predict it.
"""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product, repeat
from typing import NamedTuple
from weakref import WeakKeyDictionary

from stillweb.snapshots.cache import cached
from stillweb.snapshots.evidence import priors
from stillweb.snapshots.evidence.events import REFUSED, SAY, Event, History, between
from stillweb.snapshots.evidence.reductions import BY_ANSWERS, REDUCERS, Reducer
from stillweb.snapshots.identity.keys import mix
from stillweb.snapshots.secrets.redact import PREFIX

# A type, or a part of the request (its name begins with PART); and whether only events that share an id with the request count
Scoped = tuple[str, bool]
Parts = Mapping[str, str]
NO_PARTS: Parts = {}
PART = "~"
BLOCK = "block"  # the kind of a block of pages, which is learnt like a request
UNLIKELY = 0.005  # the probability of what explains a block below which it is left out
ADDRESS = "~address"  # of a block, the part that tells which page shows it
# Stand-ins for a part's value that was never recorded: ANEW for parts that clients draw anew, OTHER for other fields of a client
ANEW, OTHER = "\0anew", "\0other"
Chosen = tuple[Scoped, ...]  # sorted
EMPTY: Chosen = ()
KEPT = 1 << 15  # types and parts of requests for which it is remembered what they mean for the answers
CARRIED = 1 << 16  # things that folds of live histories keep, some 300 bytes each
FOLDED = 1 << 18  # events of folded histories, some 100 bytes each, and states of observations that are kept
COMPARED = 64  # events of a type, the last ones, that are compared with recorded ones
SAMPLED = 16  # answers that tell which words are usual
# parameters whose values name things; numbers of a path are called #0 …
_NAMING = re.compile(r"#\d+|.*(?:id|pk)", re.IGNORECASE)
_TOLD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Observation:
    """One recorded answer to a request: after which events of which history, and what the session was answered the last time."""

    history: History
    place: int
    answer: int
    before: int | None
    capture: int  # its number in the order of the recording
    parts: Parts
    away: bool  # whether the answer sent its client away
    session: str

    def mark(self, t: str) -> int | str:
        """Return what a type or part was before this answer; equal where it is the same."""
        return self.parts.get(t, "") if t.startswith(PART) else self.history.mark(t, self.place)

    def follows(self, past: tuple[History, int]) -> bool:
        """Return True if what had happened before this answer is what happened in a past."""
        history, place = past
        return self.place == place and self.history.marks[place] == history.marks[place]


@dataclass
class Target:
    """A request as the recording has it: its event and its observations."""

    event: Event
    observations: list[Observation] = field(default_factory=list)

    @cached_property
    def answers(self) -> Counter[int]:
        """The number of observations of each answer."""
        return Counter(o.answer for o in self.observations)

    @cached_property
    def parts(self) -> Set[str]:
        """The parts with which the request was recorded."""
        return {part for o in self.observations for part in o.parts}

    @cached_property
    def leads(self) -> bool:
        """True if the request only reads, and led all clients to one place."""
        return self.event.safe and self.event.away and len(self.answers) == 1


class Hypothesis(NamedTuple):
    """An assumption about which events decide an answer, and its probability."""

    types: Chosen
    reduction: str
    probability: float


class Fit(NamedTuple):
    """How well a hypothesis explains the recorded answers to a request."""

    log: float  # of the chance that they are as recorded
    old: float  # the chance that the answer in a new state was given before
    answers: dict[Hashable, Counter[int]]  # by state


class Explanation(NamedTuple):
    """A hypothesis over types, one of each group, without its types of events and reduction."""

    named: list[str]  # the parts of the request that decide
    probability: float
    fit: Fit
    grouped: list[str]  # types and parts that others stand beside in their groups


@dataclass(slots=True)
class Candidates:
    """The types that the observations of a request tell apart. A group of types that they can't tell from each other is one."""

    # by the likeliest of the group: its members, each with its share
    groups: dict[str, list[tuple[str, float]]]
    chances: dict[str, float]  # of a group: that it decides
    untested: set[str]  # types that happened before all observations alike
    always: set[str]  # types that happened before all observations, whether alike or not
    shares: dict[str, tuple[str, float]]  # of each member: its group, and its share in that


class Model:
    """A model of one site, learned from its recording: which events decide which answers."""

    def __init__(
        self,
        recorded: Iterable[tuple[str, Event, int, Parts, tuple[int, int]]],
        forgets: Collection[str] = (),
        words: Callable[[int], Set[str]] = lambda capture: frozenset(),
    ) -> None:
        """Learn from `recorded`: session, event, answer, parts and moment of each request, in order.

        Requests of one moment were under way at once: those that only read don't come before each other, and are put in one order.
        Only equal ones that were answered differently come before each other: their number tells which gets which answer.
        A moment is a number after that of a longer time, a burst, in which each request overlaps with one before.
        `forgets`: kinds of events that decide nothing. `words` returns those of an answer by its number.
        """
        self._shown, self._forgets = words, forgets
        self.targets: dict[int, Target] = {}
        self.kinds: dict[str, str] = {}
        self.histories: dict[str, History] = defaultdict(History)
        # keys of concurrent reads: of each group by the mark before it, and of each read all that were ever concurrent with it
        self._groups: dict[int, set[frozenset[int]]] = defaultdict(set)
        self._mates: dict[int, set[int]] = defaultdict(set)
        # of each group of concurrent requests that holds a write, by the mark before it, the place of each key
        self._bursts: dict[int, list[dict[int, int]]] = defaultdict(list)
        self._longest = 0  # events of such a group
        self._widest = 0  # reads of a group of concurrent ones
        self._led_on = set[str]()  # types of writes that are answered by a redirect
        before: dict[tuple[str, int], int] = {}
        moments: dict[str, tuple[tuple[int, int], list[Event]]] = {}
        begun: dict[str, int] = {}  # the place at which the burst of a session began
        recorded = list(recorded)
        first: dict[int, int] = {}
        varied = {
            event.key for _, event, answer, *_ in recorded if first.setdefault(event.key, answer) != answer
        }
        for number, (session, event, answer, parts, moment) in enumerate(recorded):
            history = self.histories[session]
            last, reads = moments.get(session, (moment, []))
            if last != moment or not event.safe:
                self._happen(history, reads)
                reads = []
            if last[0] != moment[0]:
                self._end_burst(history, begun.get(session, 0))
                begun[session] = len(history)
            moments[session] = moment, reads
            target = self.targets.setdefault(event.key, Target(event))
            equal = [e for e in reads if e.key == event.key] if event.key in varied else []
            past = history.branch(len(history), equal)
            target.observations.append(
                Observation(
                    past,
                    len(past),
                    answer,
                    before.get((session, event.key)),
                    number,
                    parts,
                    event.away,
                    session.partition(" ")[2],
                )
            )
            before[session, event.key] = answer
            known = self.kinds.get(event.type, event.kind)
            self.kinds[event.type] = min(event.kind, known, key=priors.KINDS.index)
            if event.confirmed:
                self._led_on.add(event.type)
            if event.kind in forgets:
                continue
            if event.safe:
                reads.append(event)
            else:
                history.add(event)
        for session, (_, reads) in moments.items():
            self._happen(self.histories[session], reads)
            self._end_burst(self.histories[session], begun.get(session, 0))
        self.siblings: dict[str, list[int]] = defaultdict(list)
        for key, target in self.targets.items():
            self.siblings[target.event.type].append(key)
        self._fits: dict[tuple[int, Chosen, str], Fit] = {}
        # fits by the states of the observations, numbered, and the numbers that these hold
        self._by_states: dict[tuple[int, tuple[int, ...]], Fit] = {}
        self._numbered = 0
        self._folds: dict[tuple[int, Chosen, str], tuple[list[int], list[int]]] = {}
        self._folded_events = 0
        # folds of live histories, and the number of things that they keep
        self._carried: WeakKeyDictionary[History, dict[tuple[Chosen, str, int], Folding]] = (
            WeakKeyDictionary()
        )
        self._carried_things = 0
        self._candidates: dict[int, Candidates] = {}
        self._posteriors: dict[int, list[Hypothesis]] = {}
        self._explained: dict[int, dict[Chosen, dict[str, list[Explanation]]]] = {}
        # by request and type or part, of its absence and of the last state that it was in
        self._kept_by: dict[tuple[int, str, bool], tuple[tuple[int | str, str], dict[int, float]]] = {}
        self._sent_by: dict[int, dict[str, str]] = {}
        self._part_chances: dict[tuple[int, str], float] = {}  # by request and recorded part
        # of how many requests a type was tested, and decides the answers: of all, of those of one type, and of each
        self._tested: dict[Hashable, float] = {}
        self._decided: dict[Hashable, float] = {}
        self._learn_priors()

    def _happen(self, history: History, reads: list[Event]) -> None:
        """Append requests that were under way at once, in the order of their keys."""
        if reads:
            self._groups[history.marks[-1]].add(frozenset(e.key for e in reads))
            self._widest = max(self._widest, len(reads))
        for event in sorted(reads, key=lambda e: e.key):
            history.add(event)
            if len(reads) > 1:
                self._mates[event.key].update(e.key for e in reads if e is not event)

    def _end_burst(self, history: History, place: int) -> None:
        """Note the order of the requests since `place`, which were concurrent, if there are writes among them, each of another type."""
        events = history.events[place:]
        writes = [e.type for e in events if not e.safe]
        if len(events) > 1 and writes and len(set(writes)) == len(writes):
            self._bursts[history.marks[place]].append({e.key: n for n, e in enumerate(events)})
            self._longest = max(self._longest, len(events))

    def happen(self, history: History, event: Event) -> None:
        """Append an event to a live history, concurrent ones in the order of a recorded history that began likewise, else reads by their keys.

        That they were concurrent here, too, and not one after the other, is presumed.
        """
        for place in range(len(history), max(-1, len(history) - self._longest), -1):
            for order in self._bursts.get(history.marks[place], ()):
                concurrent = [*history.events[place:], event]
                if all(e.key in order for e in concurrent):
                    recorded = sorted(concurrent, key=lambda e: order[e.key])
                    swapped = recorded != concurrent
                    history.cut(place)
                    for one in recorded:
                        history.add(replace(one, trust=min(one.trust, priors.SWAPPED)) if swapped else one)
                    return
        history.add(event, self.since(event.key, history))

    def since(self, key: int, history: History) -> int:
        """Return the place in a history from which on all events are concurrent with a request.

        Where a recorded history began likewise, its groups of concurrent reads decide; elsewhere any pair that was ever concurrent counts,
        of no more events than were ever concurrent.
        """
        mates, end = self._mates.get(key, set()), len(history)
        keys, place = {key}, end
        while True:
            if any(keys <= group for group in self._groups.get(history.marks[place], ())):
                return place
            if not place or end - place >= self._widest or history.events[place - 1].key not in mates:
                return place
            place -= 1
            keys.add(history.events[place].key)

    def past(self, key: int, history: History) -> tuple[History, int]:
        """Return the events before a request after `history`: of concurrent requests, only equal ones count."""
        place = self.since(key, history)
        varied = len(self.targets[key].answers) > 1
        equal = [e for e in history.events[place:] if e.key == key] if varied else []
        return history.branch(place, equal), place + len(equal)

    # Priors

    def _learn_priors(self) -> None:
        """Empirical Bayes: how often types decide on this site, from the posteriors of its requests."""
        tested, decided = defaultdict[Hashable, float](float), defaultdict[Hashable, float](float)
        for key in (k for k, t in self.targets.items() if len(t.observations) > 1):
            inclusion = self.inclusion(key)
            for first, members in self._candidates[key].groups.items():
                for t, share in members:
                    kin = self.targets[key].event.type
                    beside = _beside(t, kin, self.kinds.get(t, t))
                    for what in ((t, beside), (t, kin), (t, key)):
                        tested[what] += share
                        decided[what] += inclusion[first] * share
        self._tested, self._decided = tested, decided
        self._posteriors.clear()
        self._candidates.clear()

    def chance(self, t: str, target: Event, kind: str = "") -> float:
        """Return the prior chance that a part or type, of this `kind` if that was never recorded, decides the answer to `target`."""
        kind = kind or self.kinds.get(t, t)
        beside = _beside(t, target.type, kind)
        (tested, decided), (of_kin, of_kin_decided), (own, own_decided) = (
            (self._tested.get(what, 0.0), self._decided.get(what, 0.0))
            for what in ((t, beside), (t, target.type), (t, target.key))
        )
        strength = priors.PART_STRENGTH if t.startswith(PART) else priors.KIN if beside else priors.STRENGTH
        prior = _moved(_of_kind(kind), priors.BESIDE) if beside else _of_kind(kind)
        chance = (strength * prior + decided) / (strength + tested)
        chance = _bounded((priors.KIN * chance + of_kin_decided - own_decided) / (priors.KIN + of_kin - own))
        again = target.kind == "refused" and target.status == 200
        led = kind != "sign-in" and not t.startswith(PART) and self.targets[target.key].leads
        answer = "file" if target.kind == "asset" else "step" if target.confirmed or again or led else "page"
        return max(chance * priors.ANSWERS[answer], 0.0002)

    # Candidates

    def candidates(self, key: int) -> Candidates:
        """Return the types that the observations of a request tell apart."""
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = self._find_candidates(self.targets[key])
        return found

    def _find_candidates(self, target: Target) -> Candidates:
        observations = target.observations
        by_pattern: dict[tuple[int, ...], list[str]] = defaultdict(list)
        untested, always = set[str](), set[str]()
        last = {id(o.history): o for o in observations}
        types = {t for o in last.values() for t in o.history.types(o.place)}
        if target.event.kind == BLOCK:
            types = {t for t in types if self.kinds[t] != "asset"}
        types |= target.parts
        for t in sorted(types):
            names: dict[int | str, int] = {}
            pattern = tuple(names.setdefault(o.mark(t), len(names)) for o in observations)
            if not t.startswith(PART) and 0 not in names:
                always.add(t)
            if len(names) > 1:
                by_pattern[pattern].append(t)
            else:
                untested.add(t)
        groups: dict[str, list[tuple[str, float]]] = {}
        chances: dict[str, float] = {}
        for group in by_pattern.values():
            weighed = sorted((-_moved(self.chance(t, target.event), self._echo(t, target)), t) for t in group)
            odds = [-chance / (1 + chance) for chance, _ in weighed]
            total, first = sum(odds), weighed[0][1]
            groups[first] = [(t, own / total) for own, (_, t) in zip(odds, weighed, strict=True)]
            chances[first] = _bounded(1 - math.prod(1 + chance for chance, _ in weighed))
        kept = sorted(chances, key=lambda t: (-chances[t], t))[: priors.CANDIDATES]
        shares = {t: (first, share) for first in kept for t, share in groups[first]}
        return Candidates(
            {t: groups[t] for t in kept}, {t: chances[t] for t in kept}, untested, always, shares
        )

    def _echo(self, t: str, target: Target) -> float:
        """Return the factor of the odds that a type decides, by how many of the words sent with it are in the answers after it alone."""
        if len(target.answers) < 2:
            return 1.0
        sent = [_sent(t, o) for o in target.observations]
        shown = [self._shown(o.capture) for o in target.observations]
        echoed: dict[tuple[bool, ...], bool] = {}
        for word in sorted(set().union(*sent)):
            pattern = tuple(word in words for words in sent)
            if not all(pattern) and not echoed.get(pattern):
                within = [word in words for words in shown]
                echoed[pattern] = any(within) and all(h for h, w in zip(pattern, within, strict=True) if w)
        return float(priors.HEARD ** min(priors.ECHOES, sum(echoed.values())))

    def _replaced(self, t: str, target: Target) -> float:
        """Return the factor of the odds that an event of a type replaces what the one before said, by whose words are in answers after both."""
        shown = {o.answer: (o, self._shown(o.capture)) for o in target.observations}
        always = self._usual_words | set.intersection(*(set(words) for _, words in shown.values()))
        score = 0
        for o, words in shown.values():
            *_, before, last = [set[str]()] * 2 + [_said(e) - always for e in o.history.of(t, o.place, 2)]
            if before - last and last - before:
                score += -1 if (before - last) & words else 1 if (last - before) & words else 0
        return float(priors.HEARD ** max(0, min(priors.ECHOES, score)))

    # Posterior

    def posterior(self, key: int) -> list[Hypothesis]:
        """Return the hypotheses of a recorded request, the likeliest first."""
        found = self._posteriors.get(key)
        if found is None:
            found = self._posteriors[key] = self._weigh(key)
        return found

    def inclusion(self, key: int) -> dict[str, float]:
        """Return the chance that each group of candidates decides the answers to a recorded request."""
        found: dict[str, float] = defaultdict(float)
        for h in self.posterior(key):
            for t, _ in h.types:
                found[t] += h.probability
        return found

    def _weigh(self, key: int) -> list[Hypothesis]:
        target, chances = self.targets[key], self.candidates(key).chances
        alike = len(target.answers) == 1
        near = [k for k in self.siblings[target.event.type][: priors.SIBLINGS] if k != key]
        siblings = [k for k in near if len(self.targets[k].observations) > 1]
        log_yes = {(t, False): math.log(chances[t]) for t in chances}
        histories = {id(o.history): o.history for o in target.observations if target.event.ids}
        for t in sorted(chances.keys() & {e.type for h in histories.values() for e in h.events if e.ids}):
            share = _scoped(t, target.event)
            log_yes[t, True], log_yes[t, False] = (math.log(chances[t] * one) for one in (share, 1 - share))
        log_no = {t: math.log(1 - chances[t]) for t in chances}
        none = sum(log_no.values())
        tried: list[tuple[float, Chosen, str]] = []
        explained = set[Chosen]()  # the answers in each of its states are equal
        by_words = () if alike else (t for t in chances if not t.startswith(PART))
        replaced = {t: self._replaced(t, target) for t in by_words}

        def weigh(chosen: Chosen) -> float:
            prior, best = none + sum(log_yes[s] - log_no[s[0]] for s in chosen), -math.inf
            types = [t for t, _ in chosen if not t.startswith(PART)]
            # `fold` keeps who asks apart from the others
            acts = [t for t in types if self.kinds[t] != "sign-in"]
            factor = math.prod(replaced.get(t, 1.0) for t in acts)
            for reduction, share in _ways(acts or types[:1], alike, factor):
                if target.event.kind == BLOCK and reduction in BY_ANSWERS:
                    continue
                fit = self._fit(key, chosen, reduction)
                others = sum(self._fit(k, chosen, reduction).log for k in siblings)
                weight = prior + share + priors.OWN * fit.log + priors.POOL * others
                tried.append((weight, chosen, reduction))
                best = max(best, weight)
                if all(len(given) == 1 for given in fit.answers.values()):
                    explained.add(chosen)
            return best

        best, front = weigh(EMPTY), [EMPTY]
        for _ in range(priors.BLOCK_TYPES if target.event.kind == BLOCK else priors.MAX_TYPES):
            wider = {
                tuple(sorted((*s, one))) for s in front for one in log_yes if one[0] not in {n for n, _ in s}
            }
            ranked = sorted(((weigh(s), s) for s in sorted(wider)), key=lambda pair: (-pair[0], pair[1]))
            best = max([best, *(weight for weight, _ in ranked)])
            front = [
                s
                for weight, s in ranked[: priors.BEAM]
                if weight > best - priors.CUT - 2
                and not any(tuple(one for one in s if one != left) in explained for left in s)
            ]
        kept = [(math.exp(weight - best), s, r) for weight, s, r in tried if weight > best - priors.CUT]
        total = sum(weight for weight, _, _ in kept)
        found = [Hypothesis(s, reduction, weight / total) for weight, s, reduction in kept]
        return sorted(found, key=lambda h: (-h.probability, h.types, h.reduction))

    def _fit(self, key: int, chosen: Chosen, reduction: str) -> Fit:
        """Return how well a hypothesis explains the recorded answers to a request."""
        memo = key, chosen, reduction
        found = self._fits.get(memo)
        if found is None:
            states: dict[Hashable, int] = {}
            observed = self._states(key, chosen, reduction)
            parted = tuple([states.setdefault(state, len(states)) for state in observed])
            fit = self._by_states.get((key, parted))
            if fit is None:
                self._numbered += len(parted)
                if self._numbered > FOLDED:
                    self._by_states.clear()
                    self._numbered = len(parted)
                fit = self._by_states[key, parted] = self._fitted(key, parted)
            answers = {state: fit.answers[number] for state, number in states.items()}
            found = self._fits[memo] = fit._replace(answers=answers)
        return found

    def _fitted(self, key: int, parted: tuple[int, ...]) -> Fit:
        """Return how well states explain the recorded answers, by numbers of the states in which they were given."""
        answers: dict[Hashable, Counter[int]] = {}
        seen = set[int]()
        log, returned, fresh = 0.0, priors.RETURNED, priors.FRESH
        for o, state in zip(self.targets[key].observations, parted, strict=True):
            known = answers.get(state)
            if known is not None:
                chance = known[o.answer] / known.total()
                if o.before in known:
                    chance = (1 - priors.STICKY) * chance + priors.STICKY * (o.answer == o.before)
                log += math.log(chance * (1 - priors.NOISE) or priors.NOISE)
            elif answers:
                # an answer in a new state: an old one, perhaps the last one, or a new one
                old = returned / (returned + fresh)
                chance = old / len(seen) if o.answer in seen else 1 - old
                if o.before is not None:
                    chance = (1 - priors.STICKY) * chance + priors.STICKY * (o.answer == o.before)
                log += math.log(chance)
                if o.answer in seen:
                    returned += priors.LEARNING
                else:
                    fresh += priors.LEARNING
            if known is None:
                known = answers[state] = Counter()
            known[o.answer] += 1
            seen.add(o.answer)
        return Fit(log, returned / (returned + fresh), answers)

    def _states(self, key: int, chosen: Chosen, reduction: str) -> Iterator[Hashable]:
        """Yield the state of each observation of a request."""
        target = self.targets[key]
        if not chosen:
            yield from repeat(0, len(target.observations))
            return
        chosen, named = _parted(chosen)
        folded: dict[int, tuple[list[int], list[int]]] = {}
        for o in target.observations:
            found = folded.get(id(o.history))
            if not chosen:
                yield _with_parts(0, named, o.parts)
                continue
            if found is None:
                found = folded[id(o.history)] = self._folded(o.history, target.event, chosen, reduction)
            places, states = found
            yield _with_parts(states[bisect_left(places, o.place)], named, o.parts)

    def _folded(
        self, history: History, target: Event, chosen: Chosen, reduction: str
    ) -> tuple[list[int], list[int]]:
        """Return the places of the events of a recorded history that count, and the states: before the first, and after each."""
        memo = id(history), chosen, reduction
        found = self._folds.get(memo)
        if found is None:
            places, folding = places_of(history, target, chosen, reduction), Folding(reduction)
            states = [folding.state]
            for p in places:
                folding.add(history.events[p])
                states.append(folding.state)
            found = places, states
            if not _own(chosen, reduction):  # the same for all targets
                self._folded_events += len(places)
                if self._folded_events > FOLDED:
                    self._folds.clear()
                    self._folded_events = len(places)
                self._folds[memo] = found
        return found

    # Blocks of pages

    def add_block(self, label: str, observations: list[Observation]) -> int:
        """Add a block that many pages show, to be learnt like a request; return its key. Each of its places is after that of the page."""
        key = mix(BLOCK, label)
        self.targets[key] = Target(Event(f"GET {label.replace(' ', '.')} ", BLOCK, key, (), ()), observations)
        return key

    def block_chance(self, key: int, content: int, page: Event, past: tuple[History, int]) -> float:
        """Return the chance that a block shows a content on a page that is asked for after a past."""
        target, address = self.targets[key], {ADDRESS: f"{page.key:x}"}
        here = [o.answer for o in target.observations if o.parts == address]
        again = here.count(content) / max(1, len(here))
        chance = whole = 0.0
        for events, by_reduction in self._explanations(key).items():
            for reduction, explanations in by_reduction.items():
                if sum(one.probability for one in explanations) < UNLIKELY:
                    continue
                state = self._state_after(page, past, target.event, events, reduction)
                for named, weight, fit, _ in explanations:
                    given = fit.answers.get(_with_parts(state, named, address))
                    whole += weight
                    chance += weight * (fit.old * again if given is None else given[content] / given.total())
        return chance / whole if whole else 1.0

    def _state_after(
        self, page: Event, past: tuple[History, int], target: Event, chosen: Chosen, reduction: str
    ) -> int:
        """Return the state that a session is in once it has asked for a page."""
        if not chosen:
            return 0
        folding = self._now(past, target, chosen, reduction)
        if page.kind in self._forgets or page.type not in dict(chosen):
            return folding.state
        folding = folding.copy()
        folding.add(page)
        return folding.state

    # Prediction

    def predict(
        self,
        key: int,
        past: tuple[History, int],
        before: int | None = None,
        parts: Parts = NO_PARTS,
        name: str = "",
    ) -> dict[int, float]:
        """Return the chance of each recorded answer to a request after what a session of this `name` did."""
        target = self.targets[key]
        strange = self.strange(target, parts)
        alike, very = self._as_recorded(key, past, parts, name, strange)
        if alike == 1:
            return very
        found = self.candidates(key)
        recorded = target.answers
        unsearched = self._unsearched(target, past, parts, strange)
        kept = cache(lambda t: self._kept(t, target, past, parts))

        @cache
        def none_of(group: str) -> dict[int, float]:
            every = [kept(t) for t, _ in found.groups[group]]
            return {answer: math.prod([one[answer] for one in every]) for answer in recorded}

        beside_others = cache(
            lambda name: {
                answer: chance / kept(name)[answer]
                for answer, chance in none_of(found.shares[name][0]).items()
            }
        )
        chances = dict.fromkeys(recorded, 0.0)
        silent = 0.0  # the odds of fields whose values show nothing
        spread = 0.0  # the chance that an answer is one of the recorded ones, whichever
        doubted = _doubted(past)
        sure = {answer: (1 - priors.NOISE) * chance for answer, chance in unsearched.items()}
        for events, by_reduction in self._explanations(key).items():
            right = min([doubted.get(t, 1.0) for t, _ in events], default=1.0)
            for reduction, explanations in by_reduction.items():
                state, trust = 0, right
                if events:
                    folding = self._now(past, target.event, events, reduction)
                    state, trust = folding.state, min(folding.reducer.trust, right)
                for named, weight, fit, grouped in explanations:
                    if named:
                        telling = min([_TELLING.get(parts.get(name, ""), 1.0) for name in named])
                        silent += weight * (1 - telling)
                        weight *= telling
                    given = fit.answers.get(_with_parts(state, named, parts))
                    left = weight
                    if given is not None:
                        count = given.total()
                        factors = [beside_others(name) for name in grouped]
                        for answer, times in given.items():
                            chance = weight * sure[answer] * trust * times / count
                            for factor in factors:
                                chance *= factor[answer]
                            chances[answer] += chance
                            left -= chance
                    old = left * fit.old
                    if before is not None:  # an answer that was never recorded may come again, too
                        if before in recorded:
                            chances[before] += old * priors.STICKY
                        old *= 1 - priors.STICKY
                    spread += old
        for answer, times in recorded.items():
            chances[answer] += spread * times / recorded.total()
        if silent:
            chances = {answer: chance / max(1e-9, 1 - silent) for answer, chance in chances.items()}
        turned = self._turned_away(target, parts)
        if turned:
            gate = 1 - priors.NO_GATE / (1 + turned.total())
            chances = {
                answer: (1 - gate) * chance + gate * turned[answer] / turned.total()
                for answer, chance in chances.items()
            }
        predicted = sum(chances[answer] for answer in very)
        if alike > predicted:
            left = (1 - alike) / max(1e-9, 1 - predicted)
            chances = {answer: chance * left for answer, chance in chances.items()}
            chances |= {answer: alike * share for answer, share in very.items()}
        return {answer: min(1.0, chance) for answer, chance in chances.items()}  # sums of floats

    def _now(self, past: tuple[History, int], target: Event, chosen: Chosen, reduction: str) -> Folding:
        """Return the fold of what a session did, which is carried on from request to request."""
        history, place = past
        memo = chosen, reduction, target.key if _own(chosen, reduction) else 0
        carried = self._carried.setdefault(history, {})
        if history.intact < sys.maxsize:
            for late in [late for late, folding in carried.items() if folding.place > history.intact]:
                del carried[late]
        history.intact = sys.maxsize
        folding = carried.get(memo)
        if folding is None or folding.place > place:
            folding = carried[memo] = Folding(reduction)
            self._carried_things += 1
        if folding.place < place:
            things = len(folding.reducer)
            for p in places_of(history, target, chosen, reduction, folding.place, place):
                folding.add(history.events[p])
            folding.place = place
            self._carried_things += len(folding.reducer) - things
            if self._carried_things > CARRIED:
                self._carried.clear()
                self._carried_things = 0
        return folding

    def _explanations(self, key: int) -> Mapping[Chosen, Mapping[str, list[Explanation]]]:
        """Return the hypotheses over types of a recorded request, by the types of events and the reduction."""
        explained = self._explained.get(key)
        if explained is None:
            found = self.candidates(key)
            explained = self._explained[key] = defaultdict(lambda: defaultdict(list))
            for h in self.posterior(key):
                for chosen, share in self._members(h.types, found):
                    events, named = _parted(chosen)
                    grouped = [t for t, _ in chosen if len(found.groups[found.shares[t][0]]) > 1]
                    fit = self._fit(key, chosen, h.reduction)
                    explained[events][h.reduction].append(
                        Explanation(named, h.probability * share, fit, grouped)
                    )
        return explained

    def _as_recorded(
        self, key: int, past: tuple[History, int], parts: Parts, name: str, strange: Mapping[str, float]
    ) -> tuple[float, dict[int, float]]:
        """Return the chance that a request repeats a recorded one in the same state, and that of each answer then.

        Of recorded sessions that did the same, a session is the one of its `name`, else one that was answered alike,
        else most likely the first: most answers that differ do so by the moment, and each fits such a session.
        """
        history, place = past
        trust = min(_doubted(past).values(), default=1.0)
        same = [o for o in self.targets[key].observations if o.follows(past)]
        if len({o.answer for o in same}) > 1:
            same = [o for o in same if o.session == name] or same
        if len({o.answer for o in same}) > 1:
            answers = [e.answer for e in history.events[:place]]
            if alike_heard := [o for o in same if [e.answer for e in o.history.events[:place]] == answers]:
                same, trust = alike_heard, min((e.trust for e in history.events[:place]), default=1.0)
        alike: dict[float, Counter[int]] = defaultdict(Counter)
        kept, own = math.prod(strange.values()), {p: v for p, v in parts.items() if p not in strange}
        for o in same:
            alike[kept * self._alike(key, o.parts, own)][o.answer] += 1
        if not alike:
            return 0.0, {}
        best = max(alike)
        given = alike[best]
        chances = {answer: count / given.total() for answer, count in given.items()}
        first = next(iter(given))
        if max(chances.values()) < priors.EARLIEST:
            others = 1 - chances[first]
            chances = {answer: chance * (1 - priors.EARLIEST) / others for answer, chance in chances.items()}
            chances[first] = priors.EARLIEST
        return best * trust, chances

    def _turned_away(self, target: Target, parts: Parts) -> Counter[int]:
        """Return the answers to those who lacked a proof of who they are, if each was sent away, others were not, and it is lacking now."""
        lacking: Counter[int] = Counter()
        for proof in sorted(p for p in target.parts if p.startswith(_PROOFS)):
            if proof not in parts:
                without = [o for o in target.observations if proof not in o.parts]
                among = any(not o.away for o in target.observations if proof in o.parts)
                if among and without and all(o.away for o in without):
                    lacking.update(o.answer for o in without)
        return lacking

    def _alike(self, key: int, recorded: Parts, asked: Parts) -> float:
        """Return the chance that no part decides in which two requests differ."""
        differ = [p for p in recorded.keys() | asked.keys() if recorded.get(p) != asked.get(p)]
        if not differ:
            return 1.0
        target, shares, decides = self.targets[key], self.candidates(key).shares, self.inclusion(key)
        weighed: dict[str, float] = defaultdict(float)  # by group, the share of those that differ
        for part in sorted(differ):
            group, share = shares.get(part, (part, 1.0))
            chance = self._part_chance(part, target)
            decides.setdefault(group, chance)
            # a part may decide although another one of its group does
            weighed[group] += _TELLING.get(asked.get(part, ""), 1.0) * (share + (1 - share) * chance)
        return math.prod(1 - decides[group] * min(1.0, share) for group, share in weighed.items())

    def _unsearched(
        self, target: Target, past: tuple[History, int], parts: Parts, strange: Mapping[str, float]
    ) -> dict[int, float]:
        """Return for each answer the chance that nothing decides which was not searched and was never so when it was given.

        Doubts are not independent: where one type or part decides nothing, the next is less likely to.
        """
        doubts: dict[int, list[float]] = {o.answer: [] for o in target.observations}
        for by_answer in self.untried(target.event.key, past, parts).values():
            for answer, kept in by_answer.items():
                if kept < 1:
                    doubts[answer].append(1 - kept)
        kept_by: dict[tuple[float, ...], float] = {}  # most answers share their doubts
        for found in map(tuple, doubts.values()):
            if found not in kept_by:
                every = sorted([*found, *(1 - kept for kept in strange.values())], reverse=True)
                kept_by[found] = math.prod(
                    1 - doubt * priors.DOUBT / (priors.DOUBT + number) for number, doubt in enumerate(every)
                )
        return {answer: kept_by[tuple(found)] for answer, found in doubts.items()}

    def untried(self, key: int, past: tuple[History, int], parts: Parts) -> dict[str, dict[int, float]]:
        """Return for each type or part that was recorded and not searched the chances that answers do not change by it."""
        target, found = self.targets[key], self.candidates(key)
        mine, known = set(past[0].types(past[1])), parts.keys() & target.parts
        new = sorted((mine | found.untested | known) - found.shares.keys())
        untried = {t: self._kept(t, target, past, parts) for t in new}
        for t in sorted((found.always & found.shares.keys()) - mine):
            kept = self._kept(t, target, past, parts)
            untried[t] = {answer: 1 - priors.NEEDED * (1 - chance) for answer, chance in kept.items()}
        for t, right in _doubted(past).items():
            if t not in found.shares:
                most = 1 - (1 - right) * self._type_chance(t, target, past)
                kept = untried.get(t, {})
                untried[t] = {answer: min(most, kept.get(answer, 1.0)) for answer in target.answers}
        return untried

    def _kept(self, t: str, target: Target, past: tuple[History, int], parts: Parts) -> dict[int, float]:
        """Return for each answer the chance that it does not change because of how a type or part is now."""
        here = parts.get(t, "") if t.startswith(PART) else past[0].mark(t, past[1])
        state, memo = (here, self._kind(t, past)), (target.event.key, t, bool(here))
        known, found = self._kept_by.get(memo, (None, {}))
        if known != state:
            if len(self._kept_by) >= KEPT:
                self._kept_by.clear()
            found = self._compared(t, target, past, here)
            self._kept_by[memo] = state, found
        return found

    def _compared(
        self, t: str, target: Target, past: tuple[History, int], here: int | str
    ) -> dict[int, float]:
        part = t.startswith(PART)
        differs: dict[int, float] = {}
        known: dict[int | str, float] = {here: 0.0}  # by its earlier value: the share in which that differs
        for o in target.observations:
            if differs.get(o.answer, 1.0) > 0:
                was = o.mark(t)
                apart = known.get(was)
                if apart is None:
                    other = (o.history, o.place)
                    apart = _TELLING.get(str(here), 1.0) if part else _apart(t, target.event, past, other)
                    known[was] = apart
                differs[o.answer] = min(apart, differs.get(o.answer, 1.0))
        if not any(differs.values()):
            return dict.fromkeys(differs, 1.0)
        chance = self._part_chance(t, target) if part else self._type_chance(t, target, past)
        factors = {} if part else self._word_factors(t, target, past if here else None)
        return {a: 1 - _moved(chance, factors.get(a, 1.0)) * apart for a, apart in differs.items()}

    def _kind(self, t: str, past: tuple[History, int]) -> str:
        """Return the kind of a type as it was recorded, else as it happened last; of a write whose answer is doubtful by its type."""
        outcome = "refused" if t.endswith(REFUSED) else "write"
        return self.kinds.get(t) or next((e.kind for e in past[0].of(t, past[1], 1)), outcome)

    def _type_chance(self, t: str, target: Target, past: tuple[History, int]) -> float:
        """Return the chance that a type decides which the recording never tried; more of a write to the path that is read."""
        kind = self._kind(t, past)
        chance = self.chance(t, target.event, kind)
        if kind != "refused" and t not in self._led_on and _writes_to(t, target.event.type):
            chance = _moved(chance, priors.OWN_PATH)
        return chance

    def _word_factors(self, t: str, target: Target, past: tuple[History, int] | None) -> dict[int, float]:
        """Return for each answer the factor of the odds that a type decides, by whether the answer shows most of the words that it alone sent.

        They were sent in a `past`, or else before the answer, and are lacking now.
        """
        factors: dict[int, float] = {}
        now = _sent_with(t, *past) - self._usual_words if past else set[str]()
        if past and not now:
            return factors
        for o in target.observations:
            senders = self._senders(o.history)
            sent = now if past else _sent(t, o) - self._usual_words
            shown = sent & self._shown(o.capture)
            own = {word for word in sent if senders.get(word, t) == t}
            if own and 2 * len(own & shown) >= len(own):
                factor = priors.HEARD if not past or sent - shown else 1.0
            else:
                factor = priors.UNSAID if sent and not past and not o.away and not shown else 1.0
            factors[o.answer] = max(factor, factors.get(o.answer, 0.0))
        return factors

    def _senders(self, history: History) -> dict[str, str]:
        """Return the type with which each word was sent in a recorded history, "" for several."""
        found = self._sent_by.get(id(history))
        if found is None:
            found = self._sent_by[id(history)] = {}
            for event in {e.done: e for e in history.events}.values():
                for word in _said(event):
                    found[word] = event.type if found.get(word, event.type) == event.type else ""
        return found

    def _part_chance(self, part: str, target: Target) -> float:
        """Return the chance that a part decides which the recording never tried; more where an answer repeats its words."""
        memo = target.event.key, part
        found = self._part_chances.get(memo)
        if found is None:
            found = self.chance(part, target.event)
            sent = {o.capture: words_of(o.parts.get(part, "")) for o in target.observations}
            if any(words & self._shown(capture) - self._usual_words for capture, words in sent.items()):
                found = _moved(found, priors.HEARD)
            self._part_chances[memo] = found
        return found

    def strange(self, target: Target, parts: Parts) -> dict[str, float]:
        """Return the parts with which a request was never recorded, any number of them, and the chance that each decides nothing."""
        strange = sorted(parts.keys() - target.parts)
        return {part: 1 - self.chance(part, target.event) for part in strange}

    @cached_property
    def _usual_words(self) -> Set[str]:
        """The words that the answers of several requests show, such as `html` and `en`: they echo nothing that was sent."""
        every = max(1, len(self.targets) // SAMPLED)
        sample = [t.observations[0].capture for t in list(self.targets.values())[::every][:SAMPLED]]
        counted = Counter(word for capture in sample for word in self._shown(capture))
        return {word for word, count in counted.items() if count > max(1, len(sample) // 4)}

    def _members(self, chosen: Chosen, found: Candidates) -> list[tuple[Chosen, float]]:
        """Return the hypotheses that one over groups stands for: one type of each group, with the product of their shares."""
        ways = []
        most = priors.MEMBERS[min(len(chosen), len(priors.MEMBERS)) - 1] if chosen else 1
        for t, own in chosen:
            members = found.groups[t][:most]
            total = sum(share for _, share in members)
            ways.append([((name, own), share / total) for name, share in members])
        return [
            (tuple(sorted(one for one, _ in way)), math.prod(share for _, share in way))
            for way in product(*ways)
        ]


def _sent(t: str, o: Observation) -> set[str]:
    """Return the words that were sent with a type or as a part before an answer."""
    if t.startswith(PART):
        return words_of(o.parts.get(t, ""))
    return _sent_with(t, o.history, o.place)


def _sent_with(t: str, history: History, place: int) -> set[str]:
    """Return the words that were sent with the events of a type before `place`."""
    events = {event.done: event for event in history.of(t, place, COMPARED)}
    return {word for event in events.values() for word in _said(event)}


def _said(event: Event) -> set[str]:
    """Return the words that were sent with an event; no answer repeats a secret."""
    values = (*(value for _, value in event.parameters), *event.fields)
    return {word for value in values if PREFIX not in value for word in words_of(value)}


def words_of(text: str) -> set[str]:
    """Return the words of a text that can be recognised in another: of two letters or digits at least."""
    return {w for w in _TOLD.findall(text.casefold()) if len(w) > 1}


def _apart(t: str, target: Event, here: tuple[History, int], there: tuple[History, int]) -> float:
    """Return the share of the reductions, of types counted whole or by ids, in which one type left two pasts apart."""
    named = _naming(target)
    ours, theirs = (history.of(t, place, COMPARED) for history, place in (here, there))
    share = _share_apart(ours, theirs)
    if named and share:
        scoped = _scoped(t, target)
        own, their_own = ([e for e in events if not _elsewhere(e, named)] for events in (ours, theirs))
        share = (1 - scoped) * share + scoped * _share_apart(own, their_own)
    return share


def _scoped(t: str, target: Event) -> float:
    """Return the chance that of a type which decides only events count that share an id with the request."""
    return priors.SCOPED[bool(_naming(target)) and t.split(" ", 2)[1] == target.type.split(" ", 2)[1]]


def _naming(event: Event) -> dict[str, str]:
    """Return the parameters by which an event names a thing: numbers of its path, and such as `id`."""
    return {n: v for n, v in event.parameters if v in event.ids and _NAMING.fullmatch(n)}


def _elsewhere(event: Event, named: Mapping[str, str]) -> bool:
    """Return True if an event names another thing than a request that has `named` one."""
    return set(event.ids).isdisjoint(named.values()) and any(n in named for n, _ in event.parameters)


def _share_apart(ours: list[Event], theirs: list[Event]) -> float:
    """Return the share of the reductions that tell some events of two pasts apart."""
    here, there = ([event.done for event in events] for events in (ours, theirs))
    if here == there:
        return 0.0
    last, every = priors.ALIKE["last of each"], priors.ALIKE["set"]
    share = priors.ALIKE["sequence"] + last * (here[-1:] != there[-1:]) + every * (set(here) != set(there))
    return share / sum(priors.ALIKE.values())


def _writes_to(t: str, read: str) -> bool:
    """Return True if a type writes to the path that another one reads; things and their list have one, and so do messages of one type."""
    if t.startswith(SAY):
        return t == read
    return read.startswith("GET ") and not t.startswith("GET ") and _thing(t) == _thing(read)


@cached
def _beside(t: str, read: str, kind: str) -> bool:
    """Return True if a type, no sign-in, writes to another thing than one reads, of several in a folder: `/shop/cups/add` for `/shop/plates`."""
    if kind == "sign-in" or t.startswith((PART, "GET ")):
        return False
    folders, theirs = _thing(t).split("/")[:-1], _thing(read).split("/")
    shared = [one == own for one, own in zip(folders, theirs, strict=False)]
    return shared[:2] == [True, True] and not all(shared)


def _thing(t: str) -> str:
    return t.split(" ", 2)[1].rstrip("/").removesuffix("/0")


def places_of(
    history: History, target: Event, chosen: Chosen, reduction: str, since: int = 0, until: int | None = None
) -> list[int]:
    """Return the places of the events of some types that count for a request, of those between two places."""
    own = dict(chosen)
    until = len(history) if until is None else until
    places = history.places(own, since, until)
    if any(own.values()):
        mine, events = set(target.ids), history.events
        places = [
            p
            for p in places
            if not own[events[p].type] or not events[p].ids or mine.intersection(events[p].ids)
        ]
    if reduction == "shown":
        places = sorted({*places, *between(history.asked(target.key), since, until)})
    return places


def _own(chosen: Chosen, reduction: str) -> bool:
    """Return True if it depends on the request which events count."""
    return reduction == "shown" or any(own for _, own in chosen)


class Folding:
    """A fold of events by a reduction, which can be carried on; it holds those before `place`.

    A state is what the reduction makes of the events, and who asks: a sign-in replaces the one before it, and no other event.
    """

    __slots__ = ("_who", "place", "reducer")

    def __init__(self, reduction: str) -> None:
        self.reducer: Reducer = REDUCERS[reduction]()
        self.place, self._who = 0, 0

    def copy(self) -> Folding:
        """Return a fold that goes on by itself."""
        other = copy(self)
        other.reducer = copy(self.reducer)
        return other

    @property
    def state(self) -> int:
        """The state now."""
        return mix(self.reducer.state, self._who) if self._who else self.reducer.state

    def add(self, event: Event) -> None:
        """Let `event` happen."""
        if event.kind == "sign-in":
            self._who = event.done
        else:
            self.reducer.add(event)


def _doubted(past: tuple[History, int]) -> dict[str, float]:
    """Return the chance that each write with a doubtful answer was done or refused as noted, by both of its possible types."""
    (history, place), found = past, dict[str, float]()
    for event in (history.events[p] for p in history.doubts if p < place):
        done = event.written
        right = min(found.get(done, 1.0), 1 - priors.TURNED * (1 - event.trust))
        found |= {done: right, done + REFUSED: right}
    return found


def _ways(acts: Sequence[str], alike: bool, replaced: float) -> Iterator[tuple[str, float]]:
    """Yield reductions of types of events, and the log of the prior of each; parts of the request need none.

    `replaced` is the factor of the odds of those that keep what was said last of each type.
    """
    if not acts:
        yield "last", 0.0
        return
    # of answers that are all the same no reduction explains more than another
    shares = priors.ALIKE if alike else priors.REDUCTIONS
    if len(acts) > 1 and not alike:
        shares = _with(shares, "last", priors.REPLACES)
    if all("," in t.split(" ", 3)[2] for t in acts):
        shares = _with(shares, "last of each", priors.SAYS_ALL)
    if replaced != 1:
        for name in ("last of each", "last") if len(acts) == 1 else ("last of each",):
            shares = _with(shares, name, _moved(shares[name] / sum(shares.values()), replaced))
    for name, share in shares.items():
        yield name, math.log(share)


def _with(shares: Mapping[str, float], name: str, part: float) -> dict[str, float]:
    """Return shares of which one is `part` of all; the others divide the rest as before."""
    total = sum(shares.values())
    rest = (1 - part) * total / (total - shares[name])
    return {n: part * total if n == name else share * rest for n, share in shares.items()}


def _parted(chosen: Chosen) -> tuple[Chosen, list[str]]:
    """Return the types among what a hypothesis chose, and the parts."""
    if not any(t.startswith(PART) for t, _ in chosen):
        return chosen, []
    return tuple(s for s in chosen if not s[0].startswith(PART)), [t for t, _ in chosen if t.startswith(PART)]


def _with_parts(state: int, named: list[str], parts: Parts) -> Hashable:
    return (state, *[parts.get(name, "") for name in named]) if named else state


def _of_kind(kind: str) -> float:
    """Return the chance that a type of a kind, or a part, decides."""
    return priors.of_part(kind) if kind.startswith(PART) else priors.DECIDES[kind]


def _moved(chance: float, factor: float) -> float:
    """Return a chance with its odds multiplied."""
    return chance * factor / (1 - chance + chance * factor)


def _bounded(chance: float) -> float:
    return min(0.97, max(0.0005, chance))


# By the value of a part: how far a different value counts
_TELLING = {ANEW: 0.0, OTHER: priors.OTHER}
_PROOFS = ("~cookie given", "~header authorization")  # parts that tell who asks
