"""Which capture answers a request: the ladder exact, canonical, varies, rule, and otherwise a miss."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.identity.keys import Key, is_plain, parse, request_key
from stillweb.snapshots.identity.rules import RuleSet, joining
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import LONGEST_KEPT
from stillweb.snapshots.matching import drawing
from stillweb.snapshots.matching.accepting import LEVELS, Accept
from stillweb.snapshots.matching.changers import Changers
from stillweb.snapshots.matching.choosing import choose, effects_open
from stillweb.snapshots.matching.evident import evident
from stillweb.snapshots.matching.failing import Failing
from stillweb.snapshots.matching.hanging import Hanging, hangs
from stillweb.snapshots.matching.layers import layer_of
from stillweb.snapshots.matching.lookup import HANGS, MISS, Lookup, Near
from stillweb.snapshots.matching.peeking import Peek
from stillweb.snapshots.matching.polling import TRANSPORT, Polling, Turn, unused
from stillweb.snapshots.matching.recognising import Recogniser, guarded, minds, other_secrets, pseudonyms_in
from stillweb.snapshots.matching.sessions import Session
from stillweb.snapshots.matching.situation import Situation
from stillweb.snapshots.matching.spoken import Spoken
from stillweb.snapshots.matching.unrecorded import note_change
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import PREFIX, mask
from stillweb.snapshots.states.acceptance import accepts
from stillweb.snapshots.states.answers import LIMIT
from stillweb.snapshots.states.conditions import read
from stillweb.snapshots.states.groups import CLOCKS, Group, group_prefix
from stillweb.snapshots.states.issued import SHORTEST, named_values, shown_in, text_of
from stillweb.snapshots.states.senders import SIGNED, SILENT, bearing
from stillweb.snapshots.states.slots import telling_of
from stillweb.snapshots.states.trails import Trail

HOT = 1 << 15  # decisions remembered
GROUPS = 1 << 11  # paths remembered


class Store(Protocol):
    """What a matcher needs of a snapshot."""

    @property
    def rules(self) -> RuleSet: ...
    def captures(self) -> Iterator[Capture]: ...
    def changing(self, site: str | None = None, /) -> Iterator[Capture]: ...
    def candidates(self, urlkey: str, /) -> tuple[Capture, ...]: ...
    def failures(self, address: str | None = None, /) -> Iterable[Failure]: ...
    def metadata_addresses(self, start: str, /) -> Iterable[str]: ...
    def prefix(self, start: str, /) -> Iterator[Capture]: ...
    def read(self, capture: Capture, /) -> Response: ...
    def read_start(self, capture: Capture, size: int, /) -> Response: ...
    def said_at(self, uri: str, /) -> Iterable[dict[str, Any]]: ...
    def head(self, capture: Capture, /) -> Response: ...
    def read_request(self, capture: Capture, /) -> Request: ...


class Matcher:
    """Finds the capture that answers a request. Reads the index as it is asked.

    Sessions of several threads may share a matcher; a session belongs to one thread at a time.
    """

    def __new__(
        cls, snapshot: Store, rules: RuleSet | None = None, *, evidence: bool | None = None
    ) -> Matcher:
        """Return a matcher; one that weighs the evidence, if `evidence` or the environment's STILLWEB_EVIDENCE says so."""
        if cls is Matcher and (os.environ.get("STILLWEB_EVIDENCE") == "1" if evidence is None else evidence):
            # by its name: until it takes this one's place, the evidence matcher is built upon it
            matcher: type[Matcher] = import_module("stillweb.snapshots.evidence.matcher").EvidenceMatcher
            return object.__new__(matcher)
        return object.__new__(cls)

    def __init__(
        self, snapshot: Store, rules: RuleSet | None = None, *, evidence: bool | None = None
    ) -> None:
        self.snapshot = snapshot
        self.rules = snapshot.rules if rules is None else rules
        self._accepts: dict[str, Accept] = {}
        self._hot: dict[str, tuple[str, Lookup]] = {}
        self._keys: dict[str, Key] = {}
        self._lock = threading.RLock()
        self._groups: OrderedDict[str, Group] = OrderedDict()
        self._changers: dict[str, Changers] = {}
        self._changing: dict[str, bool] = {}
        self.peek = Peek(snapshot.read_request, snapshot.head)
        self.failing = Failing(snapshot, self.group)
        self.spoken = Spoken(snapshot)
        self.hanging = Hanging(self.group, self.spoken.writes, snapshot.failures)
        self.drawing = drawing.Drawing(snapshot.prefix, snapshot.read, self.group)
        self.polling = Polling(self.group, snapshot.metadata_addresses)

    def session(self, name: str = "default") -> Session:
        """A fresh session, before any change."""
        return Session(name)

    def lookup(
        self,
        request: Request,
        session: Session | None = None,
        *,
        accept: str = "rule",
        patient: bool = False,
        min_confidence: float = 0.0,
    ) -> Lookup:
        """The answer to a request of a session. Raises UsageError for an unknown `accept`.

        On a miss the session knows that a change may have happened that was not recorded; otherwise the
        session moves only when it is told that the answer was given (`Session.answered`). Who is `patient` is told of a long poll
        that it is not answered yet. `min_confidence` is for the matcher that weighs the evidence.
        """
        request = request.signed_in()
        plain = is_plain(request)
        hot = self._hot.get(request.url) if plain else None
        if (
            hot is not None
            and accept == "rule"
            and (session is None or not hot[0] or hot[0] not in session.sites)
            and not (hot[0] and bearing(request.headers) > _borne(session, hot[0]))
            and (hot[1].capture is None or accepts(request, hot[1].capture))
        ):
            return hot[1]
        return self._lookup(request, plain, session, accept, patient)

    def _lookup(
        self, request: Request, plain: bool, session: Session | None, accept: str, patient: bool
    ) -> Lookup:
        accepted = self._accepts.get(accept)
        if accepted is None:
            accepted = self._accepts[accept] = Accept.read(accept)
        key = self._key(request) if plain else request_key(request)
        site = site_of(request.url)
        state = session.sites.get(site) if session is not None else None
        given = session is not None and site in session.given
        candidates = self._same(request, key)
        asked, ids = request, drawing.NONE
        if session is not None and accepted.level >= LEVELS.index("rule") and not candidates:
            request, ids = self.drawing.recorded(request, session)
            if request is not asked:
                key = request_key(request)
                candidates = self._same(request, key)
        drawn = request is not asked
        polled = TRANSPORT in request.url and session is not None and accepted.level >= LEVELS.index("rule")
        poll = self.hanging.next(request, session, candidates) if session is not None else None
        if poll is not None and session is not None and patient and hangs(poll, session):
            return Lookup(HANGS, None, None, False, "", key, request)
        alone = None
        if plain and len(candidates) == 1 and state is None and not polled and not drawn and poll is None:
            alone = candidates[0]
        spoken = self.spoken if self.spoken.on(site) else None
        if (
            alone is not None
            and (spoken is None or read(alone.state).any)
            and evident(request, key, alone, _borne(session, site))
        ):
            return self._evidently(request, key, alone, site)
        minded = bool(candidates) and minds(request, given=given)
        if not candidates or minded or any(guarded(c) for c in candidates):
            known = self._recognised(request, candidates, session, minded)
            if candidates:
                request = known if known is request else replace(request, headers=known.headers)
            elif known is not request:
                request, key = known, request_key(known)
                candidates = self._same(request, key)
        now = Situation(
            request,
            key,
            state,
            session.following(site) if session is not None else None,
            self.snapshot.read_request,
            self.snapshot.read,
            self.peek,
            session.pages.get(site) if session is not None else None,
            session.name if session is not None else "",
            given,
            session is not None and session.known(site),
            session.served if session is not None else (),
            session.trail(site) if session is not None else Trail(),
            session,
            accepted.level >= LEVELS.index("varies"),
            guesses=session.guesses if session is not None else (),
            spoken=spoken,
        )
        turn, rule = self._polled(request, key, session) if polled and session is not None else (None, None)
        capture: Capture | None
        if turn is not None:
            capture, now.unsure = turn.capture, turn.last or not turn.due
        else:
            capture = choose([poll.capture] if poll else candidates, now) if candidates else None
        if capture is not None:
            verdict = f"rule:{rule}" if rule else "exact" if capture.exact == key.exact else "canonical"
            if now.header is not None:
                verdict = f"varies:{now.header}"
        elif accepted.level >= LEVELS.index("rule"):
            capture, rule = self._by_rule(request, key, now, session)
            verdict = f"rule:{rule}"
            very = self._very(candidates, rule, now) if rule is not None else None
            if very is not None:
                capture, rule = very, None
                verdict = "exact" if very.exact == key.exact else "canonical"
            if capture is not None and rule is not None and "redacted" in rule.split("+"):
                # a secret in a body may be another one, such as a wrong password; some prove that they are
                stored = self.group(request.url).request(capture)
                now.unsure = now.unsure or bool(request.body or other_secrets(request, stored)[0])
        if capture is not None and drawn:
            now.unsure = True
            rule = "+".join(filter(None, (rule, drawing.RULE)))
            verdict = f"rule:{rule}"
        if capture is not None and accepted.level == 0 and verdict != "exact":
            capture = None
        if capture is not None and accepted.unambiguous and now.unsure:
            capture = None
            now.why.append("ambiguous")
        told = str(state) if state is not None else ""
        if capture is None:
            failed = None if candidates else self.failing.find(request, key, accepted.level)
            missed = Lookup(
                failed.failure.verdict if failed else MISS, None, None, False, told, key, request, failed=failed,
                why=tuple(now.why), matcher=self, session=session, before=state.copy() if state is not None else None,
            )  # fmt: skip
            if session is not None and failed is None and not missed.irrelevant:
                session.strayed(site, request, key.canonical)
                note_change(request, session, site, self.group(request.url), self.snapshot.prefix)
            return missed
        conditions = read(capture.state)
        lookup = Lookup(
            verdict, capture, rule, now.unsure, "" if conditions.lasting else told, key, request,
            shared=now.shared, polled=poll is not None, others=effects_open(capture, candidates, now), ids=ids, matcher=self, session=session,
        )  # fmt: skip
        stateless = (
            turn is None
            and poll is None
            and (
                conditions.lasting
                or (
                    spoken is None
                    and not now.unsure
                    and rule is None
                    and not conditions.effect
                    and all(_bare(c) for c in candidates)
                )
            )
        )
        if stateless and not now.unsure and rule is None:
            lookup.timeless = True
            if plain:
                self._remember(request, lookup, candidates, "" if conditions.lasting else site)
        return lookup

    def _polled(self, request: Request, key: Key, session: Session) -> tuple[Turn | None, str | None]:
        """What is next on a channel, and the rules that are needed for it."""
        turn = self.polling.turn(request, session)
        rule = "+".join(self._needed(request, turn.capture, self.group(request.url))) if turn else ""
        if turn is not None and not rule and turn.capture.key != key.canonical:
            turn = None  # sealed when there was no rule that leaves `t` out
        return turn, rule or None

    def _evidently(self, request: Request, key: Key, capture: Capture, site: str) -> Lookup:
        """What all the steps come to where there is one capture and nothing that could speak against it."""
        lookup = Lookup(
            "exact", capture, None, False, "", key, request,
            timeless=True, inert=True, site=site, matcher=self,
        )  # fmt: skip
        if len(self._hot) >= HOT:
            self._hot.clear()
        self._hot[request.url] = ("" if capture.state else site, lookup)
        return lookup

    def _remember(self, request: Request, lookup: Lookup, candidates: list[Capture], site: str) -> None:
        """Keeps a decision that depends on nothing but the URL, and on the session having changed nothing."""
        capture = lookup.capture
        if (
            capture is None
            or lookup.verdict not in ("exact", "canonical")
            or len(candidates) > 1  # even of the same bytes: which one, the session decides, and follows it
            or capture.vary
            or capture.status in (206, 304, 412, 416)
            or telling_of(request.headers)  # the session's answers may have given those
        ):
            return
        lookup.inert = not read(capture.state).begins
        lookup.session = None
        lookup.site = site_of(request.url)
        if len(self._hot) >= HOT:
            self._hot.clear()
        self._hot[request.url] = (site, lookup)

    def _key(self, request: Request) -> Key:
        """Return the key of a plain request; those of short URLs are kept."""
        key = self._keys.get(request.url)
        if key is None:
            if len(self._keys) >= HOT:
                self._keys.clear()
            key = request_key(request)
            if len(request.url) <= LONGEST_KEPT:
                self._keys[request.url] = key
        return key

    def group(self, url: str) -> Group:
        """All captures of the path of a URL."""
        prefix = group_prefix(url)
        with self._lock:
            return self._group(prefix)

    def _group(self, prefix: str) -> Group:
        found = self._groups.get(prefix)
        if found is None:
            captures = {c.place: c for c in self.snapshot.candidates(prefix)}
            for mark in "?;":
                captures.update((c.place, c) for c in self.snapshot.prefix(prefix + mark))
            found = Group(captures.values(), self.rules, self.snapshot.read_request, self.snapshot.read)
            self._groups[prefix] = found
            if len(self._groups) > GROUPS:
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(prefix)
        return found

    def changes(self, site: str) -> bool:
        """Whether a change of a site's state, or a value that it issued to the client, was recorded."""
        found = self._changing.get(site)
        if found is None:
            found = self._changing[site] = next(iter(self.snapshot.changing(site)), None) is not None
        return found

    def _recognised(
        self, request: Request, found: list[Capture], session: Session | None, minded: bool
    ) -> Request:
        """The request with its secrets as the recorder would have stored them; itself where it has none.

        Those in header fields of others count where they are `minded`.
        """
        known = session.secrets if session is not None else None
        if known is None and mask(request) is request:
            return request
        names: dict[str, int] = {}
        group = self.group(request.url)
        for capture in found or self._alike(request):
            counts = minded or guarded(capture)
            stored = self.snapshot.read_request(capture) if counts else group.request(capture)
            for name in pseudonyms_in(stored, headers=counts):
                names[name] = max(names.get(name, 0), layer_of(capture.filename))
        if known is None:
            if not names:
                return request
            known = Recogniser()
            if session is not None:
                session.secrets = known
        known.know(names)
        return known.request(request)

    def _alike(self, request: Request) -> Iterable[Capture]:
        """The captures that are the same as a request but for their secrets."""
        return self.group(request.url).twins(request)

    def around(self, start: str) -> Iterator[Capture]:
        """The captures whose index key begins with `start`."""
        return self.snapshot.prefix(start)

    def nearest(self, lookup: Lookup) -> list[Near]:
        """See `Lookup.explain`."""
        from stillweb.snapshots.matching.explain import nearest

        return nearest(lookup)

    def changers(self, site: str) -> Changers:
        """What writes the slots of a site, in words."""
        found = self._changers.get(site)
        if found is None:
            found = self._changers[site] = Changers(self.snapshot, site)
        return found

    def _same(self, request: Request, key: Key) -> list[Capture]:
        """The captures with the same canonical key."""
        if request.method == "GET":
            found = self.snapshot.candidates(key.urlkey)
            return [c for c in found if c.key == key.canonical]
        # The index keys of other methods lose a part of the body and depend on its order: the path decides.
        return self.group(request.url).by_key.get(key.canonical, [])

    def _by_rule(
        self, request: Request, key: Key, now: Situation, session: Session | None
    ) -> tuple[Capture | None, str | None]:
        """The capture that rules join with a request, and the rules that are needed for it."""
        group = self.group(request.url)
        found = [c for c in group.joined(request) if c.key != key.canonical]
        # another one, whether it is recorded elsewhere (the right password, for a wrong one's answer) or nowhere
        if PREFIX in request.url or PREFIX.encode() in request.body:
            same = [c for c in found if not other_secrets(request, group.request(c))[1]]
            if len(same) < len(found):
                now.why.append("password")
            found = same
        stale = False
        if session is not None and TRANSPORT in request.url:
            left = unused(found, session)
            found, stale = left or found, not left
        if not found:
            return None, None
        # Captures that the rules join and that fit the same state say the same, or a rule would be off here or is unsure: the
        # first choice is as good as one that needs fewer rules, unless it rests on a value that nobody was given.
        for refusing in (False, True):
            if refusing:
                found = [c for c in found if "issued-value" not in self._needed(request, c, group)]
            now.unsure, now.loose, now.header = False, False, None
            chosen = choose(found, now) if found else None
            if chosen is None:
                return None, None
            ids = self._needed(request, chosen, group)
            if ids and ("issued-value" not in ids or self._was_given(request, chosen, session)):
                doubted = [r.id for r in group.rules(request.method) if r.doubted and r.id in ids]
                if any(not group.indifferent(one, chosen, found) for one in doubted):
                    now.unsure = True  # it may be somebody else's, or another version
                if CLOCKS.keys() & ids and group.changing(request.method) & set(ids):
                    now.unsure = True  # nothing tells when it changed
                now.unsure = now.unsure or stale
                return chosen, "+".join(ids)
        return None, None

    def _very(self, candidates: list[Capture], ids: str, now: Situation) -> Capture | None:
        """Of the very request, asked out of the recorded order, what this session was not given yet.

        Only where the rules that lead elsewhere leave out what never decides: those answers are draws of one question.
        """
        if not set(ids.split("+")) <= {rule.id for rule in self.rules.rules if rule.certain}:
            return None
        given = {c.place for c in now.served}
        left = [c for c in candidates if c.place not in given]
        return min(left, key=lambda c: (c.timestamp, c.begin, c.place)) if left else None

    @staticmethod
    def _needed(request: Request, capture: Capture, group: Group) -> list[str]:
        method = request.method
        ids = joining(request, group.request(capture), group.rules(method), group.issued(method))
        return ids.split("+") if ids else []

    def _was_given(self, request: Request, capture: Capture, session: Session | None) -> bool:
        """Whether the issued values of a request were in an answer that this session was given."""
        if session is None:
            return False
        places = read(capture.state).issued
        values = [v for where, name, v in named_values(parse(request)) if f"{where}:{name}" in places]
        if not values or any(len(v) < SHORTEST for v in values):  # a shorter one is in every page by chance
            return False
        missing = set(values)
        for served in reversed(session.served):
            if site_of(served.url) == site_of(request.url):
                text = text_of(self.snapshot.read_start(served, LIMIT + 1))
                missing = {v for v in missing if not shown_in(v, text)}
                if not missing:
                    return True
        return False


def _borne(session: Session | None, site: str) -> int:
    """What a request may bear so that its address alone decides; see `bearing`."""
    return SIGNED if session is not None and site in session.given else SILENT


def _bare(capture: Capture) -> bool:
    """Whether it is the answer before any change, in every session."""
    return capture.state in _BARE


_BARE = frozenset({"", "any", "k", "n", "k n"})
