"""What a web socket said is kept without secrets, wherever in it they come up."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import wsproto
from wsproto.events import AcceptConnection, CloseConnection, Request, TextMessage

from tests.proxy.lab import Lab, heard, tunnel
from tests.proxy.recordings import metadata, raw_bytes
from tests.support.waiting import until

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


def test_a_secret_that_a_message_names_is_nowhere_in_the_record(lab: Lab, tmp_path: Path) -> None:
    with lab.between(tmp_path / "s", "ws.example", serve) as (recorder, peer):
        tunnel(peer, "ws.example:80")
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host="ws.example", target="/")))
        closed: list[str | None] = []
        while not closed:
            ws.receive_data(peer.recv(4096))
            for event in ws.events():
                if isinstance(event, CloseConnection):
                    closed.append(event.reason)
                    peer.sendall(ws.send(event.response()))
        assert until(lambda: recorder.stats.under_way == 0)
    assert closed == [f"bye {SECRET}"]  # the client gets the real thing
    ((_, content),) = metadata(tmp_path / "s")
    record = json.loads(content)
    first, second = (message["text"] for message in record["messages"])
    name = json.loads(second)["access_token"]
    assert name.startswith("stillweb-secret-")
    assert first == f"for {name}"
    assert record["close"] == [4001, f"bye {name}"]
    assert SECRET.encode() not in raw_bytes(tmp_path / "s")
