"""Each change to mitmproxy is needed still: without it, the case that it is for goes wrong as it did.

Where one of these tests fails for a newer mitmproxy, the patch in `_patch.PATCHES` can go, with its test.
"""

import contextlib
import functools
import socket
import ssl
import struct
import threading
import time
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import h2.errors
import h2.events
import h2.settings
import mitmproxy.ctx
import pytest
import wsproto
from mitmproxy import http
from mitmproxy.proxy.layers import websocket
from mitmproxy.proxy.layers.http import _http1
from wsproto.events import BytesMessage, Ping

from stillweb.proxy.record import recorder as recorder_module
from stillweb.proxy.record.mitmproxy_compat import _patch, lifetime, turns
from stillweb.proxy.record.mitmproxy_compat.http2 import UNREAD_MEMORY
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.writer import Writer
from tests.proxy.lab import Lab
from tests.proxy.record.known_functions import functions_in
from tests.proxy.record.wire import Peer, Wire, wired
from tests.support.waiting import HANG, until

Off = Collection[str]
GET = b"GET http://x.test/%b HTTP/1.1\r\nHost: x.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = {b":method": b"GET", b":scheme": b"http", b":authority": b"x.test", b":path": b"/"}

CASES: list[tuple[str, Callable[[Off], object], object]] = []


def case(patch: str, wanted: object) -> Callable[[Callable[[Off], object]], Callable[[Off], object]]:
    """Enter a case, and what it comes to with the patch."""

    def enter(run: Callable[[Off], object]) -> Callable[[Off], object]:
        CASES.append((patch, run, wanted))
        return run

    return enter


def first_line(wire: Wire) -> bytes:
    return wire.answer.partition(b"\r\n")[0]


@case("retries", 2)
def _closes_a_kept_connection(off: Off) -> object:
    with wired(off) as wire:
        wire.says(GET % b"1")
        wire.origin_says(OK)
        wire.says(GET % b"2")
        wire.leaves(wire.origins[0])
        return len(wire.origins)


@case("retries", 2)
def _closes_a_kept_http2_connection(off: Off) -> object:
    origin = Peer(client=False)
    with wired(off, origin_h2=True) as wire:
        for number in (1, 3):
            wire.says(GET % b"%d" % number)
            origin.take(wire.sent[wire.origins[0]])
            if number == 1:
                origin.h2.send_headers(1, [(b":status", b"204")], end_stream=True)
                wire.origin_says(origin.send())
        wire.leaves(wire.origins[0])
        return len(wire.origins)


