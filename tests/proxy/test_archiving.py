"""The way to the archive: when an answer has to wait for it."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from proxy import archiving
from proxy.archiving import Archivist, Draft
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
    archivist = Archivist(writer, redact=None, failed=lambda *_: None, on_status=None)
    now = [100.0]
    monkeypatch.setattr(archiving, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def ask() -> bool:
        return archivist.room() is not None

    for number in range(2):
        archivist.put(draft(number))
        assert not asyncio.run(ask()), "nothing was being written: it can't be late"
        writer.let.release()
        assert waiting.until(lambda: archivist.queued == 0)
        now[0] += 10 * archiving.QUEUE_SECONDS
    archivist.put(draft())
    now[0] += 10 * archiving.QUEUE_SECONDS
    assert asyncio.run(ask()), "what was delivered long ago is not on disk"
    writer.let.release()
    archivist.close()


def test_answers_wait_while_the_queue_is_long_and_go_on_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiving, "QUEUE_ITEMS", 10)
    monkeypatch.setattr(archiving, "QUEUE_SECONDS", 3600.0)
    writer = SlowWriter()
    archivist = Archivist(writer, redact=None, failed=lambda *_: None, on_status=None)

    async def run() -> None:
        for number in range(10):
            archivist.put(draft(number))
            assert archivist.room() is None
        archivist.put(draft())
        room = archivist.room()
        assert room is not None
        for _ in range(3):
            writer.let.release()
        await asyncio.wait_for(asyncio.ensure_future(room), waiting.HANG)
        for _ in range(8):
            writer.let.release()

    asyncio.run(run())
    archivist.close()
