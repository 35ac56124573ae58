"""Import of any readable archive into a snapshot, exchange by exchange."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from stillweb.snapshots._os.processes import rare_collection
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.contents.capture_account import CaptureAccountOnDisk
from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.importers import IMPORT, ImportReport
from stillweb.snapshots.index.indexing import count_records, what_of
from stillweb.snapshots.index.on_disk import OnDisk
from stillweb.snapshots.index.resolving import NOWHERE
from stillweb.snapshots.notes import DamageNote, damage_in
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.remote import is_remote
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import RESOURCES, View
from stillweb.snapshots.warc.container import SUFFIXES
from stillweb.snapshots.writer import Writer

Progress = Callable[[int, int], None]
AnyPath = str | os.PathLike[str]
TOLD = 100  # captures between two reports of progress
DERIVED = "; it may be a WAT or WET file, made from an archive with the responses: import that archive"
SMALL = 1 << 16  # stored size in bytes up to which a record is read at once: some 64 MB unpacked at worst


def import_files(
    paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str], *, progress: Progress | None = None
) -> ImportReport:
    """Import archives and recordings of any known format into an open snapshot, created if needed.

    An unreadable file is named in the report and doesn't stop the others. `progress` is called with the bytes
    done and the bytes in all. Raises GateFailed as `late_secrets.refuse` does, UsageError, and DamagedInput if no
    file yielded anything. What was imported before an error stays; a new snapshot that is still empty is
    removed.
    """
    report = ImportReport()
    files = list(paths)
    for path in files:
        late_secrets.refuse(path)
    fresh = not os.path.lexists(out)
    way = ImportProgress([size_of(path) for path in files], progress)
    try:
        with (
            rare_collection(),
            SideBySide(files) as others,
            Writer.open(out, recorded=CaptureAccountOnDisk()) as writer,
        ):
            for path in files:
                try:
                    take(path, writer, report, others, way)
                except DamagedInput as error:
                    if len(files) == 1:
                        raise
                    note_damage(report, str(error))
                way.next_file()
        if report.notes and not (report.captures or report.views or report.sockets):
            more = f" (and {len(report.notes) - 1} more)" if len(report.notes) > 1 else ""
            raise DamagedInput(f"nothing could be taken: {report.notes[0]}{more}")
    except BaseException:
        if fresh and not (report.captures or report.views or report.sockets):
            shutil.rmtree(out, ignore_errors=True)
        raise
    return report


class ImportProgress:
    """The progress of an import, in bytes of its files.

    Half of a file's share is for reading it, half for importing its captures.
    """

    def __init__(self, sizes: Sequence[int], progress: Progress | None) -> None:
        self._sizes = list(sizes)
        self._total = sum(sizes)
        self._before = 0  # bytes of the finished files
        self._progress = progress

    def _tell(self, share: float) -> None:
        if self._progress is not None and self._sizes:
            self._progress(self._before + int(share * self._sizes[0]), self._total)

    def read(self, done: int, total: int) -> None:
        """Report how much of the current file was read."""
        self._tell(done / total / 2 if total else 0)

    def taken(self, done: int, total: int) -> None:
        """Report how many captures of the current file were imported."""
        if done % TOLD == 0:
            self._tell((1 + done / total) / 2 if total else 1)

    def next_file(self) -> None:
        """Report that the current file is finished."""
        self._tell(1)
        self._before += self._sizes.pop(0)


def size_of(path: AnyPath) -> int:
    """Return the number of bytes at a path; 0 if it is a URL."""
    if is_remote(path):
        return 0
    local = Path(path)
    files = local.rglob("*") if local.is_dir() else [local]
    return sum(file.stat().st_size for file in files if file.is_file())


def take(
    path: AnyPath, writer: Writer, report: ImportReport, others: SideBySide, way: ImportProgress
) -> None:
    """Import the captures and views at `path`; add what is left out to the report.

    Revisits may repeat payloads that lie in `others`. Raises as `Snapshot.open`.
    """
    with OnDisk() as held, Snapshot.open(path, checked=True, progress=way.read, spill=held) as source:
        holder, count, captures, found = others.captures_of(source, path, held)
        notes = [_at(path, note) for note in found]
        report.notes += notes
        report.damaged += damage_in(notes)
        for name in source.empty_archives():
            note_damage(report, f"{path}: {name}: is empty")
        if source.profile is not None and source.profile != writer.profile:
            if writer.profile is None:
                writer.adopt(source.profile)
            else:
                report.notes.append(f"{path}: was recorded with another profile, which is dropped")
        report.notes += notes_on_left_out(source)
        report.damaged += notes_on_left_out(source, "damaged")
        shifts = copy_captures(holder, captures, count, writer, report, way)
        talks = set()
        for uri in source.metadata_addresses("http"):
            with noting_damage(report, uri):
                if copied := copy_conversations(source, uri, writer, shifts):
                    talks.add(uri)
                    report.sockets += copied
        with noting_damage(report, f"{path}: requests that failed"):
            for failure in source.failures():
                failure.write(writer)
                report.failures += 1
        views: list[View] = []
        with noting_damage(report, f"{path}: views"):
            views = source.views()
        for view in views:
            writer.view(view, readable_parts(source, view, report))
            report.views += 1
        taken = talks | {f"urn:{kind}:{view.address}" for view in views for kind in RESOURCES}
        passed_over = Counter(what_of(kind, uri) for kind, uri in source.not_captures() if uri not in taken)
        if passed_over:
            report.notes.append(f"{path}: left out: {count_records(passed_over)}")
            if not (count or views or talks):
                report.notes[-1] += DERIVED


@contextmanager
def noting_damage(report: ImportReport, what: str) -> Iterator[None]:
    """Note damage in the report instead of raising it, so that the rest is still imported."""
    try:
        yield
    except DamagedInput as error:
        note_damage(report, f"{what}: {error}")


def note_damage(report: ImportReport, text: str) -> None:
    report.notes.append(DamageNote(text))
    report.damaged.append(report.notes[-1])


def _at(path: AnyPath, note: str) -> str:
    """Prefix a note with its file's path, in place of the bare file name."""
    own = os.path.basename(os.fspath(path)) + ": "
    text = f"{path}: {note.removeprefix(own)}"
    return DamageNote(text) if isinstance(note, DamageNote) else text