@case("response heads", b"HTTP/1.1 200 OK")
def _sends_early_hints(off: Off) -> object:
    with wired(off) as wire:
        wire.says(GET % b"")
        wire.origin_says(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n" + OK)
        return first_line(wire)


@case("response heads", b"HTTP/1.1 200 OK")
def _sends_a_line_that_is_no_field(off: Off) -> object:
    with wired(off) as wire:
        wire.says(GET % b"")
        wire.origin_says(OK.replace(b"Content", b"no field\r\nContent"))
        return first_line(wire)


@case("response heads", False)
def _breaks_off_within_a_head(off: Off) -> object:
    with wired(off) as wire:
        wire.says(GET % b"")
        wire.origin_says(b"HTTP/1.1 200 OK\r\nSet-Cookie: hush")
        wire.leaves(wire.origins[0])
        return b"hush" in wire.answer


@case("request heads", b"GET /%C3%BC HTTP/1.1")
def _asks_with_unescaped_letters(off: Off) -> object:
    with wired(off) as wire:
        wire.says(GET % "\u00fc".encode())
        sent = wire.sent[wire.origins[0]] if wire.origins else b""
        return sent.partition(b"\r\n")[0].replace("\u00fc".encode(), b"%C3%BC")


@case("request heads", 1)
def _asks_behind_an_empty_line(off: Off) -> object:
    with wired(off) as wire:
        wire.says(b"\r\n" + GET % b"")
        return len(wire.origins)


@case("refused requests", True)
def _asks_for_no_place(off: Off) -> object:
    refused: list[str] = []
    with wired(off, refused=refused) as wire:
        wire.says(b"GET /a HTTP/1.1\r\n\r\n")
    return bool(refused)


@case("refused requests", True)
def _asks_what_is_no_request(off: Off) -> object:
    refused: list[str] = []
    with wired(off, refused=refused) as wire:
        wire.says(b"GET a b c HTTP/1.1\r\n\r\n")
    return bool(refused)


@case("refused requests", True)
def _breaks_the_rules_of_http2(off: Off) -> object:
    refused: list[str] = []
    with wired(off, refused=refused, client_h2=True) as wire:
        wire.says(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\1\0\0\0\0\0\1x")
    return bool(refused)


@case("chunked responses", b"2\r\nok\r\n0\r\n\r\n")
def _sends_chunks_with_an_odd_trailer(off: Off) -> object:
    with wired(off) as wire:
        wire.says(GET % b"")
        wire.origin_says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n?\r\n\r\n")
        return wire.answer.partition(b"\r\n\r\n")[2]


@case("trailers", b"0\r\nX-T: 1\r\n\r\n")
def _sends_trailers(off: Off) -> object:
    with wired(off) as wire:
        wire.says(
            b"POST" + GET[3:-2] % b"" + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n"
        )
        return wire.sent[wire.origins[0]][-13:]


@case("failures after continue", True)
def _expects_100_of_an_origin_that_is_not_there(off: Off) -> object:
    with wired(off, reachable=False) as wire:
        wire.says(b"POST" + GET[3:-2] % b"" + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        wire.says(b"ok")
        return b"HTTP/1.1 502 " in wire.answer


class Streams:
    """An add-on that has all bodies streamed."""

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        flow.request.stream = True

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        assert flow.response is not None
        flow.response.stream = True


class Outlives(Streams):
    """An add-on that lets answers outlive their clients."""

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        super().responseheaders(flow)
        lifetime.outlive_client(flow, 10, lambda: None)


@case("outliving responses", False)
def _leaves_within_an_answer(off: Off) -> object:
    with wired(off, Outlives()) as wire:
        wire.says(GET % b"")
        wire.origin_says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome")
        wire.leaves(wire.client)
        return wire.origins[0] in wire.closed


@case("half-closed clients", b"HTTP/1.1 200 OK")
def _sends_nothing_more(off: Off) -> object:
    with wired(off) as wire, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifetime, "is_connected", lambda _: True)
        wire.says(GET % b"")
        wire.leaves(wire.client)
        wire.wake()
        if wire.origins[0] not in wire.closed:
            wire.origin_says(OK)
        return first_line(wire)


@case("early responses", b"2\r\nno\r\n0\r\n\r\n")
def _answers_before_the_request_is_whole(off: Off) -> object:
    with wired(off, Streams()) as wire:
        wire.says(b"POST" + GET[3:-2] % b"" + b"Content-Length: 9\r\n\r\nsome")
        wire.origin_says(b"HTTP/1.1 413 Big\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n")
        return wire.answer.partition(b"\r\n\r\n")[2]


class Holds:
    """An add-on that holds answers."""

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        def stream() -> None:
            assert flow.response is not None
            flow.response.stream = True

        lifetime.hold(flow, stream)


@case("held responses", b"GIF89a")
def _sends_a_picture_without_end(off: Off) -> object:
    with wired(off, Holds()) as wire:
        wire.says(GET % b"")
        wire.origin_says(b"HTTP/1.1 200 OK\r\nContent-Type: image/gif\r\n\r\nGIF89a")
        wire.wake()
        return wire.answer.partition(b"\r\n\r\n")[2]


def h2_answer(
    off: Off, answer: Callable[[Peer, int], None], *addons: Any, later: bytes = b""
) -> tuple[Wire, Peer]:
    """Ask an HTTP/2 origin, have it answer, and send `later` from it."""
    origin = Peer(client=False)
    with wired(off, *addons, origin_h2=True) as wire:
        wire.says(GET % b"")
        origin.take(wire.sent[wire.origins[0]])
        answer(origin, 1)
        wire.origin_says(origin.send() + later)
        return wire, origin


@case("soft ends", True)
def _ends_a_connection_softly(off: Off) -> object:
    def answer(origin: Peer, stream: int) -> None:
        origin.h2.send_headers(stream, [(b":status", b"200"), (b"content-length", b"2")])

    later = b"\0\0\x08\7\0\0\0\0\0" + struct.pack(">II", 1, 0) + b"\0\0\2\0\1\0\0\0\1ok"
    wire, _ = h2_answer(off, answer, later=later)
    return wire.answer.endswith(b"\r\n\r\nok")


@case("soft ends", True)
def _asks_and_ends_its_connection_softly(off: Off) -> object:
    client = Peer(client=True)
    client.h2.send_headers(1, list(REQUEST.items()), end_stream=True)
    with wired(off, client_h2=True) as wire:
        wire.says(client.send() + b"\0\0\x08\7\0\0\0\0\0" + struct.pack(">II", 0, 0))
        if not wire.origins or wire.origins[0] in wire.closed:
            return False
        wire.origin_says(OK)
        return any(isinstance(event, h2.events.StreamEnded) for event in client.take(wire.answer))


@case("response fields", b"HTTP/1.1 200 OK")
def _sends_a_field_of_http1(off: Off) -> object:
    def answer(origin: Peer, stream: int) -> None:
        fields = [(b":status", b"200"), (b"upgrade", b"h2,h2c"), (b"connection", b"upgrade")]
        origin.h2.send_headers(stream, fields)
        origin.h2.send_data(stream, b"ok", end_stream=True)

    return first_line(h2_answer(off, answer)[0])


@case("response fields", False)
def _sends_less_than_it_says(off: Off) -> object:
    def answer(origin: Peer, stream: int) -> None:
        origin.h2.send_headers(stream, [(b":status", b"200"), (b"content-length", b"9")])
        origin.h2.send_data(stream, b"ok", end_stream=True)

    wire, _ = h2_answer(off, answer)
    return wire.origins[0] in wire.closed


class Errors(Streams):
    """An add-on that keeps why exchanges failed."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def error(self, flow: http.HTTPFlow) -> None:
        assert flow.error is not None
        self.found.append(flow.error.msg)


@case("resets", ["the origin reset its stream (CANCEL)"])
def _takes_an_answer_back(off: Off) -> object:
    def answer(origin: Peer, stream: int) -> None:
        origin.h2.send_headers(stream, [(b":status", b"200")])
        origin.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)

    errors = Errors()
    h2_answer(off, answer, errors)
    return errors.found


@case("resets", 2)
def _refuses_a_request_unseen(off: Off) -> object:
    def answer(origin: Peer, stream: int) -> None:
        origin.h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)

    wire, origin = h2_answer(off, answer)
    asked = origin.take(wire.sent[wire.origins[0]])
    return 1 + sum(isinstance(event, h2.events.RequestReceived) for event in asked)


@case("turns", True)
def _pings_at_once(off: Off) -> object:
    client = Peer(client=True)
    with pytest.MonkeyPatch.context() as patch, wired(off, client_h2=True) as wire:
        patch.setattr(turns, "TURN", -1)
        wire.says(client.send())  # preface and settings
        before = wire.turns
        for _ in range(3):
            client.h2.ping(bytes(8))
        wire.says(client.send())
        return wire.turns > before


@case("turns", True)
def _sends_chunks_at_once(off: Off) -> object:
    with pytest.MonkeyPatch.context() as patch, wired(off) as wire:
        wire.says(b"POST" + GET[3:-2] % b"" + b"Transfer-Encoding: chunked\r\n\r\n")
        patch.setattr(turns, "TURN", -1)
        before = wire.turns
        wire.says(b"1\r\na\r\n" * 3)
        return wire.turns > before


@case("queued requests", 1)
def _takes_a_request_back_before_there_is_a_stream_for_it(off: Off) -> object:
    client, origin = Peer(client=True), Peer(client=False)
    origin.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 1})
    with wired(off, client_h2=True, origin_h2=True) as wire:
        for number in (1, 3):
            client.h2.send_headers(number, list(REQUEST.items()), end_stream=True)
            wire.says(client.send())
            wire.origin_says(origin.send())
        client.h2.reset_stream(3)
        wire.says(client.send())
        asked = origin.take(wire.sent[wire.origins[0]])
        origin.h2.send_headers(1, [(b":status", b"204")], end_stream=True)
        wire.origin_says(origin.send())
        asked += origin.take(wire.sent[wire.origins[0]])
    return sum(isinstance(event, h2.events.RequestReceived) for event in asked)


@case("unread bodies", True)
def _reads_nothing_over_http2(off: Off) -> object:
    client = Peer(client=True)
    client.h2.send_headers(1, list(REQUEST.items()), end_stream=True)
    with wired(off, Streams(), client_h2=True) as wire:
        wire.says(client.send())
        size = 3 * UNREAD_MEMORY
        wire.origin_says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
        (body,) = wire.layer_of(wire.client).h2_conn.stream_buffers.values()
        return sum(len(chunk.data) for chunk in getattr(body, "_first", body)) <= UNREAD_MEMORY


@case("long heads", 1)
def _asks_with_a_long_head(off: Off) -> object:
    client = Peer(client=True)
    client.h2.send_headers(1, [*REQUEST.items(), (b"cookie", b"x" * 70_000)], end_stream=True)
    with wired(off, client_h2=True) as wire:
        wire.says(client.send())
        return len(wire.origins)


@case("own connections", True)
def _has_a_configuration_for_each_connection(off: Off) -> object:
    found = []
    for _ in range(2):
        with wired(off, client_h2=True) as wire:
            wire.says(Peer(client=True).send())
            found.append(wire.layer_of(wire.client).h2_conn.config)
    return found[0] is not found[1]


@case("pings within messages", ["said with a ping"])
def _pings_within_a_packed_message(off: Off) -> object:
    with _patch.apply_changes(off):
        pair = [wsproto.connection.Connection(kind, [_deflate()]) for kind in wsproto.ConnectionType]
        sender, reader = pair
        heard = []
        for event in (BytesMessage(b"said with a ", message_finished=False), Ping(), BytesMessage(b"ping")):
            reader.receive_data(sender.send(event))
            heard += [bytes(one.data) for one in reader.events() if isinstance(one, BytesMessage)]
        return [b"".join(heard).decode("latin-1")]


@case("whole frames", 2)
def _reads_a_message_in_pieces(off: Off) -> object:
    with _patch.apply_changes(off):
        sender = wsproto.connection.Connection(wsproto.ConnectionType.CLIENT)
        reader = websocket.WebsocketConnection(wsproto.ConnectionType.SERVER, conn=Any)
        data, found = (
            sender.send(BytesMessage(b"a" * 9999, message_finished=False)) + sender.send(BytesMessage(b"")),
            0,
        )
        for at in range(0, len(data), 1000):
            reader.receive_data(data[at : at + 1000])
            found += len([*reader.events()])
        return found


def _deflate() -> Any:
    extension = wsproto.extensions.PerMessageDeflate()
    extension.finalize("permessage-deflate")
    return extension


class Durations:
    """An add-on that notes the seconds from each request to its answer."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def response(self, flow: http.HTTPFlow) -> None:
        assert flow.response is not None
        assert flow.response.timestamp_start is not None
        self.found.append(flow.response.timestamp_start - flow.request.timestamp_start)


@case("steady clock", True)
def _answers_after_the_clock_was_set(off: Off) -> object:
    durations, real = Durations(), time.time
    with pytest.MonkeyPatch.context() as patch, wired(off, durations) as wire:
        wire.says(GET % b"")
        patch.setattr(time, "time", lambda: real() + 3600)
        wire.origin_says(OK)
    return durations.found[0] < 1800


@case("context of a thread", [0, 1])
def _keeps_a_master_for_each_thread(off: Off) -> object:
    found: dict[int, object] = {}
    both = threading.Barrier(2)

    def run(number: int) -> None:
        from stillweb.proxy.record.mitmproxy_compat.dispatch import _own

        _own.is_recorders = True
        mitmproxy.ctx.master = number  # type: ignore[assignment]
        both.wait(HANG)
        found[number] = mitmproxy.ctx.master

    with _patch.apply_changes(off):
        threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    vars(mitmproxy.ctx).pop("master", None)
    return [found[0], found[1]]


@case("no self-checks", "none")
def _checks_no_field(off: Off) -> object:
    with _patch.apply_changes(off):
        try:
            http.MessageData(b"HTTP/1.1", http.Headers(), "text", None, 0.0, None)  # type: ignore[arg-type]
        except TypeError:
            return "checked"
    return "none"


def outcome(run: Callable[[Off], object], off: Off) -> object:
    try:
        return run(off)
    except (NotImplementedError, AssertionError) as error:  # mitmproxy's own
        return repr(error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patch", "run", "wanted"), CASES, ids=[run.__name__.strip("_") for _, run, _ in CASES]
)
def test_a_case_goes_right_with_its_patch_and_wrong_without(
    patch: str, run: Callable[[Off], object], wanted: object
) -> None:
    assert run(()) == wanted
    assert outcome(run, {patch}) != wanted


# Cases that need sockets


def recording(monkeypatch: pytest.MonkeyPatch, off: Off) -> None:
    """Have recorders leave patches out."""
    monkeypatch.setattr(recorder_module, "Classes", functools.partial(_patch.Classes, off))


@contextlib.contextmanager
def origin(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """An origin of one connection."""

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            peer.settimeout(HANG)
            answer(peer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()
        thread.join(HANG)


def breaks_off(peer: socket.socket) -> None:
    peer.recv(1 << 16)
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\nsome")
    time.sleep(0.1)  # else the reset takes the bytes back
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("off", [(), ("broken connections",)])
def test_a_body_that_a_reset_cuts_is_no_capture(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: Off
) -> None:
    recording(monkeypatch, off)
    with (
        origin(breaks_off) as place,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"x.test": place}) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as client,
    ):
        client.sendall(GET % b"")
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1 << 16):
                pass
        assert until(lambda: recorder.stats.captures == bool(off) and recorder.stats.failures == (not off))


@pytest.mark.parametrize("off", [(), ("cut responses",)])
def test_a_client_sees_that_a_body_is_cut(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: Off
) -> None:
    recording(monkeypatch, off)
    with (
        origin(breaks_off) as place,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"x.test": place}) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as client,
    ):
        client.sendall(GET % b"")
        with pytest.raises(ConnectionResetError) if not off else contextlib.nullcontext():
            while client.recv(1 << 16):
                pass


