"""Sites: what the recording of one site shows, read once, and its requests as the model sees them."""

from __future__ import annotations

import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import NamedTuple

from stillweb.snapshots.capture import PARTIAL, Capture, Response, layer_of
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.evidence.blocks import Blocks, texts_of
from stillweb.snapshots.evidence.conditions import Store
from stillweb.snapshots.evidence.events import ACKNOWLEDGED, Event, History, event_of, signs_in
from stillweb.snapshots.evidence.lookup import REMEMBERED, Matching, SessionPast
from stillweb.snapshots.evidence.model import Model, Parts, words_of
from stillweb.snapshots.evidence.parts import (
    CLOCKS,
    GIVEN,
    Given,
    as_recorded,
    field_parts,
    issued_in,
    key_of_order,
    other_parts,
    rule_parts,
    spelling_parts,
)
from stillweb.snapshots.evidence.priors import KINDS
from stillweb.snapshots.http.static import is_static
from stillweb.snapshots.identity.cookies import cookies_of
from stillweb.snapshots.identity.equality import LIMIT, Equality, label_of
from stillweb.snapshots.identity.group import has_request_time
from stillweb.snapshots.identity.irrelevant import irrelevant_url
from stillweb.snapshots.identity.issued_values import find_issued, text_of
from stillweb.snapshots.identity.keys import ParsedRequest, parse, split_url, url_canonical
from stillweb.snapshots.identity.recognising import other_secrets
from stillweb.snapshots.identity.rules import NOTHING, Issued, path_of, reduce_request
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import site_prefix
from stillweb.snapshots.request import SAFE_METHODS, Request
from stillweb.snapshots.warc.messages import set_cookies

