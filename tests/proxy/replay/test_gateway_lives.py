"""Many connections, little memory, another event loop, and nothing left when it ends."""

import base64
import contextlib
import errno
import gc
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay import answering, connection, http2
from stillweb.proxy.replay import gateway as gateway_module
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.evidence.lookup import Session
from stillweb.snapshots.identity import drawn_ids, keys
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import Redactor
from tests.proxy.frozen import Site
from tests.proxy.gateways import BIG, client, drained, head, tunnel
from tests.support.waiting import HANG, STARTS, until


@pytest.mark.slow
def test_five_hundred_connections(gateway: Gateway) -> None:
    socks = []
    try:
        for _ in range(500):
            socks.append(socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG))
        request = b"GET http://site.example/plain?a=1&b=2 HTTP/1.1\r\nHost: site.example\r\n\r\n"
        for _ in range(2):
            for sock in socks:
                sock.sendall(request)
            for sock in socks:
                assert head(sock).startswith(b"HTTP/1.1 200 ")
                assert sock.recv(5, socket.MSG_WAITALL) == b"plain"
    finally:
        for sock in socks:
            sock.close()
    assert until(lambda: gateway.stats.connections < 50)


def test_closing_ends_connections_and_threads(tmp_path: Path, authority: Authority) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x")
    before = threading.active_count()
    with site.open() as snapshot:
        with Gateway(snapshot, authority=authority, ledger=Ledger(tmp_path / "l")) as g:
            idle = socket.create_connection(("127.0.0.1", g.port), timeout=HANG)
            with client(g) as c:
                c.get("http://site.example/")
        assert drained(idle) == b""
        idle.close()
        g.ledger.close()
    assert until(lambda: threading.active_count() <= before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", g.port), timeout=HANG)


@pytest.mark.slow
def test_it_works_without_uvloop(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("https://site.example/", b"x")
    site.add("https://site.example/big", BIG)
    with site.open():
        pass
    code = (
        "import sys; sys.modules['uvloop'] = None\n"
        "import ssl, httpx\n"
        "from stillweb.proxy.net.ca import Authority\n"
        "from stillweb.proxy.replay.gateway import Gateway\n"
        "from stillweb.snapshots.snapshot import Snapshot\n"
        "with Snapshot.open(sys.argv[1]) as s, Gateway(s, authority=Authority.load_or_create()) as g:\n"
        "    verify = ssl.create_default_context(cafile=g.ca_path)\n"
        "    with httpx.Client(proxy=g.url, verify=verify, trust_env=False, timeout=60) as c:\n"
        "        print(c.get('https://site.example/').text, len(c.get('https://site.example/big').content))\n"
    )
    env = os.environ | {"STILLWEB_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "snap")], capture_output=True, env=env, timeout=STARTS
    )
    assert done.stdout.split() == [b"x", b"3000000"], done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc")
def test_a_large_body_is_never_whole_in_memory(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/huge", os.urandom(1 << 20) * 100)
    with site.open():
        pass
    code = (
        "import socket, sys\n"
        "from stillweb.proxy.replay.gateway import Gateway\n"
        "from stillweb.snapshots.snapshot import Snapshot\n"
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
    done = subprocess.run(arguments, capture_output=True, timeout=STARTS, check=True, env=env)
    size, megabytes = map(int, done.stdout.split())
    assert size > 100 << 20
    assert megabytes < 110, megabytes


@pytest.mark.slow
@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_does_not_read_is_sent_away_and_one_that_reads_slowly_is_not(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    # who reads bit by bit, and longer than that, may be held up itself
    monkeypatch.setattr(connection, "PATIENCE", 3.0 if reads else 1.5)
    whole = bytes(64 << 20)  # in memory: it is stored in less than is read bit by bit
    packed = (("Content-Encoding", "gzip"),)
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", gzip.compress(whole, mtime=0), headers=packed)
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        sock.settimeout(HANG)
        sock.connect(("127.0.0.1", g.port))
        sock.sendall(b"GET http://site.example/ HTTP/1.1\r\n\r\n")
        head(sock)
        end = time.monotonic() + 5.0
        came = 0
        while reads and time.monotonic() < end:
            came += len(sock.recv(1 << 16))
            time.sleep(0.02)
        if not reads:
            assert until(lambda: not g.stats.connections)
        while came < len(whole) and (piece := drained_piece(sock)):
            came += len(piece)
        assert (came == len(whole)) == reads


def drained_piece(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 20)
    except ConnectionResetError:
        return b""


def test_what_keeps_it_from_starting_is_told(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(gateway_module, "new_loop", none_left)
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"x")
    with site.open() as snapshot, pytest.raises(MissingCapability, match="can't start: Too many open files"):
        Gateway(snapshot, authority=authority).start()


@pytest.mark.slow
def test_closing_under_way_leaves_nothing_pending(tmp_path: Path) -> None:
    """asyncio says so on stderr, where a task of its own is left behind."""
    script = (
        "import gc, os, socket, sys, time\n"
        "from pathlib import Path\n"
        "from stillweb.proxy import Authority, Gateway\n"
        "from tests.proxy.frozen import Site\n"
        "site = Site(Path(sys.argv[1]) / 'snap')\n"
        "site.add('http://site.example/', os.urandom(12_000_000))\n"
        "with site.open() as snapshot:\n"
        "    gateway = Gateway(snapshot, authority=Authority.load_or_create(Path(sys.argv[1]))).start()\n"
        "    sock = socket.create_connection(('127.0.0.1', gateway.port))\n"
        "    sock.sendall(b'GET http://site.example/ HTTP/1.1\\r\\n\\r\\n')\n"
        "    while not any(getattr(c, 'paused', False) and c._busy for c in tuple(gateway._hub.connections)):\n"
        "        time.sleep(0.01)\n"
        "    gateway.close()\n"
        "gc.collect()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, timeout=STARTS, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_in_the_midst_of_writing_the_ledger_still_ends_it(tmp_path: Path) -> None:
    """The main thread, where Python hears signals, holds the ledger's lock then."""
    script = (
        "import os, signal, sys\n"
        "from stillweb.proxy.replay.ledger import Ledger\n"
        "from stillweb.proxy.replay.gateway import flush_at_sigterm\n"
        "write = os.write\n"
        "def struck(fd, data):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return write(fd, data)\n"
        "ledger = Ledger(sys.argv[1])\n"
        "flush_at_sigterm(ledger)\n"
        "ledger._awaited = True\n"  # its own thread does not write
        "ledger.write_line('{\"first\":1}')\n"
        "os.write = struck\n"
        "ledger.flush()\n"
        "signal.pause()\n"
    )
    path = tmp_path / "ledger.jsonl"
    done = subprocess.run([sys.executable, "-c", script, str(path)], timeout=STARTS)
    assert (done.returncode, path.read_text()) == (-signal.SIGTERM, '{"first":1}\n')


def test_failures_are_counted_beyond_those_that_are_told(gateway: Gateway) -> None:
    before = gateway.stats.failures
    with client(gateway) as c:
        for _ in range(105):
            assert c.get("http://made.example/fail").status_code == 500
    assert gateway.stats.failures == before + 105
    assert len(gateway._hub.failures) <= 100


@pytest.mark.parametrize(
    ("media", "mark"),
    [
        ("application/x-www-form-urlencoded", "&"),
        ("multipart/form-data; boundary=b", '\r\n--b\r\nContent-Disposition: form-data; name="'),
        ("multipart/form-data; boundary=b", '\r\nname="'),
        ("application/json", ","),
    ],
    ids=["form", "multipart", "broken multipart", "json"],
)
def test_no_neighbour_waits_until_a_miss_with_many_names_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, media: str, mark: str
) -> None:
    names = [f"n{number * 7919}={number}" for number in range(2000)]
    if mark == ",":
        names = [f'"{name}":1' for name in names]
    body = f"{{{mark.join(names)}}}" if mark == "," else mark.join(names)
    explained, parse = answering.explain, keys._parse
    begun, answered, where = threading.Event(), threading.Event(), set[str]()

    def explain(lookup: Any) -> None:
        begun.set()
        answered.wait(HANG)
        explained(lookup)

    def watched(asked: Request) -> Any:
        where.add(threading.current_thread().name)
        return parse(asked)

    site = Site(tmp_path / "s")
    site.add("http://a.test/", b"page")
    with (
        site.open() as snapshot,
        Gateway(snapshot) as gateway,
        ThreadPoolExecutor() as pool,
        client(gateway, "one") as one,
        client(gateway, "two") as two,
    ):
        assert two.get("http://a.test/").text == "page"
        monkeypatch.setattr(answering, "explain", explain)
        monkeypatch.setattr(keys, "_parse", watched)
        miss = pool.submit(one.post, "http://a.test/", content=body, headers={"Content-Type": media})
        assert begun.wait(HANG)
        assert where
        assert all("prepare" in name for name in where)
        assert two.get("http://a.test/").text == "page"
        answered.set()
        assert miss.result().status_code == 504


MANY = "&".join(f"n{number}={number}" for number in range(500))
LARGE = json.dumps([number * 7919 % 1_000_003 for number in range(5000)]).encode()
PASSWORD = "correct-horse-9"
PASSWORD_ALONE = json.dumps({"password": PASSWORD}).encode()
IDS = "123e4567-e89b-42d3-a456-426614174000", "9b2c1d3e-5f60-4a7b-8c9d-0e1f2a3b4c5d"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "query", "fields"),
    [
        ("POST", MANY, 0),
        ("POST", f"{MANY}&stillweb-stream=1.x", 0),
        ("HEAD", MANY, 0),
        ("GET", f"{MANY}&stillweb-stream=1.x", 0),
        ("GET", "", 60),
        ("GET", MANY, -1),
        ("PUT", "", 0),
        ("PATCH", "", 0),
    ],
    ids=[
        "post",
        "marked post",
        "head",
        "event stream",
        "fields",
        "dated",
        "drawn and secret",
        "beside large ones",
    ],
)
def test_what_a_large_request_comes_to_is_computed_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, query: str, fields: int
) -> None:
    """A HEAD is looked up as a GET, which held all others for 0.4 s; an event stream as one asked again, for 10 s.

    What a session sent before, and what it drew, are put in as they were recorded, for 1.6 s.
    """
    where, parse = set[str](), keys._parse

    def watched(asked: Request) -> Any:
        where.add(threading.current_thread().name)
        return parse(asked)

    def said(**more: str) -> bytes:
        return json.dumps({**more, **dict.fromkeys(MANY.split("&"), 1)}).encode()

    site, form = Site(tmp_path / "s"), {"Content-Type": "application/json"}
    site.add("http://a.test/", b"page")
    site.add("http://a.test/none?a=1", b"page")
    site.add(f"http://a.test/none?{MANY}", b"page")
    site.add(
        "http://a.test/none", b"", method="PATCH", request_headers=tuple(form.items()), request_body=LARGE
    )
    sent = {"in": PASSWORD_ALONE, "note": said(password=PASSWORD), "cell": said(id=IDS[0])}
    for url, body in ((f"http://a.test/{name}", body) for name, body in sent.items()):
        stored = Redactor(b"k" * 32).request(Request("PUT", url, tuple(form.items()), body))
        site.add(url, b"", status=201, method="PUT", request_headers=stored.headers, request_body=stored.body)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway) as one:
        if method in ("PUT", "PATCH"):  # which learns the site, too
            assert one.put("http://a.test/in", content=PASSWORD_ALONE, headers=form).status_code == 201
        if method == "PUT":
            monkeypatch.setattr(keys, "_parse", watched)
            answer = one.put("http://a.test/note", content=sent["note"], headers=form)
            assert answer.headers["stillweb-verdict"] == "exact"
            answer = one.put("http://a.test/cell", content=said(id=IDS[1]), headers=form)
            assert answer.headers["stillweb-verdict"] == "rule:visit-id"
        monkeypatch.setattr(keys, "_parse", watched)
        body = b"" if method in ("GET", "HEAD") else b"[1]" if method == "PATCH" else LARGE
        headers = form if body else {f"X-{n}": "1" for n in range(fields)}
        if fields < 0:
            headers = {"Accept-Datetime": "Thu, 01 Jan 2026 00:00:00 GMT"}
        one.request(method, f"http://a.test/none?{query}", content=body, headers=headers)
    assert where
    assert all("prepare" in name for name in where)


def test_a_large_request_is_searched_for_what_its_page_drew_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search of a body of 1 MB held all other requests for 45 ms."""
    where, search = set[str](), drawn_ids.tokens_in

    def watched(said: Any) -> list[str]:
        where.add(threading.current_thread().name)
        return search(said)

    site = Site(tmp_path / "s")
    site.add("http://a.test/", b"page")
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway) as one:
        monkeypatch.setattr(drawn_ids, "tokens_in", watched)
        one.post("http://a.test/none", content=LARGE, headers={"Sec-Fetch-Dest": "empty"})
    assert where
    assert all("prepare" in name for name in where)


def crowd_of(
    version: str, session: str, count: int, gateway: Gateway, body: bytes = b""
) -> tuple[socket.socket, bytes]:
    """A connection of a session, and the bytes of many requests for it; the first has the body."""
    if version == "2":
        sock: socket.socket = tunnel(gateway, "two.example", ("h2",), session=session)
        mine = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        mine.initiate_connection()
        for number in range(count):
            where = [(":authority", "two.example"), (":scheme", "https"), (":path", f"/{number}")]
            first = number == 0 and bool(body)
            method = "POST" if first else "GET"
            mine.send_headers(2 * number + 1, [(":method", method), *where], end_stream=not first)
            if first:
                mine.send_data(1, body, end_stream=True)
            mine.reset_stream(2 * number + 1)
        return sock, mine.data_to_send()
    sock = socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG)
    named = base64.b64encode(f"{session}:x".encode()).decode()
    fields = f"Host: a.test\r\nProxy-Authorization: Basic {named}\r\n"
    lines = [f"GET http://a.test/{n} HTTP/1.1\r\n{fields}\r\n".encode() for n in range(count)]
    if body:
        lines[0] = (
            f"POST http://a.test/0 HTTP/1.1\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
    return sock, b"".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.1", "2"])
def test_no_neighbour_waits_until_all_that_a_client_asks_at_once_is_answered(
    version: str, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TURN", 0.0)
    monkeypatch.setattr(http2, "TURN", 0.0)
    count, crowd, alone = 150, f"crowd-{version}", f"alone-{version}"
    with client(gateway, session=alone) as other, contextlib.ExitStack() as opened:
        assert other.get("http://site.example/plain?a=1&b=2").status_code == 200
        sock, sent = crowd_of(version, crowd, count, gateway)
        opened.enter_context(sock)
        sock.sendall(sent)

        def read() -> None:
            with contextlib.suppress(OSError):
                while sock.recv(1 << 16):
                    pass

        threading.Thread(target=read, daemon=True).start()
        other.get("http://site.example/plain?a=1&b=2")

        def lines() -> list[str]:
            told = (entry["session"] for entry in gateway.ledger.entries())
            return [session for session in told if session in (crowd, alone)]

        assert until(lambda: lines().count(crowd) == count)
    assert lines()[-1] == crowd


def test_a_client_that_leaves_before_its_miss_is_explained_has_a_ledger_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, left = threading.Event(), threading.Event()

    def explain(_: object) -> None:
        begun.set()
        left.wait(HANG)

    monkeypatch.setattr(answering, "explain", explain)
    site = Site(tmp_path / "s")
    site.add("http://a.test/", b"page")
    with site.open() as snapshot, Gateway(snapshot) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as sock:
            sock.sendall(f"GET http://a.test/?{'n&' * 4000} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode())
            assert begun.wait(HANG)
        assert until(lambda: gateway.stats.requests == 1)
        left.set()
        (line,) = gateway.ledger.entries()
    assert (line["verdict"], line["status"], line["nearest"]) == ("miss", 0, [])
    assert gateway.stats.misses == 1


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_what_a_client_asked_before_it_left_is_in_the_ledger(
    version: str, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TURN", 0.0)
    monkeypatch.setattr(http2, "TURN", 0.0)
    begun, left = threading.Event(), threading.Event()
    derive = answering.Answerer._derive

    def derived(self: answering.Answerer, request: Request, session: Session) -> None:
        begun.set()
        left.wait(HANG)
        derive(self, request, session)

    monkeypatch.setattr(answering.Answerer, "_derive", derived)
    before, crowd = gateway.stats.connections, f"left-{version}"
    sock, sent = crowd_of(version, crowd, 60, gateway, b"a=1&" * 1000)
    sock.sendall(sent)
    assert begun.wait(HANG)
    sock.close()
    if version == "2":
        assert until(lambda: gateway.stats.connections <= before)
    else:  # it may have closed its own side alone
        assert until(lambda: any(getattr(c, "_eof", False) for c in tuple(gateway._hub.connections)))
    left.set()

    def told() -> set[str]:
        return {
            entry["url"].rpartition("/")[2] for entry in gateway.ledger.entries() if entry["session"] == crowd
        }

    assert until(lambda: told() == {str(number) for number in range(60)})


def test_a_process_for_replay_alone_does_not_look_for_garbage_in_what_a_site_shows(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path / "snap")
    for number in range(20):
        site.add("http://site.example/add", b"done", method="POST", request_body=b"n=%d" % number)
        site.add("http://site.example/list", b"%d there" % number)
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as g, client(g) as c:
        monkeypatch.setattr(answering.Answerer, "learnt_more", staticmethod(lambda: None))
        answering.tune_process()
        try:
            before = gc.get_freeze_count()
            c.get("http://site.example/list")
            assert gc.get_freeze_count() > before
        finally:
            gc.unfreeze()
