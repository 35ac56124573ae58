"""Archives with chunk headers left in: what is body and what is not, in whatever pieces it comes."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.warc.messages import TRAILERS, dechunk, dechunked

PARTS = [
    b"5\r\nhello\r\n",
    b"6;x=y\r\n world\r\n",
    b"0\r\n",
    b"\r\n",
    b"X: 1\r\n",
    b"5\r\nhel",
    b"no chunk",
    b"ff\r\n",
    b"\n",
]


@pytest.mark.parametrize(
    "trailers", [b"X-Checksum: 1\r\n\r\n", b"Expires: x\r\nServer-Timing: a;dur=1\r\n\r\n", b"X-Cut: 1\r\n"]
)
def test_trailers_are_no_part_of_the_body(trailers: bytes) -> None:
    assert dechunk(b"5\r\nhello\r\n6\r\n world\r\n0\r\n" + trailers) == b"hello world"


@pytest.mark.parametrize("rest", [b"no field\r\n\r\n", b"X: 1\r\n\r\nmore", b"a b: 1\r\n\r\n"])
def test_what_is_no_trailer_stays(rest: bytes) -> None:
    assert dechunk(b"5\r\nhello\r\n0\r\n" + rest) == b"hello0\r\n" + rest[2:]


@given(st.lists(st.sampled_from(PARTS), max_size=8), st.integers(1, 9))
def test_the_pieces_make_no_difference(parts: list[bytes], size: int) -> None:
    body = b"".join(parts)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert b"".join(dechunked(pieces)) == dechunk(body)


def test_no_more_than_a_chunk_is_held() -> None:
    passed = 0

    def pieces() -> Iterator[bytes]:
        nonlocal passed
        for _ in range(100):
            passed += 1
            yield b"%x\r\n%b\r\n" % (2 * TRAILERS, bytes(2 * TRAILERS))

    for number, data in enumerate(filter(None, dechunked(pieces())), 1):
        assert data == bytes(2 * TRAILERS)
        assert passed <= number + 1
