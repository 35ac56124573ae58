"""Recording from behind a proxy: HTTP and SOCKS, by option and by the machine's environment, with client certificates."""

import contextlib
import re
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.upstream import UpstreamProxy
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots import Snapshot
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.writer import Writer
from tests.proxy.dead import closed_port
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG

# mitmproxy as the upstream: names lead to this machine, a tunnel to a plain port is refused as Squid does.
RULES = """
from mitmproxy import http
def http_connect(flow):
    if flow.request.port == {plain}:
        flow.response = http.Response.make(403)
def requestheaders(flow):
    flow.request.headers["Via"] = "1.1 upstream"
def server_connect(data):
    data.server.address = ("127.0.0.1", data.server.address[1])
"""


def answer(asked: Asked) -> Answer:
    return Answer(headers=[("Content-Type", "text/plain")], body=f"by {asked.header('Via')}".encode())


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def authority(state: Path) -> Authority:
    return Authority.load_or_create(state / "origins")


@pytest.fixture(scope="module")
def plain() -> Iterator[Origin]:
    with Origin(answer) as origin:
        yield origin


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[Origin]:
    with Origin(answer, authority.context_for("only-there.test")) as origin:
        yield origin


@contextmanager
def upstream(folder: Path, mode: str, plain: Origin, authority: Authority) -> Iterator[int]:
    script = folder / "rules.py"
    script.write_text(RULES.format(plain=plain.port))
    words = [
        "mitmdump", "--mode", mode, "--listen-host", "127.0.0.1", "--listen-port", "0", "-s", script,
        "--set", f"confdir={folder}", "--set", f"ssl_verify_upstream_trusted_ca={authority.certificate_path}",
    ]  # fmt: skip
    process = subprocess.Popen(
        [Path(sys.executable).parent / words[0], *words[1:]], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, "mitmdump ended"
            found = re.search(r"listening at 127\.0\.0\.1:(\d+)", line)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(HANG)
        process.stdout.close()


@contextmanager
def recording(folder: Path, **options: object) -> Iterator[tuple[Recorder, httpx.Client]]:
    own = Authority.load_or_create(folder / "state")
    with (
        Writer.open(folder / "snap") as writer,
        Recorder(writer, authority=own, **options) as recorder,  # type: ignore[arg-type]
        httpx.Client(
            proxy=recorder.proxy_url(),
            verify=ssl.create_default_context(cafile=str(own.certificate_path)),
            trust_env=False,
            timeout=HANG,
        ) as client,
    ):
        yield recorder, client


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["regular", "socks5"])
def test_all_is_recorded_through_the_upstream_proxy(
    mode: str, tmp_path: Path, plain: Origin, secure: Origin, authority: Authority
) -> None:
    urls = [f"http://only-there.test:{plain.port}/page", f"https://only-there.test:{secure.port}/page"]
    with upstream(tmp_path, mode, plain, authority) as port:
        url = f"{'http' if mode == 'regular' else 'socks5h'}://127.0.0.1:{port}"
        ca = tmp_path / "mitmproxy-ca-cert.pem"  # the upstream's own, which the recorder must trust
        with recording(tmp_path, upstream=url, upstream_ca=ca) as (_, client):
            for page in urls:
                assert client.get(page).text == "by 1.1 upstream"
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert {capture.url for capture in snapshot.captures()} == set(urls)


def test_the_environment_names_the_proxy_and_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch)
    assert not UpstreamProxy.of(None)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("https_proxy", "proxy.test:3129")
    monkeypatch.setenv("NO_PROXY", "inside.test,.corp.test")
    found = UpstreamProxy.of(None)
    assert found.address("http", "a.test", 80) == "http://proxy.test:3128"
    assert found.address("https", "a.test", 443) == "http://proxy.test:3129"
    for host in ("inside.test", "x.corp.test", "localhost", "127.0.0.1", "::1"):
        assert found.address("https", host, 443) is None
    assert not UpstreamProxy.of("")


@pytest.mark.parametrize(
    "url", ["ftp://proxy.test:21", "http://", "http://proxy.test:x", "https://proxy.test"]
)
def test_another_form_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="SCHEME://HOST:PORT"):
        UpstreamProxy.of(url)


