"""Drift: what became of a frozen site in a later recording, page by page and task by task, in tiers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from stillweb.harness.console import table
from stillweb.harness.curation.coverage import urls_of
from stillweb.harness.task import Task
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.charsets import decode
from stillweb.snapshots.identity.keys import canonical_url
from stillweb.snapshots.operations.diff import moved_views
from stillweb.snapshots.secrets.detect import holds_secret
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text.freezing import NO_TEXT, Job, extract_all
from stillweb.snapshots.view import View

SAME, TEXT, SHAPE, GOLD, UNREACHABLE = "same", "text changed", "shape changed", "gold gone", "unreachable"
TIERS = (SAME, TEXT, SHAPE, GOLD, UNREACHABLE)  # from harmless to worst
EXPIRED = (GOLD, UNREACHABLE)
_MOST_REDIRECTS = 20  # as browsers and requests follow
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
            rows = [[name, tier, why] for name, (tier, why) in found.items() if tier != SAME or why]
            if rows:
                lines.append(table([what, "tier", "why"], rows))
            counts = [f"{sum(t == tier for t, _ in found.values())} {tier}" for tier in TIERS]
            if found:
                lines.append(f"{what}s: {', '.join(counts)}")
        if self.tasks:
            lines.append(f"expired: {', '.join(self.expired) or 'no task'}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "pages": {name: {"tier": tier, "why": why} for name, (tier, why) in self.pages.items()},
            "tasks": {name: {"tier": tier, "why": why} for name, (tier, why) in self.tasks.items()},
            "expired": self.expired,
        }


def drift(old: Snapshot, new: Snapshot, tasks: Iterable[Task] = ()) -> Drift:
    """Compare the pages and views of `old` with those of `new`, and say which tasks that expires.

    A page is what a GET leads to, redirects followed, if it is a text or JSON, or if a task names it. A view with
    steps is a page of its own, named by its address. Of several answers to a request the last counts.
    """
    tasks = list(tasks)
    before, after = _Side.of(old), _Side.of(new)
    named = {canonical_url(url) for task in tasks for url in urls_of(task)}
    pages: dict[str, tuple[str, str]] = {}
    words: dict[str, tuple[str, str]] = {}  # text in the old and in the new snapshot
    for url in before.answers:
        was = before.capture_reached(url)
        if was is not None and was.status < 300 and (url in named or _is_page(was)):
            pages[url], words[url] = _compared(
                before, was, after, after.capture_reached(url), after.why_missing(url)
            )
    moved = moved_views(before.views, after.views)
    for address, view in before.views.items():
        later = after.views.get(moved.get(address, address))
        page = canonical_url(view.url) if not view.steps and "#" not in view.url else address
        if page in pages and later is None:
            continue  # recorded anew without a browser: its answers are compared
        missing = after.why_missing(canonical_url(view.url))
        if holds_secret([*view.steps]):
            missing = f"its steps hold a secret, so that `refresh` leaves it out; {missing}"
        tier, text = _compared(before, view, after, later, missing)
        texts, known = pages.get(page), words.get(page)
        pages[page] = tier if texts is None else max(texts, tier, key=lambda one: TIERS.index(one[0]))
        words[page] = text if known is None else (f"{known[0]}\n{text[0]}", f"{known[1]}\n{text[1]}")
    return Drift(dict(sorted(pages.items())), {task.id: _task(task, pages, words) for task in tasks})


@dataclass(frozen=True, slots=True)
class _Side:
    """A snapshot, with the last answer to each GET (by canonical URL), views by address, and reasons of failures."""

    snapshot: Snapshot
    answers: dict[str, Capture]
    views: dict[str, View]
    failed: dict[str, str]

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Side:
        captures = sorted(snapshot.captures(), key=lambda c: (c.timestamp, c.begin, c.place))
        return cls(
            snapshot,
            {canonical_url(c.url): c for c in captures if c.method == "GET"},
            {view.address: view for view in snapshot.views()},
            {canonical_url(one.request.url): one.reason for one in snapshot.failures()},
        )

    def capture_reached(self, url: str) -> Capture | None:
        """Return the answer that a client gets which follows redirects; None if it was not recorded."""
        for _ in range(_MOST_REDIRECTS):
            found = self.answers.get(url)
            if found is None or not 300 <= found.status < 400:
                return found
            target = self.snapshot.read(found).header("location")
            if target is None:
                return found
            url = canonical_url(urljoin(found.url, target))
        return None

    def why_missing(self, url: str) -> str:
        if (reason := self.failed.get(url)) is not None:
            return f"failed: {reason}"
        found = self.answers.get(url)
        if found is not None and 300 <= found.status < 400:
            return "it redirects to a page that is not in the new snapshot"
        return "not in the new snapshot"

    def text(self, state: Capture | View) -> str:
        """Return the text of an answer or view, extracted by this version from what was recorded."""
        job = Job(state.url, None, state) if isinstance(state, View) else Job(state.url, state)
        ((_, found),) = extract_all(self.snapshot, [job], 1, workers=1)
        if isinstance(state, View):
            if found is not None and found.markdown.strip():
                return found.markdown
            return (self.snapshot.resource("text", state.address) or b"").decode("utf-8", "replace")
        if found is not None and found.extractor != NO_TEXT:
            return found.markdown
        response = self.snapshot.read(state)
        try:
            body = encodings.decode(response.body, response.header("content-encoding"))
        except encodings.EncodingProblem:
            body = response.body
        if _media(state).endswith("json"):  # UTF-8, RFC 8259, 8.1
            return body.decode("utf-8-sig", "replace")
        return decode(body, response.header("content-type")).text


def _media(capture: Capture) -> str:
    return capture.mime.partition(";")[0].strip().lower()


def _is_page(capture: Capture) -> bool:
    media = _media(capture)
    return media in ("text/html", "application/xhtml+xml", "application/pdf") or media.endswith(
        ("json", "csv")
    )


def _compared(
    before: _Side, was: Capture | View, after: _Side, now: Capture | View | None, missing: str
) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the tier of a page or view with its reason, and its old and new text."""
    text = before.text(was)
    if now is None:
        return (UNREACHABLE, missing), (text, "")
    if isinstance(now, Capture) and now.status >= 300:
        return (UNREACHABLE, f"status {now.status}"), (text, "")
    if isinstance(was, Capture) and isinstance(now, Capture) and was.digest == now.digest:
        return (SAME, ""), (text, text)
    later = after.text(now)
    texts = text, later
    if isinstance(was, Capture) and isinstance(now, Capture) and _media(was) != _media(now):
        return (SHAPE, f"{_media(was) or 'no media type'} became {_media(now) or 'no media type'}"), texts
    media = _media(was) if isinstance(was, Capture) else ""
    shape = _shape(text, media)
    if lost := shape ^ _shape(later, media):
        return (SHAPE, f"{len(lost)} differ: {sorted(lost)[0][:80]}"), texts
    return (SAME if _plain_json(text) == _plain_json(later) else TEXT, ""), texts


