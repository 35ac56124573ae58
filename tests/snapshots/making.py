"""Exchanges and small snapshots for tests of the storage."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text.freezing import freeze
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer

START = datetime(2025, 1, 2, 3, 4, 5, 678000, UTC)


def exchange(
    url: str,
    body: bytes | BinaryIO = b"",
    *,
    method: str = "GET",
    sent: bytes = b"",
    headers: Headers = (("Content-Type", "text/html; charset=utf-8"),),
    request_headers: Headers = (("Host", "example.test"),),
    status: int = 200,
    reason: str = "OK",
    session: str = "default",
    begin: int = 1,
    end: int = 2,
    protocol: str = "http/1.1",
) -> Exchange:
    """An exchange at a time that follows from its events."""
    return Exchange(
        Request(method, url, request_headers, sent),
        status,
        reason,
        headers,
        body,
        START + timedelta(seconds=begin),
        session,
        begin,
        end,
        protocol,
        "127.0.0.1",
    )


def record(writer: Writer, url: str, body: bytes | BinaryIO = b"", **options: object):  # type: ignore[no-untyped-def]
    """Records an exchange with the next events of its session."""
    session = str(options.get("session", "default"))
    begin, end = writer.event(session), writer.event(session)
    return writer.exchange(exchange(url, body, begin=begin, end=end, **options))  # type: ignore[arg-type]


def small_snapshot(path: Path) -> Path:
    """A closed snapshot directory: pages, a repeated payload, a POST, a view with a step."""
    with Writer.open(path) as writer:
        record(writer, "http://example.test/", b"<html><title>Home</title><p>Hello there</html>")
        record(writer, "http://example.test/again", b"<html><title>Home</title><p>Hello there</html>")
        record(
            writer,
            "http://example.test/api",
            b'{"ok":true}',
            method="POST",
            sent=b'{"a":1}',
            request_headers=(("Host", "example.test"), ("Content-Type", "application/json")),
            headers=(("Content-Type", "application/json"), ("Vary", "Accept")),
            protocol="h2",
        )
        steps = ({"click": {"text": "More"}},)
        view = View(
            view_address("http://example.test/", steps),
            "http://example.test/",
            "http://example.test/",
            "Home",
            steps,
            timestamp="20250102030409",
        )
        writer.view(view, {"text": b"Hello there, more", "view": b"\x89PNG", "dom": b"<html></html>"})
    return path


def freeze_texts(writer: Writer) -> int:
    """Freezes every text of the snapshot that a writer has open, as sealing does; how many were added."""
    with Snapshot.open(writer.path) as snapshot:
        return freeze(snapshot, writer, workers=1).texts