@pytest.mark.parametrize("off", [(), ("TLS goodbyes",)])
def test_a_tls_connection_ends_with_a_goodbye(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: Off
) -> None:
    recording(monkeypatch, off)
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as plain,
    ):
        plain.sendall(b"CONNECT demo.example:443 HTTP/1.1\r\n\r\n")
        assert plain.recv(1 << 16).startswith(b"HTTP/1.1 200")
        trusted = ssl.create_default_context(cafile=recorder.ca_path)
        trusted.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # which older Pythons set
        with trusted.wrap_socket(plain, server_hostname="demo.example", suppress_ragged_eofs=False) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: demo.example\r\nConnection: close\r\n\r\n")
            with pytest.raises(ssl.SSLError, match=r"(?i)eof") if off else contextlib.nullcontext():
                while client.recv(1 << 16):
                    pass


@pytest.mark.parametrize("off", [(), ("silent origins",)])
def test_an_origin_that_says_nothing_is_left_with_its_client(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: Off
) -> None:
    recording(monkeypatch, off)
    asked, ended, over = threading.Event(), threading.Event(), threading.Event()

    def silent(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        asked.set()
        peer.settimeout(0.05)
        while not over.is_set():
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                if not peer.recv(1 << 16):
                    ended.set()
                    return

    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context = ssl.create_default_context()
        context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="x.test").do_handshake()
    with (
        origin(silent) as place,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"x.test": place}) as recorder,
    ):
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as client:
            client.sendall(b"CONNECT x.test:443 HTTP/1.1\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
            client.sendall(hello.read())
            assert asked.wait(HANG)
        assert ended.wait(0.5 if off else HANG) == (not off)
        over.set()


BY_SOCKETS = {"broken connections", "cut responses", "TLS goodbyes", "TLS alerts", "silent origins"}


def test_whoever_imports_mitmproxys_addons_after_us_gets_all_of_them() -> None:
    from mitmproxy.addons import default_addons, next_layer

    assert next_layer is _patch.next_layer
    assert {type(addon).__name__ for addon in default_addons()} > {"NextLayer", "Proxyserver", "ProxyAuth"}


def test_each_patch_has_a_case() -> None:
    assert {patch for patch, _, _ in CASES} | BY_SOCKETS == {patch.name for patch in _patch.PATCHES}


# The check of versions


def changed(*_: object) -> None:
    """A function that nobody knows."""


@pytest.mark.parametrize(
    ("owner", "name", "told"),
    [
        (_http1.Http1Client, "read_headers", "_http1.Http1Client.read_headers"),
        (
            wsproto.extensions.PerMessageDeflate,
            "frame_inbound_header",
            "PerMessageDeflate.frame_inbound_header",
        ),
    ],
)
def test_a_recorder_refuses_a_function_that_it_does_not_know(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, told: str
) -> None:
    original = getattr(owner, name)
    changed.__module__, changed.__qualname__ = original.__module__, original.__qualname__
    monkeypatch.setattr(owner, name, changed)
    library = original.__module__.partition(".")[0]
    with Writer.open(tmp_path / "s") as writer:
        with pytest.raises(MissingCapability) as refused:
            lab.recorder(writer).start()
        monkeypatch.undo()
        with lab.recorder(writer):
            pass
    message = str(refused.value)
    assert message.startswith(f"{library} ")
    assert f"{told} is not a function that the recorder knows. Install {library} 1" in message


@pytest.mark.slow
def test_the_source_of_a_file_has_the_same_hash_as_that_of_a_loaded_function(tmp_path: Path) -> None:
    """Versions that can't be installed here are known by their wheels."""
    path = tmp_path / "mitmproxy-0-py3-none-any.whl"
    module = Path(_http1.__file__)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.write(module, "mitmproxy/proxy/layers/http/_http1.py")
        wheel.write(module.with_name("__init__.py"), "mitmproxy/proxy/layers/http/__init__.py")
    found = functions_in(path)
    assert len(found) > 15
    for name, digest in found.items():
        assert _patch._digest(_patch.changed_functions()[name]) == digest, name


@pytest.mark.parametrize("turns_before", range(10))
def test_what_is_asked_between_the_turns_of_an_answer_is_answered(turns_before: int) -> None:
    with pytest.MonkeyPatch.context() as patch, wired() as wire:
        wire.says(GET % b"1")
        patch.setattr(turns, "TURN", -1)
        wire.waits = True
        wire.origin_says(OK)
        for _ in range(turns_before):
            wire.wake()
        wire.says(GET % b"2")
        while wire.wake():
            pass
        wire.origin_says(OK)
        while wire.wake():
            pass
        assert wire.answer == OK * 2
