"""The order of a trace whose calls overlapped: by what caused a call and by what it says, never by what came first.

Lanes that were begun at different times, each when the one before had ended, follow each other; what a lane calls
itself stands between what it began before and after. The calls of lanes that were alive at once (a bunch: tasks of a
`gather`, workers at a queue, threads of a pool) may be shared out among them differently each time; so all of a bunch
are one set, in which

- a model call stands below the one whose conversation it goes on with,
- a tool call below the model call that asked for it, in the order in which that asked, else before the model call that
  is first told what it gave,
- and the rest in the order of their texts; the same call twice, in the order of its answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from typing import Any

from stillweb.harness.agents.lanes import Call, Lane, bunches, calls_of
from stillweb.harness.agents.retrieval import Standing
from stillweb.harness.trace import Event, canonical, hashed_part

Key = tuple[tuple[Any, ...], ...]
_HEAD = 200  # bytes of a request by which calls are put in order before their digests decide


class Sent:
    """What a model has been sent and has said, call by call."""

    def __init__(self) -> None:
        self._all: list[Any] = []
        self._copied: list[Any] = []

    def copied(self, messages: Sequence[Any]) -> list[Any]:
        """The messages as they are now, which an agent may change in place. What the last copy has is not copied again."""
        known = zip(messages, self._copied, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], known))
        self._copied = [*self._copied[:same], *deepcopy([*messages[same:]])]
        return self._copied

    def new(self, messages: Sequence[Any], items: Sequence[Any]) -> list[Any]:
        """The messages of a call without those of the one before and its answer, if it goes on with them.

        `items` are the call's own answer. Both are kept, and must not be changed.
        """
        known = len(self._all) if [*messages[: len(self._all)]] == self._all else 0
        self._all = [*messages, *items]
        return [*messages[known:]]


@dataclass(frozen=True)
class Traced:
    """A model or tool call as it was traced; of a model call also what it sent, and what it got to send back.

    `follows` is whether its `new` messages are those that the call before it in the trace had not sent.
    """

    event: Event
    messages: Sequence[Any] | None = None
    items: Sequence[Any] = ()
    follows: bool = False

    @cached_property
    def rest(self) -> bytes:
        """What tells it from another call at the same place."""
        event = {name: member for name, member in hashed_part(self.event).items() if name != "n"}
        if self.follows:
            event["request"] = {**event["request"], "new": None}
        return canonical(event)


def rearranged(events: Sequence[Event], root: Lane, traced: Mapping[int, Traced]) -> list[Event]:
    """The events of an agent's part in the order in which they belong; `traced` are its calls by their numbers.

    States and what is new of a request are those of this order. What else was traced, which nobody can place, is last.
    """
    found: list[Event] = []
    standing, sent = Standing(), Sent()
    for n in _walk(root, traced):
        one = traced[n]
        event = {**one.event, "n": len(found) + 1, "aside": {**one.event.get("aside", {}), "order": n}}
        if one.follows:
            event["request"] = {**event["request"], "new": sent.new(one.messages or (), one.items)}
        found.append(event)
        if event["event"] == "tool_call" and (changed := standing.after(event)):
            found.append({"event": "state", "n": len(found) + 1, "after": event["n"], **changed})
    others = [event for event in events if event["event"] not in ("model", "tool_call", "state")]
    for event in sorted(others, key=lambda event: canonical({**hashed_part(event), "n": 0})):
        found.append({**event, "n": len(found) + 1})
    return found


def _walk(lane: Lane, traced: Mapping[int, Traced]) -> Iterator[int]:
    places: list[tuple[int, Call | list[Lane]]] = [(call.begin, call) for call in lane.calls if call.n]
    places += [(bunch[0].begin, bunch) for bunch in bunches(lane)]
    for _, what in sorted(places, key=lambda place: place[0]):
        if isinstance(what, Call):
            yield what.n
        elif len(what) == 1:
            yield from _walk(what[0], traced)
        else:
            numbers = [call.n for one in what for call in calls_of(one) if call.n]
            yield from _by_content(numbers, traced)


def _by_content(numbers: Iterable[int], traced: Mapping[int, Traced]) -> list[int]:
    bunch = {n: traced[n] for n in numbers}
    models = _model_keys(bunch)
    told = [(models[n], _texts(one.messages or ())) for n, one in bunch.items() if n in models]
    keys = dict(models)
    for n, one in bunch.items():
        if one.event["event"] == "tool_call":
            keys[n] = _tool_key(one, traced, models, told)
    return sorted(bunch, key=lambda n: keys[n])


def _model_keys(bunch: Mapping[int, Traced]) -> dict[int, Key]:
    """Where the model calls stand: that of the call which they go on with, and what they say themselves."""
    keys: dict[int, Key] = {}
    said: dict[bytes, Key] = {}  # a conversation, its answer with it -> the call that gave the answer
    models = [(n, one) for n, one in bunch.items() if one.event["event"] == "model"]
    # the longer go on with the shorter
    for n, one in sorted(models, key=lambda model: len(model[1].messages or ())):
        states = _states(one.messages or ())
        known = max((i for i, state in enumerate(states) if state in said), default=0)
        new = canonical([*(one.messages or one.event["request"]["new"])][known:])
        own = (1, new[:_HEAD], one.event["request"]["digest"], one.rest)
        keys[n] = (*(said.get(states[known], ())), own)
        if one.messages is not None and one.items:
            state = _states([*one.messages, *one.items])[-1]
            said[state] = min(keys[n], said.get(state, keys[n]))
    return keys


def _states(messages: Sequence[Any]) -> list[bytes]:
    """A digest of a conversation after each of its messages, from none on."""
    states = [b""]
    for message in messages:
        states.append(sha256(states[-1] + canonical(message)).digest())
    return states


def _tool_key(
    one: Traced,
    traced: Mapping[int, Traced],
    models: Mapping[int, Key],
    told: Sequence[tuple[Key, list[str]]],
) -> Key:
    event = one.event
    name, arguments, gave = event["tool"], canonical(event["arguments"]), event["output"]["text"]
    asked = [
        (models.get(n, ()), index)
        for n, model in traced.items()
        if model.event["event"] == "model"
        for index, call in enumerate(model.event["reply"]["tool_calls"])
        if call["name"] == name
        and (event.get("id") in (None, call["id"]))
        and _arguments(call["arguments"]) == arguments
    ]
    if asked:
        above, index = min(asked)
        return (*above, (0, index, name, arguments, one.rest))
    heard = [key for key, texts in told if gave.strip() and any(gave in text for text in texts)]
    if heard:
        first = min(heard)
        kind, head, digest, _ = first[-1]
        return (*first[:-1], (kind, head, digest, b"", name, arguments, one.rest))
    return ((0, 0, name, arguments, one.rest),)


def _texts(value: Any) -> list[str]:
    """All texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    return [text for one in value for text in _texts(one)] if isinstance(value, Iterable) else []


def _arguments(text: str) -> bytes:
    try:
        return canonical(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return canonical(text)
