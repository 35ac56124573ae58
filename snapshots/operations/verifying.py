"""Verification of a snapshot: every record, digest, offset, index line and listed file is read again."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stillweb.snapshots import decompression
from stillweb.snapshots._os.random_access import ByteSource, Reader, chunks, hash_place, lines_in
from stillweb.snapshots.contents import failures
from stillweb.snapshots.contents.package import (
    VIEW_MEDIA,
    all_files,
    identities,
    page_lines,
    rules_from,
    snapshot_id,
    view_from_json,
)
from stillweb.snapshots.decompression import TooLarge, bounded_parts, too_large
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.extras import require
from stillweb.snapshots.http.encodings import EncodingProblem, decode_pieces
from stillweb.snapshots.index import build
from stillweb.snapshots.index.blocks import steps_of
from stillweb.snapshots.index.cdxj import BROKEN, parse_line
from stillweb.snapshots.index.gathering import ScanResult, add_scan
from stillweb.snapshots.index.index_cache import IndexBuild
from stillweb.snapshots.index.indexing import find, missing_digests
from stillweb.snapshots.index.pairing import settle
from stillweb.snapshots.opening import BAD_ZIP, largest, open_container
from stillweb.snapshots.operations.signatures import check_signature
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.warc import messages, warc
from stillweb.snapshots.warc.container import DIGEST, INDEX, PACKAGE, STEPS, Container
from stillweb.snapshots.warc.messages import dechunk
from stillweb.snapshots.warc.reading import Archives, open_block
from stillweb.snapshots.warc.scan import Damage, NotSeekable, ScannedRecord
from stillweb.snapshots.warc.warc import algorithm_of, same_digest
from stillweb.snapshots.words import pluralize

Progress = Callable[[int, int], None]
_OURS = "warc-stillweb-session"
LONGEST = 1 << 20  # most bytes of a line of a foreign index
MOST = 1000  # problems of a kind that are named of a file: a bomb has millions


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault found by a check. `check` names the check; `offset` is -1 if there is none."""

    check: str  # zip, package, signature, pages, record, digest, revisit, pair, index, id, text
    file: str
    offset: int
    message: str

    def __str__(self) -> str:
        place = self.file if self.offset < 0 else f"{self.file}: offset {self.offset}"
        return f"{place}: {self.check}: {self.message}"


def verify(
    path: str | os.PathLike[str], progress: Progress | None = None, *, second_reader: bool = False
) -> list[Problem]:
    """Return the problems of a snapshot or archive; an empty list means that it is sound.

    With `second_reader` warcio reads every record, too. Raises UsageError if nothing is there. A snapshot that can't be
    opened is one problem, too.
    """
    try:
        container = open_container(path)
    except DamagedInput as error:
        return [Problem("open", str(path), -1, str(error))]
    try:
        check = _Check(container, progress, set() if second_reader else None)
        found = check.run()
        if check.read is not None:
            check.second_reading(check.read)
        return found
    finally:
        container.close()


