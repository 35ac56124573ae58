"""Ids that a client draws (of the cells of a notebook, of a visit, of each request): others in each replay.

A request that differs from a recorded one in such ids alone is that one, though not for sure, if it is a PUT that stored what its
client made, or was answered with 201 Created: so a thing was made, and an id of it is new. The address of a PUT or MKCOL that was answered so may hold
such an id. Any other request is, too, if the recording shows that its client drew the ids of its query or body. An id that any answer named before, or
that a path asked for, was chosen, and names something else. A shorter word was drawn, too, if the scripts of its session's pages alone sent it, in
several requests and places, and no answer ever named it. From then on the session says its own ids where the recorded one said others, and is told them.

So is a request that differs from a recorded one in the moment alone at which each was made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.http.static import static_mime
from stillweb.snapshots.identity.equality import equal
from stillweb.snapshots.identity.group import Group
from stillweb.snapshots.identity.issued_values import text_of
from stillweb.snapshots.identity.keys import canonical_text, is_plain, parse
from stillweb.snapshots.identity.moments import tells_moment, with_moments
from stillweb.snapshots.identity.numbering import (
    WORD,
    ids_in,
    ids_in_text,
    ids_of,
    match_drawn_ids,
    plain_id,
    renumbered,
    tokens_in,
    words_in,
)
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.spelling import BLANK
from stillweb.snapshots.identity.urlkeys import site_prefix
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.detect import changes
from stillweb.snapshots.secrets.redact import mask

RULE = "visit-id"
CREATED = 201
DRAWN = 0.9  # what an answer to another drawn id is worth at most
TYPED = 0.7  # the same where the id is no UUID, and so may have been typed
# they make the thing that their address names (RFC 9110, 9.3.4; RFC 4918, 9.3; RFC 4791, 5.3.1)
_PLACING = ("PUT", "MKCOL", "MKCALENDAR")
NONE: Mapping[str, str] = {}
LONGEST = 1 << 13  # bytes of a request in which moments are looked for
READ = 20_000  # bytes of recorded requests that are compared in their moments, which takes about 4 ms
JOINED = 1 << 10  # bytes of those that differ in more, and may be joined by rules
_DIGITS = b"0123456789"
SENT = 3  # the least number of different requests in which a session sent a short word that it drew
SPREAD = 4  # characters by which two draws of `Math.random().toString(36)` differ in length, at most


class Drawer(Protocol):
    """The part of a session that is needed here: its own ids by the recorded ones, and its last answers."""

    @property
    def drawn_ids(self) -> Mapping[str, str]: ...
    @property
    def served(self) -> Iterable[Capture]: ...


class RecordedItem(Protocol):
    """A capture, or a conversation by web socket: its address, its session and the number of the event with which it began there."""

    @property
    def url(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def begin(self) -> int: ...


class Own(NamedTuple):
    """The short words that the pages of recorded sessions drew, by session, and the captures that name them, by method and path without them."""

    words: Mapping[str, set[str]]
    captures: Mapping[tuple[str, str], list[Capture]]


class Drawing:
    """The finder of drawn ids, as opposed to chosen ones.

    `prefix` gives the captures of keys, `read` their answers, `group` those of a path; `joined` tells if rules join a request with a capture.
    """

    def __init__(
        self,
        prefix: Callable[[str], Iterator[Capture]],
        read: Callable[[Capture], Response],
        read_request: Callable[[Capture], Request],
        group: Callable[[str], Group],
        joined: Callable[[Request, Capture], bool],
    ) -> None:
        self._prefix = prefix
        self._read = read
        self._read_request = read_request
        self._group = group
        self._joined = joined
        self._named: dict[tuple[str, int], set[str]] = {}
        self._sent_by: dict[tuple[str, str], Counter[str]] = {}  # by site and session
        self._own_of: dict[str, Own] = {}  # by site

    def with_recorded_ids(self, request: Request, session: Drawer) -> tuple[Request, Mapping[str, str]]:
        """Return a request with recorded ids in place of the session's own, and the new ids: those of things that it makes."""
        known = as_recorded(request, session.drawn_ids) if session.drawn_ids else request
        new = self._apart(known, session) if known.method in ("POST", *_PLACING) else NONE
        return as_recorded(known, new) if new else known, new

    def ids_drawn(self, request: Request, session: Drawer, now: float) -> Mapping[str, str]:
        """Return by the recorded ones the ids of any other request that its client drew; it may differ from the recorded one in moments, too."""
        return self._apart(request, session, now) or self._own_apart(request, session, now)

    def _apart(self, request: Request, session: Drawer, now: float | None = None) -> Mapping[str, str]:
        """Return the client's ids by the recorded ones, of the first capture that differs from a request in ids alone.

        Those of what was made, unless a moment, `now`, is told.
        """
        made = now is None
        placed = made and request.method in _PLACING and bool(ids_of(request.url))
        if not drawn_ids(request):
            return NONE
        ids, served = session.drawn_ids, list(session.served)
        places = {capture.place for capture in served}

        found = (c for c in self._like(request, placed) if c.method == request.method)
        for capture in _in_order(found, places):
            made_before = made and capture.place in places
            if made_before or _made(capture, placed) is not made:
                continue
            apart = request.derived(("apart", capture.place), partial(self._differs, capture, now=now))

            def given(value: str, capture: Capture = capture) -> bool:
                return (
                    value in ids
                    or value in ids.values()
                    or _says(request, value, placed)
                    or any(plain_id(value) in self._names(one) for one in served)
                    or self.named_before(capture, value)
                )

            if (
                apart
                and not any(map(given, chain(*apart.items())))
                and (made or self._chosen_by_none(capture, apart))
            ):
                return apart
        return NONE

    def _differs(self, capture: Capture, request: Request, now: float | None = None) -> dict[str, str] | None:
        """Return the ids of a capture's request by those of another that differ; None if the two differ in more. Secrets are no ids."""
        stored = self._group(capture.url).derived(capture, "without secrets", _without_secrets)
        asked = request.derived("without secrets", _without_secrets)
        if len(stored) != len(asked):
            return None
        return match_drawn_ids(
            stored, asked if now is None else self._moved(stored, asked, capture, now), words_in
        )

    def _own_apart(self, request: Request, session: Drawer, now: float) -> Mapping[str, str]:
        """Return a page's own short words by the recorded ones, of the first capture that differs from its script's request in these alone."""
        mine = request.derived("tokens", _tokens) if _by_script(request) else []
        if not mine or not (own := self._own(site_of(request.url))).words:
            return NONE
        asked = _said(request)
        served = list(session.served)
        of_path = [one for one in mine if one in asked[0]]
        paths = {asked[0], *(asked[0].replace(one, BLANK) for one in of_path)}
        found = (c for path in paths for c in own.captures.get((request.method, path), ()))
        for capture in _in_order(found, {capture.place for capture in served}):
            stored = "\n".join(_said(self._group(capture.url).request(capture)))
            theirs = [one for one in tokens_in(stored) if one in own.words[capture.session]]
            new = [one for one in mine if one not in stored]
            if len(theirs) != len(new) or not all(map(_alike, theirs, new)):
                continue
            texts = (text_of(self._read(one)) for one in served if not static_mime(one.mime))
            if any(one in text for text in (request.header("referer") or "", *texts) for one in new):
                return NONE
            ids = dict(zip(theirs, new, strict=True))
            known = as_recorded(request, ids)
            if self._joined(known, capture) or self._differs(capture, known, now) == {}:
                return ids
        return NONE

    def searches(self, request: Request) -> bool:
        """Return True if all that was recorded of a site is to be read for the short words that its pages drew, before a request is answered."""
        unread = _by_script(request) and site_of(request.url) not in self._own_of
        return unread and bool(request.derived("tokens", _tokens))

    def _own(self, site: str) -> Own:
        """Return the short words that scripts of recorded pages sent to a site in several requests and places, and that no answer ever named."""
        found = self._own_of.get(site)
        if found is None:
            found = self._own_of[site] = self._find_own(site)
        return found

    def _find_own(self, site: str) -> Own:
        recorded = [c for c in self._prefix(site_prefix(site)) if not static_mime(c.mime)]
        sent = [_said(self._read_request(c) if c.method not in ("GET", "HEAD") else c) for c in recorded]
        uses: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, (capture, parts) in enumerate(zip(recorded, sent, strict=True)):
            for one in tokens_in("\n".join(parts)):
                if changes(one) > 1:
                    uses[capture.session, one].append(number)
        words: dict[str, set[str]] = defaultdict(set)
        for (session, one), numbers in uses.items():
            bare = {(recorded[n].method, *(part.replace(one, BLANK) for part in sent[n])) for n in numbers}
            places = {place for n in numbers for place, part in enumerate(sent[n]) if one in part}
            if (
                len(bare) >= SENT
                and len({path for _, path, *_ in bare}) > 1
                and len(places) > 1
                and all(_by_script(self._read_request(recorded[n])) for n in numbers)
            ):
                words[session].add(one)
        for capture in recorded:
            if own := words.get(capture.session):
                text = text_of(self._read(capture))
                own -= {one for one in own if one in text}
        captures: dict[tuple[str, str], list[Capture]] = defaultdict(list)
        for session, own in words.items():
            for number in {n for one in own for n in uses[session, one]}:
                path = sent[number][0]
                for one in own:
                    path = path.replace(one, BLANK)
                captures[recorded[number].method, path].append(recorded[number])
        return Own(words, captures)

    def _chosen_by_none(self, capture: Capture, ids: Iterable[str]) -> bool:
        """Return True if the recording shows that a client drew ids by itself, and that they choose nothing.

        Its session got the same answer with others in their places, or, where it sent no others, sent these again, or its page sent them:
        no page knows a UUID that no answer named, while another word of chance may have been typed (the number of a parcel, an account's address).
        """
        group = self._group(capture.url)
        own = (
            c
            for c in group.with_method(capture.method)
            if c.session == capture.session and c.key != capture.key
        )
        if others := [c for c in own if self._differs(c, group.request(capture))]:
            return all(equal(self._read(c), self._read(capture)) for c in others)
        sent = self._sent(capture)
        again = all(sent[one] > 1 for one in ids)
        return again or (all(map(ids_in, ids)) and _by_script(self._read_request(capture)))

    def _sent(self, capture: Capture) -> Counter[str]:
        """Return how many different requests of a capture's session to its site name each id."""
        site = site_of(capture.url)
        found = self._sent_by.get((site, capture.session))
        if found is None:
            own = {c.key: c for c in self._prefix(site_prefix(site)) if c.session == capture.session}
            requests = (
                c.url if is_plain(Request(c.method, c.url)) else _told(self._read_request(c))
                for c in own.values()
            )
            found = Counter(one for request in requests for one in set(words_in(request)))
            self._sent_by[site, capture.session] = found
        return found

    def with_recorded_moment(self, request: Request, session: Drawer, now: float) -> Request | None:
        """Return a request with the moment at which a recorded one was made in place of its own; None if none is joined with it then.

        The first of several that the session was not answered by is taken, else the last.
        """
        asked = _told(request)
        if len(asked) > LONGEST or not tells_moment(asked.decode("latin-1")):
            return None
        group, places = self._group(request.url), {capture.place for capture in session.served}
        found = sorted(group.with_method(request.method), key=lambda c: (c.begin, c.timestamp, c.place))
        left = [capture for capture in found if capture.place not in places]
        left += [capture for capture in reversed(found) if capture.place in places]
        bare = asked.translate(None, _DIGITS)
        others: list[tuple[bytes, Capture]] = []
        tries = READ // len(asked)
        for capture in left:
            if not tries or not (request.body or tells_moment(capture.url)):
                continue
            stored = group.request(capture)
            recorded = _told(stored)
            timed = asked
            if recorded.translate(None, _DIGITS) == bare:
                tries -= 1
                timed = self._moved(recorded, asked, capture, now)
            if timed == recorded:
                return replace(request, url=stored.url, body=stored.body)
            if (len(others) + 1) * len(asked) <= JOINED:
                others.append((recorded, capture))
        for recorded, capture in others:
            timed = self._moved(recorded, asked, capture, now)
            url, _, body = timed.partition(b"\n")
            known = replace(request, url=url.decode("utf-8", "surrogatepass"), body=body)
            if timed != asked and self._joined(known, capture):
                return known
        return None

    @staticmethod
    def _moved(recorded: bytes, asked: bytes, capture: Capture, now: float) -> bytes:
        """Return the client's request with the timestamps of a recorded request in place of its own."""
        passed = seconds_of(capture.timestamp)
        return asked if passed is None else with_moments(recorded, asked, passed, now)

    def _like(self, request: Request, placed: bool) -> Iterable[Capture]:
        """Return the captures of a request's path; where its address names what it makes, those of addresses that differ in ids alone."""
        if not placed:
            return self._group(request.url).with_method(request.method)
        shape = _shape(request.url)
        found = self._prefix(site_prefix(site_of(request.url)))
        return (c for c in found if c.method == request.method and _shape(c.url) == shape)

    def named_before(self, recorded: RecordedItem, value: str) -> bool:
        """Return True if an earlier answer of the recorded session at the site, other than a static file, contains an id."""
        return any(
            plain_id(value) in self._names(one)
            for one in self._prefix(site_prefix(site_of(recorded.url)))
            if one.session == recorded.session and one.end <= recorded.begin and not static_mime(one.mime)
        )

    def _names(self, capture: Capture) -> set[str]:
        """Return the ids that an answer or its address names."""
        found = self._named.get(capture.place)
        if found is None:
            found = self._named[capture.place] = _named(capture.url + "\n" + text_of(self._read(capture)))
        return found


