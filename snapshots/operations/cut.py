"""Cutting: the part of a snapshot that a run needs, as a snapshot that answers the run in the same way.

What a capture answers depends on other captures: those of the same request, among which it is chosen; on a site
where something may have decided between answers, all that is evidence of what did; the record with the payload
of a revisit. All of these are kept. The layers of several snapshots stay layers, in one container: the files of
those above the first are named `layer2/…`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents import failures
from stillweb.snapshots.contents.package import VIEW_MEDIA
from stillweb.snapshots.contents.records import Packer
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.identity.keys import group_prefix
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.index.cdxj import is_capture, parse_line, target_of
from stillweb.snapshots.opening import open_container
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.operations.assembling import Assembly, Range, introductions, ranges
from stillweb.snapshots.remote import local
from stillweb.snapshots.snapshot import Layer, Snapshot
from stillweb.snapshots.software import software_name
from stillweb.snapshots.text.freezing import text_address, view_text_address
from stillweb.snapshots.view import View
from stillweb.snapshots.words import sized

ORIGIN = "urn:stillweb:cut"  # URI of the metadata record with the id of the source
Place = tuple[str, int]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Needs:
    """The captures, views and texts that a cut must keep.

    `captures` are the places (archive file, offset) of captures that were served. `addresses` are of views
    and frozen texts. `paths` are URLs that were missed, or answered by a rule: all captures of their paths
    decide that. `all_texts` is for searches over all frozen texts.
    """

    captures: frozenset[Place] = frozenset()
    addresses: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    all_texts: bool = False

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.captures | other.captures,
            self.addresses | other.addresses,
            self.paths | other.paths,
            self.all_texts or other.all_texts,
        )


@dataclass(slots=True)
class CutReport:
    """The result of a cut; pairs are what was kept and what there was.

    `widened` are the sites of which more was kept, since it decides what they answer.
    """

    path: Path
    id: str = ""
    source: str = ""
    captures: tuple[int, int] = (0, 0)
    views: tuple[int, int] = (0, 0)
    texts: tuple[int, int] = (0, 0)
    failures: int = 0  # failed requests; all are kept
    size: tuple[int, int] = (0, 0)  # bytes of the archive files
    widened: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    def text(self) -> str:
        """Return a few lines for people."""
        parts = [
            f"{kept} of {whole} {name}"
            for name in ("captures", "views", "texts")
            for kept, whole in [getattr(self, name)]
        ]
        lines = [
            f"{self.path}: {', '.join(parts)}, {sized(self.size[0])} of {sized(self.size[1])} of records",
            f"id {self.id}, cut from {self.source}",
        ]
        if self.failures:
            lines.append(failures.failures_message(self.failures))
        lines += [f"more of {site} is kept, since it decides what the site answers" for site in self.widened]
        return "\n".join(lines)


def cut(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    needs: Needs,
    out: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> CutReport:
    """Write the part of a snapshot that `needs` asks for to `out`.

    `paths` of several are layers, the lowest first. `out` is a directory, or a file that ends in `.wacz`. The
    same cut has the same id and bytes whenever it is made. Raises GateFailed as `late_secrets.refuse` does, UsageError for a need that the snapshot does not have and
    for mutations among several layers, and DamagedInput if the cut's index differs from the source's.
    """
    layered = [paths] if isinstance(paths, str | os.PathLike) else paths
    for path in layered:
        late_secrets.refuse(path)
    report = CutReport(local(out))
    with Snapshot.open(*layered) as snapshot:
        if len(layered) > 1 and snapshot.mutations:
            raise UsageError(
                f"{', '.join(snapshot.paths)}: contains a mutation, which a cut can't keep; cut the snapshot below it, and mutate the cut"
            )
        report.source = snapshot.id
        views = _views(snapshot, needs)
        captures = list(snapshot.captures())
        kept, report.widened = select(snapshot, captures, needs, views, progress)
        visible = {c.place for c in captures}
        shown = [c for c in kept if c.place in visible]
        addresses = {v.address for v in views}
        texts = needs.addresses | {view_text_address(v) for v in views}
        texts |= {a for c in kept for a in (c.url, text_address(c))}
        records: dict[str, list[Range]] = defaultdict(list)
        for capture in kept:
            records[capture.filename].append((capture.offset, capture.length))
            if capture.request_offset >= 0:
                records[capture.filename].append((capture.request_offset, capture.request_length))
        archives = {
            one.prefix + name: place
            for one in snapshot.layers
            for name, place in one.container.archives.items()
        }
        known: dict[str, list[Range]] = {}
        for layer in snapshot.layers:
            known |= {layer.prefix + name: places for name, places in ranges(layer.index).items()}
            _others(layer, addresses, None if needs.all_texts else texts, records)
        with Assembly(out, archives) as new:
            for name, places in introductions(archives, known).items():
                if name in records:
                    records[name] += places
            for name in sorted(records):
                new.copy(name, records[name])
            new.append([_origin(snapshot.id, kept)])

            def check(made: Snapshot) -> None:
                _compare(shown, made, report.path)
                report.texts = made.count_texts(), snapshot.count_texts()

            report.id = new.finish(snapshot.rules.to_json(), snapshot.profile, check)
            whole = sum(place.size for place in archives.values())
        report.captures = len(shown), len(captures)
        report.views = len(views), len(snapshot.views())
        report.failures = snapshot.count_failures()
    part = open_container(out)
    report.size = sum(p.size for p in part.archives.values()), whole
    part.close()
    return report


def _views(snapshot: Snapshot, needs: Needs) -> list[View]:
    """Return the views at the needed addresses; an address names a view or a view's text."""
    by_text = {view_text_address(v): v for v in snapshot.views()}
    found = {a: snapshot.view(a) or by_text.get(a) for a in needs.addresses}
    return sorted({v.address: v for v in found.values() if v}.values(), key=lambda v: v.address)


