"""What a state may leave out."""

from __future__ import annotations

from stillweb.snapshots.states.coarsening import free_slots
from tests.support.memory_store import Recorded, Replay, get, html, matcher, post, redirect


def test_what_is_free_is_only_what_was_tested_with_and_without_the_rest() -> None:
    """An emptied basket looks like one that was never filled."""
    full, cleared = {"cart": "h"}, {"clear": "c"}
    seen: list[tuple[str, dict[str, str]]] = [
        ("empty", {}),
        ("empty", cleared),
        ("empty", {**full, **cleared}),
    ]
    assert free_slots(seen) == {}, "the basket was never looked at full"
    assert free_slots([*seen, ("full", full)]) == {}
    noisy = [
        (label, {**held, **more})
        for label, held in (("empty", {}), ("full", full))
        for more in ({}, {"n": "1"}, {"n": "2"})
    ]
    assert free_slots(noisy) == {"n": frozenset({"-", "1", "2"})}
    assert free_slots(noisy[1:4]) == {}, "never without it and empty, with it and full"
    many = [("same", {"a": str(n)}) for n in range(4)]
    assert free_slots(many) == {"a": frozenset("0123")}


def test_what_leads_to_a_page_is_likely_to_show_there() -> None:
    """The list was always empty, but it was never looked at with anything in it."""
    page, back = get("http://a.test/list"), redirect("/list")
    fill = post("http://a.test/put-in", "sku=1")
    empty = [post("http://a.test/take-out", f"number={number}") for number in range(4)]
    seen = [Recorded(page, html("empty"), "s1")]
    for one in empty[:3]:
        seen += [Recorded(one, back, "s1"), Recorded(page, html("empty"), "s1")]
    seen += [Recorded(fill, back, "s2"), Recorded(empty[3], back, "s2"), Recorded(page, html("empty"), "s2")]
    over = matcher(*seen)
    filled = Replay(over)
    filled.ask(fill)
    assert filled.ask(page) == "miss"
    filled = Replay(over)
    for request in (fill, empty[3], page):
        assert filled.ask(request) in ("", "empty")
        assert not filled.last.ambiguous
