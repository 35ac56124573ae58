"""Coverage: how much of a task set a snapshot can answer, checked before a model is paid for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from stillweb.harness.curation.audit import AuditFinding
from stillweb.harness.task import Task
from stillweb.proxy.browser.page_checks import examine
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.http import charsets
from stillweb.snapshots.snapshot import Hit, Snapshot
from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.text import READ, unpack_body
from stillweb.snapshots.view import id_in

_PAGES = ("text/html", "application/xhtml+xml")
# Kinds of page whose HTML alone shows that they are no answer. Scripts may fill loading or empty pages.
_WALLS = {
    "captcha": "a CAPTCHA",
    "consent": "a consent wall",
    "forbidden": "a refusal",
    "too-many": "a refusal",
    "login": "a login",
    "missing": "a missing page",
    "error": "an error",
}

Kind = Literal["url", "pdf", "view", "search"]
Query = str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """Page or search that a task names.

    `verdict` is that of a lookup (also of requests that failed while recording), "view", "synthetic" or
    "miss". `notes` say what may be wrong with an existing answer (an error status, no text, a block page).
    """

    task_id: str
    kind: Kind
    what: str
    verdict: str
    notes: tuple[str, ...] = ()

    @property
    def answered(self) -> bool:
        return self.verdict.partition(":")[0] not in ("miss", "failed")


@dataclass(frozen=True, slots=True)
class Coverage:
    """Needs of a task set, task by task, in the set's order.

    `refused` are the records of the set that could not be read; `findings` those of an audit, if one was asked for.
    """

    snapshot: str
    needs: tuple[Need, ...]
    tasks: tuple[str, ...]
    refused: tuple[str, ...] = ()
    findings: tuple[AuditFinding, ...] = ()

    @property
    def missing(self) -> tuple[Need, ...]:
        """Needs that the snapshot can't answer."""
        return tuple(need for need in self.needs if not need.answered)

    @property
    def lacking(self) -> tuple[Need, ...]:
        """Missing needs but those that missed when a run was made on this very snapshot."""
        return tuple(need for need in self.missing if MISSED_THEN not in need.notes)

    @property
    def doubtful(self) -> tuple[Need, ...]:
        """Needs whose answer may be no real answer."""
        return tuple(need for need in self.needs if need.answered and need.notes)

    @property
    def whole_tasks(self) -> tuple[str, ...]:
        """Tasks without a missing need; a task that names nothing is not among them."""
        lacking = {need.task_id for need in self.missing}
        naming = {need.task_id for need in self.needs}
        return tuple(task_id for task_id in self.tasks if task_id in naming and task_id not in lacking)

    @property
    def unknown_tasks(self) -> tuple[str, ...]:
        """Tasks that name nothing, so that nothing can be said about them."""
        naming = {need.task_id for need in self.needs}
        return tuple(task_id for task_id in self.tasks if task_id not in naming)

    @property
    def share(self) -> float:
        """Share of answered needs, 1 if there are none."""
        return (len(self.needs) - len(self.missing)) / len(self.needs) if self.needs else 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "snapshot": self.snapshot,
            "share": self.share,
            "tasks": len(self.tasks),
            "whole_tasks": list(self.whole_tasks),
            "unknown_tasks": list(self.unknown_tasks),
            "needs": [asdict(need) | {"answered": need.answered} for need in self.needs],
            **({"refused": list(self.refused)} if self.refused else {}),
            "findings": [finding.to_json() for finding in self.findings],
        }


def urls_of(task: Task) -> list[str]:
    """Return the pages that a task names, each once: start URL, the set's own list, involved URLs."""
    found: list[str] = []
    if task.start_url:
        found.append(task.start_url)
    for name in ("urls", "all_involved_urls"):
        found += _urls_in(task.meta.get(name))
    return list(dict.fromkeys(found))


def _urls_in(value: Any) -> list[str]:
    """Return the URLs in nested lists of URLs, of [url, role], or of objects."""
    if isinstance(value, str):
        text = value.strip()
        return [text] if text.startswith(("http://", "https://")) else []
    if isinstance(value, Mapping):
        return [url for item in value.values() for url in _urls_in(item)]
    if isinstance(value, list | tuple):
        return [url for item in value for url in _urls_in(item)]
    return []


def searches_of(task: Task) -> list[Query]:
    """Return the searches that a task names in `meta["searches"]`: texts, or arguments of `google_search`."""
    queries = task.meta.get("searches")
    return [query for query in queries if _is_query(query)] if isinstance(queries, list) else []


def _is_query(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and bool(value.get("q")))


def query_text(query: Query) -> str:
    """Return a search as a need names it: its text, or its arguments as JSON."""
    if isinstance(query, str):
        return query
    return str(query["q"]) if len(query) == 1 else json.dumps(dict(query), ensure_ascii=False)


