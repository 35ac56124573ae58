"""Messages of a web socket are kept whole and without secrets, also packed ones with pings within."""

import base64
import contextlib
import json
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import wsproto
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Request, TextMessage
from wsproto.extensions import PerMessageDeflate

from stillweb.snapshots.writer import Writer
from tests.proxy.connections import served
from tests.proxy.lab import Lab, client, heard, tunnel
from tests.proxy.recordings import metadata, raw_bytes
from tests.support.waiting import HANG, until

SECRET = "k9Xq2vLm7pRt4wZs8nBd1fGh"  # in no known format: it is one because a message says so


def serve(peer: socket.socket) -> None:
    for connection, event in heard(peer):
        if isinstance(event, Request):
            for said in (
                AcceptConnection(),
                TextMessage(f"for {SECRET}"),
                TextMessage(json.dumps({"access_token": SECRET})),
                CloseConnection(4001, f"bye {SECRET}"),
            ):
                peer.sendall(connection.send(said))


def talked(
    lab: Lab,
    path: Path,
    target: str,
    serve: Callable[[socket.socket], None],
    protocols: Sequence[str] = (),
    said: Sequence[bytes] = (),
) -> tuple[str | None, dict[str, Any]]:
    """The reason with which a server closed a web socket, and what was recorded of it."""
    with lab.between(path, "ws.example", serve) as (recorder, peer):
        tunnel(peer, "ws.example:80")
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host="ws.example", target=target, subprotocols=list(protocols))))
        closed: list[str | None] = []
        while not closed:
            ws.receive_data(peer.recv(4096))
            for event in ws.events():
                if isinstance(event, AcceptConnection):
                    for part in said:
                        peer.sendall(ws.send(BytesMessage(part)))
                if isinstance(event, CloseConnection):
                    closed.append(event.reason)
                    peer.sendall(ws.send(event.response()))
        assert until(
            lambda: recorder.stats.under_way == 0 and "0 captured, 1 web socket," in recorder.stats.line()
        )
    ((_, content),) = metadata(path)
    return closed[0], json.loads(content)


def test_a_secret_that_a_message_names_is_nowhere_in_the_record(lab: Lab, tmp_path: Path) -> None:
    reason, record = talked(lab, tmp_path / "s", "/", serve)
    assert reason == f"bye {SECRET}"  # the client gets the real thing
    first, second = (message["text"] for message in record["messages"])
    name = json.loads(second)["access_token"]
    assert name.startswith("stillweb-secret-")
    assert first == f"for {name}"
    assert len(record["times"]) == 2
    assert all(abs(time.time() * 1000 - passed) < 3_600_000 for passed in record["times"])
    assert record["events"] == [record["begin"]] * 2  # what was asked before each
    assert record["close"] == [4001, f"bye {name}"]
    assert SECRET.encode() not in raw_bytes(tmp_path / "s")


def serve_bytes(peer: socket.socket) -> None:
    for connection, event in heard(peer):
        if isinstance(event, Request):
            for said in (
                AcceptConnection(),
                BytesMessage(f"for {SECRET}".encode()),
                CloseConnection(1000, ""),
            ):
                peer.sendall(connection.send(said))


def test_a_secret_of_the_address_is_in_no_message_of_bytes(lab: Lab, tmp_path: Path) -> None:
    """JupyterLab says its kernel's session in the address of a socket, and in each message of bytes."""
    _, record = talked(lab, tmp_path / "s", f"/channels?session_id={SECRET}", serve_bytes)
    name = record["url"].partition("session_id=")[2]
    assert name.startswith("stillweb-secret-")
    assert base64.b64decode(record["messages"][0]["base64"]) == f"for {name}".encode()


def serve_named_bytes(peer: socket.socket) -> None:
    for connection, event in heard(peer):
        if isinstance(event, Request):
            said = json.dumps({"access_token": SECRET}).encode()
            for one in (AcceptConnection(), BytesMessage(said), CloseConnection(1000, "")):
                peer.sendall(connection.send(one))


def test_a_secret_that_a_message_of_bytes_names_is_nowhere_in_the_record(lab: Lab, tmp_path: Path) -> None:
    """Programs send JSON as bytes, too."""
    _, record = talked(lab, tmp_path / "s", "/", serve_named_bytes)
    told = json.loads(base64.b64decode(record["messages"][0]["base64"]))
    assert told["access_token"].startswith("stillweb-secret-")
    assert SECRET.encode() not in raw_bytes(tmp_path / "s")


