"""Words that stand alone and that trafilatura takes for buttons to share a page with: Google, PDF, Mail, Print, …

It drops them wherever they are, so a cell, list item or heading that says just that was empty. While it reads a tree,
each has a character behind it that trafilatura does not print, and so is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stillweb.snapshots.texts.html_text import Element

_LONGEST = 40  # characters of the longest that is dropped, with room for what is around it
_MARK = "\ue000"  # private use: neither printed nor a blank, so it goes with the other control characters


@contextmanager
def kept(tree: Element) -> Iterator[int]:
    """Keeps the tree's lone words from being dropped within the `with`; gives how many there are. The tree is then as before."""
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
