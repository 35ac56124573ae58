"""Real clients record through the command line, and with the origin stopped they get the same bytes again."""

import gzip
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import brotli
import pytest

from stillweb.proxy.browser.browser import find_browser
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.ledger import misses, read
from stillweb.snapshots import Snapshot
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.recordings import recorded
from tests.support.command_line import stillweb

pytestmark = pytest.mark.timeout(900)

TEXT = ("<p>What was packed on its way is unpacked to the same text. " * 2000).encode()
PACKED = {"gzip": gzip.compress(TEXT, 6, mtime=1), "br": brotli.compress(TEXT, quality=5)}
HTML = [("Content-Type", "text/html; charset=utf-8")]
SECURE, PLAIN = "https://demo.example", "http://plain.example"


def answer(asked: Asked) -> Answer:
    path = asked.path
    if path.startswith("/packed/"):
        coding = path.rpartition("/")[2]
        offered = [c.strip() for c in (asked.header("Accept-Encoding") or "").split(",")]
        if coding in offered:
            return Answer(headers=[*HTML, ("Content-Encoding", coding)], body=PACKED[coding])
        return Answer(headers=HTML, body=TEXT)
    match path:
        case "/moved":
            return Answer(302, [("Location", f"{PLAIN}/end?a=1&b=%C3%BC")], b"moved")
        case "/json":
            got = json.loads(asked.body)
            return Answer(
                headers=[("Content-Type", "application/json")],
                body=json.dumps({"sum": sum(got["numbers"]), "name": got["name"]}).encode(),
            )
        case "/bytes":
            return Answer(
                headers=[("Content-Type", "application/octet-stream")], body=bytes(range(256)) * 500
            )
        case "/page":
            return Answer(headers=HTML, body=PAGE)
    return Answer(headers=[("Content-Type", "text/plain")], body=f"{asked.method} {path}".encode())


# What each client asks for; its program prints a line of JSON for each: status, final URL, SHA-256 of the body.
GETS = [
    f"{SECURE}/packed/gzip", f"{SECURE}/packed/br", f"{PLAIN}/packed/gzip", f"{PLAIN}/packed/br",
    f"{SECURE}/moved", f"{PLAIN}/bytes", f"{SECURE}/bytes", f"{PLAIN}/text?q=a+b&q=%20",
]  # fmt: skip
POSTS = [f"{SECURE}/json", f"{PLAIN}/json"]
BODY = json.dumps({"name": "h\u00fcl\u2603", "numbers": [1, 2.5, 3]}, ensure_ascii=False)
ANSWERS = {
    **{url: TEXT for url in GETS if "packed" in url},
    **{url: bytes(range(256)) * 500 for url in GETS if "bytes" in url},
    f"{SECURE}/moved": b"GET /end?a=1&b=%C3%BC",
    f"{PLAIN}/text?q=a+b&q=%20": b"GET /text?q=a+b&q=%20",
    **{url: json.dumps({"sum": 6.5, "name": "h\u00fcl\u2603"}).encode() for url in POSTS},
}
FINAL = {f"{SECURE}/moved": f"{PLAIN}/end?a=1&b=%C3%BC"}
EXPECTED = [[200, FINAL.get(u, u), hashlib.sha256(ANSWERS[u]).hexdigest()] for u in [*GETS, *POSTS]]

