"""Where a recorder connects to: other places for chosen names, and no private address where that is forbidden."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record import recorder as recorder_module
from stillweb.proxy.record.recorder import Recorder, new_loop
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG

LINE = "is not a public address; --private (in Python private=True) lets it pass"
HERE = [
    "127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f000001", "0.0.0.0", "0", "localhost",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
]  # fmt: skip
ELSEWHERE = [
    "10.0.0.5", "172.16.1.1", "192.168.1.1", "100.64.0.1", "100.100.100.200", "169.254.169.254", "168.63.129.16",
    "192.0.0.192", "198.18.0.1", "224.0.0.251", "239.255.255.250", "255.255.255.255", "240.0.0.1",
    "[fd00:ec2::254]", "[fe80::1]", "[fec0::1]", "[ff02::fb]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[::ffff:0:7f00:1]",
    "metadata.google.internal", "printer.local", "a.localhost", "router.home.arpa", "LOCALHOST.",
]  # fmt: skip


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    def answer(asked: Asked) -> Answer:
        if asked.path.startswith("/to/"):
            return Answer(302, [("Location", f"http://{asked.path[4:]}")])
        return Answer(headers=[("Content-Type", "text/plain")], body=b"inside")

    with Origin(answer) as running:
        yield running


@contextmanager
def recording(folder: Path, **options: Any) -> Iterator[Recorder]:
    with (
        Writer.open(folder / "snap") as writer,
        Recorder(writer, authority=Authority.load_or_create(folder / "state"), **options) as recorder,
    ):
        yield recorder


def said(recorder: Recorder, request: str) -> bytes:
    """The answer to a request as it is written here."""
    with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
        peer.sendall(request.replace("\n", "\r\n").encode())
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def get(recorder: Recorder, place: str) -> bytes:
    return said(recorder, f"GET http://{place}/ HTTP/1.1\nHost: {place}\nConnection: close\n\n")


@pytest.mark.parametrize("hosts", [HERE, ELSEWHERE], ids=["here", "elsewhere"])
def test_private_hosts_are_refused(tmp_path: Path, origin: Origin, hosts: list[str]) -> None:
    before = len(origin.asked)
    with recording(tmp_path, private=False) as recorder:
        answers = {host: get(recorder, f"{host}:{origin.port}") for host in hosts}
        told = [reason for _, reason in recorder.failures]
    assert [host for host, said in answers.items() if not said.startswith(b"HTTP/1.1 502 ")] == []
    assert [host for host, said in answers.items() if LINE.encode() not in said] == []
    assert [LINE in reason for reason in told] == [True] * len(hosts)
    assert len(origin.asked) == before


@pytest.mark.parametrize("kind", ["tunnel", "web socket"])
def test_so_are_tunnels_and_web_sockets(tmp_path: Path, origin: Origin, kind: str) -> None:
    place = f"127.0.0.1:{origin.port}"
    before = len(origin.asked)
    upgrade = (
        "Connection: Upgrade\nUpgrade: websocket\n"
        "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n"
    )
    target, more = (f"CONNECT {place}", "") if kind == "tunnel" else (f"GET http://{place}/", upgrade)
    with recording(tmp_path, private=False) as recorder:
        answer = said(recorder, f"{target} HTTP/1.1\nHost: {place}\n{more}\n")
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert [LINE in reason for _, reason in recorder.failures] == [True]
    assert len(origin.asked) == before


@pytest.mark.parametrize("host", [host for host in HERE if ":" not in host])
def test_they_are_reached_where_private_hosts_are_allowed(tmp_path: Path, origin: Origin, host: str) -> None:
    with recording(tmp_path) as recorder:
        assert get(recorder, f"{host}:{origin.port}").endswith(b"inside")


@pytest.mark.slow
def test_the_recorder_never_asks_itself(tmp_path: Path) -> None:
    """Where a proxy knows only some names of its own address, a request by another name becomes hundreds, without end."""
    hosts = [host for host in HERE if host not in ("[::1]", "[::]")]  # it listens at 127.0.0.1
    with recording(tmp_path) as recorder:
        places = [f"{host}:{recorder.port}" for host in hosts]
        answers = [get(recorder, place) for place in places]
        answers += [
            said(recorder, f"GET / HTTP/1.1\nHost: {place}\nConnection: close\n\n") for place in places
        ]
        assert [b"127.0.0.1:%d is the recorder itself" % recorder.port in one for one in answers] == (
            [True] * len(answers)
        )
        tunnels = [said(recorder, f"CONNECT {place} HTTP/1.1\nHost: {place}\n\n") for place in places]
        assert {one[:13] for one in tunnels} == {b"HTTP/1.1 502 "}
        assert recorder.stats.requests == len(answers)


@pytest.mark.parametrize("asked", ["GET http://site.example/", "CONNECT site.example:443"])
def test_nor_is_it_its_own_upstream_proxy(tmp_path: Path, asked: str) -> None:
    """HTTP_PROXY may name it, in the shell that its programs were started from."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with recording(tmp_path, port=port, upstream=f"http://127.0.0.1:{port}") as recorder:
        answer = said(recorder, f"{asked} HTTP/1.1\nHost: site.example\n\n")
        assert answer.startswith(b"HTTP/1.1 502 ")
        (failure,) = recorder.failures
        assert f"127.0.0.1:{port} is the recorder itself" in failure[1]


