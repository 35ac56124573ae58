"""The recorder's event loop: names led elsewhere, and task factories that know less than uvloop tells them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from stillweb.proxy.record.recorder import new_loop


def test_a_task_factory_is_told_only_what_is_set() -> None:
    told: list[dict[str, Any]] = []

    def factory(loop: Any, coro: Any, **options: Any) -> asyncio.Task[Any]:
        told.append(options)
        return asyncio.Task(coro, loop=loop, **options)

    async def answer() -> int:
        return 42

    async def main() -> int:
        return await asyncio.create_task(answer(), name="named")

    loop = new_loop()
    try:
        loop.set_task_factory(factory)
        assert loop.run_until_complete(main()) == 42
        assert told
        assert all(value is not None for options in told for value in options.values())
        loop.set_task_factory(None)
        told.clear()
        assert loop.run_until_complete(main()) == 42
        assert not told
    finally:
        loop.close()


def test_names_are_led_to_their_place() -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        loop = new_loop({"site.example:443": here.getsockname()[:2]})

        async def main() -> bytes:
            server = await asyncio.start_server(greet, sock=here.dup())
            reader, writer = await asyncio.open_connection("Site.Example", 443)
            heard = await reader.read()
            writer.close()
            server.close()
            return heard

        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"here")
            writer.close()

        try:
            assert loop.run_until_complete(asyncio.wait_for(main(), 60)) == b"here"
        finally:
            loop.close()
