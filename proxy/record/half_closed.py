"""Clients that send nothing more and still wait for their answer, while a recorder runs.

mitmproxy takes the end of what a client sends for its leaving. Which of both it is shows on the wire only when something
is written; but most clients are of this machine, whose system knows whether anyone still has the other end (Linux).
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import _http1

from stillweb.proxy.record.patching import Wrapped, wrapped

SECONDS = 0.5  # between looks at whether it is still there

_TABLES = Path("/proc/self/net")
_Server = _http1.Http1Server


def still_there(client: Connection) -> bool:
    """Whether a process of this machine has the other end of a connection; False where that can't be known."""
    peer, own = client.peername, client.sockname
    if not sys.platform.startswith("linux") or not peer or not own:
        return False
    ends = [_end(*peer[:2]), _end(*own[:2])]
    try:
        table = (_TABLES / ("tcp6" if ":" in peer[0] else "tcp")).read_text()
    except OSError:
        return False
    for line in table.splitlines()[1:]:
        columns = line.split()
        if columns[1:3] == ends:
            return columns[9] != "0"  # its inode, which a socket has for as long as someone has it open
    return False


def _end(address: str, port: int) -> str:
    """An address and port as in those tables: each four bytes as a number of this machine."""
    packed = ipaddress.ip_address(address.partition("%")[0]).packed
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def _wait(original: Wrapped) -> Wrapped:
    """A request is whole, its answer is not."""

    def wait(self: Any, event: events.Event) -> Iterator[Any]:
        if isinstance(event, events.ConnectionClosed) and listens(self.conn):
            yield commands.RequestWakeup(SECONDS)
            return
        yield from original(self, event)

    return wait


def _handle_event(original: Wrapped) -> Wrapped:
    def _handle_event(self: Any, event: events.Event) -> Iterator[Any]:
        if isinstance(event, events.Wakeup):  # nobody else asks for one here
            if self.state == self.wait:
                yield from self.wait(events.ConnectionClosed(self.conn))
            return
        yield from original(self, event)

    return _handle_event


def _mark_done(original: Wrapped) -> Wrapped:
    """Behind its last answer there is nothing to wait for."""

    def mark_done(self: Any, **which: bool) -> Iterator[Any]:
        yield from original(self, **which)
        if self.state == self.read_headers and self.conn.state is ConnectionState.CAN_WRITE:
            yield commands.CloseConnection(self.conn)
            self.state = self.done

    return mark_done


def listens(client: Connection) -> bool:
    """Whether a client has said that it sends nothing more, and waits."""
    return client.state is ConnectionState.CAN_WRITE and still_there(client)


def half_closed() -> AbstractContextManager[None]:
    """Has them answered while it is open."""
    return wrapped(
        [
            (_Server, "wait", _wait),
            (_Server, "_handle_event", _handle_event),
            (_Server, "mark_done", _mark_done),
        ]
    )
