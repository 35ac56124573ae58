"""What may have followed from a request that was not recorded: from then on, what it may have changed is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.identity.keys import parse, request_key
from stillweb.snapshots.identity.rules import reduced
from stillweb.snapshots.evidence.sessions import Change, Session
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import mask
from stillweb.snapshots.states.conditions import read, short
from stillweb.snapshots.states.groups import Group, group_prefix
from stillweb.snapshots.states.slots import (
    ONE_WAY,
    READ,
    SAFE_METHODS,
    STRONG,
    WEAK,
    method_of,
    slot_of,
    touch_of,
)

SIBLINGS = 50  # captures looked at of those beside a choice that a path names


def note_change(
    request: Request,
    session: Session,
    site: str,
    group: Group,
    prefix: Callable[[str], Iterator[Capture]],
) -> None:
    """Tells a session of what a request may have changed; `group`: the captures of its path, `prefix`: those of keys."""
    method = request.method
    parsed = parse(request)
    prior = touch_of(request, parsed).prior
    safe = prior == READ and method_of(parsed) in SAFE_METHODS
    if safe and not any(">" in c.state or "!" in c.state for c in group.captures):
        return
    left = reduced(request, group.rules(method), group.issued(method))
    name = slot_of(left)
    slot = short(site, name)
    alike: Iterable[Capture] = group.slots(method).get(slot, [])
    if name.endswith("/*"):
        beside = prefix(group_prefix(request.url).rpartition("/")[0] + "/")
        # a redirect may have left what was chosen with the client, in a cookie
        alike = [
            c
            for c in islice(beside, SIBLINGS)
            if c.method == method and (c.changes or c.status not in ONE_WAY)
        ]
    states = [read(c.state) for c in alike]
    cookies = frozenset[str]().union(*(s.sets for s in states))
    known = [s.effect for s in states if s.effect is not None and s.effect.slot == slot]
    if known:
        prior = READ if all(e.own for e in known) else WEAK if all(e.weak for e in known) else STRONG
    elif any(c.status < 400 for c in alike):
        prior = READ  # recorded with other values, and shown to change nothing
    if prior != READ or cookies:
        told = mask(request)  # the ledger shows it: no secret may be tried against it
        change = Change(slot, short(told.url, request_key(told).canonical), prior == STRONG)
        session.missed(site, change if prior != READ else None, request, cookies)
