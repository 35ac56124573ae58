"""While recording, a page waits for no answer that no script of it can read, and that never ends."""

import asyncio
import struct
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.proxy.browser import page_snapshot
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.net.stream_idle import Silence, StreamCounters
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.streaming import streaming_site
from tests.support.waiting import HANG

PIXEL = bytes.fromhex(
    "47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b"
)
FONT = "@font-face { font-family: F; src: url(/endless.woff2) } p { font-family: F }"
MARKUP = {
    "beacon": "<script>navigator.sendBeacon('/never', 'x')</script>",
    "ping": "<a ping=/never href=#there id=a>there</a><script>a.click()</script>",
    "camera": "<img src=/camera>",
    "film": "<audio src=/long.wav preload=auto controls></audio>",
    "xhr": "<script>const x = new XMLHttpRequest(); x.open('GET', '/endless.json'); x.send(); fetch('/told').then((r) => r.text());</script>",
}


async def never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def begun() -> AsyncIterator[bytes]:
    yield b"["
    await asyncio.Event().wait()


async def pictures() -> AsyncIterator[bytes]:
    part = b"--next\r\nContent-Type: image/gif\r\n\r\n" + PIXEL + b"\r\n"
    yield part + part
    await asyncio.Event().wait()


def sound(start: int) -> Answer:
    """The part of an hour of silence that begins at a byte."""
    size = 44_100 * 3600
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", size + 36, b"WAVE", b"fmt ", 16, 1, 1, 44_100, 44_100, 1, 8, b"data", size)  # fmt: skip

    async def samples() -> AsyncIterator[bytes]:
        yield head[start:]
        for _ in range(start, size, 1 << 16):
            yield bytes(1 << 16)

    fields = [("Content-Type", "audio/wav"), ("Accept-Ranges", "bytes")]
    place = f"bytes {start}-{size + 43}/{size + 44}"
    return Answer(206, [*fields, ("Content-Range", place)], samples(), length=size + 44 - start)


def answer(asked: Asked) -> Answer | None:
    if asked.path == "/long.wav":
        return sound(int((asked.header("range") or "bytes=0-")[6:].rstrip("-")))
    if asked.path == "/camera":
        return Answer(headers=[("Content-Type", "multipart/x-mixed-replace; boundary=next")], body=pictures())
    if asked.path == "/never":
        return Answer(headers=[("Content-Type", "text/plain")], body=never())
    if asked.path == "/endless.json":
        return Answer(headers=[("Content-Type", "application/json")], body=begun())
    if asked.path == "/told":
        return Answer(headers=[("Content-Type", "text/plain")], body=b"told")
    page = f"<!DOCTYPE html><title>T</title><link rel=icon href=data:,><p>text</p>{MARKUP[asked.path[1:]]}"
    return Answer(headers=[("Content-Type", "text/html")], body=page.encode())


@pytest.mark.slow
def test_the_recorder_is_not_waited_for_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[float, bool]] = []
    real = Recorder.wait_quiet

    def noted(self: Recorder, session: str, seconds: float, timeout: float, hanging: int) -> bool:
        quiet = real(self, session, seconds, timeout, hanging)
        waits.append((timeout, quiet))
        return quiet

    monkeypatch.setattr(Recorder, "wait_quiet", noted)
    with Origin(answer) as origin, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        results = Fetcher(recorder, writer).fetch([f"{origin.url}/{kind}" for kind in MARKUP])
    for result in results:
        assert result.ok, result
        assert len(result.views) == 1, result
        assert not [note for note in result.notes if "never quiet" in note], result
    assert len(waits) >= len(MARKUP)
    assert all(quiet or timeout <= 1 for timeout, quiet in waits), waits


@pytest.mark.slow
@pytest.mark.parametrize("markup", ["<img src=/picture>", "<link rel=prefetch href=/picture>"])
def test_a_picture_of_which_nothing_more_comes_is_not_waited_for(markup: str, tmp_path: Path) -> None:
    async def start() -> AsyncIterator[bytes]:
        yield PIXEL[:-1]
        await asyncio.Event().wait()

    result, seconds = recorded_with(markup, start(), tmp_path, SettleTimeouts(stuck=50))
    assert result.ok
    assert [note.partition(" from ")[0] for note in result.notes] == ["never quiet: no answer"]
    assert seconds < 40


