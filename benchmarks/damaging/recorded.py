"""What is recorded, and the forms in which it lies on disk: our own, and those of other programs."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import brotli
import zstandard

from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.container import open_directory
from stillweb.snapshots.warc.scan import ScannedRecord, scan
from stillweb.snapshots.writer import Writer, reindex

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROTATE = 400_000  # bytes of an archive file: the large bodies bring several about
HTML: Headers = (("Content-Type", "text/html; charset=utf-8"),)
JSON: Headers = (("Content-Type", "application/json"),)
FORM: Headers = (("Content-Type", "application/x-www-form-urlencoded"),)
ACCEPTS: Headers = (("Accept-Encoding", "gzip, deflate, br, zstd"),)
VIEWED = "http://aspen.example/"
STEPS = ({"click": {"text": "More"}},)
TALK = "http://walnut.example/socket"
STATEFUL = ("willow.example", "mango.example")  # what one of their answers is hangs on another one

Put = Callable[..., None]


def in_order(capture: Capture) -> tuple[str, int, str, str, int]:
    """Sorts captures as they were recorded."""
    return capture.session, capture.begin, capture.timestamp, capture.filename, capture.offset


def page(name: str, lines: int = 40) -> bytes:
    """A page that no other one is like."""
    chance = random.Random(name)
    rows = b"".join(b"<tr><td>%d<td>%d" % (n, chance.randrange(10**6)) for n in range(lines))
    return b"<!doctype html><title>%b</title><table>%b</table>" % (name.encode(), rows)


def pdf(text: str) -> bytes:
    """A PDF of one page."""
    shown = b"BT /F1 12 Tf 72 700 Td (%b) Tj ET" % text.encode("ascii")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(shown), shown),
    ]
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(out)
    return out + b"xref\n0 6\n0000000000 65535 f \n" + rows + end


def record(path: Path, salt: str = "") -> Path:
    """Records a small site of each kind into a snapshot directory; `salt` makes other bodies of the same sizes."""
    events = 0
    chance = random.Random(f"bodies {salt}")

    def named(name: str) -> str:
        return f"{name}{salt}"

    with mock.patch("stillweb.snapshots.writer.ROTATE", ROTATE), Writer.open(path) as writer:

        def put(
            url: str,
            body: bytes,
            headers: Headers = HTML,
            *,
            method: str = "GET",
            sent: bytes = b"",
            asked: Headers = (),
            status: int = 200,
            reason: str = "OK",
            protocol: str = "http/1.1",
        ) -> None:
            nonlocal events
            events += 2
            host = ("Host", url.split("/")[2])
            request = Request(method, url, (host, *ACCEPTS, *asked), sent)
            when = START + timedelta(seconds=events)
            length = ("Content-Length", str(len(body)))
            answer = Exchange(
                request,
                status,
                reason,
                (*headers, length),
                body,
                when,
                "default",
                events - 1,
                events,
                protocol,
            )
            writer.exchange(answer)

        _stateless(put, named, chance)
        _stateful(put, named)
        view = View(view_address(VIEWED, STEPS), VIEWED, VIEWED, "Aspen", STEPS, timestamp="20260102030500")
        shot = random.Random("shot").randbytes(3000)
        writer.view(view, {"text": b"More of it", "view": shot, "dom": page("dom"), "aria": b"- heading"})
        said = [{"from": "client", "text": "hello"}, {"from": "server", "text": named("welcome, all of you")}]
        writer.metadata(TALK, {"url": TALK, "session": "default", "begin": events + 1, "messages": said})
    return path


def _stateless(put: Put, named: Callable[[str], str], chance: random.Random) -> None:
    """Each on a site of its own, so that nothing hangs on another one."""
    for host in ("aspen", "birch", "cedar"):
        put(f"http://{host}.example/", page(named(host)))
    for host in ("larch", "maple"):  # members of one length
        put(f"https://{host}.example/", chance.randbytes(900), (("Content-Type", "image/png"),))
    packed = {
        "gzip": lambda data: gzip.compress(data, mtime=0),
        "br": lambda data: brotli.compress(data, quality=4),
        "zstd": lambda data: zstandard.ZstdCompressor(write_checksum=False).compress(data),
        "deflate": zlib.compress,
    }
    for coding, pack in packed.items():
        body = pack(page(named(coding), 300))
        put(f"https://{coding}.packed-{coding}.example/", body, (*HTML, ("Content-Encoding", coding)))
    for host in ("elder", "hazel"):
        body = pdf(named(f"What {host} says, and more of it"))
        put(f"https://{host}.example/paper.pdf", body, (("Content-Type", "application/pdf"),))
    put("https://rowan.example/film", chance.randbytes(1_300_000), (("Content-Type", "video/mp4"),))
    put("https://cherry.example/film", chance.randbytes(600_000), (("Content-Type", "video/mp4"),))
    put("https://poplar.example/dump", b'{"n":0},\n' * 300_000 + named("x").encode(), JSON)
    body = gzip.compress(page(named("quince"), 90_000), 1, mtime=0)
    put("https://quince.example/packed", body, (*JSON, ("Content-Encoding", "gzip")))
    for host in ("olive", "plane", "sorbus"):  # the second and the third are revisits
        put(f"http://{host}.example/same", page(named("same"), 200))
    put(
        "https://tulip.example/api",
        named('{"ok":1}').encode(),
        JSON,
        method="POST",
        sent=b'{"a":1}',
        asked=JSON,
    )
    put("https://laurel.example/form", page(named("form")), method="POST", sent=b"q=plums&n=3", asked=FORM)
    put("https://yucca.example/go", b"gone", (*HTML, ("Location", "/there")), status=302, reason="Found")
    put("https://yucca.example/none", page(named("none")), status=404, reason="Not Found")
    part = (("Content-Range", "bytes 0-4/10"), ("Content-Type", "text/plain"))
    put(
        "https://zelkova.example/part",
        b"01234",
        part,
        status=206,
        reason="Partial Content",
        asked=(("Range", "bytes=0-4"),),
    )
    for tongue in ("en", "fr"):
        language = (("Accept-Language", tongue),)
        put(
            "https://acacia.example/",
            page(named(tongue)),
            (*HTML, ("Vary", "Accept-Language")),
            asked=language,
        )
    put("https://beech.example/two", page(named("two")), protocol="h2")


def _stateful(put: Put, named: Callable[[str], str]) -> None:
    """What was asked before decides."""
    put("https://willow.example/cart", page(named("cart of nothing")))
    put("https://willow.example/add", b"added", method="POST", sent=b"item=1", asked=FORM)
    put("https://willow.example/cart", page(named("cart of one")))
    signed = (*HTML, ("Set-Cookie", "session=s3cr3t0123456789; Path=/"))
    put("https://mango.example/", page(named("stranger")))
    put("https://mango.example/login", b"in", signed, method="POST", sent=b"user=a&word=b", asked=FORM)
    put("https://mango.example/", page(named("friend")), asked=(("Cookie", "session=s3cr3t0123456789"),))


LARGE = "large index"
Form = Callable[[Path, Path], Path]  # makes, of a recorded directory and in a new folder, what is opened


def directory(recorded: Path, folder: Path) -> Path:
    """The working directory of a recording, closed."""
    import shutil

    return Path(shutil.copytree(recorded, folder / "site"))


@contextmanager
def small_blocks(form: str) -> Iterator[None]:
    """Where the form is to have a large index, each index is one that is read in blocks."""
    with ExitStack() as stack:
        if form == LARGE:
            for name, value in (("blocks.LEAST", 1), ("blocks.STEP", 1 << 10), ("kept.CHECKED", 0)):
                stack.enter_context(mock.patch(f"stillweb.snapshots.index.{name}", value))
        yield


def large(recorded: Path, folder: Path) -> Path:
    """A working directory with an index that is too large to be looked at whole."""
    site = directory(recorded, folder)
    reindex(site)
    return site


def sealed(recorded: Path, folder: Path) -> Path:
    """A sealed .wacz, its texts frozen."""
    site = directory(recorded, folder)
    with mock.patch("stillweb.snapshots.writer.ROTATE", ROTATE):
        return seal(site, folder / "site.wacz", workers=1).path


def _records(recorded: Path) -> Iterator[bytes]:
    """The records of all archive files, unpacked."""
    container = open_directory(recorded)
    try:
        for name in sorted(container.archives):
            place = container.archives[name]
            for item in scan(place):
                assert isinstance(item, ScannedRecord)
                yield warc.unpack(place.read(item.offset, item.length), place, item.offset)
    finally:
        container.close()


def plain(recorded: Path, folder: Path) -> Path:
    """One plain .warc."""
    path = folder / "site.warc"
    path.write_bytes(b"".join(_records(recorded)))
    return path


def packed(recorded: Path, folder: Path) -> Path:
    """A .warc.gz as another program packs it: members that tell nothing of their lengths."""
    path = folder / "site.warc.gz"
    path.write_bytes(b"".join(gzip.compress(one, 6, mtime=0) for one in _records(recorded)))
    return path


def framed(recorded: Path, folder: Path) -> Path:
    """A .warc.zst whose frames have no check sum."""
    path = folder / "site.warc.zst"
    packer = zstandard.ZstdCompressor(write_checksum=False)
    path.write_bytes(b"".join(map(packer.compress, _records(recorded))))
    return path


def crawled(recorded: Path, folder: Path) -> Path:
    """A .warc.gz as Common Crawl's: by warcio, SHA-1 in base32, the coding of a body undone and its field renamed."""
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    path = folder / "crawl.warc.gz"
    with path.open("wb") as out, Snapshot.open(recorded) as snapshot:
        writer = WARCWriter(out, gzip=True)
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "a crawler"}))
        for capture in sorted(snapshot.captures(), key=in_order):
            asked, told = snapshot.read_request(capture), snapshot.read(capture)
            body = told.body
            fields = [
                ("X-Crawl-" + n if n.lower() in ("content-encoding", "content-length") else n, v)
                for n, v in told.headers
            ]
            if told.header("content-encoding"):
                body = snapshot_plain(told.header("content-encoding") or "", body)
            fields.append(("Content-Length", str(len(body))))
            heads = StatusAndHeaders(f"{told.status} {told.reason}", fields, protocol="HTTP/1.1")
            dates = {"WARC-Date": _date(capture.timestamp)}
            answer = writer.create_warc_record(
                capture.url, "response", payload=io.BytesIO(body), http_headers=heads, warc_headers_dict=dates
            )
            line = f"{asked.method} {capture.url.partition('.example')[2]} HTTP/1.1"
            heads = StatusAndHeaders(line, list(asked.headers), is_http_request=True)
            dates = {"WARC-Date": _date(capture.timestamp)}
            question = writer.create_warc_record(
                capture.url,
                "request",
                payload=io.BytesIO(asked.body),
                http_headers=heads,
                warc_headers_dict=dates,
            )
            writer.write_request_response_pair(question, answer)
    return path


