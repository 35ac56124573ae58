"""The redaction gate finds what is broken on purpose, and nothing in what the redactor has seen."""

import base64
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from stillweb.snapshots.capture import Exchange, Response
from stillweb.snapshots.http import encodings
from stillweb.snapshots.operations import leaks
from stillweb.snapshots.operations.leaks import in_bytes, scan
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer

KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun\n" * 3
)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
AWS = "AKIA" + "ABCDEFGHIJKLMNOP"
HTML: Headers = (("Content-Type", "text/html"),)


def leaks_of(
    path: Path, request: Request, headers: Headers, body: bytes, *, redactor: Redactor | None = None
) -> list[str]:
    if redactor is not None:
        request = redactor.request(request)
        cleaned = redactor.response(Response(200, "OK", headers, body))
        headers, body = cleaned.headers, cleaned.body
    with Writer.open(path) as writer:
        writer.exchange(
            Exchange(
                request,
                200,
                "OK",
                headers,
                body,
                datetime(2025, 1, 1, tzinfo=UTC),
                "s",
                writer.event("s"),
                writer.event("s"),
            )
        )
    with Snapshot.open(path) as snapshot:
        return [f"{leak.kind} in {leak.part}" for leak in scan(snapshot)]


FORM: Headers = (("Content-Type", "application/x-www-form-urlencoded"),)
CASES: list[tuple[str, Request, Headers, bytes]] = [
    ("private key in response body", Request("GET", "https://a.test/"), HTML, KEY.encode()),
    ("JSON web token in response body", Request("GET", "https://a.test/"), HTML, f"<script>t='{JWT}'</script>".encode()),
    ("AWS access token in response body", Request("GET", "https://a.test/"), (*HTML, ("Content-Encoding", "br")), encodings.encode(AWS.encode(), "br")),
    ("session cookie in response header Set-Cookie", Request("GET", "https://a.test/"), (*HTML, ("Set-Cookie", "sid=a8Kf93kLw02mXq; Path=/")), b"x"),
    ("session cookie in request header Cookie", Request("GET", "https://a.test/", (("Cookie", "lang=en; sid=a8Kf93kLw02mXq"),)), HTML, b"x"),
    ("credential in request header Authorization", Request("GET", "https://a.test/", (("Authorization", "Bearer abcdefgh12345"),)), HTML, b"x"),
    ("credential in request header X-API-KEY", Request("GET", "https://a.test/", (("X-API-KEY", "abcdefgh12345"),)), HTML, b"x"),
    ("value of api_key in url", Request("GET", "https://a.test/?api_key=abcdefgh12345"), HTML, b"x"),
    ("field password in request body", Request("POST", "https://a.test/", FORM, b"password=letmein99"), HTML, b"x"),
    ("session cookie in request header Cookie", Request("GET", "https://a.test/", (("Cookie", "lang=en;sid=a8Kf93kLw02mXq"),)), HTML, b"x"),
    ("value of access_token in response header Location", Request("GET", "https://a.test/"), (*HTML, ("Location", "/in#access_token=abcdefgh12345")), b"x"),
    ("password in request header Referer", Request("GET", "https://a.test/", (("Referer", "https://me:letmein99@a.test/"),)), HTML, b"x"),
    ("AWS access token in response body", Request("GET", "https://a.test/"), (*HTML, ("Content-Encoding", "gzip")), AWS.encode()),
    ("field password in request body", Request("POST", "https://a.test/", (("Content-Type", "multipart/form-data; boundary=b"),), b'--b\r\nContent-Disposition: form-data; name="password"\r\n\r\nletmein99\r\n--b--\r\n'), HTML, b"x"),
    ("member password in request body", Request("POST", "https://a.test/", (("Content-Type", "text/plain"),), b'{"password": "letmein99"}'), HTML, b"x"),
    ("member password in request body", Request("POST", "https://a.test/", (("Content-Type", "application/json"),), b'{"password": "letmein99"}'), HTML, b"x"),
    ("member password in response body", Request("GET", "https://a.test/"), (("Content-Type", "text/plain"),), b"user,password\r\nann,letmein99\r\n"),
    ("member X-Amz-Signature in response body", Request("GET", "https://a.test/"), HTML, b'<img src="/i.png?a=1&amp;X-Amz-Signature=' + sha256(b"i").hexdigest().encode() + b'">'),
]  # fmt: skip