def select(
    snapshot: Snapshot,
    captures: list[Capture],
    needs: Needs,
    views: Iterable[View],
    progress: Progress | None = None,
) -> tuple[list[Capture], list[str]]:
    """Return the captures to keep, and the sites that had to be widened.

    Raises UsageError for a missing capture.
    """
    by_place = {c.place: c for c in captures}
    missing = sorted(needs.captures - by_place.keys())
    if missing:
        raise UsageError(
            f"{snapshot.paths[0]}: has no capture at {missing[0][0]}: {missing[0][1]}; is it the run's?"
        )
    kept = {place: by_place[place] for place in needs.captures}
    caused = {(c.get("url"), c.get("digest")) for view in views for c in view.captures}
    prefixes = {group_prefix(url.partition("#")[0]) for url in needs.paths}
    for capture in captures:
        if (capture.url, capture.digest) in caused or (prefixes and group_prefix(capture.url) in prefixes):
            kept[capture.place] = capture
    by_key: dict[str, list[Capture]] = defaultdict(list)
    by_site: dict[str, list[Capture]] = defaultdict(list)
    for capture in captures:
        by_key[capture.key].append(capture)
        by_site[site_of(capture.url)].append(capture)
    widened = []
    sites = sorted({site_of(c.url) for c in kept.values()})
    for number, site in enumerate(sites, 1):
        evidence = snapshot.matcher().evidence(site)
        more = [] if evidence.quiet else [c for c in by_site[site] if not evidence.is_static(c)]
        if any(c.place not in kept for c in more):
            widened.append(site)
        kept.update((c.place, c) for c in more)
        if progress is not None:
            progress(number, len(sites))
    hidden = (layer.named(c) for layer in snapshot.layers[:-1] for c in layer.index)
    _close(kept, by_key, {c.place: c for c in hidden} | by_place)
    return sorted(kept.values(), key=_recorded), widened


def _close(
    kept: dict[Place, Capture], by_key: dict[str, list[Capture]], by_place: dict[Place, Capture]
) -> None:
    """Add the captures of the same requests, and the originals of revisits, until nothing is missing.

    An original may be hidden by a higher layer, and stays so: what hides it is a capture of the same request.
    """
    todo = list(kept.values())
    while todo:
        capture = todo.pop()
        near = list(by_key[capture.key])
        if capture.original is not None and (source := by_place.get(capture.original[:2])) is not None:
            near.append(source)
        for other in near:
            if other.place not in kept:
                kept[other.place] = other
                todo.append(other)


def _recorded(capture: Capture) -> Place:
    return capture.place


def _others(
    layer: Layer, views: set[str], texts: frozenset[str] | None, records: dict[str, list[Range]]
) -> None:
    """Add the records of views, texts, failures and web sockets. All texts are added if `texts` is None."""
    for line in layer.index.lines():
        entry = parse_line(line)[2]
        if is_capture(entry):
            continue
        kind, uri = entry["kind"], target_of(entry)
        if kind == "conversion":
            keep = texts is None or uri in texts
        elif kind == "resource":
            keep = uri.startswith("urn:") and uri.split(":", 2)[-1] in views
        elif entry["mime"] == VIEW_MEDIA:
            keep = uri in views
        elif entry["mime"] == failures.MEDIA:  # all, since the gateway tells failures from misses by them
            keep = uri.startswith(failures.START)
        else:  # web socket conversations: they are no captures, and a run doesn't record which it needed
            keep = uri.startswith("http") and entry["mime"] == "application/json"
        if keep:
            records[layer.prefix + entry["filename"]].append((int(entry["offset"]), int(entry["length"])))


def _origin(source: str, kept: list[Capture]) -> bytes:
    """Return a record with the source's id, dated as the newest capture, so that its bytes never change."""
    date = iso_date(max((c.timestamp for c in kept), default="19800101000000"))
    block = b'{"cut_from":"%s"}' % source.encode()
    packer = Packer(software_name(), Path())
    return packer.plain("metadata", ORIGIN, date, "application/json", block, ())[0]


def _compare(kept: list[Capture], made: Snapshot, path: Path) -> None:
    """Raise DamagedInput if the new index has other values for a kept capture than the old one."""

    def said(capture: Capture) -> tuple[Any, ...]:
        return (
            capture.urlkey, capture.timestamp, capture.method, capture.status, capture.mime, capture.digest,
            capture.key, capture.exact, capture.session, capture.begin, capture.end, capture.protocol,
            capture.vary,
        )  # fmt: skip

    old, new = sorted(map(said, kept)), sorted(map(said, made.captures()))
    if old != new:
        first = next((a for a, b in zip(old, new, strict=False) if a != b), (old or new)[-1])
        raise DamagedInput(
            f"{path}: the cut would give other answers than the whole snapshot (first at {first[0]})"
        )
