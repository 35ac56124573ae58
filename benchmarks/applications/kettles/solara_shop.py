"""A shop of kettles with Solara, which talks to its page over a web socket as Jupyter's kernels do; `solara run` serves it."""

from __future__ import annotations

import solara

PRICES = {"gas": 30, "camping": 45, "electric": 60}


@solara.component
def Page() -> None:
    """Show the price of some kettles of one kind, and a basket of one's own."""
    kind, set_kind = solara.use_state("gas")
    note, set_note = solara.use_state("")
    basket, set_basket = solara.use_state([])
    solara.Title("Kettles")
    solara.ToggleButtonsSingle(value=kind, values=list(PRICES), on_value=set_kind)
    solara.InputText("Note", value=note, on_value=set_note)
    solara.Button("Take", on_click=lambda: set_basket([*basket, f"{kind} {note}".strip()]))
    solara.Text(f"A kettle of kind {kind} costs {PRICES[kind]}.")
    solara.Markdown(f"**In the basket:** {'; '.join(basket) or 'nothing'}, {len(basket)} kettles")