def drawn_ids(request: Request) -> list[str]:
    """Return the ids in the body of a request, in order."""
    return request.derived("drawn ids", lambda one: words_in(_without_secrets(one)))


def highest_confidence(request: Request, ids: Mapping[str, str]) -> float:
    """Return the most that an answer to a request is worth which names ids by the recorded ones."""
    text = _told(request).decode("latin-1")
    return min((DRAWN if ids_in(one) else TYPED for one, own in ids.items() if own in text), default=DRAWN)


def as_recorded(request: Request, ids: Mapping[str, str]) -> Request:
    """Return a request with recorded ids in place of a client's own."""
    own = {mine: recorded for recorded, mine in ids.items()}

    def told(one: Request) -> Request:
        url = renumbered(one.url, own)
        body = renumbered(one.body, own) if one.body else one.body
        return one if url == one.url and body == one.body else replace(one, url=url, body=body)

    return request.derived(("as recorded", *own.items()), told)


def _made(capture: Capture, placed: bool) -> bool:
    return capture.status == CREATED or (
        not placed and capture.method == "PUT" and 200 <= capture.status < 300
    )


def _in_order(captures: Iterable[Capture], places: Collection[tuple[str, int]]) -> list[Capture]:
    """Return captures as they were recorded, those that a session was already answered by (`places`) last."""
    return sorted(captures, key=lambda c: (c.place in places, c.begin, c.timestamp, c.place))