def test_a_redirect_from_a_named_place_leads_nowhere(tmp_path: Path, origin: Origin) -> None:
    """A place that its owner named is connected to, and what it leads to is not."""
    inside = f"127.0.0.1:{origin.port}"
    with recording(tmp_path, private=False, resolve={"site.example": ("127.0.0.1", origin.port)}) as recorder:
        first = said(recorder, f"GET http://site.example/to/{inside} HTTP/1.1\nHost: site.example\n\n")
        assert f"location: http://{inside}".encode() in first.lower()
        assert LINE.encode() in get(recorder, inside)


def test_a_name_is_looked_up_once_and_its_private_addresses_are_left_out(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that says something else the second time (DNS rebinding), or a private address beside a public one."""
    looked: list[str] = []
    connected: list[str] = []
    replies = {
        "rebinds.example": [["93.184.216.34"], ["127.0.0.1"]],
        "both.example": [["10.0.0.5", "1.1.1.1"]],
    }
    connect = recorder_module.FastLoop.create_connection

    async def getaddrinfo(self: Any, host: str, port: int, **_: Any) -> Any:
        looked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in replies[host].pop(0)]

    async def create_connection(self: Any, factory: Any, host: str, port: int, **options: Any) -> Any:
        connected.append(host)
        return await connect(self, factory, "127.0.0.1", origin.port, **options)

    monkeypatch.setattr(recorder_module.FastLoop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(recorder_module.FastLoop, "create_connection", create_connection)
    with recording(tmp_path, private=False) as recorder:
        assert get(recorder, "rebinds.example").endswith(b"inside")
        assert get(recorder, "both.example").endswith(b"inside")
        refused = get(recorder, "rebinds.example")
    assert (looked, connected) == (
        ["rebinds.example", "both.example", "rebinds.example"],
        ["93.184.216.34", "1.1.1.1"],
    )
    assert f"rebinds.example (127.0.0.1) {LINE}".encode() in refused


def test_the_next_address_is_tried_where_one_does_not_answer(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = recorder_module.FastLoop.create_connection

    async def getaddrinfo(self: Any, host: str, port: int, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("1.1.1.1", "8.8.8.8")]

    async def create_connection(self: Any, factory: Any, host: str, port: int, **options: Any) -> Any:
        if host == "1.1.1.1":
            raise ConnectionRefusedError(111, "Connection refused")
        return await connect(self, factory, "127.0.0.1", origin.port, **options)

    monkeypatch.setattr(recorder_module.FastLoop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(recorder_module.FastLoop, "create_connection", create_connection)
    with recording(tmp_path, private=False) as recorder:
        assert get(recorder, "site.example").endswith(b"inside")


def test_a_refusal_is_in_the_snapshot(tmp_path: Path, origin: Origin) -> None:
    with recording(tmp_path, private=False) as recorder:
        get(recorder, f"127.0.0.1:{origin.port}")
        assert recorder.wait_quiet()
        assert recorder.unanswered == 1
    with Snapshot.open(tmp_path / "snap") as snapshot:
        (failure,) = snapshot.failures()
        assert (failure.verdict, failure.message) == ("failed:private", f"127.0.0.1 {LINE}")


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:4700:4700::1111", "64:ff9b::5db8:d822", "::ffff:1.1.1.1"]
)
def test_public_addresses_are(address: str) -> None:
    assert recorder_module.is_public(address)


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
