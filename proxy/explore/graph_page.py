"""The HTML page of a snapshot's views: each a card with its picture, the steps between them as lines.

Views are laid out as trees from left to right: a view stands right of the one it was reached from, pages that start
from nothing stand at the left. Moves that an exploration found between known views are thin broken lines.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stillweb.proxy.explore.graph import Graph, graph_uri
from stillweb.proxy.pages.html_page import template
from stillweb.proxy.pages.steps import describe, to_yaml
from stillweb.proxy.pages.uploads import names_of
from stillweb.snapshots.view import Step, View

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

CARD = 192, 184  # width and height of a card, in CSS pixels
GAP = 156, 22  # between cards: where the steps are written, and between rows
MOST_ABOVE = 1.5  # rows that may lie above a card's middle: else it is out of sight
PICTURE = 432, 270  # of a thumbnail: as large as it is shown in a view's panel
MARGIN = 16
MOST_STEPS = 4  # lines written on an edge; the rest is told in the view's own panel


@dataclass(slots=True)
class Card:
    """A view in its place. `steps` lead there from its parent."""

    view: View
    number: int
    steps: tuple[Step, ...]
    children: list[Card] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The steps as they are written on the edge: what is done, and to what."""
        told = [brief(step) for step in self.steps]
        if len(told) <= MOST_STEPS:
            return told
        return [*told[: MOST_STEPS - 1], (f"and {len(told) - MOST_STEPS + 1} more", "")]


@dataclass(frozen=True, slots=True)
class Move:
    """A move between known views that is no line of the tree: what is done, and its path as SVG."""

    source: Card
    target: Card
    what: str
    path: str


@dataclass(slots=True)
class Tree:
    """A page and all that was reached from it. `graph` is what an exploration of it said, if there was one."""

    root: Card
    cards: list[Card]
    lines: list[str]  # paths of SVG, parent to child
    moves: list[Move]
    width: float
    height: float
    graph: Graph | None


def trees(snapshot: Snapshot) -> list[Tree]:
    """The views of a snapshot as trees, in the order of the page list; a view without known parent begins one."""
    views = {view.address: view for view in snapshot.views()}
    cards: dict[str, Card] = {}
    for number, view in enumerate(views.values(), 1):
        parent = views.get(view.parent or "")
        cards[view.address] = Card(view, number, _beyond(view, parent))
    roots: list[Card] = []
    for card in cards.values():
        above = cards.get(card.view.parent or "")
        if above is None or _leads_back(card.view, views):
            roots.append(card)
        else:
            above.children.append(card)
    found = []
    told: set[str] = set()  # what an exploration said stands with the first tree of its page
    for root in roots:
        raw = None if root.view.url in told else snapshot.metadata(graph_uri(root.view.url))
        told.add(root.view.url)
        found.append(_tree(root, Graph.from_json(raw) if isinstance(raw, dict) else None))
    return found


def _beyond(view: View, parent: View | None) -> tuple[Step, ...]:
    """The steps after those of the parent; all where they don't begin with those."""
    if parent is not None and view.steps[: len(parent.steps)] == parent.steps:
        return view.steps[len(parent.steps) :]
    return view.steps


def _leads_back(view: View, views: dict[str, View]) -> bool:
    """Whether a view's parents go round in a circle (a damaged page list could say so)."""
    seen = {view.address}
    above = views.get(view.parent or "")
    while above is not None:
        if above.address in seen:
            return above.address == view.address
        seen.add(above.address)
        above = views.get(above.parent or "")
    return False


def _tree(root: Card, graph: Graph | None) -> Tree:
    order = _place(root)
    by_address = {card.view.address: card for card in order}
    lines = [_line(card, child) for card in order for child in card.children]
    own = {(c.view.parent, c.view.address) for c in order}
    moves: dict[tuple[str, str], str] = {}
    for edge in graph.edges if graph else ():
        ends = edge.source, edge.target
        if ends in own or ends[0] == ends[1] or not all(end in by_address for end in ends):
            continue
        moves.setdefault(ends, "; ".join(describe(step) for step in edge.steps))
    arcs = [
        Move(by_address[a], by_address[b], what, _arc(by_address[a], by_address[b]))
        for (a, b), what in sorted(moves.items())
    ]
    width = max(card.x for card in order) + CARD[0] + MARGIN
    height = max(card.y for card in order) + CARD[1] + MARGIN
    return Tree(root, order, lines, arcs, width, height, graph)


def _place(root: Card) -> list[Card]:
    """Gives each card its place: rows for the leaves, parents in the middle of their children, or near the first of many. Top to bottom."""
    order: list[Card] = []
    todo = [(root, 0)]
    while todo:
        card, depth = todo.pop()
        card.x = MARGIN + depth * (CARD[0] + GAP[0])
        order.append(card)
        todo += [(child, depth + 1) for child in reversed(card.children)]
    row = 0
    for card in order:
        if not card.children:
            card.y = MARGIN + row * (CARD[1] + GAP[1])
            row += 1
    for card in reversed(order):
        if card.children:
            middle = (card.children[0].y + card.children[-1].y) / 2
            card.y = min(middle, card.children[0].y + MOST_ABOVE * (CARD[1] + GAP[1]))
    return order


