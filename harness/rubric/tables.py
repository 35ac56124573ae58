"""Parser of tables in answers: pipes, a markdown table, TSV, or CSV with its header.

Three ways of reading, from strict to forgiving:
- `raw`: the required form and nothing else; every line that isn't blank is a row.
- `canonical`: any of the accepted forms; a header, a code fence around the whole and prose before and after
  the rows are no rows. Columns stay where the answer put them.
- `forgiven`: also prose between rows, a fence amid prose, and columns named by a header in another order.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stillweb.harness.rubric.sidecar import Rubric
from stillweb.harness.rubric.spelling import name_form, normalise_text

Level = Literal["raw", "canonical", "forgiven"]
LEVELS: tuple[Level, ...] = ("raw", "canonical", "forgiven")

_RULE_CELL = re.compile(r":?-{1,}:?")
_FENCE = re.compile(r"(`{3,}|~{3,})[^\n`]*\n")
_FENCE_LINE = re.compile(r"[ \t]*(`{3,}|~{3,})[^`]*")
_UNIT = re.compile(r"(?<=.)(?:\([^()]*\)|\[[^\[\]]*\])\Z")
_UNESCAPED_PIPE = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of trimmed cells as the answer gave them. `form`: none, pipe, markdown, tsv, csv, lines."""

    rows: tuple[tuple[str, ...], ...]
    form: str
    header: bool = False


def is_none(text: str) -> bool:
    """Return True if an answer says that there are no rows: it is empty or NONE."""
    return normalise_text(_unfenced(text)).rstrip(".").casefold() in ("", "none")


def parse_table(text: str, rubric: Rubric, level: Level) -> Table | None:
    """Return the table in an answer, or None if this level can't read one."""
    if level == "raw":
        if text.strip() in ("", "NONE"):
            return Table((), "none")
        return _raw(text, rubric)
    if is_none(text):
        return Table((), "none")
    lines = _records(_unfenced(text), rubric.record_separator)
    if level == "forgiven":
        lines = [line for line in lines if not _FENCE_LINE.fullmatch(line)]
    return _delimited(lines, rubric, level) or _csv(lines, rubric, level)


def parse_reference(text: str, rubric: Rubric) -> Table | None:
    """Return the table of a reference, keeping every line: a line that is no row becomes a row of one cell.

    In an answer, such lines before and after the rows are prose. In a reference they are rows that lost their
    separators.
    """
    table = parse_table(text, rubric, "canonical")
    if table is None or table.form in ("none", "csv") or len(rubric.columns) == 1:
        return table
    separators = (rubric.field_separator, "|", "\t")
    lines = _records(_unfenced(text), rubric.record_separator)
    stray = [(line.strip(),) for line in lines if not any(mark in line.strip(" ") for mark in separators)]
    known = set(table.rows)
    return Table((*table.rows, *(row for row in stray if row not in known)), table.form, table.header)


def _unfenced(text: str) -> str:
    """Return the content of a fence around the whole text, or the text if there is none."""
    whole = text.strip()
    opening = _FENCE.match(whole)
    if opening is None or not whole.endswith(opening[1]) or len(whole) < opening.end() + len(opening[1]):
        return text
    return whole[opening.end() : -len(opening[1])].rstrip(" \t").removesuffix("\n")


def _records(text: str, separator: str) -> list[str]:
    if separator == "\n":
        # Not splitlines(): a cell may hold U+2028 or a form feed.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return [line for line in text.split(separator) if line.strip()]


def _raw(text: str, rubric: Rubric) -> Table | None:
    lines = _records(text, rubric.record_separator)
    separator = rubric.field_separator
    if not lines or (len(rubric.columns) > 1 and not any(separator in line for line in lines)):
        return None
    rows = [tuple(cell.strip() for cell in line.split(separator)) for line in lines]
    header = rubric.header != "forbidden" and _is_header(rows[0], rubric)
    return Table(tuple(rows[header:]), "pipe", header)


def _delimited(lines: list[str], rubric: Rubric, level: Level) -> Table | None:
    """Return the rows split at the rubric's separator, else at pipes, else at tabs."""
    if len(rubric.columns) == 1:
        return _single(lines, rubric)
    for separator in dict.fromkeys((rubric.field_separator, "|", "\t")):
        having = [index for index, line in enumerate(lines) if separator in line.strip(" ")]
        if not having:
            continue
        if level == "forgiven":
            block = [lines[index] for index in having]
        else:
            block = lines[having[0] : having[-1] + 1]
        form = {"|": "pipe", "\t": "tsv"}.get(separator, "lines")
        if separator == "|" and any(_is_rule(line) for line in block):
            form = "markdown"
        rows = [_split(line, separator, form, len(rubric.columns)) for line in block]
        return _without_header(rows, block, rubric, level, form)
    return None