def copy_captures(
    source: Snapshot,
    captures: Iterable[Capture],
    count: int,
    writer: Writer,
    report: ImportReport,
    way: ImportProgress,
) -> dict[str, int]:
    """Record captures of a snapshot again; sessions continue those of the same name.

    Returns the number by which each session's event numbers were shifted.
    """
    before: dict[str, int] = {}
    for number, capture in enumerate(captures):
        way.taken(number, count)
        session = capture.session
        if session not in before:
            before[session] = writer.last_event(session)
        shift = before[session] if capture.end else 0
        with noting_damage(report, capture.url):
            cut = source.cut_short(capture)
            if cut:
                report.notes.append(
                    f"{capture.url}: its body is cut short: {cut}; answers from it are presumed"
                )
            copy_capture(source, capture, writer, shift, cut=bool(cut))
            report.captures += 1
    return before


def copy_capture(
    source: Snapshot, capture: Capture, writer: Writer, shift: int = 0, *, cut: bool = False
) -> None:
    """Record a capture of a snapshot again, with its event numbers moved by `shift`. Raises DamagedInput.

    A large body is copied as a stream; one that is `cut` short is marked so.
    """
    truncated = capture.truncated or ("disconnect" if cut else "")
    request = source.read_request(capture)
    with ExitStack() as stack:
        if max(capture.length, capture.original[2] if capture.original else 0) <= SMALL:
            answer = source.read(capture)
            body: bytes | BinaryIO = answer.body
        else:
            answer = source.head(capture)
            body = stack.enter_context(source.open_body(capture))
        writer.exchange(
            Exchange(
                request,
                answer.status,
                answer.reason,
                answer.headers,
                body,
                parse_timestamp(capture.timestamp) or EPOCH,
                capture.session,
                capture.begin + shift,
                capture.end + shift,
                capture.protocol,
                extra={"WARC-Truncated": truncated} if truncated else {},
            )
        )


