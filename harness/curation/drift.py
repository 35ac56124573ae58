"""Drift: what became of a frozen site in a later recording, page by page and task by task, in tiers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stillweb.harness.console import table
from stillweb.harness.curation.coverage import urls_of
from stillweb.harness.task import Task
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.http import encodings
from stillweb.snapshots.identity.keys import canonical_url
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text.freezing import text_address

SAME, TEXT, SHAPE, GOLD, UNREACHABLE = "same", "text changed", "shape changed", "gold gone", "unreachable"
TIERS = (SAME, TEXT, SHAPE, GOLD, UNREACHABLE)  # from harmless to worst
EXPIRED = (GOLD, UNREACHABLE)
_HEADER = re.compile(r"^(\|.*\|)\s*\n\|[\s:|-]+\|\s*$", re.MULTILINE)  # of a table in Markdown


@dataclass(frozen=True, slots=True)
class Drift:
    """Tier of each page (canonical URL) and task, with the reason. Pages and tasks are in their usual order."""

    pages: dict[str, tuple[str, str]]
    tasks: dict[str, tuple[str, str]]

    @property
    def expired(self) -> list[str]:
        """Ids of the tasks whose gold is gone, or whose pages are."""
        return [name for name, (tier, _) in self.tasks.items() if tier in EXPIRED]

    def at_least(self, tier: str) -> list[str]:
        """Return the tasks of this tier or a worse one; the pages if there are no tasks."""
        least = TIERS.index(tier)
        found = self.tasks or self.pages
        return [name for name, (one, _) in found.items() if TIERS.index(one) >= least]

    def __str__(self) -> str:
        lines = []
        for what, found in (("page", self.pages), ("task", self.tasks)):
            rows = [[name, tier, why] for name, (tier, why) in found.items() if tier != SAME]
            if rows:
                lines.append(table([what, "tier", "why"], rows))
            counts = [f"{sum(t == tier for t, _ in found.values())} {tier}" for tier in TIERS]
            if found:
                lines.append(f"{what}s: {', '.join(counts)}")
        if self.tasks:
            lines.append(f"expired: {', '.join(self.expired) or 'no task'}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "pages": {name: {"tier": tier, "why": why} for name, (tier, why) in self.pages.items()},
            "tasks": {name: {"tier": tier, "why": why} for name, (tier, why) in self.tasks.items()},
            "expired": self.expired,
        }


def drift(old: Snapshot, new: Snapshot, tasks: Iterable[Task] = ()) -> Drift:
    """Compare the pages that `old` answered with `new`, and say which tasks that expires.

    A page is an answer to GET with a text or with JSON. Of several answers of `new` the last counts.
    """
    now = {canonical_url(c.url): c for c in _pages(new)}
    failed = {canonical_url(one.request.url): one.reason for one in new.failures()}
    pages: dict[str, tuple[str, str]] = {}
    words: dict[str, tuple[str, str]] = {}  # text in the old and in the new snapshot
    for capture in _pages(old):
        url = canonical_url(capture.url)
        if capture.status >= 300:
            continue
        later = now.get(url)
        if later is None:
            why = failed.get(url)
            pages[url] = UNREACHABLE, f"failed: {why}" if why else "not in the new snapshot"
            words[url] = _text(old, capture), ""
            continue
        if later.status >= 400:
            pages[url] = UNREACHABLE, f"status {later.status}"
            words[url] = _text(old, capture), ""
            continue
        words[url] = before, after = _text(old, capture), _text(new, later)
        if before == after:
            pages[url] = SAME, ""
        elif lost := _shape(before) ^ _shape(after):
            pages[url] = SHAPE, f"{len(lost)} differ: {sorted(lost)[0][:80]}"
        else:
            pages[url] = TEXT, ""
    return Drift(dict(sorted(pages.items())), {task.id: _task(task, pages, words) for task in tasks})


def _pages(snapshot: Snapshot) -> list[Capture]:
    """Return the last answer to each GET of a page or JSON document, in the order of time."""
    found: dict[str, Capture] = {}
    for capture in sorted(snapshot.captures(), key=lambda c: (c.timestamp, c.begin, c.place)):
        media = capture.mime.partition(";")[0].strip().lower()
        if capture.method == "GET" and (
            media in ("text/html", "application/xhtml+xml", "application/pdf")
            or media.endswith(("json", "csv"))
        ):
            found[canonical_url(capture.url)] = capture
    return list(found.values())


def _text(snapshot: Snapshot, capture: Capture) -> str:
    for address in (text_address(capture), capture.url):
        frozen = snapshot.text(address)
        if frozen is not None and frozen.meta.get("digest", capture.digest) == capture.digest:
            return frozen.markdown
    response = snapshot.read(capture)
    try:
        body = encodings.decode(response.body, response.header("content-encoding"))
    except encodings.EncodingProblem:
        body = response.body
    text = body.decode("utf-8", "replace")
    if capture.mime.partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml"):
        from stillweb.snapshots.text.text import extract_html

        return extract_html(capture.url, text).markdown
    return text


def _shape(text: str) -> set[str]:
    """Return what a program relies on: the paths of a JSON document with their types, or the heads of tables."""
    try:
        value = json.loads(text)
    except ValueError:
        return {" ".join(found.split()) for found in _HEADER.findall(text)}
    return set(_paths(value, "")) if isinstance(value, dict | list) else set()


def _paths(value: Any, path: str) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{path} object", *(p for name, one in value.items() for p in _paths(one, f"{path}.{name}"))]
    if isinstance(value, list):
        return [f"{path} array", *(p for one in value for p in _paths(one, f"{path}[]"))]
    return [f"{path} {type(value).__name__}"]


def _task(
    task: Task, pages: Mapping[str, tuple[str, str]], words: Mapping[str, tuple[str, str]]
) -> tuple[str, str]:
    """Return the tier of a task: the worst of its pages, or that its gold is gone from them."""
    named = [url for url in map(canonical_url, urls_of(task)) if url in pages]
    texts = [words[url] for url in (named or words)]
    before, after = (_plain(" ".join(pair[side] for pair in texts)) for side in (0, 1))
    worst = max((pages[url] for url in named), key=lambda one: TIERS.index(one[0]), default=(SAME, ""))
    lost = [cell for cell in _cells(task.reference) if _has(before, cell) and not _has(after, cell)]
    if worst[0] == UNREACHABLE:
        return worst
    if lost:
        return GOLD, f"no longer there: {', '.join(lost[:3])}"
    return worst


def _cells(reference: Any) -> list[str]:
    """Return the texts of a gold answer: of a list or mapping each, of a table in Markdown each cell."""
    if isinstance(reference, Mapping):
        return [cell for one in reference.values() for cell in _cells(one)]
    if isinstance(reference, list | tuple):
        return [cell for one in reference for cell in _cells(one)]
    if reference is None or isinstance(reference, bool):
        return []
    cells = [_plain(cell) for line in str(reference).splitlines() for cell in line.split("|")]
    return [cell for cell in cells if cell.strip("-: ")]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _has(text: str, cell: str) -> bool:
    """Return True if a text holds a cell as whole words."""
    return re.search(rf"(?<!\w){re.escape(cell)}(?!\w)", text) is not None
