"""Heads of answers are read as browsers read them, or refused in words."""

from __future__ import annotations

import pytest

from stillweb.proxy.record.mitmproxy_compat.http1 import MAX_HEAD, Unreadable, normalized_head

BODY = b"<p>x"


def told(head: bytes, start: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return start + b"\r\n" + head + b"\r\n" + BODY


@pytest.mark.parametrize(
    "data",
    [
        told(b"Content-Type: text/html\r\nContent-Length: 4\r\nX-Odd!: \xe4\t\r\nX-Empty:\r\n"),
        told(b"TRANSFER-ENCODING: Chunked\r\n"),
        told(b"", start=b"HTTP/1.0 404"),
        told(b"X: 1\r\n", start=b"HTTP/1.1 999 "),
        b"HTTP/1.1 200 OK\r\nContent-Length: 4",  # not all of it yet
        b"\r\nHTT",
        b"",
    ],
)
def test_what_reads_alike_everywhere_is_left_alone(data: bytes) -> None:
    assert normalized_head(data) is None


@pytest.mark.parametrize(
    ("start", "plain"),
    [
        (b"HTTP/1.1 200OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/2 200 OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/1.10 200 OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/1 200 OK", b"HTTP/1.0 200 OK"),
        (b"HTTP 0404 No", b"HTTP/1.0 404 No"),
        (b"http/1.0\t200\tFine", b"HTTP/1.0 200 Fine"),
        (b"\r\nHTTP/1.1 200", b"HTTP/1.1 200 "),
        (b"xxHTTP/1.1 200 OK", b"HTTP/1.1 200 OK"),
        (b"HTTP/1.1 103 Early Hints", b"HTTP/1.1 103 Early Hints"),
    ],
)
def test_status_lines(start: bytes, plain: bytes) -> None:
    assert normalized_head(told(b"A: 1\r\n", start)) == told(b"A: 1\r\n", plain)


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        (b"garbage\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"A : 1\r\nX(Y): 2\r\n\xc3\x9c: 3\r\n: 4\r\nX Y: 5\r\nB: 6\r\n", b"A: 1\r\nB: 6\r\n"),
        (b"A: 1\r\n\ttwo\r\nB:\r\n  3\r\n \r\n", b"A: 1 two\r\nB: 3\r\n"),
        (b" of nothing\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"X(Y): 1\r\n of that\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"A: 1\n", b"A: 1\r\n"),
        (b"A: 1\r2\r\n", b"A: 1 2\r\n"),
        (b"A: 1\r\nContent-Length: 4\r\nB: 2\r\ncontent-length: 4\r\n", b"A: 1\r\nContent-Length: 4\r\nB: 2\r\n"),
        (b"Content-Length: 04, 4\r\n", b"Content-Length: 4\r\n"),
        (b"Content-Length: 4.0\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"Content-Length:\r\nA: 1\r\n", b"A: 1\r\n"),
        (b"Content-Length: 9\r\nA: 1\r\nTransfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked\r\nA: 1\r\n"),
        (b"Transfer-Encoding: identity, chunked\r\nTransfer-Encoding: Chunked\r\n", b"Transfer-Encoding: chunked\r\n"),
        (b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n", b"Content-Length: 4\r\n"),
        (b"Transfer-Encoding: x-gzip , chunked\r\nContent-Length: 4\r\n", b"Transfer-Encoding: gzip, chunked\r\n"),
    ],
)  # fmt: skip
def test_fields(odd: bytes, plain: bytes) -> None:
    assert normalized_head(told(odd)) == told(plain)
    assert normalized_head(told(plain)) is None or b"gzip" in plain


def test_an_answer_without_a_body_has_no_chunks() -> None:
    start = b"HTTP/1.1 204 No"
    assert normalized_head(told(b"Transfer-Encoding: chunked\r\nA: 1\r\n", start)) == told(b"A: 1\r\n", start)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (told(b"Content-Length: 4\r\nContent-Length: 5\r\n"), "several lengths of its body: 4, 5"),
        (told(b"Content-Length: 4\r\nContent-Length: four\r\n"), "several lengths"),
        (told(b"Transfer-Encoding: chunked\r\n", b"HTTP/1.0 200 OK"), "HTTP/1.0"),
        (told(b"Transfer-Encoding: gzip\r\nContent-Length: 4\r\n"), "transfer coding"),
        (told(b"A: \0\r\n"), "NUL"),
        (told(b"", b"HTTP/1.1"), "no status: 'HTTP/1.1'"),
        (told(b"", b"HTTP/1.1 20 OK"), "no status"),
        (told(b"", b"HTTP/1.1 1000 OK"), "no status"),
        (b"<!doctype html>", "no HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * MAX_HEAD, "longer than"),
    ],
)
def test_what_clients_read_differently_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        normalized_head(data)
