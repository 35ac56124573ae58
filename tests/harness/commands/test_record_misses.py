"""`stillweb replay --record-misses` and `--stop-at-miss`: a recording is completed in one pass."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from stillweb.api import replay
from stillweb.proxy.net.ca import Authority
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import Site
from tests.proxy.origin import Answer, Asked, Origin
from tests.snapshots.making import exchange
from tests.support.command_line import stillweb
from tests.support.waiting import HANG

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("own_state")]

CLIENTS = {
    "urllib": """
import sys, urllib.request
for url in sys.argv[1:]:
    print(urllib.request.urlopen(url).read().decode())
""",
    "httpx": """
import sys, httpx
with httpx.Client() as client:
    for url in sys.argv[1:]:
        with client.stream("GET", url) as answer:
            print("".join(answer.iter_text()))
""",
}


TALK = """
import sys
from websockets.sync.client import connect
with connect(sys.argv[1]) as talk:
    for word in sys.argv[2:]:
        talk.send(word)
        print(talk.recv())
"""


async def _events() -> object:
    for number in range(3):
        yield b"data: %d\n\n" % number


def _answer(asked: Asked) -> Answer:
    if asked.path == "/stream":
        return Answer(headers=[("Content-Type", "text/event-stream")], body=_events())  # type: ignore[arg-type]
    if asked.path == "/post":
        return Answer(headers=[("Content-Type", "text/plain")], body=b"posted " + asked.body)
    return Answer(headers=[("Content-Type", "text/plain")], body=b"live " + asked.path.encode())


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(_answer) as running:
        yield running


def _site(path: Path, origin: Origin) -> Path:
    with Writer.open(path) as writer:
        writer.exchange(exchange(f"{origin.url}/known", b"recorded"))
    return path


def _program(kind: str, *urls: str) -> list[str]:
    if kind == "curl":
        return ["curl", "-sSf", "-w", "\n", *urls]
    return [sys.executable, "-c", CLIENTS[kind], *urls]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["urllib", "httpx", "curl"])
def test_what_is_missing_is_asked_live_and_is_a_layer_then(tmp_path: Path, origin: Origin, kind: str) -> None:
    if kind == "curl" and shutil.which("curl") is None:
        pytest.skip("no curl")
    site, more = _site(tmp_path / "site", origin), tmp_path / "more"
    program = _program(kind, f"{origin.url}/known", f"{origin.url}/a(b)?q=1&x=[2]", f"{origin.url}/stream")
    if kind == "curl":
        program.insert(1, "-g")
    first = stillweb("replay", site, "--record-misses", more, "--", *program)
    assert first.code == 0, first.err
    assert "recorded" in first.out
    assert "live /a(b)?q=1&x=[2]" in first.out
    assert "data: 2" in first.out
    assert f"stillweb replay {site} {more}" in first.err
    assert [one.path for one in origin.asked] == ["/a(b)?q=1&x=[2]", "/stream"]
    again = stillweb("replay", site, more, "--isolate", "--max-misses", "0", "--", *program)
    assert (again.code, again.out) == (0, first.out)


@pytest.mark.slow
def test_what_is_missing_is_asked_live_by_https(tmp_path: Path) -> None:
    theirs = Authority.load_or_create(tmp_path / "theirs")
    program = _program("httpx")
    with Origin(_answer, theirs.context_for("127.0.0.1")) as origin:
        site, urls = _site(tmp_path / "site", origin), (f"{origin.url}/known", f"{origin.url}/a(b)?x=[2]")
        trusting = ("--ca-file", theirs.certificate_path)
        done = stillweb(
            "replay", site, "--record-misses", tmp_path / "more", *trusting, "--", *program, *urls
        )
        assert (done.code, done.out.split()) == (0, ["recorded", "live", "/a(b)?x=[2]"]), done.err
        strange = stillweb("replay", site, "--record-misses", tmp_path / "none", "--", *program, urls[1])
        assert "Certificate verify failed" in strange.out
        alone = stillweb("replay", site, *trusting, "--", *program, urls[0])
        assert (alone.code, "--record-misses" in alone.err) == (2, True)
    again = stillweb("replay", site, tmp_path / "more", "--max-misses", "0", "--", *program, *urls)
    assert (again.code, again.out) == (0, done.out)


@contextlib.contextmanager
def _echo(theirs: Authority | None) -> Iterator[str]:
    """Run a server that repeats what it is told by a web socket."""

    def repeat(talk: ServerConnection) -> None:
        for word in talk:
            talk.send(f"live {word!s}")

    context = theirs.context_for("127.0.0.1") if theirs else None
    with serve(repeat, "127.0.0.1", 0, ssl=context) as server:
        running = threading.Thread(target=server.serve_forever)
        running.start()
        yield f"ws{'s' if theirs else ''}://127.0.0.1:{server.socket.getsockname()[1]}/talk"
        server.shutdown()
        running.join()


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
def test_a_web_socket_that_is_missing_is_opened_live(tmp_path: Path, origin: Origin, secure: bool) -> None:
    theirs = Authority.load_or_create(tmp_path / "theirs")
    site, more = _site(tmp_path / "site", origin), tmp_path / "more"
    with _echo(theirs if secure else None) as url:
        program = [sys.executable, "-c", TALK, url, "one", "x" * 70_000, "three"]
        trusting = ("--private", "--ca-file", theirs.certificate_path)
        done = stillweb("replay", site, "--record-misses", more, *trusting, "--", *program)
    assert (done.code, done.out.split()) == (0, ["live", "one", "live", "x" * 70_000, "live", "three"]), (
        done.err
    )
    again = stillweb("replay", site, more, "--isolate", "--max-misses", "0", "--", *program)
    assert (again.code, again.out) == (0, done.out)


@pytest.mark.slow
def test_a_private_address_is_asked_live_only_where_the_snapshot_holds_it(
    tmp_path: Path, origin: Origin
) -> None:
    site, mark = _site(tmp_path / "site", origin), "%{http_code} "
    with Origin(_answer) as other:
        ask = ["--", "curl", "-sS", "-o", "/dev/null", "-w", mark, f"{origin.url}/new", "-o", "/dev/null", f"{other.url}/new"]  # fmt: skip
        done = stillweb("replay", site, "--record-misses", tmp_path / "more", *ask)
        assert (done.out.split(), len(origin.asked), other.asked) == (["200", "502"], 1, [])
        allowed = stillweb("replay", site, "--record-misses", tmp_path / "all", "--private", *ask)
        assert (allowed.out.split(), len(other.asked)) == (["200", "200"], 1)


@pytest.mark.slow
def test_a_live_web_socket_whose_server_does_not_read_holds_up_its_client_alone(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.add("http://a.test/", b"page")
    reading, sent = threading.Event(), 0
    total, piece = 64 << 20, b"x" * (1 << 20)

    def late(talk: ServerConnection) -> None:
        reading.wait()
        talk.send(str(sum(len(talk.recv()) for _ in range(total // len(piece)))))

    with (
        serve(
            late, "127.0.0.1", 0, max_size=2 << 20, max_queue=1, ping_interval=None, compression=None
        ) as server,
        site.open() as snapshot,
        replay(snapshot, record_misses=tmp_path / "more", private=True) as web,
    ):
        proxy = web.gateway.url
        running = threading.Thread(target=server.serve_forever)
        running.start()
        with connect(
            f"ws://127.0.0.1:{server.socket.getsockname()[1]}/",
            proxy=proxy,
            ping_interval=None,
            compression=None,
        ) as talk:

            def flood() -> None:
                nonlocal sent
                for _ in range(total // len(piece)):
                    talk.send(piece)
                    sent += len(piece)

            flooding = threading.Thread(target=flood)
            flooding.start()
            before = -1
            while before < sent or not sent:  # until no more is taken
                before = sent
                flooding.join(1)
            try:
                assert sent < total / 2
                assert httpx.get("http://a.test/", proxy=proxy, timeout=HANG).text == "page"
            finally:
                reading.set()
            assert talk.recv() == str(total)
            flooding.join()
        server.shutdown()
        running.join()


@pytest.mark.slow
def test_a_client_of_a_live_web_socket_that_read_slowly_is_heard_again(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.add("http://a.test/", b"page")
    piece, sent = b"x" * (1 << 20), threading.Event()

    def much(talk: ServerConnection) -> None:
        for _ in range(96):  # more than lies in buffers on the way
            talk.send(piece)
        sent.set()
        talk.send(talk.recv())

    with (
        serve(much, "127.0.0.1", 0, ping_interval=None, compression=None) as server,
        site.open() as snapshot,
        replay(snapshot, record_misses=tmp_path / "more", private=True) as web,
    ):
        running = threading.Thread(target=server.serve_forever)
        running.start()
        address = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/"
        with connect(
            address,
            proxy=web.gateway.url,
            ping_interval=None,
            compression=None,
            max_size=2 << 20,
            max_queue=1,
        ) as talk:
            assert not sent.wait(1)
            assert sum(len(talk.recv(HANG)) for _ in range(96)) == 96 * len(piece)
            talk.send("and now")
            assert talk.recv(HANG) == "and now"
        server.shutdown()
        running.join()


@pytest.mark.slow
def test_open_web_sockets_keep_no_large_body_waiting(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    large = os.urandom(4 << 20)
    site.add("http://a.test/large", large, headers=(("Content-Type", "application/octet-stream"),))
    with (
        contextlib.ExitStack() as talks,
        site.open() as snapshot,
        _echo(None) as url,
        replay(snapshot, record_misses=tmp_path / "more", private=True) as replaying,
    ):
        proxy = replaying.gateway.url
        for number in range(12):
            talk = talks.enter_context(connect(f"{url}/{number}", proxy=proxy))
            talk.send("one")
            assert talk.recv(timeout=HANG) == "live one"
        assert httpx.get("http://a.test/large", proxy=proxy, timeout=HANG).content == large


def test_an_answer_without_an_end_is_passed_on_as_it_comes(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.add("http://a.test/", b"page")

    async def ticks() -> AsyncIterator[bytes]:
        while True:
            yield b"tick\n"
            await asyncio.sleep(0.05)

    def answer(asked: Asked) -> Answer:
        return Answer(headers=[("Content-Type", "application/x-ndjson")], body=ticks())

    with (
        Origin(answer) as origin,
        site.open() as snapshot,
        replay(snapshot, record_misses=tmp_path / "more", private=True) as web,
        httpx.stream("GET", f"{origin.url}/watch", proxy=web.gateway.url, timeout=HANG) as got,
    ):
        assert next(got.iter_lines()) == "tick"


def test_a_request_asked_live_after_a_login_that_was_replayed_is_told(tmp_path: Path, origin: Origin) -> None:
    with Writer.open(tmp_path / "site") as writer:
        writer.exchange(exchange(f"{origin.url}/login", b"welcome", method="POST"))
    replay = ("replay", tmp_path / "site", "--record-misses")
    ask = ["curl", "-sS", f"{origin.url}/cart"]
    login = [*ask, "--next", "-sS", "-X", "POST", f"{origin.url}/login"]
    before = stillweb(*replay, tmp_path / "before", "--", *login)
    after = stillweb(*replay, tmp_path / "after", "--", *login, "--next", *ask[1:-1], f"{origin.url}/account")
    assert [one.path for one in origin.asked] == ["/cart", "/cart", "/account"]
    assert "asked live after" not in before.err
    assert f"1 request asked live after POST {origin.url}/login" in after.err


def test_a_layer_is_never_written_over(tmp_path: Path, origin: Origin) -> None:
    site = _site(tmp_path / "site", origin)
    done = stillweb("replay", site, "--record-misses", site, "--", "true")
    assert done.code == 2
    assert "take it as a layer" in done.err


@pytest.mark.parametrize("other", ["--isolate", "--stop-at-miss"])
def test_options_that_rule_out_the_web_are_refused(tmp_path: Path, origin: Origin, other: str) -> None:
    done = stillweb(
        "replay", _site(tmp_path / "s", origin), "--record-misses", tmp_path / "m", other, "--", "true"
    )
    assert done.code == 2
    assert other in done.err


@pytest.mark.slow
def test_a_server_that_is_gone_is_a_failure_of_the_recording(tmp_path: Path, origin: Origin) -> None:
    site = _site(tmp_path / "site", origin)
    done = stillweb(
        "replay", site, "--record-misses", tmp_path / "more", "--private", "--",
        "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:9/gone",
    )  # fmt: skip
    assert done.out == "502"


def test_the_program_ends_at_the_first_miss(tmp_path: Path, origin: Origin) -> None:
    loop = f"""
import time, urllib.request, urllib.error
print(urllib.request.urlopen("{origin.url}/known").read().decode(), flush=True)
try:
    urllib.request.urlopen("{origin.url}/other")
except urllib.error.HTTPError:
    pass
time.sleep(60)
print("went on", flush=True)
"""
    ledger = tmp_path / "ledger.jsonl"
    site = _site(tmp_path / "site", origin)
    done = stillweb("replay", site, "--stop-at-miss", "--ledger", ledger, "--", sys.executable, "-c", loop)
    assert done.code == 1
    assert done.out.strip() == "recorded"
    assert [json.loads(line)["verdict"] for line in ledger.read_text().splitlines()] == ["exact", "miss"]


def test_a_miss_that_a_client_tries_again_is_one(tmp_path: Path, origin: Origin) -> None:
    retries = f"""
import urllib.request, urllib.error
for _ in range(4):
    try:
        urllib.request.urlopen("{origin.url}/other")
    except urllib.error.HTTPError as error:
        error.read()
"""
    site = _site(tmp_path / "site", origin)
    done = stillweb("replay", site, "--max-misses", "1", "--", sys.executable, "-c", retries)
    assert done.code == 0, done.err
    assert "1 request was not in the snapshot" in done.err
