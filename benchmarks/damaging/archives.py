"""Archives in each form, harmed before they are opened, after, or between being indexed and being opened."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import zstandard

from benchmarks.damaging.asking import Known, Question, Told, ask, learn, wrongs
from benchmarks.damaging.bounded import Found
from benchmarks.damaging.harms import HARMS, Harmed, Range
from benchmarks.damaging.recorded import FORMS, GUARDED, LARGE, record, small_blocks
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots._os.random_access import ByteSource, FileSource
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.opening import open_container
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.scan import ScannedRecord, scan

WHEN = ("before", "indexed", "opened", "asked")  # when a file is harmed
OWN = frozenset({"directory", "wacz", LARGE})
IMPORTED = frozenset({"HAR", "flows"})
WHOLE_RECORDS = frozenset({"records swapped", "record removed", "record doubled"})


# Files that are exchanged for those of another recording of the same site, whose bodies have the same sizes.
OF_OTHERS: dict[str, tuple[str, ...]] = {
    "archive of others": ("archive/data-00000.warc.gz",),
    "index of others": ("indexes/index.cdxj",),
    "pages of others": ("pages/pages.jsonl",),
    "package of others": ("datapackage.json", "datapackage-digest.json"),
    "all but the archives of others": ("indexes/index.cdxj", "datapackage.json", "datapackage-digest.json"),
}
SWAPPED = "two archives swapped"


@dataclass(slots=True)
class Master:
    """A form of the recording, undamaged."""

    form: str
    folder: Path
    path: Path
    known: Known
    spans: dict[str, list[Range]] = field(default_factory=dict)  # records by file, as named from the folder
    files: tuple[str, ...] = ()
    others: Path = Path()  # another recording, in the same form


@dataclass(frozen=True, slots=True)
class Case:
    """One harm to one file of one form."""

    form: str
    file: str
    harm: str
    when: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.form}: {self.file}: {self.harm}, {self.when}, seed {self.seed}"


def masters(folder: Path, forms: list[str]) -> dict[str, Master]:
    """The recording in each form."""
    recorded = record(folder / "recorded")
    made = {}
    for form in forms:
        place = folder / form
        place.mkdir()
        with small_blocks(form):
            path = FORMS[form](recorded, place)
        if form == "wacz":
            shutil.rmtree(place / "site")
        master = made[form] = Master(form, place, path, learn(path))
        if form in IMPORTED:
            spans = _lines(path) if form == "HAR" else _flows(path)
            master.spans = {path.name: spans}
            master.known.questions = [
                replace(
                    q, stands_on=((str(path), *spans[int(q.name.split()[0])]),) if q.name[0].isdigit() else ()
                )
                for q in master.known.questions
            ]
        else:
            container = open_container(path)
            for archive in container.archives.values():
                assert isinstance(archive, FileSource)
                spans = [(archive.base + a, archive.base + b) for a, b in _spans(archive)]
                master.spans.setdefault(archive.path.relative_to(place).as_posix(), []).extend(spans)
            container.close()
        files = (p for p in sorted(place.rglob("*")) if p.is_file() and not p.name.startswith("."))
        if form == "directory":
            master.others = record(folder / "others", "!")
        master.files = tuple(p.relative_to(place).as_posix() for p in files)
    return made


def _spans(place: ByteSource) -> list[Range]:
    return [(i.offset, i.offset + i.length) for i in scan(place) if isinstance(i, ScannedRecord)]


def _lines(path: Path) -> list[Range]:
    at, found = 0, []
    for line in path.read_bytes().splitlines(keepends=True):
        found.append((at, at + len(line)))
        at += len(line)
    return found[1:-1]


def _flows(path: Path) -> list[Range]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        colon = data.index(b":", at)
        stop = colon + int(data[at:colon]) + 2
        found.append((at, stop))
        at = stop
    return found


def cases(made: dict[str, Master], seeds: int) -> Iterator[Case]:
    """All of them: archives by all harms, other files by some."""
    for seed in range(seeds):
        for form, master in made.items():
            for harm in HARMS:
                for when in WHEN:
                    file = random.Random(f"{seed} {form} {harm} {when}").choice(sorted(master.spans))
                    yield Case(form, file, harm, when, seed)
            if form == "directory":
                for number, harm in enumerate((*OF_OTHERS, SWAPPED)):
                    for when in WHEN if seed == 0 else (WHEN[(seed + number) % 4],):
                        yield Case(form, "site", harm, when, seed)
            for file in master.files:
                if file not in master.spans:
                    for harm in HARMS:
                        yield Case(form, file, harm, WHEN[(seed + len(harm)) % 4], seed)


def try_case(case: Case, made: dict[str, Master]) -> Found:
    """What is wrong after a harm."""
    master = made[case.form]
    with tempfile.TemporaryDirectory(prefix="stillweb-damage-") as folder:
        os.environ["STILLWEB_CACHE"] = f"{folder}/cache"
        copy = Path(folder) / "copy"
        shutil.copytree(master.folder, copy)
        with small_blocks(case.form):
            return dict(_tried(case, master, copy))


def _tried(case: Case, master: Master, copy: Path) -> Counter[str]:
    path = copy / master.path.relative_to(master.folder)
    known = replace_places(master.known, str(master.folder), str(copy))
    changes = list(_changes(case, master, copy))
    changed = any(before != harmed.data for _, before, harmed in changes)
    if case.when in ("before", "indexed"):
        if case.when == "indexed":
            with mock.patch("stillweb.snapshots.index.build.SMALL", 0):
                Snapshot.open(path).close()
        for file, _, harmed in changes:
            _write(file, harmed.data, keep_time=case.when == "indexed")
        try:
            with mock.patch("stillweb.snapshots.index.build.SMALL", 0 if case.when == "indexed" else 1 << 22):
                snapshot = Snapshot.open(path)
        except DamagedInput as error:
            return _refused(case, str(path), str(error))
        with snapshot:
            told = ask(snapshot, known.questions)
    else:
        with Snapshot.open(path) as snapshot:
            answerer = Answerer(snapshot, Ledger())
            if case.when == "asked":
                told = ask(snapshot, known.questions, answerer)
                answerer = Answerer(snapshot, Ledger())
            for file, _, harmed in changes:
                _write(file, harmed.data)
            told = ask(snapshot, known.questions, answerer)
    must, tellable = {q.name for q in known.questions}, {q.name for q in known.questions}
    for file, before, harmed in changes:
        these, those = _expected(case, known, str(file), before, harmed)
        must, tellable = must & these, tellable & those
    found = wrongs(known, told, must, tellable)
    if changed:
        found += _verified(case, path, known, told)
    return found


def _changes(case: Case, master: Master, copy: Path) -> Iterator[tuple[Path, bytes, Harmed]]:
    """The files that are changed, what is in them, and what is put there."""
    chance = random.Random(case.name)
    if case.harm == SWAPPED:
        one, two = chance.sample(sorted(master.spans), 2)
        for file, other in ((one, two), (two, one)):
            before, after = ((master.folder / name).read_bytes() for name in (file, other))
            yield copy / file, before, Harmed(after)
    elif case.harm in OF_OTHERS:
        for name in OF_OTHERS[case.harm]:
            before, after = ((folder / name).read_bytes() for folder in (master.path, master.others))
            yield copy / case.file / name, before, Harmed(after, [(0, len(before))])
    else:
        before = (copy / case.file).read_bytes()
        harm = HARMS[case.harm]
        yield copy / case.file, before, harm(before, master.spans.get(case.file, []), chance)


def replace_places(known: Known, old: str, new: str) -> Known:
    """The same of a copy."""
    moved = [
        replace(q, stands_on=tuple((name.replace(old, new, 1), a, b) for name, a, b in q.stands_on))
        for q in known.questions
    ]
    return Known(moved, known.told, known.of_site)


def _write(file: Path, data: bytes, *, keep_time: bool = False) -> None:
    """Into the file that is there, as a disk does."""
    status = file.stat()
    with file.open("r+b") as out:
        out.write(data)
        out.truncate()
    if keep_time:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _refused(case: Case, path: str, said: str) -> Counter[str]:
    if path not in said:
        return Counter({f"no file is named: {said}": 1})
    if case.form == "wacz" or case.form in IMPORTED:
        return Counter({"(refused whole)": 1})
    return Counter({f"lost: all: {said}": 1})


def _expected(
    case: Case, known: Known, file: str, before: bytes, harmed: Harmed
) -> tuple[set[str], set[str]]:
    """The questions that must be answered as before, and those that damage can be told of."""
    after = harmed.data
    by_offset = case.when in ("opened", "asked") or (
        len(after) == len(before) and case.form in OWN | IMPORTED
    )
    if case.when == "indexed" and len(after) == len(before):
        by_offset = True
    archive = any(file == name for q in known.questions for name, _, _ in q.stands_on)
    if case.harm == "archive of others" and not by_offset:
        return set(), set()  # sound, and indexed anew: only `verify` can tell
    if case.form in IMPORTED and case.when != "before" and by_offset:  # what was made of it lies elsewhere
        everything = {q.name for q in known.questions}
        return everything, everything
    must, tellable = set(), set()
    pairs = enumerate(zip(before, after, strict=False))
    first = next((at for at, (one, two) in pairs if one != two), min(len(before), len(after)))
    margin = 0 if case.form in GUARDED else 8
    for question in known.questions:
        mine = [(a, b) for name, a, b in question.stands_on if name == file]
        if by_offset:
            whole = all(before[a:b] == after[a:b] for a, b in mine)
        else:
            whole = not any(a - margin < y and x < b + margin for a, b in mine for x, y in harmed.touched)
        if case.form in IMPORTED and mine and mine[0][1] > first:
            whole = False  # a flow is found by the lengths of those before it, an entry behind them
        if case.form == LARGE and case.file.startswith("site/indexes/"):
            whole = False  # a damaged block is told by what stands on it
        if whole and (question.request is not None or not archive):
            must.add(question.name)
        # what others wrote may be whole without a record
        if case.harm in WHOLE_RECORDS and not (whole or by_offset or case.form in OWN):
            continue
        if (whole or case.form in GUARDED) or (
            case.form not in IMPORTED and all(_same_head(before[a:b], after[a:]) for a, b in mine)
        ):
            tellable.add(question.name)
    hosts = {_host(q) for q in known.questions if q.name not in must}  # one answer of a site tells of others
    return {q.name for q in known.questions if q.name in must and _host(q) not in hosts}, tellable


def _host(question: Question) -> str:
    return question.request.url.split("/")[2] if question.request else question.name


def _same_head(before: bytes, after: bytes) -> bool:
    """Whether the head of a plain record, or of a frame, is what it was: only what is behind it has a digest."""
    one, two = _head(before), _head(after)
    return one == two


def _head(stored: bytes) -> bytes:
    if stored[:4] == warc.ZSTD_MAGIC:
        try:
            reader = zstandard.ZstdDecompressor().stream_reader(stored)
            data = reader.read(1 << 16)
        except zstandard.ZstdError:
            return b""
        return data.partition(b"\r\n\r\n")[0]
    return stored.partition(b"\r\n\r\n")[0]


def _verified(case: Case, path: Path, known: Known, told: dict[str, Told]) -> Counter[str]:
    """Whether `verify` tells what happened."""
    problems = verify(path)
    if problems:
        return Counter()
    off = [n for n, now in told.items() if now.how == "damaged" or now.what != known.told[n].what]
    if case.form in OWN or (off and case.form in GUARDED and case.harm not in WHOLE_RECORDS):
        return Counter({f"verify calls it sound: {off[:2]}": 1})
    if (
        case.harm not in WHOLE_RECORDS
        and case.form not in IMPORTED
        and any(now.how == "damaged" for now in told.values())
    ):
        return Counter({f"verify calls it sound: {off[:2]}": 1})
    return Counter()
