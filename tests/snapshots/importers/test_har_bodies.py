"""Bodies in HAR files: browsers and tools tell the text of them, or nothing."""

import base64
import gzip
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.http.charsets import codec, header_charset, meta_charset
from stillweb.snapshots.http.encodings import decode, encode
from stillweb.snapshots.operations.importing import import_files, notes_on_left_out
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
        "content": {"size": len(kept or b""), "mimeType": media, "text": text},
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
        (7, {"text": "Content-Type: text/plain\r\nContent-Length: 7\r\n\r\na=1&b=2"}, True),  # of Firefox
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
        assert [("the body of its request" in note) for note in notes_on_left_out(snapshot)] == [True] * (
            not taken
        )
        if taken and (data or {}).get("text"):
            (capture,) = snapshot.captures()
            assert len(snapshot.read_request(capture).body) == length


FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("method", "size", "media", "data", "taken"),
    [
        ("POST", -1, PARTS, None, False),  # Chromium keeps no body with a file (chrome-har-capturer)
        ("POST", 0, PARTS, None, False),  # the same in chrome-har, which takes it for empty
        ("POST", -1, "application/json", None, False),
        ("POST", 0, "application/json", None, True),
        ("GET", -1, "application/json", None, True),
        ("DELETE", -1, "", None, True),
        ("POST", 7, "application/json", {"mimeType": "application/json", "params": [{"name": "a", "value": 1}]}, False),
        ("POST", 3, FORM, {"mimeType": FORM, "params": [{"name": "a", "value": 1}]}, True),
    ],
)  # fmt: skip
def test_a_body_whose_length_no_field_tells_is_not_taken_for_none(
    tmp_path: Path, method: str, size: int, media: str, data: dict[str, Any] | None, taken: bool
) -> None:
    request = {
        "method": method,
        "headers": [{"name": "Content-Type", "value": media}] if media else [],
        "bodySize": size,
        **({"postData": data} if data else {}),
    }
    path = write(tmp_path / "x.har", entry("http://example.test/", request=request))
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.captures())) == taken
        assert [("the body of its request" in note) for note in notes_on_left_out(snapshot)] == [True] * (
            not taken
        )


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


PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452")


