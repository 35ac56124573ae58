"""HAR files as browsers and tools write them."""

import base64
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.operations.importing import import_files, notes_on_left_out
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))


def entry(url: str, **changes: Any) -> dict[str, Any]:
    """An entry with a short text as its body."""
    request = {
        "method": "GET",
        "url": url,
        "httpVersion": "HTTP/2.0",
        "headers": [{"name": ":authority", "value": "x"}, {"name": "Accept", "value": "*/*"}],
        "bodySize": 0,
    }
    response = {
        "status": 200,
        "statusText": "OK",
        "httpVersion": "HTTP/2.0",
        "headers": [
            {"name": "Content-Type", "value": "text/plain"},
            {"name": "Content-Encoding", "value": "br"},
            {"name": "Set-Cookie", "value": "a=1\nb=2"},
        ],
        "content": {"size": 5, "mimeType": "text/plain", "text": "hello"},
    }
    return {
        "startedDateTime": changes.get("at", "2025-01-02T03:04:05.678+01:00"),
        "time": changes.get("time", 12.5),
        "serverIPAddress": "[::1]",
        "request": {**request, **changes.get("request", {})},
        "response": {**response, **changes.get("response", {})},
    }


def write(path: Path, *entries: dict[str, Any], bom: bool = False) -> Path:
    text = json.dumps({"log": {"version": "1.2", "creator": {}, "entries": list(entries)}})
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    return path


@pytest.mark.parametrize(
    "told",
    [
        1735783445678,
        1735783445.678,
        "1735783445678",
        "2025-01-02t02:04:05.678z",
        "Thu, 02 Jan 2025 02:04:05 GMT",
        "Thu Jan 02 2025 03:04:05 GMT+0100 (CET)",
    ],
)
def test_dates_are_read_as_programs_write_them(tmp_path: Path, told: object) -> None:
    with Snapshot.open(write(tmp_path / "x.har", entry("http://example.test/", at=told))) as snapshot:
        assert [c.timestamp[:14] for c in snapshot.captures()] == ["20250102020405"]