PYTHON = """
import hashlib, json, sys, {name}
gets, posts, body = json.loads(sys.argv[1])
headers = {{"Content-Type": "application/json", "User-Agent": "Mozilla/5.0"}}
with {client} as client:
    for url in gets:
        r = client.get(url)
        print(json.dumps([r.status_code, str(r.url), hashlib.sha256(r.content).hexdigest()]))
    for url in posts:
        r = client.post(url, data=body.encode(), headers=headers)
        print(json.dumps([r.status_code, str(r.url), hashlib.sha256(r.content).hexdigest()]))
"""
NODE = """
const { createHash } = require('crypto');
const [gets, posts, body] = JSON.parse(process.argv[1]);
const show = async (r) => console.log(JSON.stringify(
  [r.status, r.url, createHash('sha256').update(Buffer.from(await r.arrayBuffer())).digest('hex')]));
(async () => {
  for (const url of gets) await show(await fetch(url));
  for (const url of posts) {
    await show(await fetch(url, { method: 'POST', body, headers: { 'Content-Type': 'application/json' } }));
  }
})();
"""
CURL = """
import hashlib, json, subprocess, sys
gets, posts, body = json.loads(sys.argv[1])
ask = ["curl", "-sSL", "--compressed", "-w", "\\n%{http_code} %{url_effective}"]
for url in [*gets, *posts]:
    more = ["--json", body] if url in posts else []
    out = subprocess.run([*ask, *more, url], check=True, capture_output=True).stdout
    content, _, end = out.rpartition(b"\\n")
    status, final = end.decode().split(" ", 1)
    print(json.dumps([int(status), final, hashlib.sha256(content).hexdigest()]))
"""
ASKED = json.dumps([GETS, POSTS, BODY])
CLIENTS = {
    "curl": [sys.executable, "-c", CURL, ASKED],
    "requests": [sys.executable, "-c", PYTHON.format(name="requests", client="requests.Session()"), ASKED],
    "httpx": [
        sys.executable,
        "-c",
        PYTHON.format(name="httpx", client="httpx.Client(http2=True, follow_redirects=True)").replace(
            "data=", "content="
        ),
        ASKED,
    ],
    "node": ["node", "-e", NODE, "--", ASKED],
}
PAGE = (
    "<!doctype html><title>Sums</title><h1>Sums</h1><p>What a script got, and its sum.</p><pre></pre><script>"
    f"const body = {json.dumps(BODY)};"
    """
const sum = (bytes) => bytes.reduce((s, b) => (s * 31 + b) % 4294967291, 7);
const line = async (url, r) => `${url} ${r.status} ${sum(new Uint8Array(await r.arrayBuffer()))}\\n`;
(async () => {
  let text = '';
  for (const url of ['/packed/gzip', '/packed/br', '/bytes', '/text?q=a+b&q=%20']) text += await line(url, await fetch(url));
  text += await line('/json', await fetch('/json', { method: 'POST', body, headers: { 'Content-Type': 'application/json' } }));
  document.querySelector('pre').textContent = text;
})();
</script>"""
).encode()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of our own, and none of the proxies or authorities that this machine may need."""
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "state"))
    return tmp_path


@contextmanager
def origins(place: Path) -> Iterator[list[str]]:
    """Both origins; gives the options that lead a recorder to them."""
    ca = Authority.load_or_create(place / "ca")
    with (
        Origin(answer) as plain,
        Origin(answer, ca.context_for("demo.example", ("h2", "http/1.1"))) as secure,
    ):
        yield [
            "--resolve", f"plain.example=127.0.0.1:{plain.port}",
            "--resolve", f"demo.example=127.0.0.1:{secure.port}",
            "--ca-file", str(ca.certificate_path),
        ]  # fmt: skip


def lines(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_a_client_gets_the_same_bytes_again(place: Path, name: str) -> None:
    command = CLIENTS[name]
    if shutil.which(name if name in ("curl", "node") else command[0]) is None:
        pytest.skip(f"no {name}")
    with origins(place) as options:
        live = stillweb("record", "-o", place / "s", *options, "--", *command)
    assert live.code == 0, live.err
    assert lines(live.out) == EXPECTED
    kept = recorded(place / "s")
    assert {"gzip", "br"} <= {one.header("Content-Encoding") for one in kept}  # stored as it was sent
    words = ["replay", place / "s", "--max-misses", "0", "--ledger", place / "l", "--", *command]
    again = stillweb(*words)
    assert again.code == 0, again.err
    assert again.out == live.out
    entries = read(place / "l")
    assert {entry["verdict"] for entry in entries} == {"exact"}
    assert len(entries) == len(EXPECTED) + 1  # the redirect is two
    if name == "curl":  # what is sealed holds what each of them was sent
        assert stillweb("seal", place / "s").code == 0
        sealed = stillweb(
            "replay", place / "s.wacz", "--max-misses", "0", "--accept", "exact", "--", *command
        )
        assert (sealed.code, sealed.out) == (0, live.out)


@pytest.mark.slow
def test_the_bytes_on_the_wire_are_those_that_the_origin_sent(place: Path) -> None:
    """Not unpacked by curl: the content encoding and its bytes, over HTTP/2 and HTTP/1.1."""
    wire = 'for c in gzip br; do curl -sS $1 -H "Accept-Encoding: $c" https://demo.example/packed/$c | sha256sum; done'
    for version in ("--http2", "--http1.1"):
        command = ["sh", "-c", wire, "sh", version]
        with origins(place) as options:
            live = stillweb("record", "-o", place / version, *options, "--", *command)
        again = stillweb("replay", place / version, "--max-misses", "0", "--", *command)
        assert again.out == live.out
        assert again.out.split()[::2] == [hashlib.sha256(PACKED[c]).hexdigest() for c in ("gzip", "br")]


def checksum(data: bytes) -> int:
    total = 7
    for byte in data:
        total = (total * 31 + byte) % 4294967291
    return total


@pytest.mark.slow
def test_chromium_gets_the_same_bytes_again(place: Path) -> None:
    """A page whose script asks for everything writes sums of what it got; replayed, it writes the same."""
    with origins(place) as options:
        live = stillweb("record", f"{SECURE}/page", f"{PLAIN}/page", "-o", place / "s", *options)
    assert live.code == 0, live.out + live.err
    with Snapshot.open(place / "s") as snapshot:
        for site in (SECURE, PLAIN):
            text = (snapshot.resource("text", f"{site}/page") or b"").decode()
            paths = ["/packed/gzip", "/packed/br", "/bytes", "/text?q=a+b&q=%20", "/json"]
            wanted = [
                f"{path} 200 {checksum(ANSWERS[site + path])}" for path in paths if site + path in ANSWERS
            ]
            assert len(wanted) >= 3
            assert [line for line in wanted if line not in text] == []
    assert stillweb("seal", place / "s").code == 0
    checked = stillweb("check", place / "s.wacz", "--text", "1.0", "--json")
    assert checked.code == 0, checked
    views = json.loads(checked.out)["views"]
    assert [(view["text"], view["missed"]) for view in views] == [(1.0, [])] * 2


BROWSE = """
import os, sys
from playwright.sync_api import sync_playwright
path, url, proxy = *sys.argv[1:], os.environ["HTTPS_PROXY"].rpartition("@")[2].rpartition("/")[2]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=path, chromium_sandbox=False,
        proxy={"server": "http://" + proxy, "bypass": "<-loopback>", "username": "mine", "password": "x"})
    page = browser.new_page(ignore_https_errors=True)
    page.goto(url)
    page.wait_for_function("document.querySelector('pre').textContent.includes('/json')")
    print(page.text_content("pre"))
"""


@pytest.mark.slow
def test_a_browser_that_breaks_off_and_tries_again_lacks_nothing(place: Path) -> None:
    """Told to take any certificate, Chromium breaks off before it takes ours."""
    command = [sys.executable, "-c", BROWSE, str(find_browser()), f"{SECURE}/page"]
    with origins(place) as options:
        live = stillweb("record", "-o", place / "s", "--session", "mine", *options, "--", *command)
    assert (live.code, "TLS" in live.err) == (0, False), live.err
    words = ["--max-misses", "0", "--session", "mine", "--ledger", place / "l"]
    again = stillweb("replay", place / "s", *words, "--", *command)
    assert (again.code, again.out) == (0, live.out), again.err
    entries = read(place / "l")
    broken = [e for e in entries if e["method"] == "CONNECT" and "demo.example" in e["url"]]
    assert broken
    assert [e["verdict"] for e in broken] == ["miss"] * len(broken)  # marked, not hidden
    counted = [e["url"] for e in misses(entries) if not e["irrelevant"]]
    assert counted == []
