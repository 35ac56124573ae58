"""Methods of mitmproxy wrapped while a recorder runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Wrapped = Callable[..., Any]
Wrap = Callable[[Wrapped], Wrapped]  # makes of what is there what takes its place


@contextlib.contextmanager
def wrapped(methods: Sequence[tuple[Any, str, Wrap]]) -> Iterator[None]:
    """Wraps methods, each given by its class and name, and takes the wraps off again."""
    before = [(own, name, own.__dict__.get(name)) for own, name, _ in methods]
    for own, name, wrap in methods:
        setattr(own, name, wrap(getattr(own, name)))
    try:
        yield
    finally:
        for own, name, function in before:
            if function is None:  # it is a parent's
                delattr(own, name)
            else:
                setattr(own, name, function)


def altered(inner: Any, alter: Callable[[Any], list[Any]]) -> Iterator[Any]:
    """A layer's commands, each replaced by those that `alter` makes of it; the layer gets the reply to the last."""
    reply = None
    while True:
        try:
            command = inner.send(reply)
        except StopIteration:
            return
        for one in alter(command):
            reply = yield one
