"""A client's connection through a recorder's layers without sockets: bytes in, bytes out, for one or the other protocol."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import h2.config
import h2.connection
import h2.events
from mitmproxy import options
from mitmproxy.connection import Client, Connection, ConnectionState, Server
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context

from stillweb.proxy.record.mitmproxy_compat._patch import Classes, apply_changes
from stillweb.proxy.record.mitmproxy_compat.dispatch import RecordingMaster, RecordingProxy


class Wire:
    """The layers, and what they do: `sent` bytes by connection, connections `closed`, and `origins` in order.

    `turns` counts how often a layer left the rest of what came for another turn; with `waits` that turn comes with `wake`.
    """

    def __init__(self, master: RecordingMaster, *, client_h2: bool, origin_h2: bool, reachable: bool) -> None:
        self.client = Client(
            peername=("127.0.0.1", 1),
            sockname=("127.0.0.1", 2),
            timestamp_start=0.0,
            state=ConnectionState.OPEN,
            alpn=b"h2" if client_h2 else None,
        )
        self.proxy = RecordingProxy(Context(self.client, master.options), master)
        self.sent: dict[Connection, bytes] = defaultdict(bytes)
        self.closed: list[Connection] = []
        self.origins: list[Server] = []
        self.turns = 0
        self.waits = False
        self._origin_h2 = origin_h2
        self._reachable = reachable
        self._wakeups: list[commands.RequestWakeup] = []
        self._do(events.Start())

    @property
    def answer(self) -> bytes:
        """All that the client got."""
        return self.sent[self.client]

    def layer_of(self, connection: Connection) -> Any:
        """Return the layer that speaks the protocol of a connection."""
        http: Any = self.proxy.context.layers[1]
        return http.connections[connection]

    def says(self, data: bytes) -> None:
        """The client sends something."""
        self._do(events.DataReceived(self.client, data))

    def origin_says(self, data: bytes) -> None:
        """The newest origin sends something."""
        self._do(events.DataReceived(self.origins[-1], data))

    def leaves(self, connection: Connection) -> None:
        """The other end of a connection sends no more."""
        connection.state &= ~ConnectionState.CAN_READ
        self._do(events.ConnectionClosed(connection))

    def wake(self) -> int:
        """Let the time pass for which layers wait; return how many waited."""
        waiting, self._wakeups = self._wakeups, []
        for one in waiting:
            self._do(events.Wakeup(one))
        return len(waiting)

    def _do(self, event: events.Event) -> None:
        pending = deque([event])
        while pending:
            for command in self.proxy.handle_event(pending.popleft()):
                if isinstance(command, commands.OpenConnection):
                    pending.append(events.OpenConnectionCompleted(command, self._open(command.connection)))
                elif isinstance(command, commands.SendData):
                    self.sent[command.connection] += command.data
                elif isinstance(command, commands.CloseConnection):
                    connection = command.connection
                    if getattr(command, "half_close", False):
                        connection.state &= ~ConnectionState.CAN_WRITE
                    elif connection not in self.closed:
                        connection.state = ConnectionState.CLOSED
                        self.closed.append(connection)
                        pending.append(events.ConnectionClosed(connection))
                elif isinstance(command, commands.RequestWakeup):
                    if command.delay or self.waits:
                        self._wakeups.append(command)
                    else:
                        self.turns += 1
                        pending.append(events.Wakeup(command))

    def _open(self, server: Server) -> str | None:
        self.origins.append(server)
        if not self._reachable:
            server.error = "no such place"
            return server.error
        server.state = ConnectionState.OPEN
        server.timestamp_start = 0.0
        server.alpn = b"h2" if self._origin_h2 else None
        return None


class Peer:
    """The other end of an HTTP/2 connection: `send` hands what was done to the wire, `take` gives the events back."""

    def __init__(self, *, client: bool) -> None:
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=client,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.h2.initiate_connection()
        self._taken = 0

    def send(self) -> bytes:
        return self.h2.data_to_send()

    def take(self, sent: bytes) -> list[h2.events.Event]:
        new, self._taken = sent[self._taken :], len(sent)
        found: list[h2.events.Event] = self.h2.receive_data(new)
        return found


@contextmanager
def wired(
    off: Collection[str] = (),
    *addons: Any,
    refused: list[str] | None = None,
    client_h2: bool = False,
    origin_h2: bool = False,
    reachable: bool = True,
) -> Iterator[Wire]:
    """A wire with the patches `off` left out, and add-ons behind mitmproxy's."""
    loop = asyncio.new_event_loop()
    failed: list[Exception] = []
    with apply_changes(off):
        master = RecordingMaster(
            options.Options(),
            loop,
            Classes(off),
            failed=failed.append,
            refused=(refused if refused is not None else []).append,
            directory=None,
        )
        master.begin(addons)
        try:
            yield Wire(master, client_h2=client_h2, origin_h2=origin_h2, reachable=reachable)
        finally:
            master._legacy_log_events.uninstall()
            loop.close()
    assert failed == []