def _single(lines: list[str], rubric: Rubric) -> Table:
    cells = [line.strip().strip("|").strip() for line in lines if not _is_rule(line)]
    rows = [(cell,) for cell in cells]
    header = bool(rows) and _is_header(rows[0], rubric)
    return Table(tuple(rows[header:]), "lines", header)


def _split(line: str, separator: str, form: str, width: int) -> tuple[str, ...]:
    if separator != "|":
        return tuple(cell.strip() for cell in line.split(separator))
    text = line.strip()
    parts = [part.strip().replace("\\|", "|") for part in _UNESCAPED_PIPE.split(text)]
    # Outer bars are marks of a markdown row; in other forms they may be empty cells if the width needs them.
    if (form == "markdown" or len(parts) > width) and len(parts) > 1:
        if not parts[0]:
            parts = parts[1:]
        if len(parts) > 1 and not parts[-1] and (form == "markdown" or len(parts) > width):
            parts = parts[:-1] if text.endswith("|") else parts
    return tuple(parts)


def _is_rule(line: str) -> bool:
    """Return True for the line under a markdown header: |---|:--:|."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return all(_RULE_CELL.fullmatch(cell) for cell in cells) and "-" in line and "|" in line


def _without_header(
    rows: list[tuple[str, ...]], block: list[str], rubric: Rubric, level: Level, form: str
) -> Table | None:
    header: tuple[str, ...] | None = None
    kept: list[tuple[str, ...]] = []
    for index, row in enumerate(rows):
        if form == "markdown" and _is_rule(block[index]):
            if len(kept) == 1 and header is None:
                header = kept.pop()  # the row above the rule is the header, whatever it says
            continue
        if header is None and not kept and _is_header(row, rubric):
            header = row
            continue
        kept.append(row)
    order = _order(header, rubric) if header and level == "forgiven" else None
    if order:
        kept = [tuple(row[i] for i in order) if len(row) == len(order) else row for row in kept]
    if not kept and header is None:
        return None
    return Table(tuple(kept), form, header is not None)


def _is_header(row: Sequence[str], rubric: Rubric) -> bool:
    """Return True if a row names the columns, in any order, with or without their units: `V (m)` names V."""
    names, wanted = _names(row, rubric)
    return sorted(names) == sorted(wanted)


def _names(row: Sequence[str], rubric: Rubric) -> tuple[list[str], list[str]]:
    """Return the names in a row and those of the columns, without units unless they are the same with them."""
    names, wanted = [name_form(name) for name in row], [name_form(name) for name in rubric.columns]
    if sorted(names) == sorted(wanted):
        return names, wanted
    return [_UNIT.sub("", name) for name in names], [_UNIT.sub("", name) for name in wanted]


def _order(header: tuple[str, ...], rubric: Rubric) -> list[int] | None:
    """Return each column's position in the header, or None if the header is in order or has other names."""
    names, wanted = _names(header, rubric)
    if names == wanted or sorted(names) != sorted(wanted) or len(set(names)) != len(names):
        return None
    return [names.index(name) for name in wanted]


def _csv(lines: list[str], rubric: Rubric, level: Level) -> Table | None:
    """Return the rows of CSV under its header.

    Without a header, commas are common inside cells of other forms.

    The rows end before blank lines or closing prose: lines of one cell without a row after them.
    """
    for start, line in enumerate(lines):
        header = tuple(next(iter(_csv_rows([line])), ()))
        if not _is_header(header, rubric):
            continue
        rows = _csv_rows(lines[start + 1 :])
        if level == "forgiven":
            rows = [row for row in rows if len(row) > 1]
        while rows and len(rows[-1]) < 2:
            rows.pop()
        order = _order(header, rubric) if level == "forgiven" else None
        if order:
            rows = [tuple(row[i] for i in order) if len(row) == len(order) else row for row in rows]
        return Table(tuple(rows), "csv", True)
    return None


def _csv_rows(lines: list[str]) -> list[tuple[str, ...]]:
    """Return the rows up to a malformed one (a cell of more than 128 Ki characters)."""
    rows: list[tuple[str, ...]] = []
    with contextlib.suppress(csv.Error):
        # with its line break: a quoted cell may continue in the next line
        for row in csv.reader((f"{line}\n" for line in lines), skipinitialspace=True):
            rows.append(tuple(cell.strip() for cell in row))
    return rows
