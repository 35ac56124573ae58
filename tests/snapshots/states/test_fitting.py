"""Whether what a capture was recorded under holds in a state: conditions as the index has them."""

from __future__ import annotations

import pytest

from stillweb.snapshots.states.conditions import UNSET, Effect, Held, SiteState, added, read
from stillweb.snapshots.states.fitting import FAILS, FITS, UNSURE, fits

A, B, C, V, W = ("a" * 8, "b" * 8, "c" * 8, "1" * 8, "2" * 8)


def told(*slots: str) -> SiteState:
    """What a session told that wrote one value to some slots, in this order."""
    state = SiteState()
    for slot in slots:
        state.apply(Effect(slot, "=", V))
    return state


@pytest.mark.parametrize(
    ("mark", "order", "fit"),
    [
        ("", (A, B), FITS),
        ("", (B, A), FITS),
        (" @", (A, B), FITS),
        (" @", (B, A), FAILS),
        (" @", (A, C, B), FITS),
        (" @", (C, B, A), FAILS),
    ],
)
def test_the_order_of_what_is_held_counts_only_where_it_is_said(
    mark: str, order: tuple[str, ...], fit: int
) -> None:
    """What makes no difference (`C`) may stand between."""
    assert fits(read(f"{A}={V} {B}={V} {C}*{mark}"), told(*order), {}) == fit


def test_a_cookie_that_an_unrecorded_answer_would_have_set_is_not_sure() -> None:
    """Where its value makes no difference among those seen; where it decides, it is none of them."""
    state = SiteState()
    assert fits(read(f"c.{A}:{V}|{W}"), state, {A: V}) == FITS
    assert fits(read(f"c.{A}={V}"), state, {A: V}) == FITS
    state.unknown.add(A)
    assert fits(read(f"c.{A}:{V}|{W}"), state, {A: V}) == UNSURE
    assert fits(read(f"c.{A}={V}"), state, {A: V}) == FAILS
    assert fits(read(f"c.{B}:{V}|{W}"), state, {B: V}) == FITS, "another one"


@pytest.mark.parametrize("lost", [True, False])
def test_what_nobody_recorded_may_be_left_under_a_new_value(lost: bool) -> None:
    """But where no history of the slot itself was told: there values were seen to replace each other."""
    state = SiteState()
    if lost:
        state.lose(A, Held("!" + V))
    state.apply(Effect(A, "=", W))
    state.apply(Effect(B, "=", V))
    history = added(UNSET, W)
    assert fits(read(f"{A}={W} {A}/{history} {B}*"), state, {}) == (UNSURE if lost else FITS)
    assert fits(read(f"{A}={W} {B}={V} {B}/{added(UNSET, V)}"), state, {}) == FITS
    assert fits(read(f"{A}={W} {A}/{state.held[A].history} {B}*"), state, {}) == FITS
    assert fits(read(f"{A}={W} {A}/{history} {B}={V} {B}/{added(UNSET, V)}"), state, {}) == (
        UNSURE if lost else FITS
    )