@pytest.mark.parametrize(("leak", "request_", "headers", "body"), CASES, ids=[case[0] for case in CASES])
def test_each_kind_is_found_and_gone_after_redaction(
    tmp_path: Path, leak: str, request_: Request, headers: Headers, body: bytes
) -> None:
    assert leak in leaks_of(tmp_path / "raw", request_, headers, body)
    if (
        "private key" not in leak
    ):  # a whole file that somebody published is the gate's to report, not ours to change
        assert leaks_of(tmp_path / "clean", request_, headers, body, redactor=Redactor(b"k" * 32)) == []


def test_a_clean_snapshot_has_none(tmp_path: Path) -> None:
    request = Request(
        "GET", "https://a.test/?q=password&page=2", (("Cookie", "lang=en; theme=dark"), ("Accept", "*/*"))
    )
    assert (
        leaks_of(tmp_path / "s", request, (*HTML, ("Set-Cookie", "filter=abc")), b"<p>Choose a password</p>")
        == []
    )


def test_a_leak_tells_where_but_not_what(tmp_path: Path) -> None:
    leaks_of(tmp_path / "s", Request("GET", f"https://a.test/x?token={JWT}"), HTML, b"x")
    with Snapshot.open(tmp_path / "s") as snapshot:
        (first, *_) = scan(snapshot)
    assert JWT[:12] not in str(first)
    assert first.url == "https://a.test/x"
    assert first.file.endswith(".warc.gz")
    assert first.offset > 0


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_pieces_hide_nothing(size: int) -> None:
    data = b"x " * 3000 + JWT.encode() + b" " + AWS.encode() + b" y" * 3000
    pieces = (
        [data[i : i + size] for i in range(0, len(data), size)]
        if size > 1
        else [data[:6010], data[6010:6011], data[6011:]]
    )
    assert {kind for kind, _ in in_bytes(pieces)} == {"JSON web token", "AWS access token"}


def test_what_web_sockets_said_is_looked_through(tmp_path: Path) -> None:
    messages = [
        {"from": "client", "text": '{"password": "correct-horse-battery"}'},
        {"from": "server", "text": '{"password": "must be longer"}'},
        {"from": "server", "base64": base64.b64encode(b"\x00" + AWS.encode()).decode()},
        {"from": "server", "base64": "no base64"},
        "another tool's",
    ]
    with Writer.open(tmp_path / "s") as writer:
        fields = [["Cookie", "sid=a8Kf93kLw02mXq"], ["Upgrade", "websocket"], "another tool's"]
        record = {"url": "http://a.test/ws", "messages": messages, "close": [1000, JWT], "headers": fields}
        writer.metadata("http://a.test/ws?ticket=a8Kf93kLw02mXq", record)
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = scan(snapshot)
    assert [(leak.kind, leak.part) for leak in found] == [
        ("member password", "web socket message 1"),
        ("AWS access token", "web socket message 3"),
        ("JSON web token", "web socket message 5"),  # the reason for which it was closed
        ("session cookie", "web socket's request header Cookie"),
        ("value of ticket", "web socket's url"),
    ]
    assert {leak.url for leak in found} == {"http://a.test/ws"}


def test_the_addresses_of_a_view_are_looked_through(tmp_path: Path) -> None:
    url, key = "http://a.test/", "?access_token=a8Kf93kLw02mXq"
    with Writer.open(tmp_path / "s") as writer:
        writer.view(View(url + key, url + key, f"{url}home{key}", "A"), {"dom": b"<p>a</p>"})
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [(leak.kind, leak.part) for leak in scan(snapshot)] == [
            ("value of access_token", "view's url")
        ]


def test_a_body_of_nothing_but_secrets_is_searched_until_enough_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaks, "MOST", 3)
    keys = [f"ghp_{sha256(b'%d' % number).hexdigest()[:36]}" for number in range(9)]
    found = leaks_of(tmp_path / "s", Request("GET", "http://a.test/"), HTML, " ".join(keys).encode())
    assert len(found) <= 4
    assert any("more than 3 secrets; the rest is not searched" in one for one in found)
