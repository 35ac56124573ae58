"""The parts of a check that need no browser."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stillweb.proxy.check.check import (
    CheckReport,
    ViewCheck,
    chains,
    changes,
    compare_pictures,
    likeness,
    small,
)
from stillweb.snapshots.view import Step, View, view_address


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
    with pytest.raises(ValueError, match="the page draws nothing"):
        compare_pictures(png(black, white), b"")
    assert small(png(black, white))[0].startswith("image/")


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
