"""What a web socket said is kept without secrets, wherever in it they come up."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wsproto
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request, TextMessage

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


def talked(
    lab: Lab, path: Path, target: str, serve: Callable[[socket.socket], None]
) -> tuple[str | None, dict[str, Any]]:
    """The reason with which a server closed a web socket, and what was recorded of it."""
    with lab.between(path, "ws.example", serve) as (recorder, peer):
        tunnel(peer, "ws.example:80")
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host="ws.example", target=target)))
        closed: list[str | None] = []
        while not closed:
            ws.receive_data(peer.recv(4096))
            for event in ws.events():
                if isinstance(event, CloseConnection):
                    closed.append(event.reason)
                    peer.sendall(ws.send(event.response()))
        assert until(lambda: recorder.stats.under_way == 0)
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