def copy_conversations(source: Snapshot, uri: str, writer: Writer, shifts: dict[str, int]) -> int:
    """Store the web socket conversations of an address again, and return their number. Raises DamagedInput."""
    count = 0
    for conversation in source.said_at(uri):
        session = str(conversation.get("session", ""))
        shift = shifts[session] if session in shifts else writer.last_event(session)
        events = {
            name: conversation[name] + shift
            for name in ("begin", "end")
            if isinstance(conversation.get(name), int)
        }
        writer.metadata(uri, conversation | events)
        count += 1
    return count


def copy_view(source: Snapshot, view: View, writer: Writer) -> None:
    """Store a view of a snapshot again, with all its resources. Raises DamagedInput."""
    found = {kind: source.resource(kind, view.address) for kind in RESOURCES}
    writer.view(view, {kind: data for kind, data in found.items() if data is not None})


def readable_parts(source: Snapshot, view: View, report: ImportReport) -> dict[str, bytes]:
    """Return the readable resources of a view, by kind."""
    found: dict[str, bytes] = {}
    for kind in RESOURCES:
        with noting_damage(report, view.address):
            data = source.resource(kind, view.address)
            found |= {} if data is None else {kind: data}
    return found


def notes_on_left_out(snapshot: Snapshot, kind: str = "notes") -> list[str]:
    """Return notes on what could not be taken from a HAR or flow file.

    With `kind` "damaged", only notes of damage.
    """
    listed = [value.get(kind) for value in snapshot.all_metadata(IMPORT) if isinstance(value, dict)]
    return [str(note) for notes in listed if isinstance(notes, list) for note in notes]


class SideBySide:
    """The archive files among `files`, opened together on first need: a revisit in one may repeat a payload in another."""

    def __init__(self, files: Sequence[AnyPath] = ()) -> None:
        self._files = files
        self._stack = ExitStack()
        self._wider: Snapshot | None = None
        self._names: dict[Path, str] = {}  # their names in the combined snapshot, which begin with six digits
        self._notes: dict[str, set[str]] = defaultdict(set)  # notes on each of them
        self._held: OnDisk | None = None

    def captures_of(
        self, source: Snapshot, path: AnyPath, held: OnDisk
    ) -> tuple[Snapshot, int, Iterator[Capture], list[str]]:
        """Return a snapshot to read the captures of `path` from, their number, the captures and notes.

        `held` are the captures of `source`, the snapshot at `path`. The combined snapshot of all files is
        used if the revisits of `source` repeat payloads that none of its own files has. Captures are in
        recorded order.
        """
        lacking = any(note.endswith(NOWHERE) for note in source.notes)
        wider = self._wider or self._widen() if lacking and _is_archive(Path(path)) else None
        if wider is None or self._held is None:
            return source, held.count(), held.captures(), source.notes
        name, lead = self._names[Path(path).resolve()], Path(path).name
        entries = self._notes[name]
        notes = [
            note for note in source.notes if not note.endswith(NOWHERE) or note.removeprefix(lead) in entries
        ]
        return wider, self._held.count(name), self._held.captures(name), notes

    def _widen(self) -> Snapshot | None:
        archives = list(
            dict.fromkeys(Path(file).resolve() for file in self._files if _is_archive(Path(file)))
        )
        if len(archives) < 2:
            return None
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="stillweb-")))
        for number, file in enumerate(archives):
            # files in different folders may have the same name
            name = self._names[file] = f"{number:06d}-{file.name}"
            (folder / name).symlink_to(file)
        self._held = self._stack.enter_context(OnDisk())
        self._wider = self._stack.enter_context(Snapshot.open(folder, spill=self._held))
        self._held.index_names()
        numbered = {name[:6]: name for name in self._names.values()}
        for note in self._wider.notes:
            name = numbered.get(note[:6], "")
            if name and note.startswith(f"{name}: "):
                self._notes[name].add(note.removeprefix(name))
        return self._wider

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _is_archive(file: Path) -> bool:
    # an unreadable file is reported later, when it is opened by itself
    return file.is_file() and file.name.endswith(SUFFIXES) and os.access(file, os.R_OK)
