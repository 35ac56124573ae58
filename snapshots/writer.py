"""Recording: exchanges, views and texts are appended to an open snapshot.

A record is in the WARC files when its call returns. The index, the page list and datapackage.json are written
on close; they can be rebuilt from the WARC files alone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from stillweb.snapshots._os.locking import lock_directory
from stillweb.snapshots._os.processes import rare_collection
from stillweb.snapshots._os.random_access import FileSource
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.contents.capture_account import OTHER, CaptureAccount, LinesOnDisk
from stillweb.snapshots.contents.package import (
    PAGES_HEADER,
    VIEW_MEDIA,
    pack_options,
    page_line,
    page_time,
    view_from_json,
    view_to_json,
    write_package,
)
from stillweb.snapshots.contents.provenance import Provenance, with_entry
from stillweb.snapshots.contents.records import Packer
from stillweb.snapshots.dates import iso_date, parse_timestamp
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.index import indexing
from stillweb.snapshots.index.build import is_index_current, mend, open_index
from stillweb.snapshots.index.cdxj import parse_line, target_of
from stillweb.snapshots.index.index_cache import Hashes
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.remote import local
from stillweb.snapshots.software import software_name
from stillweb.snapshots.view import RESOURCES, View
from stillweb.snapshots.warc.appending import AppendFile, not_written, write_whole
from stillweb.snapshots.warc.container import ARCHIVE, INDEX, PAGES, Container, open_directory
from stillweb.snapshots.warc.reading import Archives, open_block

if TYPE_CHECKING:
    from stillweb.snapshots.index.on_disk import OnDisk

LARGE = 1 << 30  # bytes of archives from which their index lines are sorted on disk
ROTATE = 1_000_000_000  # size in bytes at which the next archive file is started
OURS = re.compile(r"data-[0-9]{5}\.warc\.gz")  # the files that a writer appends to; others stay unchanged

Place = tuple[str, int]  # an archive file and an offset in it

# Writers of this process by resolved path, so that their snapshots can be opened while recording.
LIVE: dict[str, Writer] = {}


class Writer:
    """The writer of an open snapshot, opened with `Writer.open`. Thread-safe."""

    def __init__(
        self,
        path: Path,
        software: str,
        settings: dict[str, Any],
        profile: Profile | None,
        recorded: CaptureAccount,
    ) -> None:
        self.path = path
        self.repairs: list[str] = []
        self.captures = 0  # exchanges recorded by this writer
        self.profile = profile
        self.rules: Any = None  # the rules found by sealing, in the form of `RuleSet.to_json`
        self._software = software
        self._settings = settings
        self._lock = threading.RLock()
        self._closed = False
        self._packer = Packer(software, path / "archive")
        self._recorded = recorded
        self._views: dict[str, View] = {}
        self._listed = 0  # offset in the archive file up to which every record has an index line
        self._unlisted = False  # True if an earlier record has no index line: Ctrl-C can interrupt anywhere
        self._kept: Container | None = None  # the files of an index on disk that is read while writing
        self._aside: OnDisk | None = None  # the captures of a large archive without an index
        self._hashes: Hashes = {}  # hashes of the archive files when the index was built
        self._guard = lock_directory(path, "is being recorded into by another process")

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        software: str | None = None,
        settings: Mapping[str, Any] | None = None,
        profile: Profile | None = None,
        keep_text: bool | None = None,
        progress: indexing.Progress | None = None,
        recorded: CaptureAccount | None = None,
        serial: int = 0,
        provenance: Provenance | None = None,
    ) -> Writer:
        """Create a snapshot directory, or continue an open one; `repairs` lists what had to be repaired.

        `keep_text` decides if sealing freezes the text of pages and PDFs (by default as when the snapshot was
        made, else True). `progress` is called while a lost index is rebuilt. `recorded` stores the captures'
        index data. `serial` numbers the first record of a new directory. `provenance` is added to
        that of the snapshot. Raises UsageError if the path is not a snapshot, or another process is writing it.
        """
        root = local(path)
        if root.exists() and not root.is_dir():
            raise UsageError(
                f"{root}: is a file; recording needs a directory (a sealed snapshot stays as it is)"
            )
        if root.suffix == ".wacz" and not root.exists():
            raise UsageError(
                f"{root}: recording needs a directory; name it {root.with_suffix('')}, and seal it to a .wacz afterwards"
            )
        if root.is_dir() and any(root.iterdir()) and not (root / "archive").is_dir():
            raise UsageError(f"{root}: is a directory, but no snapshot; name another one")
        try:
            for folder in ("archive", "indexes", "pages"):
                (root / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_written(root, error) from error
        settings_now = (
            dict(settings or {}) if keep_text is None else {**(settings or {}), "keep_text": keep_text}
        )
        known = CaptureAccount() if recorded is None else recorded
        writer = cls(root.resolve(), software or software_name(), settings_now, profile, known)
        writer._packer.serial = itertools.count(serial)
        try:
            writer._load(progress)
            if provenance is not None:
                writer._settings = with_entry(writer._settings, provenance)
            writer._begin_file()
        except BaseException:
            writer._release()
            raise
        LIVE[str(writer.path)] = writer
        return writer

    # -- existing content

    def _load(self, progress: indexing.Progress | None) -> None:
        """Repair the files and load their index lines, views, settings and rules."""
        archive = self.path / "archive"
        files = sorted(p for p in archive.iterdir() if p.is_file() and not p.name.startswith("."))
        if not files:
            return
        container = open_directory(self.path)
        spill: OnDisk | None = None
        try:
            if is_index_current(container):
                index, known = open_index(container, checked=True)
                count = len(index)
                others = list(index.lines(OTHER.decode(), prefix=True))
                self._recorded.load(LinesOnDisk(index.lines, count - len(others)), others)
                self._kept = container
            else:
                if container.size >= LARGE:
                    from stillweb.snapshots.index.on_disk import OnDisk

                    spill = self._aside = OnDisk()
                container, built, repairs = mend(container, progress, spill)
                self.repairs += [*repairs, *built.notes]
                known, self._hashes = built, built.hashes
                others = [line for line in built.lines if line.startswith(OTHER)]
                captures = [line for line in built.lines if not line.startswith(OTHER)]
                self._recorded.load(LinesOnDisk(spill.lines, spill.count()) if spill else captures, others)
            for line in others:
                entry = parse_line(line)[2]
                if entry["kind"] == "metadata" and entry["mime"] == VIEW_MEDIA:
                    place = entry["filename"], int(entry["offset"]), int(entry["length"])
                    block = Archives(container.archives).record(*place).block
                    with contextlib.suppress(ValueError, RecursionError):  # `verify` reports a damaged view
                        self._views[target_of(entry)] = view_from_json(json.loads(block))
            self._settings = {**known.settings, **self._settings}
            self.rules = container.own.get("rules")
            if self.profile is None:
                self.profile = known.profile
            self._packer.serial = itertools.count(container.size)  # so that no serial number is used twice
        finally:
            if self._kept is not container:
                container.close()

    def _begin_file(self, date: str = "") -> None:
        """Open the last archive file, or start the next one.

        A new file is started only for a record of `date`, once the last file has reached `ROTATE` bytes.
        """
        files = sorted(p for p in (self.path / "archive").iterdir() if OURS.fullmatch(p.name))
        number = int(files[-1].name[5:10]) if files else 0
        if date and files and files[-1].stat().st_size >= ROTATE:
            number += 1
        self._file = AppendFile(self.path / "archive" / f"data-{number:05d}.warc.gz")
        self._introduced = False
        self._listed = self._file.size
        if self._file.size == 0:
            self._introduce(date)

    def _introduce(self, date: str = "") -> None:
        """Write a warcinfo record: the software, settings and profile.

        It has the date of the record after it, so that sealing gives the same bytes at any time.
        """
        self._unlisted |= self._file.size != self._listed
        self._file.append(self._packer.warcinfo(self._file.path.name, date, self._settings, self.profile))
        self._listed = self._file.size
        self._introduced = True

    # -- recording

    @property
    def place(self) -> Place:
        """Return the file and offset of the next record."""
        return self._file.path.name, self._file.size

    def adopt(self, profile: Profile) -> None:
        """Set the snapshot's profile to that of imported recordings."""
        with self._lock:
            self.profile = profile
            self._introduce()

    def event(self, session: str) -> int:
        """Return the next event number of a session.

        Call it when a request starts and when its response is complete.
        """
        return self._recorded.event(session)

    def last_event(self, session: str) -> int:
        """Return the last event number issued or stored for a session; 0 for a new session."""
        return self._recorded.last_event(session)

    def exchange(self, exchange: Exchange) -> Capture:
        """Store an exchange and return its capture. States are not set; they are assigned at the end.

        Raises MissingCapability when the disk is full; the archive is then unchanged.
        """
        with contextlib.ExitStack() as stack:
            packed = self._packer.exchange(exchange, self._recorded.payload, stack)
            with self._lock:
                place, question_at = self._append(packed.question, packed.answer, iso_date(exchange.started))
                capture = packed.capture(place, question_at)
                self._recorded.add(capture, packed.identity, exchange.request)
                self._listed = self._file.size
                self.captures += 1
        return capture

    def _append(self, first: bytes, second: bytes | BinaryIO, date: str) -> tuple[tuple[str, int, int], int]:
        """Append a request and its response; return the response's place and the request's offset.

        The request comes first: a kill between the two leaves a request without response, never a response
        that could be paired with another request.
        """
        if self._closed:
            raise UsageError(f"{self.path}: the writer is closed")
        self._unlisted |= self._file.size != self._listed
        if self._file.size >= ROTATE:
            self._file.end()
            self._begin_file(date)
        # an older file that is continued gets a new warcinfo, but only once there is a record to write
        if not self._introduced:
            self._introduce(date)
        name = self._file.path.name
        at, offset = self._file.append(first, second)
        length = self._file.size - offset
        return (name, offset, length), at

    def _other(
        self, kind: str, uri: str, date: str, media: str, block: bytes, extra: Sequence[tuple[str, str]] = ()
    ) -> str:
        """Store a record that is not an exchange; return its payload digest."""
        packed, value = self._packer.plain(kind, uri, date, media, block, extra)
        with self._lock:
            place, _ = self._append(b"", packed, date)
            served = indexing.extraction_options({name.lower(): text for name, text in extra})
            self._recorded.others.append(indexing.record_line(kind, uri, date, media, value, *place, served))
            self._listed = self._file.size
        return value

    def resource(
        self,
        kind: str,
        address: str,
        data: bytes,
        *,
        timestamp: datetime | None = None,
    ) -> str:
        """Store a view's resource under `urn:{kind}:{address}`; return its digest.

        `kind` is a key of `view.RESOURCES`. Raises UsageError for any other kind.
        """
        if kind not in RESOURCES:
            raise UsageError(f"no kind of resource: {kind!r}; known are {', '.join(RESOURCES)}")
        return self._other("resource", f"urn:{kind}:{address}", iso_date(timestamp), RESOURCES[kind], data)

    def view(self, view: View, resources: Mapping[str, bytes]) -> None:
        """Store a view: its resources (kind -> bytes), its metadata record and its line in the page list."""
        moment = parse_timestamp(view.timestamp)
        for kind, data in resources.items():
            self.resource(kind, view.address, data, timestamp=moment)
        block = json.dumps(view_to_json(view), sort_keys=True, ensure_ascii=False).encode()
        with self._lock:
            self._other("metadata", view.address, iso_date(moment), VIEW_MEDIA, block)
            self._views[view.address] = view
            self._add_page(page_line(view))

    def _add_page(self, line: bytes) -> None:
        """Append a line to the page list, for readers of the open snapshot. `close` rewrites the list."""
        with contextlib.closing(AppendFile(self.path / PAGES)) as pages:
            pages.append(b"" if pages.size else PAGES_HEADER, line)

    def metadata(self, uri: str, value: Any, media: str = "application/json", date: str = "") -> None:
        """Store a JSON value as a metadata record, dated now by default."""
        block = json.dumps(value, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")
        self._other("metadata", uri, date or iso_date(None), media, block)

    def conversion(
        self,
        target_uri: str,
        text: str,
        *,
        refers_to: Capture | None,
        extractor: str,
        version: str,
        options: Mapping[str, Any] | None = None,
        media: str = "text/markdown;charset=utf-8",
        timestamp: str = "",
    ) -> None:
        """Store the frozen text of a page or document.

        It is dated like its source, so that sealing again changes nothing. The source is the capture
        `refers_to`, or else a view made at `timestamp`.
        """
        date = iso_date(refers_to.timestamp) if refers_to else page_time(timestamp)
        extra = [
            ("WARC-Stillweb-Extractor", f"{extractor}/{version}"),
            ("WARC-Stillweb-Options", pack_options(options or {})),
            ("WARC-Stillweb-Identity", "2"),
        ]
        if refers_to is not None:
            with contextlib.closing(FileSource(self.path / ARCHIVE / refers_to.filename)) as archive:
                fields, _, _ = open_block(archive, refers_to.offset, refers_to.length)
            extra.insert(0, ("WARC-Refers-To", fields.get("warc-record-id", "")))
        self._other("conversion", target_uri, date, media, text.encode(errors="surrogatepass"), extra)

    # -- index and closing

    @property
    def keep_text(self) -> bool:
        return bool(self._settings.get("keep_text", True))

    def lines(self) -> list[bytes]:
        """Return the sorted index lines of everything recorded so far, states included."""
        with self._lock:
            now = self._recorded.current()
        with contextlib.closing(open_directory(self.path)) as container:
            return list(self._recorded.lines(now, Archives(container.archives)))

    def _write_index(self) -> list[bytes] | None:
        """Write the index; return its lines if they are in memory."""
        with contextlib.closing(open_directory(self.path)) as container:
            lines = self._recorded.lines(self._recorded.current(), Archives(container.archives))
            write_whole(self.path / INDEX, (line + b"\n" for line in lines))
        return lines if isinstance(lines, list) else None

    def close(self) -> None:
        """Write the index, the page list and datapackage.json. Closing twice does nothing.

        If a stored record has no index line, the index is rebuilt from the archives.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            unlisted = self._unlisted or self._file.size != self._listed
        try:
            self._file.end()
            if unlisted:
                self._release()  # `reindex` opens a writer on the same directory
                reindex(self.path)
                return
            lines = self._write_index()
            views = sorted(self._views.values(), key=lambda v: (v.timestamp, v.address))
            write_whole(self.path / PAGES, [PAGES_HEADER, *map(page_line, views)])
            write_package(
                self.path,
                profile=self.profile,
                settings=self._settings,
                software=self._software,
                rules=self.rules,
                lines=lines,
                hashes=self._hashes,
            )
        finally:
            self._release()

    def _release(self) -> None:
        self._closed = True
        self._recorded.close()
        for one in (self._kept, self._aside):
            if one is not None:
                one.close()
        self._kept = self._aside = None
        LIVE.pop(str(self.path), None)
        if self._guard >= 0:
            os.close(self._guard)
            self._guard = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reindex(path: str | os.PathLike[str], progress: indexing.Progress | None = None) -> int:
    """Rebuild the index of an open snapshot from its archives; return the number of captures.

    Raises UsageError if `path` is not an open snapshot.
    """
    root = local(path)
    if not (root / "archive").is_dir():
        raise UsageError(
            f"{root}: is not an open snapshot (a directory with archive/); a sealed one keeps its index"
        )
    (root / INDEX).unlink(missing_ok=True)
    with rare_collection(), Writer.open(root, progress=progress) as writer:
        return len(writer._recorded)
