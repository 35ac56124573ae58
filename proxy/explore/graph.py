"""The graph of an exploration: the states found, and the moves between them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stillweb.snapshots.shapes import convert
from stillweb.snapshots.view import Step


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
