"""The graph of an exploration: the states found, and the moves between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from stillweb.proxy.browser.steps import describe
from stillweb.proxy.browser.uploads import names_of
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.view import Step, View

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


@dataclass(slots=True)
class Node:
    """A stored view: its address, how it was reached, and the hash of what it shows."""

    address: str
    steps: list[Step]
    title: str
    url: str
    depth: int
    look: str


@dataclass(slots=True)
class Edge:
    """A move from one view to another (an old one if it shows the same)."""

    source: str
    target: str
    kind: str
    steps: list[Step]


@dataclass(slots=True)
class Graph:
    """The result of exploring one URL. JSON-ready through `to_json`."""

    url: str
    views: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)  # (control, why it was left alone)
    failed: list[tuple[str, str]] = field(default_factory=list)  # (steps, why)
    walls: list[tuple[str, str]] = field(default_factory=list)  # (steps, why the page was not stored)
    robots: list[str] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)  # lines that change by themselves, numbers masked
    done: list[str] = field(default_factory=list)  # tried moves, by key
    ended: str = ""  # why it stopped, "" while it goes on

    def whole(self) -> Graph:
        """Return a copy without edges to views that are not stored (yet)."""
        stored = {node.address for node in self.views}
        return replace(self, edges=[edge for edge in self.edges if {edge.source, edge.target} <= stored])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for the snapshot and `ls --views`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Graph:
        """Return the graph in a JSON object; inverse of `to_json`. Raises ValueError if it describes none."""
        return convert(value, cls)


def graph_uri(url: str) -> str:
    """Return the URI of the metadata record with the graph of a URL."""
    return f"urn:graph:{url}"


CARD = 192, 184  # width and height of a card, in CSS pixels
GAP = 156, 22  # between columns, where the steps are written, and between rows
MOST_ABOVE = 1.5  # most rows between a parent and its first child: further down it would be out of sight
MARGIN = 16
MOST_STEPS = 4  # most lines on an edge; the view's panel lists all steps


@dataclass(slots=True)
class Card:
    """A view with its position. `steps` lead to it from its parent."""

    view: View
    number: int
    steps: tuple[Step, ...]
    children: list[Card] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the steps as written on the edge: pairs of action and target."""
        steps = [brief(step) for step in self.steps]
        if len(steps) <= MOST_STEPS:
            return steps
        return [*steps[: MOST_STEPS - 1], (f"and {len(steps) - MOST_STEPS + 1} more", "")]


@dataclass(frozen=True, slots=True)
class Move:
    """A move between known views outside the tree: its description, and its path as SVG."""

    source: Card
    target: Card
    what: str
    path: str


@dataclass(slots=True)
class Tree:
    """A page and the views reached from it. `graph` is the result of its exploration, if there was one."""

    root: Card
    cards: list[Card]
    lines: list[str]  # SVG paths, parent to child
    moves: list[Move]
    width: float
    height: float
    graph: Graph | None
    problem: str  # why `graph` can't be read; "" if it can


def trees(snapshot: Snapshot) -> list[Tree]:
    """Return the views of a snapshot as trees, in the order of the page list.

    A view without a known parent is a root.
    """
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
    told: set[str] = set()  # pages whose graph is shown already: it is shown with the page's first tree
    for root in roots:
        graph, problem = (None, "") if root.view.url in told else _graph(snapshot, root.view.url)
        told.add(root.view.url)
        found.append(_tree(root, graph, problem))
    return found


def _graph(snapshot: Snapshot, url: str) -> tuple[Graph | None, str]:
    """Return the result of a page's exploration, None if there was none; and why it can't be read, "" if it can."""
    try:
        raw = snapshot.metadata(graph_uri(url))
        return (None if raw is None else Graph.from_json(raw)), ""
    except (DamagedInput, ValueError) as error:
        return None, f"the results of its exploration can't be read: {error}"


def _beyond(view: View, parent: View | None) -> tuple[Step, ...]:
    """Return the steps after those of the parent; all steps if they don't begin with the parent's."""
    if parent is not None and view.steps[: len(parent.steps)] == parent.steps:
        return view.steps[len(parent.steps) :]
    return view.steps


def _leads_back(view: View, views: dict[str, View]) -> bool:
    """Return True if a view is its own ancestor, which a damaged page list could say."""
    seen = {view.address}
    above = views.get(view.parent or "")
    while above is not None:
        if above.address in seen:
            return above.address == view.address
        seen.add(above.address)
        above = views.get(above.parent or "")
    return False


def _tree(root: Card, graph: Graph | None, problem: str) -> Tree:
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
    return Tree(root, order, lines, arcs, width, height, graph, problem)


def _place(root: Card) -> list[Card]:
    """Set the position of each card, and return the cards from top to bottom.

    Leaves get a row each. A parent stands in the middle of its children, or near the first of many.
    """
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
    """Return the SVG path from a card's right side to a child's left side.

    It bends before the text of the steps.
    """
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
    """Return the SVG path between the bottoms of two cards, below both.

    Two cards of one column are connected along their right sides.
    """
    if source.x == target.x:
        x, y1, y2 = source.x + CARD[0], source.y + CARD[1] * 0.8, target.y + CARD[1] * 0.8
        return f"M{x:.0f} {y1:.0f}C{x + 20:.0f} {y1:.0f} {x + 20:.0f} {y2:.0f} {x + 1:.0f} {y2:.0f}"
    x1, x2 = source.x + CARD[0] * 0.6, target.x + CARD[0] * 0.4
    y1, y2 = source.y + CARD[1], target.y + CARD[1]
    low = max(y1, y2) + 16
    return f"M{x1:.0f} {y1:.0f}C{x1:.0f} {low:.0f} {x2:.0f} {low:.0f} {x2:.0f} {y2:.0f}"


def brief(step: Step) -> tuple[str, str]:
    """Return a step as action and target, in few words (`select`, `Year = 2012`)."""
    action, given = next(iter(step.items()))
    names = (
        "name", "label", "text", "placeholder", "css", "role", "url", "key", "selector", "gone", "time",
        "to"
    )  # fmt: skip
    what = next((str(given[name]) for name in names if name in given), "")
    if what and what == given.get("css"):
        what = what.rpartition(" > ")[2]  # the end of a CSS path says more than its beginning
    if action in ("select", "fill"):
        value = given.get("option", given.get("value", ""))
        what = f"{what} = {', '.join(map(str, value)) if isinstance(value, list) else value}"
    elif action == "upload":
        what = f"{what} = {', '.join(names_of(given))}"
    return action.replace("_", " "), what


def fields(state: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield a page's state as names and values: page, tabs, sort, then the fields that are not empty."""
    for name, value in (state or {}).items():
        if name == "fields":
            for one in value:
                held = one.get("checked", one.get("value"))
                if held not in ("", [], None, False):
                    label = one.get("label") or one.get("name") or one.get("type", "field")
                    yield str(label), ", ".join(map(str, held)) if isinstance(held, list) else str(held)
        elif name != "url" and value not in ("", [], {}, None):
            yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
