"""Failures of origins, clients and the machine: said, passed on, and never archived."""

import contextlib
import gc
import gzip
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from stillweb.proxy.net.addresses import public
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.writer import Writer
from tests.proxy.lab import Lab, client, gate
from tests.proxy.recordings import recorded
from tests.support.waiting import HANG, STARTS, until

NO_SUCH_NAME = "ame or service not known|emporary failure in name resolution"  # as the resolver is set up


class FullDisk:
    """A writer that has room for one exchange."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.path, self.left = writer, writer.path, 1

    def event(self, session: str) -> int:
        return self.writer.event(session)

    def exchange(self, exchange: Exchange) -> Capture:
        if not self.left:
            raise MissingCapability(f"{self.path}: No space left on device: free some space")
        self.left -= 1
        return self.writer.exchange(exchange)

    def metadata(self, *record: object) -> str:
        return self.writer.metadata(*record)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "told", "reason"),
    [
        ("http://plain.example/cut-short", 502, "received 1000 bytes, expected 5000"),
        ("http://plain.example/cut-long", "closed", "without sending complete message body"),
        ("http://plain.example/cut-chunks", "closed", "without sending complete message body"),
        ("https://demo.example/cut-long", "(?i)reset", "INTERNAL_ERROR"),
        ("http://closed.example/", 502, "[cC]onnect"),
        ("https://closed.example/", "502", "[cC]onnect"),
        ("https://[::1]:9/", "502", "[cC]onnect"),
        ("http://no-such-name.invalid/", 502, NO_SUCH_NAME),
        ("https://no-such-name.invalid/", "502", NO_SUCH_NAME),
    ],
)
def test_failures_of_the_origin_reach_the_client_and_not_the_archive(
    lab: Lab, tmp_path: Path, url: str, told: int | str, reason: str
) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        if told == 502:
            assert c.get(url).status_code == 502
        else:
            with pytest.raises(httpx.TransportError, match=str(told)):
                c.get(url)
        assert recorder.wait_quiet(seconds=0.05)
        ((failed, why),) = recorder.failures
    assert failed == url
    assert re.search(reason, why)
    assert recorded(tmp_path / "s") == []


def test_a_client_that_was_told_to_go_on_is_told_of_a_failure_too(lab: Lab, tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as sock,
    ):
        sock.sendall(
            b"POST http://closed.example/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
        )
        assert sock.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"body")
        assert sock.recv(65536).startswith(b"HTTP/1.1 502 ")


@pytest.mark.slow
@pytest.mark.parametrize(("length", "whose"), [(100_000, "https://demo.example/"), (300_000, "client")])
def test_a_long_head_over_http2_is_taken_or_its_refusal_told(
    lab: Lab, tmp_path: Path, length: int, whose: str
) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        with pytest.raises(httpx.HTTPError):  # this origin takes no more than 64 KiB
            c.get("https://demo.example/", headers={"X-Long": "a" * length}).raise_for_status()
        assert until(lambda: recorder.failures)
        assert recorder.failures[0][0] == whose


def test_a_browsers_own_errands_are_no_failures(lab: Lab, tmp_path: Path) -> None:
    dead = dict.fromkeys(("update.googleapis.com", "clients2.google.com", "shop.example"), ("127.0.0.1", 9))
    asked = (
        "https://update.googleapis.com/service",
        "http://clients2.google.com/time",
        "http://shop.example/a",
    )
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer, resolve=dead) as recorder:
        with client(recorder) as c:
            for url in asked:
                with contextlib.suppress(httpx.ProxyError):  # of the tunnel
                    assert c.get(url).status_code == 502
        assert recorder.wait_quiet(seconds=0.05)
        assert [url for url, _ in recorder.failures] == ["http://shop.example/a"]
        assert [url for url, _ in recorder.errands] == ["https://update.googleapis.com/", asked[1]]
        assert recorder.stats.failures == 1


def test_what_is_told_of_a_failure_holds_no_secret(lab: Lab, tmp_path: Path) -> None:
    secret = "tok-9d8f7a6s5d4f3a2s1d0f9a8s7d6f5a4s"
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        assert c.get(f"http://closed.example/?access_token={secret}&page=2").status_code == 502
        assert recorder.wait_quiet(seconds=0.05)
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(f"GET http://x y/?access_token={secret} HTTP/1.1\r\n\r\n".encode())
            assert b" 400 " in peer.recv(65536)
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(f"GET / HTTP/1.1\r\nAuthorization: Bearer {secret[::-1]}".encode())
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(65536) == b""
        assert until(lambda: len(recorder.failures) == 3)
    told = repr(recorder.failures)
    assert "http://closed.example/?access_token=stillweb-secret-" in told
    assert "page=2" in told
    assert secret not in told
    assert secret[::-1] not in told


@pytest.mark.parametrize("breaks", [True, False])
def test_a_body_that_lasts_until_the_connection_ends_is_whole_unless_that_breaks(
    lab: Lab, tmp_path: Path, breaks: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Writer.open(tmp_path / "s") as writer:
        place = {"open.example": ("127.0.0.1", server.getsockname()[1])}
        with (
            lab.recorder(writer, resolve=place) as recorder,
            socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as client,
        ):
            client.sendall(b"GET http://open.example/ HTTP/1.1\r\nHost: open.example\r\n\r\n")
            origin, _ = server.accept()
            with origin:
                origin.recv(65536)
                origin.sendall(b"HTTP/1.1 200 OK\r\n\r\nsome of a page")
                came = b""
                while b"some of a page" not in came:
                    came += client.recv(65536)
                if breaks:  # closing sends a reset
                    origin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert until(lambda: recorder.stats.captures + recorder.stats.failures == 1)
            failures = list(recorder.failures)
    if breaks:
        ((url, why),) = failures
        assert url == "http://open.example/"
        assert "the connection broke off within a body" in why
    else:
        assert failures == []
    assert [one.body for one in recorded(tmp_path / "s")] == [b"some of a page"] * (not breaks)


def test_a_body_in_a_transfer_coding_is_not_taken_for_the_content(lab: Lab, tmp_path: Path) -> None:
    packed = gzip.compress(b"a page", mtime=1)
    told = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"

    def serve(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.sendall(told % (len(packed), packed))

    with lab.between(tmp_path / "s", "coded.example", serve) as (recorder, peer):
        peer.sendall(b"GET http://coded.example/ HTTP/1.1\r\nHost: coded.example\r\n\r\n")
        came = b""
        while not came.endswith(b"\r\n0\r\n\r\n"):  # it passes as it came
            came += peer.recv(65536)
        assert packed in came
        assert until(lambda: recorder.stats.captures + recorder.stats.failures == 1)
        assert recorder.wait_quiet(seconds=0, timeout=HANG)
        ((url, why),) = recorder.failures
        assert recorder.error is None
    assert (url, why) == (
        "http://coded.example/",
        "not archived: its body is compressed by the transfer coding 'gzip, chunked'",
    )
    assert recorded(tmp_path / "s") == []


def test_certificates_of_origins_are_checked(lab: Lab, tmp_path: Path) -> None:
    url = "https://demo.example/"
    with Writer.open(tmp_path / "s") as writer:
        with lab.recorder(writer, upstream_ca=None) as recorder, client(recorder) as c:
            response = c.get(url)
            assert response.status_code == 502
            assert "verify failed" in recorder.failures[0][1]
            assert recorder.failures[0][0] == url
        with lab.recorder(writer, upstream_ca=None, insecure=True) as recorder, client(recorder) as c:
            assert c.get(url).status_code == 200
    assert len(recorded(tmp_path / "s")) == 1


def test_a_client_that_does_not_trust_us_is_named(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with (
            httpx.Client(proxy=recorder.url, trust_env=False, timeout=HANG) as c,
            pytest.raises(httpx.ConnectError),
        ):
            c.get("https://demo.example/")
        assert until(lambda: recorder.failures)
    assert recorder.failures[0][0] == "https://demo.example/"
    assert "client" in recorder.failures[0][1]


@pytest.mark.parametrize("url", ["https://demo.example/slow", "https://demo.example/events"])
def test_a_client_that_leaves_is_counted(lab: Lab, tmp_path: Path, url: str) -> None:
    gate.open.clear()
    command = ["curl", "-sSN", url]
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with subprocess.Popen(command, env=recorder.environment(), stdout=subprocess.PIPE) as leaving:
            assert leaving.stdout is not None
            if "events" in url:
                assert leaving.stdout.readline() == b"data: 0\n"
            assert until(lambda: recorder.stats.under_way)
            leaving.kill()
        assert until(lambda: recorder.stats.under_way == 0)
        gate.open.set()
        assert recorder.wait_quiet(seconds=0.1, timeout=HANG)
        assert recorder.stats.aborted == ("slow" in url)
        assert recorder.failures == []
    assert len(recorded(tmp_path / "s")) == ("events" in url)


def test_a_client_that_resets_its_connection_is_counted(lab: Lab, tmp_path: Path) -> None:
    gate.open.clear()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
            peer.sendall(b"GET http://plain.example/slow HTTP/1.1\r\nHost: plain.example\r\n\r\n")
            assert until(lambda: recorder.stats.under_way)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert until(lambda: recorder.stats.under_way == 0)
        gate.open.set()
        assert (recorder.stats.aborted, recorder.failures) == (1, [])
    assert recorded(tmp_path / "s") == []


def test_a_name_that_is_not_found_after_its_client_left_is_told_once(lab: Lab, tmp_path: Path) -> None:
    ask = b"CONNECT no-such-name-%d.invalid:443 HTTP/1.1\r\n\r\n"
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        for number in range(20):
            with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as peer:
                peer.sendall(ask % number)
        assert until(lambda: len({url for url, _ in recorder.failures}) == 20)
        with client(recorder) as c:
            assert (
                c.get("http://plain.example/").status_code == 200
            )  # after all look-ups: they are done in turn
        gc.collect()  # what nobody waited for complains when it goes
    assert sorted(url for url, _ in recorder.failures) == sorted(
        f"https://no-such-name-{number}.invalid/" for number in range(20)
    )


def test_what_is_told_of_was_under_way_until_then(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for quiet and then asks what failed must not come between the two."""
    seen: list[tuple[bool, int]] = []
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:

        def looking(url: str, redactor: Redactor | None) -> str:
            seen.append((recorder.wait_quiet(seconds=0, timeout=0), recorder.stats.under_way))
            return public(url, redactor)

        monkeypatch.setattr("stillweb.proxy.record.flows.public", looking)
        assert c.get("http://closed.example/").status_code == 502
        assert recorder.wait_quiet(seconds=0)
        assert len(recorder.failures) == 1
    assert set(seen) == {(False, 1)}


