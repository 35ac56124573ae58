"""Moves that an exploration tries, and those that it leaves alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.explore.explorer import BROUGHT, ELSEWHERE, HERE, Agenda, hash_client_state
from stillweb.proxy.explore.graph import Node
from stillweb.proxy.explore.moves import (
    Choices,
    Move,
    Noise,
    controls_of,
    forbidden,
    moves,
    stable_content,
    words_of,
)
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve


def control(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "css": "#x", "target": {"role": kind, "name": name}, "name": name} | more


@pytest.mark.parametrize(
    "name",
    [
        "Buy now",
        "Add to cart",
        "Delete row",
        "Log out",
        "Sign out",
        "Send",
        "Subscribe",
        "Remove",
        "Pay €3",
        "退出",
    ],
)
def test_what_spends_sends_deletes_or_logs_out_is_never_tried(name: str) -> None:
    assert forbidden(control("button", name))
    tried, left = moves({"controls": [control("button", name)], "words": ""}, Choices())
    assert not tried
    assert left[0][0] == f"button {name}"


@pytest.mark.parametrize(
    "name", ["Show more", "Sort by name", "Notes", "Order by date", "Payload size", "Deleted: no"]
)
def test_what_only_shows_is_tried(name: str) -> None:
    assert forbidden(control("button", name)) is None


@pytest.mark.parametrize("name", ["Log out", "Delete", "Unsubscribe", "Add to basket", "Remove"])
def test_links_that_act_at_once_are_not_followed(name: str) -> None:
    assert forbidden(control("link", name, href="http://a/x"))
    assert forbidden(control("link", "View and edit SQL", href="http://a/x?sql=1")) is None


def test_links_and_forms_that_do_harm_are_known_by_where_they_lead() -> None:
    assert forbidden(control("link", "×", href="http://a/-/logout"))
    assert forbidden(control("link", "", href="http://a/cart/"))
    assert forbidden(control("link", "Cartography", href="http://a/cartography")) is None
    post = {"css": "#s", "name": "Go", "method": "post", "action": "http://a/x", "texts": ["text"]}
    assert forbidden(control("select", options=["a"], submit=post))
    assert forbidden(control("select", options=["a"], submit=post | {"texts": []})) is None
    assert forbidden(control("select", options=["a"], submit=post | {"texts": [], "name": "Delete"}))


def test_moves_of_each_kind() -> None:
    submit = {"css": "#go", "name": "Apply", "method": "get", "action": "http://a/", "texts": []}
    link = {"near": True, "origin": True, "paging": False, "header": False, "rel": ""}
    found = {
        "words": "Windmills along rivers of the north",
        "controls": [
            control("select", options=["A", "B"], target={"label": "Year"}, submit=submit),
            control("check", target=None, submit=None),
            control("text", target={"placeholder": "Find"}, submit=submit, search=True),
            control("text", target={"label": "Your name"}, submit=submit, search=False),
            control("value", type="number", min="0", max="5", value="0", target={"label": "n"}, submit=None),
            control("value", type="date", min="", max="", value="", target={"label": "d"}, submit=None),
            control("tab", "Notes"),
            control("link", "2", href="http://a/?p=2", **link | {"paging": True}),
            control("link", "CSV", href="http://a/x.csv", **link),
            control("link", "Away", href="http://b/", **link | {"near": False, "origin": False}),
            control("link", "Deeper", href="http://a/deeper", **link | {"near": False}),
        ],
    }
    tried, left = moves(found, Choices())
    assert left == [("http://a/x.csv", "is a file, and no view")]
    ways = [(move.kind, list(move.steps)) for move in tried]
    assert ways == [
        ("select", [{"select": {"label": "Year", "option": "A"}}]),
        ("select", [{"select": {"label": "Year", "option": "B"}}]),
        ("check", [{"check": {"css": "#x"}}]),
        ("text", [{"fill": {"placeholder": "Find", "value": "windmills"}}, {"press": {"placeholder": "Find", "key": "Enter"}}]),
        ("text", [{"fill": {"placeholder": "Find", "value": "along"}}, {"press": {"placeholder": "Find", "key": "Enter"}}]),
        ("value", [{"fill": {"label": "n", "value": "5"}}, {"press": {"label": "n", "key": "Enter"}}]),
        ("value", [{"fill": {"label": "d", "value": "2025-01-01"}}, {"press": {"label": "d", "key": "Enter"}}]),
        ("tab", [{"click": {"role": "tab", "name": "Notes"}}]),
        ("page", [{"click": {"role": "link", "name": "2"}}]),
    ]  # fmt: skip
    assert tried[0].then == ({"click": {"css": "#go"}},)
    wider, _ = moves(found, Choices(links="site", values=["mill"]))
    assert [move.href for move in wider if move.kind == "link"] == ["http://a/deeper"]
    assert {"fill": {"placeholder": "Find", "value": "mill"}} in [
        step for move in wider for step in move.steps
    ]


def test_options_that_are_too_many_are_not_left_out_in_silence() -> None:
    years = [str(year) for year in range(1980, 2010)]
    tried, left = moves({"words": "", "controls": [control("select", "Year", options=years)]}, Choices())
    assert [move.steps[0]["select"]["option"] for move in tried] == years[:24]
    assert left == [("select Year", "the last 6 of its options are not tried")]


def test_words_are_those_of_the_page() -> None:
    assert words_of("A mill, the Mills and the rivers; Rivers 2019 again", 2) == ["mills", "rivers"]


@pytest.mark.slow
def test_odd_elements_keep_nothing_from_being_found(browser: Browsing) -> None:
    """Values that are no text, fields that are called as what a form has, elements that are called as kinds of fields."""
    page = b"""<!DOCTYPE html><time>12:00</time><search>Here</search><li role=option tabindex=0 value=3></li><my-part role=button></my-part>
        <form><input name=elements><select name=x><option>1<option>2</select><button>Go</button></form>
        <fieldset disabled><legend><button>Last</button></legend><button>Off</button><label><input type=checkbox>Off</label></fieldset>
        <script>document.querySelector("my-part").value = {a: 1};</script>"""

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return 200, {"Content-Type": "text/html"}, page

    async def find(url: str) -> dict[str, Any]:
        driver = await browser.driver()
        await driver.open(url)
        found = await controls_of(driver.page)
        await driver.context.close()
        return found

    with serve(handle) as base:
        found = browser.run(find(base))
    kinds = [(one["kind"], one.get("name", "")) for one in found["controls"]]
    assert kinds == [
        ("button", ""), ("button", ""), ("text", ""), ("select", ""), ("submit", "Go"), ("button", "Last"),
    ]  # fmt: skip
    assert found["controls"][3]["submit"]["name"] == "Go"


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


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    page = (
        "<title>P</title><script>sessionStorage.seen = 1; document.cookie = 'mine=1; max-age=600';</script>"
    )
    kind = path.removeprefix("/")
    return 200, {"Content-Type": "text/html", "Set-Cookie": f"kind={kind}; Max-Age=3600"}, page.encode()


@pytest.mark.slow
def test_a_cookie_that_lasts_is_the_same_at_each_visit(browser: Browsing) -> None:
    async def visit(url: str) -> str:
        driver = await browser.driver()
        await driver.open(url)
        held = await hash_client_state(driver)
        await driver.context.close()
        return held

    with serve(handle) as base:
        one, again, other = (browser.run(visit(f"{base}/{kind}")) for kind in ("a", "a", "b"))
    assert one == again
    assert one != other


def test_numbers_that_change_by_themselves_are_learned() -> None:
    noise = Noise()
    first, again = "Mills\nQueries took 9.43ms\n3 rows", "Mills\nQueries took 12ms\n3 rows"
    assert noise.look(first) != noise.look(again)
    assert noise.learn(first, again)
    assert not noise.learn(first, again)
    assert noise.look(first) == noise.look(again)
    assert noise.look("Mills\nQueries took 1,000ms\n4 rows") != noise.look(first)
    assert Noise(sorted(noise.masks)).look(again) == noise.look(first)


def test_words_that_change_are_no_noise() -> None:
    noise = Noise()
    assert not noise.learn("North\n3 rows", "South\n3 rows")
    assert not noise.learn("a", "a\nb 3")
    assert noise.look("North") != noise.look("South")


def test_what_fields_hold_is_no_other_view() -> None:
    before = stable_content(
        "x", '- combobox "Year":\n  - option "2018" [selected]\n  - option "2019"\n- textbox "Find": a'
    )
    after = stable_content(
        "x", '- combobox "Year":\n  - option "2018"\n  - option "2019" [selected]\n- textbox "Find": b'
    )
    assert before == after
    assert before != stable_content("y", "")