def snapshot_plain(coding: str, body: bytes) -> bytes:
    """A body without its content coding."""
    from stillweb.snapshots.http import encodings

    return encodings.decode(body, coding)


def _date(timestamp: str) -> str:
    t = timestamp
    return f"{t[:4]}-{t[4:6]}-{t[6:8]}T{t[8:10]}:{t[10:12]}:{t[12:14]}Z"


def har(recorded: Path, folder: Path) -> Path:
    """A HAR, an entry a line."""
    entries = []
    with Snapshot.open(recorded) as snapshot:
        for capture in sorted(snapshot.captures(), key=in_order):
            asked, told = snapshot.read_request(capture), snapshot.read(capture)
            body = snapshot_plain(told.header("content-encoding") or "", told.body)
            content = {"size": len(body), "mimeType": told.header("content-type") or ""}
            content |= {"text": base64.b64encode(body).decode(), "encoding": "base64"}
            sent = {"mimeType": asked.header("content-type") or "", "text": asked.body.decode()}
            entries.append(
                {
                    "startedDateTime": _date(capture.timestamp),
                    "time": 100,
                    "request": {"method": asked.method, "url": asked.url, "httpVersion": "HTTP/1.1"}
                    | {"headers": _named(asked.headers), "bodySize": len(asked.body)}
                    | ({"postData": sent} if asked.body else {}),
                    "response": {"status": told.status, "statusText": told.reason, "httpVersion": "HTTP/1.1"}
                    | {"headers": _named(told.headers), "content": content, "bodySize": len(told.body)},
                }
            )
    path = folder / "site.har"
    lines = ",\n".join(map(json.dumps, entries))
    path.write_text(
        '{"log":{"version":"1.2","creator":{"name":"x","version":"1"},"entries":[\n' + lines + "\n]}}\n"
    )
    return path