def _tokens(request: Request) -> list[str]:
    return tokens_in("\n".join(_said(request)))


def _said(request: Request | Capture) -> tuple[str, str, str]:
    """Return path, query and body of a request, or of the capture of one without body."""
    address, _, query = request.url.partition("#")[0].partition("?")
    path = address.partition("://")[2].partition("/")[2]
    return path, query, (request.body or b"").decode("latin-1") if isinstance(request, Request) else ""


def _by_script(request: Request) -> bool:
    """Return True if a page's script made a request; the address of a page may have been typed."""
    return request.header("sec-fetch-dest") not in (None, "document", "iframe")


def _alike(one: str, other: str) -> bool:
    """Return True if one generator may have drawn two words."""
    kinds = (str.isupper, str.islower, "-_".__contains__)
    kinds_of = [[any(map(kind, word)) for kind in kinds] for word in (one, other)]
    return kinds_of[0] == kinds_of[1] and abs(len(one) - len(other)) <= SPREAD


def _told(request: Request) -> bytes:
    return request.url.encode("utf-8", "surrogatepass") + b"\n" + (request.body or b"")


def _without_secrets(request: Request) -> bytes:
    return canonical_text(parse(mask(request)))


def _says(request: Request, value: str, placed: bool) -> bool:
    """Return True if the path of a request, or its Referer, names an id."""
    wanted = plain_id(value)
    return (not placed and wanted in _named(request.url.partition("?")[0])) or wanted in _named(
        request.header("referer") or ""
    )


def _named(text: str) -> set[str]:
    return ids_in_text(text) | {plain_id(match[0]) for match in WORD.finditer(text)}


def _shape(address: str) -> str:
    """Return an address without what a client may have drawn for it."""
    ids = ids_of(address)
    return renumbered(address, dict.fromkeys(ids, BLANK)) if ids else address
