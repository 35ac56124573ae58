"""Long header fields are sent in HPACK's code as fast as short ones: what hpack reads is what was written."""

from __future__ import annotations

from hpack.huffman_table import decode_huffman
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.net.huffman import LinearHuffman


def test_the_example_of_rfc_7541_is_written_as_there() -> None:
    assert LinearHuffman().encode(b"www.example.com").hex() == "f1e3c2e5f23a6ba0ab90f4ff"


@given(st.binary(max_size=400))
def test_what_was_written_is_read_again(value: bytes) -> None:
    assert decode_huffman(LinearHuffman().encode(value)) == value
