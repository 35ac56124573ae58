"""The order in which an exploration tries what it has found."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.explore.explorer import BROUGHT, ELSEWHERE, HERE, Agenda
from stillweb.proxy.explore.graph import Node
from stillweb.proxy.explore.moves import Move


def node(name: str, depth: int = 0) -> Node:
    return Node(f"http://a.test/#{name}", [], name, "http://a.test/", depth, name)


def move(name: str) -> Move:
    step = {"click": {"text": name}}
    return Move("button", (step,), (step,))


def order(agenda: Agenda) -> list[str]:
    return [agenda.take()[1].steps[0]["click"]["text"] for _ in range(len(agenda))]


def test_near_views_come_first_then_what_they_brought() -> None:
    agenda = Agenda()
    far, near = node("far", 1), node("near")
    agenda.add(far, move("far"))
    agenda.add(near, move("here"), HERE)
    agenda.add(near, move("elsewhere"), ELSEWHERE)
    agenda.add(near, move("brought"), BROUGHT)
    assert order(agenda) == ["brought", "elsewhere", "here", "far"]
    with pytest.raises(IndexError):
        agenda.take()


def test_every_pair_of_controls_has_its_turn_before_any_has_its_second() -> None:
    def choose(label: str, option: str) -> Move:
        step = {"select": {"label": label, "option": option}}
        return Move("select", (step,), (step,))

    agenda = Agenda()
    for year in ("2019", "2020"):
        there = node(year, 1)
        there.steps = list(choose("Year", year).steps)
        for region in ("North", "South"):
            agenda.add(there, choose("Region", region), ELSEWHERE)
        agenda.add(there, choose("Kind", "Wind"), HERE)
    other = node("South", 1)
    other.steps = list(choose("Region", "South").steps)
    agenda.add(other, choose("Year", "2019"), ELSEWHERE)  # the same two, the other way round
    agenda.add(other, choose("Kind", "Wind"), ELSEWHERE)
    taken = [agenda.take() for _ in range(len(agenda))]
    said = [f"{view.title} {move.steps[0]['select']['option']}" for view, move in taken]
    assert said == [
        "2019 North", "South Wind", "2019 Wind", "2019 South", "2020 Wind", "2020 North", "2020 South", "South 2019",
    ]  # fmt: skip


def test_what_never_showed_anything_new_comes_last_but_is_not_left_out() -> None:
    agenda = Agenda()
    for name in ("barren", "once", "good"):
        agenda.add(node("a"), move(name))
    agenda.tell(move("barren"), new=False)
    agenda.tell(move("once"), new=True)
    agenda.tell(move("once"), new=False)
    assert order(agenda) == ["once", "good", "barren"]


def test_a_move_that_failed_is_tried_once_more_at_the_end() -> None:
    agenda = Agenda()
    agenda.add(node("a"), move("one"))
    view, failed = agenda.take()
    agenda.add(node("a"), move("two"), HERE)
    assert agenda.again(view, failed)
    assert order(agenda) == ["two", "one"]
    assert not agenda.again(view, failed)
    assert len(agenda) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.sampled_from([BROUGHT, ELSEWHERE, HERE])), max_size=12))  # fmt: skip
def test_what_is_kept_goes_on_in_the_same_order(entries: list[tuple[str, int, int]]) -> None:
    nodes = {name: node(name, depth) for depth, name in enumerate("abc")}
    agenda = Agenda()
    for name, number, turn in entries:
        agenda.add(nodes[name], move(str(number)), turn)
    agenda.tell(move("3"), new=False)
    again = Agenda()
    known = json.loads(json.dumps(agenda.to_json()))
    taken = again.take_up(known, {one.address: one for one in nodes.values()})
    assert len(taken) == len(entries)
    assert order(again) == order(agenda)


def test_views_that_are_gone_are_left_out() -> None:
    agenda = Agenda()
    agenda.add(node("a"), move("one"))
    again = Agenda()
    assert again.take_up(agenda.to_json([(node("b"), move("two"))]), {node("b").address: node("b")}) == [
        (node("b"), move("two"))
    ]
    assert order(again) == ["two"]
