"""Requests whose answers no page reads are told apart from those that a replay lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.check.check import check, is_unread
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import exchange

BEACON: Headers = (("Sec-Fetch-Dest", "empty"), ("Sec-Fetch-Mode", "no-cors"))
AHEAD: Headers = (("Sec-Purpose", "prefetch"),)


@pytest.mark.parametrize(
    ("method", "headers", "unread"),
    [
        ("POST", BEACON, True),
        ("GET", BEACON, False),  # a script may be told whether it came
        ("POST", (("Sec-Fetch-Dest", "empty"), ("Sec-Fetch-Mode", "cors")), False),
        ("POST", (("Sec-Fetch-Dest", "document"), ("Sec-Fetch-Mode", "navigate")), False),
        ("POST", (("Sec-Fetch-Dest", "report"), ("Sec-Fetch-Mode", "no-cors")), True),
        ("POST", (("Ping-To", "http://a.test/"), ("Sec-Fetch-Mode", "no-cors")), True),
        ("GET", AHEAD, True),
        ("GET", (("Sec-Purpose", "prefetch;prerender"),), True),
        ("GET", (("Purpose", "prefetch"),), True),
        ("GET", (), False),
    ],
)
def test_what_no_page_reads(method: str, headers: Headers, unread: bool) -> None:
    assert is_unread(Request(method, "http://a.test/x", headers)) is unread


@pytest.mark.slow
def test_a_check_tells_them_apart(tmp_path: Path) -> None:
    url = "http://example.test/"
    told = [
        ("POST", "beacon", BEACON),
        ("GET", "ahead", AHEAD),
        ("GET", "data", ()),
        ("GET", "both", AHEAD),
        ("GET", "both", ()),
    ]
    with Writer.open(tmp_path / "snap", profile=complete(Profile())) as writer:
        page = b"<title>T</title><link rel=prefetch href=/never><p>one</p>"
        writer.exchange(exchange(url, page, begin=0, end=1))
        for number, (method, name, headers) in enumerate(told, start=1):
            writer.exchange(
                exchange(
                    url + name,
                    b"",
                    method=method,
                    request_headers=headers,
                    begin=2 * number,
                    end=2 * number + 1,
                )
            )
    with Snapshot.open(tmp_path / "snap") as snapshot:
        captures = tuple(
            {"url": c.url, "method": c.method, "status": c.status, "digest": c.digest}
            for c in snapshot.captures()
        )
    with Writer.open(tmp_path / "snap") as writer:
        resources = {"text": b"one", "aria": b"- paragraph: one", "pageinfo": json.dumps({}).encode()}
        writer.view(View(url, url, url, "T", (), captures=captures), resources)
    with Snapshot.open(tmp_path / "snap") as snapshot, Gateway(snapshot) as gateway:
        [view] = check(snapshot, gateway).views
        assert [miss.url for miss in gateway.missed("check-1")] == [f"{url}never"]
    assert view.same, view
    assert view.unread == [f"{url}ahead", f"{url}beacon"]
    assert view.unasked == [f"{url}both", f"{url}data"]
