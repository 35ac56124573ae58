"""Packed messages of web sockets, with pings and pongs between their frames."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Request, TextMessage
from wsproto.extensions import PerMessageDeflate

from tests.proxy.lab import Lab, tunnel
from tests.proxy.recordings import metadata

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
