"""Upgrade of frozen texts to what the installed extractors produce, on request only.

Frozen texts never change by themselves. `changes` extracts all of them anew and compares; `accept` writes
another snapshot, or a layer over the first one, with the new texts. The first snapshot is never changed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from stillweb.snapshots.contents.package import pack_options, page_time
from stillweb.snapshots.contents.records import Packer
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.index.build import open_index
from stillweb.snapshots.index.cdxj import parse_line, target_of
from stillweb.snapshots.opening import open_container
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.operations.assembling import Assembly, Range, introductions, ranges
from stillweb.snapshots.operations.diff import counts, unified_diff
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.software import software_name
from stillweb.snapshots.text.freezing import NO_TEXT, Job, Workers, extract_all, jobs
from stillweb.snapshots.text.text import FrozenText
from stillweb.snapshots.warc.container import Container
from stillweb.snapshots.warc.reading import open_block
from stillweb.snapshots.warc.warc import Record

CHANGED = "changed"  # words, pages or title differ
SAME = "same"  # the words are the same, but the extractor, its version, options or metadata differ
ADDED = "added"  # there was no text before
LOST = "lost"  # the extractor now yields no text; the frozen one stays
KINDS = (CHANGED, ADDED, LOST, SAME)
MEDIA = "text/markdown;charset=utf-8"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class TextUpgrade:
    kind: str
    job: Job
    before: FrozenText | None
    after: FrozenText | None

    @property
    def address(self) -> str:
        return self.job.address

    @property
    def text(self) -> str:
        """Return the unified diff, old to new; "" if the words are the same, or the new text is lost."""
        old, new = (t.markdown if t else "" for t in (self.before, self.after))
        return "" if self.kind == LOST else unified_diff(old, new, _maker(self.before), _maker(self.after))

    @property
    def acceptable(self) -> bool:
        return self.after is not None and self.kind != LOST

    def to_json(self) -> dict[str, Any]:
        more, fewer = counts(self.text)
        warnings = list(self.after.warnings) if self.after else []
        return {
            "address": self.address,
            "kind": self.kind,
            "before": _maker(self.before),
            "after": _maker(self.after),
            "lines_added": more,
            "lines_removed": fewer,
            "warnings": warnings,
            "text": self.text,
        }


def _maker(text: FrozenText | None) -> str:
    return f"{text.extractor}/{text.version}" if text else "nothing"


def changes(
    snapshot: Snapshot,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    pool: Callable[[], Workers] | None = None,
) -> Iterator[TextUpgrade]:
    """Yield the texts that would differ in any way if they were frozen now, by address.

    `pool` makes the workers, in place of processes of this machine.
    """
    todo = sorted(jobs(snapshot), key=attrgetter("address"))
    made = extract_all(snapshot, todo, len(todo), workers=workers, pool=pool)
    for done, (job, after) in enumerate(made, 1):
        found = _compared(job, snapshot.text(job.address), after)
        if found is not None:
            yield found
        if progress is not None:
            progress(done, len(todo))


def _compared(job: Job, before: FrozenText | None, after: FrozenText | None) -> TextUpgrade | None:
    if before is None:
        return (
            TextUpgrade(ADDED, job, None, after) if after is not None and after.extractor != NO_TEXT else None
        )
    if after is None or (after.extractor == NO_TEXT and before.extractor != NO_TEXT):
        return TextUpgrade(LOST, job, before, after)
    if _words(before) != _words(after):
        return TextUpgrade(CHANGED, job, before, after)
    if _made(before) != _made(after):
        return TextUpgrade(SAME, job, before, after)
    return None


def _words(text: FrozenText) -> tuple[Any, ...]:
    return text.markdown, text.pages, text.title


def _made(text: FrozenText) -> tuple[Any, ...]:
    return text.extractor, text.version, dict(text.options), text.warnings, dict(text.meta)


def accept(
    path: str | os.PathLike[str],
    found: Iterable[TextUpgrade],
    out: str | os.PathLike[str],
    *,
    layer: bool = False,
) -> str:
    """Write the new texts to `out` and return the id of the result.

    The result is a whole snapshot with the new texts in place of the old ones, or, with `layer`, only the
    texts, to be opened over the first snapshot. `out` is a directory, or a sealed file if it ends in `.wacz`.
    Records keep the dates of their sources, so that the same upgrade has the same id. Raises GateFailed as
    `late_secrets.refuse` does, UsageError if `out` exists, or if `layer` is False and Stillweb didn't write the
    archive (its page lists would be lost).
    """
    late_secrets.refuse(path)
    taken = {one.address: one for one in found if one.acceptable}
    with Snapshot.open(path) as snapshot:
        container = open_container(path)
        try:
            if not layer and container.kind != "directory" and not container.own:
                raise UsageError(
                    f"{path}: was not written by Stillweb; take a layer, or 'stillweb import' it first"
                )
            packer = Packer(software_name(), Path())
            packer.serial = itertools.count(container.size)  # so that no serial number is used twice
            records = [_record(packer, container, snapshot, taken[a]) for a in sorted(taken)]
            index, _ = open_index(container)
            with Assembly(out, container.archives) as new:
                if layer:
                    for name, places in introductions(container.archives, ranges(index)).items():
                        new.copy(name, places)
                else:
                    dropped = _places(index.lines(), taken.keys())
                    for name in container.archives:
                        new.copy_all(name, dropped.get(name, ()))
                new.append(records)
                return new.finish(snapshot.rules.to_json(), snapshot.profile)
        finally:
            container.close()


def _places(lines: Iterable[bytes], addresses: Iterable[str]) -> dict[str, list[Range]]:
    """Return the places of the frozen texts of addresses, by archive file."""
    wanted = set(addresses)
    found: dict[str, list[Range]] = {}
    for line in lines:
        entry = parse_line(line)[2]
        if entry.get("kind") == "conversion" and target_of(entry) in wanted:
            found.setdefault(entry["filename"], []).append((int(entry["offset"]), int(entry["length"])))
    return found


def _record(packer: Packer, container: Container, snapshot: Snapshot, one: TextUpgrade) -> bytes:
    """Return the new text as a record with the source and date of the old one."""
    text, job = one.after, one.job
    assert text is not None
    old = snapshot.record_of("conversion", one.address)
    extra = [
        ("WARC-Refers-To", _refers_to(container, old, job)),
        ("WARC-Stillweb-Extractor", f"{text.extractor}/{text.version}"),
        ("WARC-Stillweb-Options", pack_options(text.to_record())),
        ("WARC-Stillweb-Identity", "2"),
    ]
    if old is not None and "warc-date" in old.fields:
        date = old.fields["warc-date"]
    elif job.capture is not None:
        date = iso_date(job.capture.timestamp)
    else:
        date = page_time(job.view.timestamp if job.view else "")
    block = text.markdown.encode(errors="surrogatepass")
    return packer.plain("conversion", one.address, date, MEDIA, block, extra)[0]


def _refers_to(container: Container, old: Record | None, job: Job) -> str:
    if old is not None:
        return old.fields.get("warc-refers-to", "")
    if job.capture is None:
        return ""
    place = container.archives[job.capture.filename]
    return open_block(place, job.capture.offset, job.capture.length)[0].get("warc-record-id", "")
