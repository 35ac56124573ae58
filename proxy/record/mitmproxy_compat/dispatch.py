"""mitmproxy's master, server and outer layers, so that each recorder builds the inner layers from its own classes.

Also what recording has no use for is left out. Measured per request of 40 kB on HTTPS: mitmproxy's checks of its own
dataclasses took 8 % of the event loop's time, calling each hook on each add-on 7 %.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import types
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mitmproxy import ctx, hooks, options
from mitmproxy.addonmanager import AddonManager
from mitmproxy.connection import Connection
from mitmproxy.master import Master
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import commands, events, layer, layers, mode_specs
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http, modes, tls
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.proxy.mode_servers import AsyncioServerInstance, ProxyConnectionHandler

from stillweb.proxy.record.mitmproxy_compat import disable_h2c, next_layer, proxyserver, tlsconfig

Commands = Generator[Any, Any, Any]
Listeners = list[Callable[..., Any]]
Begun = tuple[Awaitable[Any], Listeners]  # an awaitable result, and the listeners that come after it

T = TypeVar("T")


class MakesClasses(Protocol):
    """Give the class that a recorder uses in place of one of mitmproxy's (see `_patch.Classes`)."""

    def __call__(self, base: type[T], /) -> type[T]: ...


class RecordingMaster(Master):
    """A master whose add-ons are fixed once it runs. Must be made on its event loop's thread.

    `failed` is told of exceptions in add-ons, `refused` of requests that no add-on hears of. Bodies that an HTTP/2
    client does not read yet go to unnamed files in `directory`.
    """

    def __init__(
        self,
        settings: options.Options,
        loop: Any,
        classes: MakesClasses,
        *,
        failed: Callable[[Exception], None],
        refused: Callable[[str], None],
        directory: Path | None,
    ) -> None:
        _own.is_recorders = True
        super().__init__(settings, event_loop=loop)
        self.classes = classes
        self.refused = refused
        self.directory = directory
        self.addons = FixedAddons(self, failed)
        self.server = proxyserver.Proxyserver()  # type: ignore[no-untyped-call]

    def begin(self, own: Sequence[object]) -> None:
        """Add mitmproxy's add-ons, then our own."""
        self.addons.add(  # type: ignore[no-untyped-call]
            self.server, RecordingNextLayer(), tlsconfig.TlsConfig(), disable_h2c.DisableH2C(), *own
        )
        self.options.update(mode=["stillweb"])  # type: ignore[no-untyped-call]

    def _asyncio_exception_handler(self, loop: Any, context: dict[str, Any]) -> None:
        """Report as mitmproxy does, but for a look-up or connection that failed after its client had left."""
        future = context.get("future")
        given_up = isinstance(future, asyncio.Future) and not isinstance(future, asyncio.Task)
        if not (given_up and isinstance(context.get("exception"), OSError)):
            super()._asyncio_exception_handler(loop, context)


class FixedAddons(AddonManager):
    """Add-ons whose listeners are looked up once. An exception in one is reported, not just logged."""

    def __init__(self, master: Master, failed: Callable[[Exception], None]) -> None:
        super().__init__(master)  # type: ignore[no-untyped-call]
        self._failed = failed
        self._listeners: dict[str, Listeners] = {}
        self._begun: dict[hooks.Hook, Begun] = {}

    def register(self, addon: Any) -> Any:
        self._listeners.clear()
        return super().register(addon)  # type: ignore[no-untyped-call]

    def answer(self, event: hooks.Hook) -> bool:
        """Call all listeners of a hook in order; return False if one must be awaited, by `handle_lifecycle`."""
        listeners = self._of(event.name)
        if not listeners:
            return True
        left = self._call(listeners, event)
        if left is not None:
            self._begun[event] = left
        return left is None

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Call all listeners of a hook in order."""
        left = self._begun.pop(event, None) or self._call(self._of(event.name), event)
        while left is not None:
            result, listeners = left
            try:
                await result
            except Exception as e:  # noqa: BLE001 -- reported: it ends the recording
                self._failed(e)
            left = self._call(listeners, event)

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        """Call all listeners, without mitmproxy's `update` after each hook of a flow, which nobody here uses."""
        await self.trigger_event(event)

    def _of(self, name: str) -> Listeners:
        listeners = self._listeners.get(name)
        if listeners is None:
            found = (getattr(addon, name, None) for addon in self.chain)
            listeners = self._listeners[name] = [f for f in found if callable(f)]
        return listeners

    def _call(self, listeners: Listeners, event: hooks.Hook) -> Begun | None:
        arguments = event.args()
        for number, listener in enumerate(listeners, 1):
            try:
                result = listener(*arguments)
            except Exception as e:  # noqa: BLE001 -- reported: it ends the recording
                self._failed(e)
                continue
            if result is not None and inspect.isawaitable(result):
                return result, listeners[number:]
        return None


