"""What a state may leave out."""

from __future__ import annotations

from snapshots.states.coarsening import free_slots


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
