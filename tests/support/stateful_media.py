"""The part of the stateful site that HTTP itself varies: Accept, HEAD, ranges, conditions, preflights, TLS, polling.

Plain code on the Response of a page, told apart from the product's own: nothing here comes from proxy/.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Headers, Request

if TYPE_CHECKING:
    from tests.support.stateful_site import Client

FILE = "".join(f"{n:03d};" for n in range(100))  # 400 bytes, each place of it told apart
TAG = '"file-1"'
CHANGED = "Tue, 02 Jan 2024 03:04:05 GMT"
MENU = ["soup", "bread"]
ALLOWED = "http://other.test"  # the origin that may ask /api/search

APP = """<!doctype html><title>App</title><h1>App</h1><p id=theme></p><p id=tab></p><p id=reply></p><script>
const show = async (kind, name) => {
  document.getElementById(kind).textContent = await (await fetch(`/part?kind=${kind}&name=${name}`)).text();
};
const all = () => Promise.all([
  show('theme', localStorage.getItem('theme') || 'light'), show('tab', location.hash.slice(1) || 'first')]);
window.ready = all();
addEventListener('hashchange', () => { window.ready = all(); });
navigator.sendBeacon('/hit', String(performance.now()));
</script>"""


class Media:
    """Handlers that the site takes in."""

    def get_menu(self, request: Request, **_: Any) -> tuple[int, str, Headers]:
        vary = ("Vary", "Accept")
        if "json" in (request.header("accept") or ""):
            return 200, json.dumps({"menu": MENU}), (("Content-Type", "application/json"), vary)
        if "text/plain" in (request.header("accept") or ""):
            return 200, "\n".join(MENU), (("Content-Type", "text/plain"), vary)
        return 200, f"<!doctype html><title>Menu</title><h1>{', '.join(MENU)}</h1>", (vary,)

    def get_file(self, **_: Any) -> tuple[int, str, Headers]:
        return 200, FILE, (
            ("Content-Type", "text/plain"), ("ETag", TAG), ("Last-Modified", CHANGED), ("Accept-Ranges", "bytes"),
        )  # fmt: skip

    def get_ticker(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        client.ticks += 1
        return 200, f"<!doctype html><title>Ticker</title><h1>tick {min(client.ticks, 5)}</h1>", ()

    def get_ping(self, **_: Any) -> tuple[int, str, Headers]:
        return 200, "pong", (("Content-Type", "text/plain"),)

    def get_collect(self, **_: Any) -> tuple[int, str, Headers]:
        return 204, "", ()

    def get_secure(self, request: Request, **_: Any) -> tuple[int, str, Headers]:
        if request.url.startswith("http://"):
            return 301, "", (("Location", "https://state.test/secure"),)
        return 200, "<!doctype html><title>Secure</title><h1>Behind TLS</h1>", ()

    # For browsers: a page that shows what its storage, or its fragment, says.

    def get_app(self, **_: Any) -> tuple[int, str, Headers]:
        return 200, APP, ()

    def get_part(self, query: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        return 200, f"{query.get('kind')} is {query.get('name')}", (("Content-Type", "text/plain"),)

    def options_api_search(self, request: Request, **_: Any) -> tuple[int, str, Headers]:
        if request.header("origin") != ALLOWED:
            return 403, "", ()
        return 204, "", (
            ("Access-Control-Allow-Origin", ALLOWED), ("Access-Control-Allow-Methods", "POST"),
            ("Access-Control-Allow-Headers", "content-type"),
        )  # fmt: skip


def as_asked(response: Response, request: Request) -> Response:
    """Return what the request wants of a whole answer: a part, nothing if the client has it, or only the head."""
    if response.status == 200 and response.header("etag") and request.method in ("GET", "HEAD"):
        response = _part(response, request)
    if request.method == "HEAD":
        return replace(response, body=b"")
    return response


def _part(response: Response, request: Request) -> Response:
    tag, since = request.header("if-none-match"), request.header("if-modified-since")
    if tag in (TAG, "*") or (tag is None and since == CHANGED):
        kept = tuple(h for h in response.headers if h[0] not in ("Content-Length", "Content-Type"))
        return Response(304, "Not Modified", kept, b"")
    asked = request.header("range")
    if asked is None or request.method == "HEAD" or request.header("if-range") not in (None, TAG):
        return response
    size = len(response.body)
    spans = []
    for first, last in re.findall(r"(\d*)-(\d*)", asked.removeprefix("bytes=")):
        start, stop = (int(first), int(last or size - 1) + 1) if first else (size - int(last), size)
        if max(0, start) < size:
            spans.append((max(0, start), min(stop, size)))
    media = response.header("content-type") or ""
    rest = tuple(h for h in response.headers if h[0] not in ("Content-Length", "Content-Type"))
    if not spans:
        return _made(416, (*rest, ("Content-Range", f"bytes */{size}")), b"")
    if len(spans) == 1:
        (start, stop) = spans[0]
        where = ("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        return _made(206, (*rest, ("Content-Type", media), where), response.body[start:stop])
    body = b""
    for start, stop in spans:
        head = f"--=cut=\r\nContent-Type: {media}\r\nContent-Range: bytes {start}-{stop - 1}/{size}\r\n\r\n"
        body += head.encode() + response.body[start:stop] + b"\r\n"
    return _made(
        206, (*rest, ("Content-Type", "multipart/byteranges; boundary==cut=")), body + b"--=cut=--\r\n"
    )


def _made(status: int, headers: Headers, body: bytes) -> Response:
    return Response(status, "Answer", (*headers, ("Content-Length", str(len(body)))), body)


def parts_text(response: Response) -> str | None:
    """Return the text that a client makes of a part, of parts, of "not modified" or of a head; None of any other answer."""
    if response.status == 416:
        return f"416 {response.header('content-range')}"
    if response.status == 304:
        return f"304 {response.header('etag')}"
    if response.status != 206:
        return None
    media = response.header("content-type") or ""
    mark = re.search(r"boundary=\"?([^\";]+)", media)
    if not mark:
        return f"206 {response.header('content-range')} {response.body.decode('latin-1')}"
    found = []
    for piece in response.body.split(b"--" + mark[1].encode())[1:-1]:
        head, _, body = piece.partition(b"\r\n\r\n")
        where = re.search(rb"(?i)content-range: *([^\r\n]+)", head)
        text = body.removesuffix(b"\r\n").decode("latin-1")
        found.append(f"{where[1].decode() if where else '?'} {text}")
    return "206 parts " + " | ".join(found)
