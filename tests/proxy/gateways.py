"""Clients of a gateway, and what the one of most tests serves."""

import base64
import gzip
import itertools
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.proxy.frozen import Site
from tests.support.waiting import HANG

PAGE = b"<title>page</title>" + b"<p>frozen</p>" * 100
BIG = os.urandom(3_000_000)
HTML = ("Content-Type", "text/html")


def echo(request: Request, session: str) -> Response:
    if request.url.endswith("/fail"):
        raise RuntimeError("on purpose")
    if request.url.endswith("/slow"):
        time.sleep(0.2)  # mostly after the client has shut its side
    body = f"{session} {request.method} {request.url} {request.body.decode()}".encode()
    return Response(200, "OK", (("Content-Type", "text/plain"), ("Stillweb-Verdict", "rendered")), body)


_sessions = itertools.count()


def client(gateway: Gateway, session: str | None = "", **more: Any) -> httpx.Client:
    """A client in a session of its own, unless one (or None, for no name) is given."""
    context = ssl.create_default_context(cafile=gateway.ca_path)
    session = f"own-{next(_sessions)}" if session == "" else session
    url = gateway.url if session is None else gateway.url.replace("://", f"://{session}:x@")
    return httpx.Client(proxy=url, verify=context, trust_env=False, timeout=HANG, **more)


def raw(gateway: Gateway, data: bytes, *, more: tuple[bytes, ...] = ()) -> bytes:
    """All that comes back for some bytes until the gateway closes."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
        sock.sendall(data)
        for piece in more:
            time.sleep(0.02)  # mostly a packet of its own
            sock.sendall(piece)
        return drained(sock)


def drained(sock: socket.socket) -> bytes:
    out = b""
    try:
        while piece := sock.recv(1 << 16):
            out += piece
    except ConnectionResetError:
        pass
    return out


def head(sock: socket.socket) -> bytes:
    """An answer's head, however many packets it comes in, and nothing after it."""
    out = b""
    while not out.endswith(b"\r\n\r\n") and (piece := sock.recv(1)):
        out += piece
    return out


def tunnel(
    gateway: Gateway, host: str, alpn: tuple[str, ...] = (), session: str = "default"
) -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG)
    name = base64.b64encode(f"{session}:x".encode()).decode()
    sock.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nProxy-Authorization: Basic {name}\r\n\r\n".encode())
    assert head(sock).startswith(b"HTTP/1.1 200 ")
    context = ssl.create_default_context(cafile=gateway.ca_path)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context.wrap_socket(sock, server_hostname=host)


@contextmanager
def serving(folder: Path, authority: Authority) -> Iterator[Gateway]:
    """A running gateway before the exchanges that most tests ask for."""
    site = Site(folder / "snap")
    site.add(
        "https://site.example/",
        PAGE,
        headers=(HTML, ("ETag", '"p"'), ("Date", "Sat, 01 Mar 2025 12:00:00 GMT")),
    )
    site.add("http://site.example/plain?b=2&a=1", b"plain")
    for scheme in ("http", "https"):
        site.add(f"{scheme}://site.example/go?to=https://other.example/", b"gone")
        site.add(f"{scheme}://site.example/https://other.example/", b"read")
    packed = gzip.compress(PAGE, mtime=0)
    site.add("https://site.example/packed", packed, headers=(HTML, ("Content-Encoding", "gzip")))
    site.add("https://site.example/big", BIG)
    zeros = gzip.compress(BIG + bytes(1_000_000), mtime=0)
    site.add("https://site.example/big-packed", zeros, headers=(HTML, ("Content-Encoding", "gzip")))
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    site.add(
        "https://forms.example/form", b"made", method="POST", status=303, reason="See Other",
        headers=(("Location", "/"),), request_headers=form, request_body=b"a=1&b=2",
    )  # fmt: skip
    site.add(
        "https://forms.example/api", b'{"ok":1}', method="PUT",
        request_headers=(("Content-Type", "application/json"),), request_body=b'{"x":1}',
    )  # fmt: skip
    site.add("https://forms.example/page", b"x")
    part = (("Content-Range", "bytes 0-4/10"),)
    site.add(
        "https://site.example/part",
        b"01234",
        status=206,
        headers=part,
        request_headers=(("Range", "bytes=0-4"),),
    )
    site.add("https://two.example/", PAGE, protocol="h2")
    site.add("https://two.example/big", BIG, protocol="h2")
    site.add(
        "https://two.example/form", b"posted", method="POST",
        request_headers=form, request_body=b"q=" + b"x" * 200_000, protocol="h2",
    )  # fmt: skip
    site.add("https://[::1]:8443/six", b"six")
    hosts = {"made.example": echo}
    with (
        site.open() as snapshot,
        Gateway(snapshot, authority=authority, virtual_hosts=hosts, challenge=False) as running,
    ):
        yield running
