"""Detection of data tables that an extracted text has lost, and their insertion at the right line.

An extractor may drop tables or take their rows apart. The words around a lost table in its page are located in the
text: first runs of words that occur once in both, then, between the two runs next to the table, single words. The
table is inserted after the words that precede it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stillweb.snapshots.text.html_text import (
    BREAK,
    SKIP,
    SPACE,
    Element,
    hidden,
    is_data_table,
    rows,
    table_markdown,
)

_LOOKED_AT, _TOLD = 3, 40  # rows of a table, and characters of each cell, that are searched for in the text
_LINK = re.compile(r"\]\([^()\s]*\)|[*`\[\]\\|_]")
_WORD = re.compile(r"\w+")
_RUN = 4  # words in a run; one that occurs once in the page and once in the text marks the same place
_ENDS = BREAK | {"br", "td", "th"}
_FENCE = "```"


def lost_tables(tree: Element, extracted: str) -> list[Element]:
    """Return the data tables of a page of which the extracted text lacks a fifth of the cells or more, or the rows."""
    lost: list[Element] = []
    plain = ""
    lines = [_bare(line) for line in extracted.split("\n") if line.lstrip().startswith("|")]
    for table in tree.iter("table"):
        if hidden(table) or not is_data_table(table):
            continue
        plain = plain or SPACE.sub(" ", _LINK.sub("", extracted))
        found = [[_bare(cell) for cell in row] for row in rows(table)[:200]]
        cells = [cell for row in found for cell in row if cell]
        missing, enough = 0, -(-len(cells) // 5)
        for cell in cells:
            missing += cell not in plain
            if missing >= enough:
                break
        if cells and (missing >= enough or not _in_rows(found, lines)):
            lost.append(table)
    return lost


def put_back(tree: Element, extracted: str, lost: Sequence[Element]) -> tuple[str, int]:
    """Return the text with each lost table in its place, and the number of tables put at the end.

    A table goes to the end if no words around it are found in the text.
    """
    lines = extracted.rstrip("\n").split("\n")
    added: dict[int, list[str]] = defaultdict(list)
    nowhere = 0
    for table, place in _places(_read(tree, lost), lines):
        nowhere += place is None
        added[len(lines) if place is None else place].append(table_markdown(table))
    out: list[str] = []
    for number in range(len(lines) + 1):
        for table in added.get(number, ()):
            out += ["", table] if out and out[-1] else [table]
            out.append("")
        if number < len(lines):
            # an empty line here is dropped: the table is followed by one
            out += [] if number in added and not lines[number] else [lines[number]]
    return "\n".join(out).rstrip("\n"), nowhere


def _bare(text: str) -> str:
    """Return a text without the marks of markdown and with its white space collapsed."""
    return SPACE.sub(" ", _LINK.sub("", text)).strip()


def _in_rows(found: list[list[str]], lines: list[str]) -> bool:
    """Return True if one of a table's first rows is in a pipe table's line, or no row has two cells to search for."""
    told = [[cell[:_TOLD] for cell in row if cell] for row in found]
    rows = [row for row in told if len(row) > 1][:_LOOKED_AT]
    return not rows or any(all(cell in line for cell in row) for row in rows for line in lines)


def _words(line: str) -> list[str]:
    return _WORD.findall(_LINK.sub("", line.replace("|", " ")))


@dataclass(frozen=True, slots=True)
class _Page:
    """Words of a page in document order, and each lost table with the number of words before it."""

    words: list[str]
    tables: list[tuple[Element, int]]


def _read(tree: Element, lost: Sequence[Element]) -> _Page:
    page = _Page([], [])
    line: list[str] = []
    for piece in _walk(tree, set(lost)):
        if isinstance(piece, str) and piece:
            line.append(piece)
            continue
        page.words.extend(_words("".join(line)))
        line.clear()
        if not isinstance(piece, str):
            page.tables.append((piece, len(page.words)))
    page.words.extend(_words("".join(line)))
    return page


def _walk(root: Element, lost: set[Element]) -> Iterator[str | Element]:
    """Yield texts (hidden ones, too), "" where a line or a cell ends, and lost tables, in document order."""
    stack: list[tuple[Element, bool]] = [(root, False)]
    while stack:
        element, leaving = stack.pop()
        tag = element.tag if isinstance(element.tag, str) else ""
        if not leaving and tag and tag not in SKIP:
            if element in lost:
                yield element
            elif tag in _ENDS:
                yield ""
            if element.text:
                yield element.text
            stack.append((element, True))
            stack.extend((child, False) for child in reversed(element))
            continue
        if leaving and tag in _ENDS:
            yield ""
        if element.tail and element is not root:
            yield element.tail


def _places(page: _Page, lines: Sequence[str]) -> Iterator[tuple[Element, int | None]]:
    """Yield each lost table with the number of the line before which it belongs; None if it can't be located."""
    text: list[str] = []
    line_of: list[int] = []
    for number, line in enumerate(lines):
        found = _words(line)
        text += found
        line_of += [number] * len(found)
    sure = _common(page.words, text, (0, len(page.words)), (0, len(text)), _RUN)
    for table, at in page.tables:
        before, after = _around(sure, at, len(page.words), len(text))
        near = _common(page.words, text, (before[0] + 1, after[0]), (before[1] + 1, after[1]), 1)
        before, after = _around([before, *near, after], at, len(page.words), len(text))
        if before[1] >= 0:
            end = line_of[after[1]] if after[1] < len(text) else len(lines)
            yield table, _behind(lines, line_of[before[1]], end)
        else:
            yield table, line_of[after[1]] if after[1] < len(text) else None


