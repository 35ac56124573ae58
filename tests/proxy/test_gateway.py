"""The gateway through real sockets and real clients."""

from __future__ import annotations

import base64
import contextlib
import gzip
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.certificates import Authority
from proxy.gateway import Gateway
from proxy.hub import recorded_protocols
from proxy.ledger import Ledger
from snapshots import Exchange, Snapshot, Writer
from snapshots.capture import Response
from snapshots.errors import MissingCapability, UsageError
from snapshots.request import Request
from tests.proxy.frozen import Site, wait_for
from tests.support.walks import START

PAGE = b"<title>page</title>" + b"<p>frozen</p>" * 100
BIG = os.urandom(3_000_000)
HTML = ("Content-Type", "text/html")


def echo(request: Request, session: str) -> Response:
    if request.url.endswith("/fail"):
        raise RuntimeError("on purpose")
    if request.url.endswith("/slow"):
        time.sleep(0.2)
    body = f"{session} {request.method} {request.url} {request.body.decode()}".encode()
    return Response(200, "OK", (("Content-Type", "text/plain"), ("Stillweb-Verdict", "rendered")), body)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.load_or_create(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("gateway") / "snap")
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


_sessions = itertools.count()


def client(gateway: Gateway, session: str | None = "", **more: Any) -> httpx.Client:
    """A client in a session of its own, unless one (or None, for no name) is given."""
    context = ssl.create_default_context(cafile=gateway.ca_path)
    session = f"own-{next(_sessions)}" if session == "" else session
    url = gateway.url if session is None else gateway.url.replace("://", f"://{session}:x@")
    return httpx.Client(proxy=url, verify=context, trust_env=False, timeout=20, **more)


