"""Conditions as the index holds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.states.conditions import Asked, Conditions, Effect, Sequence, read, write
from tests.support.memory_store import MemoryStore, Recorded, answers, get, html

slots = st.text("0123456789abcdef", min_size=8, max_size=8)
many = st.frozensets(slots | st.just("-"), min_size=1, max_size=3)


@given(
    st.builds(
        Conditions,
        held=st.lists(st.tuples(slots, slots), max_size=3).map(tuple),
        one_of=st.lists(st.tuples(slots, many), max_size=2).map(lambda x: tuple(sorted(x, key=repr))),
        mostly=st.lists(st.tuples(slots, many), max_size=2).map(lambda x: tuple(sorted(x, key=repr))),
        free=st.frozensets(slots, max_size=2),
        cookies=st.lists(st.tuples(slots, slots | st.just("-")), max_size=2).map(lambda x: tuple(sorted(x))),
        not_other=st.lists(st.tuples(slots, slots), max_size=2).map(lambda x: tuple(sorted(x))),
        carried=st.lists(st.tuples(slots, slots), max_size=2).map(lambda x: tuple(sorted(x))),
        sets=st.frozensets(slots, max_size=2),
        sequence=st.none()
        | st.builds(Sequence, slots, st.integers(0, 99), slots | st.sampled_from(["*", "-"])),
        asked=st.builds(Asked, *[st.frozensets(slots | slots.map(lambda s: f"{s}.2"), max_size=2)] * 3),
        issued=st.frozensets(
            st.text(st.characters(codec="utf-8"), max_size=8).map(lambda t: f"form:{t}"), max_size=2
        ),
        during=st.booleans(),
        never=st.booleans(),
        literal=st.booleans(),
        keyed=st.booleans(),
        begins=st.booleans(),
        effect=st.none() | st.builds(Effect, slots, st.sampled_from("=~+"), slots, st.booleans()),
    )
)
def test_conditions_are_read_as_they_were_written(conditions: Conditions) -> None:
    text = write(conditions)
    assert "\n" not in text
    assert write(read(text)) == text
    found = read(text)
    assert (found.held, found.effect, found.sequence, found.issued, found.carried, found.asked) == (
        conditions.held, conditions.effect, conditions.sequence, conditions.issued, conditions.carried,
        conditions.asked,
    )  # fmt: skip


def test_conditions_of_another_make_fit_nothing() -> None:
    assert read("something else").never


def test_a_place_that_is_no_number_is_the_first() -> None:
    sequence = read("#12345678.²/*").sequence
    assert sequence is not None
    assert (sequence.key, sequence.place, sequence.since) == ("12345678", 0, "*")


@pytest.mark.parametrize("state", ["never", "00000000;later-kind", "k n of-a-later-kind"])
def test_what_a_state_says_in_words_not_known_fits_in_no_session(state: str) -> None:
    page = get("http://a.test/page")
    store = MemoryStore([Recorded(page, html("page"))])
    assert answers(Matcher(store), page) == ["page"]
    store.changed(0, state=state)
    assert answers(Matcher(store), page) == ["miss"]