@pytest.mark.slow
def test_a_picture_that_comes_slowly_is_waited_for(tmp_path: Path) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for at in range(len(PIXEL)):
            yield PIXEL[at : at + 1]
            await asyncio.sleep(0.1)

    result, seconds = recorded_with("<img src=/picture>", slowly(), tmp_path, SettleTimeouts())
    assert (result.ok, result.notes) == (True, [])
    assert seconds > 0.1 * len(PIXEL)


def recorded_with(
    markup: str, body: AsyncIterator[bytes], path: Path, patience: SettleTimeouts
) -> tuple[FetchResult, float]:
    """Record a page with one picture, and return the result with the seconds that it took."""

    def with_picture(asked: Asked) -> Answer:
        if asked.path == "/picture":
            return Answer(headers=[("Content-Type", "image/gif")], body=body)
        page = f"<!DOCTYPE html><title>T</title><link rel=icon href=data:,><p>text</p>{markup}"
        return Answer(headers=[("Content-Type", "text/html")], body=page.encode())

    with Origin(with_picture) as origin, Writer.open(path / "s") as writer, Recorder(writer) as recorder:
        began = time.monotonic()
        (result,) = Fetcher(recorder, writer, patience=patience).fetch([f"{origin.url}/"])
    return result, time.monotonic() - began


@pytest.mark.slow
def test_a_page_whose_font_never_ends_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_snapshot, "FONTS", 0.5)

    def with_font(asked: Asked) -> Answer:
        if asked.path == "/endless.woff2":
            return Answer(headers=[("Content-Type", "font/woff2")], body=begun())
        page = f"<!DOCTYPE html><title>T</title><link rel=icon href=data:,><style>{FONT}</style><p>text</p>"
        return Answer(headers=[("Content-Type", "text/html")], body=page.encode())

    with Origin(with_font) as origin, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        (result,) = Fetcher(recorder, writer, patience=SettleTimeouts(stuck=1)).fetch([f"{origin.url}/"])
    assert result.ok
    assert len(result.views) == 1


@pytest.mark.slow
def test_a_short_page_does_not_wait_for_a_socket_on_which_nobody_has_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waited(*_: Any) -> bool:
        raise AssertionError("waited for more than the silence of its socket")

    monkeypatch.setattr(Silence, "breaks", waited)
    page = "<!DOCTYPE html><title>T</title><p>Short</p><script>new WebSocket(`ws://${location.host}/talk?room=late`).onmessage = () => {};</script>"
    with (
        streaming_site(page, silent := threading.Event()) as base,
        Writer.open(tmp_path / "s") as writer,
        Recorder(writer) as recorder,
    ):
        (result,) = Fetcher(recorder, writer).fetch([f"{base}/"])
        silent.set()
    assert len(result.views) == 1


def test_an_event_stream_has_said_nothing_while_it_sends_comments(tmp_path: Path) -> None:
    """Comments keep a connection open; a page that has nothing else to hear has heard all."""
    news = threading.Event()

    async def stream() -> AsyncIterator[bytes]:
        yield b": hello\n\n:"
        yield b" and on\n\n"
        await asyncio.to_thread(news.wait, HANG)
        yield b"data: n"
        yield b"ews\n\n"
        await asyncio.Event().wait()

    def streaming(asked: Asked) -> Answer:
        return Answer(headers=[("Content-Type", "text/event-stream")], body=stream())

    with (
        Origin(streaming) as origin,
        Writer.open(tmp_path / "s") as writer,
        Recorder(writer) as recorder,
        httpx.Client(proxy=recorder.url) as client,
        client.stream("GET", f"{origin.url}/events") as answer,
    ):
        came, pieces = b"", answer.iter_raw()
        while b" on\n\n" not in came:
            came += next(pieces)
        assert recorder.stream_counters() == StreamCounters()
        news.set()
        while b"ews\n\n" not in came:
            came += next(pieces)
        assert recorder.stream_counters() == StreamCounters(streamed=len(b"data: news\n\n"))
