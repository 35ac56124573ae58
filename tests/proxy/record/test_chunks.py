"""Bodies in chunks, whole and byte by byte."""

from __future__ import annotations

import h11
import pytest
from h11._receivebuffer import ReceiveBuffer

from stillweb.proxy.record.mitmproxy_compat.http1 import MAX_LINE, ChunkReader

NEXT = b"HTTP/1.1 200 OK"


def read(data: bytes, step: int) -> tuple[bytes, ChunkReader, bytes]:
    """The body, the reader, and what is left behind the end."""
    reader, buffer, body = ChunkReader(), ReceiveBuffer(), b""
    for at in range(0, len(data), step):
        buffer += data[at : at + step]
        while (event := reader(buffer)) is not None:
            if isinstance(event, h11.EndOfMessage):
                return body, reader, bytes(buffer) + data[at + step :]
            body += event.data
    reader.read_eof()
    raise AssertionError("read_eof returns")


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    ("data", "trailers"),
    [
        (b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", ()),
        (b"3;name=value\r\nabc\r\na ; =\"x\r\n0123456789\r\n0;last\r\n\r\n", ()),
        (b"000000000000000000000003 \nabc\n0a\n0123456789\n000\n\n", ()),
        (b"d\r\nabc0123456789\r\n0\r\nX-T: 1 \r\nnonsense\r\n: no\r\nY:2\r\n\r\n", ((b"X-T", b"1"), (b"Y", b"2"))),
    ],
)  # fmt: skip
def test_as_browsers_read_it(data: bytes, trailers: tuple[tuple[bytes, bytes], ...], step: int) -> None:
    body, reader, left = read(data + NEXT, step)
    assert (body, left, reader.trailers) == (b"abc0123456789", NEXT, trailers)


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"0x3\r\nabc\r\n0\r\n\r\n", "how long"),
        (b"-3\r\nabc", "how long"),
        (b" 3\r\nabc", "how long"),
        (b"\r\n", "how long"),
        (b"<p>no chunks\r\n", "how long"),
        (b"fffffffffffffffff\r\n", "how long"),
        (b"3\r\nabcd\r\n0\r\n\r\n", "longer than it says"),
        (b"3;" + b"x" * (MAX_LINE + 1), "too long"),
        (b"3\r\nabc\r\n", "incomplete"),
        (b"3\r\nabc\r\n0\r\n", "incomplete"),
        (b"5\r\nabc", "incomplete"),
    ],
)
def test_what_no_browser_takes_for_whole(data: bytes, why: str, step: int) -> None:
    with pytest.raises(h11.RemoteProtocolError, match=why):
        read(data, step)
