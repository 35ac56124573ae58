"""Archives with chunk headers left in: what follows the last chunk is no part of the body."""

import pytest

from snapshots.archives.messages import dechunk


@pytest.mark.parametrize(
    "trailers", [b"X-Checksum: 1\r\n\r\n", b"Expires: x\r\nServer-Timing: a;dur=1\r\n\r\n", b"X-Cut: 1\r\n"]
)
def test_trailers_are_no_part_of_the_body(trailers: bytes) -> None:
    assert dechunk(b"5\r\nhello\r\n6\r\n world\r\n0\r\n" + trailers) == b"hello world"


@pytest.mark.parametrize("rest", [b"no field\r\n\r\n", b"X: 1\r\n\r\nmore", b"a b: 1\r\n\r\n"])
def test_what_is_no_trailer_stays(rest: bytes) -> None:
    assert dechunk(b"5\r\nhello\r\n0\r\n" + rest) == b"hello0\r\n" + rest[2:]
