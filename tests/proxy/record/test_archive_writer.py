"""The way to the archive: when an answer has to wait for it."""

import asyncio
import errno
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stillweb.proxy.record import archive_writer
from stillweb.proxy.record.archive_writer import ArchiveWriter, Draft, Spool
from stillweb.snapshots.errors import MissingCapability
from tests.support import waiting


class SlowWriter:
    """Writes when it is let."""

    def __init__(self) -> None:
        self.let = threading.Semaphore(0)

    def exchange(self, exchange: Any) -> Any:
        self.let.acquire()
        raise ValueError("not kept")  # said of this exchange alone: the next one is written

    def event(self, session: str) -> int:
        return 1


def draft(number: int = 0) -> Draft:
    return Draft(
        "default",
        1,
        "GET",
        f"https://a.example/{number}",
        "a.example",
        datetime(2026, 1, 1, tzinfo=UTC),
        status=200,
    )


def test_the_first_answer_after_a_rest_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SlowWriter()
    archive = ArchiveWriter(writer, redact=None, failed=lambda *_: None, on_status=None)
    now = [100.0]
    monkeypatch.setattr(archive_writer, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def ask() -> bool:
        return archive.room() is not None

    for number in range(2):
        archive.put(draft(number))
        assert not asyncio.run(ask()), "nothing was being written: it can't be late"
        writer.let.release()
        assert waiting.until(lambda: archive.queued == 0)
        now[0] += 10 * archive_writer.QUEUE_SECONDS
    archive.put(draft())
    now[0] += 10 * archive_writer.QUEUE_SECONDS
    assert asyncio.run(ask()), "what was delivered long ago is not on disk"
    writer.let.release()
    archive.close()


def test_answers_wait_while_the_queue_is_long_and_go_on_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive_writer, "QUEUE_ITEMS", 10)
    monkeypatch.setattr(archive_writer, "QUEUE_SECONDS", 3600.0)
    writer = SlowWriter()
    archive = ArchiveWriter(writer, redact=None, failed=lambda *_: None, on_status=None)

    async def run() -> None:
        for number in range(10):
            archive.put(draft(number))
            assert archive.room() is None
        archive.put(draft())
        room = archive.room()
        assert room is not None
        for _ in range(3):
            writer.let.release()
        await asyncio.wait_for(asyncio.ensure_future(room), waiting.HANG)
        for _ in range(8):
            writer.let.release()

    asyncio.run(run())
    archive.close()


def test_a_disk_that_fails_ends_the_recording_and_not_its_thread() -> None:
    failures: list[tuple[str, str]] = []
    archive = ArchiveWriter(
        SlowWriter(), redact=None, failed=lambda *said: failures.append(said), on_status=None
    )

    def full() -> None:
        raise OSError(errno.EIO, "Input/output error", "s/archive/data.warc.gz")

    archive.put(full)
    archive.put(lambda: pytest.fail("nothing is written behind it"))
    archive.put(draft())
    assert waiting.until(lambda: archive.queued == 0), "what comes after it waits for ever"
    archive.close()
    assert isinstance(archive.error, MissingCapability)
    assert str(archive.error).startswith("s/archive/data.warc.gz: can't be written (Input/output error)")
    assert [url for url, _ in failures] == ["recorder", "recorder", "https://a.example/0"]


def test_a_status_that_can_not_be_shown_loses_nothing() -> None:
    failures: list[tuple[str, str]] = []
    writer = SlowWriter()

    def show() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    archive = ArchiveWriter(writer, redact=None, failed=lambda *said: failures.append(said), on_status=show)
    assert waiting.until(lambda: bool(failures))
    writer.let.release()
    archive.put(draft())
    assert waiting.until(lambda: archive.queued == 0)
    archive.close()
    assert archive.error is None
    (_, shown), (_, lost) = failures
    assert "Broken pipe" in shown
    assert "not kept" in lost


def test_who_begins_to_wait_just_as_the_last_one_is_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_writer, "QUEUE_ITEMS", 0)
    writer = SlowWriter()
    archive = ArchiveWriter(writer, redact=None, failed=lambda *_: None, on_status=None)
    behind = archive._lags

    def late(share: float) -> bool:
        found = behind(share)
        if share == 1.0:  # the thread that asks is held up here, while the other one writes all there is
            writer.let.release()
            assert waiting.until(lambda: archive.queued == 0)
        return found

    monkeypatch.setattr(archive, "_lags", late)

    async def run() -> None:
        archive.put(draft())
        room = archive.room()
        assert room is not None
        await asyncio.wait_for(asyncio.ensure_future(room), waiting.HANG)

    asyncio.run(run())
    archive.close()


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        (b"data: yes\n\ndata: [DONE]\n\n", True),
        (b"data: [DONE]\r\n\r\n", True),
        (b"data:[DONE]\n", True),
        (b"x" * (archive_writer.SPOOL_BYTES + 1) + b"\n\ndata: [DONE]\n\n", True),
        (b"data: yes\n\n", False),
        (b"data: [DONE]\n\ndata: yes\n\n", False),
        (b"data: it ends with data: [DONE]", False),
        (b"", False),
    ],
)
def test_what_is_left_is_cut_short_unless_it_says_that_it_is_done(
    said: bytes, whole: bool, tmp_path: Path
) -> None:
    left = draft()
    left.response_spool = spool = Spool(tmp_path)
    for at in range(0, len(said), 1 << 16):
        spool.tee(said[at : at + (1 << 16)])
    left.break_off()
    assert left.extra == ({} if whole else {"WARC-Truncated": "disconnect"})
    body = spool.body()
    assert (body if isinstance(body, bytes) else body.read()) == said
    left.discard()


def test_what_could_not_be_kept_is_cut_short(tmp_path: Path) -> None:
    left = draft()
    left.response_spool = spool = Spool(tmp_path)
    spool.tee(b"data: [DONE]\n\n")
    spool.error = OSError(errno.ENOSPC, "full")
    left.break_off()
    assert left.extra == {"WARC-Truncated": "disconnect"}
