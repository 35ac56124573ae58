"""Lines of standard input: as they come, however it was opened, to the end."""

from __future__ import annotations

import asyncio
import os
from threading import Thread

import pytest

from stillweb.harness.servers.stdin import _AHEAD, _PIECE, Lines
from tests.support.waiting import HANG


async def _read(descriptor: int) -> list[str]:
    lines = Lines(descriptor)
    found = [line async for line in lines]
    with pytest.raises(StopAsyncIteration):  # and not wait for more
        await anext(lines)
    return found


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"one\n", b"two\n"],
        [b"one\ntw", b"o\n\nthree"],
        [b"\xc3", b"\xbc and \xff\n"],
        [b"x" * (3 * _PIECE), b"\ny\n"],
        [b"n\n" * (3 * _AHEAD)],
    ],
)
def test_lines_come_as_they_were_written(pieces: list[bytes], blocking: bool) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, blocking)

    def write() -> None:
        for piece in pieces:
            with open(writer, "wb", closefd=False) as file:
                file.write(piece)
        os.close(writer)

    thread = Thread(target=write)
    try:
        thread.start()
        found = asyncio.run(asyncio.wait_for(_read(reader), HANG))
        thread.join(HANG)
    finally:
        os.close(reader)
    text = b"".join(pieces).decode("utf-8", "replace")
    assert found == [line for line in text.splitlines(keepends=True) if line]