def raw(gateway: Gateway, data: bytes, *, more: tuple[bytes, ...] = ()) -> bytes:
    """All that comes back for some bytes until the gateway closes."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as sock:
        sock.sendall(data)
        for piece in more:
            time.sleep(0.02)
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


def tunnel(
    gateway: Gateway, host: str, alpn: tuple[str, ...] = (), session: str = "default"
) -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", gateway.port), timeout=10)
    name = base64.b64encode(f"{session}:x".encode()).decode()
    sock.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nProxy-Authorization: Basic {name}\r\n\r\n".encode())
    assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
    context = ssl.create_default_context(cafile=gateway.ca_path)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context.wrap_socket(sock, server_hostname=host)


# Answers


def test_a_page_is_what_was_recorded_and_says_how_it_was_matched(gateway: Gateway) -> None:
    with client(gateway) as c:
        answer = c.get("https://site.example/")
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["stillweb-verdict"] == "exact"
    assert ":" in answer.headers["stillweb-capture"]
    assert answer.headers["date"] == "Sat, 01 Mar 2025 12:00:00 GMT"
    assert "stillweb-derived" not in answer.headers


def test_plain_http_and_another_order_of_the_query(gateway: Gateway) -> None:
    with client(gateway) as c:
        assert c.get("http://site.example/plain?b=2&a=1").headers["stillweb-verdict"] == "exact"
        other = c.get("http://site.example/plain?a=1&b=2")
    assert (other.content, other.headers["stillweb-verdict"]) == (b"plain", "canonical")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_url_within_a_url_stays_within(gateway: Gateway, scheme: str) -> None:
    with client(gateway) as c:
        assert c.get(f"{scheme}://site.example/go?to=https://other.example/").content == b"gone"
        assert c.get(f"{scheme}://site.example/https://other.example/").content == b"read"


def test_a_miss_is_a_504_of_one_line_and_a_ledger_entry(gateway: Gateway) -> None:
    with client(gateway, "misser") as c:
        answer = c.get("https://site.example/plain?a=1&b=3")
        posted = c.post("https://forms.example/form", data={"a": "1", "b": "3"})
    assert answer.status_code == posted.status_code == 504
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["stillweb-verdict"] == "miss"
    assert answer.text.startswith("stillweb: miss: GET https://site.example/plain?a=1&b=3")
    assert answer.text.count("\n") == 1
    first, second = [e for e in gateway.ledger.misses() if e["session"] == "misser"]
    assert (first["seq"], first["method"], first["status"], first["capture"]) == (0, "GET", 504, None)
    assert (second["body"], second["type"]) == ("a=1&b=3", "application/x-www-form-urlencoded")
    assert "nearest" in second


def test_the_nearest_capture_is_named(gateway: Gateway) -> None:
    with client(gateway, "near") as c:
        text = c.post("https://forms.example/form", data={"a": "1", "b": "3"}).text
    assert "nearest is POST https://forms.example/form" in text
    assert "b" in text.partition("differs in")[2]


def test_a_post_with_the_same_fields_and_a_put(gateway: Gateway) -> None:
    with client(gateway) as c:
        form = c.post(
            "https://forms.example/form",
            content=b"b=2&a=1",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        put = c.put("https://forms.example/api", json={"x": 1})
        other = c.put("https://forms.example/api", json={"x": 2})
    assert (form.status_code, form.headers["location"], form.headers["stillweb-verdict"]) == (
        303,
        "/",
        "canonical",
    )
    assert (put.json(), other.status_code) == ({"ok": 1}, 504)


def test_head_range_and_condition(gateway: Gateway) -> None:
    with client(gateway) as c:
        head = c.head("https://site.example/")
        part = c.get("https://site.example/", headers={"Range": "bytes=5-9"})
        both = c.get("https://site.example/", headers={"Range": "bytes=0-1,5-6"})
        none = c.get("https://site.example/", headers={"Range": "bytes=99999-"})
        same = c.get("https://site.example/", headers={"If-None-Match": '"p"'})
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(PAGE)))
    assert head.headers["stillweb-derived"] == "head"
    assert (part.status_code, part.content) == (206, PAGE[5:10])
    assert part.headers["content-range"] == f"bytes 5-9/{len(PAGE)}"
    assert both.headers["content-type"].startswith("multipart/byteranges")
    assert (none.status_code, same.status_code, same.content) == (416, 304, b"")


def test_a_recorded_part_is_no_whole(gateway: Gateway) -> None:
    with client(gateway) as c:
        whole = c.get("https://site.example/part")
        part = c.get("https://site.example/part", headers={"Range": "bytes=0-4"})
    assert (whole.status_code, whole.headers["stillweb-verdict"]) == (504, "miss")
    assert "(206)" in whole.text
    assert (part.status_code, part.content) == (206, b"01234")


def test_an_encoding_is_kept_or_undone(gateway: Gateway) -> None:
    with client(gateway) as c:
        kept = c.get("https://site.example/packed", headers={"Accept-Encoding": "gzip"})
        undone = c.get("https://site.example/packed", headers={"Accept-Encoding": "identity"})
    assert kept.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in undone.headers
    assert kept.content == undone.content == PAGE
    assert undone.headers["content-length"] == str(len(PAGE))


@pytest.mark.parametrize("host", ["site.example", "two.example"])
def test_a_large_body_is_streamed(gateway: Gateway, host: str) -> None:
    with client(gateway, http2=host == "two.example") as c:
        assert c.get(f"https://{host}/big").content == BIG
        part = c.get(f"https://{host}/big", headers={"Range": "bytes=2000000-2000009"})
        head = c.head(f"https://{host}/big")
    assert (part.status_code, part.content) == (206, BIG[2000000:2000010])
    assert head.headers["content-length"] == str(len(BIG))


def test_a_large_encoded_body_is_decoded_as_it_goes(gateway: Gateway) -> None:
    url, plain = "https://site.example/big-packed", BIG + bytes(1_000_000)
    with client(gateway) as c:
        plainly = {"Accept-Encoding": "identity"}
        answer = c.get(url, headers=plainly)
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.content == plain
        assert c.get(url, headers=plainly | {"Range": "bytes=-3"}).content == plain[-3:]
        assert c.head(url, headers=plainly).headers["content-length"] == str(len(plain))
        assert c.get(url).content == plain


def test_a_preflight_is_made_up_only_for_what_was_captured(gateway: Gateway) -> None:
    def ask(method: str, path: str) -> httpx.Response:
        headers = {"Origin": "https://x.example", "Access-Control-Request-Method": method}
        return c.request("OPTIONS", f"https://forms.example{path}", headers=headers)

    with client(gateway, "cors") as c:
        for method, path in (("PUT", "/api"), ("POST", "/form"), ("GET", "/page")):
            answer = ask(method, path)
            assert answer.status_code == 204
            assert answer.headers["stillweb-verdict"] == "synthetic"
            assert answer.headers["access-control-allow-methods"] == method
        for method, path in (("DELETE", "/api"), ("PUT", "/"), ("GET", "/none"), ("POST", "/for")):
            assert ask(method, path).status_code == 504
        assert c.options("https://site.example/").status_code == 504
    verdicts = [e["verdict"] for e in gateway.ledger if e["session"] == "cors"]
    assert verdicts == ["synthetic"] * 3 + ["miss"] * 5


def test_a_web_socket_is_a_miss(gateway: Gateway) -> None:
    fields = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "x",
        "Sec-WebSocket-Version": "13",
    }
    with client(gateway) as c:
        answer = c.get("https://site.example/", headers=fields)
    assert answer.status_code == 504
    assert "web socket" in answer.text


# Protocols


def test_http2_is_spoken_where_it_was_recorded(gateway: Gateway) -> None:
    with client(gateway, http2=True) as c:
        two, one = c.get("https://two.example/"), c.get("https://site.example/")
        posted = c.post("https://two.example/form", data={"q": "x" * 200_000})
        missed = c.get("https://two.example/none")
    assert (two.http_version, two.content) == ("HTTP/2", PAGE)
    assert (one.http_version, one.content) == ("HTTP/1.1", PAGE)
    assert (posted.content, missed.status_code) == (b"posted", 504)
    with client(gateway) as c:
        assert c.get("https://two.example/").http_version == "HTTP/1.1"


def test_many_streams_on_one_http2_connection(gateway: Gateway) -> None:
    import asyncio

    async def run() -> list[bytes]:
        context = ssl.create_default_context(cafile=gateway.ca_path)
        async with httpx.AsyncClient(
            proxy=gateway.url, verify=context, http2=True, trust_env=False, timeout=30
        ) as c:
            answers = await asyncio.gather(
                *[c.get(f"https://two.example/{'big' if n % 10 == 0 else ''}") for n in range(40)]
            )
        return [a.content for a in answers]

    found = asyncio.run(run())
    assert [body == (BIG if n % 10 == 0 else PAGE) for n, body in enumerate(found)] == [True] * 40


def test_curl_and_requests(gateway: Gateway) -> None:
    out = subprocess.run(
        ["curl", "-sS", "--compressed", "--proxy", gateway.url, "--cacert", str(gateway.ca_path),
         "https://site.example/packed", "https://two.example/", "http://site.example/plain?a=1&b=2"],
        capture_output=True, check=True, timeout=30,
    )  # fmt: skip
    assert out.stdout == PAGE + PAGE + b"plain"
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": gateway.url, "https": gateway.url}
        session.verify = str(gateway.ca_path)
        assert session.get("https://site.example/packed", timeout=20).content == PAGE
        assert session.get("https://site.example/big", timeout=20).content == BIG


def test_pipelined_requests_are_answered_in_order(gateway: Gateway) -> None:
    with tunnel(gateway, "site.example") as sock:
        one = b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"
        big = b"GET /big HTTP/1.1\r\nHost: site.example\r\n\r\n"
        last = b"GET /none HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n"
        sock.sendall(one + big + one + big + last)
        got = drained(sock)
    assert got.count(b"HTTP/1.1 200 OK") == 4
    assert got.count(BIG) == 2
    assert got.rindex(BIG) < got.index(b"HTTP/1.1 504")


def test_a_body_in_chunks_after_100_continue(gateway: Gateway) -> None:
    with tunnel(gateway, "forms.example", session="chunks") as sock:
        sock.sendall(
            b"POST /form HTTP/1.1\r\nHost: forms.example\r\nExpect: 100-continue\r\nConnection: close\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"3\r\na=1\r\n4\r\n&b=2\r\n0\r\n\r\n")
        assert drained(sock).startswith(b"HTTP/1.1 303 See Other")


def test_http_1_0_gets_a_closed_connection(gateway: Gateway) -> None:
    got = raw(gateway, b"GET http://site.example/plain?a=1&b=2 HTTP/1.0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in got
    assert got.endswith(b"\r\n\r\nplain")


def test_tls_bytes_that_come_together_with_the_connect(gateway: Gateway) -> None:
    context = ssl.create_default_context(cafile=gateway.ca_path)
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    layer = context.wrap_bio(inward, outward, server_hostname="site.example")
    with pytest.raises(ssl.SSLWantReadError):
        layer.do_handshake()
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as sock:
        sock.sendall(b"CONNECT site.example:443 HTTP/1.1\r\nHost: site.example:443\r\n\r\n" + outward.read())
        got = sock.recv(1 << 16)
        head, _, rest = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        done = False
        while not done:
            inward.write(rest)
            try:
                layer.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                rest = sock.recv(1 << 16)


def test_plain_http_in_a_tunnel_and_an_address_of_version_6(gateway: Gateway) -> None:
    got = raw(
        gateway,
        b"CONNECT site.example:80 HTTP/1.1\r\n\r\n",
        more=(b"GET /plain?a=1&b=2 HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n",),
    )
    assert got.endswith(b"plain")
    with client(gateway) as c:
        assert c.get("https://[::1]:8443/six").content == b"six"


def test_a_client_that_has_shut_its_side_is_still_answered(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as sock:
        sock.sendall(b"GET http://made.example/slow HTTP/1.1\r\nHost: made.example\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        assert drained(sock).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_reads_slowly_gets_everything_and_blocks_nobody(gateway: Gateway) -> None:
    with tunnel(gateway, "site.example") as slow, client(gateway) as c:
        slow.sendall(b"GET /big HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n" * 1)
        time.sleep(0.1)
        began = time.monotonic()
        assert c.get("https://site.example/").content == PAGE
        assert time.monotonic() - began < 5
        assert drained(slow).endswith(BIG)


# Sessions, ledger, own pages


def test_thirty_two_sessions_at_once(gateway: Gateway) -> None:
    def work(number: int) -> list[int]:
        with client(gateway, f"s{number}") as c:
            return [
                c.get(u).status_code
                for u in ("https://site.example/", "https://site.example/none", "https://two.example/") * 5
            ]

    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(work, range(32)))
    assert found == [[200, 504, 200] * 5] * 32
    entries = gateway.ledger.entries()
    for number in range(32):
        mine = [e for e in entries if e["session"] == f"s{number}"]
        assert [e["seq"] for e in mine] == list(range(15))
        assert [e["status"] for e in mine] == [200, 504, 200] * 5


def test_a_repeated_request_has_the_same_ledger_entry_but_for_its_number(gateway: Gateway) -> None:
    with client(gateway, "twice") as c:
        for _ in range(3):
            c.get("https://site.example/")
    one, two, three = [
        {k: v for k, v in e.items() if k not in ("seq", "ms")}
        for e in gateway.ledger
        if e["session"] == "twice"
    ]
    assert one == two == three
    assert set(one) == {
        "session",
        "key",
        "method",
        "url",
        "verdict",
        "rule",
        "capture",
        "state",
        "ambiguous",
        "irrelevant",
        "status",
    }


def test_the_sessions_name_is_percent_decoded(gateway: Gateway) -> None:
    name = "a task/7 é"
    url = gateway.proxy_url(name)
    assert " " not in url
    with httpx.Client(proxy=url, trust_env=False) as c:
        assert c.get("http://site.example/plain?a=1&b=2").status_code == 200
    assert gateway.ledger.entries()[-1]["session"] == name
    for bad in ("", " a", "a\nb", "a:b", "100%"):
        with pytest.raises(UsageError):
            gateway.proxy_url(bad)


def test_own_pages(gateway: Gateway) -> None:
    with client(gateway, "reader") as c:
        status = c.get("http://stillweb.local/").json()
        page = c.get("http://stillweb.local/", headers={"Accept": "text/html"}).text
        assert c.get("https://stillweb.local/ca.pem").content == gateway.ca_path.read_bytes()
        lines = c.get("http://stillweb.local/ledger").text.splitlines()
        assert c.get("http://stillweb.local/other").status_code == 404
        assert c.post("http://stillweb.local/").status_code == 405
        assert c.head("http://stillweb.local/").content == b""
        misses = c.get("http://stillweb.local/misses").text.splitlines()
    assert status["snapshot"] == gateway.snapshot.id
    assert page.startswith("<!doctype html>")
    assert all(json.loads(line)["session"] for line in lines)
    assert all(json.loads(line)["verdict"] == "miss" for line in misses)
    assert httpx.get(gateway.url + "/ca.pem", trust_env=False).content == gateway.ca_path.read_bytes()
    assert "reader" not in {e["session"] for e in gateway.ledger}


def test_virtual_hosts(gateway: Gateway) -> None:
    with client(gateway, "v") as c:
        made = c.post("https://made.example/x", content=b"hi")
        failed = c.get("http://made.example/fail")
    assert made.text == "v POST https://made.example/x hi"
    assert made.headers["stillweb-verdict"] == "rendered"
    assert (failed.status_code, "on purpose" in failed.text) == (500, True)
    assert [e["verdict"] for e in gateway.ledger if e["session"] == "v"] == ["rendered", "miss"]


def test_a_client_that_does_not_trust_us_is_in_the_ledger(gateway: Gateway) -> None:
    with (
        pytest.raises(httpx.ConnectError),
        httpx.Client(proxy=gateway.url.replace("://", "://wary:x@"), trust_env=False) as c,
    ):
        c.get("https://site.example/")
    assert wait_for(lambda: any(e["session"] == "wary" for e in gateway.ledger))
    entry = next(e for e in gateway.ledger if e["session"] == "wary")
    assert (entry["method"], entry["verdict"], entry["url"]) == ("CONNECT", "miss", "https://site.example/")
    assert "TLS" in entry["why"]


def test_who_has_no_name_is_asked_once_names_are_given_out(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x")
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g:
        with client(g, None) as c:
            assert c.get("http://site.example/").status_code == 200
            g.proxy_url("one")
            assert c.get("http://site.example/").status_code == 407
            assert c.get("http://stillweb.local/").status_code == 200
            with pytest.raises(httpx.ProxyError):
                c.get("https://site.example/")
        with client(g, "one") as c:
            assert c.get("http://site.example/").status_code == 200
    assert [e["session"] for e in g.ledger] == ["default", "one"]


def test_a_session_can_be_reset(gateway: Gateway) -> None:
    with client(gateway, "again") as c:
        c.get("https://site.example/")
        gateway.reset("again")
        c.get("https://site.example/")
    assert [e["seq"] for e in gateway.ledger if e["session"] == "again"] == [0, 1]


def test_two_runs_have_the_same_hash(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    for number in range(10):
        site.add(f"http://site.example/{number}", b"x%d" % number)
    hashes = []
    with site.open() as snapshot:
        for run in range(2):
            with Gateway(snapshot, authority=authority) as g:

                def work(name: str, g: Gateway = g) -> None:
                    with client(g, name) as c:
                        for number in range(12):
                            c.get(f"http://site.example/{number}")

                names = ["a", "b", "c"]
                with ThreadPoolExecutor(3) as pool:
                    list(pool.map(work, names if run == 0 else names[::-1]))
                hashes.append(g.ledger.hash())
    assert hashes[0] == hashes[1]


# Bad input


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03",
        b"GET /\r\n\r\n",
        b"GET nowhere HTTP/1.1\r\n\r\n",
        b"CONNECT nowhere/x HTTP/1.1\r\n\r\n",
        b"CONNECT a:99999 HTTP/1.1\r\n\r\n",
        b"POST http://a/ HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_what_is_no_request_gets_a_400_and_a_closed_connection(gateway: Gateway, data: bytes) -> None:
    got = raw(gateway, data)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in got


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\n",
        b"\0\0",
    ],
)
def test_the_same_inside_a_tunnel(gateway: Gateway, data: bytes) -> None:
    with tunnel(gateway, "site.example") as sock:
        sock.sendall(data)
        assert drained(sock).startswith(b"HTTP/1.1 400 ")


@settings(max_examples=60)
@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(
    [b"GET http://site.example/plain?a=1&b=2 HTTP/1.1\r\n", b"CONNECT site.example:443 HTTP/1.1\r\n\r\n", b"\r\n",
     b"Host: x\r\n", b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n\r\n", b"\x16\x03\x01\x00\x05abcde"])), max_size=6))  # fmt: skip
def test_whatever_is_sent_the_gateway_stays_up(gateway: Gateway, pieces: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as sock:
        for piece in pieces:
            try:
                sock.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                break
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        drained(sock)
    assert raw(gateway, b"GET http://site.example/plain?a=1&b=2 HTTP/1.0\r\n\r\n").endswith(b"plain")


def test_a_port_in_use_and_wrong_settings(gateway: Gateway, authority: Authority) -> None:
    with pytest.raises(MissingCapability, match=f"port {gateway.port} on 127.0.0.1 is in use"):
        Gateway(gateway.snapshot, port=gateway.port, authority=authority).start()
    with pytest.raises(UsageError, match="accept"):
        Gateway(gateway.snapshot, accept="anything", authority=authority)
    with pytest.raises(UsageError, match="listen"):
        Gateway(gateway.snapshot, host="no such host", authority=authority).start()


def test_a_damaged_archive_is_no_empty_page(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x" * 1000)
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g:
        (file,) = (tmp_path / "snap" / "archive").glob("*.warc.gz")
        data = bytearray(file.read_bytes())
        data[-200:] = bytes(200)
        offset = next(snapshot.captures()).offset
        data[offset : offset + 20] = bytes(20)
        with open(file, "r+b") as out:
            out.write(data)
        with client(g) as c:
            answer = c.get("http://site.example/")
        assert (answer.status_code, answer.headers["stillweb-verdict"]) == (502, "miss")
        assert "can't be read" in g.ledger.entries()[0]["why"]


def test_five_hundred_connections(gateway: Gateway) -> None:
    socks = []
    try:
        for _ in range(500):
            socks.append(socket.create_connection(("127.0.0.1", gateway.port), timeout=20))
        request = b"GET http://site.example/plain?a=1&b=2 HTTP/1.1\r\nHost: site.example\r\n\r\n"
        for _ in range(2):
            for sock in socks:
                sock.sendall(request)
            for sock in socks:
                assert sock.recv(4096).endswith(b"plain")
    finally:
        for sock in socks:
            sock.close()
    assert wait_for(lambda: gateway.stats.connections < 50)


def test_closing_ends_connections_and_threads(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x")
    before = threading.active_count()
    with site.open() as snapshot:
        with Gateway(snapshot, authority=authority, ledger=Ledger(tmp_path / "l")) as g:
            idle = socket.create_connection(("127.0.0.1", g.port), timeout=10)
            with client(g) as c:
                c.get("http://site.example/")
        assert drained(idle) == b""
        idle.close()
        g.ledger.close()
    assert wait_for(lambda: threading.active_count() <= before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", g.port), timeout=1)


def test_it_answers_at_once(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x")
    with site.open() as snapshot:
        took = []
        for _ in range(3):
            began = time.monotonic()
            with Gateway(snapshot, authority=authority) as g:
                assert raw(g, b"GET http://site.example/ HTTP/1.0\r\n\r\n").endswith(b"x")
                took.append(time.monotonic() - began)
    assert min(took) < 0.5


def test_it_works_without_uvloop(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"x")
    site.add("https://site.example/big", BIG)
    with site.open():
        pass
    code = (
        "import sys; sys.modules['uvloop'] = None\n"
        "import ssl, httpx\n"
        "from proxy.certificates import Authority\n"
        "from proxy.gateway import Gateway\n"
        "from snapshots.snapshot import Snapshot\n"
        "with Snapshot.open(sys.argv[1]) as s, Gateway(s, authority=Authority.load_or_create()) as g:\n"
        "    verify = ssl.create_default_context(cafile=g.ca_path)\n"
        "    with httpx.Client(proxy=g.url, verify=verify, trust_env=False) as c:\n"
        "        print(c.get('https://site.example/').text, len(c.get('https://site.example/big').content))\n"
    )
    env = os.environ | {"STILLWEB_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "snap")], capture_output=True, env=env, timeout=60
    )
    assert done.stdout.split() == [b"x", b"3000000"], done.stderr


# What is remembered of a request never outlives what made it right


def test_a_remembered_answer_is_not_given_to_a_session_that_changed_something(
    tmp_path: Path, authority: Authority
) -> None:
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"all")
    site.add("https://site.example/set", b"ok", method="POST", request_headers=form, request_body=b"f=1")
    site.add("https://site.example/", b"some")
    with site.open() as snapshot, Gateway(snapshot, authority=authority, challenge=False) as g:

        def walk(name: str, *bodies: bytes) -> list[str]:
            said = []
            with client(g, name) as c:
                for body in bodies:
                    url = f"https://site.example/{'set' if body else ''}"
                    method = "POST" if body else "GET"
                    said.append(c.request(method, url, content=body, headers=dict(form)).text[:14])
            return said

        for name in ("a", "b"):
            assert walk(name, b"", b"", b"", b"f=1", b"", b"") == ["all", "all", "all", "ok", "some", "some"]
        assert walk("c", b"", b"", b"f=2", b"") == ["all", "all", "stillweb: miss", "stillweb: miss"]
        assert walk("d", b"", b"f=1") == ["all", "ok"]
        g.reset("d")
        assert walk("d", b"", b"") == ["all", "all"]


def test_few_bytes_are_kept_and_every_answer_is_still_right(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    pages = {f"https://site.example/{n}": bytes([65 + n % 26]) * (20_000 + n) for n in range(60)}
    for url, body in pages.items():
        site.add(url, body)
    with (
        site.open() as snapshot,
        Gateway(snapshot, authority=authority, cache_bytes=100_000) as g,
        client(g, None) as c,
    ):
        for _ in range(3):
            for url, body in pages.items():
                assert c.get(url).content == body
        answerer = g._hub.answerer
        assert answerer.kept.bytes < 150_000
        assert sum(map(len, answerer.kept.memos.values())) < 10


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_a_large_body_is_never_whole_in_memory(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/huge", os.urandom(1 << 20) * 150)
    with site.open():
        pass
    code = (
        "import socket, sys\n"
        "from proxy.gateway import Gateway\n"
        "from snapshots.snapshot import Snapshot\n"
        "with Snapshot.open(sys.argv[1]) as snapshot, Gateway(snapshot) as g:\n"
        "    s = socket.create_connection(('127.0.0.1', g.port))\n"
        "    s.sendall(b'GET http://site.example/huge HTTP/1.0\\r\\n\\r\\n')\n"
        "    n = 0\n"
        "    while d := s.recv(1 << 18): n += len(d)\n"
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(n, int(peak.split()[1]) >> 10)\n"
    )
    env = os.environ | {"STILLWEB_STATE": str(tmp_path / "state")}
    arguments = [sys.executable, "-c", code, str(tmp_path / "snap")]
    done = subprocess.run(arguments, capture_output=True, timeout=100, check=True, env=env)
    size, megabytes = map(int, done.stdout.split())
    assert size > 150 << 20
    assert megabytes < 150


def test_a_body_that_was_cut_at_the_origin_still_gets_an_answer_and_a_ledger_line(
    tmp_path: Path, authority: Authority
) -> None:
    broken = gzip.compress(BIG, mtime=0)[:-500_000]
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", broken, headers=(HTML, ("Content-Encoding", "gzip")))
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, client(g) as c:
        none = {"Accept-Encoding": "identity"}
        with c.stream("GET", "http://site.example/", headers={**none, "Range": "bytes=0-3"}) as part:
            assert (part.status_code, part.headers["content-encoding"]) == (206, "gzip")
            assert b"".join(part.iter_raw()) == broken[:4]
        head = c.head("http://site.example/", headers=none)
        assert (head.status_code, head.headers["content-length"]) == (200, str(len(broken)))
        assert [e["verdict"] for e in g.ledger.entries()] == ["exact", "exact"]


def test_a_url_that_none_can_parse_is_a_miss_with_its_ledger_line(gateway: Gateway) -> None:
    seen = len(gateway.ledger.misses())
    assert raw(gateway, b"GET http://[zz/ HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 504 ")
    assert gateway.ledger.misses()[seen]["url"] == "http://[zz/"


def test_http2_is_spoken_where_many_plain_captures_come_first(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "site") as writer:
        for number in range(300):
            url = f"http://mixed.example/a{number:03d}"
            writer.exchange(Exchange(Request("GET", url), 200, "OK", (), b"plain", START))
        secure = Request("GET", "https://mixed.example/z")
        writer.exchange(Exchange(secure, 200, "OK", (), b"secure", START, protocol="h2"))
    with Snapshot.open(tmp_path / "site") as snapshot:
        assert recorded_protocols(snapshot, "mixed.example") == ("h2", "http/1.1")
        assert recorded_protocols(snapshot, "other.example") == ("http/1.1",)