@pytest.mark.parametrize(
    "told", [None, "", "1/2/2025, 3:04:05 AM", "Invalid Date", "0001-01-01T00:00:00+09:00", {}]
)
def test_an_entry_without_a_date_comes_after_the_one_before_it(tmp_path: Path, told: object) -> None:
    urls = [f"http://example.test/{n}" for n in range(4)]
    first, *others = (entry(url, at=told) for url in urls[:3])
    last = entry(urls[3])
    report = import_files([write(tmp_path / "x.har", first, last, *others)], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        captures = sorted(snapshot.captures(), key=lambda one: one.begin)
        assert [one.url for one in captures] == [urls[0], urls[3], urls[1], urls[2]]
        assert {one.timestamp[:14] for one in captures} == {"20250102020405"}
    assert "3 entries without a date that can be read" in report.notes[0]


@pytest.mark.parametrize("bom", [False, True])
def test_a_har_is_opened_like_any_archive(tmp_path: Path, bom: bool) -> None:
    path = write(tmp_path / "x.har", entry("http://example.test/#top"), bom=bom)
    with Snapshot.open(path) as snapshot:
        capture = next(snapshot.captures())
        answer = snapshot.read(capture)
        assert (capture.url, capture.timestamp, capture.protocol) == (
            "http://example.test/",
            "20250102020405678",
            "h2",
        )
        assert answer.body == b"hello"
        assert answer.header("content-encoding") is None
        assert answer.header("content-length") == "5"
        assert [v for n, v in answer.headers if n == "Set-Cookie"] == ["a=1", "b=2"]
        assert snapshot.read_request(capture).headers == (("Accept", "*/*"),)
        first = snapshot.id
    with Snapshot.open(path) as snapshot:  # from the cache now
        assert snapshot.id == first


def test_bodies_in_base64_and_in_files(tmp_path: Path) -> None:
    raw = bytes(range(256))
    (tmp_path / "body.bin").write_bytes(raw)
    (tmp_path.parent / "secret.txt").write_text("secret")
    content = {"size": 256, "mimeType": "x", "text": base64.b64encode(raw).decode(), "encoding": "base64"}
    path = write(
        tmp_path / "x.har",
        entry("http://example.test/1", response={"content": content}),
        entry("http://example.test/2", response={"content": {"size": 256, "_file": "body.bin"}}),
        entry("http://example.test/3", response={"content": {"size": 6, "_file": "../secret.txt"}}),
        entry("http://example.test/4", response={"content": {"size": 6, "_file": "missing.bin"}}),
    )
    report = import_files([path], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert {c.url: snapshot.read(c).body for c in snapshot.captures()} == {
            "http://example.test/1": raw,
            "http://example.test/2": raw,
        }
    assert "lies outside" in report.notes[0]
    assert "is missing" in report.notes[1]


def test_what_the_network_failed_is_taken_as_that(tmp_path: Path) -> None:
    """As Chromium exports it and as Playwright writes it; what was blocked, or given up, is no failure of the network."""
    path = write(
        tmp_path / "x.har",
        entry("http://dead.test/a", response={"status": 0, "_error": "net::ERR_NAME_NOT_RESOLVED"}),
        entry("http://dead.test/b", response={"status": -1, "_failureText": "net::ERR_CONNECTION_REFUSED"}),
        entry("http://dead.test/c", response={"status": 0, "_error": "net::ERR_BLOCKED_BY_CLIENT"}),
        entry("http://dead.test/d", response={"status": -1, "_failureText": "net::ERR_ABORTED"}),
        entry("http://dead.test/e"),
    )
    with Snapshot.open(path) as snapshot:
        found = [(one.request.url, one.reason) for one in snapshot.failures()]
        assert found == [("http://dead.test/a", "dns"), ("http://dead.test/b", "refused")]
        assert len(notes_on_left_out(snapshot)) == 2
    report = import_files([path], tmp_path / "s")
    assert (report.captures, report.failures) == (1, 2)


def test_what_has_no_body_is_left_out_and_said(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.har",
        entry("http://example.test/lost", response={"content": {"size": 9, "mimeType": "x"}}),
        entry("http://example.test/blocked", response={"status": 0}),
        entry("http://example.test/sent", request={"method": "POST", "bodySize": 4}),
        entry("data:text/plain,x"),
        entry("http://example.test/head", response={"headers": [{"name": "X", "value": "x" * (1 << 20)}]}),
        entry(f"http://example.test/{'x' * (1 << 20)}"),
        entry("http://example.test/?\r\nWARC-Target-URI: http://other.test/"),
        {"request": {}},
        entry("http://example.test/none", response={"status": 204, "content": {"size": 0}}),
        entry("http://example.test/kept", response={"status": 304, "content": {"size": 0}, "bodySize": 9}),
    )
    report = import_files([path], tmp_path / "s")
    assert report.captures == 2
    for part in (
        "its body is not in",
        "got no answer",
        "the body of its request",
        "not an HTTP exchange",
        "can't be read",
        "'http://example.test/head': can't be kept: its URL and header fields are more than",
        "x': can't be kept: its URL and header fields are more than",
        "other.test/': can't be kept: its URL or session holds a line's end",
    ):
        assert any(part in note for note in report.notes), part
    assert verify(tmp_path / "s") == []


@pytest.mark.parametrize("content", ['{"log": {"entries": [{"request": {}}]}}', '{"log": {"ent', "junk"])
def test_where_nothing_can_be_taken_nothing_is_left_behind(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.har").write_text(content)
    with pytest.raises(DamagedInput, match=r"x\.har"):
        import_files([tmp_path / "x.har"], tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_posted_data(tmp_path: Path) -> None:
    form = {
        "mimeType": "application/x-www-form-urlencoded",
        "params": [{"name": "a", "value": "b&c"}, {"name": "d"}],
    }
    text = {"mimeType": "application/json", "text": '{"a":"é"}'}
    # as Charles tells what `curl -d` sends
    json_in_form = {"mimeType": form["mimeType"], "params": [{"name": '{"a":"b c"}', "value": ""}]}
    path = write(
        tmp_path / "x.har",
        entry("http://example.test/1", request={"method": "post", "postData": form}),
        entry("http://example.test/2", request={"method": "POST", "postData": text}),
        entry("http://example.test/3", request={"method": "POST", "postData": json_in_form, "bodySize": 11}),
    )
    with Snapshot.open(path) as snapshot:
        sent = {c.url[-1]: snapshot.read_request(c) for c in snapshot.captures()}
        assert (sent["1"].method, sent["1"].body) == ("POST", b"a=b%26c&d=")
        assert sent["2"].body == '{"a":"é"}'.encode()
        assert sent["3"].body == b'{"a":"b c"}'
        assert [sent[one].header("content-type") for one in "12"] == [form["mimeType"], text["mimeType"]]


def test_events_follow_from_times(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.har",
        entry("http://example.test/3", at="2025-01-02T03:04:07Z", time=0),
        entry("http://example.test/1", at="2025-01-02T03:04:05Z", time=1500),
        entry("http://example.test/2", at="2025-01-02T03:04:06Z", time=1000),
    )
    with Snapshot.open(path) as snapshot:
        assert {c.url[-1]: (c.begin, c.end) for c in snapshot.captures()} == {
            "1": (1, 3),
            "2": (2, 4),
            "3": (5, 6),
        }


@pytest.mark.parametrize("data", [b"{", b'{"log":{}}', b'{"log":{"entries":3}}', b'{"log": "\xff"}'])
def test_what_is_no_har_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.har").write_bytes(data)
    with pytest.raises(DamagedInput, match=r"x\.har: is not a HAR"):
        Snapshot.open(tmp_path / "x.har")


def test_of_json_that_is_something_else_is_told_what_a_har_has(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "question": "?"}\n')
    with pytest.raises(
        DamagedInput, match=r"tasks\.jsonl: is not a HAR, the only JSON .*: it has no member 'log'"
    ):
        Snapshot.open(tmp_path / "tasks.jsonl")


def test_importing_snapshots_loads_no_heavy_packages() -> None:
    code = (
        "import sys, stillweb.snapshots.importers.flows, stillweb.snapshots.snapshot, stillweb.snapshots.writer\n"
        "heavy = {'mitmproxy', 'playwright', 'trafilatura', 'lxml', 'tantivy', 'surt'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"time": "12ms"}, "could not convert"),
        ({"time": 1e300}, "too large"),
        ({"response": {"status": float("inf")}}, "infinity"),
        ({"response": {"content": {"encoding": "base64", "text": "-_-_"}}}, "its body is not base64"),
        ({"response": {"content": {"size": 1000, "text": ""}}}, "its body is not in the HAR"),
        (
            {"request": {"method": "POST", "bodySize": 9, "postData": {"mimeType": "x/y"}}},
            "the body of its request is not in the HAR",
        ),
    ],
)
def test_an_entry_that_lacks_what_it_had_is_left_out(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    path = write(
        tmp_path / "x.har", entry("http://example.test/1"), entry("http://example.test/2", **changes)
    )
    report = import_files([path], tmp_path / "out")
    assert report.captures == 1
    assert len(report.notes) == 1
    assert why in report.notes[0]


def test_base64_may_have_line_breaks(tmp_path: Path) -> None:
    content = {"encoding": "base64", "text": "aGVs\nbG8=\n"}
    path = write(tmp_path / "x.har", entry("http://example.test/1", response={"content": content}))
    with Snapshot.open(path) as snapshot:
        (capture,) = snapshot.captures()
        assert snapshot.read(capture).body == b"hello"


def test_json_too_deep_to_read_is_told_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.har"
    path.write_text('{"log":{"entries":' + "[" * 200_000 + "]" * 200_000 + "}}")
    with pytest.raises(DamagedInput, match="is not a HAR"):
        Snapshot.open(path)


@pytest.mark.parametrize("harm", ["cut", "within a letter", "bracket", "behind"])
def test_of_a_damaged_har_the_whole_entries_before_are_taken(tmp_path: Path, harm: str) -> None:
    french = {"content": {"size": 6, "mimeType": "text/plain", "text": "hell\u00e9"}}
    path = tmp_path / "x.har"
    entries = [entry(f"http://example.test/{n}", response=french) for n in range(3)]
    text = json.dumps(
        {"log": {"creator": {"name": 'a "entries": ['}, "entries": entries}}, ensure_ascii=False
    )
    data = text.encode()
    last = data.rindex(b'{"startedDateTime"')
    whole, reached = 2, last
    if harm == "cut":
        data = data[: last + 300]
    elif harm == "within a letter":
        data = data[: data.rindex("\u00e9".encode()) + 1]
    elif harm == "bracket":
        data = data.removesuffix(b"}]}}") + b"]}}"
    else:
        data, whole, reached = data[:-2], 3, len(data) - 3
    path.write_bytes(data)
    with Snapshot.open(path) as snapshot:
        assert [c.url[-1] for c in snapshot.captures()] == [str(n) for n in range(whole)]
        assert {snapshot.read(c).body.decode() for c in snapshot.captures()} == {"hell\u00e9"}
        (note,) = notes_on_left_out(snapshot)
    assert f"what follows {whole} whole entries is left out" in note
    (problem,) = verify(path)
    assert (problem.check, problem.file, problem.offset) == ("record", str(path), reached)
    report = import_files([path], tmp_path / "s")
    assert (report.captures, report.damaged) == (whole, [note])
    assert verify(tmp_path / "s") == []


@pytest.mark.parametrize("bad", ["9" * 5000, "[" * 100_000 + "]" * 100_000, '"]}\\"\0"', "undefined"])
def test_an_entry_that_cannot_be_read_hides_no_other(tmp_path: Path, bad: str) -> None:
    path = write(tmp_path / "x.har", *(entry(f"http://example.test/{n}", at=n) for n in range(4)))
    text = path.read_text()
    at = [n for n in range(len(text)) if text.startswith('{"startedDateTime"', n)]
    for n in (2, 1):
        text = text[: at[n]] + text[at[n] :].replace('"size": 5', f'"size": {bad}', 1)
    path.write_text(text)
    report = import_files([path], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [c.url[-1] for c in snapshot.captures()] == ["0", "3"]
    first, second = report.damaged
    assert f"{path}: offset {at[1]}: entry 1: can't be read: " in first
    assert "entry 2: can't be read: " in second
    assert report.notes == report.damaged
    assert [(p.check, p.offset) for p in verify(path)][:1] == [("record", at[1])]


def test_an_entry_of_another_form_counts_as_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "x.har", *(entry(f"http://example.test/{n}", at=n) for n in range(2)))
    path.write_text(path.read_text().replace('"size": 5', '"size": [5]', 1))
    report = import_files([path], tmp_path / "s")
    assert report.captures == 1
    assert report.damaged == [f"{path}: entry 0: can't be read: size: must be a number, not '[5]'"]


def zipped(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name.replace("_", "."), data)
    return path


def test_what_was_posted_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    """As Playwright writes it with record_har_content="attach", where `text` is empty."""
    posted = {"mimeType": "application/json", "text": "", "params": [], "_file": "sent.json"}
    asked = {"method": "POST", "bodySize": 9, "postData": posted}
    path = write(tmp_path / "x.har", entry("http://example.test/api", request=asked))
    with Snapshot.open(path) as snapshot:
        assert list(snapshot.captures()) == []
    (tmp_path / "cache").rename(tmp_path / "other cache")
    (tmp_path / "sent.json").write_bytes(b'{"q": 12}')
    with Snapshot.open(path) as snapshot:
        (capture,) = snapshot.captures()
        assert snapshot.read_request(capture).body == b'{"q": 12}'


def test_a_har_is_opened_in_the_zip_that_playwright_writes(tmp_path: Path) -> None:
    asked = {"method": "POST", "bodySize": 9, "postData": {"text": "", "_file": "sent.json"}}
    answered = {"content": {"size": 5, "mimeType": "text/plain", "_file": "body.txt"}}
    page = entry("http://example.test/api", request=asked, response=answered)
    lost = entry("http://example.test/lost", response={"content": {"_file": "../x.har"}})
    har = write(tmp_path / "x.har", page, lost).read_bytes()
    path = zipped(tmp_path / "x.zip", har_har=har, sent_json=b'{"q": 12}', body_txt=b"hello")
    with Snapshot.open(path) as snapshot:
        (capture,) = snapshot.captures()
        assert snapshot.read_request(capture).body == b'{"q": 12}'
        with snapshot.open_body(capture) as body:
            assert body.read() == b"hello"
        (note,) = notes_on_left_out(snapshot)
        assert "entry 1: its body file ../x.har is missing" in note
    assert import_files([path], tmp_path / "site").captures == 1
    two = zipped(tmp_path / "two.zip", a_har=har, b_har=har)
    with pytest.raises(DamagedInput, match="a zip of several HARs"):
        Snapshot.open(two)


def test_a_folder_that_macos_packed_is_opened(tmp_path: Path) -> None:
    har = write(
        tmp_path / "x.har", entry("http://example.test/", response={"content": {"_file": "body.txt"}})
    )
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as out:
        out.write(har, "site/x.har")
        out.writestr("site/body.txt", b"hello")
        out.writestr("__MACOSX/site/._x.har", b"\x00\x05\x16\x07")
    assert import_files([tmp_path / "x.zip"], tmp_path / "s").captures == 1


def test_schemes_in_capitals_and_fields_of_null(tmp_path: Path) -> None:
    one = entry("HTTP://EXAMPLE.test/Page", response={"headers": [{"name": "X-Empty", "value": None}]})
    import_files([write(tmp_path / "x.har", one)], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        (capture,) = snapshot.captures()
        assert capture.url == "http://EXAMPLE.test/Page"
        assert ("X-Empty", "") in snapshot.read(capture).headers


def test_a_tunnel_is_left_out_and_said(tmp_path: Path) -> None:
    """Fiddler and Charles list what they did not decrypt, with a text of their own for its body."""
    tunnel = entry("https://example.test:443", request={"method": "CONNECT"})
    report = import_files(
        [write(tmp_path / "x.har", tunnel, entry("http://example.test/"))], tmp_path / "out"
    )
    assert (report.captures, len(report.notes)) == (1, 1)


def test_the_events_of_a_stream_are_its_body(tmp_path: Path) -> None:
    events = [
        {"time": 1, "eventName": "message", "eventId": "7", "data": "one\ntwo"},
        {"time": 2, "eventName": "price", "eventId": "", "data": "3"},
    ]
    answer = {"headers": [{"name": "Content-Type", "value": "text/event-stream"}], "content": {"size": 40}}
    stream = entry("http://example.test/live", response=answer) | {"_eventSourceMessages": events}
    with Snapshot.open(write(tmp_path / "x.har", stream)) as snapshot:
        body = snapshot.read(next(snapshot.captures())).body
        assert body == b"id: 7\ndata: one\ndata: two\n\nevent: price\ndata: 3\n\n"


@pytest.mark.parametrize("length", ["115", "400", None])
def test_the_fields_of_a_form_are_its_parts(tmp_path: Path, length: str | None) -> None:
    """Nothing is made up where the request was longer than its fields."""
    posted = {"mimeType": "multipart/form-data; boundary=x1", "params": [{"name": "q", "value": "tea"}, {"name": "n", "value": ""}]}  # fmt: skip
    headers = [{"name": "Content-Length", "value": length}] if length else []
    sent = {"method": "POST", "postData": posted, "headers": headers}
    report = import_files(
        [
            write(
                tmp_path / "x.har",
                entry("http://example.test/", request=sent),
                entry("http://example.test/1"),
            )
        ],
        tmp_path / "out",
    )
    assert report.captures == 1 + (length != "400")
    with Snapshot.open(tmp_path / "out") as snapshot:
        for capture in (one for one in snapshot.captures() if one.method == "POST"):
            body = snapshot.read_request(capture).body
            assert body.count(b"--x1\r\n") == 2
            assert b'name="q"\r\n\r\ntea\r\n' in body


def test_what_stands_beside_the_header_fields_becomes_one(tmp_path: Path) -> None:
    """Some tools tell a redirect's target and cookies in their own members alone."""
    cookie = {"name": "lang", "value": "de", "path": "/", "expires": "2025-02-01T00:00:00Z", "httpOnly": True}
    response = {"status": 302, "headers": [], "redirectURL": "/next", "cookies": [cookie], "content": {}}
    one = entry(
        "http://example.test/",
        request={"headers": [], "cookies": [{"name": "a", "value": "1"}]},
        response=response,
    )
    other = entry("http://example.test/b", response={"redirectURL": "/next", "cookies": [cookie]})
    with Snapshot.open(write(tmp_path / "x.har", one, other)) as snapshot:
        first, second = snapshot.captures()
        answer = snapshot.read(first)
        assert answer.header("location") == "/next"
        assert (
            answer.header("set-cookie") == "lang=de; Expires=Sat, 01 Feb 2025 00:00:00 GMT; Path=/; HttpOnly"
        )
        assert snapshot.read_request(first).header("cookie") == "a=1"
        plain = snapshot.read(second)
        assert plain.header("location") is None  # it is no redirect
        assert [v for n, v in plain.headers if n == "Set-Cookie"] == ["a=1", "b=2"]


def test_a_query_that_stands_beside_its_address_alone_is_a_part_of_that(tmp_path: Path) -> None:
    pairs = [{"name": "q", "value": "tea & rum"}, {"name": "of", "value": "a%2Fb"}, {"name": "all"}]
    alone = entry("http://example.test/s", request={"queryString": pairs})
    both = entry("http://example.test/s?q=x", request={"queryString": [{"name": "q", "value": "x"}]})
    with Snapshot.open(write(tmp_path / "x.har", alone, both)) as snapshot:
        assert [c.url.partition("/s")[2] for c in snapshot.captures()] == [
            "?q=tea%20%26%20rum&of=a%2Fb&all",
            "?q=x",
        ]


def test_a_har_in_utf16_opens(tmp_path: Path) -> None:
    """PowerShell writes what it redirects so."""
    text = json.dumps({"log": {"entries": [entry("http://example.test/")]}})
    (tmp_path / "x.har").write_bytes(text.encode("utf-16"))
    with Snapshot.open(tmp_path / "x.har") as snapshot:
        assert [c.url for c in snapshot.captures()] == ["http://example.test/"]