def test_a_password_of_mqtt_is_nowhere_in_the_record_however_its_packet_is_cut(
    lab: Lab, tmp_path: Path
) -> None:
    connect = b"\x10\x1b\x00\x04MQTT\x04\xc2\x00<\x00\x02me\x00\x03ada\x00\x06quince"
    parts = [connect[:20], connect[20:26], connect[26:]]

    def serve(peer: socket.socket) -> None:
        left = len(parts)
        for connection, event in heard(peer):
            if isinstance(event, Request):
                peer.sendall(connection.send(AcceptConnection(subprotocol="mqtt")))
            elif isinstance(event, BytesMessage) and (left := left - 1) == 0:
                peer.sendall(connection.send(CloseConnection(1000, "")))

    _, record = talked(lab, tmp_path / "s", "/", serve, protocols=["mqtt"], said=parts)
    first, second, third = (base64.b64decode(message["base64"]) for message in record["messages"])
    assert (first, second) == (b"", b"")
    assert third.startswith(connect[:-6] + b"stillweb-secret-")
    assert b"quince" not in raw_bytes(tmp_path / "s")


def test_the_subprotocols_that_a_client_offers_are_kept_but_for_their_secrets(
    lab: Lab, tmp_path: Path
) -> None:
    def serve(peer: socket.socket) -> None:
        for connection, event in heard(peer):
            if isinstance(event, Request):
                peer.sendall(connection.send(AcceptConnection(subprotocol="realtime")))
                peer.sendall(connection.send(CloseConnection(1000, "")))

    offer = ["realtime", f"openai-insecure-api-key.{SECRET}"]
    _, record = talked(lab, tmp_path / "s", "/", serve, offer)
    assert record["protocol"] == "realtime"
    offered = dict(record["headers"])["Sec-WebSocket-Protocol"]
    assert offered.startswith("realtime, openai-insecure-api-key.stillweb-secret-")
    assert SECRET.encode() not in raw_bytes(tmp_path / "s")


def test_a_drop_is_passed_on_as_one(lab: Lab, tmp_path: Path) -> None:
    """A page that is told of a clean close does not connect again."""

    def serve(peer: socket.socket) -> None:
        for connection, event in heard(peer):
            if isinstance(event, Request):
                peer.sendall(connection.send(AcceptConnection()) + connection.send(TextMessage("hi")))
                peer.shutdown(socket.SHUT_RDWR)

    with lab.between(tmp_path / "s", "ws.example", serve) as (recorder, peer):
        tunnel(peer, "ws.example:80")
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host="ws.example", target="/")))
        came = b""
        while data := peer.recv(4096):
            came += data
        assert came.endswith(b"\r\n\r\n\x81\x02hi")
        assert until(lambda: recorder.stats.under_way == 0)
    ((_, content),) = metadata(tmp_path / "s")
    assert json.loads(content)["close"] == [1006, ""]


FRAMES: list[Event] = [
    Ping(b"before"),
    TextMessage("said with a ", message_finished=False),
    Ping(b"within"),
    TextMessage("ping", message_finished=True),
    BytesMessage(b"sent with a ", message_finished=False),
    Ping(b"within"),
    BytesMessage(b"ping", message_finished=True),
    TextMessage("and another"),
    CloseConnection(1000),
]
MESSAGES = ["said with a ping", b"sent with a ping", "and another"]