@dataclass(slots=True)
class _Check:
    container: Container
    progress: Progress | None
    read: set[tuple[str, int, str]] | None  # file, offset and type of each record, for a second reader
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # problems by check and file
    ids: dict[str, tuple[str, int]] = field(default_factory=dict)
    total: int = 0
    done: int = 0

    def run(self) -> list[Problem]:
        self.total = sum(p.size for p in self.container.archives.values()) * (
            2 if self.container.package else 1
        )
        if self.container.zip_source is not None:
            for name, at, message in _faults_of(self.container.zip_source):
                self.found("zip", name, at, message)
            for left_out in self.container.left_out:
                self.found("zip", self.container.path, -1, left_out)
        if self.container.kind != "archive":
            self.package()
            self.pages()
        built = self.records()
        self.index(built)
        self.identity(built)
        self.texts(built)
        for (check, file), count in sorted(self.counts.items()):
            if count > MOST:
                self.problems.append(Problem(check, file, -1, f"{count - MOST} more of this kind"))
        return self.problems

    def found(self, check: str, file: str, offset: int, message: str) -> None:
        self.counts[check, file] += 1
        if self.counts[check, file] <= MOST:
            self.problems.append(Problem(check, file, offset, message))

    def advance(self, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    # -- the package

    def package(self) -> None:
        """Check that datapackage.json lists every file with its size and hash, and matches its own digest."""
        data = self.container.member(PACKAGE)
        if data is None:
            if self.container.kind == "wacz":
                self.found("package", PACKAGE, -1, "is missing")
            return
        try:
            package = json.loads(data)
        except (ValueError, RecursionError):
            package = None
        digest = self.container.member(DIGEST)
        if digest is not None:
            self.package_digest(digest, data)
        if not package or not isinstance(package, dict):
            self.found("package", PACKAGE, -1, "is not a JSON object")
            return
        listed = package.get("resources")
        if not isinstance(listed, list):
            self.found("package", PACKAGE, -1, "has no list of resources")
            return
        files = all_files(self.container)
        named: set[str] = set()
        for number, resource in enumerate(listed):
            name = resource.get("path") if isinstance(resource, dict) else None
            if not isinstance(name, str):
                self.found("package", PACKAGE, -1, f"resource {number} has no path")
                continue
            named.add(name)
            self.resource(name, resource, files.get(name))
        for name in sorted(files.keys() - named):
            self.found("package", name, -1, "is not listed in datapackage.json")

    def package_digest(self, digest: bytes, data: bytes) -> None:
        try:
            value = json.loads(digest)
            wanted = str(value["hash"])
        except (ValueError, TypeError, KeyError, RecursionError):
            self.found("package", DIGEST, -1, "has no hash")
            return
        actual = "sha256:" + hashlib.sha256(data).hexdigest()
        if wanted != actual:
            self.found("package", DIGEST, -1, "datapackage.json has another hash")
        elif self.container.own and value.get("path") != PACKAGE:
            self.found("package", DIGEST, -1, f"does not name {PACKAGE}")
        signature = check_signature(value, actual)
        if signature is not None and signature.sound is False:
            self.found("signature", DIGEST, -1, signature.words)

    def resource(self, name: str, resource: dict[str, Any], place: ByteSource | None) -> None:
        if place is None:
            self.found("package", name, -1, "is listed in datapackage.json but not there")
            return
        size, wanted = _size_and_hash(resource)
        if size is None:
            self.found("package", name, -1, "has no size in datapackage.json")
        elif size != place.size:
            self.found("package", name, -1, f"has {pluralize(place.size, 'byte')}, not {size}")
        if wanted.startswith("sha256:") and wanted != hash_place(place):
            self.found("package", name, -1, "has another hash than datapackage.json says")
        elif not wanted:
            self.found("package", name, -1, "has no hash in datapackage.json")
        if name.startswith("archive/"):
            self.advance(place.size)

    def pages(self) -> None:
        """Check that page lists are JSON lines with a header, and every page has a URL and a time."""
        for name, place in self.container.members.items():
            if not (name.startswith("pages/") and name.endswith(".jsonl")):
                continue
            for number, line in enumerate(page_lines(place), 1):
                if not line.strip():
                    continue
                try:
                    page = json.loads(line)
                except (ValueError, RecursionError):
                    self.found("pages", name, -1, f"line {number} is not JSON")
                    continue
                if number == 1:
                    if not isinstance(page, dict) or page.get("format") != "json-pages-1.0":
                        self.found("pages", name, -1, "line 1 is not a header of format json-pages-1.0")
                elif not isinstance(page, dict) or not page.get("url") or not page.get("ts"):
                    self.found("pages", name, -1, f"line {number} has no url or no ts")

    # -- the records

    def records(self) -> IndexBuild:
        """Check the form, length and digests of every record, and that partners exist.

        Partners are a revisit's original and a response's request.
        """
        parts: list[list[ScanResult]] = []
        for name in sorted(self.container.archives):
            try:
                parts.append(self.archive(name))
            except NotSeekable:
                self.found(
                    "record",
                    name,
                    -1,
                    "its records are not packed one by one; it is used from an unpacked copy, and `stillweb import` makes a sound one",
                )
                self.container.make_plain(name)
                parts.append(self.archive(name))
        before = sum(len(part.notes) for of_file in parts for part in of_file)
        built = build.assemble(parts)
        for note in built.notes[before:]:
            name, _, rest = note.partition(": offset ")
            offset, _, message = rest.partition(": ")
            self.found("revisit", name, int(offset), message)
        return built

    def archive(self, name: str) -> list[ScanResult]:
        def inspect(item: ScannedRecord | Damage) -> None:
            if isinstance(item, Damage):
                self.found("record", name, item.offset, item.message)
                return
            if item.note:
                self.found("record", name, item.offset, item.note)
            self.record(name, item)

        found = find(
            self.container.archives[name],
            name,
            progress=self.advance,
            inspect=inspect,
            hashes=_declared_digests,
        )
        found.answers += settle([(found.questions, found.unasked)], found.unpaired)
        found.questions, found.unasked = [], []
        for answer in found.answers:
            if answer.lacks_request:
                self.found("pair", name, answer.offset, "the request of this response is missing")
            if answer.fault:
                self.found("record", name, answer.offset, answer.fault)
        return [add_scan(found, ScanResult(name))]

    def record(self, name: str, item: ScannedRecord) -> None:
        kind = item.kind
        if self.read is not None:
            self.read.add((name, item.offset, kind))
        if not kind:
            self.found("record", name, item.offset, "has no WARC-Type")
        record_id = item.fields.get("warc-record-id")
        if record_id:
            first = self.ids.setdefault(record_id, (name, item.offset))
            if first != (name, item.offset):
                self.found(
                    "record", name, item.offset, f"has the same id as the record at {first[0]}: {first[1]}"
                )
        if kind in ("response", "request", "revisit", "resource", "conversion") and not item.uri:
            self.found("record", name, item.offset, "has no WARC-Target-URI")
        if not item.fields.get("warc-date"):
            self.found("record", name, item.offset, "has no WARC-Date")
        for part in ("block", "payload"):
            declared = item.fields.get(f"warc-{part}-digest")
            if declared is None:
                if _OURS in item.fields:
                    self.found("digest", name, item.offset, f"has no {part} digest")
                continue
            algorithm = algorithm_of(declared)
            value = (item.hashes or {}).get(f"{part}:{algorithm}")
            if value is None or (kind == "revisit" and part == "payload"):
                continue
            if not same_digest(declared, value) and not (
                part == "payload" and _same_dechunked(item, declared)
            ):
                self.found("digest", name, item.offset, f"the {part} digest is wrong")

    def second_reading(self, left: set[tuple[str, int, str]]) -> None:
        """Let warcio read all records: they must be those that were found here, with digests that it finds right."""
        iterator = require("warcio.archiveiterator").ArchiveIterator
        failed = require("warcio.exceptions").ArchiveLoadFailed
        for name, place in self.container.archives.items():
            records = iterator(Reader(place), check_digests=True)
            try:
                for record in records:
                    at = records.get_record_offset()
                    records.read_to_end()
                    if (name, at, record.rec_type) not in left:
                        self.found("warcio", name, at, f"warcio reads a record of the type {record.rec_type}")
                    left.discard((name, at, record.rec_type))
                    for problem in record.digest_checker.problems:
                        self.found("warcio", name, at, problem)
            except failed as error:
                self.found("warcio", name, -1, f"warcio can't read it: {error}")
        for name, at, kind in sorted(left):
            self.found("warcio", name, at, f"warcio reads no record of the type {kind}")

    # -- the index

    def index(self, built: IndexBuild) -> None:
        """Check that index lines are sorted, match their records, and none is missing."""
        if INDEX in self.container.members and self.container.own:
            if build.is_index_current(self.container):
                self.own_index(built)
            elif not build.is_of_another_version(self.container):  # another version's index is never read
                self.found("index", INDEX, -1, "does not fit the archives; rebuild it: stillweb index")
            return
        for name in sorted(self.container.members):
            if name.startswith("indexes/") and name.endswith((".cdxj", ".cdxj.gz", ".cdx.gz", ".cdx")):
                self.foreign_index(name)

    def own_index(self, built: IndexBuild) -> None:
        place = self.container.members[INDEX]
        crc = 0
        for piece in chunks(place):
            crc = zlib.crc32(piece, crc)
        if crc != self.container.own["index"].get("crc32"):
            self.found("index", INDEX, -1, "has another checksum than datapackage.json says")
        lines = place.read(0, place.size).split(b"\n")
        if lines.pop() != b"":
            self.found("index", INDEX, place.size, "ends within a line")
        before = b""
        wanted = {_key(line): line for line in built.lines}
        for number, line in enumerate(lines, 1):
            if line <= before:
                self.found("index", INDEX, -1, f"line {number} is out of order")
            before = line
            try:
                key = _key(line)
            except (ValueError, KeyError, TypeError):
                self.found("index", INDEX, -1, f"line {number} can't be read")
                continue
            right = wanted.pop(key, None)
            if right is None:
                self.found("index", INDEX, -1, f"line {number}: no such record at {key[0]}: {key[1]}")
            elif right != line:
                self.found(
                    "index", INDEX, -1, f"line {number} differs from its record in {_difference(line, right)}"
                )
        for name, offset in wanted:
            self.found("index", name, int(offset), "the record is not in the index")
        steps = self.container.member(STEPS) if "steps" in self.container.own["index"] else None
        if steps is not None and steps != steps_of(place):
            self.found("index", STEPS, -1, "is not made from this index; rebuild it: stillweb index")

    def foreign_index(self, name: str) -> None:
        place = self.container.members[name]
        try:
            self.foreign_lines(name, _plain_lines(place))
        except (TooLarge, EncodingProblem) as error:
            self.found("index", name, -1, f"can't be read to its end: {error}")

    def foreign_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Check that each line of a foreign index names an existing record.

        Raises what reading the lines raises.
        """
        for number, line in enumerate(lines, 1):
            if self.counts["index", name] >= MOST:
                message = f"line {number} and those after it are not checked"
                self.problems.append(Problem("index", name, -1, message))
                return
            if line.startswith((b"!meta", b" CDX")) or not line.strip():
                continue
            try:
                _, _, entry = parse_line(line)
                file, offset = str(entry["filename"]), int(entry["offset"])
                length = int(entry.get("length", 0))
            except (ValueError, KeyError, TypeError):
                self.found("index", name, -1, f"line {number} can't be read")
                continue
            archive = self.container.archives.get(file)
            if archive is None:
                self.found("index", name, -1, f"line {number}: {file} is not in the snapshot")
                continue
            try:
                fields, _, _ = open_block(archive, offset, length or 1 << 20)
            except DamagedInput as error:
                self.found("index", name, -1, f"line {number}: {error}")
                continue
            uri = warc.clean_uri(fields.get("warc-target-uri", ""))
            if uri != warc.clean_uri(str(entry.get("target", entry.get("url", "")))):
                self.found("index", name, -1, f"line {number}: the record at {file}: {offset} is of {uri}")

    def identity(self, built: IndexBuild) -> None:
        """Check that the id is that of the records, rules and profile."""
        own = self.container.own
        if not own:
            return
        profile = own.get("profile")
        if (built.profile.to_json() if built.profile else None) != profile:
            self.found("id", PACKAGE, -1, "the profile is not that of the records")
        made = Profile.from_json(profile) if isinstance(profile, dict) else None
        if own.get("id") != snapshot_id(built.lines, made, rules_from([own.get("rules")]).to_json()):
            self.found("id", PACKAGE, -1, "the snapshot's id is not that of its records, rules and profile")
        if sum(1 for _ in identities(built.lines)) != len(built.lines):
            self.found("id", INDEX, -1, "a record has no identity")

    def texts(self, built: IndexBuild) -> None:
        """Check that frozen texts, views, failures and import reports can be read."""
        from stillweb.snapshots.snapshot import frozen_text

        archives = Archives(self.container.archives)
        for line in built.lines:
            if line.startswith(b"urn:stillweb:import "):
                entry = parse_line(line)[2]
                try:
                    self.converted(entry, archives)
                except (*BROKEN, AttributeError, RecursionError, DamagedInput) as error:
                    self.found("record", entry["filename"], int(entry["offset"]), f"can't be read: {error}")
            if line.startswith((b"urn:metadata:", failures.START.encode())):
                self.metadata(*parse_line(line)[1:], archives)
            if not line.startswith(b"urn:conversion:"):
                continue
            entry = parse_line(line)[2]
            place = entry["filename"], int(entry["offset"]), int(entry["length"])
            try:
                frozen_text(archives.record(*place))
            except (*BROKEN, AttributeError, RecursionError, DamagedInput) as error:
                self.found("text", place[0], place[1], str(error))

    def metadata(self, timestamp: str, entry: dict[str, Any], archives: Archives) -> None:
        """Check that a record of a view or a failed request can be read."""
        file, offset = entry["filename"], int(entry["offset"])
        try:
            if entry["mime"] == VIEW_MEDIA:
                view_from_json(json.loads(archives.entry(file, entry).block))
            elif entry["mime"] == failures.MEDIA:
                failures.failure_of(archives.entry(file, entry).block, timestamp, file)
        except (ValueError, RecursionError, DamagedInput) as error:
            self.found("record", file, offset, f"can't be read: {error}")

    def converted(self, entry: dict[str, Any], archives: Archives) -> None:
        """Report what could not be read from the HAR or flow file that the snapshot was converted from."""
        record = archives.entry(entry["filename"], entry)
        for note in json.loads(record.block).get("damaged", ()):
            file, _, message = note.partition(": offset ")
            offset, _, message = message.partition(": ")
            self.found("record", file, int(offset), message)


def _size_and_hash(resource: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the size of a resource, or None, and its hash with its algorithm, or "".

    Packages of WACZ 1.0.0 have both under `stats`, as Frictionless 4 writes them.
    """
    stats = resource.get("stats")
    if not isinstance(stats, Mapping):
        return resource.get("bytes"), str(resource.get("hash", ""))
    declared = stats.get("hash")
    return stats.get("bytes"), f"{resource.get('hashing', 'md5')}:{declared}" if declared else ""


def _key(line: bytes) -> tuple[str, str]:
    entry = parse_line(line)[2]
    return entry["filename"], entry["offset"]


def _difference(line: bytes, right: bytes) -> str:
    """Return the names of the members in which two lines differ."""
    (key, time, entry), (right_key, right_time, right_entry) = parse_line(line), parse_line(right)
    names = [n for n in {**right_entry, **entry} if entry.get(n) != right_entry.get(n)]
    names += ["urlkey"] * (key != right_key) + ["timestamp"] * (time != right_time)
    return ", ".join(names) or "its form"


# -- parts of the checks


def _plain_lines(place: ByteSource) -> Iterator[bytes]:
    """Yield the lines of a foreign index: CDXJ, plain or as ZipNum (concatenated gzip members).

    Raises TooLarge, and EncodingProblem if it is damaged.
    """
    pieces = chunks(place)
    if place.read(0, 2) == warc.GZIP_MAGIC:
        most = decompression.MOST
        pieces = bounded_parts(
            decode_pieces(pieces, "gzip"), most, lambda: TooLarge(too_large(place.name, most))
        )
    return lines_in(pieces, LONGEST)


def _faults_of(whole: ByteSource) -> Iterator[tuple[str, int, str]]:
    """Yield name, offset and message of a zip's entries that are not stored, intact (CRC) and inside the snapshot."""
    with zipfile.ZipFile(Reader(whole)) as listing:
        for entry in listing.infolist():
            name, at = entry.filename, entry.header_offset
            if name.startswith("/") or ".." in name.split("/") or "\\" in name:
                yield name, at, "the name leads out of the snapshot"
            if entry.compress_type != zipfile.ZIP_STORED and name.startswith("archive/"):
                yield name, at, "is compressed; archives must be stored to be read in place"
            if entry.file_size > largest(entry):
                continue  # it is left out, which is told
            try:
                with listing.open(entry) as data:
                    while data.read(1 << 20):
                        pass
            except BAD_ZIP as error:
                yield name, at, str(error)


def _declared_digests(kind: str, fields: warc.Fields) -> tuple[tuple[str, str], ...]:
    """Return the digests to compute for a record: its declared ones, or else its payload's."""
    wanted = [
        (part, algorithm)
        for part in ("block", "payload")
        if (algorithm := algorithm_of(fields.get(f"warc-{part}-digest", "")))
    ]
    return (*wanted, *missing_digests(kind, fields))


def _same_dechunked(item: ScannedRecord, declared: str) -> bool:
    """Return True if `declared` is the digest of the body without its chunk headers.

    Archives that keep chunk headers in the body declare either digest.
    """
    if len(item.start) < item.size or item.kind not in ("response", "request"):
        return False
    _, headers, start = messages.split(item.start)
    if not messages.is_chunked(headers):
        return False
    body = dechunk(item.start[start:])
    return same_digest(declared, hashlib.new(algorithm_of(declared), body, usedforsecurity=False))
