"""Needs of runs and replays from their snapshot, read from traces and ledgers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stillweb.harness.curation.coverage import query_text
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.task import Task
from stillweb.harness.tools.browser_text import full_url
from stillweb.harness.trace import Trace, read_trace
from stillweb.proxy.replay.ledger import read as read_ledger
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.cut import Needs
from stillweb.snapshots.snapshot import Snapshot

_PRESET = (("gl", "us"), ("hl", "en"))  # default arguments of a search
ALL = "the snapshot that was used; if it was several, all of them, the last on top"
_SURE = ("exact", "canonical", "varies")  # verdicts that depend only on captures of the same request


def needs_of_run(path: Path, snapshot: str, *, pictures: bool = True) -> Needs:
    """Return the needs of all finished attempts of a run on the snapshot with this id.

    `pictures` adds the stored views of visited pages, which only the run's report shows. Raise UsageError if
    the run has no finished attempt, or was made on another snapshot.
    """
    captures: set[tuple[str, int]] = set()
    addresses: set[str] = set()
    paths: set[str] = set()
    all_texts = False
    traces = [trace for _, _, trace in RunFiles(path).attempts() if trace is not None]
    if not traces:
        raise UsageError(f"{path}: has no finished attempt; run it first")
    for trace in traces:
        _same_snapshot(trace, snapshot)
        for event in trace.of("tool_call"):
            captures |= {(c["file"], c["offset"]) for c in event["captures"]}
            view, address = event.get("view"), event.get("address")
            addresses |= {a for a in (view, address) if a and (pictures or "#" in a)}
            if view:
                addresses.add(view)
            verdict = str(event["verdict"] or "")
            all_texts = all_texts or verdict == "synthetic"
            if verdict and verdict.partition(":")[0] not in _SURE:
                paths |= set(_asked(event))
            paths |= {
                str(near["url"])
                for near in event.get("nearest") or ()
                if isinstance(near, dict) and near.get("url")
            }
            missed = (event.get("meta") or {}).get("missed")
            paths |= {str(url) for url in (missed if isinstance(missed, list) else ())}
    paths |= {f"{u.scheme}://{u.netloc}/robots.txt" for url in paths if (u := urlsplit(url)).netloc}
    return Needs(frozenset(captures), frozenset(addresses), frozenset(paths), all_texts)


def needs_of_ledger(path: Path, snapshot: Snapshot) -> Needs:
    """Return the needs of a replay of this snapshot, by its ledger.

    Raise UsageError for a ledger of another snapshot.
    """
    captures: dict[tuple[str, int], str] = {}
    paths: set[str] = set()
    all_texts = False
    for entry in read_ledger(path):
        if (place := entry.get("capture")) is not None:
            captures[place["file"], place["offset"]] = place["digest"]
        verdict = str(entry["verdict"])
        all_texts = all_texts or (verdict == "synthetic" and entry.get("derived") == "virtual")
        if verdict.partition(":")[0] not in _SURE:
            paths |= {str(entry["url"]), *(str(near["url"]) for near in entry.get("nearest") or ())}
    known = {capture.place: capture.digest for capture in snapshot.captures()} if captures else {}
    if unknown := sorted(place for place, digest in captures.items() if known.get(place) != digest):
        name, offset = unknown[0]
        raise UsageError(
            f"{path}: names a capture in {name} at {offset}, which {' and '.join(snapshot.paths)} lacks; name {ALL}"
        )
    return Needs(frozenset(captures), frozenset(), frozenset(paths), all_texts)


def tasks_as_asked(path: Path) -> list[Task]:
    """Return tasks that name what the attempts of a run (or of one trace file) asked their tools for.

    `meta["verdicts"]` maps the snapshot's id to the verdict of each, by URL or search. Raise UsageError if the run
    has no finished attempt.
    """
    if path.is_dir():
        traces = [trace for _, _, trace in RunFiles(path).attempts() if trace is not None]
    else:
        traces = [read_trace(path)]
    if not traces:
        raise UsageError(f"{path}: has no finished attempt; run it first")
    # task -> urls, and searches by their JSON; each once, in order
    asked: dict[str, dict[str, dict[str, Any]]] = {}
    for trace in traces:
        named = asked.setdefault(
            str(trace.header["task"]["id"]), {"urls": {}, "searches": {}, "verdicts": {}}
        )
        told = named["verdicts"].setdefault(str(trace.header["snapshot"]), {})
        for event in trace.of("tool_call"):
            verdict = str(event["verdict"] or "miss")
            urls = {url: url for url in _asked(event, named=True)}
            named["urls"] |= urls
            told |= dict.fromkeys(urls, verdict)
            given = _arguments(event)
            if event["tool"] == "google_search" and isinstance(given.get("q"), str) and given["q"]:
                given = {k: v for k, v in given.items() if (k, v) not in _PRESET}
                named["searches"][json.dumps(given, sort_keys=True)] = given
                told[query_text(given)] = verdict
    return [
        Task(name, "", meta={k: v if k == "verdicts" else list(v.values()) for k, v in named.items()})
        for name, named in asked.items()
    ]


def _same_snapshot(trace: Trace, snapshot: str) -> None:
    made_on = trace.header["snapshot"]
    if made_on != snapshot:
        raise UsageError(
            f"{trace.path}: was made on snapshot {str(made_on)[:16]}, this is {snapshot[:16]}; name {ALL}"
        )


def _asked(event: dict[str, Any], *, named: bool = False) -> Iterator[str]:
    """Yield the URLs that a call asked for by name and, unless `named`, those that it reached."""
    arguments = _arguments(event)
    reached = () if named else (event.get("address"), (event.get("meta") or {}).get("url"))
    url = arguments.get("url")
    if isinstance(url, str) and event["tool"].startswith("browser_"):
        url = full_url(url)
    for value in (*reached, url):
        if isinstance(value, str) and value.lower().startswith(("http://", "https://")):
            yield value
    sources = arguments.get("sources")
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, dict) and isinstance(source.get("url"), str):
            yield source["url"]


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments; {} if the model wrote something else."""
    arguments = event["arguments"]
    return arguments if isinstance(arguments, dict) else {}
