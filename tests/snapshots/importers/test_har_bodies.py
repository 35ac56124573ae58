"""Bodies in HAR files: browsers and tools tell the text of them, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stillweb.snapshots.http.charsets import codec, header_charset, meta_charset
from stillweb.snapshots.operations.importing import import_files, left_out
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from tests.snapshots.importers.test_har import entry, write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("media", "text", "kept"),
    [
        ("text/html; charset=iso-8859-1", "<p>Ã©", b"<p>\xc3\xa9"),
        ("application/json", '"é"', '"é"'.encode()),
        ("text/html; charset=iso-8859-1", "<p>café", b"<p>caf\xe9"),
        ("text/html", "<meta charset=windows-1252><p>café", b"<meta charset=windows-1252><p>caf\xe9"),
        ("text/html; charset=shift_jis", "山", b"\x8eR"),
        ("text/html; charset=iso-8859-1", "<p>caf\ufffd", None),  # as Playwright keeps it
        ("text/html; charset=utf-8", "<p>caf\ufffd é", "<p>caf\ufffd é".encode()),
        ("text/html", "<p>café", "<p>café".encode()),
        ("text/html; charset=iso-8859-1", "<p>山", "<p>山".encode()),
    ],
)
def test_a_text_is_kept_in_the_charset_that_it_is_read_by(
    tmp_path: Path, media: str, text: str, kept: bytes | None
) -> None:
    response = {
        "headers": [{"name": "Content-Type", "value": media}],
        "content": {"size": 9, "mimeType": media, "text": text},
    }
    path = write(
        tmp_path / "x.har", entry("http://example.test/", response=response), entry("http://example.test/b")
    )
    report = import_files([path], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = {c.url: snapshot.read(c) for c in snapshot.captures()}
    assert bool(report.notes) == (kept is None)
    if kept is None:
        return
    answer = found["http://example.test/"]
    assert answer.body == kept
    # the bytes are in the charset that is named, whatever the server's were
    named_by = codec(header_charset(answer.header("content-type"))) or codec(meta_charset(answer.body))
    assert answer.body.decode(named_by or "utf-8") == text
    named = {
        "text/html": "text/html; charset=utf-8",
        "text/html; charset=iso-8859-1": "text/html; charset=utf-8",
    }
    if not text.isascii() and kept == text.encode() and "utf-8" not in media and "json" not in media:
        media = named[media]
    assert answer.header("content-type") == media


def test_a_redirect_without_its_body_leads_where_it_led_and_is_unsure(tmp_path: Path) -> None:
    moved = {
        "status": 302,
        "headers": [{"name": "Location", "value": "/next"}, {"name": "Content-Length", "value": "5"}],
        "content": {"size": -1, "mimeType": "text/html"},
        "bodySize": 5,
    }
    path = write(tmp_path / "x.har", entry("http://example.test/", response=moved))
    with Snapshot.open(path) as snapshot:
        (capture,) = snapshot.captures()
        answer = snapshot.read(capture)
        assert (answer.status, answer.body, answer.header("location")) == (302, b"", "/next")
        assert answer.header("content-length") == "0"
        assert capture.truncated == "unspecified"
    del moved["headers"][0]  # type: ignore[attr-defined]
    path = write(tmp_path / "y.har", entry("http://example.test/", response=moved))
    with Snapshot.open(path) as snapshot:
        assert list(snapshot.captures()) == []


@pytest.mark.parametrize(
    ("length", "data", "taken"),
    [
        (283, None, False),  # what Chromium tells of a form with a file
        (3, {"text": "", "params": []}, False),
        (7, {"text": "a=1&b=2"}, True),
        (8, {"text": "a=1&b=2"}, False),
        (2, {"text": "é"}, True),
        (9, {"params": [{"name": "a", "value": "1 2"}]}, True),
        (0, None, True),
    ],
)
def test_a_request_without_the_body_that_was_sent_is_left_out(
    tmp_path: Path, length: int, data: dict[str, Any] | None, taken: bool
) -> None:
    request = {
        "method": "POST",
        "headers": [{"name": "Content-Length", "value": str(length)}],
        **({"postData": data} if data else {}),
    }
    path = write(tmp_path / "x.har", entry("http://example.test/", request=request))
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.captures())) == taken
        assert [("the body of its request" in note) for note in left_out(snapshot)] == [True] * (not taken)


def bytes_told(data: bytes, text: str) -> dict[str, Any]:
    """An entry of bytes sent and received that are told as a text."""
    media = "application/octet-stream"
    response = {
        "headers": [{"name": "Content-Type", "value": media}],
        "content": {"size": len(data) - 9, "compression": 9, "mimeType": media, "text": text},
    }
    sent = [{"name": "Content-Length", "value": str(len(data))}]
    request = {"method": "PUT", "headers": sent, "postData": {"mimeType": "", "text": text}}
    return entry("http://example.test/", response=response, request=request)


@pytest.mark.parametrize("how", ["surrogates", "latin-1", "cp1252"])
def test_bytes_that_are_told_as_a_text_are_what_they_were(tmp_path: Path, how: str) -> None:
    """As mitmproxy tells them, and browsers a text without charset."""
    data = bytes(range(160, 256)) + (b"\x80" if how == "cp1252" else bytes(range(160)))
    text = data.decode(errors="surrogateescape") if how == "surrogates" else data.decode(how)
    path = write(tmp_path / "x.har", bytes_told(data, text))
    with Snapshot.open(path) as snapshot:
        (put,) = snapshot.captures()
        assert snapshot.read(put).body == snapshot.read_request(put).body == data


@pytest.mark.parametrize(
    ("size", "text", "cut"),
    [
        (5, "hello", ""),
        (9, "hello", "length"),
        (8, "hello", ""),
        (42, "<p>utf sixteen \u00e9</p>", ""),
        (2, "hello", ""),
    ],
)
def test_an_answer_of_which_only_the_first_is_kept_is_unsure(
    tmp_path: Path, size: int, text: str, cut: str
) -> None:
    told = {"content": {"size": size, "mimeType": "text/plain", "text": text}}
    path = write(tmp_path / "x.har", entry("http://example.test/", response=told))
    with Snapshot.open(path) as snapshot:
        (capture,) = snapshot.captures()
        assert capture.truncated == cut
        found = snapshot.matcher().lookup(
            Request("GET", "http://example.test/"), snapshot.matcher().session("x")
        )
        assert bool(found.ambiguous) == bool(cut)