@pytest.mark.parametrize(
    "content",
    [
        {"encoding": "hex", "text": PNG.hex()},
        {"_isBinary": True, "text": PNG.hex()},  # PollyJS before 6
        {"encoding": "base64", "text": json.dumps([base64.b64encode(PNG[:5]).decode(), base64.b64encode(PNG[5:]).decode()])},
        {"encoding": "BASE64", "text": base64.b64encode(PNG).decode()},
        {"encoding": "base64url", "text": base64.urlsafe_b64encode(PNG).decode().rstrip("=")},
        {"encoding": "binary", "text": PNG.decode("latin-1")},
        {"encoding": "latin1", "text": PNG.decode("latin-1")},
        {"text": base64.b64encode(PNG).decode()},
    ],
)  # fmt: skip
def test_bytes_are_kept_in_whatever_encoding_they_are_written(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    response = {"headers": [], "content": {"size": len(PNG), "mimeType": "image/png"} | content}
    with Snapshot.open(
        write(tmp_path / "x.har", entry("http://example.test/", response=response))
    ) as snapshot:
        assert snapshot.read(next(snapshot.captures())).body == PNG


def test_an_encoding_that_nobody_knows_is_named_and_left_out(tmp_path: Path) -> None:
    response = {"content": {"size": 5, "text": "86xvo", "encoding": "ascii85"}}
    path = write(tmp_path / "x.har", entry("http://a.test/1", response=response), entry("http://a.test/2"))
    report = import_files([path], tmp_path / "out")
    assert report.captures == 1
    assert "encoding that is not known: ascii85: http://a.test/1" in report.notes[0]


def test_a_body_that_is_no_text_is_named_and_left_out(tmp_path: Path) -> None:
    buffer = {"type": "Buffer", "data": [*PNG]}  # as Node writes bytes as JSON
    response = {"content": {"size": len(PNG), "mimeType": "image/png", "text": buffer}}
    path = write(tmp_path / "x.har", entry("http://a.test/1", response=response), entry("http://a.test/2"))
    report = import_files([path], tmp_path / "out")
    assert report.captures == 1
    assert "its body is not text, but other JSON: http://a.test/1" in report.notes[0]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("sizes", [True, False])
def test_a_body_that_is_still_packed_stays_so(tmp_path: Path, coding: str, sizes: bool) -> None:
    page = b"<p>forty-two penguins</p>" * 8
    packed = encode(page, coding)
    fields = [{"name": "content-type", "value": "text/html"}, {"name": "content-encoding", "value": coding}]
    response = {
        "headers": [*fields, {"name": "content-length", "value": str(len(packed))}] if sizes else fields,
        "content": {"size": len(packed), "encoding": "base64", "text": base64.b64encode(packed).decode()},
    }
    with Snapshot.open(write(tmp_path / "x.har", entry("http://a.test/", response=response))) as snapshot:
        kept = snapshot.read(next(snapshot.captures()))
        assert decode(kept.body, kept.header("content-encoding")) == page


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, br"])
def test_half_of_a_packed_body_is_unsure_and_named(tmp_path: Path, coding: str) -> None:
    page = "".join(f"<p>penguin {n} swam {n * n} miles</p>" for n in range(500)).encode()
    half = encode(page, coding)[:-40]
    fields = [{"name": "content-type", "value": "text/html"}, {"name": "content-encoding", "value": coding}]
    response = {
        "headers": fields,
        "content": {"size": len(half), "encoding": "base64", "text": base64.b64encode(half).decode()},
    }
    path = write(tmp_path / "x.har", entry("http://a.test/", response=response))
    report = import_files([path], tmp_path / "out")
    assert ["its body is cut short" in note for note in report.notes] == [True]
    with Snapshot.open(tmp_path / "out") as snapshot:
        (capture,) = snapshot.captures()
        kept = snapshot.read(capture)
        assert (kept.body, kept.header("content-encoding")) == (half, coding)
        assert snapshot.cut_short(capture)
        found = snapshot.matcher().lookup(Request("GET", "http://a.test/"), snapshot.matcher().session("x"))
        assert found.ambiguous


@pytest.mark.parametrize(
    "response",
    [
        # as Firefox writes pictures that it did not load anew
        {
            "content": {"mimeType": "image/png", "comment": "Response bodies are not included."},
            "bodySize": -1,
        },
        {"content": {"mimeType": "image/png", "size": -1}},  # Playwright's content: omit
        {"content": {"size": 0, "text": ""}, "headers": [{"name": "Content-Length", "value": "9"}]},
        {
            "content": {"size": 0, "text": ""},
            "headers": [{"name": "Content-Type", "value": "text/event-stream"}],
        },
        {"status": 304, "content": {"size": 9}, "bodySize": 0},  # of a page from the cache
        {"status": 302, "headers": [], "redirectURL": "", "content": {"size": 0}, "bodySize": -1},
        {
            "headers": [],  # as Chromium writes what a page may not read, and what it gave up
            "content": {"size": 0, "mimeType": "x-unknown"},
            "bodySize": -1,
            "_error": "net::ERR_FAILED",
        },
    ],
)
def test_an_answer_whose_body_is_not_told_is_no_empty_page(tmp_path: Path, response: dict[str, Any]) -> None:
    path = write(tmp_path / "x.har", entry("http://a.test/1", response=response), entry("http://a.test/2"))
    report = import_files([path], tmp_path / "out")
    assert report.captures == 1
    assert "its body is not in the HAR: http://a.test/1" in report.notes[0]


def test_a_beacon_whose_answer_nobody_read_is_answered_and_unsure(tmp_path: Path) -> None:
    told = {"content": {"size": 0}, "headers": [{"name": "Content-Length", "value": "43"}]}
    beacon = entry("http://a.test/b", request={"method": "POST"}, response=told) | {"_resourceType": "ping"}
    with Snapshot.open(write(tmp_path / "x.har", beacon)) as snapshot:
        (capture,) = snapshot.captures()
        assert (snapshot.read(capture).body, capture.truncated) == (b"", "unspecified")


@pytest.mark.parametrize(
    ("told", "cut"),
    [
        ({"_error": "net::ERR_ABORTED"}, "disconnect"),
        ({"_failureText": "net::ERR_INCOMPLETE_CHUNKED_ENCODING"}, "disconnect"),
        ({"_charlesStatus": "EXCEPTION"}, "disconnect"),
        ({"_charlesStatus": "COMPLETE"}, ""),
        ({"_error": None}, ""),
        ({"_error": "net::ERR_ABORTED", "status": 204, "content": {"size": 0}}, ""),
        ({"content": {"size": 25, "compression": -20, "text": "hello"}, "bodySize": 25}, ""),  # of mitmproxy
    ],
)
def test_an_answer_that_broke_off_is_unsure(tmp_path: Path, told: dict[str, Any], cut: str) -> None:
    path = write(tmp_path / "x.har", entry("http://a.test/", response=told))
    report = import_files([path], tmp_path / "out")
    assert bool(report.notes) == bool(cut)
    with Snapshot.open(tmp_path / "out") as snapshot:
        (capture,) = snapshot.captures()
        assert capture.truncated == cut
        found = snapshot.matcher().lookup(Request("GET", "http://a.test/"), snapshot.matcher().session("x"))
        assert bool(found.ambiguous) == bool(cut)


def test_a_page_that_a_browser_had_in_its_cache_is_answered(tmp_path: Path) -> None:
    """Chromium and Firefox tell the status 304 of their server, and the page."""
    asked = {"headers": [{"name": "If-None-Match", "value": '"1"'}]}
    told = {"status": 304, "headers": [], "content": {"size": 7, "mimeType": "text/html", "text": "penguin"}}
    path = write(tmp_path / "x.har", entry("http://a.test/", request=asked, response=told))
    with Snapshot.open(path) as snapshot:
        matcher = snapshot.matcher()
        found = matcher.lookup(Request("GET", "http://a.test/"), matcher.session("x")).capture
        assert found is not None
        answer = snapshot.read(found)
    assert (answer.status, answer.body, answer.header("content-type")) == (200, b"penguin", "text/html")


def test_bytes_that_were_sent_are_read_as_http_toolkit_writes_them(tmp_path: Path) -> None:
    sent = {
        "method": "POST",
        "bodySize": 4,
        "_content": {"text": "//4AAQ==", "size": 4, "encoding": "base64"},
    }
    undone = {
        "method": "POST",
        "headers": [{"name": "Content-Encoding", "value": "gzip"}],
        "postData": {"mimeType": "application/json", "text": '{"a": 1}'},
    }
    trailers = {"_trailers": [{"name": "X-Sum", "value": "3"}]}
    path = write(
        tmp_path / "x.har",
        entry("http://a.test/1", request=sent, response=trailers),
        entry("http://a.test/2", request=undone),
    )
    with Snapshot.open(path) as snapshot:
        one, two = snapshot.captures()
        assert snapshot.read_request(one).body == b"\xff\xfe\x00\x01"
        assert snapshot.read(one).header("X-Sum") == "3"
        matcher = snapshot.matcher()
        packed = gzip.compress(b'{"a":1}')
        fields = (("Content-Type", "application/json"), ("Content-Encoding", "gzip"))
        found = matcher.lookup(Request("POST", "http://a.test/2", fields, packed), matcher.session("x"))
        assert found.capture == two


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_an_unpacked_file_that_begins_like_a_stored_block_is_whole(tmp_path: Path, coding: str) -> None:
    file = bytes.fromhex("cb0d0d0a00000000") + random.Random(1).randbytes(3000)
    fields = [{"name": "content-type", "value": "font/ttf"}, {"name": "content-encoding", "value": coding}]
    content = {"size": len(file), "encoding": "base64", "text": base64.b64encode(file).decode()}
    path = write(
        tmp_path / "x.har", entry("http://a.test/", response={"headers": fields, "content": content})
    )
    assert import_files([path], tmp_path / "out").notes == []
    with Snapshot.open(tmp_path / "out") as snapshot:
        kept = snapshot.read(next(snapshot.captures()))
        assert (kept.body, kept.header("content-encoding")) == (file, None)


def test_a_packed_file_whose_encoding_was_undone_is_not_packed_twice(tmp_path: Path) -> None:
    file = gzip.compress(b"a tarball", mtime=0)
    response = {
        "bodySize": len(file) + 30,
        "headers": [
            {"name": "content-type", "value": "application/gzip"},
            {"name": "content-encoding", "value": "gzip"},
        ],
        "content": {"size": len(file), "encoding": "base64", "text": base64.b64encode(file).decode()},
    }
    with Snapshot.open(write(tmp_path / "x.har", entry("http://a.test/", response=response))) as snapshot:
        kept = snapshot.read(next(snapshot.captures()))
        assert (kept.body, kept.header("content-encoding")) == (file, None)


def test_a_body_shorter_than_its_content_length_is_marked_as_cut(tmp_path: Path) -> None:
    response = {
        "headers": [{"name": "Content-Length", "value": "5000"}],
        "content": {"size": 5, "mimeType": "text/plain", "text": "hello"},
    }
    with Snapshot.open(write(tmp_path / "x.har", entry("http://a.test/", response=response))) as snapshot:
        assert next(snapshot.captures()).truncated == "length"


def socket_entry(url: str, *messages: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": "Upgrade", "value": "websocket"}]
    made = entry(url, request={"headers": fields}, response={"status": 101, "headers": fields, "content": {}})
    return made | {"_webSocketMessages": list(messages)} if messages else made


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_what_a_web_socket_said_is_kept(tmp_path: Path, scheme: str) -> None:
    path = write(
        tmp_path / "x.har",
        socket_entry(
            f"{scheme}://a.test/chat",
            {"type": "send", "time": 1735783445.8, "opcode": 1, "data": "hello"},
            {"type": "receive", "time": 1735783445.9, "opcode": 9, "data": ""},
            {"type": "receive", "time": 1735783446.0, "opcode": 2, "data": base64.b64encode(b"\0").decode()},
        ),
    )
    with Snapshot.open(path) as snapshot:
        (said,) = snapshot.all_metadata("http://a.test/chat")
        assert [(one["from"], one.get("text", one.get("base64"))) for one in said["messages"]] == [
            ("client", "hello"),
            ("server", "AA=="),
        ]


def test_messages_of_a_web_socket_that_are_not_known_are_counted_and_named(tmp_path: Path) -> None:
    messages = [
        {"type": "send", "opcode": 1, "data": "hello"},
        {"type": "error", "opcode": -1, "data": "gone"},  # how Chromium tells of a failure
        {"type": "incoming", "opcode": 1, "data": "whose?"},
        {"type": "receive", "opcode": 0, "data": "the rest"},
        {"type": "receive", "opcode": 9, "data": ""},  # a ping
        {"type": "response", "opcode": 1, "data": "hi"},
    ]
    path = write(tmp_path / "x.har", socket_entry("ws://a.test/chat", *messages))
    report = import_files([path], tmp_path / "out")
    assert ["not replayed: 2 messages left out" in note for note in report.notes] == [True]
    with Snapshot.open(tmp_path / "out") as snapshot:
        (said,) = snapshot.all_metadata("http://a.test/chat")
        assert [(one["from"], one["text"]) for one in said["messages"]] == [
            ("client", "hello"),
            ("server", "hi"),
        ]
        assert said["left_out"] == 2


def test_a_web_socket_without_its_messages_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.har", socket_entry("ws://a.test/chat"), entry("http://a.test/"))
    report = import_files([path], tmp_path / "out")
    assert (report.captures, report.sockets) == (1, 0)
    assert "is a web socket without recorded messages: http://a.test/chat" in report.notes[0]


@pytest.mark.parametrize(
    ("name", "coding"), [("x.har.gz", "gzip"), ("x.zhar", "deflate"), ("x.har.zst", "zstd")]
)
def test_a_har_that_is_packed_opens(tmp_path: Path, name: str, coding: str) -> None:
    """mitmproxy packs `.zhar` by zlib."""
    write(tmp_path / "x.har", entry("http://a.test/"))
    packed = tmp_path / name
    packed.write_bytes(encode((tmp_path / "x.har").read_bytes(), coding))
    with Snapshot.open(packed) as snapshot:
        assert [c.url for c in snapshot.captures()] == ["http://a.test/"]
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DamagedInput, match=f"{name}: "):
        Snapshot.open(packed)


def test_a_line_of_a_trace_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    lines = [
        json.dumps({"type": "resource-snapshot", "snapshot": entry(f"http://a.test/{n}")}) for n in range(3)
    ]
    lines[1] = lines[1].replace('"size": 5', f'"size": {"9" * 5000}')
    with zipfile.ZipFile(tmp_path / "trace.zip", "w") as trace:
        trace.writestr("trace.network", "\n".join(lines))
    report = import_files([tmp_path / "trace.zip"], tmp_path / "out")
    assert report.captures == 2
    assert [f"offset {len(lines[0]) + 1}: line 2: can't be read: " in note for note in report.damaged] == [
        True
    ]


def test_a_trace_of_playwright_opens_with_its_bodies(tmp_path: Path) -> None:
    page = entry("http://a.test/", response={"content": {"size": 5, "_sha1": "abc.html"}})
    post = entry("http://a.test/p", request={"method": "POST", "postData": {"_sha1": "abc.html"}})
    lost = entry("http://a.test/lost", response={"content": {"size": 5, "_sha1": "none.html"}})
    lines = [json.dumps({"type": "resource-snapshot", "snapshot": one}) for one in (page, post, lost)]
    with zipfile.ZipFile(tmp_path / "trace.zip", "w") as trace:
        trace.writestr("trace.trace", '{"type":"context-options"}\n')
        trace.writestr("trace.network", "\n".join(lines[:2]))
        trace.writestr("1-trace.network", lines[2] + "\n")
        trace.writestr("resources/abc.html", "hello")
    report = import_files([tmp_path / "trace.zip"], tmp_path / "out")
    assert report.captures == 2
    assert ["none.html is missing" in note for note in report.notes] == [True]
    with Snapshot.open(tmp_path / "out") as snapshot:
        captures = {c.url: c for c in snapshot.captures()}
        assert snapshot.read(captures["http://a.test/"]).body == b"hello"
        assert snapshot.read_request(captures["http://a.test/p"]).body == b"hello"