@pytest.mark.parametrize("by_client", [True, False])
def test_a_packed_message_with_a_ping_within_is_kept_and_passed_on(
    lab: Lab, tmp_path: Path, by_client: bool
) -> None:
    heard: list[str | bytes] = []

    def speak(peer: socket.socket, connection: WSConnection) -> None:
        for frame in FRAMES:
            peer.sendall(connection.send(frame))

    def listen(peer: socket.socket, connection: WSConnection) -> None:
        parts: list[str | bytes] = []
        while True:
            connection.receive_data(peer.recv(4096) or None)
            for event in connection.events():
                if isinstance(event, Request):
                    peer.sendall(connection.send(AcceptConnection(extensions=[PerMessageDeflate()])))
                elif isinstance(event, (TextMessage, BytesMessage)):
                    parts.append(event.data if isinstance(event.data, str) else bytes(event.data))
                    if event.message_finished:
                        heard.append("".join(parts) if isinstance(parts[0], str) else b"".join(parts))  # type: ignore[arg-type]
                        parts.clear()
                elif isinstance(event, CloseConnection):
                    return
                if isinstance(event, (Request, AcceptConnection)) and (
                    by_client == isinstance(event, AcceptConnection)
                ):
                    speak(peer, connection)

    def serve(peer: socket.socket) -> None:
        listen(peer, WSConnection(ConnectionType.SERVER))

    with lab.between(tmp_path / "s", "ws.example", serve) as (_, peer):
        tunnel(peer, "ws.example:80")
        ws = WSConnection(ConnectionType.CLIENT)
        asked = Request(host="ws.example", target="/", extensions=[PerMessageDeflate()])
        peer.sendall(ws.send(asked))
        listen(peer, ws)
    assert heard == MESSAGES
    ((_, content),) = metadata(tmp_path / "s")
    kept = [one.get("text") or one["base64"] for one in json.loads(content)["messages"]]
    assert kept == ["said with a ping", "c2VudCB3aXRoIGEgcGluZw==", "and another"]


def test_a_flood_of_small_messages_keeps_no_other_client_waiting(lab: Lab, tmp_path: Path) -> None:
    got = 0

    def serve(_: int, peer: socket.socket) -> None:
        nonlocal got
        connection = WSConnection(ConnectionType.SERVER)
        connection.receive_data(peer.recv(4096))
        peer.sendall(connection.send(AcceptConnection()))
        with contextlib.suppress(OSError):
            while data := peer.recv(1 << 16):
                got += len(data)

    with (
        served(serve) as port,
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(
            writer,
            resolve={"ws.example": ("127.0.0.1", port), "plain.example": ("127.0.0.1", lab.plain.port)},
        ) as recorder,
        client(recorder) as other,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer,
    ):
        tunnel(peer, "ws.example:80")
        ws = wsproto.WSConnection(ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host="ws.example", target="/")))
        ws.receive_data(peer.recv(4096))
        assert other.get("http://plain.example/before").status_code == 200
        peer.sendall(ws.send(BytesMessage(b"x")) * 50_000)
        assert other.get("http://plain.example/meanwhile").status_code == 200
        assert got < 120_000


@pytest.mark.parametrize("kind", ["frame", "fragments", "packed"])
@pytest.mark.parametrize("by_client", [True, False])
def test_a_message_without_an_end_ends_its_socket_by_name(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, by_client: bool
) -> None:
    monkeypatch.setattr("stillweb.proxy.record.mitmproxy_compat.websocket.MOST_MESSAGE", 1 << 20)

    def flood(peer: socket.socket, connection: WSConnection) -> None:
        if kind == "frame":  # its head says 1 TB
            peer.sendall(bytes([2, 0x7F | by_client << 7]) + (1 << 40).to_bytes(8) + bytes(4 * by_client))
        with contextlib.suppress(OSError):
            while True:
                size = 1 if kind == "fragments" else 1 << 17
                part = connection.send(BytesMessage(bytes(size), message_finished=False))
                peer.sendall(bytes(size) if kind == "frame" else part)

    def drain(peer: socket.socket, connection: WSConnection) -> None:
        with contextlib.suppress(OSError):
            while connection.state is not ConnectionState.CLOSED and (data := peer.recv(1 << 16)):
                connection.receive_data(data)
                see(connection)

    def see(connection: WSConnection) -> None:
        closed.extend(one.code for one in connection.events() if isinstance(one, CloseConnection))

    def serve(peer: socket.socket) -> None:
        connection = WSConnection(ConnectionType.SERVER)
        connection.receive_data(peer.recv(4096))
        [*connection.events()]
        peer.sendall(connection.send(AcceptConnection(extensions=packed())))
        (drain if by_client else flood)(peer, connection)

    def packed() -> list[Any]:
        return [PerMessageDeflate()] if kind == "packed" else []

    closed: list[int] = []
    with lab.between(tmp_path / "s", "ws.example", serve) as (recorder, peer):
        tunnel(peer, "ws.example:80")
        ws = WSConnection(ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host="ws.example", target="/", extensions=packed())))
        ws.receive_data(peer.recv(4096))
        see(ws)  # the recorder may have closed it already
        (flood if by_client else drain)(peer, ws)
        assert until(lambda: recorder.stats.failures == 1 and closed == [1009])
