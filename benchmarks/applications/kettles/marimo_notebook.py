"""A notebook about kettles for `marimo run`, which talks to its page over a web socket."""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    return (mo,)


@app.cell
def _(mo):
    kind = mo.ui.dropdown(["gas", "camping", "electric"], value="gas", label="Kind")
    count = mo.ui.button(value=0, label="One more", on_click=lambda value: value + 1)
    mo.vstack([kind, count])
    return count, kind


@app.cell
def _(count, kind, mo):
    prices = {"gas": 30, "camping": 45, "electric": 60}
    mo.md(f"{count.value} kettles of kind {kind.value} cost {count.value * prices[kind.value]}.")


if __name__ == "__main__":
    app.run()
