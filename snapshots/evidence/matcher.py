"""The choice of the capture that answers a request: candidates by the lossless key and by rules, the choice among them by the model."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from stillweb.snapshots.cache import Cache
from stillweb.snapshots.capture import PARTIAL, Capture, Response, as_of, layer_of
from stillweb.snapshots.contents.failure_lookup import FailureLookup
from stillweb.snapshots.evidence import SERVED, SURE, priors
from stillweb.snapshots.evidence.conditions import (
    DOUBTED,
    MOST,
    PASSING,
    CaptureFacts,
    LookupState,
    Place,
    Store,
    captures_that_fit,
)
from stillweb.snapshots.evidence.events import History
from stillweb.snapshots.evidence.explain import grounds, nearest
from stillweb.snapshots.evidence.lookup import HANGS, MISS, Lookup, NearCapture, Rival, Session, SessionPast
from stillweb.snapshots.evidence.model import Observation, Parts
from stillweb.snapshots.evidence.parts import WHO, Given, issued_in, key_of_order
from stillweb.snapshots.evidence.sites import ModelRequest, SiteEvidence, keep_given, response_facts
from stillweb.snapshots.evidence.socket_messages import SocketMessages
from stillweb.snapshots.http.acceptance import accepts
from stillweb.snapshots.http.static import is_static, static_name
from stillweb.snapshots.identity import drawn_ids, echoes
from stillweb.snapshots.identity.accept_level import LEVELS, AcceptLevel
from stillweb.snapshots.identity.equality import LIMIT
from stillweb.snapshots.identity.group import Group, is_light
from stillweb.snapshots.identity.header_fields import fields_of, has_client_fields
from stillweb.snapshots.identity.irrelevant import irrelevant
from stillweb.snapshots.identity.issued_values import is_shown_in, text_of
from stillweb.snapshots.identity.keys import (
    Key,
    digest,
    group_prefix,
    is_plain,
    opens_socket,
    request_key,
    unpacked_body,
)
from stillweb.snapshots.identity.recognising import (
    Recogniser,
    depends_on_secret,
    drawn_secrets,
    is_secret_relevant,
    other_secrets,
    pseudonyms_in,
)
from stillweb.snapshots.identity.rules import Issued, reduce_request, rules_that_join
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import path_prefix, site_prefix
from stillweb.snapshots.request import CONDITIONAL, SAFE_METHODS, Headers, Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT
from stillweb.snapshots.secrets.redact import MASK, PREFIX, mask
from stillweb.snapshots.warc.messages import set_cookies

RIVALS = 2  # answers named in a miss for want of confidence
OTHER_SECRET = 0.7  # the confidence of an answer that was recorded for another key or token
# the rule that an archive stored method and body as a query, which may lack some of them
POSTED = "post-as-get"
REDACTED = "redacted"  # the rule that another secret is the same request
TIMED = "timestamp"  # the rule that another moment is the same request, where it was the present
STILL = 0.9999  # that a file stays as it is


@dataclass(slots=True)
class StoredForm:
    """A request as the recorder would have stored it, with recorded values in place of those that its client drew or keeps secret."""

    request: Request
    key: Key
    candidates: list[Capture]  # the captures with its key
    rules: list[str] = field(default_factory=list)  # those by which it is another request than was asked
    ids: Mapping[str, str] = field(default_factory=dict)  # the client's new ids, by the recorded ones
    most: float = 1.0  # what an answer is worth at most


# The capture that answers a long poll, and whether it is due; of a request, the recorded session followed, and the captures with its key
Poll = Callable[[Request, str, Sequence[Capture]], tuple[Capture, bool, bool] | None]


def _apart(o: Observation, past: tuple[History, int], parts: Parts) -> tuple[int, bool]:
    """Return how far an observation is from a request: parts that differ, and whether its past is another one."""
    differ = sum([o.parts.get(name) != parts.get(name) for name in o.parts.keys() | parts.keys()])
    return differ, not o.follows(past)


def _rivals(
    ranked: list[tuple[int, float, Capture]], why: Callable[[int], list[str]], confidence: float
) -> list[Rival]:
    """Return the likeliest answers to a request; the first of `ranked` has a `confidence` of its own."""
    return [
        Rival(capture, chance if rank else confidence, why(answer))
        for rank, (answer, chance, capture) in enumerate(ranked)
    ]


def _of_top_layers(captures: list[Capture]) -> list[Capture]:
    """Return the captures that no whole answer of a higher layer, with equal values of Vary, replaces."""
    top: dict[object, int] = {}
    for c in captures:
        layer = layer_of(c.filename)
        for what in ((c.vary, True),) if c.status in PARTIAL else ((c.vary, True), (c.vary, False)):
            top[what] = max(top.get(what, 1), layer)
    return [c for c in captures if layer_of(c.filename) >= top[c.vary, c.status in PARTIAL]]


def _with_conditions_of(recorded: Headers, asked: Headers) -> Headers:
    """Return header fields with the recorded conditions in place of their own: both came to the same."""
    own = [(n, v) for n, v in asked if n.lower() not in CONDITIONAL]
    return (*own, *((n, v) for n, v in recorded if n.lower() in CONDITIONAL))


class Matcher:
    """Finds the likeliest capture for a request, and says how likely it is. Reads the index as it is asked.

    Sessions of several threads may share a matcher; a session belongs to one thread at a time.
    """

    def __init__(self, snapshot: Store) -> None:
        self.snapshot = snapshot
        self.rules = snapshot.rules
        self._accepts = Cache[str, AcceptLevel](AcceptLevel.read)
        self._keys = Cache[str, Key]()
        self.lock = threading.RLock()
        self._groups = Cache[str, Group](self._group)
        self._sites: dict[str, SiteEvidence] = {}
        # of sites that were not recorded: clients ask for as many as they like
        self._bare = Cache[str, SiteEvidence]()
        # by site, that its model is learnt in no time
        self._light = Cache[str, bool](lambda site: is_light(snapshot.prefix(site_prefix(site))))
        self._reading: dict[str, threading.Lock] = {}  # by site
        self.peek = CaptureFacts(snapshot)
        self.failing = FailureLookup(snapshot, self.rules, self.issued)
        self.socket_messages = SocketMessages(snapshot)
        self.drawing = drawn_ids.Drawing(
            snapshot.prefix,
            snapshot.read,
            snapshot.read_request,
            self.group,
            lambda request, capture: self._rule(request, capture) not in (None, "irrelevant"),
        )

    def session(self, name: str = "default") -> Session:
        """Return a fresh session, before any event."""
        return Session(name)

    def evidence(self, site: str) -> SiteEvidence:
        """Return the model of a site, learnt when first asked for."""
        found = self._known(site)
        if found is None:
            with self.lock:
                reading = self._reading.setdefault(site, threading.Lock())
            with reading:  # not under `lock`: other sites are answered meanwhile
                found = self._known(site)
                if found is None:
                    found = SiteEvidence(self, site)
                    if found.size:
                        self._sites[site] = found
                    else:
                        self._bare.keep(site, found)
            self._reading.pop(site, None)
        return found

    def _known(self, site: str) -> SiteEvidence | None:
        return self._sites.get(site) or self._bare.get(site)

    def states(self) -> dict[Place, str]:
        """Map each capture's place to the label of its session's state before it, as in `Lookup.state`; static files have none."""
        sites = sorted({site_of(c.url) for c in self.snapshot.prefix("")})
        learnt = [one.learnt for one in map(self.evidence, sites) if not one.quiet]
        targets = (
            (known, known.model.targets[k])
            for known in learnt
            for keys in known.beside.values()
            for k in keys
        )
        return {
            known.captures[o.capture].place: o.history.label(o.place)
            for known, t in targets
            for o in t.observations
        }

    def forget(self, most: int) -> None:
        """Drop the evidence of sites, the first learnt first, until that of the others is of at most `most` captures.

        The last is kept. Evidence that was dropped is learnt again when it is asked for.
        """
        with self.lock:
            while len(self._sites) > 1 and sum(one.size for one in list(self._sites.values())) > most:
                del self._sites[next(iter(self._sites))]

    def learnt(self, request: Request) -> bool:
        """Return True if a request can be answered at once: the model of its site, and the captures of its path, are read."""
        site = site_of(request.url)
        found = self._known(site)
        if found is not None and (found.ready or (found.quiet and self._only(request))):
            compared = not request.body or self.group(request.url).compared
            return compared and (self._light[site] or not self.drawing.searches(request))
        return self._light[site]

    def _only(self, request: Request) -> bool:
        """Return True for a plain request with one capture, for which no model is asked where nothing varies."""
        return is_plain(request) and len(self._same(request, self._key(request))) == 1

    # Lookup

    def lookup(
        self,
        request: Request,
        session: Session | None = None,
        *,
        accept: str = "rule",
        min_confidence: float = SERVED,
        at: str = "",
        poll: Poll | None = None,
    ) -> Lookup:
        """Return the likeliest answer to a request of a session. Raises UsageError for an unknown `accept`.

        The session moves only when it is told that the answer was given (`Session.answered`), and by a miss.
        `at`, 17 digits, is the moment that the client names: the newest answer that is no later counts, else the
        first (RFC 7089, 4.5.3). What `poll` returns for a long poll is its answer, or `HANGS` where that is not due.
        """
        request = request.derived("signed in", Request.signed_in)
        own = session if session is not None else self.session("none")
        own.matcher, own.missed_site = self, None
        lookup = self._lookup(request, own, accept, min_confidence, at, poll)
        own.found = lookup.capture
        if lookup.verdict == MISS and session is not None and not lookup.irrelevant:
            self.note_missed(own, lookup.request)
        return lookup

    def _lookup(
        self,
        asked: Request,
        session: Session,
        accept: str,
        min_confidence: float,
        at: str,
        poll: Poll | None,
    ) -> Lookup:
        accepted, site = self._accepts[accept], site_of(asked.url)
        form = self._form(asked)
        alone = not at and self._alone(form, session, site)
        if alone and accepts(asked, form.candidates[0]) and self._in_language(asked, form.candidates[0]):
            lookup = self._lookup_of(asked, form.key, form.candidates[0], None, 1.0)
            lookup.inert, lookup.matcher, lookup.grounds = True, self, lambda: ["recorded once"]
            return lookup
        past = session.past.get(site) or SessionPast()
        form = self._as_recorded(form, session, past, accepted)
        polled = None
        if poll and not at:
            polled = self._polled(form, session.following(site).session, accepted, poll)
        if polled is not None and polled.verdict == HANGS:
            return polled
        lookup = polled or self._chosen(form, past, session, accepted, at)
        if polled is None:
            if lookup.capture is None and accepted.by_rule and not (form.candidates or at):
                drawn = self._with_new_draws(form, session)
                if drawn is not form:
                    form, lookup = drawn, self._chosen(drawn, past, session, accepted, at)
            lookup.inert = alone and form.request is asked and lookup.capture is not None
        lookup.ids, lookup.matcher, lookup.state = form.ids, self, past.history.label(len(past.history))
        if lookup.capture is not None:
            self._note_stand_ins(lookup, lookup.capture, asked, session)
            if form.rules:
                joined_by = [*(lookup.rule or "").split("+"), *form.rules]
                lookup.rule = "+".join(dict.fromkeys(filter(None, joined_by)))
                lookup.verdict = f"rule:{lookup.rule}"
            lookup.confidence = min(lookup.confidence, form.most)
        doubted = lookup.confidence < SURE
        refused = accepted.unambiguous and doubted
        if lookup.capture is not None and (lookup.confidence < min_confidence or refused):
            lookup.capture, lookup.verdict, lookup.rule = None, MISS, None
            lookup.why = (*lookup.why, "ambiguous" if refused else "confidence")
        lookup.ambiguous = lookup.capture is not None and doubted
        if lookup.capture is None:
            failed = None if form.candidates else self.failing.find(form.request, form.key, accepted.level)
            if failed is not None:
                lookup.failed, lookup.verdict = failed, failed.failure.verdict
        return lookup

    def _polled(self, form: StoredForm, follows: str, accepted: AcceptLevel, poll: Poll) -> Lookup | None:
        """Return the lookup of a long poll, by what `poll` says of it; None for any other request."""
        capture, due, overtaken = poll(form.request, follows, form.candidates) or (None, True, False)
        if capture is None:
            return None
        same = capture.key == form.key.canonical
        rule = self._rule(form.request, capture) if accepted.by_rule and not same else None
        if not (same or rule):
            return None
        if not due:
            return Lookup(HANGS, None, rule, form.key, form.request, ambiguous=overtaken)
        lookup = self._lookup_of(form.request, form.key, capture, rule, DOUBTED if overtaken else 1.0)
        lookup.polled = True
        return lookup

    def _note_stand_ins(self, lookup: Lookup, capture: Capture, asked: Request, session: Session) -> None:
        """Note the client's own secrets, and what a sign-in sends back, that stand for recorded ones in what the session asks then."""
        joined_by = (lookup.rule or "").split("+")
        if REDACTED in joined_by:
            lookup.secrets = drawn_secrets(asked, lookup.request, self.group(capture.url).request(capture))
            if lookup.secrets and session.secrets is not None:
                known = session.secrets.copy()
                known.draw(lookup.secrets)
                lookup.request = known.request(asked)
        if rules := [rule for rule in self.rules.rules if rule.returns and rule.id in joined_by]:
            both = lookup.request, self.group(capture.url).request(capture)
            drew = echoes.echoes(*(echoes.repeated_values(one, rules) for one in both))
            lookup.returned = {one.recorded: one.own for one in drew if not one.mirrored}

    def _alone(self, form: StoredForm, session: Session, site: str) -> bool:
        """Return True if only the kind or language asked for could speak against the only capture of a plain request, and nothing follows from it."""
        request = form.request
        if len(form.candidates) != 1 or not is_plain(request) or session.drawn_ids:
            return False
        capture = form.candidates[0]
        if (
            capture.exact != form.key.exact
            or capture.vary
            or self.peek.cut(capture)
            or capture.status in PARTIAL
            or has_client_fields(request.headers)
        ):
            return False
        lasting = is_static(capture.method, capture.mime, capture.status)
        if not lasting and (site in session.past or not self.evidence(site).quiet):
            return False
        # else the client is another one from now on, or it was recorded by one that says more
        return not capture.personal or not (
            self.peek.gives(capture) or has_client_fields(self.peek.fields(capture))
        )

    def _in_language(self, request: Request, capture: Capture) -> bool:
        """Return True unless a request and that of a page name other languages, which many servers heed without Vary."""
        wanted = request.header("accept-language")
        if wanted is None or is_static(capture.method, capture.mime, capture.status):
            return True
        return fields_of(self.peek.fields(capture)).get("accept-language", wanted) == wanted

    def _chosen(
        self, form: StoredForm, past: SessionPast, session: Session, accepted: AcceptLevel, at: str
    ) -> Lookup:
        """Return the lookup of the likeliest capture."""
        request, key, site = form.request, form.key, site_of(form.request.url)
        evidence = self.evidence(site)
        following, page = session.following(site), session.pages.get(site)
        now = LookupState(
            request, key, session.name, following, page, self.snapshot.read_request, self.peek, at
        )
        if key.canonical in evidence.files:
            return self._file(evidence.files[key.canonical], now, accepted)
        asked = evidence.model_request(request, past.given, served=session.served)
        if words := session.socket_words.get(site):
            asked.parts["~words"] = repr(sorted(words.items()))
        asked.parts |= evidence.spelling(request, asked)
        learnt = evidence.learnt
        own = learnt.beside.get(asked.normal)
        if not own and key.canonical in learnt.damaged:
            return self._lookup_of(request, key, learnt.damaged[key.canonical][0], None, 1.0)
        targets = [learnt.model.targets[k] for k in own or evidence.masked(request)]
        captures = {o.capture: learnt.captures[o.capture] for t in targets for o in t.observations}
        allowed = {c.place for c in self._fit(list(captures.values()), now, accepted)}
        if not allowed:
            return Lookup(MISS, None, None, key, request, why=tuple(now.why))
        masked = 1.0
        if not own:  # any of those that are answered otherwise may be the one
            label = evidence.equality.read_label
            answers = {frozenset(label(captures[o.capture]) for o in t.observations) for t in targets}
            masked = OTHER_SECRET / max(1, len(answers))
        # of the very same question, else of one that comes to the same; those that differ in secrets come in turn
        target = min(
            (t for t in targets if any(captures[o.capture].place in allowed for o in t.observations)),
            key=lambda t: (
                t.event.key != asked.event.key,
                not own and (t.event.key in past.last, t.observations[0].capture),
            ),
        )
        recorded: dict[int, list[tuple[Observation, Capture]]] = defaultdict(list)  # by answer
        for o in target.observations:
            if (capture := captures[o.capture]).place in allowed:
                recorded[o.answer].append((o, capture))
        then = learnt.model.past(target.event.key, past.history)
        chances = learnt.model.predict(
            target.event.key, then, past.last.get(target.event.key), asked.parts, session.name
        )
        if at:  # the client named the moment: only answers of it share the chance
            whole = sum(chances.get(one, 0.0) for one in recorded)
            chances = {one: chances.get(one, 0.0) / whole if whole else 1 / len(recorded) for one in recorded}
        unlike: dict[int, tuple[float, str]] = {}  # by answer, its least likely block
        for answer, given in recorded.items():
            if answer in chances and chances[answer] < 1:
                unlike[answer] = learnt.blocks.least_likely(given[0][1], target.event, then)
                chances[answer] -= priors.BLOCK * max(0.0, chances[answer] - unlike[answer][0])
        ranked = sorted(((a, c) for a, c in chances.items() if a in recorded), key=lambda pair: -pair[1])
        for answer, chance in ranked:
            given = recorded[answer]
            far = [(_apart(o, then, asked.parts), c) for o, c in given]
            least = min(distance for distance, _ in far)
            capture = self._nearest_of([c for distance, c in far if distance == least], now)
            rule, varies = None, self._varies(given, capture, asked.parts)
            if varies and accepted.level < LEVELS.index("varies"):
                continue
            if capture.key != key.canonical:
                rule = self._rule(request, capture)
                if rule is None:
                    continue
            lookup = self._lookup_of(request, key, capture, rule, chance * masked)
            if varies and not rule:
                lookup.verdict = f"varies:{varies}"
            lookup.confidence *= now.worth(capture)
            if chance < 1 and capture.status in PASSING:
                lookup.confidence = min(lookup.confidence, MOST)
            # nothing here may hold the lookup: a cycle keeps all that led to it until the next full collection
            why = partial(grounds, learnt.model, target.event.key, then, asked.parts, unlike=unlike)
            lookup.grounds = partial(why, answer)
            if lookup.confidence < 1:
                rivals = [(answer, 0.0, capture)]
                rivals += [(a, c * masked, recorded[a][-1][1]) for a, c in ranked if a != answer]
                lookup.rivals = partial(_rivals, rivals[:RIVALS], why)
            return lookup
        return Lookup(MISS, None, None, key, request)

    @staticmethod
    def _varies(given: Sequence[tuple[Observation, Capture]], chosen: Capture, parts: Parts) -> str:
        """Return the field of Vary, or "credentials", that is another one than was recorded with `chosen`; "" for none."""
        own = next(o.parts for o, c in given if c is chosen)
        differ = (p for p in sorted(own.keys() | parts.keys()) if own.get(p) != parts.get(p))
        names = (
            "credentials" if p == WHO else p.split(" ")[1]
            for p in differ
            if p == WHO or p.startswith("~vary ")
        )
        return next(names, "")

    def _file(self, captures: list[Capture], now: LookupState, accepted: AcceptLevel) -> Lookup:
        """Return the lookup of a file that stays as it is."""
        fit = self._fit(captures, now, accepted)
        if not fit:
            return Lookup(MISS, None, None, now.key, now.request, why=tuple(now.why))
        capture = self._nearest_of(fit, now)
        lookup = self._lookup_of(now.request, now.key, capture, None, STILL)
        lookup.confidence *= now.worth(capture)
        return lookup

    def _fit(self, captures: list[Capture], now: LookupState, accepted: AcceptLevel) -> list[Capture]:
        """Return the captures that may answer, by what the request itself says."""
        by_rule = accepted.by_rule and not opens_socket(now.request)
        fit = [c for c in captures if by_rule or c.key == now.key.canonical]
        if accepted.level == 0:
            fit = [c for c in fit if c.exact == now.key.exact]
        secret = self._same_secrets(fit, now)
        if fit and not secret:
            now.why.append("password")
        fit = captures_that_fit(_of_top_layers(secret), now)
        if now.at and fit:
            return as_of(fit, now.at) or as_of(fit, min(c.timestamp.ljust(17, "0") for c in fit))
        return fit

    def _rule(self, request: Request, capture: Capture) -> str | None:
        """Return the rules that join a request with a capture; None where none do."""
        group, issued = self.group(request.url), self.issued(request)
        rule = rules_that_join(request, group.request(capture), self.rules.rules, issued)
        return "irrelevant" if rule is None and irrelevant(request) else rule

    def _same_secrets(self, captures: list[Capture], now: LookupState) -> list[Capture]:
        """Return the captures whose secrets are not proved to be others than those of a request."""
        request, key = now.request, now.key.canonical
        if PREFIX not in request.url and PREFIX.encode() not in unpacked_body(request):
            return captures
        group = self.group(request.url)
        return [c for c in captures if c.key == key or not other_secrets(request, group.request(c))[1]]

    def _nearest_of(self, captures: Sequence[Capture], now: LookupState) -> Capture:
        """Return, of captures with equal answers, the one nearest to the request and to where the session is."""
        own = now.followed_among(list(captures))
        end = now.followed.end
        return min(
            captures,
            key=lambda c: (
                c.exact != now.key.exact,
                c.key != now.key.canonical,
                c.session != own,
                c.begin < end,
                abs(c.begin - end),
                c.timestamp,
                c.place,
            ),
        )

    @staticmethod
    def _lookup_of(
        request: Request, key: Key, capture: Capture, rule: str | None, confidence: float
    ) -> Lookup:
        verdict = f"rule:{rule}" if rule else "exact" if capture.exact == key.exact else "canonical"
        return Lookup(verdict, capture, rule, key, request, confidence)

    def issued(self, request: Request) -> Issued:
        """Return where a request holds values that its site gave out."""
        return issued_in(request, self.evidence(site_of(request.url)).known_issued(request))[0]

    # Candidates

    def _key(self, request: Request) -> Key:
        """Return the key of a plain request."""
        return self._keys.get(request.url) or self._keys.keep(request.url, request_key(request))

    def group(self, url: str) -> Group:
        """Return all captures of the path of a URL."""
        with self.lock:
            return self._groups[group_prefix(url)]

    def _group(self, prefix: str) -> Group:
        captures = {c.place: c for c in self.snapshot.candidates(prefix)}
        for mark in "?;":
            captures.update((c.place, c) for c in self.snapshot.prefix(prefix + mark))
        return Group(captures.values(), self.snapshot.read_request)

    def _same(self, request: Request, key: Key) -> list[Capture]:
        """Return the captures with the same canonical key."""
        if request.method == "GET":
            found = self.snapshot.candidates(key.urlkey)
            return [c for c in found if c.key == key.canonical]
        # The index keys of other methods lose a part of the body and depend on its order: the path decides.
        return self.group(request.url).by_key.get(key.canonical, [])

    def twins(self, request: Request) -> list[Capture]:
        """Return the captures that differ from a request in nothing but secrets and what rules leave out."""
        group = self.group(request.url)
        known = self.evidence(site_of(request.url)).known_issued(request)

        def left(one: Request, stored: bool) -> str:
            return digest(reduce_request(one, self.rules.rules, issued_in(one, known)[0], stored=stored))

        wanted = request.derived(("left", known), lambda one: left(one, False))
        # a capture's remainder is kept: to parse large recorded bodies at each miss took 200 ms
        return [
            c
            for c in group.with_method(request.method)
            if group.derived(c, ("left", known), lambda one: left(one, True)) == wanted
        ]

    def _masked(self, request: Request) -> Iterable[Capture]:
        """Return the captures whose path differs from that of a request in secrets alone."""
        path = mask(request).url.partition("?")[0]
        before, secret, _ = path.partition(MASK)
        return (
            c
            for c in (self.snapshot.prefix(path_prefix(before)) if secret else ())
            if PREFIX in c.url
            and c.method == request.method
            and PSEUDONYM_TEXT.sub(MASK, c.url.partition("?")[0]) == path
        )

    def answers_since(self, served: Sequence[Capture], values: list[str]) -> int | None:
        """Return how many later answers to the same request gave other values; None if not all of these `values` were served."""
        missing, later, since = set(values), 0, Counter[str]()
        for capture in reversed(served):
            if not missing:
                break
            text = text_of(self.snapshot.read_start(capture, LIMIT + 1))
            if shown := {v for v in missing if is_shown_in(v, text)}:
                missing -= shown
                later = max(later, since[capture.key])
            since[capture.key] += 1
        return None if missing else later

    def foresee(self, request: Request, session: Session, accept: str) -> Request:
        """Compute what a lookup derives of a request that remembers; return it as the recorder would have stored it.

        `session` is a copy of the client's (`Session.copied`): this may take long, in a thread beside lookups.
        """
        request = request.derived("signed in", Request.signed_in)
        site = site_of(request.url)
        past = session.past.get(site) or SessionPast()
        stored = self._as_recorded(self._form(request), session, past, self._accepts[accept]).request
        evidence = self.evidence(site)
        evidence.foresee(evidence.model_request(stored, Given()))
        self.twins(stored)
        self.drawing.ids_drawn(stored, session, time.time())
        self.group(stored.url).compared = True
        return stored

    def _form(self, request: Request) -> StoredForm:
        """Return a request as it was sent, with the captures of its key."""
        key = self._key(request) if is_plain(request) else request_key(request)
        return StoredForm(request, key, self._same(request, key))

    def _rewritten(
        self,
        form: StoredForm,
        request: Request,
        rules: Iterable[str] = (),
        ids: Mapping[str, str] = drawn_ids.NONE,
        most: float = 1.0,
    ) -> StoredForm:
        """Return the form with another request in its place, which `rules` join with it; of that an answer is worth `most`."""
        if request is form.request:
            return form
        new = self._form(request)
        new.rules, new.ids, new.most = [*form.rules, *rules], {**form.ids, **ids}, min(form.most, most)
        return new

    def _as_recorded(
        self, form: StoredForm, session: Session, past: SessionPast, accepted: AcceptLevel
    ) -> StoredForm:
        """Return a request as the recorder would have stored it, by what its session has sent and been given before."""
        if accepted.by_rule and session.returned and not form.candidates:
            request = echoes.as_recorded(form.request, session.returned)
            form = self._rewritten(form, request, [rule.id for rule in self.rules.rules if rule.returns])
        if accepted.by_rule and not form.candidates:
            request, new = self.drawing.with_recorded_ids(form.request, session)
            most = drawn_ids.highest_confidence(form.request, {**session.drawn_ids, **new})
            form = self._rewritten(form, request, [drawn_ids.RULE], new, most)
        minded = depends_on_secret(form.request, given=bool(past.given.givers))
        if not form.candidates or minded or any(is_secret_relevant(c) for c in form.candidates):
            request = self._recognised(form.request, form.candidates, session, minded)
            if session.secrets is not None and session.secrets.has_drawn_secret(request):
                form = self._rewritten(form, request, [REDACTED], most=drawn_ids.DRAWN)
            else:
                form = self._rewritten(form, request)
        unknown = accepted.by_rule and not form.candidates
        if unknown and (address := self.group(form.request.url).posted(form.request)):
            request = Request("GET", address, form.request.headers)
            form = self._rewritten(form, request, [POSTED], most=drawn_ids.DRAWN)
        return form

    def _with_new_draws(self, form: StoredForm, session: Session) -> StoredForm:
        """Return the form with recorded values in place of ids that its client drew for it, and of the moment that it names."""
        now = time.time()
        if new := self.drawing.ids_drawn(form.request, session, now):
            request = drawn_ids.as_recorded(form.request, new)
            most = drawn_ids.highest_confidence(form.request, new)
            form = self._rewritten(form, request, [drawn_ids.RULE], new, most)
        timed = self.drawing.with_recorded_moment(form.request, session, now)
        return form if timed is None else self._rewritten(form, timed, [TIMED], most=drawn_ids.DRAWN)

    def _recognised(self, request: Request, found: list[Capture], session: Session, minded: bool) -> Request:
        """Return the request with its secrets by their pseudonyms; itself where it has none.

        Those in header fields of others count where they are `minded`.
        """
        known = session.secrets
        group = self.group(request.url)
        fields = group.secret_fields(request.method) if b"=" in (request.body or b"") else set()
        if known is None and mask(request) is request and not fields:
            return request
        names: dict[str, int] = {}
        alike = (
            found
            or self.twins(request)
            or (group.with_method(request.method) if fields else self._masked(request))
        )
        for capture in alike:
            counts = minded or is_secret_relevant(capture)

            def said(stored: Request, capture: Capture = capture, counts: bool = counts) -> set[str]:
                return pseudonyms_in(
                    self.snapshot.read_request(capture) if counts else stored, headers=counts
                )

            for name in group.derived(capture, ("pseudonyms", counts), said):
                names[name] = max(names.get(name, 0), layer_of(capture.filename))
        if known is None:
            if not names:
                return request
            known = session.secrets = Recogniser()
        known.know(names, fields)
        return known.recognised(request)

    def nearest(self, lookup: Lookup) -> list[NearCapture]:
        return nearest(lookup)

    # Sessions

    def note(self, session: Session, request: Request, capture: Capture, trust: float) -> None:
        """Note that a session was answered by a capture, which was right with the chance `trust`."""
        site = site_of(request.url)
        evidence = self.evidence(site)
        head, still = response_facts(self.snapshot, capture), evidence.is_static(capture)
        deaf = still or (evidence.quiet and site not in session.past)
        if deaf and not set_cookies(head.headers) and not key_of_order(request):
            return
        past = session.at(site)
        label = evidence.equality.label(capture)
        if request.method not in SAFE_METHODS and request.conditional():
            request = replace(
                request, headers=_with_conditions_of(self.peek.fields(capture), request.headers)
            )
        asked = evidence.model_request(
            request, past.given, served=session.served, response=head, answer=label
        )
        if not still:
            self._note(evidence, past, replace(asked, event=replace(asked.event, trust=trust)), head)
        keep_given(past.given, request, head, asked)

    def note_live(self, session: Session, request: Request, response: Response) -> None:
        """Note that a live server answered instead."""
        if session.secrets is not None:
            request = session.secrets.request(request)
        site = site_of(request.url)
        evidence, past = self.evidence(site), session.at(site)
        if session.missed_site == site:
            past.history.cut(len(past.history) - 1)
        session.missed_site = None
        key = request_key(request).canonical
        if key in evidence.files:
            return
        asked = evidence.model_request(request, past.given, served=session.served, response=response)
        answer = evidence.label_live(asked.event.key, response)
        self._note(evidence, past, replace(asked, event=replace(asked.event, answer=answer)), response)
        keep_given(past.given, request, response, asked)

    def note_missed(self, session: Session, request: Request) -> None:
        """Note that a request had no answer; it may have changed something all the same."""
        site = site_of(request.url)
        key = request_key(request).canonical
        evidence = self.evidence(site)
        if key in evidence.files or (static_name(request.url) and request.method in ("GET", "HEAD")):
            return
        past = session.past.get(site) or SessionPast()
        asked = evidence.model_request(request, past.given, served=session.served)
        if asked.event.kind == "write" and request.header("referer") in session.previous_pages.values():
            # what a page sends as it is left (a draft, a beacon) comes or not by chance, in the recording as well
            asked.event = replace(asked.event, kind="weak write")
        if self._note(evidence, past, asked):
            session.past[site] = past
            session.missed_site = site

    @staticmethod
    def _note(
        evidence: SiteEvidence, past: SessionPast, asked: ModelRequest, head: Response | None = None
    ) -> bool:
        """Append an event, unless it is one on which nothing depends; return True if it was."""
        event = asked.event
        if head is not None:
            past.last[event.key] = event.answer
        if event.kind == "beacon" or (event.safe and event.kind in evidence.forgets):
            return False
        evidence.note(past, event)
        return True
