"""A shop of kettles with Panel, which talks to its page over Bokeh's web socket: `panel_shop.py PORT` serves it."""

from __future__ import annotations

import sys

import pandas
import panel

panel.extension()
PRICES = {"gas": 30, "camping": 45, "electric": 60}


def shop() -> panel.Column:
    """Show the price of some kettles of one kind, the rows that cost at most so much, and a basket of one's own."""
    kind = panel.widgets.Select(name="Kind", options=list(PRICES))
    count = panel.widgets.IntInput(name="Count", value=1, start=1)
    note = panel.widgets.TextInput(name="Note")
    take = panel.widgets.Button(name="Take")
    basket: list[str] = []
    held = panel.pane.Str("empty")

    def taken(_: object) -> None:
        basket.append(f"{count.value} {kind.value} {note.value}".strip())
        held.object = "; ".join(basket)

    take.on_click(taken)
    price = panel.bind(lambda k, n: f"{n} kettles of kind {k} cost {n * PRICES[k]}.", kind, count)
    rows = panel.bind(
        lambda k: pandas.DataFrame({"name": [f"{k} {n}" for n in range(3)], "price": PRICES[k]}), kind
    )
    return panel.Column(
        "# Kettles", kind, count, note, take, panel.panel(price), panel.pane.DataFrame(rows), held
    )


panel.serve(shop, port=int(sys.argv[1]), address="127.0.0.1", show=False, title="Kettles")
