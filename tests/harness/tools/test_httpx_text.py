"""Bodies are read as httpx itself reads them, which the real fetch server shows its model."""

import gzip
import zlib

import httpx
import pytest

from stillweb.harness.tools.store import httpx_text
from stillweb.snapshots.capture import Response
from stillweb.snapshots.http.encodings import EncodingProblem

PACKED = gzip.compress(b"packed text " * 50, mtime=0)
RAW = zlib.compress(b"deflated")[2:-4]
BODIES = [
    b"",
    b"plain w\xf6rds",
    "wörds 漢字".encode(),
    "\ufeffmarked".encode(),
    b"\x00\xff\xfe",
    b"a\r\nb\rc\x85",
]
TYPES = [
    None,
    "",
    "text/plain",
    "text/plain; charset=ISO-8859-1",
    'text/plain; charset="utf-8"',
    "text/plain; charset='latin-1'",
    "text/plain; charset=nonsense",
    'text/plain; foo="charset=latin-1"',
    "text/plain; charset=utf-8; charset=latin-1",
    "text/plain; charset*=utf-8''latin-1",
    "text/plain; charset = cp1251",
    "text/plain;CHARSET=shift_jis",
    "x",
]


def both(body: bytes, **fields: str | None) -> tuple[str, str]:
    """Return the texts that we and httpx decode; an error by its words."""
    headers = [(name.replace("_", "-"), value) for name, value in fields.items() if value is not None]
    try:
        ours = httpx_text(Response(200, "OK", tuple(headers), body))
    except EncodingProblem as error:
        ours = f"! {error}"
    try:
        # a stream, as a client reads it: one given whole is not unpacked
        answer = httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))
        answer.read()
        theirs = answer.text
    except httpx.DecodingError as error:
        theirs = f"! {error}"
    return ours, theirs


@pytest.mark.parametrize("media", TYPES)
@pytest.mark.parametrize("body", BODIES)
def test_charsets(body: bytes, media: str | None) -> None:
    ours, theirs = both(body, content_type=media)
    assert ours == theirs


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", PACKED),
        ("GZIP", PACKED),
        ("gzip", PACKED[:-10]),
        ("gzip", PACKED + b"trailing"),
        ("gzip", PACKED + gzip.compress(b"second", mtime=0)),
        ("gzip", b"not packed"),
        ("gzip", b""),
        ("deflate", zlib.compress(b"deflated")),
        ("deflate", RAW),
        ("deflate", RAW[:-3]),
        ("deflate", b"junk junk"),
        ("gzip, gzip", gzip.compress(PACKED, mtime=0)),
        ("x-gzip", PACKED),
        ("nonsense", b"kept"),
        ("gzip, nonsense", PACKED),
        ("identity", b"kept"),
        ("", b"kept"),
    ],
)
def test_packed_bodies(encoding: str, body: bytes) -> None:
    ours, theirs = both(body, content_encoding=encoding, content_type="text/plain")
    assert ours == theirs


@pytest.mark.parametrize("label", ["hex", "rot13", "undefined", "idna", "utf-16"])
def test_a_charset_that_no_page_can_have_is_no_error(label: str) -> None:
    """The real one fails in Python's own words, each in others."""
    assert httpx_text(Response(200, "OK", (("Content-Type", f"text/plain; charset={label}"),), b"abcd"))
