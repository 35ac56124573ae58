"""Which capture answers a request: candidates by the lossless key and by rules, the choice among them by the model."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.evidence import SERVED, SURE
from stillweb.snapshots.evidence.equality import Equality
from stillweb.snapshots.evidence.events import Event, History, event_of
from stillweb.snapshots.evidence.explain import grounds
from stillweb.snapshots.evidence.model import Model, Observation, Parts
from stillweb.snapshots.evidence.parts import (
    CLOCKS,
    cookie_parts,
    header_parts,
    issued_in,
    made_up,
    rule_parts,
)
from stillweb.snapshots.identity.irrelevant import irrelevant
from stillweb.snapshots.identity.keys import Key, digest, is_plain, opens_socket, request_key
from stillweb.snapshots.identity.rules import NOTHING, Issued, RuleSet, joining, reduced
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.matching import drawing
from stillweb.snapshots.matching.accepting import LEVELS, Accept
from stillweb.snapshots.matching.conditional import same_conditions, same_preconditions, whole_or_asked
from stillweb.snapshots.matching.doubts import cut_short, no_fragment, other_kind, other_reader, other_type
from stillweb.snapshots.matching.hanging import hangs
from stillweb.snapshots.matching.ladder import Matcher, Store
from stillweb.snapshots.matching.layers import layer_of
from stillweb.snapshots.matching.lookup import HANGS, MISS, Lookup, Rival
from stillweb.snapshots.matching.polling import TRANSPORT
from stillweb.snapshots.matching.recognising import guarded, minds, other_secrets
from stillweb.snapshots.matching.sessions import REMEMBERED, Answered, Session
from stillweb.snapshots.matching.situation import Situation
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import PREFIX
from stillweb.snapshots.states.groups import drawn_anew
from stillweb.snapshots.states.issued import shown_in, text_of
from stillweb.snapshots.states.slots import SAFE_METHODS
from stillweb.snapshots.warc.messages import set_cookies

DOUBT = 0.6  # what an answer of another kind than is asked for is worth
RIVALS = 2  # answers that are named of a request that none answers surely enough
TWINS = 200  # captures of a path that are looked through for one that differs in secrets alone
OTHER_SECRET = 0.6  # what an answer to another key or token is worth


@dataclass(slots=True)
class Asked:
    """A request as the model sees it."""

    event: Event
    parts: Parts


@dataclass(slots=True)
class SiteSession:
    """What a session did at one site: its events, the answers to each request, and the cookies that it was given."""

    history: History = field(default_factory=History)
    last: dict[int, int] = field(default_factory=dict)  # answers by key of the event
    given: dict[tuple[str, str], str] = field(default_factory=dict)


class EvidenceSession(Session):
    """A session whose past is weighed by the model."""

    __slots__ = ("_matcher", "noted", "offered", "past")

    def __init__(self, name: str, matcher: EvidenceMatcher) -> None:
        super().__init__(name)
        self.past: dict[str, SiteSession] = defaultdict(SiteSession)
        self._matcher = matcher
        self.offered: deque[Capture] = deque(
            maxlen=REMEMBERED
        )  # captures that lookups found, the latest last
        self.noted: str | None = None  # the site at which the last lookup noted a miss

    def answered(self, lookup: Answered) -> None:
        """Note that the answer of a lookup was given."""
        super().answered(lookup)
        capture = lookup.capture
        if capture is not None:
            self.noted = None
            self._matcher.note(self, lookup.request, capture)

    def happened(self, request: Request, response: Response) -> None:
        """Note that a live server gave `response`; it replaces what the lookup before noted."""
        self._matcher.note_live(self, request, response)


class SiteEvidence:
    """The model of one site, and the captures behind its observations."""

    def __init__(self, matcher: EvidenceMatcher, site: str) -> None:
        self._matcher = matcher
        store = matcher.snapshot
        start = surt(f"http://{site}/").rpartition(")")[0]
        found = [c for c in store.prefix(start) if site_of(c.url) == site and not c.truncated.startswith("!")]
        found.sort(
            key=lambda c: (layer_of(c.filename), c.session, c.begin, c.timestamp, c.filename, c.offset)
        )
        self.captures = found
        self.equality = Equality(store.read)
        given: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        self.vary: dict[str, set[str]] = defaultdict(set)
        for c in found:
            self.vary[c.key].update(name for name, _ in c.vary)
        self.moments: set[str] = (
            set()
        )  # keys of requests with a moment far from when they were made: no clock
        for c in found:
            if "?" in c.url and not drawn_anew(c, 3600.0):
                normal, parts = rule_parts(
                    store.read_request(c), matcher.rules, NOTHING, given=True, stored=True
                )
                if any(name[6:] in CLOCKS for name in parts):
                    self.moments.add(normal)
        recorded = []
        before: dict[str, deque[Capture]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        self.labels = self.equality.labels(found)
        for capture, label in zip(found, self.labels, strict=True):
            request, head = store.read_request(capture), store.head(capture)
            session = f"{layer_of(capture.filename)} {capture.session}"
            asked = self.asked(
                request,
                capture.key,
                given[session],
                stored=True,
                served=before[session],
                response=head,
                said=label,
            )
            before[session].append(capture)
            if matcher.spoken.on(site):
                words = matcher.spoken.before(capture)
                if words:
                    asked.parts["~words"] = repr(sorted(words.items()))  # type: ignore[index]
            recorded.append((session, asked.event, label, asked.parts))
            keep_cookies(given[session], head, asked)
        self.model = Model(recorded)

    def masked(self, request: Request) -> int:
        """Return the key of the recorded event that differs from a request in its secrets alone; 0 for none."""
        for capture in self._matcher.twins(request):
            stored = self._matcher.group(request.url).request(capture)
            if not other_secrets(request, stored)[1]:
                return self.asked(stored, capture.key, {}, stored=True).event.key
        return 0

    def asked(
        self,
        request: Request,
        key: str,
        given: dict[tuple[str, str], str],
        *,
        stored: bool = False,
        served: Sequence[Capture] = (),
        response: Response | None = None,
        said: int = 0,
    ) -> Asked:
        """Return a request as the model sees it."""
        issued: Issued = NOTHING
        named: list[str] = []
        if request.method not in SAFE_METHODS:
            issued, named = issued_in(request, self._matcher.group(request.url).issued(request.method))
        own = not named or self._matcher.gave(served, named)
        normal, parts = rule_parts(request, self._matcher.rules, issued, given=own, stored=stored)
        if normal in self.moments:
            parts = {
                f"~moment {name[6:]}" if name[6:] in CLOCKS else name: value for name, value in parts.items()
            }
        parts |= header_parts(request, self.vary.get(key, ()))
        parts |= cookie_parts(request, given)
        if response is None:
            event = event_of(request, normal)
        else:
            media, location = response.header("content-type") or "", response.header("location") or ""
            event = event_of(request, normal, response.status, media, location, said)
        return Asked(replace(event, fields=made_up(parts)), parts)


def _apart(o: Observation, history: History, parts: Parts) -> tuple[int, bool]:
    """Return how far an observation is from a request: parts that differ, and whether its past is another one."""
    differ = sum(o.parts.get(name) != parts.get(name) for name in o.parts.keys() | parts.keys())
    place = len(history)
    return differ, o.place != place or o.history.marks[place] != history.marks[place]


def _rivals(
    lookup: Lookup,
    ranked: list[tuple[int, float, Capture]],
    model: Model,
    key: int,
    place: tuple[History, int],
    parts: Parts,
) -> list[Rival]:
    """Return the likeliest answers to a lookup's request; the first of `ranked` is the lookup's own."""
    return [
        Rival(capture, chance if rank else lookup.confidence, grounds(model, key, answer, place, parts))
        for rank, (answer, chance, capture) in enumerate(ranked[:RIVALS])
    ]


def keep_cookies(given: dict[tuple[str, str], str], head: Response, asked: Asked) -> None:
    """Note which request made a site give its client a cookie; one that only reads renews what the client had."""
    for line in set_cookies(head.headers):
        name, equals, value = line.partition(";")[0].partition("=")
        if equals:
            giver = f"{asked.event.key:x}"
            if asked.event.safe:
                giver = asked.parts.get(f"~cookie given {name.strip()}", giver)
            given[name.strip(), value.strip().strip('"')] = giver


class EvidenceMatcher(Matcher):
    """Finds the likeliest capture for a request, and says how likely it is."""

    def __init__(
        self, snapshot: Store, rules: RuleSet | None = None, *, evidence: bool | None = None
    ) -> None:
        super().__init__(snapshot, rules)
        self._sites: dict[str, SiteEvidence] = {}

    def session(self, name: str = "default") -> EvidenceSession:
        """Return a fresh session, before any event."""
        return EvidenceSession(name, self)

    def twins(self, request: Request) -> list[Capture]:
        """Return the captures that differ from a request in nothing but secrets and what rules leave out."""
        group = self.group(request.url)
        known = group.issued(request.method)

        def left(one: Request, stored: bool) -> str:
            return digest(reduced(one, self.rules.rules, issued_in(one, known)[0], stored=stored))

        wanted = left(request, False)
        own = [c for c in group.captures if c.method == request.method][:TWINS]
        return [c for c in own if left(group.request(c), True) == wanted]

    def _alike(self, request: Request) -> Iterable[Capture]:
        return self.twins(request)

    def gave(self, served: Sequence[Capture], values: list[str]) -> bool:
        """Return True if all values were shown in answers that were served."""
        missing = set(values)
        for capture in reversed(served):
            text = text_of(self.snapshot.read(capture))
            missing = {v for v in missing if not shown_in(v, text)}
            if not missing:
                return True
        return False

    def evidence(self, site: str) -> SiteEvidence:
        """Return the model of a site, learnt when first asked for."""
        with self._lock:
            found = self._sites.get(site)
            if found is None:
                found = self._sites[site] = SiteEvidence(self, site)
            return found

    def lookup(
        self,
        request: Request,
        session: Session | None = None,
        *,
        accept: str = "rule",
        patient: bool = False,
        min_confidence: float = SERVED,
    ) -> Lookup:
        """Return the likeliest answer to a request of a session. Raises UsageError for an unknown `accept`."""
        request = request.signed_in()
        accepted = self._accepts.get(accept)
        if accepted is None:
            accepted = self._accepts[accept] = Accept.read(accept)
        own = session if isinstance(session, EvidenceSession) else self.session("none")
        own.noted = None
        key = self._key(request) if is_plain(request) else request_key(request)
        site = site_of(request.url)
        by_rule = accepted.level >= LEVELS.index("rule")
        asked, ids, candidates = request, drawing.NONE, self._same(request, key)
        if by_rule and not candidates:
            request, ids = self.drawing.recorded(request, own)
            if request is not asked:
                key = request_key(request)
                candidates = self._same(request, key)
        drawn = request is not asked
        polled = TRANSPORT in request.url and by_rule
        poll = self.hanging.next(request, own, candidates)
        if poll is not None and patient and hangs(poll, own):
            return Lookup(HANGS, None, None, False, "", key, request)
        minded = bool(candidates) and minds(request, given=site in own.given)
        if not candidates or minded or any(guarded(c) for c in candidates):
            known = self._recognised(request, candidates, own, minded)
            if known is not request:
                request = known
                key = request_key(request)
                candidates = self._same(request, key)
        evidence = self.evidence(site)
        past = own.past[site]
        turn, rule = self._polled(request, key, own) if polled else (None, None)
        if turn is not None:
            lookup = self._given(request, key, turn.capture, rule, 0.5 if turn.last or not turn.due else 1.0)
        elif poll is not None:
            lookup = self._given(request, key, poll.capture, None, 1.0)
            lookup.polled = True
        else:
            now = self._situation(request, key, own, site, accepted)
            lookup = self._chosen(request, key, evidence, past, now, own, accepted)
        lookup.ids, lookup.matcher, lookup.session = ids, self, own
        if drawn and lookup.capture is not None:
            lookup.rule = "+".join(filter(None, (lookup.rule, drawing.RULE)))
            lookup.verdict, lookup.confidence = f"rule:{lookup.rule}", min(lookup.confidence, 0.9)
        lookup.ambiguous = lookup.confidence < SURE
        refused = accepted.unambiguous and lookup.ambiguous
        if lookup.capture is not None and (lookup.confidence < min_confidence or refused):
            lookup.capture, lookup.verdict, lookup.rule = None, MISS, None
            lookup.why = (*lookup.why, "ambiguous" if refused else "confidence")
        if lookup.capture is not None:
            own.offered.append(lookup.capture)
        else:
            failed = None if candidates else self.failing.find(request, key, accepted.level)
            if failed is not None:
                lookup.failed, lookup.verdict = failed, failed.failure.verdict
            elif session is not None and not lookup.irrelevant:
                own.strayed(site, request, key.canonical)
                self._note(own, site, evidence.asked(request, key.canonical, past.given))
        return lookup

    def _chosen(
        self,
        request: Request,
        key: Key,
        evidence: SiteEvidence,
        past: SiteSession,
        now: Situation,
        session: EvidenceSession,
        accepted: Accept,
    ) -> Lookup:
        """Return the lookup of the likeliest capture."""
        asked = evidence.asked(request, key.canonical, past.given, served=session.offered)
        told = session.told.get(site_of(request.url))
        if told:
            asked.parts["~words"] = repr(sorted(told.items()))  # type: ignore[index]
        missed = Lookup(MISS, None, None, False, "", key, request)
        event_key, masked = asked.event.key, 1.0
        target = evidence.model.targets.get(event_key)
        if target is None:
            event_key, masked = evidence.masked(request), OTHER_SECRET
            target = evidence.model.targets.get(event_key)
        if target is None:
            return missed
        by_rule = accepted.level >= LEVELS.index("rule")
        captures = [evidence.captures[o.capture] for o in target.observations]
        fit = [c for c in captures if by_rule or c.key == key.canonical]
        if accepted.level == 0:
            fit = [c for c in fit if c.exact == key.exact]
        if fit and opens_socket(request):
            fit = [c for c in fit if c.key == key.canonical]
        fit = self._same_secrets(request, fit, key)
        top = max((layer_of(c.filename) for c in fit), default=1)
        fit = [c for c in fit if layer_of(c.filename) == top]
        for step in (whole_or_asked, same_preconditions, same_conditions):
            fit = step(fit, now) if fit else fit
        if not fit:
            missed.why = tuple(now.why)
            return missed
        allowed = {c.place for c in fit}
        chances = evidence.model.predict(
            asked.event.key, past.history, past.last.get(asked.event.key), asked.parts
        )
        ranked = sorted(chances.items(), key=lambda pair: -pair[1])
        for answer, chance in ranked:
            given = [
                (o, c)
                for o, c in zip(target.observations, captures, strict=True)
                if o.answer == answer and c.place in allowed
            ]
            if given:
                far = [(_apart(o, past.history, asked.parts), c) for o, c in given]
                least = min(distance for distance, _ in far)
                capture = self._nearest_of([c for distance, c in far if distance == least], key, now)
                rule = None
                if capture.key != key.canonical:
                    group = self.group(request.url)
                    issued = issued_in(request, group.issued(request.method))[0]
                    rule = joining(request, group.request(capture), self.rules.rules, issued)
                    if rule is None and irrelevant(request):
                        rule = "irrelevant"
                    if rule is None:
                        continue
                lookup = self._given(request, key, capture, rule, chance * masked)
                doubts = (cut_short, no_fragment, other_kind, other_reader, other_type)
                if now.unsure or any(doubt(capture, fit, now) for doubt in doubts):
                    lookup.confidence *= DOUBT
                place = past.history, len(past.history)
                lookup.grounds = partial(grounds, evidence.model, event_key, answer, place, asked.parts)
                if lookup.confidence < 1:
                    shown = {
                        o.answer: c
                        for o, c in zip(target.observations, captures, strict=True)
                        if c.place in allowed
                    }
                    likeliest = [(answer, 0.0, capture)]
                    likeliest += [(a, c * masked, shown[a]) for a, c in ranked if a in shown and a != answer]
                    lookup.rivals = partial(
                        _rivals, lookup, likeliest, evidence.model, event_key, place, asked.parts
                    )
                return lookup
        return missed

    def _same_secrets(self, request: Request, captures: list[Capture], key: Key) -> list[Capture]:
        """Return the captures whose secrets are not proved to be others than those of a request."""
        if PREFIX not in request.url and PREFIX.encode() not in request.body:
            return captures
        group = self.group(request.url)
        return [
            c for c in captures if c.key == key.canonical or not other_secrets(request, group.request(c))[1]
        ]

    def _nearest_of(self, captures: Sequence[Capture], key: Key, now: Situation) -> Capture:
        """Return, of captures with equal answers, the one nearest to the request and to where the session is."""
        own = now.own(list(captures))
        end = now.followed.end if now.followed is not None else -1
        return min(
            captures,
            key=lambda c: (
                c.exact != key.exact,
                c.key != key.canonical,
                c.session != own,
                c.begin < end,
                abs(c.begin - end),
                c.timestamp,
                c.place,
            ),
        )

    @staticmethod
    def _given(request: Request, key: Key, capture: Capture, rule: str | None, confidence: float) -> Lookup:
        verdict = f"rule:{rule}" if rule else "exact" if capture.exact == key.exact else "canonical"
        return Lookup(verdict, capture, rule, False, "", key, request, confidence=confidence)

    def _situation(
        self, request: Request, key: Key, session: EvidenceSession, site: str, accepted: Accept
    ) -> Situation:
        return Situation(
            request,
            key,
            None,
            session.following(site),
            self.snapshot.read_request,
            self.snapshot.read,
            self.peek,
            session.pages.get(site),
            session.name,
            site in session.given,
            session.known(site),
            session.served,
            session=session,
            varies=accepted.level >= LEVELS.index("varies"),
        )

    # Sessions

    def note(self, session: EvidenceSession, request: Request, capture: Capture) -> None:
        """Note that a session was answered by a capture."""
        head = self.snapshot.head(capture)
        site = site_of(request.url)
        evidence, past = self.evidence(site), session.past[site]
        label = evidence.equality.label(capture)
        key = request_key(request).canonical
        asked = evidence.asked(request, key, past.given, response=head, said=label)
        self._note(session, site, asked, head)

    def note_live(self, session: EvidenceSession, request: Request, response: Response) -> None:
        """Note that a session was answered by a live server."""
        if session.secrets is not None:
            request = session.secrets.request(request)
        site = site_of(request.url)
        evidence, past = self.evidence(site), session.past[site]
        if session.noted == site:
            past.history.drop()
        session.noted = None
        label = evidence.equality.label_of(response)
        key = request_key(request).canonical
        asked = evidence.asked(request, key, past.given, response=response, said=label)
        self._note(session, site, asked, response)
        session.noted = None

    def _note(self, session: EvidenceSession, site: str, asked: Asked, head: Response | None = None) -> None:
        past, event = session.past[site], asked.event
        if event.kind != "beacon":
            past.history.add(event)
            session.noted = site if head is None else None
        if head is not None:
            past.last[event.key] = event.said
            keep_cookies(past.given, head, asked)
