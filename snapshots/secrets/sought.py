"""Many byte strings sought in one text at once, each replaced by its own.

A few are sought with `bytes.find` (memchr speed). Beyond that, all share one compiled regular expression in the
shape of a trie, whose cost doesn't grow with their number; it is compiled anew only when enough have been added.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any

FEW = 24


class Sought:
    """A growing set of byte strings and what each becomes. Reading never waits for adding."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[bytes, bytes] = {}
        self._longest = 0
        # swapped whole: (strings sought one by one, the trie of the others or None)
        self._state: tuple[tuple[bytes, ...], re.Pattern[bytes] | None] = ((), None)

    @property
    def count(self) -> int:
        """How many strings are sought."""
        return len(self._all)

    def add(self, names: dict[bytes, bytes]) -> None:
        """Adds strings with their replacements; known ones are left alone."""
        with self._lock:
            new = {k: v for k, v in names.items() if k not in self._all}
            if not new:
                return
            self._all = self._all | new
            self._longest = max(self._longest, *map(len, new))
            few, trie = self._state
            few = tuple(sorted((*few, *new), key=lambda s: (-len(s), s)))
            if len(few) > FEW:
                few, trie = (), re.compile(_alternation(self._all))
            self._state = (few, trie)

    def replace(self, data: bytes) -> bytes:
        """The data with every string replaced, the longest first; the same object when none occurs."""
        few, trie = self._state
        if trie is not None and trie.search(data) is not None:
            # all together, so that a longer one added lately wins over a shorter one in the trie
            return (
                re.compile(_alternation(self._all)).sub(self._name, data)
                if few
                else trie.sub(self._name, data)
            )
        present = [s for s in few if s in data]
        if not present:
            return data
        if len(present) == 1:
            return data.replace(present[0], self._all[present[0]])
        return re.compile(b"|".join(map(re.escape, present))).sub(self._name, data)

    def _name(self, match: re.Match[bytes]) -> bytes:
        return self._all[match[0]]

    def replace_pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """As `replace` on the joined pieces, holding back only as much as a string can be long."""
        kept = b""
        hold = self._longest - 1
        for piece in pieces:
            kept += piece
            if len(kept) <= 2 * hold:
                continue
            # a string that begins before the cut may end after it: cut only where none lies across
            cut = self._free_cut(kept, len(kept) - hold)
            yield self.replace(kept[:cut])
            kept = kept[cut:]
        if kept:
            yield self.replace(kept)

    def _free_cut(self, data: bytes, cut: int) -> int:
        start = max(0, cut - self._longest)
        window = data[start : cut + self._longest]
        few, trie = self._state
        found = [m.span() for m in trie.finditer(window)] if trie is not None else []
        for string in few:
            at = window.find(string)
            while at >= 0:
                found.append((at, at + len(string)))
                at = window.find(string, at + 1)
        for begin, end in sorted(found, reverse=True):
            if start + begin < cut < start + end:
                cut = start + begin
        return cut

    def occurs_in(self, pieces: Iterable[bytes]) -> bool:
        """Whether any string occurs in the joined pieces."""
        kept = b""
        for piece in pieces:
            kept += piece
            few, trie = self._state
            if any(s in kept for s in few) or (trie is not None and trie.search(kept)):
                return True
            kept = kept[-(self._longest - 1) :] if self._longest > 1 else b""
        return False


def _alternation(strings: Iterable[bytes]) -> bytes:
    """A pattern that matches the longest of the strings at a place, branching byte by byte."""
    root: dict[int | None, Any] = {}
    for string in sorted(strings):
        node = root
        for byte in string:
            node = node.setdefault(byte, {})
        node[None] = True
    return _pattern(root)


def _pattern(node: dict[int | None, Any]) -> bytes:
    run = b""
    children = _children(node)
    while len(children) == 1 and None not in node:  # a chain without branches, taken without recursion
        byte, node = children[0]
        run += re.escape(bytes((byte,)))
        children = _children(node)
    if not children:
        return run
    tail = b"|".join(re.escape(bytes((byte,))) + _pattern(child) for byte, child in children)
    return run + b"(?:" + tail + b")" + (b"?" if None in node else b"")


def _children(node: dict[int | None, Any]) -> list[tuple[int, dict[int | None, Any]]]:
    return sorted(((b, child) for b, child in node.items() if b is not None), key=lambda item: item[0])
