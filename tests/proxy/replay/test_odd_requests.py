"""Requests that tempt a gateway to answer wrongly, recorded and asked over the wire."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stillweb.proxy import Authority, Gateway, Recorder
from stillweb.snapshots import Snapshot, Writer, seal
from tests.support.waiting import HANG

Answer = tuple[int, list[tuple[str, str]], bytes]
Handle = Callable[[str, str, dict[str, str], bytes], Answer]
HOST = "odd.test"


@contextmanager
def origin(handle: Handle) -> Iterator[int]:
    """A server on a loopback port; any method, in any case."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self._any
            raise AttributeError(name)

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fields = {n.lower(): v for n, v in self.headers.items()}
            path = self.path.removeprefix(U)  # as it is asked directly
            status, headers, answer = handle(self.command, path, fields, body)
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if status != 304:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD" and status != 304:
                self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def raw(port: int, line: str, *fields: str, body: bytes = b"") -> tuple[str, dict[str, str], bytes]:
    """Sends a request as it is written; status, header fields by lower-case name, body."""
    host = re.match(r"\w+ http://(?:[^/?#]*@)?([^/?#]*)", line)
    lines = [line + " HTTP/1.1", f"Host: {host[1] if host else HOST}", "Connection: close", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    with socket.create_connection(("127.0.0.1", port), timeout=HANG) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body)
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *others = head.decode("latin-1").split("\r\n")
    named = {n.lower(): v.strip() for n, _, v in (o.partition(":") for o in others)}
    return first.split(" ")[1], named, rest


class Walk:
    """Requests made while recording and again in replay."""

    def __init__(self, tmp_path: Path, handle: Handle) -> None:
        self._path = tmp_path
        self._handle = handle
        self._state = Authority.load_or_create(tmp_path / "state")

    def record(self, steps: Callable[[int], None]) -> None:
        with (
            origin(self._handle) as port,
            Writer.open(self._path / "site") as writer,
            Recorder(writer, resolve={HOST: ("127.0.0.1", port)}, authority=self._state) as recorder,
        ):
            steps(recorder.port)
            recorder.wait_quiet(seconds=0)
            assert recorder.failures == []

    @contextmanager
    def replay(self) -> Iterator[Gateway]:
        path = self._path / "site"
        if not path.with_suffix(".wacz").exists():
            seal(path, state=self._state.directory)
        with (
            Snapshot.open(path.with_suffix(".wacz")) as snapshot,
            Gateway(snapshot, authority=self._state) as gateway,
        ):
            yield gateway


U = f"http://{HOST}"


def test_methods_are_case_sensitive(tmp_path: Path) -> None:
    walk = Walk(tmp_path, lambda method, path, fields, body: (200, [], method.encode()))

    def steps(port: int) -> None:
        for method in ("patch", "PATCH", "PURGE", "GET"):
            assert raw(port, f"{method} {U}/x")[2] == method.encode()

    walk.record(steps)
    with walk.replay() as gateway:
        for method in ("patch", "PATCH", "PURGE", "GET"):
            assert raw(gateway.port, f"{method} {U}/x")[2] == method.encode()
        for method in ("get", "purge", "Patch", "REPORT"):
            assert raw(gateway.port, f"{method} {U}/x")[0] == "504"


@pytest.mark.parametrize("body", [b"1", b"-1.5", b"null", b"true", b'"gull"', b"[]", b"[[1], null]"])
def test_a_body_that_is_one_value_of_json(tmp_path: Path, body: bytes) -> None:
    walk = Walk(tmp_path, lambda method, path, fields, asked: (200, [], path.encode() + asked))
    post = (f"POST {U}/vote?page=1", "Content-Type: application/json")

    def steps(port: int) -> None:
        assert raw(port, *post, body=body)[2] == b"/vote?page=1" + body
        assert raw(port, f"GET {U}/votes?page=1")[2] == b"/votes?page=1"

    walk.record(steps)
    with walk.replay() as gateway:
        steps(gateway.port)
        assert raw(gateway.port, *post, body=b"[1, 2]")[0] == "504"
        assert gateway.failures == []