class StillwebMode(mode_specs.ProxyMode):  # type: ignore[no-untyped-call]
    """mitmproxy's name for a server of ours: `mode=["stillweb"]`. mitmproxy registers modes by their class."""

    description = "Stillweb's recorder"
    transport_protocol = "tcp"

    def __post_init__(self) -> None:
        if self.data:
            raise ValueError("mode takes no arguments")


class RecordingServer(AsyncioServerInstance[StillwebMode]):  # type: ignore[no-untyped-call]
    """A listening server whose connections begin with a `RecordingProxy`."""

    def make_top_layer(self, context: Context) -> layer.Layer:
        return RecordingProxy(context, ctx.master)  # type: ignore[arg-type]

    async def handle_stream(self, reader: Any, writer: Any = None) -> None:
        """Handle a client's connection until its end."""
        master: Any = ctx.master
        handler = master.classes(ProxyConnectionHandler)(master, reader, writer, master.options, self.mode)
        handler.layer = self.make_top_layer(handler.layer.context)
        with self.manager.register_connection(handler.client.id, handler):
            await handler.handle_client()


class RecordingProxy(modes.HttpProxy):
    """The first layer of a client's connection. It holds what the layers within share, and answers their hooks.

    mitmproxy starts a task for each hook, four for a plain exchange, since an add-on may have to wait. Ours hardly
    ever have to: then the answer is there without a task, in the order in which the tasks would have run.
    """

    def __init__(self, context: Context, master: RecordingMaster) -> None:
        super().__init__(context)
        self.master = master
        self.broken: dict[Connection, BaseException] = {}  # why connections ended that no side closed
        self.cut: set[Connection] = set()  # clients' connections that end within a body of unknown length
        self.ending: set[Connection] = set()  # origins' connections that take no more requests
        # connections of which something that was read waits for its turn
        self.behind: set[Connection] = set()

    def handle_event(self, event: events.Event) -> Commands:
        """See Layer. Hand on hooks whose listeners must be awaited; mitmproxy starts a task for these."""
        waiting: deque[commands.StartHook] = deque()
        at: events.Event | None = event
        while True:
            if at is not None:
                for command in super().handle_event(at):
                    if isinstance(command, commands.StartHook):
                        waiting.append(command)
                    else:
                        yield command
            if not waiting:
                return
            hook = waiting.popleft()
            at = None
            if not self.master.addons.answer(hook):  # type: ignore[attr-defined]
                yield hook
            elif hook.blocking:
                at = events.HookCompleted(hook)


def proxy_of(context: Context) -> RecordingProxy:
    """Return the first layer of a client's connection."""
    first = context.layers[0]
    assert isinstance(first, RecordingProxy)
    return first


class RecordingNextLayer(next_layer.NextLayer):
    """mitmproxy's add-on that chooses the layers within a connection, with this recorder's classes."""

    name = "nextlayer"  # as mitmproxy looks it up

    def _next_layer(self, context: Context, data_client: bytes, data_server: bytes) -> layer.Layer | None:
        classes = proxy_of(context).master.classes
        if starts_like_tls_record(data_client):
            if len(context.layers) == 1:  # TLS to the proxy itself
                to_proxy = classes(tls.ClientTLSLayer)(context)
                to_proxy.child_layer = RecordingHttpLayer(context, http.HTTPMode.regular)
                return to_proxy
            to_origin = tls.ServerTLSLayer(context)
            to_origin.child_layer = classes(tls.ClientTLSLayer)(context)
            return to_origin
        found: layer.Layer | None = super()._next_layer(context, data_client, data_server)
        if isinstance(found, layers.HttpLayer):
            context.layers.remove(found)  # a layer enters itself there
            return RecordingHttpLayer(context, found.mode)
        return found


