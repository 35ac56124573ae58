"""Pictures and redirects are held until they are whole; those without an end are let go: to the client at once, to the archive in part."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stillweb.proxy.record.mitmproxy_compat import lifetime
from stillweb.snapshots.writer import Writer
from tests.proxy.lab import Lab, client
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.recordings import recorded
from tests.support.waiting import until

PICTURE = {"Accept": "image/avif,image/webp,image/*,*/*;q=0.8"}
HEAD = b"GIF89a"
FLOOD = 1 << 16


async def one_frame() -> AsyncIterator[bytes]:
    yield HEAD
    await asyncio.Event().wait()


async def frames_without_end() -> AsyncIterator[bytes]:
    yield HEAD
    while True:
        yield bytes(FLOOD)


async def late_end() -> AsyncIterator[bytes]:
    yield b"moved"
    await asyncio.sleep(0.05)  # what a server does behind an answer that has no length


def camera(asked: Asked) -> Answer:
    if "moved" in asked.path:
        body = late_end() if "late" in asked.path else one_frame()
        return Answer(303, [("Location", "/there")], body)
    kind = "image/gif" if "gif" in asked.path else "multipart/x-mixed-replace; boundary=frame"
    body = frames_without_end() if "flood" in asked.path else one_frame()
    return Answer(headers=[("Content-Type", kind)], body=body)


@pytest.fixture(params=["http", "https"])
def place(request: pytest.FixtureRequest, lab: Lab) -> Iterator[tuple[str, Origin]]:
    secure = request.param == "https"
    with Origin(
        camera, lab.ca.context_for("camera.example", ("h2", "http/1.1")) if secure else None
    ) as origin:
        yield f"{request.param}://camera.example", origin


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/gif", "/gif/flood", "/multipart"])
def test_a_picture_without_end_reaches_the_client_and_is_kept_as_far_as_that_read_it(
    lab: Lab, tmp_path: Path, place: tuple[str, Origin], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, origin = place
    if "flood" in path:
        monkeypatch.setattr(lifetime, "HOLD_SECONDS", 3600.0)  # its size alone lets it go
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"camera.example": ("127.0.0.1", origin.port)}) as recorder,
        client(recorder, http2=False) as c,  # over HTTP/2 httpx tells nobody that it has left
    ):
        with c.stream("GET", url + path, headers=PICTURE) as response:
            assert next(response.iter_raw(len(HEAD))) == HEAD
        assert until(recorder.captures_of)
        assert recorder.failures == []
    (only,) = recorded(tmp_path / "s")
    assert only.body.startswith(HEAD)
    assert only.warc["WARC-Truncated"] == "disconnect"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/moved/late", "/moved/never"])
def test_a_redirect_that_its_client_follows_before_its_end_is_kept(
    lab: Lab, tmp_path: Path, place: tuple[str, Origin], path: str
) -> None:
    url, origin = place
    with (
        Writer.open(tmp_path / "s") as writer,
        lab.recorder(writer, resolve={"camera.example": ("127.0.0.1", origin.port)}) as recorder,
        client(recorder, http2=False) as c,
    ):
        with c.stream("POST", url + path, content=b"name=a") as response:
            assert response.headers["location"] == "/there"
        assert until(recorder.captures_of)
        assert (recorder.failures, recorder.stats.aborted) == ([], 0)
    (only,) = recorded(tmp_path / "s")
    assert (only.status, only.header("location")) == (303, "/there")
    assert only.warc.get("WARC-Truncated") == (None if "late" in path else "disconnect")