def test_a_page_by_cookies_that_a_script_set(tmp_path: Path) -> None:
    """Two tabs of one client with other choices; none was ever in a Set-Cookie."""
    sizes = {"s": b"small", "m": b"medium"}

    def handle(method: str, path: str, fields: dict[str, str], body: bytes) -> Answer:
        return (
            200,
            [("Content-Type", "text/html")],
            b"<p>" + sizes.get(fields.get("cookie", "")[-1:], b"none"),
        )

    walk = Walk(tmp_path, handle)

    def steps(port: int) -> None:
        for _ in range(2):
            for size in ("s", "m", ""):
                raw(port, f"GET {U}/list", *([f"Cookie: fit={size}"] if size else []))

    walk.record(steps)
    with walk.replay() as gateway:
        for size in ("m", "s", "", "m", "", "s", "s"):
            _, _, text = raw(gateway.port, f"GET {U}/list", *([f"Cookie: fit={size}"] if size else []))
            assert text == b"<p>" + sizes.get(size, b"none")
        assert raw(gateway.port, f"GET {U}/list", "Cookie: fit=l")[0] == "504"


def test_copies_of_a_client_and_a_page_that_changed_meanwhile(tmp_path: Path) -> None:
    """304 is for the copy it speaks of; HEAD and Range are of the variant that is asked for."""
    turns = iter(range(100))

    def handle(method: str, path: str, fields: dict[str, str], body: bytes) -> Answer:
        if path == "/news":
            text = b"first edition" if next(turns) < 2 else b"second edition!"
            tag = f'"{len(text)}"'
            headers = [("ETag", tag), ("Content-Type", "text/html")]
            if fields.get("if-none-match") == tag:
                return 304, headers, b""
            return 200, headers, text
        language = fields.get("accept-language", "en")
        return 200, [("Vary", "Accept-Language"), ("Content-Type", "text/html")], f"in {language}!!".encode()

    walk = Walk(tmp_path, handle)

    def steps(port: int) -> None:
        raw(port, f"GET {U}/news")
        raw(port, f"GET {U}/news", 'If-None-Match: "13"')  # not modified
        raw(port, f"GET {U}/news", 'If-None-Match: "13"')  # changed
        raw(port, f"GET {U}/news", 'If-None-Match: "15"')  # not modified
        for language in ("en", "fr", "de-CH"):
            raw(port, f"GET {U}/page", f"Accept-Language: {language}")

    walk.record(steps)
    with walk.replay() as gateway:
        port = gateway.port
        for language in ("de-CH", "en", "fr"):
            named = f"Accept-Language: {language}"
            whole = f"in {language}!!".encode()
            status, fields, text = raw(port, f"HEAD {U}/page", named)
            assert (status, fields["content-length"], text) == ("200", str(len(whole)), b"")
            assert raw(port, f"GET {U}/page", named, "Range: bytes=-4")[2] == whole[-4:]
        assert raw(port, f"HEAD {U}/page", "Accept-Language: it")[0] == "504"
        # a client with the first edition is never told that the second is the same, nor the reverse
        seen = []
        copy = b""
        for _ in range(5):
            fields = [f'If-None-Match: "{len(copy)}"'] if copy else []
            status, _, text = raw(port, f"GET {U}/news", *fields)
            if status == "200":
                copy = text
            seen.append((status, copy))
        assert all(text in (b"first edition", b"second edition!") for _, text in seen)
        assert [s for s, _ in seen if s not in ("200", "304")] == []


