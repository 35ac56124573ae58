"""The graph of views: every view a card in its place, every step on a line."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from stillweb.proxy.explore.graph import CARD, Card, Edge, Graph, Node, brief, graph_uri, trees
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import Step, View, view_address
from stillweb.snapshots.writer import Writer

SITE = "http://mill.test"
HOME = f"{SITE}/"


def picture(colour: tuple[int, int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (1280, 800), colour).save(out, "PNG")
    return out.getvalue()


def click(name: str) -> Step:
    return {"click": {"role": "tab", "name": name}}


def view(title: str, *steps: Step, parent: tuple[Step, ...] | None = None, url: str = HOME) -> View:
    above = None if parent is None else view_address(url, parent)
    state = {
        "url": url,
        "page": "2",
        "fields": [{"label": "Year", "value": ["2012"]}, {"label": "Empty", "value": ""}],
    }
    return View(view_address(url, steps), url, url, title, steps, above, state=state)


WIND, WATER = click("Wind"), click("Water")
YEAR: Step = {"select": {"label": "Year", "option": "2012"}}
VIEWS = [
    view("Mills"),
    view("Wind mills <b>", WIND, parent=()),
    view("Water mills", WATER, parent=()),
    view("Water mills of 2012", WATER, YEAR, {"scroll": {"to": "bottom"}}, parent=(WATER,)),
    view("Other", url=f"{SITE}/other"),
    view("Orphan", click("Lost"), parent=(click("Gone"),), url=f"{SITE}/orphan"),
]


def snapshot(path: Path) -> Snapshot:
    graph = Graph(HOME, [Node(v.address, list(v.steps), v.title, v.url, len(v.steps), "") for v in VIEWS[:4]])
    addresses = [v.address for v in VIEWS]
    graph.edges = [
        Edge(addresses[0], addresses[1], "tab", [WIND]),
        Edge(addresses[1], addresses[2], "tab", [WATER]),
        Edge(addresses[3], addresses[0], "reset", [click("Reset")]),
        Edge(addresses[3], "http://nowhere.test/", "link", [click("Away")]),
    ]
    graph.left = [("button Buy now", "spends")]
    graph.ended = "all tried"
    with Writer.open(path) as writer:
        for number, one in enumerate(VIEWS):
            resources = {"view": picture((40 * number, 120, 160))} if number != 4 else {}
            writer.view(replace(one, timestamp=f"2025010203040{number}"), {**resources, "text": b"x"})
        writer.metadata(graph_uri(HOME), graph.to_json())
    return Snapshot.open(path)


@pytest.mark.slow
def test_views_are_trees_with_parents_left_of_their_children(tmp_path: Path) -> None:
    with snapshot(tmp_path / "s") as opened:
        found = trees(opened)
    assert [[c.view.title for c in tree.cards] for tree in found] == [
        ["Mills", "Wind mills <b>", "Water mills", "Water mills of 2012"],
        ["Other"],
        ["Orphan"],
    ]
    tree = found[0]
    cards = {c.view.title: c for c in tree.cards}
    assert [c.view.title for c in tree.root.children] == ["Wind mills <b>", "Water mills"]
    assert cards["Water mills of 2012"].lines == [("select", "Year = 2012"), ("scroll", "bottom")]
    assert cards["Mills"].y == (cards["Wind mills <b>"].y + cards["Water mills"].y) / 2
    assert len(tree.lines) == 3
    assert {move.what for move in tree.moves} == {'click role "tab" "Water"', 'click role "tab" "Reset"'}


def test_no_card_lies_on_another(tmp_path: Path) -> None:
    with snapshot(tmp_path / "s") as opened:
        for tree in trees(opened):
            places = [(c.x, c.y) for c in tree.cards]
            for number, (x, y) in enumerate(places):
                assert all(
                    abs(x - x2) >= CARD[0] or abs(y - y2) >= CARD[1] for x2, y2 in places[number + 1 :]
                )
                assert x + CARD[0] <= tree.width
                assert y + CARD[1] <= tree.height


def test_a_circle_of_parents_is_drawn_all_the_same(tmp_path: Path) -> None:
    one, two = (f"{SITE}/{name}" for name in ("one", "two"))
    with Writer.open(tmp_path / "s") as writer:
        for mine, other in ((one, two), (two, one)):
            writer.view(View(mine, mine, mine, mine, (), other), {"text": b"x"})
    with Snapshot.open(tmp_path / "s") as opened:
        assert sorted(c.view.url for tree in trees(opened) for c in tree.cards) == [one, two]


def test_what_an_exploration_said_stands_with_one_tree(tmp_path: Path) -> None:
    lost = view("Lost", click("Lost"), parent=(click("Gone"),))
    graph = Graph(HOME, left=[("button Buy now", "spends")], ended="all tried")
    with Writer.open(tmp_path / "s") as writer:
        for one in (view("Mills"), lost):
            writer.view(one, {"text": b"x"})
        writer.metadata(graph_uri(HOME), graph.to_json())
    with Snapshot.open(tmp_path / "s") as opened:
        assert [tree.graph is not None for tree in trees(opened)] == [True, False]


def test_many_steps_on_one_line_are_shortened() -> None:
    steps = tuple(click(str(number)) for number in range(6))
    lines = Card(view("x", *steps), 1, steps).lines
    assert lines == [("click", "0"), ("click", "1"), ("click", "2"), ("and 3 more", "")]
    assert brief({"next_page": {}}) == ("next page", "")
