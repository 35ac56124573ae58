"""A small frozen web for the tools' tests."""

import json
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import freeze_texts
from tests.snapshots.text.test_text import ARTICLE, make_pdf

SITE = "https://site.test"
BIRDS = f"{SITE}/birds/index.html"
REPORT = f"{SITE}/report.pdf"
STEPS = ({"click": {"role": "tab", "name": "Masses"}},)
VIEW = view_address(BIRDS, STEPS)
FOUND = {"searchParameters": {"q": "penguins", "gl": "us", "hl": "en", "type": "search", "num": 10, "engine": "google"},
         "organic": [{"title": "Pingüino", "link": BIRDS, "snippet": "…", "position": 1, "rating": 4.0}], "credits": 1}  # fmt: skip
SEARCH_BODY = {"q": "penguins", "gl": "us", "hl": "en"}


class Recorder:
    """Puts exchanges into a snapshot as a recorder would."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.moment = datetime(2025, 1, 1, tzinfo=UTC)

    def add(
        self, url: str, body: bytes | str = b"", media: str | None = "text/html; charset=utf-8", *, status: int = 200,
        method: str = "GET", sent: bytes = b"", headers: tuple[tuple[str, str], ...] = (), session: str = "s",
    ) -> None:  # fmt: skip
        data = body.encode() if isinstance(body, str) else body
        fields = ((("Content-Type", media),) if media is not None else ()) + headers
        sent_type = (("Content-Type", "application/json"),) if sent else ()
        self.moment += timedelta(seconds=1)
        begin = self.writer.event(session)
        request = Request(method, url, sent_type, sent)
        self.writer.exchange(
            Exchange(
                request, status, "OK", fields, data, self.moment, session, begin, self.writer.event(session)
            )
        )


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def make_site(path: Path) -> Snapshot:
    """Pages, redirects, PDFs, a view and searches, with their texts frozen: four processes, once for all tests."""
    shutil.copytree(_made().name, path, dirs_exist_ok=True)
    return Snapshot.open(path)


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    with Writer.open(Path(folder.name)) as writer:
        site = Recorder(writer)
        site.add(BIRDS, ARTICLE)
        site.add(
            f"{SITE}/",
            "<html><body><p>The home page of a site about birds and their masses.</p></body></html>",
        )
        site.add(f"{SITE}/old", status=301, headers=(("Location", "/moved?x=1"),))
        site.add(f"{SITE}/moved?x=1", status=302, headers=(("Location", BIRDS),))
        site.add(f"{SITE}/round", status=302, headers=(("Location", "/round"),))
        site.add(f"{SITE}/lost", status=302, headers=(("Location", "/never-recorded"),))
        site.add(f"{SITE}/gone", "<p>gone</p>", status=404)
        site.add(f"{SITE}/data.json", '{"a": "ü"}', "application/json")
        site.add(f"{SITE}/latin", "ü".encode("latin-1"), "text/plain; charset=iso-8859-1")
        site.add(
            f"{SITE}/untyped", "<p>No content type at all, so it is taken for HTML by the tool.</p>", None
        )
        site.add(
            f"{SITE}/hidden-html",
            "<html><body><p>Called text, but it is HTML by its first characters.</p></body></html>",
            "text/plain",
        )
        site.add(f"{SITE}/empty", "<html><body></body></html>")
        site.add(f"{SITE}/nothing", b"", "text/plain")
        site.add(f"{SITE}/nothing.html", b"")
        # a redirect that may well set something: what is recorded after it is to be had without it, too
        site.add(f"{SITE}/set?language=en", status=302, headers=(("Location", "/after"),))
        site.add(
            f"{SITE}/after",
            "<html><body><p>Recorded after something that may have been a change.</p></body></html>",
        )
        site.add(
            REPORT, make_pdf("Page one", "Page two", "Page three", "", title="Report"), "application/pdf"
        )
        site.add(f"{SITE}/scan.pdf", make_pdf("image"), "application/pdf")
        site.add(f"{SITE}/shut.pdf", make_pdf("x", password="p"), "application/pdf")
        site.add(f"{SITE}/not-a.pdf", ARTICLE, "application/pdf")
        site.add(f"{SITE}/pdf-as-html", make_pdf("In truth a PDF"), "text/html")
        site.add("https://shy.test/robots.txt", "User-agent: *\nDisallow: /private\n", "text/plain")
        # the longest rule decides, and `*` and `$` are no letters
        rules = "User-agent: *\nDisallow: /\nAllow: /open/\n# Disallow: /open/\nDisallow: /open/*.log$\n"
        site.add("https://choosy.test/robots.txt", rules, "text/plain")
        gz = (("Content-Encoding", "gzip"),)
        site.add("https://garbled.test/robots.txt", "User-agent: *", "text/plain", headers=gz)
        site.add("https://closed.test/robots.txt", "no", "text/plain", status=403)
        site.add(
            "https://google.serper.dev/search",
            json_bytes(FOUND),
            "application/json",
            method="POST",
            sent=json_bytes(SEARCH_BODY),
        )
        site.add(
            "https://google.serper.dev/search",
            b'{"message":"Not enough credits","statusCode":400}',
            "application/json",
            method="POST",
            status=400,
            sent=json_bytes({"q": "poor", "gl": "us", "hl": "en"}),
        )
        site.add(
            "https://r.jina.ai/https://site.test/recorded", "Title: Recorded\n", "text/plain; charset=utf-8"
        )
        view = View(VIEW, BIRDS, BIRDS, "Birds", STEPS, timestamp="20250101000000")
        writer.view(view, {"dom": ARTICLE.replace("5076", "5092").encode()})
        freeze_texts(writer)
    return folder