@pytest.mark.slow
def test_where_a_redirect_leads_depends_on_the_login(tmp_path: Path) -> None:
    """In, out and in again, by a token in a header that a page gave."""
    users: dict[str, bool] = {}
    numbers = iter(range(1000))

    def handle(method: str, path: str, fields: dict[str, str], body: bytes) -> Answer:
        sid = fields.get("cookie", "").rpartition("=")[2]
        more: list[tuple[str, str]] = [("Content-Type", "text/html")]
        if sid not in users:
            sid = f"{next(numbers):04d}a9f3k7q2z8m5x1c6v0b4"
            users[sid] = False
            more.append(("Set-Cookie", f"sid={sid}; Path=/"))
        if path == "/go":
            return 302, [*more, ("Location", "/home" if users[sid] else "/login")], b""
        if path == "/token":
            return 200, more, f'<meta name="csrf-token" content="tk{sid[::-1]}">'.encode()
        if method == "POST":
            if fields.get("x-csrf-token") != f"tk{sid[::-1]}":
                return 403, more, b"forged"
            users[sid] = path == "/login"
            return 204, more, b""
        return 200, more, f"{path}: {'in' if users[sid] else 'out'}".encode()

    walk = Walk(tmp_path, handle)

    def visit(port: int, acts: str) -> list[str]:
        told, cookie, token = [], "", ""
        for act in acts:
            method, path = {"g": ("GET", "/go"), "h": ("GET", "/home"), "t": ("GET", "/token")}.get(
                act, ("POST", "/login" if act == "i" else "/logout")
            )
            fields = [f"Cookie: {cookie}"] if cookie else []
            if method == "POST":
                fields += [f"X-CSRF-Token: {token}", "Content-Type: application/x-www-form-urlencoded"]
            status, named, text = raw(
                port, f"{method} {U}{path}", *fields, body=b"x=1" if method == "POST" else b""
            )
            if "set-cookie" in named:
                cookie = named["set-cookie"].partition(";")[0]
            if act == "t":
                token = text.decode().partition('content="')[2].partition('"')[0]
                text = b""
            told.append(f"{status} {named.get('location', '')} {text.decode() if status != '504' else ''}")
        return told

    recorded: dict[str, list[str]] = {}

    def steps(port: int) -> None:
        for acts in ("tghighoghigh", "tgig"):
            recorded[acts] = visit(port, acts)

    walk.record(steps)
    with origin(handle) as live, walk.replay() as gateway:
        for acts in ("tghighoghigh", "tgig", "tihgohgih", "tgogig", "hgtig"):
            gateway.reset()
            users.clear()
            expected = visit(live, acts)
            found = visit(gateway.port, acts)
            for want, have in zip(expected, found, strict=True):
                if have.startswith("504"):
                    break
                assert want == have, acts
        for acts, told in recorded.items():
            gateway.reset()
            assert visit(gateway.port, acts) == told


TARGETS = [
    "/caf%C3%A9",
    "/caf%E9",
    "/cafe%CC%81",
    "/a%2Fb",
    "/a/b",
    "/a%3Fb",
    "/a?b",
    "/a?b=",
    "/a?",
    "/?q=a+b",
    "/?q=a%2Bb",
    "/p;x=1",
    "/p",
    "/p/",
    "/x//p",
    "/P",
    "/?s=1&s=2",
    "/?a=1;b=2",
    "/?a=1&b=2",
    "/%2541",
    "/A",
    "/go?to=http://odd.test/p",
]


def test_a_target_that_the_recorder_refuses_is_told(tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "site") as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        assert raw(recorder.port, f"GET {U}/caf au lait")[0] == "400"
        ((who, words),) = recorder.failures
        assert who == "client"
        assert "caf" in words


def test_targets_that_are_nearly_the_same(tmp_path: Path) -> None:
    """Each target is answered by its own bytes, in any order; an unrecorded one is a miss or means the same."""

    def handle(method: str, path: str, fields: dict[str, str], body: bytes) -> Answer:
        return 200, [("Content-Type", "text/html")], f"<p>{path.encode('latin-1')!r}".encode()

    walk = Walk(tmp_path, handle)
    told: dict[str, bytes] = {}

    def steps(port: int) -> None:
        for target in TARGETS:
            told[target] = raw(port, f"GET {U}{target}")[2]

    walk.record(steps)
    assert len(set(told.values())) == len(TARGETS)
    with walk.replay() as gateway:
        for target in reversed(TARGETS):
            assert raw(gateway.port, f"GET {U}{target}")[2] == told[target], target
            assert raw(gateway.port, f"GET {U}{target}#top")[2] == told[target], target
        for other in (
            "/cafe",
            "/a%252Fb",
            "/?s=1",
            "/p//",
            "/a?b=%20",
            "/%41",
            "/go?to=http:%2f%2Fodd.test%2Fp",
        ):
            status, fields, _ = raw(gateway.port, f"GET {U}{other}")
            assert status == "504" or fields["stillweb-verdict"] == "rule:encoding", other
        for host in ("odd.test.", "odd.test:81", "x.odd.test", "[::1]"):
            assert raw(gateway.port, f"GET http://{host}/p")[0] in ("504", "400"), host