def _shape(text: str, media: str) -> set[str]:
    """Return the structure that a program relies on: JSON members with their types, heads of tables, the head of a CSV."""
    if media.endswith("csv"):
        return {text.partition("\n")[0].strip()}
    try:
        value = json.loads(text)
    except ValueError:
        return {" ".join(found.split()) for found in _HEADER.findall(text)}
    return set(_paths(value, "")) if isinstance(value, dict | list) else set()


def _plain_json(text: str) -> Any:
    """Return the value of a JSON document; any other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _paths(value: Any, path: str) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{path} object", *(p for name, one in value.items() for p in _paths(one, f"{path}.{name}"))]
    if isinstance(value, list):
        return [f"{path} array", *(p for one in value for p in _paths(one, f"{path}[]"))]
    return [f"{path} {type(value).__name__}"]


def _task(
    task: Task, pages: Mapping[str, tuple[str, str]], words: Mapping[str, tuple[str, str]]
) -> tuple[str, str]:
    """Return the tier of a task: the worst of its pages, or that its gold is gone from them.

    Its pages are those that it names, and the views with steps of these that showed a text of its gold.
    """
    wanted = dict.fromkeys(url if url in pages else canonical_url(url) for url in urls_of(task))
    cells = _cells(task.reference)
    plain = {page: (_plain(old), _plain(new)) for page, (old, new) in words.items()}
    own = [
        page
        for page in pages
        if page in wanted
        or (
            "#" in page
            and canonical_url(page) in wanted
            and any(_has(plain[page][0], cell) for cell in cells)
        )
    ]
    judged = [plain[page] for page in (own or pages)]
    before, after = ("\n".join(pair[side] for pair in judged) for side in (0, 1))
    worst = max((pages[page] for page in own), key=lambda one: TIERS.index(one[0]), default=(SAME, ""))
    lost = [cell for cell in cells if _has(before, cell) and not _has(after, cell)]
    if worst[0] == UNREACHABLE:
        return worst
    if lost:
        return GOLD, f"no longer there: {', '.join(lost[:3])}"
    unknown = [url for url in wanted if url not in pages]
    if worst[0] == SAME and unknown:
        return SAME, f"not judged: {unknown[0]} is not in the old snapshot"
    if not own and not any(_has(before, cell) for cell in cells):
        return SAME, "not judged: it names no page, and its gold is on none"
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