def _line(card: Card, child: Card) -> str:
    """From the right side of a card to the left side of another; it bends before the words of the steps."""
    x1, y1 = card.x + CARD[0], card.y + CARD[1] / 2
    x2, y2 = child.x - 7, child.y + CARD[1] / 2
    if abs(y1 - y2) < 1:
        return f"M{x1:.0f} {y1:.1f}H{x2:.0f}"
    bend, turn = x1 + 13, 9 if y2 > y1 else -9
    return (
        f"M{x1:.0f} {y1:.1f}H{bend - 9:.0f}Q{bend:.0f} {y1:.1f} {bend:.0f} {y1 + turn:.1f}"
        f"V{y2 - turn:.1f}Q{bend:.0f} {y2:.1f} {bend + 9:.0f} {y2:.1f}H{x2:.0f}"
    )


def _arc(source: Card, target: Card) -> str:
    """From the bottom of a card to that of another, below both; in one column round their right sides."""
    if source.x == target.x:
        x, y1, y2 = source.x + CARD[0], source.y + CARD[1] * 0.8, target.y + CARD[1] * 0.8
        return f"M{x:.0f} {y1:.0f}C{x + 20:.0f} {y1:.0f} {x + 20:.0f} {y2:.0f} {x + 1:.0f} {y2:.0f}"
    x1, x2 = source.x + CARD[0] * 0.6, target.x + CARD[0] * 0.4
    y1, y2 = source.y + CARD[1], target.y + CARD[1]
    low = max(y1, y2) + 16
    return f"M{x1:.0f} {y1:.0f}C{x1:.0f} {low:.0f} {x2:.0f} {low:.0f} {x2:.0f} {y2:.0f}"


def brief(step: Step) -> tuple[str, str]:
    """A step as few words: what is done, and to what (`select`, `Year = 2012`)."""
    action, given = next(iter(step.items()))
    names = (
        "name",
        "label",
        "text",
        "placeholder",
        "css",
        "role",
        "url",
        "key",
        "selector",
        "gone",
        "time",
        "to",
    )
    what = next((str(given[name]) for name in names if name in given), "")
    if what and what == given.get("css"):
        what = what.rpartition(" > ")[2]  # the end of a way through the markup tells more than its beginning
    if action in ("select", "fill"):
        value = given.get("option", given.get("value", ""))
        what = f"{what} = {', '.join(value) if isinstance(value, list) else value}"
    elif action == "upload":
        what = f"{what} = {', '.join(names_of(given))}"
    return action.replace("_", " "), what


def thumbnail(png: bytes) -> str | None:
    """A screenshot as a small data URI: the top of it, WebP where Pillow can write that. None if it can't be read."""
    from PIL import Image, UnidentifiedImageError, features

    try:
        picture = Image.open(io.BytesIO(png)).convert("RGB")
    except (UnidentifiedImageError, OSError):
        return None
    height = min(picture.height, max(1, round(picture.width * PICTURE[1] / PICTURE[0])))
    picture = picture.crop((0, 0, picture.width, height)).resize(PICTURE, Image.Resampling.LANCZOS)
    kind = "WEBP" if features.check("webp") else "JPEG"
    out = io.BytesIO()
    picture.save(out, kind, quality=72)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"


def graph_page(snapshot: Snapshot, name: str) -> str:
    """HTML without links outside and without script; `name` is what is shown."""
    shown = trees(snapshot)
    page = template("stillweb.proxy.explore", "graph.html", yaml=to_yaml).render(
        name=name,
        id=snapshot.id,
        trees=[tree for tree in shown if len(tree.cards) > 1 or tree.graph],
        alone=[tree for tree in shown if len(tree.cards) == 1 and not tree.graph],
        pages=len(shown),
        views=sum(len(tree.cards) for tree in shown),
        card=CARD,
        gap=GAP,
        fields=fields,
        picture=_pictures(snapshot),
    )
    return page.lstrip()


def fields(state: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """What could be read off the page, as names and values: page, tabs, sort, then the fields that hold something."""
    for name, value in (state or {}).items():
        if name == "fields":
            for one in value:
                held = one.get("checked", one.get("value"))
                if held not in ("", [], None, False):
                    said = one.get("label") or one.get("name") or one.get("type", "field")
                    yield str(said), ", ".join(map(str, held)) if isinstance(held, list) else str(held)
        elif name != "url" and value not in ("", [], {}, None):
            yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _pictures(snapshot: Snapshot) -> Callable[[str], str | None]:
    def picture(address: str) -> str | None:
        png = snapshot.resource("view", address)
        return thumbnail(png) if png else None

    return picture
