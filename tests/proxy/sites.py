"""A small site on loopback and a plain forward proxy before it, for tests that need a real browser."""

import base64
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.support.waiting import HANG

Answer = tuple[int, dict[str, str], bytes]
Handler = Callable[[str, str, bytes, dict[str, str]], Answer]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        return  # a browser that hangs up is no failure of a test


@contextmanager
def serve(handle: Handler) -> Iterator[str]:
    """Run `handle(method, path, body, headers)` as an HTTP/1.1 server; yields its base URL."""

    class One(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, headers, data = handle(
                self.command, self.path, body, {k.lower(): v for k, v in self.headers.items()}
            )
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_HEAD = do_OPTIONS = do_PUT = answer

        def log_message(self, format: str, *args: object) -> None:
            return

    server = _Server(("127.0.0.1", 0), One)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Forward:
    """A forward proxy for http:// that asks for credentials and remembers (session, method, URL)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.port = 0

    def proxy_url(self, session: str = "default") -> str:
        return f"http://{session}:x@127.0.0.1:{self.port}"


@contextmanager
def forward() -> Iterator[Forward]:
    """A running `Forward`."""
    proxy = Forward()

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        credentials = headers.get("proxy-authorization", "")
        if not credentials.startswith("Basic "):
            return 407, {"Proxy-Authenticate": 'Basic realm="stillweb"'}, b""
        session = base64.b64decode(credentials[6:]).decode().partition(":")[0]
        proxy.seen.append((session, method, path))
        parts = urlsplit(path)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        kept = {k: v for k, v in headers.items() if not k.startswith("proxy-") and k != "connection"}
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=HANG)
        try:
            connection.request(method, target or "/", body or None, kept)
            answer = connection.getresponse()
            data = answer.read()
        except OSError:
            return 502, {"Content-Type": "text/plain"}, b"no answer from the origin"
        finally:
            connection.close()
        dropped = ("content-length", "transfer-encoding", "connection", "keep-alive")
        return answer.status, {k: v for k, v in answer.getheaders() if k.lower() not in dropped}, data

    with serve(handle) as url:
        proxy.port = urlsplit(url).port or 0
        yield proxy


INDEX = """<!DOCTYPE html><html lang=en><head><title>Mills</title><meta charset=utf-8></head><body>
<h1>Mills of the valley</h1>
<form method=post action=/filter><label>Region <select name=region><option>All</option><option>North</option>
<option>South</option></select></label> <button>Apply</button></form>
<div role=tablist><button role=tab id=t1 aria-selected=true aria-controls=p1>Table</button>
<button role=tab id=t2 aria-selected=false aria-controls=p2>Notes</button></div>
<div id=p1 role=tabpanel><label>Kind <select id=kind><option value="">Any</option><option value=wind>Wind</option>
<option value=water>Water</option></select></label><table><thead><tr><th>Mill<th>Kind<th>Year</thead><tbody id=rows>
</tbody></table></div>
<div id=p2 role=tabpanel hidden></div>
<p><a href=/list?page=1>All mills</a> <a href=/papers/survey.pdf>Survey (PDF)</a></p>
<p id=moment></p><p id=visit></p>
<script>
const post = async () => {
  const answer = await fetch("/api/rows", {method: "POST", headers: {"content-type": "application/json"},
    body: JSON.stringify({kind: kind.value, at: Date.now(), nonce: crypto.randomUUID()})});
  const rowsNow = await answer.json();
  rows.innerHTML = rowsNow.map((r) => `<tr><td>${r.name}<td>${r.kind}<td>${r.year}`).join("");
};
kind.onchange = () => setTimeout(post, 300);
for (const t of [t1, t2]) t.onclick = async () => {
  for (const o of [t1, t2]) { o.setAttribute("aria-selected", o === t);
    document.getElementById(o.getAttribute("aria-controls")).hidden = o !== t; }
  if (t === t2 && !p2.textContent) p2.innerHTML = await (await fetch("/notes.html")).text();
};
moment.textContent = new Date().toLocaleString(); visit.textContent = "visit " + Math.random();
post();
</script></body></html>"""
MILLS = [
    ("Abbey Mill", "water", 1290, "North"),
    ("Post Mill", "wind", 1781, "South"),
    ("Tide Mill", "water", 1170, "South"),
]


def mill_site() -> Handler:
    """A page with a filter posted into a server-side session, a table from a JSON POST, tabs, pages and a PDF.

    Sessions are held here, by cookie.
    """
    sessions: dict[str, str] = {}
    pages = {"/notes.html": "<p>Written by hand in 1921.</p>"}

    def page_of(number: int, cookie: str) -> str:
        region = sessions.get(cookie, "All")
        found = [mill for mill in MILLS if region in ("All", mill[3])]
        name, kind, year, place = found[number - 1]
        link = f'<a rel=next href="/list?page={number + 1}">Next</a>' if number < len(found) else ""
        return (
            f"<!DOCTYPE html><title>Page {number}</title><h1>{region} mills, page {number} of {len(found)}</h1>"
            f"<p>{name}, a {kind} mill of {year} in the {place}</p><nav>{link}</nav>"
        )

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        html = {"Content-Type": "text/html; charset=utf-8"}
        cookie = headers.get("cookie", "").partition("sid=")[2].partition(";")[0]
        if path == "/":
            sid = cookie or f"s{len(sessions)}"
            sessions.setdefault(sid, "All")
            return 200, html | {"Set-Cookie": f"sid={sid}; Path=/"}, INDEX.encode()
        if path == "/filter" and method == "POST":
            sessions[cookie] = body.decode().partition("region=")[2]
            return 303, {"Location": "/list?page=1"}, b""
        if path.startswith("/list?page="):
            return 200, html, page_of(int(path.rpartition("=")[2]), cookie).encode()
        if path == "/api/rows" and method == "POST":
            kind = json.loads(body)["kind"]
            rows = [{"name": n, "kind": k, "year": y} for n, k, y, _ in MILLS if kind in ("", k)]
            return 200, {"Content-Type": "application/json"}, json.dumps(rows).encode()
        if path == "/papers/survey.pdf":
            return 200, {"Content-Type": "application/pdf"}, b"%PDF-1.4\n" + b"%" * 5000 + b"\n%%EOF\n"
        if path in pages:
            return 200, html, pages[path].encode()
        return 404, html, b"<title>Not found</title><h1>Page not found</h1>"

    return handle