WORDS = 1 << 11  # answers whose words are remembered
REPEATS = 4  # requests repeated after others, all with equal answers, that prove that reads decide nothing
SIGNED_IN = "signed in "  # begins the mark of a cookie that a sign-in gave
_SHORTLY = re.compile(r";\s*max-age\s*=\s*[1-5]?\d\s*(?:;|$)", re.IGNORECASE)  # less than a minute
# an attribute that users see, follow or whose script they run
_READ = re.compile(
    r"""\b(?:alt|data-[a-z-]+|href|placeholder|title|value)=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""",
    re.IGNORECASE,
)
_TAG = re.compile(r"<[^<>]*>")
_UNREAD = re.compile(r"<(style|svg)(?=[\s>]).*?(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)
CRAWLED = 150  # captures of a site from which on fewer repeats come by chance


@dataclass(slots=True)
class ModelRequest:
    """A request as the model sees it. `normal` is its key without what rules leave out."""

    event: Event
    parts: dict[str, str]
    normal: str


class SiteModel(NamedTuple):
    """The model of a site, the captures behind its observations, and those that can't be read, by key."""

    model: Model
    captures: list[Capture]
    damaged: Mapping[str, list[Capture]]
    beside: Mapping[str, list[int]]  # keys of events by what rules leave of them
    # parts of spelling and fields that tell several answers of a request apart, with the recorded values of each
    spelt: Mapping[str, Mapping[str, Collection[str]]]
    blocks: Blocks


class SiteEvidence:
    """Evidence of one site's recording. Its requests are read when the model is first asked."""

    def __init__(self, matcher: Matching, site: str) -> None:
        self._matcher = matcher
        store = matcher.snapshot
        self._site = site
        found = self._recorded()
        self.size = len(found)  # captures that it was read from
        self.issued, self._given = self._find_issued(found)
        # keys of requests with a moment far from when they were made: no clock
        self.moments: set[str] = set()
        names: dict[tuple[str, int], str] = {}  # by place of a capture, what rules leave of its key
        self._redirected = set[str]()  # types of writes that are answered by a redirect
        for c in found:
            left = matcher.rules.leaves(c.url)
            if left and c.method in SAFE_METHODS and "?" not in c.url:
                continue
            # its index line holds it all but header fields
            plain = c.method == "GET" and url_canonical(c.url) == c.key
            if plain and left and not irrelevant_url(c.url.partition("?")[0]):
                continue
            request = Request("GET", c.url) if plain else _readable(store, c)
            if request is None:
                continue
            if c.method not in SAFE_METHODS and 300 <= c.status < 400:
                self._redirected.add(event_of(request, c.key).type)
            issued = self._issued(request)[0]
            normal, parts = rule_parts(request, matcher.rules, issued, given=GIVEN, stored=True)
            if parts:
                names[c.place] = normal
                clock = any(name[6:] in CLOCKS for name in parts)
                if clock and "?" in c.url and not has_request_time(c):
                    self.moments.add(normal)
        self.equality = Equality(lambda c: store.read_start(c, LIMIT + 1), store.head, found, names)
        varied = self.equality.varied
        still = {
            c.key
            for c in found
            if is_static(c.method, c.mime, c.status)
            and c.place not in names
            and c.key not in varied
            and not c.vary
        }
        self.files: dict[str, list[Capture]] = defaultdict(list)  # by key, those that stay as they are
        for c in found:
            if c.key in still:
                self.files[c.key].append(c)
        found = [c for c in found if c.key not in still]
        # where no answer varies, nothing shows that a request that only reads decides; how surely, repeated requests tell
        unread = not varied and not self._hardly_repeated(found)
        self.quiet = unread and not matcher.socket_messages.on(site) and not any(map(_tells, found))
        reads = ("plain GET", "choosing GET", "asset") if unread else ()
        self.forgets = KINDS if self.quiet else ("beacon", *reads)
        self.vary: dict[str, set[str]] = defaultdict(set)
        # what rules leave of keys, and conditions, of requests that were answered in part, or by "not modified"
        self.partial: set[tuple[str, tuple[str | None, ...]]] = set()
        for c in found:
            if c.vary:
                self.vary[names.get(c.place, c.key)].update(field for field, _ in c.vary)
            if c.status in PARTIAL and (request := _readable(store, c)) is not None:
                self.partial.add((names.get(c.place, c.key), request.conditional()))
        self._learnt: SiteModel | None = None
        self._learning = threading.RLock()

    def _recorded(self) -> list[Capture]:
        """Return the captures of the site in the order of their requests; sessions in that of their first ones.

        They are read from the index each time: of most sites no model is ever asked for.
        """
        found = [
            c
            for c in self._matcher.snapshot.prefix(site_prefix(self._site))
            if site_of(c.url) == self._site and not c.truncated.startswith("!")
        ]
        begun: dict[str, str] = {}
        for c in found:
            begun[c.session] = min(c.timestamp, begun.get(c.session, c.timestamp))
        found.sort(
            key=lambda c: (
                layer_of(c.filename), begun[c.session], c.session, c.begin, c.timestamp, c.filename, c.offset,
            )
        )  # fmt: skip
        return found

    def _hardly_repeated(self, found: list[Capture]) -> bool:
        """Return True if too few requests were repeated to tell that reads decide nothing at a site of equal answers.

        Files that were last modified before their session began need no such proof (RFC 9110, 8.8.2), nor do crawls, which repeat next to none.
        """
        repeats, last, begun = 0, dict[tuple[str, str], int](), dict[str, str]()
        if len(found) > CRAWLED:
            return False
        for number, c in enumerate(found):
            begun.setdefault(c.session, c.timestamp)
            repeats += number - last.get((c.session, c.key), number) > 1  # others came between
            last[c.session, c.key] = number
        if not 0 < repeats < REPEATS:
            return False
        store = self._matcher.snapshot
        return not all(_modified(store, c) < begun[c.session] for c in found if c.status == 200)

    @property
    def learnt(self) -> SiteModel:
        """The model, and the captures that it was learnt from; made when first asked for."""
        if self._learnt is None:
            with self._learning:
                if self._learnt is None:
                    self._learnt = self._learn()
        return self._learnt

    @property
    def ready(self) -> bool:
        """Return True if the model was learnt."""
        return self._learnt is not None

    def note(self, past: SessionPast, event: Event) -> None:
        """Append an event to a session's history, and forget old ones of a session that stays."""
        if self._learnt is not None:
            self._learnt.model.happen(past.history, event)
        else:
            past.history.add(event)
        trimmed = past.history.trimmed(self.size)
        if trimmed is not past.history:
            past.history = trimmed
            past.last = {key: answer for key, answer in past.last.items() if trimmed.asked(key)}

    def foresee(self, asked: ModelRequest) -> None:
        """Compute in advance what the model caches for the recorded requests that may answer a request."""
        learnt, past = self.learnt, (History(), 0)
        for key in learnt.beside.get(asked.normal, ()):
            learnt.model.predict(key, past, None, asked.parts)
            for o in learnt.model.targets[key].observations:
                learnt.blocks.least_likely(learnt.captures[o.capture], learnt.model.targets[key].event, past)

    def _learn(self) -> SiteModel:
        store, socket_messages = self._matcher.snapshot, self._matcher.socket_messages
        any_said = socket_messages.on(self._site)
        given: dict[str, Given] = defaultdict(Given)
        captures: list[Capture] = []
        damaged: dict[str, list[Capture]] = defaultdict(list)
        beside: dict[str, list[int]] = defaultdict(list)
        recorded = []
        spelt: dict[str, list[tuple[dict[str, str], dict[str, str]]]] = defaultdict(list)
        # by session: the begin of the requests under way, and the first end of any; the same of requests of which each overlaps with one before
        at_once: dict[str, tuple[int, int]] = {}
        bursts: dict[str, tuple[int, int]] = {}

        def begin(spans: dict[str, tuple[int, int]], end_of: Callable[[int, int], int]) -> int:
            """Return the begin of the requests of a session with which a capture overlaps."""
            began, end = spans.get(session, (0, 0))
            overlaps = capture.begin < end
            spans[session] = (began, end_of(end, capture.end)) if overlaps else (capture.begin, capture.end)
            return spans[session][0]

        before: dict[str, deque[Capture]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        for capture in self._recorded():
            if self.is_static(capture):
                continue
            request = _readable(store, capture)
            if request is None:
                damaged[capture.key].append(capture)
                continue
            head, label = response_facts(store, capture), self.equality.label(capture)
            session = f"{layer_of(capture.filename)} {capture.session}"
            asked = self.model_request(
                request,
                given[session],
                stored=True,
                served=before[session],
                response=head,
                answer=label,
            )
            before[session].append(capture)
            if any_said and (words := socket_messages.before(capture)):
                asked.parts["~words"] = repr(sorted(words.items()))
            if asked.normal in self.equality.varied:
                spelt[asked.normal].append((asked.parts, self._spelling(request, asked.parts, stored=True)))
            captures.append(capture)
            if asked.event.key not in beside[asked.normal]:
                beside[asked.normal].append(asked.event.key)
            moment = begin(bursts, max), begin(at_once, min)
            recorded.append((session, asked.event, label, asked.parts, moment))
            keep_given(given[session], request, head, asked)
        differing = {normal: _differing([own for _, own in several]) for normal, several in spelt.items()}
        for normal, several in spelt.items():
            for parts, own in several:
                parts.update((n, v) for n, v in own.items() if v and n in differing[normal])
        shown = lru_cache(maxsize=WORDS)(partial(self._words, captures))
        model = Model(recorded, self.forgets, shown)
        blocks = Blocks(model, captures, lambda capture: texts_of(self._text(capture)))
        return SiteModel(model, captures, damaged, beside, differing, blocks)

    def spelling(self, request: Request, asked: ModelRequest) -> dict[str, str]:
        """Return the spelling and fields of a live request, as far as recordings of it with several answers differ in them."""
        recorded = self.learnt.spelt.get(asked.normal)
        return as_recorded(self._spelling(request, asked.parts), recorded) if recorded else {}

    def _spelling(self, request: Request, parts: Parts, *, stored: bool = False) -> dict[str, str]:
        left = reduce_request(request, self._matcher.rules.rules, self._issued(request)[0], stored=stored)
        return spelling_parts(request, left) | field_parts(request, parts)

    def _text(self, capture: Capture) -> str:
        """Return the text of an answer; none of one that can't be read."""
        try:
            return text_of(self._matcher.snapshot.read_start(capture, LIMIT + 1))
        except (DamagedInput, TooLarge):
            return ""

    def _words(self, captures: list[Capture], number: int) -> frozenset[str]:
        """Return the words that an answer shows a client."""
        text = self._text(captures[number])
        return frozenset(words_of(_read_by_users(text) if "html" in captures[number].mime else text))

    def known_issued(self, request: Request) -> Issued:
        """Return the places in which the recording shows values that the site gave out to be sent back once."""
        return _places(self.issued, request)

    def _issued(self, request: Request) -> tuple[Issued, list[str]]:
        """Return where a write holds values that the site gave out, and the values."""
        if request.method in SAFE_METHODS:
            return NOTHING, []
        return issued_in(request, self.known_issued(request))

    def _find_issued(self, found: list[Capture]) -> tuple[dict[str, Issued], dict[str, Issued]]:
        """Return the places of values that the site gave out to be sent back once, by method and path, and of all that it gave out."""
        store = self._matcher.snapshot
        if all(c.method in SAFE_METHODS for c in found):
            return {}, {}
        sessions: dict[tuple[int, str], list[tuple[Capture, ParsedRequest | None]]] = defaultdict(list)
        for c in found:
            request = None if c.method in SAFE_METHODS else _readable(store, c)
            sessions[layer_of(c.filename), c.session].append((c, None if request is None else parse(request)))
        return find_issued(sessions.values(), lambda c: store.read_start(c, LIMIT + 1))

    def is_static(self, capture: Capture) -> bool:
        """Return True for a file that stays as it is."""
        return capture.key in self.files

    def label_live(self, key: int, response: Response) -> int:
        """Return the number for a live answer to a request; that of the recorded answer that it equals, if any does."""
        label, seen = label_of(response), set[int]()
        target = self.learnt.model.targets.get(key)
        for o in target.observations if target is not None else ():
            if o.answer not in seen:
                seen.add(o.answer)
                if label in (o.answer, self.equality.read_label(self.learnt.captures[o.capture])):
                    return o.answer
        return label

    def masked(self, request: Request) -> list[int]:
        """Return the keys of the recorded events that differ from a request in its secrets alone."""
        keys: dict[int, None] = {}
        for capture in self._matcher.twins(request):
            stored = self._matcher.group(request.url).request(capture)
            if not other_secrets(request, stored)[1]:
                keys.update(
                    dict.fromkeys(
                        self.learnt.beside.get(self.model_request(stored, Given(), stored=True).normal, [])
                    )
                )
        return list(keys)

    def model_request(
        self,
        request: Request,
        given: Given,
        *,
        stored: bool = False,
        served: Sequence[Capture] = (),
        response: Response | None = None,
        answer: int = 0,
    ) -> ModelRequest:
        """Return a request as the model sees it."""
        issued, named = self._issued(request)
        later = self._matcher.answers_since(served, named)
        theirs = GIVEN if later == 0 else "" if later is None else f"{GIVEN} {later} later"
        normal, parts = rule_parts(request, self._matcher.rules, issued, given=theirs, stored=stored)
        own = (normal, request.conditional()) in self.partial
        if normal in self.moments:
            parts = {
                f"~moment {name[6:]}" if name[6:] in CLOCKS else name: value for name, value in parts.items()
            }
        own_parts, fields = other_parts(request, self.vary.get(normal, ()), given, normal)
        parts |= own_parts
        event = event_of(request, normal, response, answer, own=own, redirected=self._redirected)
        event = replace(event, fields=fields)
        if named:
            parameters = tuple(one for one in event.parameters if one[1] not in named)
            event = replace(event, parameters=parameters, ids=tuple(v for v in event.ids if v not in named))
        if event.kind in ("write", "weak write") and request.method not in SAFE_METHODS:
            _, values = issued_in(request, _places(self._given, request))
            if signs_in(event, values):
                event = replace(event, kind="sign-in")
        return ModelRequest(event, parts, normal)


def _read_by_users(html: str) -> str:
    """Return the texts, scripts and links of a page; a drawing's numbers and the names of classes echo nothing."""
    # html.parser takes five times as long, and the core has no lxml
    return _TAG.sub(_of_tag, _UNREAD.sub(" ", html))


def _of_tag(tag: re.Match[str]) -> str:
    return f" {' '.join(one[1] or one[2] or one[3] or '' for one in _READ.finditer(tag[0]))} "


def _places(by_path: Mapping[str, Issued], request: Request) -> Issued:
    if request.method in SAFE_METHODS or not by_path:
        return NOTHING
    return by_path.get(path_of(request.method, split_url(request.url)[0]), NOTHING)


def response_facts(store: Store, capture: Capture) -> Response:
    """Return the answer of a capture as far as it tells what its request did: the head, and for a write the start of JSON."""
    if capture.method in SAFE_METHODS or "json" not in capture.mime:
        return store.head(capture)
    try:
        return store.read_start(capture, ACKNOWLEDGED)
    except (DamagedInput, TooLarge):  # the lookup that it answers reports it
        return store.head(capture)


def _differing(several: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """Return the parts whose values differ, with these; letters, too, only where the order does not tell them apart."""
    found = {
        name: {one.get(name, "") for one in several} for name in {name for one in several for name in one}
    }
    return {
        name: values
        for name, values in sorted(found.items())
        if len(values) > 1 and (name != "~spelling letters" or len(found["~spelling order"]) == 1)
    }


def _tells(capture: Capture) -> bool:
    """Return True if a capture may have changed what its site answers, by its request and status alone."""
    if capture.method not in SAFE_METHODS:
        return True
    return 300 <= capture.status < 400 and capture.status != 304 and "?" in capture.url


def _modified(store: Store, capture: Capture) -> str:
    """Return when an answer was last modified, in 14 digits; "~", which is later than all, where it does not say that."""
    try:
        modified = parsedate_to_datetime(store.head(capture).header("last-modified") or "")
    except (DamagedInput, TooLarge, ValueError):
        return "~"
    return modified.strftime("%Y%m%d%H%M%S")


def _readable(store: Store, capture: Capture) -> Request | None:
    """Return the request of a capture, None where it or the answer is damaged."""
    try:
        request = store.read_request(capture).remembering()
        store.head(capture)
    except (DamagedInput, TooLarge):
        return None
    return request


def keep_given(given: Given, request: Request, head: Response, asked: ModelRequest) -> None:
    """Note which request made a site give its client a cookie, and the key with which a client may repeat its request.

    One that only reads renews what the client had, and so does one that does not sign in, if the client signed in with that.
    """
    if key := key_of_order(request):
        keys = given.orders.setdefault(asked.normal, {})
        keys.setdefault(key, len(keys) + 1)
    signs_in, sent = asked.event.kind == "sign-in", dict(cookies_of(request.headers))
    for line in set_cookies(head.headers):
        name, equals, value = (part.strip() for part in line.partition(";")[0].partition("="))
        if equals:
            cookie, had = (name, value.strip('"')), None
            if _SHORTLY.search(line):
                given.fleeting.add(cookie)
            if f"~cookie giver {name}" in asked.parts:
                had = given.givers.get((name, sent[name]), (f"brought {sent[name]}", 0))
            renewed = had and (asked.event.safe or (had[0].startswith(SIGNED_IN) and not signs_in))
            giver = f"{SIGNED_IN if signs_in else ''}{asked.event.key:x}"
            if renewed and had:
                given.givers[cookie] = had
            elif given.givers.get(cookie, ("", 0))[0] != giver:
                number = given.last[name, giver] = given.last.get((name, giver), 0) + 1
                given.givers[cookie] = giver, number
