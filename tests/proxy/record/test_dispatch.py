"""Hooks are answered at once and in order; one that must be awaited goes on in a task, as in mitmproxy."""

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Any

from mitmproxy import options
from mitmproxy.connection import Client
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._hooks import HttpRequestHook, HttpResponseHook
from mitmproxy.test import tflow

from stillweb.proxy.record.mitmproxy_compat._patch import Classes
from stillweb.proxy.record.mitmproxy_compat.dispatch import RecordingMaster, RecordingProxy


class Two(layer.Layer):
    """Tells of a request, then of its answer."""

    def _handle_event(self, event: events.Event) -> Generator[commands.Command, Any, None]:
        flow = tflow.tflow(resp=True)
        yield HttpRequestHook(flow)
        yield commands.Log("asked")
        yield HttpResponseHook(flow)
        yield commands.Log("answered")


class Listener:
    def __init__(self, name: str, heard: list[str], waits: asyncio.Event | None = None) -> None:
        self.name, self.heard, self.waits = name, heard, waits

    def request(self, _: object) -> Any:
        self.heard.append(f"{self.name} request")
        return self.waits.wait() if self.waits else None

    def response(self, _: object) -> None:
        self.heard.append(f"{self.name} response")
        if self.name == "bad":
            raise ValueError("bad")


def run(work: Callable[[Any, RecordingProxy, list[Exception]], Any]) -> None:
    async def go() -> None:
        failed: list[Exception] = []
        master: Any = RecordingMaster(
            options.Options(),
            asyncio.get_running_loop(),
            Classes(),
            failed=failed.append,
            refused=lambda _: None,
            directory=None,
        )
        client = Client(peername=("client", 1), sockname=("proxy", 2), timestamp_start=0.0)
        context = Context(client, master.options)
        proxy: Any = RecordingProxy(context, master)
        proxy._handle_event = Two(context).handle_event  # in place of what it asks for
        await work(master, proxy, failed)

    asyncio.run(go())


def told(given: Iterator[commands.Command]) -> list[Any]:
    return [c.message if isinstance(c, commands.Log) else c for c in given]


def test_all_hooks_are_answered_in_order_within_one_event() -> None:
    async def work(master: Any, connection: RecordingProxy, failed: list[Exception]) -> None:
        heard: list[str] = []
        master.addons.add(Listener("first", heard), Listener("bad", heard), Listener("last", heard))
        assert told(connection.handle_event(events.Start())) == ["asked", "answered"]
        names = ("first", "bad", "last")
        assert heard == [f"{name} {hook}" for hook in ("request", "response") for name in names]
        assert [str(error) for error in failed] == ["bad"]

    run(work)


def test_what_a_listener_waits_for_holds_the_exchange_and_the_listeners_after_it() -> None:
    async def work(master: Any, connection: RecordingProxy, failed: list[Exception]) -> None:
        heard: list[str] = []
        gate = asyncio.Event()
        master.addons.add(Listener("first", heard), Listener("slow", heard, gate), Listener("last", heard))
        (hook,) = told(connection.handle_event(events.Start()))
        assert isinstance(hook, HttpRequestHook)
        assert heard == ["first request", "slow request"]
        rest = asyncio.create_task(master.addons.handle_lifecycle(hook))  # as mitmproxy's task does
        await asyncio.sleep(0)
        assert heard == ["first request", "slow request"]
        gate.set()
        await rest
        assert heard == ["first request", "slow request", "last request"]
        assert told(connection.handle_event(events.HookCompleted(hook))) == ["asked", "answered"]
        assert heard[3:] == ["first response", "slow response", "last response"]
        assert failed == []

    run(work)
