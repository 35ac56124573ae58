"""Tables of a page as rows of cells, and as CSV.

They are the HTML tables and ARIA tables and grids (`role=table`, `grid`, `treegrid`) that hold no other table and more
than one cell. A cell that spans rows or columns is repeated in each of them (as in the HTML table model,
https://html.spec.whatwg.org/multipage/tables.html#forming-a-table). Hidden rows and cells are left out, so that a view
has the rows that it shows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.html_text import MOST_CELLS, Element

MOST_SPAN = 1000  # columns and rows that a cell spans at most; browsers have the same limit for columns
_GRIDS = ("table", "grid", "treegrid")
_CELLS = ("cell", "gridcell", "columnheader", "rowheader")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_GROUPS = ("thead", "tbody", "tfoot")


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its caption (or label, or the heading before it) and its rows, all of the same length."""

    caption: str
    rows: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        return len(self.rows[0])

    def csv(self) -> str:
        """Return the rows as CSV (RFC 4180), but with line feeds, as command-line tools expect."""
        return "".join(map(_csv_line, self.rows))


def _csv_line(row: tuple[str, ...]) -> str:
    out = io.StringIO()
    # lines that end so let a cell with a carriage return be quoted, too
    csv.writer(out, lineterminator="\r\n").writerow(row)
    return out.getvalue().removesuffix("\r\n") + "\n"


def tables_of(html: str) -> list[Table]:
    """Return the tables of a page in document order. Raises TooLarge."""
    if (tags := html.count("<") - html.count("</")) > html_text.MOST_TAGS:
        raise TooLarge(
            f"a page with more than {html_text.MOST_TAGS} tags ({tags}); `stillweb fetch` has its text"
        )
    tree = html_text.parse(html)
    if tree is None:
        return []
    found: list[Table] = []
    heading = ""
    for element in tree.iter():
        tag = element.tag if isinstance(element.tag, str) else ""
        if tag in _HEADINGS:
            heading = _words(element).partition(" ")[2]  # without the hashes
        elif _is_table(element, tag) and not _within_hidden(element):
            rows = _square(_rows(element, tag))
            if sum(map(len, rows)) > 1:
                found.append(Table(_caption(element) or heading, rows))
    return found


def _is_table(element: Element, tag: str) -> bool:
    if not tag or (tag != "table" and element.get("role") not in _GRIDS):
        return False
    inner = (e for e in element.iterdescendants() if isinstance(e.tag, str))
    return not any(e.tag == "table" or e.get("role") in _GRIDS for e in inner)


def _hidden(element: Element) -> bool:
    style = (element.get("style") or "").replace(" ", "").lower()
    return element.get("hidden") is not None or "display:none" in style or "visibility:hidden" in style


def _within_hidden(element: Element) -> bool:
    return _hidden(element) or any(_hidden(above) for above in element.iterancestors())


def _words(element: Element) -> str:
    return " ".join(html_text.markdown(element).split())


def _caption(table: Element) -> str:
    caption = table.find("caption")
    return (_words(caption) if caption is not None else "") or " ".join(
        (table.get("aria-label") or "").split()
    )


Cell = tuple[str, int, int]  # text, columns, rows (0: to the end of the row group)


def _rows(table: Element, tag: str) -> Iterator[tuple[Element, list[Cell]]]:
    """Yield the visible rows, each with its row group (the table itself if there is none)."""
    is_html = tag == "table"
    for row in table.iter("tr") if is_html else table.iter():
        if not isinstance(row.tag, str) or (not is_html and row.get("role") != "row"):
            continue
        above = row.getparent()
        group = above if is_html and above is not None and above.tag in _GROUPS else table
        if _hidden(row) or (group is not table and _hidden(group)):
            continue
        cells = [c for c in (row if is_html else row.iterdescendants()) if isinstance(c.tag, str)]
        cells = [c for c in cells if (c.tag in ("td", "th") if is_html else c.get("role") in _CELLS)]
        yield (
            group,
            [
                (_words(c), _span(c.get("colspan") or c.get("aria-colspan"), 1), _span(c.get("rowspan"), 0))
                for c in cells
                if not _hidden(c)
            ],
        )


def _span(value: str | None, least: int) -> int:
    if value is None or not (value.isascii() and value.isdigit()):
        return 1
    return max(least, min(int(value[:10]), MOST_SPAN))


class _Grid:
    """Rows as they are laid out: a spanning cell is repeated in each of its places."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self._cells = 0
        self._group: Element | None = None
        self._above: dict[int, tuple[str, int]] = {}  # column -> text, rows to come (-1: to the group's end)
        self._row: list[str] = []
        self._below: dict[int, tuple[str, int]] = {}

    def add(self, group: Element, cells: list[Cell]) -> None:
        """Add a row of a row group. Raises TooLarge."""
        if group is not self._group:
            self._group, self._above = group, {}
        self._row, self._below = [], {}
        self._cells += len(self._above) + sum(columns for _, columns, _ in cells)
        if self._cells > MOST_CELLS:
            raise TooLarge(
                f"a table with more than {MOST_CELLS} cells, as they span; `stillweb fetch` has its text"
            )
        for words, columns, height in cells:
            self._from_above()
            for _ in range(columns):
                self._place(words, height - 1)
        self._from_above()
        self._above = self._below
        self.rows.append(self._row)

    def _from_above(self) -> None:
        while (spanning := self._above.get(len(self._row))) is not None:
            self._place(spanning[0], spanning[1] - 1 if spanning[1] > 0 else -1)

    def _place(self, words: str, left: int) -> None:
        if left:
            self._below[len(self._row)] = words, left
        self._row.append(words)


def _square(rows: Iterable[tuple[Element, list[Cell]]]) -> tuple[tuple[str, ...], ...]:
    """Return rows of the same length: short rows are padded with empty cells, empty rows are left out."""
    grid = _Grid()
    for group, cells in rows:
        grid.add(group, cells)
    kept = [row for row in grid.rows if any(row)]
    width = max(map(len, kept), default=0)
    return tuple(tuple(row + [""] * (width - len(row))) for row in kept)
