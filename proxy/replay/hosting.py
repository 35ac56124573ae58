"""Virtual hosts: functions that answer for hosts of their own beside the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request

# (request, session name); a host that keeps state for sessions has a method `reset(session name)`
VirtualHost = Callable[[Request, str], Response]


def reset_hosts(hosts: Iterable[VirtualHost], session: str) -> None:
    """Reset a session in the hosts that keep state for it."""
    for host in hosts:
        reset = getattr(host, "reset", None)
        if reset is not None:
            reset(session)
