"""Ids that a client draws for what it makes (the cells of a notebook, JupyterLab's sessions): others in each replay.

A request that differs from a recorded one in such ids alone is that one, though not for sure, if it is a PUT that stored what its
client made, or was answered with 201 Created: so a thing was made, and an id of it is new. One that any answer named before, or
that a request asked for, was chosen, and names something else. From then on the session says its own ids where the recorded one said others, and is told them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.http.static import static_mime
from stillweb.snapshots.identity.group import Group
from stillweb.snapshots.identity.issued import text_of
from stillweb.snapshots.identity.numbering import DRAWN, drawn_apart, ids_in, named, plain, renumbered
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import site_prefix
from stillweb.snapshots.request import Request

RULE = "visit-id"
CREATED = 201
NONE: Mapping[str, str] = {}


class Drawer(Protocol):
    """The part of a session that is needed here: its own ids by the recorded ones, and its last answers."""

    @property
    def drawn(self) -> Mapping[str, str]: ...
    @property
    def served(self) -> Iterable[Capture]: ...


class Drawing:
    """The finder of drawn ids, as opposed to chosen ones. `prefix` gives the captures of keys, `read` their answers, `group` those of a path."""

    def __init__(
        self,
        prefix: Callable[[str], Iterator[Capture]],
        read: Callable[[Capture], Response],
        group: Callable[[str], Group],
    ) -> None:
        self._prefix = prefix
        self._read = read
        self._group = group
        self._named: dict[tuple[str, int], set[str]] = {}

    def recorded(self, request: Request, session: Drawer) -> tuple[Request, Mapping[str, str]]:
        """Return a request with recorded ids in place of the session's own, and the ids that are new."""
        known = as_recorded(request, session.drawn) if session.drawn else request
        new = self._apart(known, session) if known.body and known.method in ("POST", "PUT") else NONE
        return as_recorded(known, new) if new else known, new

    def _apart(self, request: Request, session: Drawer) -> Mapping[str, str]:
        """Return the client's ids by the recorded ones, of the first capture that differs from a request in ids alone."""
        if request.body[:1] not in (b"{", b"[") or not ids_in(request.body):
            return NONE
        ids, served = session.drawn, list(session.served)
        places = {capture.place for capture in served}
        group = self._group(request.url)
        left = (c for c in group.captures if c.method == request.method and _made(c))
        for capture in sorted(left, key=lambda c: (c.begin, c.timestamp, c.place)):
            if capture.place in places:  # it was made already
                continue

            def given(value: str, capture: Capture = capture) -> bool:
                return (
                    value in ids
                    or value in ids.values()
                    or _says(request, value)
                    or any(plain(value) in self._names(one) for one in served)
                    or any(plain(value) in self._names(one) for one in self._before(capture))
                )

            if found := drawn_apart(group.request(capture).body, request.body, given):
                return found
        return NONE

    def _before(self, capture: Capture) -> Iterator[Capture]:
        """Yield the captures of the recorded session at its site before `capture`, but for plain files."""
        site = site_of(capture.url)
        for one in self._prefix(site_prefix(site)):
            if one.session == capture.session and one.end <= capture.begin and not static_mime(one.mime):
                yield one

    def _names(self, capture: Capture) -> set[str]:
        """Return the ids that an answer or its address names."""
        found = self._named.get(capture.place)
        if found is None:
            found = self._named[capture.place] = named(capture.url + "\n" + text_of(self._read(capture)))
        return found


def as_recorded(request: Request, ids: Mapping[str, str]) -> Request:
    """Return a request with recorded ids in place of a client's own."""
    own = {mine: recorded for recorded, mine in ids.items()}
    url = DRAWN.sub(lambda match: own.get(match[0], match[0]), request.url)
    body = renumbered(request.body, own) if request.body else request.body
    if url == request.url and body == request.body:
        return request
    return replace(request, url=url, body=body)


def _made(capture: Capture) -> bool:
    return capture.status == CREATED or (capture.method == "PUT" and 200 <= capture.status < 300)


def _says(request: Request, value: str) -> bool:
    """Return True if the address of a request, or its Referer, names an id."""
    wanted = plain(value)
    return wanted in named(request.url) or wanted in named(request.header("referer") or "")
