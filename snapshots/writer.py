"""Recording: exchanges, views and texts appended to an open snapshot.

Everything is in the WARC files the moment a call returns; the index, the pages and datapackage.json are
written when the writer is closed, and can be made again from the WARC files alone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from stillweb.snapshots.archives import warc
from stillweb.snapshots.archives.appending import AppendFile, not_written, write_whole
from stillweb.snapshots.archives.container import ARCHIVE, INDEX, PAGES, open_directory
from stillweb.snapshots.archives.reading import Archives
from stillweb.snapshots.capture import Capture, Exchange
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
from stillweb.snapshots.contents.recorded import Recorded
from stillweb.snapshots.contents.records import Packer
from stillweb.snapshots.dates import iso_date, parse_timestamp
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.index import indexing
from stillweb.snapshots.index.build import fits, mend, open_index
from stillweb.snapshots.index.cdxj import parse_line, target_of
from stillweb.snapshots.index.kept import Hashes
from stillweb.snapshots.machine.garbage import seldom_collected
from stillweb.snapshots.machine.locking import lock_directory
from stillweb.snapshots.machine.places import FilePlace
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.software import software_name
from stillweb.snapshots.view import RESOURCES, View

ROTATE = 1_000_000_000  # bytes of an archive file after which the next one is begun
OURS = re.compile(r"data-[0-9]{5}\.warc\.gz")  # the files that are gone on with; others are left as they are

Place = tuple[str, int]  # an archive file and an offset in it

LIVE: dict[str, Writer] = {}  # by resolved path: a snapshot that is being recorded here can be opened here


class Writer:
    """Appends to an open snapshot. Thread-safe. Use `Writer.open`."""

    def __init__(
        self, path: Path, software: str, settings: dict[str, Any], profile: Profile | None, recorded: Recorded
    ) -> None:
        self.path = path
        self.repairs: list[str] = []
        self.captures = 0  # recorded since it was opened
        self.profile = profile
        self.rules: Any = None  # what sealing found, as `RuleSet.to_json` gives it
        self._software = software
        self._settings = settings
        self._lock = threading.RLock()
        self._closed = False
        self._packer = Packer(software, path / "archive")
        self._recorded = recorded
        self._views: dict[str, View] = {}
        self._listed = 0  # the size of the archive file up to which each record has its line
        self._unlisted = False  # whether one was stored before that has none: Ctrl-C comes at any place
        self._hashes: Hashes = {}  # of archive files as they were when the index was built
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
        recorded: Recorded | None = None,
    ) -> Writer:
        """Makes a snapshot directory, or goes on with an open one; `repairs` says what had to be mended.

        `keep_text` says whether sealing freezes the text of pages and PDFs (it does, unless told not to when
        the snapshot was made). `progress` is told of building an index that was lost. `recorded`: keeps what is
        known of captures. Raises UsageError for a path that is something else, or is being written by another process.
        """
        root = Path(path)
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
        told = dict(settings or {}) if keep_text is None else {**(settings or {}), "keep_text": keep_text}
        known = Recorded() if recorded is None else recorded
        writer = cls(root.resolve(), software or software_name(), told, profile, known)
        try:
            writer._load(progress)
            writer._begin_file()
        except BaseException:
            writer._release()
            raise
        LIVE[str(writer.path)] = writer
        return writer

    # -- what was there before

    def _load(self, progress: indexing.Progress | None) -> None:
        """Mends the files and takes up what they hold."""
        archive = self.path / "archive"
        files = sorted(p for p in archive.iterdir() if p.is_file() and not p.name.startswith("."))
        if not files:
            return
        container = open_directory(self.path)
        try:
            if fits(container):
                index, known = open_index(container, checked=True)
                lines = list(index.lines())
            else:
                container, built, repairs = mend(container, progress)
                self.repairs += repairs
                lines, known = built.lines, built
                self.repairs += built.notes
                self._hashes = built.hashes
            # as `indexing.other_key` names them
            others = [line for line in lines if line.startswith(b"urn:")]
            self._recorded.load([line for line in lines if not line.startswith(b"urn:")], others)
            for line in others:
                entry = parse_line(line)[2]
                if entry["kind"] == "metadata" and entry["mime"] == VIEW_MEDIA:
                    place = entry["filename"], int(entry["offset"]), int(entry["length"])
                    block = Archives(container.archives).record(*place).block
                    with contextlib.suppress(ValueError, RecursionError):  # `verify` names it
                        self._views[target_of(entry)] = view_from_json(json.loads(block))
            self._settings = {**known.settings, **self._settings}
            self.rules = container.own.get("rules")
            if self.profile is None:
                self.profile = known.profile
            self._packer.serial = itertools.count(container.size)  # no number is given twice
        finally:
            container.close()

    def _begin_file(self, date: str = "") -> None:
        """Opens the last archive file, or begins the next one with its warcinfo record, if it is to get a record of `date`."""
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
        """Says in the file who writes into it, and how; dated as what follows, so that sealing is the same at any time."""
        self._unlisted |= self._file.size != self._listed
        self._file.append(self._packer.warcinfo(self._file.path.name, date, self._settings, self.profile))
        self._listed = self._file.size
        self._introduced = True

    # -- recording

    @property
    def place(self) -> Place:
        """Where the next record goes."""
        return self._file.path.name, self._file.size

    def adopt(self, profile: Profile) -> None:
        """Takes the profile of recordings that are taken in for the snapshot's own."""
        with self._lock:
            self.profile = profile
            self._introduce()

    def event(self, session: str) -> int:
        """The next event number of a session: taken when a request starts and when its answer is complete."""
        return self._recorded.event(session)

    def last_event(self, session: str) -> int:
        """The last event number that was given out or stored for a session, 0 for a new one."""
        return self._recorded.last_event(session)

    def exchange(self, exchange: Exchange) -> Capture:
        """Stores an exchange and returns its capture (without state, which is known at the end).

        Raises MissingCapability when the disk is full; the archive then is as it was before.
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
        """Appends a request and its answer; the place of the answer and the offset of the request.

        The request comes first: a kill between the two leaves a request without answer, never an answer
        that could pass for that of another request.
        """
        if self._closed:
            raise UsageError(f"{self.path}: the writer is closed")
        self._unlisted |= self._file.size != self._listed
        if self._file.size >= ROTATE:
            self._file.end()
            self._begin_file(date)
        if not self._introduced:  # who goes on with an older file says so, once there is something to say
            self._introduce(date)
        name = self._file.path.name
        at, offset = self._file.append(first, second)
        length = self._file.size - offset
        return (name, offset, length), at

    def _other(
        self, kind: str, uri: str, date: str, media: str, block: bytes, extra: list[tuple[str, str]]
    ) -> str:
        """Stores a record that is no exchange; returns its payload digest."""
        packed, value = self._packer.plain(kind, uri, date, media, block, extra)
        with self._lock:
            place, _ = self._append(b"", packed, date)
            served = indexing.served_with({name.lower(): text for name, text in extra})
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
        extra: Mapping[str, str] | None = None,
    ) -> str:
        """Stores what belongs to a view under `urn:{kind}:{address}`; returns its digest.

        `kind` is a key of `view.RESOURCES`; `extra` are further WARC fields.
        """
        if kind not in RESOURCES:
            raise UsageError(f"no kind of resource: {kind!r}; known are {', '.join(RESOURCES)}")
        fields = list((extra or {}).items())
        return self._other(
            "resource", f"urn:{kind}:{address}", iso_date(timestamp), RESOURCES[kind], data, fields
        )

    def view(self, view: View, resources: Mapping[str, bytes]) -> None:
        """Stores a view: its resources (kind -> bytes), then what it is; the page list follows at close."""
        moment = parse_timestamp(view.timestamp)
        for kind, data in resources.items():
            self.resource(kind, view.address, data, timestamp=moment)
        block = json.dumps(view_to_json(view), sort_keys=True, ensure_ascii=False).encode()
        with self._lock:
            self._other("metadata", view.address, iso_date(moment), VIEW_MEDIA, block, [])
            self._views[view.address] = view
            self._add_page(page_line(view))

    def _add_page(self, line: bytes) -> None:
        """A page is listed at once, for who looks at an open snapshot; the list is written anew at close."""
        with contextlib.closing(AppendFile(self.path / PAGES)) as pages:
            pages.append(b"" if pages.size else PAGES_HEADER, line)

    def metadata(self, uri: str, value: Any, media: str = "application/json", date: str = "") -> None:
        """Stores a JSON value as a metadata record, of now without a date."""
        block = json.dumps(value, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")
        self._other("metadata", uri, date or iso_date(None), media, block, [])

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
        """Stores a frozen text of a page or document; dated as its source, so that sealing again changes nothing.

        The source is the capture that it refers to, else what was made at `timestamp` (a view).
        """
        date = iso_date(refers_to.timestamp) if refers_to else page_time(timestamp)
        extra = [
            ("WARC-Stillweb-Extractor", f"{extractor}/{version}"),
            ("WARC-Stillweb-Options", pack_options(options or {})),
            ("WARC-Stillweb-Identity", "2"),
        ]
        if refers_to is not None:
            with contextlib.closing(FilePlace(self.path / ARCHIVE / refers_to.filename)) as archive:
                source = warc.read_record(archive, refers_to.offset, refers_to.length)
            extra.insert(0, ("WARC-Refers-To", source.fields.get("warc-record-id", "")))
        self._other("conversion", target_uri, date, media, text.encode(errors="surrogatepass"), extra)

    # -- what was recorded so far

    @property
    def keep_text(self) -> bool:
        """Whether sealing freezes the texts."""
        return bool(self._settings.get("keep_text", True))

    def lines(self) -> list[bytes]:
        """The sorted index lines of all that was recorded so far, states included."""
        with self._lock:
            now = self._recorded.now()
        with contextlib.closing(open_directory(self.path)) as container:
            return list(self._recorded.lines(now, Archives(container.archives)))

    def _write_index(self) -> list[bytes] | None:
        """Gives its lines where they are in memory."""
        with contextlib.closing(open_directory(self.path)) as container:
            lines = self._recorded.lines(self._recorded.now(), Archives(container.archives))
            write_whole(self.path / INDEX, (line + b"\n" for line in lines))
        return lines if isinstance(lines, list) else None

    def close(self) -> None:
        """Writes the index, the page list and datapackage.json. Closing twice does nothing.

        Where what it knows is not all that it stored, the index is built from the archives.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            unlisted = self._unlisted or self._file.size != self._listed
        try:
            self._file.end()
            if unlisted:
                self._release()  # to be opened again
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
    """Builds the index of an open snapshot anew from its archives alone; returns the number of captures.

    Raises UsageError for what is no open snapshot.
    """
    root = Path(path)
    if not (root / "archive").is_dir():
        raise UsageError(
            f"{root}: is no open snapshot (a directory with archive/); a sealed one keeps its index"
        )
    (root / INDEX).unlink(missing_ok=True)
    with seldom_collected(), Writer.open(root, progress=progress) as writer:
        return len(writer._recorded)