class Relay(socketserver.ThreadingTCPServer):
    """A proxy that notes what it is asked for. Tunnels lead to this machine; plain requests it answers itself."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Relayed)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Relayed(socketserver.StreamRequestHandler):
    server: Relay

    def handle(self) -> None:
        method, target, _ = self.rfile.readline().decode().split(" ")
        fields = [line.decode().lower() for line in iter(self.rfile.readline, b"\r\n")]
        login = any(line.startswith("proxy-authorization") for line in fields)
        self.server.asked.append(f"{method} {target}{' with a login' if login else ''}")
        if method != "CONNECT":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nme")
            return
        with socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2]))) as origin:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=self.copy, args=(origin, self.connection))
            back.start()
            self.copy(self.connection, origin)
            back.join()

    @staticmethod
    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def relays() -> Iterator[tuple[Relay, Relay]]:
    with Relay() as one, Relay() as other:
        yield one, other
        one.shutdown()
        other.shutdown()


@pytest.mark.parametrize("login", [False, True])
def test_each_scheme_goes_by_the_proxy_that_is_named_for_it(
    login: bool,
    relays: tuple[Relay, Relay],
    tmp_path: Path,
    plain: Origin,
    secure: Origin,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = "ann:secret@" if login else ""
    for_plain, for_secure = relays
    environment(monkeypatch, http=f"http://{user}{for_plain.place}", https=f"http://{user}{for_secure.place}")
    name = f"only-there.test:{secure.port}"
    with recording(tmp_path, upstream_ca=authority.certificate_path) as (recorder, client):
        assert client.get(f"http://only-there.test:{plain.port}/page").text == ("by None" if login else "me")
        assert client.get(f"https://{name}/page").text == "by None"
        # a client that sends the whole address over plain HTTP
        with socket.create_connection(("127.0.0.1", recorder.port)) as peer:
            peer.sendall(f"GET https://{name}/whole HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            assert peer.recv(100).startswith(b"HTTP/1.1 200")
    suffix = " with a login" if login else ""
    request = (
        f"CONNECT only-there.test:{plain.port}" if login else f"GET http://only-there.test:{plain.port}/page"
    )
    assert for_plain.asked == [f"{request}{suffix}"]
    assert for_secure.asked == [f"CONNECT {name}{suffix}"] * 2


@pytest.mark.parametrize(
    "named",
    [
        {"https": "http://{}"},
        *({"all": "http://{}", "no": no} for no in ("*.else.test", "else.test:80", "*")),
    ],
)
def test_a_host_without_a_proxy_is_asked_itself(
    named: dict[str, str], relays: tuple[Relay, Relay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(monkeypatch, **{name: url.format(relays[0].place) for name, url in named.items()})
    with recording(tmp_path) as (recorder, client):
        assert client.get("http://plain.else.test/").status_code == 502  # there is no such name
    assert [url for url, _ in recorder.failures] == ["http://plain.else.test/"]
    assert not relays[0].asked


def environment(monkeypatch: pytest.MonkeyPatch, **proxies: str) -> None:
    """Set the variables that name proxies, and no others."""
    for scheme in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme}_proxy".upper(), raising=False)
    for scheme, url in proxies.items():
        monkeypatch.setenv(f"{scheme}_proxy".upper(), url)


@pytest.mark.parametrize(
    ("listed", "past", "through"),
    [
        ("*", ["a.test:80", "10.1.2.3:443"], []),
        ("a.test, b.test", ["a.test:80", "x.b.test:443", "A.TEST.:80"], ["ba.test:80", "a.test.org:80"]),
        (".corp.test *.lan.test", ["x.corp.test:80", "y.lan.test:80"], ["corp.testing:80", "lan.tests:80"]),
        ("a.test:8080", ["a.test:8080", "x.a.test:8080"], ["a.test:80"]),
        (
            "10.0.0.0/8,192.168.1.7",
            ["10.9.9.9:80", "192.168.1.7:1"],
            ["11.0.0.1:80", "192.168.1.8:1", "10.test:1"],
        ),
        ("10.0.0.0/8:8080", ["10.9.9.9:8080"], ["10.9.9.9:80"]),
        ("2001:db8::/32,[2001:db9::1]:80", ["[2001:db8::7]:1", "[2001:db9::1]:80"], ["[2001:db9::1]:81"]),
        (",, ", [], ["a.test:80"]),
    ],
)
def test_hosts_that_no_proxy_lists_are_reached_without(
    monkeypatch: pytest.MonkeyPatch, listed: str, past: list[str], through: list[str]
) -> None:
    environment(monkeypatch, all="http://proxy.test:3128", no=listed)
    found = UpstreamProxy.of(None)
    for place in past + through:
        host, _, port = place.rpartition(":")
        by = None if place in past else "http://proxy.test:3128"
        assert found.address("https", host, int(port)) == by, place
        assert (found.forward_address(host, int(port)) is None) == (place in past), place


def test_a_password_of_the_proxy_is_in_no_message_and_no_record(tmp_path: Path) -> None:
    with closed_port() as port:
        url = f"http://me:not-for-anyone@127.0.0.1:{port}"
        with recording(tmp_path, upstream=url) as (recorder, client):
            assert client.get("http://only-there.test/").status_code == 502
        [(_, reason)] = recorder.failures
    assert f"no upstream proxy at http://127.0.0.1:{port}: " in reason
    stored = b"".join(path.read_bytes() for path in (tmp_path / "snap").rglob("*") if path.is_file())
    assert b"not-for-anyone" not in stored + reason.encode()


@pytest.mark.parametrize("url", ["http://only-there.test/", "https://only-there.test/"])
def test_that_the_proxy_is_not_there_is_no_failure_of_the_origin(tmp_path: Path, url: str) -> None:
    with closed_port() as port, recording(tmp_path, upstream=f"127.0.0.1:{port}") as (recorder, client):
        with contextlib.suppress(httpx.ProxyError):
            assert client.get(url).status_code == 502
        assert f"no upstream proxy at http://127.0.0.1:{port}: " in recorder.failures[0][1]
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert snapshot.lookup(url).verdict == "miss"


@pytest.fixture(scope="module")
def mine(state: Path) -> Path:
    """A client's certificate, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    path = state / "client.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    return path


