"""No record of a snapshot holds a secret that its own pages showed, and the pages are the same again in replay."""

import gzip
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.steps import Flow, parse_steps
from stillweb.proxy.check.check import check
from stillweb.proxy.explore.explorer import Explorer, Limits
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

TOKEN = "q7Zp2LmV9xKc4TbN8sRd1WfY6hJg3EaU"
KEY = "sk-proj-" + "A1b2C3d4E5f6G7h8J9k0L1m2N3"
PASSWORD = "correct horse 7 staple"
LINKED = "Xy7Kd02mPq94LsVb"
SECRETS = (TOKEN, KEY, PASSWORD, LINKED, PASSWORD.replace(" ", "+"), PASSWORD.replace(" ", "%20"))

HOME = b"""<!doctype html><title>Account</title><h1>Account</h1>
<p id=token>none</p><p>Key: <input id=shown size=60></p><div id=host></div>
<button onclick="document.getElementById('more').textContent = 'Yours is ' + token">Show again</button><p id=more></p>
<script>
let token = "";
fetch("/api/me").then((r) => r.json()).then((me) => {
  token = me.session_token;
  document.getElementById("token").textContent = "Token: " + token;
  document.getElementById("shown").value = me.key;
  document.getElementById("host").attachShadow({mode: "open"}).innerHTML = "<b>" + me.key + "</b>";
  document.title = "Account " + token;
});
</script>"""
LOGIN = (
    b"""<!doctype html><title>Mills</title><p>"""
    + b"A mill by the water, with a wheel. " * 12
    + b"""</p><form method=post action=/login>
<label>Name <input name=name></label><label>Word <input type=password name=word></label><button>Log in</button></form>"""
)


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/api/me":
        me = json.dumps({"session_token": TOKEN, "key": KEY}).encode()
        return 200, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, gzip.compress(me)
    if path == "/login" and method == "POST":
        right = parse_qs(body.decode()).get("word") == [PASSWORD]
        page = b"<title>In</title><p>Welcome</p>" if right else b"<title>Out</title><p>Wrong</p>"
        return 200, {"Content-Type": "text/html"}, page
    if path.startswith("/login"):
        return 200, {"Content-Type": "text/html"}, LOGIN
    return 200, {"Content-Type": "text/html"}, HOME


def records(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every byte string of a sealed snapshot, unpacked as far as it goes."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            yield name, data
            while data[:2] == b"\x1f\x8b":
                member = zlib.decompressobj(31)
                plain = member.decompress(data) + member.flush()
                yield name, plain
                yield name, _body(plain)
                data = member.unused_data


def _body(record: bytes) -> bytes:
    """A packed body, unpacked. It begins right after a head: the magic alone also stands inside pictures."""
    at = record.find(b"\r\n\r\n\x1f\x8b\x08")
    return zlib.decompressobj(31).decompress(record[at + 4 :]) if at >= 0 else b""


def record(folder: Path, *, redact: bool = True) -> tuple[list[FetchResult], str, Authority]:
    authority = Authority.load_or_create(folder / "state")
    profile = complete(Profile())
    with serve(answer) as base:
        with (
            Writer.open(folder / "snap", profile=profile) as writer,
            Recorder(writer, authority=authority, redact=redact) as recorder,
        ):
            flows = [
                Flow(f"{base}/?access_token={LINKED}", parse_steps("- click: Show again")),
                Flow(
                    f"{base}/login",
                    parse_steps(f"""
- fill: {{label: Name, value: ada}}
- fill: {{label: Word, value: {PASSWORD}}}
- click: {{role: button, name: Log in}}
"""),
                ),
            ]
            results = Fetcher(recorder, writer, profile).fetch([], flows)
            Explorer(recorder, writer, profile, limits=Limits(views=4, depth=1)).explore(f"{base}/account")
        seal(folder / "snap", folder / "snap.wacz", state=authority.directory)
    return results, base, authority


@pytest.mark.slow
def test_no_record_holds_what_the_pages_showed(tmp_path: Path) -> None:
    results, _, authority = record(tmp_path)
    assert [one.error for one in results] == [None, None]
    for name, data in records(tmp_path / "snap.wacz"):
        for secret in SECRETS:
            assert secret.encode() not in data, (name, secret, data[:400])
    notes = " ".join(results[0].notes)
    assert "showed a secret" in notes
    assert results[1].notes == ["secrets that were filled in are kept as pseudonyms in the steps"]
    with Snapshot.open(tmp_path / "snap.wacz") as snapshot:
        assert len(snapshot.views()) >= 6
        shown = snapshot.view(results[0].views[1])
        assert shown is not None
        text = (snapshot.resource("text", shown.address) or b"").decode()
        assert "Yours is stillweb-secret-" in text
        last = snapshot.view(results[1].views[-1])
        assert last is not None
        assert last.title == "In"
        with Gateway(snapshot, authority=authority) as gateway:
            report = check(snapshot, gateway)
    for view in report.views:
        found = (view.error, view.missed, view.text, view.aria, view.pixels)
        assert found == (None, [], 1.0, 1.0, 1.0), (view.address, found, view.text_changes)


@pytest.mark.slow
def test_without_redaction_all_is_kept_as_it_was(tmp_path: Path) -> None:
    results, _, _ = record(tmp_path, redact=False)
    assert results[0].notes == []
    everything = b"".join(data for _, data in records(tmp_path / "snap.wacz"))
    for secret in (TOKEN, KEY, PASSWORD, LINKED):
        assert secret.encode() in everything
    with Snapshot.open(tmp_path / "snap.wacz") as snapshot:
        assert TOKEN.encode() in (snapshot.resource("text", results[0].views[1]) or b"")


@pytest.mark.parametrize("value", ["plain", {"a": ["b", 1, None]}])
def test_a_veil_without_a_redactor_changes_nothing(value: object) -> None:
    from stillweb.proxy.browser.page_snapshot import ViewRedactor

    assert ViewRedactor(None).json(value) is value
