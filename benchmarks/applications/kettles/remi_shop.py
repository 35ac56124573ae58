"""A shop by Remi, whose widgets are named by their addresses in memory and speak over a web socket."""

import sys

from remi import App, gui, start

KETTLES = [(f"Kettle {n}", 20 + 7 * n % 60, ("gas", "electric", "camping")[n % 3]) for n in range(12)]


class Shop(App):
    """A list of kettles with a kind to choose, words to look for, a basket and a note."""

    def main(self) -> gui.Widget:
        self.basket, self.kind, self.words = [], "all", ""
        page = gui.VBox()
        self.kinds = gui.DropDown.new_from_list(["all", "gas", "electric", "camping"])
        self.kinds.onchange.do(self.choose)
        self.search = gui.Input("text", "")
        self.search.onchange.do(self.look)
        self.take, self.clear = gui.Button("Take the first"), gui.Button("Empty")
        self.take.onclick.do(self.add)
        self.clear.onclick.do(self.empty)
        self.shown, self.held = gui.VBox(), gui.Label("")
        page.append([self.kinds, self.search, self.take, self.clear, self.held, self.shown])
        self.draw()
        return page

    def found(self) -> list[tuple[str, int, str]]:
        return [k for k in KETTLES if self.kind in ("all", k[2]) and self.words in k[0]]

    def draw(self) -> None:
        self.shown.empty()
        self.shown.append([gui.Label(f"{name} costs {price} ({kind})") for name, price, kind in self.found()])
        self.held.set_text(f"In the basket: {len(self.basket)}, {sum(k[1] for k in self.basket)} in all")

    def choose(self, _: gui.Widget, value: str) -> None:
        self.kind = value
        self.draw()

    def look(self, _: gui.Widget, value: str) -> None:
        self.words = value
        self.draw()

    def add(self, _: gui.Widget) -> None:
        self.basket += self.found()[:1]
        self.draw()

    def empty(self, _: gui.Widget) -> None:
        self.basket = []
        self.draw()


start(Shop, address="127.0.0.1", port=int(sys.argv[1]), start_browser=False, multiple_instance=True)
