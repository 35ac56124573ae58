"""Workaround for trafilatura, which drops cells, list items and headings that only say "PDF", "Print" or so.

trafilatura takes such words (Google, PDF, Mail, Print, …) for buttons that share a page. While it reads a tree, a
character that it doesn't print follows each of these words, so that they don't match its filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stillweb.snapshots.text.html_text import Element

_LONGEST = 40  # characters of the longest text that is tested; those that trafilatura drops are shorter
_MARK = "\ue000"  # private use: not printable and no white space, so trafilatura removes it from its output


@contextmanager
def kept(tree: Element) -> Iterator[int]:
    """Mark the lone words of a tree within the `with` block; yield their number, then restore the tree."""
    from trafilatura.utils import RE_FILTER

    marked: list[tuple[Element, str, str]] = []
    for element in tree.iter():
        for name in ("text", "tail"):
            said = getattr(element, name)
            if said and len(words := said.strip()) <= _LONGEST and RE_FILTER.match(words):
                marked.append((element, name, said))
                setattr(element, name, said.rstrip() + _MARK + said[len(said.rstrip()) :])
    try:
        yield len(marked)
    finally:
        for element, name, said in marked:
            setattr(element, name, said)
