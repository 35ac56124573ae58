"""A shop of kettles with Dash, whose page sends what was set with each of its callbacks: `dash_shop.py PORT` serves it."""

from __future__ import annotations

import sys

from dash import Dash, Input, Output, State, dash_table, dcc, html

KETTLES = [
    {"name": f"Kettle {n}", "kind": ("gas", "camping", "electric")[n % 3], "price": 20 + 7 * n % 90}
    for n in range(30)
]
app = Dash(__name__, title="Kettles")
app.layout = html.Div(
    [
        dcc.Location(id="at"),
        html.H1("Kettles"),
        dcc.RadioItems(["gas", "camping", "electric"], "gas", id="kind"),
        dcc.Input(id="most", type="number", value=90, debounce=True),
        dash_table.DataTable(id="rows", page_size=5, sort_action="custom", sort_by=[]),
        html.Button("Take", id="take"),
        html.Button("Empty", id="empty"),
        html.P(id="held"),
        dcc.Store(id="basket", data=[], storage_type="session"),
    ]
)


@app.callback(
    Output("rows", "data"), Input("kind", "value"), Input("most", "value"), Input("rows", "sort_by")
)
def rows(kind: str, most: int, by: list[dict[str, str]]) -> list[dict[str, object]]:
    """Return the kettles of a kind that cost at most so much."""
    found = [one for one in KETTLES if one["kind"] == kind and one["price"] <= (most or 0)]
    for one in reversed(by or []):
        found.sort(key=lambda row: row[one["column_id"]], reverse=one["direction"] == "desc")
    return found


@app.callback(
    Output("basket", "data"),
    Input("take", "n_clicks"),
    State("kind", "value"),
    State("basket", "data"),
    prevent_initial_call=True,
)
def take(clicks: int, kind: str, basket: list[str]) -> list[str]:
    """Put a kettle of the chosen kind into the basket, which the page holds."""
    return [*(basket or []), kind]


@app.callback(Output("held", "children"), Input("basket", "data"))
def held(basket: list[str]) -> str:
    """Say what the basket holds."""
    return f"{len(basket or [])} in the basket: {', '.join(basket or [])}"


app.run(port=int(sys.argv[1]), host="127.0.0.1", debug=False)
