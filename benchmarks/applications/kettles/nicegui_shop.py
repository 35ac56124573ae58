"""A shop of kettles with NiceGUI, which talks to its pages over socket.io: `nicegui_shop.py PORT` serves it."""

from __future__ import annotations

import sys

from nicegui import ui

PRICES = {"Gas": 30, "Camping": 45, "Electric": 60}
basket: list[str] = []


@ui.page("/")
def shop() -> None:
    """Show the kettles, each with a button that puts it into the basket that all visitors share."""
    ui.label("Kettles")
    total = ui.label()

    def show() -> None:
        total.set_text(f"{len(basket)} kettles in the basket cost {sum(PRICES[name] for name in basket)}")

    def take(name: str) -> None:
        basket.append(name)
        show()

    for name in PRICES:
        ui.button(f"Take {name}", on_click=lambda name=name: take(name))
    note = ui.label("no note")
    ui.input("Note", on_change=lambda event: note.set_text(f"note: {event.value}")).props("debounce=300")
    show()


@ui.page("/about")
def about() -> None:
    """Show a page that asks its server for nothing."""
    ui.label("Kettles since 1904")


ui.run(port=int(sys.argv[1]), host="127.0.0.1", reload=False, show=False, title="Kettles")
