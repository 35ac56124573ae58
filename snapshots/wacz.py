"""Sealing: packs an open snapshot into a `.wacz`, a zip of stored entries that is read in place."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.snapshots._os.atomic_write import atomic_file
from stillweb.snapshots._os.random_access import ByteSource, MemorySource, chunks
from stillweb.snapshots.contents.failures import failures_message
from stillweb.snapshots.errors import FULL_DISK, GateFailed, UsageError
from stillweb.snapshots.index.build import is_index_current
from stillweb.snapshots.remote import local
from stillweb.snapshots.warc.appending import full_disk
from stillweb.snapshots.warc.container import (
    ARCHIVE,
    DIGEST,
    INDEX,
    PACKAGE,
    PAGES,
    Container,
    open_directory,
)
from stillweb.snapshots.words import pluralize, sized

if TYPE_CHECKING:
    from stillweb.snapshots.text.freezing import Workers

# done, in all: bytes to index, if there is no index, then texts, then bytes to pack
SealProgress = Callable[[int, int], None]
MOST_TOLD = 20  # most lines of each kind about single texts
EARLIEST = (1980, 1, 1, 0, 0, 0)  # date of every zip entry: the bytes don't depend on the time of sealing


@dataclass(slots=True)
class SealReport:
    path: Path
    id: str
    captures: int = 0
    failures: int = 0  # failed requests
    views: int = 0
    texts: int = 0  # in the snapshot
    frozen: int = 0  # texts frozen by this sealing
    size: int = 0
    repairs: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # texts that could not be extracted, and why
    secrets: str = ""  # the refusal that `keep_secrets` overruled
    rules: Any = None  # those in force

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    def text(self) -> str:
        """Return a few lines for people."""
        lines = [
            f"{self.path}: {pluralize(self.captures, 'capture')}, {pluralize(self.views, 'view')}, {pluralize(self.texts, 'text')},"
            f" {sized(self.size)}",
            f"id {self.id}",
        ]
        if self.failures:
            lines.append(failures_message(self.failures))
        if self.secrets:
            lines.append(f"sealed all the same: {self.secrets}")
        lines += [f"repaired: {repair}" for repair in self.repairs]
        lines += _told("text", self.warnings)
        lines += _told("no text", self.missing)
        return "\n".join(lines)


def _told(what: str, lines: Sequence[str]) -> list[str]:
    """Return the first `MOST_TOLD` lines, and how many more there are."""
    shown = [f"{what}: {line}" for line in lines[:MOST_TOLD]]
    more = len(lines) - MOST_TOLD
    return shown + ([f"{what}: {more} more; --json tells all of them"] if more > 0 else [])


def seal(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    keep_secrets: bool = False,
    sign: str | os.PathLike[str] | None = None,
    certificate: str | os.PathLike[str] | None = None,
    timestamp: str | None = None,
    state: Path | None = None,
    progress: SealProgress | None = None,
    workers: int | None = None,
    rules: Path | None = None,
    pool: Callable[[], Workers] | None = None,
) -> SealReport:
    """Freeze the texts, write the index and pack the directory into a `.wacz`.

    `out` is beside the directory by default. `pool` makes the workers that extract texts. `rules` is a file of the user's own rules, which join those that are
    stored. Sealing again gives the same bytes, but for a signature: `sign` is the PEM file of a P-384 key (see
    `stillweb.snapshots.operations.signatures.signing_key`), `certificate` that of the key's certificates for a domain,
    `timestamp` the URL of a time-stamp authority. Raises GateFailed if the
    snapshot holds a secret that was learned too late to redact, unless `keep_secrets` is set (`state`: see
    `stillweb.snapshots.operations.late_secrets.refuse`), UsageError if `path` is not an open snapshot or an empty one,
    DamagedInput, and MissingCapability if the disk is full.
    """
    from stillweb.snapshots.identity.rules import RuleSet, builtin, own_text
    from stillweb.snapshots.operations import late_secrets
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.text.freezing import freeze
    from stillweb.snapshots.writer import Writer

    root = Path(path)
    if not (root / "archive").is_dir():
        raise UsageError(
            f"{root}: is not an open snapshot (a directory with archive/); `stillweb import {root} -o DIR` makes one of an archive"
        )
    target = local(out) if out is not None else root.with_name(root.name + ".wacz")
    if target.is_dir():
        raise UsageError(f"{target}: is a directory; name a file")
    if target.exists() and not target.is_file():
        raise UsageError(f"{target}: is not a file that a snapshot could replace; name another")
    if target.is_symlink() and target.exists() and not _is_zip(target):
        # anyone with write access to the folder could have made the link, so follow it only to a WACZ
        raise UsageError(
            f"{target}: is a link to {os.path.realpath(target)}, which is not a WACZ; name another"
        )
    if sign is not None:
        from stillweb.snapshots.operations.signatures import Signer

        signer = Signer.of(sign, certificate, timestamp)
    report = SealReport(target, "")
    try:
        late_secrets.refuse(root, state)
    except GateFailed as error:
        if not keep_secrets:
            raise
        report.secrets = str(error)
    with closing(open_directory(root)) as files:
        indexed = is_index_current(files)
    if not indexed:  # write the index first: it is then read from disk, and need not be in memory
        with Writer.open(root, progress=progress) as writer:
            report.repairs = writer.repairs
    with Writer.open(root) as writer:
        report.repairs += writer.repairs
        with Snapshot.open(root) as recorded:
            kept = recorded.views() or recorded.count_texts() or any(recorded.captures())
            if not (kept or any(recorded.conversations()) or recorded.count_failures()):
                raise UsageError(f"{root}: nothing was recorded; there is nothing to seal")
            if writer.keep_text:
                frozen = freeze(recorded, writer, workers=workers, progress=progress, pool=pool)
                report.frozen, report.warnings = frozen.texts, [f"{a}: {w}" for a, w in frozen.warnings]
                report.missing = [f"{a}: {w}" for a, w in frozen.missing]
        stored = RuleSet.from_json(writer.rules) if isinstance(writer.rules, dict) else builtin()
        chosen = builtin()
        for text in stored.own:
            chosen = chosen.with_own(text)
        if rules is not None:
            chosen = chosen.with_own(own_text(rules), str(rules))
        writer.rules = chosen.to_json()
    with Snapshot.open(root) as snapshot:
        report.id = snapshot.id
        report.rules = snapshot.rules.to_json()
        report.captures = sum(1 for _ in snapshot.captures())
        report.failures = snapshot.count_failures()
        report.views = len(snapshot.views())
        report.texts = snapshot.count_texts() - len(report.missing)  # a failed extraction has a record, too
    container = open_directory(root)
    try:
        if sign is not None:
            digest, package = container.member(DIGEST), container.member(PACKAGE)
            signed = signer.sign(digest or b"{}", package or b"")
            container.members[DIGEST].close()
            container.members[DIGEST] = MemorySource(signed)
        pack(container, target, progress)
    finally:
        container.close()
    report.size = target.stat().st_size
    return report


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) in (b"PK", b"")


def pack(
    container: Container,
    target: Path,
    progress: SealProgress | None = None,
    *,
    last: Callable[[], object] = lambda: None,
) -> None:
    """Write a container's files as a zip of stored entries: archives, index, pages, then the package.

    `last` is called when all is written, before the zip gets its name.
    """
    files: dict[str, ByteSource] = {ARCHIVE + n: p for n, p in sorted(container.archives.items())}
    order = {INDEX: 0, PAGES: 1, PACKAGE: 3, DIGEST: 4}
    files |= dict(sorted(container.members.items(), key=lambda item: (order.get(item[0], 2), item[0])))
    total = sum(place.size for place in files.values())
    done = 0
    real = Path(os.path.realpath(target))
    try:
        with atomic_file(real, wait=False) as file:
            with zipfile.ZipFile(file, "w") as out:
                for name, place in files.items():
                    info = zipfile.ZipInfo(name, EARLIEST)
                    info.external_attr = 0o644 << 16
                    info.file_size = place.size
                    with out.open(info, "w", force_zip64=place.size > 1 << 31) as entry:
                        for piece in chunks(place):
                            entry.write(piece)
                            done += len(piece)
                            if progress is not None:
                                progress(done, total)
            last()
    except OSError as error:
        if error.errno in FULL_DISK:
            raise full_disk(target, error) from error
        if error.filename == str(real):
            error.filename = str(target)  # name the path that the caller gave, not the resolved one
        raise
