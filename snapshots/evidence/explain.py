"""Grounds of an answer in words: which events and parts of the request decide, and which may, but were never seen to."""

from __future__ import annotations

import math
from collections import defaultdict
from urllib.parse import urlsplit

from stillweb.snapshots.evidence.events import Event, History
from stillweb.snapshots.evidence.model import PART, Model, Parts

LEAST = 0.02  # the chance from which something is named
NAMED = 4  # things that are named at most
LONG = 60  # characters of the values of an event


def grounds(model: Model, key: int, answer: int, past: tuple[History, int], parts: Parts) -> list[str]:
    """Return why an answer to a request is how likely, after what happened before a place of a history."""
    target, (history, place) = model.targets[key], past
    given = [o for o in target.observations if o.answer == answer]
    found = [_recorded(len(given), len(target.observations), len(target.answers))]
    candidates = model.candidates(key)
    inclusion: dict[str, float] = defaultdict(float)
    for h in model.posterior(key):
        for group, _ in h.types:
            for t, share in candidates.groups[group]:
                inclusion[t] += h.probability * share
    decide = sorted(((chance, t) for t, chance in inclusion.items() if chance >= LEAST), key=_likeliest)
    for chance, t in decide[:NAMED]:
        then, now = given[-1].history.of(t, given[-1].place), history.of(t, place)
        if t.startswith(PART):
            said = f"recorded with {_part(t, given[-1].parts)}"
            if given[-1].parts.get(t) != parts.get(t):
                said += f"; {_part(t, parts)} now"
        elif then:
            said = f"recorded after {_event(then[-1])}"
            if not now:
                said += ", which has not happened now"
            elif now[-1].key != then[-1].key:
                said += f"; after {_event(now[-1])} now"
        else:
            said = f"recorded before any {_type(t)}" + (", which has happened now" if now else "")
        found.append(f"{said}; decides ({_down(chance)})")
    unseen = {t: 1 - kept[answer] for t, kept in model.untried(key, past, parts).items()}
    doubts = sorted(((chance, t) for t, chance in unseen.items() if chance >= LEAST), key=_likeliest)
    found += [f"whether {_type(t)} matters was never seen ({_down(chance)})" for chance, t in doubts[:NAMED]]
    return found


def _down(chance: float) -> str:
    """Return a chance with two decimals, rounded down: only what is certain is 1.00."""
    return f"{math.floor(chance * 100) / 100:.2f}"


def _likeliest(pair: tuple[float, str]) -> tuple[float, str]:
    return -pair[0], pair[1]


def _recorded(times: int, of: int, answers: int) -> str:
    if answers == 1:
        return f"the only answer recorded, {times} of {of} times" if of > 1 else "recorded once"
    return f"recorded {times} of {of} times, with {answers} different answers"


def _event(event: Event) -> str:
    """Return an event as its method, path and values."""
    method, address = event.type.split(" ")[:2]
    shown = " ".join(f"{name}={value}" for name, value in event.parameters if not name.startswith("#"))
    numbers = [value for name, value in event.parameters if name.startswith("#")]
    path = urlsplit(f"//{address}").path or "/"
    if numbers:
        shown = f"({', '.join(numbers)}) {shown}".strip()
    return f"{method} {path} {shown[:LONG]}".strip()


def _type(t: str) -> str:
    if t.startswith(PART):
        return t[1:].replace("(given)", "").strip()
    method, address = t.split(" ")[:2]  # the rest names parameters
    return f"{method} {urlsplit(f'//{address}').path or '/'}"


def _part(t: str, parts: Parts) -> str:
    """Return a part by its name; values of cookies and credentials are not shown."""
    secret = "cookie" in t or "authorization" in t or t.startswith("~drawn")
    if t not in parts:
        return f"no {_type(t)}"
    return f"a {_type(t)}" if secret else f"{_type(t)}: {parts[t][:LONG]}"
