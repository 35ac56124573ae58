"""An answer that its client began to read and left is kept whole, or as far as it came where it has no known end."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from stillweb.proxy import Authority, Gateway, Recorder
from stillweb.proxy.record.mitmproxy_compat import lifetime
from stillweb.snapshots import Snapshot, Writer
from tests.proxy.lab import tunnel
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG, until

SIZE = 600_000
PIECE = 6_000
BODY = bytes(range(250)) * (SIZE // 250)


@contextmanager
def leaving(
    folder: Path,
    secure: bool,
    *,
    length: int | None = SIZE,
    whole: bool = True,
    method: str = "GET",
    goodbye: bool = False,
    noticed: bool = True,
) -> Iterator[Recorder]:
    """A recorder of a client that has read the beginning of an answer and gone, before the rest of it came."""
    left = threading.Event()

    async def body() -> AsyncIterator[bytes]:
        yield BODY[: SIZE // 2]
        while not left.is_set():
            await asyncio.sleep(0.01)
        for at in range(SIZE // 2, SIZE if whole else 0, SIZE // 20):
            yield BODY[at : at + SIZE // 20]
            await asyncio.sleep(0.01)

    def answer(asked: Asked) -> Answer:
        said = [("Content-Length", str(length))] if secure and length is not None else []
        return Answer(headers=said, body=body(), length=length)

    own = Authority.load_or_create(folder / "state")
    with (
        Origin(answer, own.context_for("x.test", ("h2", "http/1.1")) if secure else None) as origin,
        Writer.open(folder / "site") as writer,
        Recorder(
            writer,
            resolve={"x.test": ("127.0.0.1", origin.port)},
            authority=own,
            upstream_ca=own.certificate_path,
        ) as recorder,
    ):
        if goodbye:
            read_and_say_goodbye(recorder)
        else:
            read(method, secure, recorder)
        assert until(lambda: recorder.stats.under_way == (length == SIZE and method == "GET"))
        if noticed:
            assert recorder.wait_quiet(seconds=0.0, timeout=HANG)  # the recorder has seen that it is gone
        left.set()
        assert until(lambda: recorder.stats.under_way == 0)
        yield recorder


def read(method: str, secure: bool, by: Recorder | Gateway) -> tuple[int, str | None, bytes]:
    trusted = ssl.create_default_context(cafile=by.ca_path)
    with (
        httpx.Client(proxy=by.url, verify=trusted, http2=True, trust_env=False, timeout=HANG) as client,
        client.stream(method, f"http{'s' * secure}://x.test/file") as response,
    ):
        first = next(response.iter_raw(PIECE))
        return response.status_code, response.headers.get("content-length"), first


def read_and_say_goodbye(recorder: Recorder) -> None:
    """The same over HTTP/1.1, and then with TLS's goodbye, as aria2c."""
    with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as sock:
        tunnel(sock, "x.test:443")
        trusted = ssl.create_default_context(cafile=recorder.ca_path)
        with trusted.wrap_socket(sock, server_hostname="x.test") as within:
            within.sendall(b"GET /file HTTP/1.1\r\nHost: x.test\r\n\r\n")
            assert within.recv(PIECE)
            with suppress(ssl.SSLError, OSError):  # it hears no goodbye, but what else was under way
                within.unwrap()
            time.sleep(0.1)  # it is still there when the recorder hears it


@pytest.mark.parametrize(("secure", "goodbye"), [(False, False), (True, False), (True, True)])
def test_what_a_client_left_is_kept_whole_and_can_be_left_again(
    secure: bool, goodbye: bool, tmp_path: Path
) -> None:
    with leaving(tmp_path, secure, goodbye=goodbye) as recorder:
        assert until(lambda: recorder.stats.captures == 1)
        assert (recorder.stats.aborted, recorder.failures) == (0, [])
    own = Authority.load_or_create(tmp_path / "state")
    with Snapshot.open(tmp_path / "site") as snapshot, Gateway(snapshot, authority=own) as gateway:
        (capture,) = snapshot.captures()
        assert (snapshot.read(capture).body, capture.truncated) == (BODY, "")
        assert read("GET", secure, gateway) == (200, str(SIZE), BODY[:PIECE])


def test_what_a_client_left_is_kept_whole_where_only_writing_shows_that_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stillweb.proxy.record.mitmproxy_compat.lifetime.LOOK_SECONDS", HANG
    )  # nobody looks for it before
    with leaving(tmp_path, True, goodbye=True, noticed=False) as recorder:
        assert until(lambda: recorder.stats.captures == 1)
        assert (recorder.stats.aborted, recorder.failures) == (0, [])


@pytest.mark.parametrize(("length", "method"), [(SIZE, "POST"), (lifetime.OUTLIVE_BYTES + 1, "GET")])
def test_what_is_long_or_may_do_something_is_given_up(length: int, method: str, tmp_path: Path) -> None:
    with leaving(tmp_path, False, length=length, method=method) as recorder:
        assert (recorder.stats.aborted, recorder.stats.captures) == (1, 0)
        assert recorder.given_up == ["http://x.test/file"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_may_not_end_is_kept_as_far_as_it_came(method: str, tmp_path: Path) -> None:
    with leaving(tmp_path, False, length=None, method=method) as recorder:
        assert (recorder.stats.aborted, recorder.given_up) == (0, [])
    with Snapshot.open(tmp_path / "site") as snapshot, Gateway(snapshot) as gateway:
        assert [capture.truncated for capture in snapshot.captures()] == ["disconnect"]
        assert read(method, False, gateway)[::2] == (200, BODY[:PIECE])
        assert [(line["verdict"], line["ambiguous"]) for line in gateway.ledger.entries()] == [
            ("exact", True)
        ]


def test_what_breaks_off_behind_its_client_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillweb.proxy.record.addon.OUTLIVE_SECONDS", 0.5)
    with leaving(tmp_path, False, whole=False) as recorder:
        assert (recorder.stats.aborted, recorder.stats.captures) == (1, 0)
        assert recorder.given_up == ["http://x.test/file"]


def test_a_recorder_that_ends_waits_for_it_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillweb.proxy.record.addon.OUTLIVE_SECONDS", 0.1)
    stuck = Answer(body=never(), length=SIZE)
    with (
        Origin(lambda _: stuck) as origin,
        Writer.open(tmp_path / "site") as writer,
        Recorder(
            writer,
            resolve={"x.test": ("127.0.0.1", origin.port)},
            authority=Authority.load_or_create(tmp_path / "state"),
        ) as recorder,
    ):
        read("GET", False, recorder)
        assert until(lambda: recorder.stats.aborted == 1)
    with Snapshot.open(tmp_path / "site") as snapshot:
        assert list(snapshot.captures()) == []


async def never() -> AsyncIterator[bytes]:
    yield BODY[: SIZE // 2]
    await asyncio.Event().wait()
