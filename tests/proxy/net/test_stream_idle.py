"""A view waits for what its page said over a web socket, and was told, however late it comes through."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.browser.steps import parse_steps
from stillweb.proxy.check.check import check
from stillweb.proxy.net import stream_idle
from stillweb.proxy.net.stream_idle import Silence, StreamCounters
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.streaming import streaming_site
from tests.support.waiting import HANG

HELD = 2 * stream_idle.LISTEN  # s that a frame is on its way, as where a browser's process has no turn
TEXT_FRAME = b"\x81"


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if data.startswith(TEXT_FRAME):
                time.sleep(HELD)
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def slow_way(port: int) -> Iterator[int]:
    """A port that leads to another one, on which frames of web sockets come late, both ways."""
    listener = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", port))
                ends.extend((client, server))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for end in ends:
            end.close()


@pytest.mark.slow
def test_a_view_holds_what_was_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = complete(Profile())
    with (
        streaming_site() as base,
        Writer.open(tmp_path / "s", profile=profile) as writer,
        Recorder(writer) as recorder,
        slow_way(recorder.port) as port,
    ):
        real = recorder.proxy_url
        monkeypatch.setattr(
            recorder, "proxy_url", lambda *name: real(*name).replace(f":{recorder.port}", f":{port}")
        )
        monkeypatch.setattr(stream_idle, "LATE", HANG)
        fetcher = Fetcher(recorder, writer, profile, patience=SettleTimeouts(stuck=HANG))
        (result,) = fetcher.fetch([f"{base}/"], parse_steps("[{click: More}]"))
        assert result.ok, result.error
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
        texts = [(snapshot.resource("text", view.address) or b"").decode() for view in snapshot.views()]
        assert ["the list: a, b" in text for text in texts] == [True, True]
        assert [text.count("one more") for text in texts] == [0, 1]
        report = check(snapshot, gateway)
        assert [(view.text_changes, view.error) for view in report.views] == [([], None)] * 2
        assert not gateway.ledger.misses()


BARE = """<!DOCTYPE html><title>App</title><p id=state>starting</p><p id=row hidden>Mill number one; Mill number two; Mill number three</p><script>
const socket = new WebSocket(`ws://${location.host}/talk?room=1`);
socket.onopen = () => socket.send("begin");
socket.onmessage = (e) => { state.textContent += `; ${e.data}`; if (e.data[4] === "l") row.hidden = false; };
</script>"""


@pytest.mark.slow
def test_a_page_that_shows_nothing_yet_waits_for_a_server_that_thinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says that it is at work, and nothing more until there has been silence twice."""
    thinking, silences = threading.Event(), []
    real = Silence.holds

    async def counted(self: Silence, *given: Any) -> bool:
        silent = await real(self, *given)
        silences.extend([silent] * silent)
        if len(silences) == 2:
            thinking.set()
        return silent

    monkeypatch.setattr(Silence, "holds", counted)
    profile = complete(Profile())
    with (
        streaming_site(BARE, thinking) as base,
        Writer.open(tmp_path / "s", profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        (result,) = Fetcher(recorder, writer, profile, patience=SettleTimeouts(stuck=HANG)).fetch(
            [f"{base}/"]
        )
        thinking.set()
        assert result.ok, result.error
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
        text = (snapshot.resource("text", result.views[0]) or b"").decode()
        assert text.startswith("starting; welcome; to the room; the list: a, b")
        report = check(snapshot, gateway)
        assert [(view.same, view.error) for view in report.views] == [(True, None)]


def kept(
    heard: list[StreamCounters], pages: list[tuple[int, int, int] | None], known: Silence | None = None
) -> bool:
    """Whether there was silence, for what recorder and page (sent, heard, mutations) said one after the other."""
    saids, states = iter(heard), iter(pages)
    own = known or Silence()
    own.counters = lambda: next(saids)

    async def ask() -> Mapping[str, Any] | None:
        state = next(states)
        return None if state is None else dict(zip(("sent", "heard", "mutations"), state, strict=True))

    return asyncio.run(own.holds({"mutations": 7}, ask))


@pytest.mark.parametrize(
    ("heard", "pages", "expected"),
    [
        ([StreamCounters(1, 2)] * 2, [(1, 2, 7)] * 2, True),
        # it came, and nothing followed
        ([StreamCounters(0, 2), StreamCounters(1, 2), StreamCounters(1, 2)], [(1, 2, 7)] * 3, True),
        (
            [StreamCounters(1, 2), StreamCounters(1, 2), StreamCounters(1, 2)],
            [(1, 1, 7), (1, 2, 7), (1, 2, 7)],
            True,
        ),
        # an answer is on its way
        ([StreamCounters(1, 2), StreamCounters(1, 3)], [(1, 2, 7), (1, 2, 7)], False),
        # the page has just spoken
        ([StreamCounters(1, 2), StreamCounters(1, 2)], [(1, 2, 7), (2, 2, 7)], False),
        ([StreamCounters(1, 2), StreamCounters(1, 2)], [(1, 2, 7), (1, 2, 8)], False),
        ([StreamCounters(1, 2, 10), StreamCounters(1, 2, 20)], [(1, 2, 7), (1, 2, 7)], False),
        ([StreamCounters(1, 2)], [None, None], False),  # it goes
    ],
)
def test_silence(
    heard: list[StreamCounters],
    pages: list[tuple[int, int, int] | None],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_idle, "LISTEN", 60.0)  # so long that no machine is held up

    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr(stream_idle.asyncio, "sleep", at_once)
    assert kept(heard, pages) is expected


def test_what_is_counted_otherwise_for_good_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets of another tab are counted so."""
    monkeypatch.setattr(stream_idle, "LATE", 0.0)

    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr(stream_idle.asyncio, "sleep", at_once)
    known = Silence()
    assert kept([StreamCounters(5, 5)] * 2, [(1, 2, 7)] * 2, known)
    monkeypatch.setattr(stream_idle, "LATE", 1e9)
    assert kept([StreamCounters(6, 5)] * 2, [(2, 2, 7)] * 2, known)


def test_without_a_recorder_only_the_page_is_asked() -> None:
    async def ask() -> Mapping[str, Any] | None:
        return {"mutations": 7, "sent": 3, "heard": 3}

    assert asyncio.run(Silence().holds({"mutations": 7}, ask)) in (True, False)  # False: it was held up
