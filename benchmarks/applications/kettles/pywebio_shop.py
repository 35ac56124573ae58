"""A shop of kettles with PyWebIO, which asks and shows over a web socket: `pywebio_shop.py PORT` serves it."""

from __future__ import annotations

import sys

from pywebio import start_server
from pywebio.input import NUMBER, actions, input, input_group, select
from pywebio.output import put_buttons, put_table, put_text, use_scope

PRICES = {"gas": 30, "camping": 45, "electric": 60}


def shop() -> None:
    """Ask for a kind and a number until the visitor pays; show what is in the basket."""
    basket: list[tuple[str, int]] = []
    put_text("Kettles")
    put_buttons(["Prices"], onclick=[lambda: put_table([["kind", "price"], *PRICES.items()])])
    while actions("What now?", ["Take", "Pay"]) == "Take":
        asked = input_group(
            "Take", [select("Kind", list(PRICES), name="kind"), input("Number", NUMBER, name="number")]
        )
        basket.append((asked["kind"], asked["number"]))
        with use_scope("basket", clear=True):
            put_text("; ".join(f"{number} {kind}" for kind, number in basket) + " in the basket")
    put_text(f"To be paid: {sum(number * PRICES[kind] for kind, number in basket)}")


start_server(shop, port=int(sys.argv[1]), host="127.0.0.1", cdn=False)
