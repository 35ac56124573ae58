"""Virtual hosts that are made where they answer: by a function that is known by name, in each process of a gateway."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.capture import Response
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

# (request, session name); one that keeps something of sessions has a method `reset(session name)`
VirtualHost = Callable[[Request, str], Response]


@dataclass(frozen=True, slots=True)
class MadeHosts:
    """`maker` is "package.module:function", called as `function(snapshot, **options)`; it gives host -> what answers.

    `options` are JSON. What a session has done must be known from its own requests alone: they all come to one process.
    """

    maker: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def function(self) -> Callable[..., Any]:
        """The function. Raises UsageError, in one line, when it can't be had."""
        module, _, name = self.maker.partition(":")
        if not module or not name:
            raise UsageError(f"virtual hosts {self.maker!r}: a name is package.module:function")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:  # a module of others may raise anything
            raise UsageError(f"virtual hosts {self.maker}: {_line(error)}") from error
        if not callable(found):
            raise UsageError(f"virtual hosts {self.maker}: this is no function")
        function: Callable[..., Any] = found
        return function

    def make(self, snapshot: Snapshot) -> dict[str, VirtualHost]:
        """The hosts over a snapshot. Raises UsageError, in one line, and what Stillweb itself has to say."""
        function = self.function()
        try:
            made = function(snapshot, **self.options)
        except StillwebError:
            raise
        except Exception as error:  # others' code
            raise UsageError(f"virtual hosts {self.maker}: it failed: {_line(error)}") from error
        if not isinstance(made, Mapping) or not all(
            isinstance(host, str) and callable(answer) for host, answer in made.items()
        ):
            raise UsageError(f"virtual hosts {self.maker}: it must give a mapping of hosts to functions")
        return dict(made)


def reset_in(hosts: Iterable[VirtualHost], session: str) -> None:
    """Takes a session back to its start with the hosts that keep something of it."""
    for host in hosts:
        reset = getattr(host, "reset", None)
        if reset is not None:
            reset(session)


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
