"""The parts of a check: shares, refused addresses, and answers that no page reads."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.check.check import (
    CheckReport,
    ViewCheck,
    chains,
    changes,
    check,
    compare_pictures,
    is_unread,
    likeness,
    small_screenshot,
)
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import Step, View, view_address
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve
from tests.snapshots.making import exchange


def view(url: str, *names: str) -> View:
    steps: tuple[Step, ...] = tuple({"click": {"text": name}} for name in names)
    return View(view_address(url, list(steps)), url, url, "", steps)


def png(*pixels: tuple[int, int, int], width: int = 2) -> bytes:
    image = Image.new("RGB", (width, len(pixels) // width))
    image.putdata(list(pixels))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def test_views_on_the_way_are_met_on_the_way() -> None:
    views = [view("u"), view("u", "a"), view("u", "a", "b"), view("u", "c"), view("v")]
    found = chains(views)
    assert [(chain.url, len(chain.steps), sorted(chain.views)) for chain in found] == [
        ("u", 2, [0, 1, 2]),
        ("u", 1, [1]),
        ("v", 0, [0]),
    ]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=4), unique_by=tuple, max_size=12))
def test_every_view_is_in_one_chain(ways: list[list[str]]) -> None:
    views = [view("u", *way) for way in ways]
    met = [one for chain in chains(views) for one in chain.views.values()]
    assert sorted(one.address for one in met) == sorted(one.address for one in views)
    for chain in chains(views):
        assert all(chain.steps[:depth] == one.steps for depth, one in chain.views.items())


def test_likeness() -> None:
    assert likeness("a\nb", "a\nb") == 1.0
    assert 0.4 < likeness("a\nb", "a\nc") < 0.6
    assert likeness("a\nb", "a \nb") < 1
    assert changes("a\nb", "a\nc") == ["-b", "+c"]


def test_pictures() -> None:
    black, white, grey = (0, 0, 0), (255, 255, 255), (5, 5, 5)
    same = compare_pictures(png(black, white), png(black, white))
    assert (same.share, same.picture) == (0.0, b"")
    assert compare_pictures(png(black, white), png(grey, white)).share == 0.0
    half = compare_pictures(png(black, white), png(white, white))
    assert half.share == 0.5
    assert half.picture.startswith(b"\x89PNG")
    assert compare_pictures(png(black, black), png(black, black, black, black)).share == 0.5
    with pytest.raises(ValueError, match="can't be read"):
        compare_pictures(b"no picture", png(black, white))
    with pytest.raises(ValueError, match="the page shows nothing"):
        compare_pictures(png(black, white), b"")
    assert small_screenshot(png(black, white))[0].startswith("image/")


def test_a_gate_that_can_fail() -> None:
    good = ViewCheck("a", "", [], 1.0, 1.0, 1.0)
    assert good.same
    assert CheckReport([good], 1.0).passed()
    nothing = CheckReport([], 1.0)  # a gate that compared nothing holds nothing
    assert (nothing.passed(text=0.0, pixels=0.0), nothing.share("text")) == (False, 0.0)
    for bad in (
        ViewCheck("b", "", [], 0.9, 1.0, 1.0),
        ViewCheck("b", "", [], 1.0, 1.0, 0.5),
        ViewCheck("b", "", [], 1.0, 1.0, 1.0, missed=["u"]),
        ViewCheck("b", "", [], 1.0, 1.0, 1.0, error="gone"),
    ):
        assert not bad.same
        assert not CheckReport([good, bad], 1.0).passed()
    report = CheckReport([good, ViewCheck("b", "", [], 0.9, 1.0, 1.0)], 1.0)
    assert report.share("text") == 0.5
    assert report.passed(text=0.5)
    assert report.rows()[1]["same"] is False


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


PAGE = b"<title>Mills</title><link rel=stylesheet href=/style.css><h1>Mills</h1><p>A page whose style is an error's page.</p>"


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    said = {"Content-Type": "text/html", "X-Content-Type-Options": "nosniff"}
    return 200, said, PAGE if path == "/" else b"<p>There is no such style.</p>"


@pytest.mark.slow
def test_a_style_that_the_browser_refuses_is_not_called_unasked(tmp_path: Path) -> None:
    profile = complete(Profile())
    with (
        serve(answer) as base,
        Writer.open(tmp_path / "s", profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        Fetcher(recorder, writer, profile).fetch([f"{base}/"])
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
        recorded = {capture.url for capture in snapshot.captures()}
        [view] = check(snapshot, gateway).views
    assert f"{base}/style.css" in recorded
    assert (view.same, view.unasked) == (True, [])