def coverage(
    tasks: Iterable[Task],
    snapshot: Snapshot,
    *,
    search: Callable[[Query], tuple[str, tuple[str, ...]]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Coverage:
    """Look up all that the tasks name. `search` returns the verdict and notes of a query.

    Redirects are followed. `URL#view=<id>` needs that view. A URL with another fragment needs a view that
    starts there; if only the page is recorded, it counts with a note, as it may lack what the fragment
    selects. What a run asked this very snapshot has the verdict that it had there.
    """
    from stillweb.harness.tools.store import Store

    todo = list(tasks)
    starts = {view.url for view in snapshot.views()} | {view.address for view in snapshot.views()}
    store = Store(snapshot)
    needs: list[Need] = []
    known: dict[str, Need] = {}
    for done, task in enumerate(todo, 1):
        asked: Mapping[str, str] = (task.meta.get("verdicts") or {}).get(snapshot.id, {})
        for url in urls_of(task):
            if url not in known:
                known[url] = _url(url, store, starts)
            found = known[url]
            needs.append(_as_asked(Need(task.id, found.kind, url, found.verdict, found.notes), asked))
        for query in searches_of(task):
            verdict, notes = search(query) if search else ("miss", ("searches were not looked up",))
            needs.append(_as_asked(Need(task.id, "search", query_text(query), verdict, notes), asked))
        if progress:
            progress(done, len(todo))
    return Coverage(snapshot.id, tuple(needs), tuple(task.id for task in todo))


MISSED_THEN = "missed in the run, too, which was made on this snapshot"


def _as_asked(need: Need, asked: Mapping[str, str]) -> Need:
    """Return a need with the verdict that a run on the same snapshot had for it, if there was one."""
    verdict = asked.get(need.what)
    if verdict is None:
        return need
    then = replace(need, verdict=verdict)
    return then if then.answered else replace(then, notes=(*need.notes, MISSED_THEN))


def _url(url: str, store: Any, starts: set[str]) -> Need:
    page, _, fragment = url.partition("#")
    if url in starts and fragment:
        return Need("", "view", url, "view")
    if id_in(url) is not None:  # as in the tools: a view is never replaced by its page without the steps
        if store.view_text(url) is not None:
            return Need("", "view", url, "view")
        return Need("", "view", url, "miss", ("no view of the snapshot has this address",))
    found = store.session("coverage").follow(page)
    capture = found.capture
    if capture is None or found.redirects:
        # A view is enough: its text and screenshot exist even if its page was requested otherwise.
        if url in starts:
            return Need("", "view", url, "view")
        where = f"redirects to {found.url}, which is not recorded" if found.url != page else ""
        where = "redirects without end" if found.redirects else where
        verdict = found.verdict if found.verdict.startswith("failed:") else "miss"
        return Need("", "url", url, verdict, (where,) if where else ())
    kind: Kind = "pdf" if capture.mime == "application/pdf" else "url"
    notes: list[str] = []
    if capture.status >= 400:
        notes.append(f"recorded with status {capture.status}")
    if found.confidence is not None and found.confidence.presumed:
        why = max((store.snapshot.lookup(one.url) for one in found.chain), key=_doubt).grounds
        notes.append(f"presumed ({found.confidence.value:.2f}): {(why[1:] or why)[0]}")  # `lookup` tells all
    if fragment:
        notes.append("no view of this fragment; the page itself is recorded")
    notes += _wall(store, capture, found.url if found.url != page else "")
    if capture.status < 400 and (kind == "pdf" or capture.mime in _PAGES):
        text = store.frozen_of(capture)
        if text is None:
            notes.append("no frozen text (is the snapshot sealed?)")
        else:
            notes += text.warnings
            if not text.markdown.strip():
                notes.append("its text is empty")
    return Need("", kind, url, str(found.verdict), tuple(notes))


def _doubt(hit: Hit) -> float:
    return 0.0 if hit.confidence is None else 1 - hit.confidence


def _wall(store: Any, capture: Capture, ended: str) -> list[str]:
    """Return a note if an answer is a login, a CAPTCHA, a consent wall or a soft 404 instead of the page."""
    if capture.mime not in _PAGES or capture.status >= 400:
        return []
    response = store.snapshot.read_start(capture, READ + 1)
    html = charsets.decode(unpack_body(response)[0], response.header("content-type")).text
    tree = html_text.parse(html)
    found = examine(capture.status, html_text.markdown(tree) if tree is not None else "", html)
    if found is None or found.kind not in _WALLS:
        return []
    return [f"{f'leads to {ended}, ' if ended else ''}looks like {_WALLS[found.kind]}: {found.reason}"]
