"""A secret that is learned after it was stored is found, noted, and keeps the snapshot from being sealed."""

import base64
import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stillweb.snapshots.capture import Exchange, Response
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.support.command_line import stillweb

TOKEN = "tok-9d8f7a6s5d4f3a2s1d0f9a8s7d6f5a4s"
HTML: Headers = (("Content-Type", "text/html"),)
JSON: Headers = (("Content-Type", "application/json"),)


def record(path: Path, redactor: Redactor, *, first: bytes, headers: Headers = HTML) -> None:
    """A page and its view, and then the answer that gives the token its name."""
    with Writer.open(path) as writer:
        for number, (url, fields, body) in enumerate(
            [("http://a.test/", headers, first), ("http://a.test/token", JSON, f'{{"access_token": "{TOKEN}"}}'.encode())]
        ):  # fmt: skip
            cleaned = redactor.response(Response(200, "OK", fields, body))
            writer.exchange(
                Exchange(Request("GET", url), 200, "OK", cleaned.headers, cleaned.body,
                         datetime(2025, 1, 1, tzinfo=UTC), "s", 2 * number + 1, 2 * number + 2)
            )  # fmt: skip
            if number == 0:
                view = View("http://a.test/", "http://a.test/", "http://a.test/", "A", ())
                writer.view(view, {"text": f"your code: {TOKEN}".encode(), "dom": b"<p>nothing</p>"})


def test_what_a_web_socket_said_before_a_secret_was_known_is_named(tmp_path: Path) -> None:
    redactor = Redactor(b"k" * 32)
    packed = base64.b64encode(b"\x00" + TOKEN.encode()).decode()
    for name, said in (
        ("text", {"text": f"your code: {TOKEN}"}),
        ("bytes", {"base64": packed}),
        ("no", {"text": ""}),
    ):
        with Writer.open(tmp_path / "s") as writer:
            url = f"http://a.test/{name}?ticket=1"
            writer.metadata(url, {"url": url, "messages": [{"from": "server", **said}]})
    redactor.learn(TOKEN)
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = late_secrets.find(snapshot, redactor)
    assert [(one.part, one.url) for one in found] == [
        ("web socket's messages", "http://a.test/bytes"),
        ("web socket's messages", "http://a.test/text"),
    ]
    assert TOKEN not in "".join(map(str, found))


def test_what_was_stored_before_a_secret_was_known_is_named(tmp_path: Path) -> None:
    redactor = Redactor(b"k" * 32)
    packed = (*HTML, ("Content-Encoding", "gzip"))
    record(tmp_path / "s", redactor, first=gzip.compress(f"<p>{TOKEN}</p>".encode()), headers=packed)
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = late_secrets.find(snapshot, redactor)
    assert [(one.part, one.url) for one in found] == [
        ("response body", "http://a.test/"),
        ("view's text", "http://a.test/"),
    ]
    assert TOKEN not in "".join(map(str, found))
    late_secrets.add_late_secrets(tmp_path / "s", found)
    late_secrets.add_late_secrets(tmp_path / "s", found)
    assert late_secrets.read_late_secrets(tmp_path / "s") == found
    refused = stillweb("seal", tmp_path / "s")
    assert refused.code == 1
    assert "view's text of http://a.test/" in refused.err
    assert "anew" not in refused.err  # it would come the same way again
    assert not (tmp_path / "s.wacz").exists()
    sealed = stillweb("seal", tmp_path / "s", "--keep-secrets")
    assert sealed.code == 0, sealed.err


def test_a_body_that_is_not_what_its_encoding_says_is_looked_through(tmp_path: Path) -> None:
    redactor = Redactor(b"k" * 32)
    packed = (*HTML, ("Content-Encoding", "gzip"))
    record(tmp_path / "s", redactor, first=f"<p>{TOKEN}</p>".encode(), headers=packed)
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert "response body" in [one.part for one in late_secrets.find(snapshot, redactor)]


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    redactor = Redactor(b"k" * 32)
    record(tmp_path / "s", redactor, first=b"<p>nothing secret</p>")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [one.part for one in late_secrets.find(snapshot, redactor)] == ["view's text"]
        assert late_secrets.find(snapshot, Redactor(b"k" * 32)) == []
    assert late_secrets.read_late_secrets(tmp_path / "s") == []
    late_secrets.add_late_secrets(tmp_path / "s", [])
    assert not (tmp_path / "s" / late_secrets.FILE).exists()


def test_a_damaged_note_is_said(tmp_path: Path) -> None:
    (tmp_path / "stillweb").mkdir()
    (tmp_path / late_secrets.FILE).write_text("{]")
    with pytest.raises(DamagedInput, match="is not a list of records"):
        late_secrets.read_late_secrets(tmp_path)
