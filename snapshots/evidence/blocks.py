"""Blocks: parts of pages that several requests of a site are answered with, such as a menu, a list of members or of pages seen, a basket.

What decides a block decides it on all pages, so that pages tell of another one that was recorded once. A block is learnt as a request is:
its answers are its texts, and its observations are those of all pages that show it; on which page it is, is a part that may decide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from html import unescape

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.evidence.events import Event, History
from stillweb.snapshots.evidence.model import ADDRESS, Model, Observation
from stillweb.snapshots.identity.keys import mix

SHARED = 3  # requests whose pages show a block, at least
PAGES = 256  # different pages of a site that are read for their blocks
MOST = 12  # blocks of a site that are learnt, those of most requests
KEPT = 1 << 10  # pages whose texts are remembered

_NAMES = re.compile(r"""\b(?:id|class)=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_HIDDEN = re.compile(r"""\btype=["']?hidden\b""", re.IGNORECASE)
_FIELD = re.compile(r"""\b(?:name|value)=(?:"[^"]*"|'[^']*'|[^\s"'>]+)|\bchecked\b""", re.IGNORECASE)
_EMPTY = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905
_UNREAD = ("script", "style", "svg", "template")
_NUMBER = re.compile(r"\d+")


class Blocks:
    """The blocks of a site's pages that change, as its model learns them."""

    def __init__(
        self, model: Model, captures: list[Capture], texts: Callable[[Capture], dict[str, str]]
    ) -> None:
        """Add the blocks to `model` that differ between two answers to one request. `texts` returns those of a page by label."""
        self._model = model
        self._texts = lru_cache(maxsize=KEPT)(texts)
        self._labels: dict[int, str] = {}  # of each block, by its key
        self._shown_on: dict[int, set[int]] = {}  # the requests whose pages show it
        pages: dict[tuple[int, int], Capture] = {}  # by request and answer
        shown: list[tuple[int, Observation]] = []
        for key, target in model.targets.items():
            for o in target.observations:
                if _is_page(captures[o.capture]):
                    pages.setdefault((key, o.answer), captures[o.capture])
                    shown.append((key, o))
        if len(pages) == len({key for key, _ in pages}):
            return  # nothing changes
        read = {page: self._texts(pages[page]) for page in list(pages)[:PAGES]}
        shown = sorted(
            [one for one in shown if (one[0], one[1].answer) in read], key=lambda one: one[1].capture
        )
        by_label: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for (key, _), own in read.items():
            for label, text in own.items():
                by_label[label][key].add(text)
        alike = set[tuple[tuple[int, int], ...]]()  # how texts differ of the blocks that were added
        for label, by_key in sorted(by_label.items(), key=lambda pair: (-len(pair[1]), pair[0])):
            lacking = {key for (key, _), own in read.items() if label not in own}
            if len(by_key) < SHARED or not any(len(own) > 1 or key in lacking for key, own in by_key.items()):
                continue
            observed = [(key, o, read[key, o.answer].get(label, "")) for key, o in shown if key in by_key]
            numbers: dict[str, int] = {}
            pattern = tuple((o.capture, numbers.setdefault(text, len(numbers))) for _, o, text in observed)
            if pattern not in alike and len(alike) < MOST:
                alike.add(pattern)
                block = model.add_block(label, [_observation(key, o, text) for key, o, text in observed])
                self._labels[block], self._shown_on[block] = label, set(by_key)

    def least_likely(self, capture: Capture, page: Event, past: tuple[History, int]) -> tuple[float, str]:
        """Return the chance of the block of a recorded page that is least likely to be so after a past, and its label; 1 without any."""
        if not self._labels or not _is_page(capture):
            return 1.0, ""
        texts = self._texts(capture)
        return min(
            (
                (self._model.block_chance(block, mix(texts.get(label, "")), page, past), label)
                for block, label in self._labels.items()
                if label in texts or page.key in self._shown_on[block]
            ),
            default=(1.0, ""),
        )


def texts_of(html: str) -> dict[str, str]:
    """Return the texts and fields of a page by the tag that they stand in, with the id and class of that or the nearest tag around it."""
    found: dict[str, list[str]] = defaultdict(list)
    around = [("", "")]  # open tags: the label of the nearest that has one, and the name
    unread = ""
    for number, piece in enumerate(html.split("<")):
        tag, closed, text = piece.partition(">") if number else ("", "", piece)
        name = tag.split(maxsplit=1)[0].casefold().removesuffix("/") if closed and tag.strip() else ""
        if unread:
            unread = "" if name == f"/{unread}" else unread
        elif name in _UNREAD:
            unread = "" if tag.endswith("/") else name
        elif name == "input" and not _HIDDEN.search(tag):
            found["/".join(around[-1])].append(" ".join(_FIELD.findall(tag)))
        elif name.startswith("/"):
            at = next((n for n in range(len(around) - 1, 0, -1) if around[n][1] == name[1:]), len(around))
            del around[at:]
        elif name and name[0] != "!" and name not in _EMPTY and not tag.endswith("/"):
            names = " ".join(one or other or bare for one, other, bare in _NAMES.findall(tag))
            around.append((f"{name}.{_NUMBER.sub('0', names)}" if names else around[-1][0], name))
        if not unread and (words := " ".join(text.split())):
            found["/".join(around[-1])].append(words)
    return {label: unescape(" | ".join(texts)) for label, texts in found.items() if label[0] != "/"}


def _is_page(capture: Capture) -> bool:
    return "html" in capture.mime and not 300 <= capture.status < 400


def _observation(key: int, o: Observation, text: str) -> Observation:
    """Return what an observation of a page shows of a block, after the event of the page."""
    own = next((place for place in o.history.asked(key) if place >= o.place), None)
    after = o.place if own is None else own + 1
    return replace(o, place=after, answer=mix(text), before=None, parts={ADDRESS: f"{key:x}"})
