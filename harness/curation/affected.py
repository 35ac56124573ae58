"""Tasks affected by the differences between two snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stillweb.harness.curation.coverage import urls_of
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.identity.keys import canonical_url
from stillweb.snapshots.operations.diff import AffectedTask

if TYPE_CHECKING:
    from stillweb.snapshots.operations.diff import Diff
    from stillweb.snapshots.view import View

MOST = 5  # reasons named per task


def affected_tasks(tasks: Iterable[Task], found: Diff, views: Iterable[View]) -> list[AffectedTask]:
    """Return the tasks that name a changed page, or a page with a view that loaded something changed.

    Views of either snapshot count. A task that visits pages it doesn't name can be affected without being
    listed; `affected_by_run` finds these exactly.
    """
    loaded: dict[str, set[str]] = {}
    for view in views:
        caused = {_page(str(capture.get("url", ""))) for capture in view.captures}
        for place in {_place(view.address), _place(view.url), _page(view.url)}:
            loaded.setdefault(place, set()).update(caused, {_page(view.final_url)})
    listed = list(_reasons(found))
    out = []
    for task in tasks:
        pages: set[str] = set()
        for url in urls_of(task):
            pages |= {_place(url), _page(url)} | loaded.get(_place(url), set())
        reasons = list(dict.fromkeys(reason for address, reason in listed if address in pages))
        if reasons:
            out.append(AffectedTask(task.id, _some(reasons)))
    return out


def affected_by_run(path: Path, found: Diff) -> list[AffectedTask]:
    """Return the tasks of a run over the first snapshot whose traces use a changed capture, view or text.

    Raise UsageError for a run over another snapshot, where offsets differ. Rules and profile are not
    compared.
    """
    stands_on = RunFiles(path).manifest()[1].get("snapshot")
    if stands_on != found.a:
        raise UsageError(f"{path}: this run was made on the snapshot {stands_on}, not on {found.a}")
    by_place = {place: f"{c.kind}: {c.method} {c.url}" for c in found.captures for place in c.places}
    by_address = dict(_reasons(found))
    by_text = {text.address: f"text {text.kind}: {text.address}" for text in found.texts}
    reasons: dict[str, list[str]] = {}
    for task, _, trace in RunFiles(path).attempts():
        here = reasons.setdefault(task.id, [])
        for event in trace.of("tool_call") if trace else ():
            places = [(c["file"], c["offset"]) for c in event["captures"]]
            here += [by_place[place] for place in places if place in by_place]
            address, view = event.get("address"), event.get("view")
            if address in by_text:
                here.append(by_text[address])
            if event["verdict"] == "synthetic" and by_text:
                here.append("a search over the frozen texts, of which some changed")
            if str(event["verdict"]).partition(":")[0] in ("rendered", "failed", "miss"):
                here += [by_address[a] for a in map(_place, filter(None, (view, address))) if a in by_address]
    return [AffectedTask(name, _some(list(dict.fromkeys(why)))) for name, why in reasons.items() if why]


def _reasons(found: Diff) -> Iterator[tuple[str, str]]:
    """Yield each changed page or view with a description of the change."""
    for capture in found.captures:
        yield _page(capture.url), f"{capture.kind}: {capture.method} {capture.url}"
    for view in found.views:
        for address in filter(None, (view.address, view.now)):
            yield _place(address), f"view {view.kind}: {view.address}"
        yield _page(view.address), f"view {view.kind}: {view.address}"
    for text in found.texts:
        yield _place(text.address), f"text {text.kind}: {text.address}"


def _some(reasons: list[str]) -> tuple[str, ...]:
    if len(reasons) <= MOST:
        return tuple(reasons)
    return (*reasons[:MOST], f"and {len(reasons) - MOST} more")


def _page(url: str) -> str:
    """Return the canonical URL of a page, independent of host case, final slash and order of parameters."""
    return canonical_url(url)


def _place(url: str) -> str:
    """Return the canonical URL of a page with the fragment that names one of its states."""
    _, mark, fragment = url.partition("#")
    return f"{canonical_url(url)}{mark}{fragment}"
