"""Extraction of tables, JSON, lines and references from the output of tools.

These functions of a text are the filters of the scripted agent's templates.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.words import pluralize

Table = list[list[str]]

_ARIA_ITEM = re.compile(
    r"^(?P<indent>\s*)- (?P<role>[a-z]+)\b(?: \"(?P<name>(?:[^\"\\]|\\.)*)\")?(?P<rest>.*)$"
)
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(\|\s*:?-{1,}:?\s*)*\|?\s*")


def tables(text: str) -> list[Table]:
    """Return all tables of a text: markdown, accessibility snapshots (`- table:` … `- row`) or HTML."""
    if re.search(r"<table[\s>]", text, re.IGNORECASE):
        return _html_tables(text)
    if re.search(r"^\s*- row\b", text, re.MULTILINE):
        return _aria_tables(text)
    return _markdown_tables(text)


def table(text: str, *columns: str, index: int | None = None) -> Table:
    """Return one table, header row first: number `index` (from 0), or the first with all named columns.

    Column names are compared without case and outer blanks. Raise UsageError listing the tables.
    """
    found = tables(text)
    if index is not None:
        if index < len(found):
            return found[index]
        raise UsageError(f"there is no table {index}: the text has {len(found)}")
    wanted = {column.strip().lower() for column in columns}
    for candidate in found:
        if candidate and wanted <= {cell.strip().lower() for cell in candidate[0]}:
            return candidate
    heads = "; ".join(" | ".join(t[0]) for t in found if t) or "none"
    raise UsageError(f"no table has the columns {', '.join(columns)}; tables found: {heads}")


def records(text: str, *columns: str, index: int | None = None) -> list[dict[str, str]]:
    """Return the rows of a table as mappings from column name to cell."""
    head, *rows = table(text, *columns, index=index)
    names = [name.strip() for name in head]
    return [dict(zip(names, row, strict=False)) for row in rows]


def pick(rows: list[dict[str, str]], *columns: str) -> Table:
    """Return the named columns of records, in that order."""
    lowered = [{name.lower(): cell for name, cell in row.items()} for row in rows]
    try:
        return [[row[column.lower()] for column in columns] for row in lowered]
    except KeyError as error:
        raise UsageError(f"there is no column {error.args[0]!r}; there are {', '.join(rows[0])}") from error


def piped(rows: Table, separator: str = "|") -> str:
    """Return a table as lines of cells joined by `separator`."""
    return "\n".join(separator.join(map(str, row)) for row in rows)


def find(text: str, pattern: str, group: int | str = 1) -> str:
    """Return the first match of a regular expression: the given group, or the whole match without groups."""
    match = re.search(pattern, text, re.MULTILINE)
    found = match and match.group(group if match.re.groups else 0)
    if found is None:
        what = "nothing matches" if match is None else f"the match has no group {group} of"
        raise UsageError(f"{what} {pattern!r} in {_begin(text)}")
    return str(found)


def _begin(text: str) -> str:
    """Return the length and the beginning of a text, for an error message."""
    words = " ".join(text[:400].split())
    if not words:
        return "an empty text"
    return f"a text of {pluralize(len(text), 'character')}: {words[:160].rstrip()}{'…' if len(text.strip()) > 160 else ''}"


def find_all(text: str, pattern: str) -> list[Any]:
    """Return all matches of a regular expression: texts, or lists of groups if it has several."""
    return [list(m) if isinstance(m, tuple) else m for m in re.findall(pattern, text, re.MULTILINE)]


def from_json(text: str) -> Any:
    """Return the JSON value at the first brace or bracket of a text; a tool may write words before it."""
    start = re.search(r"[\[{]", text)
    if start is None:
        raise UsageError(f"no JSON object or array in {_begin(text)}")
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start.start())
    except ValueError as error:
        raise UsageError(f"the text holds no whole JSON value: {error}") from error
    return value


def ref(snapshot: str, pattern: str, nth: int = 0) -> str:
    """Return the reference (`e12`) in the nth line of a browser snapshot that matches a pattern."""
    lines = [line for line in snapshot.splitlines() if "[ref=" in line and re.search(pattern, line)]
    if nth >= len(lines):
        raise UsageError(f"no element {nth} of the page matches {pattern!r} ({len(lines)} do)")
    found = re.search(r"\[ref=([^\]]+)\]", lines[nth])
    return found[1] if found else ""


def columns_of(text: str) -> Table:
    """Return the lines of a text set in columns (as in a PDF), split at tabs and at two or more blanks."""
    return [re.split(r"\t|\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


def words_of(text: str) -> Table:
    """Return the lines of a text, split at blanks."""
    return [line.split() for line in text.splitlines() if line.strip()]


def csv_rows(text: str) -> Table:
    return list(csv.reader(io.StringIO(text)))


def _markdown_tables(text: str) -> list[Table]:
    found: list[Table] = []
    current: Table = []
    ruled = False
    for line in [*text.splitlines(), ""]:
        if "|" in line and line.strip():
            # below the head; further rules are rows
            if _RULE.fullmatch(line) and not ruled and len(current) < 2:
                ruled = True
                continue
            inner = line.strip().removeprefix("|")
            inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
            current.append([c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", inner)])
        else:
            if current:
                found.append(current)
            current, ruled = [], False
    return found


def _html_tables(text: str) -> list[Table]:
    from bs4 import BeautifulSoup

    found: list[Table] = []
    for element in BeautifulSoup(text, "lxml").find_all("table"):
        rows = [
            [" ".join(cell.get_text(" ").split()) for cell in row.find_all(["td", "th"], recursive=False)]
            for row in element.find_all("tr")
        ]
        found.append([row for row in rows if row])
    return found


def _aria_tables(text: str) -> list[Table]:
    """Return the tables of an accessibility snapshot, by indentation.

    A cell's text is its name, else the words inside it.
    """
    found: list[Table] = []
    stack: list[tuple[int, str]] = []  # (indent, role) of the open table, row and cell
    named = False
    for line in text.splitlines():
        item = _ARIA_ITEM.match(line)
        if item is None:
            continue
        indent, role = len(item["indent"]), item["role"]
        while stack and stack[-1][0] >= indent:
            stack.pop()
        name = (item["name"] or "").replace('\\"', '"')
        if role in ("table", "grid", "treegrid"):
            found.append([])
            stack.append((indent, role))
        elif role == "row":
            if not any(open_role in ("table", "grid", "treegrid") for _, open_role in stack):
                found.append([])
            found[-1].append([])
            stack.append((indent, role))
        elif role in ("cell", "gridcell", "columnheader", "rowheader") and found and found[-1]:
            after = item["rest"].partition("]:")[2] or re.sub(r"^(\s*\[[^\]]*\])*\s*:?", "", item["rest"])
            found[-1][-1].append(name or after.strip().strip('"'))
            named = bool(found[-1][-1][-1])
            stack.append((indent, "cell"))
        elif stack and stack[-1][1] == "cell" and not named:
            inner = name or item["rest"].partition(": ")[2].strip().strip('"')
            cells = found[-1][-1]
            cells[-1] = f"{cells[-1]} {inner}".strip()
    return [[row for row in rows if row] for rows in found if any(rows)]
