"""What an exploration tries, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from stillweb.proxy.explore.moves import Choices, controls_of, forbidden, moves, words_of
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
    assert left == [("select Year", "its last 6 options are not tried")]


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