Pair = tuple[int, int]  # number of a word in the page, and of the same word in the text


def _around(pairs: Sequence[Pair], at: int, words: int, told: int) -> tuple[Pair, Pair]:
    """Return the last pair before word `at` of the page and the first from it on.

    Where there is none, the pair is (-1, -1) or (`words`, `told`), beyond the ends of both.
    """
    place = bisect_left(pairs, (at, -1))
    before = pairs[place - 1] if place else (-1, -1)
    return before, pairs[place] if place < len(pairs) else (words, told)


def _common(words: Sequence[str], text: Sequence[str], within: Pair, part: Pair, run: int) -> list[Pair]:
    """Return pairs of the words in runs of `run` words that occur once in each range.

    They are the most pairs that are in the same order in both.
    """

    def once(all_: Sequence[str], begin: int, end: int) -> dict[tuple[str, ...], int]:
        found: dict[tuple[str, ...], int] = {}
        for number in range(begin, end - run + 1):
            one = tuple(all_[number : number + run])
            found[one] = -1 if one in found else number
        return {one: number for one, number in found.items() if number >= 0}

    there = once(text, *part)
    starts = [(number, there[one]) for one, number in once(words, *within).items() if one in there]
    pairs = {
        (number + more, line + more) for number, line in _increasing(sorted(starts)) for more in range(run)
    }
    return _increasing(sorted(pairs))


def _increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest subsequence in which both numbers increase, by patience sorting; `pairs` are sorted."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, line) in enumerate(pairs):
        pile = bisect_left(tops, line)
        before.append(ends[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [line]
        ends[pile : pile + 1] = [index]
    out: list[Pair] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        out.append(pairs[index])
        index = before[index]
    return out[::-1]


def _behind(lines: Sequence[str], last: int, end: int) -> int:
    """Return the first line after `last`, at most `end`, that is not within a table, paragraph or block of code.

    The end of a code block may lie after `end`.
    """
    place = last + 1
    table = lines[last].startswith("|")
    while place < end and lines[place] and lines[place].startswith("|") is table:
        place += 1
    # a code block may begin after words, at the end of their line
    if sum(line.count(_FENCE) for line in lines[:place]) % 2:
        while place < len(lines) and _FENCE not in lines[place]:
            place += 1
        place += 1
    return min(place, len(lines))