@pytest.fixture
def asking(authority: Authority, mine: Path) -> Iterator[Origin]:
    """An origin that serves only clients with a certificate."""
    context = authority.context_for("127.0.0.1")
    context.load_verify_locations(mine)
    context.verify_mode = ssl.CERT_REQUIRED
    with Origin(answer, context) as origin:
        yield origin


def test_an_origin_that_wants_a_certificate_gets_the_one_that_was_named(
    tmp_path: Path, asking: Origin, authority: Authority, mine: Path
) -> None:
    with recording(tmp_path, upstream_ca=authority.certificate_path, client_cert=mine) as (_, client):
        assert client.get(f"{asking.url}/mine").text == "by None"


@pytest.mark.parametrize("form", ["no key", "another key", "locked key", "no certificate", "a directory"])
def test_a_certificate_that_cannot_be_used_is_refused_before_recording(
    tmp_path: Path, mine: Path, form: str
) -> None:
    own = serialization.load_pem_private_key(mine.read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1()) if form in ("another key", "a directory") else own
    locked = (
        serialization.BestAvailableEncryption(b"pass")
        if form == "locked key"
        else serialization.NoEncryption()
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    certificate = x509.load_pem_x509_certificate(mine.read_bytes()).public_bytes(serialization.Encoding.PEM)
    (tmp_path / "certificates").mkdir()
    path = tmp_path / "certificates" / "127.0.0.1.pem"
    path.write_bytes((certificate if form != "no certificate" else b"") + (pem if form != "no key" else b""))
    with (
        pytest.raises(UsageError, match=re.escape(f"{path}: no client certificate with its key")),
        recording(tmp_path, client_cert=path.parent if form == "a directory" else path),
    ):
        pass


def test_without_a_certificate_the_failure_is_told_at_once(
    tmp_path: Path, asking: Origin, authority: Authority
) -> None:
    with recording(tmp_path, upstream_ca=authority.certificate_path) as (recorder, client):
        assert client.get(f"{asking.url}/mine", timeout=10.0).status_code == 502
    ((url, reason),) = recorder.failures
    assert url == f"{asking.url}/mine"
    assert (
        "server closed connection: it asked for a client certificate. Name one with --client-cert" in reason
    )


def test_an_alert_some_time_before_the_end_of_its_connection_fails_the_request(
    tmp_path: Path, authority: Authority
) -> None:
    context = authority.context_for("127.0.0.1", ())
    context.verify_mode = ssl.CERT_REQUIRED

    class Wanting(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with context.wrap_socket(self.request, True, do_handshake_on_connect=False) as peer:
                with contextlib.suppress(ssl.SSLError):
                    peer.do_handshake()
                time.sleep(0.5)  # the request comes meanwhile

    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Wanting) as server,
        recording(tmp_path, upstream_ca=authority.certificate_path) as (recorder, client),
    ):
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            url = f"https://127.0.0.1:{server.server_address[1]}/"
            assert client.get(url, timeout=10.0).status_code == 502
        finally:
            server.shutdown()
    assert [failed for failed, _ in recorder.failures] == [url]