def test_port_in_use(lab: Lab, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Writer.open(tmp_path / "s") as writer:
        port = taken.getsockname()[1]
        with pytest.raises(MissingCapability, match=f"port {port} .* in use"):
            lab.recorder(writer, port=port).start()
        with lab.recorder(writer) as recorder:  # nothing of the first is left in the way
            assert recorder.port != port


def test_two_recorders_at_once_record_two_sites_into_two_snapshots(lab: Lab, tmp_path: Path) -> None:
    with (
        Writer.open(tmp_path / "a") as one,
        Writer.open(tmp_path / "b") as other,
        lab.recorder(one, resolve={"a.example": ("127.0.0.1", lab.plain.port)}) as first,
        lab.recorder(other, resolve={"b.example": ("127.0.0.1", lab.plain.port)}, private=False) as second,
    ):
        for number in range(4):
            for recorder, host in ((first, "a"), (second, "b")):
                with client(recorder) as c:
                    assert c.get(f"http://{host}.example/{number}").status_code == 200
        with client(second) as c:  # each by its own settings
            assert c.get(f"http://127.0.0.1:{lab.plain.port}/").status_code == 502
        first.close()
        with client(second) as c:  # whichever ends first
            assert c.get("http://b.example/4").status_code == 200
            assert second.wait_quiet(seconds=0)
        assert first.failures == []
        assert [url for url, _ in second.failures] == [f"http://127.0.0.1:{lab.plain.port}/"]
    assert [r.url for r in recorded(tmp_path / "a")] == [f"http://a.example/{n}" for n in range(4)]
    assert [r.url for r in recorded(tmp_path / "b")] == [f"http://b.example/{n}" for n in range(5)]


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_bad_file_of_authorities(lab: Lab, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    with Writer.open(tmp_path / "s") as writer, pytest.raises(UsageError, match=r"ca\.pem"):
        lab.recorder(writer, upstream_ca=tmp_path / "ca.pem").start()


def test_a_full_disk_stops_the_recording_loudly(lab: Lab, tmp_path: Path) -> None:
    def fill() -> None:
        with lab.recorder(FullDisk(writer)) as recorder, client(recorder) as c:  # type: ignore[arg-type]
            assert c.get("http://plain.example/kept").status_code == 200
            assert recorder.wait_quiet(seconds=0)
            c.get("http://plain.example/lost")
            assert recorder.wait_quiet(seconds=0)
            assert recorder.failures[0][0] == "http://plain.example/lost"
            refused = c.get("http://plain.example/refused-by-us")
            assert refused.status_code == 503
            assert "No space left" in refused.text

    with Writer.open(tmp_path / "s") as writer, pytest.raises(MissingCapability, match="No space left"):
        fill()
    assert [r.url for r in recorded(tmp_path / "s")] == ["http://plain.example/kept"]
    assert lab.plain.asked[-1].path == "/lost"


def test_something_that_is_not_http_is_listed(lab: Lab, tmp_path: Path) -> None:
    gone = threading.Event()

    def greet(peer: socket.socket) -> None:
        peer.sendall(b"220 mail ready\r\n")
        peer.recv(100)
        gone.set()

    with lab.between(tmp_path / "s", "mail.example", greet) as (recorder, peer):
        peer.sendall(b"CONNECT mail.example:25 HTTP/1.1\r\nHost: mail.example:25\r\n\r\n")
        data = b""
        while b"220 mail" not in data:
            data += peer.recv(100)
        peer.sendall(b"QUIT\r\n")
        peer.close()
        assert gone.wait(HANG)
        assert recorder.failures == [("tcp://mail.example:25/", "not HTTP: passed on, not recorded")]


@pytest.mark.slow
def test_ctrl_c_ends_cleanly_and_keeps_what_was_delivered(lab: Lab, tmp_path: Path) -> None:
    """The terminal interrupts command and recorder at once; everything that the command got is there."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from stillweb.proxy.net.ca import Authority\n"
        "from stillweb.proxy.record.recorder import Recorder, record_command\n"
        "from stillweb.snapshots.writer import Writer\n"
        "path, state, port, command = sys.argv[1:]\n"
        "with Writer.open(path) as writer, Recorder(writer, authority=Authority.load_or_create(Path(state)),\n"
        "        resolve={'plain.example': ('127.0.0.1', int(port))}) as recorder:\n"
        "    code = record_command([sys.executable, '-c', command], recorder)\n"
        "sys.exit(code)\n"
    )
    command = (
        "import itertools, urllib.request\n"
        "for n in itertools.count():\n"
        "    urllib.request.urlopen(f'http://plain.example/{n}').read()\n"
        "    print(n, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "s", lab.ours.directory, str(lab.plain.port), command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    for _ in range(20):
        child.stdout.readline()
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=STARTS)
    assert child.returncode == 130
    assert "proxy/" not in err  # the only traceback is the command's own
    delivered = set(range(20)) | {int(n) for n in out.split()}
    kept = {int(r.url.rpartition("/")[2]) for r in recorded(tmp_path / "s")}
    assert delivered <= kept