class RecordingHttpLayer(http.HttpLayer):
    """mitmproxy's layer of HTTP connections and exchanges, made of this recorder's classes."""

    def __init__(self, context: Context, mode: http.HTTPMode) -> None:
        super().__init__(context, mode)
        self._classes = proxy_of(context).master.classes

    def _handle_event(self, event: events.Event) -> Commands:
        if isinstance(event, events.Start):
            client = self.context.client
            kind: type[Any] = _http2.Http2Server if client.alpn == b"h2" else _http1.Http1Server
            # mitmproxy enters its own if none is
            self.connections[client] = self._classes(kind)(self.context.fork())
        elif (
            isinstance(event, events.DataReceived)
            and event.connection is self.context.server
            and self.context.server not in self.connections
        ):
            return self._hear_unasked(event)
        inner: Commands = super()._handle_event(event)
        return inner

    def _hear_unasked(self, event: events.DataReceived) -> Commands:
        """Begin with an HTTP/2 origin that says its settings before it is asked anything."""
        origin = self.connections[self.context.server] = self._to_origin(self.context.fork())
        yield from self.event_to_child(origin, events.Start())
        yield from self.event_to_child(origin, event)

    def make_stream(self, stream_id: int) -> Commands:
        stream = self.streams[stream_id] = self._classes(http.HttpStream)(self.context.fork(), stream_id)
        yield from self.event_to_child(stream, events.Start())

    def event_to_child(self, child: layer.Layer, event: events.Event) -> Commands:
        """Hand an event to a layer within. `get_connection` begins new connections to origins so."""
        if isinstance(event, events.Start):
            within = child.child_layer if isinstance(child, tls.ServerTLSLayer) else child
            if isinstance(within, http.HttpClient):
                within._handle_event = partial(self._connect, within)
        return super().event_to_child(child, event)

    def _connect(self, client: http.HttpClient, event: events.Event) -> Commands:
        """Open a connection to an origin, and hand all that follows to the layer of its protocol."""
        server = client.context.server
        error = None if server.connected else (yield commands.OpenConnection(server))
        if not error:
            client.child_layer = self._to_origin(client.context)
            client._handle_event = client.child_layer.handle_event
            yield from client.child_layer.handle_event(event)
        yield http.RegisterHttpConnection(server, error)

    def _to_origin(self, context: Context) -> layer.Layer:
        kind: type[Any] = _http2.Http2Client if context.server.alpn == b"h2" else _http1.Http1Client
        made: layer.Layer = self._classes(kind)(context)
        return made


def nothing() -> Commands:
    yield from ()


def replace_commands(inner: Commands, alter: Callable[[Any], list[Any]]) -> Commands:
    """Replace each command of a layer by those that `alter` makes of it; the layer gets the reply to the last."""
    reply = None
    while True:
        try:
            command = inner.send(reply)
        except StopIteration as end:
            return end.value
        for one in alter(command):
            reply = yield one


class _Own(threading.local):
    is_recorders = False  # set on a recorder's thread


_own = _Own()


def _of_thread(name: str) -> property:
    """Make an attribute of a module that has its own value on each recorder's thread."""

    def get(module: types.ModuleType) -> Any:
        try:
            return vars(_own if _own.is_recorders else module)[name]
        except KeyError:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}") from None

    def put(module: types.ModuleType, value: Any) -> None:
        vars(_own if _own.is_recorders else module)[name] = value

    return property(get, put)


class ContextOfThread(types.ModuleType):
    """`mitmproxy.ctx` with a master and options for each recorder's thread, where mitmproxy has one for the process."""

    master = _of_thread("master")
    options = _of_thread("options")
    log = _of_thread("log")


def no_self_check(_: object) -> None:
    """Do nothing, where mitmproxy checks the types of a message's fields, as `python -O` does by itself."""


@contextlib.contextmanager
def quiet_logger() -> Iterator[None]:
    """Keep mitmproxy's log from the terminal while the context is open."""
    logger = logging.getLogger("mitmproxy")
    before = logger.level, logger.propagate
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextlib.contextmanager
def logged_errors(on_error: Callable[[str], None]) -> Iterator[None]:
    """Hand the errors that mitmproxy logs on this thread, its own crashes among them, to `on_error`."""
    handler = _Handler(on_error)
    logger = logging.getLogger("mitmproxy")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, heard: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._heard = heard
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            cause = record.exc_info[1] if record.exc_info else None
            self._heard(f"{record.getMessage()}{f' ({cause!r})' if cause else ''}")