def _named(headers: Headers) -> list[dict[str, str]]:
    return [{"name": n, "value": v} for n, v in headers]


def flows(recorded: Path, folder: Path) -> Path:
    """A flow file of mitmproxy's."""
    from mitmproxy import http
    from mitmproxy.io import FlowWriter
    from mitmproxy.test import tflow

    path = folder / "site.flows"
    with path.open("wb") as out, Snapshot.open(recorded) as snapshot:
        writer = FlowWriter(out)
        for number, capture in enumerate(sorted(snapshot.captures(), key=in_order)):
            asked, told = snapshot.read_request(capture), snapshot.read(capture)
            begun = START.timestamp() + number
            request = http.Request.make(
                asked.method, asked.url, asked.body, http.Headers(_bytes(asked.headers))
            )
            answer = http.Response.make(told.status, b"", http.Headers(_bytes(told.headers)))
            answer.reason, answer.raw_content = told.reason, told.body
            request.timestamp_start, request.timestamp_end = begun, begun + 0.1
            answer.timestamp_start, answer.timestamp_end = begun + 0.2, begun + 0.3
            writer.add(tflow.tflow(req=request, resp=answer))
    return path


def _bytes(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers]


FORMS: dict[str, Form] = {
    "directory": directory,
    "wacz": sealed,
    LARGE: large,
    "plain WARC": plain,
    "WARC.gz": packed,
    "WARC.zst": framed,
    "crawl": crawled,
    "HAR": har,
    "flows": flows,
}
GUARDED = frozenset({"directory", "wacz", LARGE, "WARC.gz", "crawl"})  # all that is in it has a check sum
