"""Records from CSV as spreadsheets save it (comma, semicolon or tab; with or without BOM), one per row.

An empty cell is an absent member. `meta.NAME` and `options.NAME` are members of these. Cells of options,
`ordered` and `fields` are parsed as JSON if possible (`true`, `0.5`). Several accepted answers are a JSON
list (`["Quay A", "Quay Alpha"]`), `urls` are separated by blanks, `columns` and `row_key` by bars
(`id|minutes`), as are a `table`'s cells, with a line per row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import strict_json
from stillweb.harness.task import Problem
from stillweb.snapshots.words import counted

_DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
SUFFIXES = tuple(_DELIMITERS)
_INTO = ("meta", "options")
_ANSWERS = ("answer", "reference")
_SEPARATED = {"urls": None, "columns": "|", "row_key": "|"}
_JSON = ("ordered", "fields", "options", "meta")


def read_csv(path: Path, text: str) -> Iterator[tuple[dict[str, Any], int] | Problem]:
    """Yield the rows of a file with their line numbers, or a problem in place of a row."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a cell may be a whole prompt
    head = text.partition("\n")[0]
    delimiter = max(_DELIMITERS[path.suffix], key=head.count)  # the first one in a tie
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # after an open quote everything is inside it
            yield Problem(str(path), begin, "", f"not CSV: {error}")
            return
        if not any(cell.strip() for cell in row):
            continue
        if names is None:
            names = [name.strip() for name in row]
            if twice := next((name for name in names if name and names.count(name) > 1), None):
                yield Problem(str(path), begin, twice, "is the name of two columns")
                return
            continue
        if len(row) > len(names) and any(cell.strip() for cell in row[len(names) :]):
            yield Problem(
                str(path), begin, "", f"has {counted(len(row), 'cell')}, and the first row {len(names)}"
            )
            continue
        if unnamed := next(
            (cell for name, cell in zip(names, row, strict=False) if not name and cell.strip()), None
        ):
            yield Problem(str(path), begin, "", f"the column of {unnamed!r} has no name")
            continue
        yield _members(dict(zip(names, row, strict=False))), begin


def _members(row: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in row.items():
        if not cell.strip():
            continue
        into, dot, member = name.partition(".")
        if dot and into in _INTO and member:
            found.setdefault(into, {})[member] = _json(cell) if into == "options" else cell
        elif cell.lstrip().startswith("[") and name in (*_ANSWERS, *_SEPARATED):
            found[name] = _json(cell)
        elif name in _SEPARATED:
            found[name] = [part.strip() for part in cell.split(_SEPARATED[name])]
        else:
            found[name] = _json(cell) if name in _JSON else cell
    return found


def _json(cell: str) -> Any:
    try:
        return strict_json(cell.strip().lower() if cell.strip() in ("TRUE", "FALSE") else cell)
    except ValueError:
        return cell
