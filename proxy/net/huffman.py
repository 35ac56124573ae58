"""HPACK's Huffman code in linear time: hpack's own encoder takes time in the square of a header field's length."""

from __future__ import annotations

from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

_BITS = [f"{code:0{length}b}" for code, length in zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True)]


class LinearHuffman(HuffmanEncoder):
    """An encoder to be put in place of `huffman_coder` of an hpack `Encoder`."""

    def __init__(self) -> None:
        super().__init__(REQUEST_CODES, REQUEST_CODES_LENGTH)

    def encode(self, bytes_to_encode: bytes | None) -> bytes:
        """Return bytes in the code of RFC 7541, 5.2, filled up with ones."""
        bits = "".join([_BITS[byte] for byte in bytes_to_encode or b""])
        bits += "1" * (-len(bits) % 8)
        return int(bits or "0", 2).to_bytes(len(bits) // 8, "big")
