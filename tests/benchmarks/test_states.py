"""The servers that remember, walked a little: what the table counts."""

from __future__ import annotations

import pytest

from benchmarks.mini_sites import SITES, Mini
from benchmarks.states import MISS, OTHER, RECORDED, RIGHT, UNSURE, WRONG, Figures, measure, table


def _figures(mini: Mini) -> Figures:
    return sum((measure(mini, seed) for seed in range(3)), Figures())


@pytest.mark.parametrize("name", ["seen_last", "mail", "shop", "filtered", "stateless"])
def test_what_was_recorded_is_right_in_its_order(name: str) -> None:
    (mini,) = (one for one in SITES if one.name == name)
    found = _figures(mini)
    assert found[RECORDED, RIGHT] > 40
    assert [found[RECORDED, what] for what in (WRONG, UNSURE, MISS)] == [0, 0, 0]


def test_a_server_that_remembers_nothing_is_sure_of_all_that_was_recorded() -> None:
    (mini,) = (one for one in SITES if one.name == "stateless")
    found = _figures(mini)
    assert found[OTHER, RIGHT] > 20
    assert [found[OTHER, what] for what in (WRONG, UNSURE)] == [0, 0]


def test_the_table_has_a_row_for_each_server_and_their_sum() -> None:
    rows = [line.split("|")[1:-1] for line in table(1).splitlines()[2:]]
    assert [row[0].strip() for row in rows] == [*(mini.name.replace("_", " ") for mini in SITES), "all"]
    assert [sum(int(row[n]) for row in rows[:-1]) for n in range(1, 11)] == [int(n) for n in rows[-1][1:]]
