"""Recording of URLs as jobs on a Ray cluster: each job writes a snapshot of its own, all are joined to one.

The parts lie beside the snapshot, on storage that all nodes share, and take their place when they are whole: of a
lost worker nothing is used. They are joined in the order of the jobs, so that neither the number of workers nor
their speed shows in the result. An interrupted recording goes on with the jobs that have no part.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stillweb.proxy.browser.capture_view import Fetcher, plan
from stillweb.proxy.browser.options import BrowserOptions
from stillweb.proxy.browser.steps import Flow
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots._os.cluster import run_on_cluster
from stillweb.snapshots._os.locking import locked_directory
from stillweb.snapshots.contents.provenance import Provenance, provenance_now
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.assembling import Assembly
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.secrets.keystore import LEARNED, salt_of, snapshot_key, state_dir
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.writer import Writer

SALT = "stillweb/redaction.json"
PLAN, RESULT = "plan.json", "result.json"
RECORDS_OF_JOB = 1 << 32  # distance between the first serial numbers of two jobs


@dataclass(frozen=True, slots=True)
class RecordJob:
    """Recording of a URL with its steps into a part in `folder`. `key` makes the pseudonyms of all parts."""

    number: int
    folder: Path
    flow: Flow
    options: BrowserOptions = field(repr=False)
    profile: Profile
    pdfs: bool
    provenance: Provenance
    recorder: Mapping[str, Any]  # arguments of Recorder
    key: bytes = field(repr=False)

    @property
    def path(self) -> Path:
        """The directory of the finished part."""
        return self.folder / f"{self.number:06d}"


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job, without secrets: a row of the table, failures as (URL, reason), and counts."""

    number: int
    row: dict[str, Any]
    failures: list[tuple[str, str]]
    unanswered: int
    captures: int
    bytes: int


def record_on_cluster(
    urls: Sequence[str],
    flows: Sequence[Flow],
    out: Path,
    options: BrowserOptions,
    *,
    pdfs: bool = False,
    parallel: int | None = None,
    provenance: Provenance | None = None,
    recorder: Mapping[str, Any] | None = None,
    progress: Callable[[str, str], None] | None = None,
) -> list[JobResult]:
    """Record URLs with their steps into a new snapshot directory; return the results in the order of the jobs.

    `recorder` holds arguments of Recorder; files that it names must be where all nodes see them. Raises UsageError
    if `out` exists, or holds parts of another recording, and what a job raised; finished parts then stay.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(
            f"{out}: exists. With --engine ray record into a new directory, and open it as a layer over the first"
        )
    folder = Path(os.path.abspath(out.with_name(f".{out.name}.parts")))
    folder.mkdir(parents=True, exist_ok=True)
    with locked_directory(folder, f"another process is recording into {out}; wait until it has ended"):
        jobs = _jobs(
            plan(urls, flows),
            folder,
            options,
            pdfs,
            provenance or provenance_now("browser", {}),
            recorder or {},
        )
        found: list[JobResult] = []

        def done(result: JobResult) -> None:
            found.append(result)
            if progress is not None:
                progress(result.row["url"], f"{len(found)} of {len(jobs)}, {result.row['result']}")

        asyncio.run(run_on_cluster(record_part, ((job,) for job in jobs), parallel, done))
        _join([job.path for job in jobs], out, jobs[0].profile)
        shutil.rmtree(folder)
    return sorted(found, key=lambda result: result.number)


def _jobs(
    flows: Sequence[Flow],
    folder: Path,
    options: BrowserOptions,
    pdfs: bool,
    provenance: Provenance,
    recorder: Mapping[str, Any],
) -> list[RecordJob]:
    """Return the jobs, with the profile of the parts that are there. Raises UsageError for another plan's parts."""
    key = snapshot_key(salt_of(folder), state_dir())
    asked = [[flow.url, list(flow.steps), sorted(flow.files)] for flow in flows]
    text = json.dumps([asked, dict(options.settings), pdfs], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode()).hexdigest()
    try:
        known = json.loads((folder / PLAN).read_text())
    except FileNotFoundError:
        profile = options.stored_profile(options.profile(None, folder), Redactor(key))
        temporary = folder / f".{PLAN}"
        temporary.write_text(
            json.dumps({"asked": digest, "profile": profile.to_json(), "provenance": asdict(provenance)})
        )
        os.replace(temporary, folder / PLAN)
    else:
        if known["asked"] != digest:
            raise UsageError(f"{folder}: holds parts of another recording. Delete it to begin anew")
        profile, provenance = Profile.from_json(known["profile"]), Provenance(**known["provenance"])
    return [
        RecordJob(number, folder, flow, options, profile, pdfs, provenance, recorder, key)
        for number, flow in enumerate(flows)
    ]


def record_part(job: RecordJob) -> JobResult:
    """Record one URL in this process into its part, unless the part is there; return the result."""
    if not job.path.is_dir():
        made = job.folder / f".{job.number:06d}-{uuid.uuid4().hex}"
        try:
            result = _record(job, made)
            (made / RESULT).write_text(json.dumps(result))
            try:
                os.rename(made, job.path)
            except OSError:
                if not job.path.is_dir():  # else a worker that was taken for lost has made it
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    found = json.loads((job.path / RESULT).read_text())
    return JobResult(**found | {"failures": [(url, why) for url, why in found["failures"]]})


def _record(job: RecordJob, path: Path) -> dict[str, Any]:
    (path / SALT).parent.mkdir(parents=True)
    shutil.copy(job.folder / SALT, path / SALT)
    (path / "archive").mkdir()  # now it is a snapshot, not a directory of something else
    redactor = Redactor.for_snapshot(path, path, keep=True, key=job.key)
    job.options.stored_profile(job.profile, redactor)  # learns the secrets of a storage state
    serial = job.number * RECORDS_OF_JOB
    with Writer.open(path, profile=job.profile, provenance=job.provenance, serial=serial) as writer:
        recorder = Recorder(writer, redactor=redactor, **job.recorder)
        with recorder:
            fetcher = Fetcher(recorder, writer, job.profile, launch=job.options.host, first=job.number + 1)
            result = fetcher.fetch([], [job.flow], job.pdfs)[0]
    return {
        "number": job.number, "row": result.row(), "failures": list(recorder.failures),
        "unanswered": recorder.unanswered, "captures": recorder.stats.captures, "bytes": recorder.stats.bytes,
    }  # fmt: skip


def _join(parts: Sequence[Path], out: Path, profile: Profile) -> None:
    """Write the parts, in this order, as one snapshot directory, with all secrets that they learned."""
    with Assembly(out) as new:
        new.join(file for part in parts for file in sorted((part / "archive").glob("*.warc.gz")))
        (new.root / SALT).parent.mkdir(exist_ok=True)
        shutil.copy(parts[0] / SALT, new.root / SALT)
        learned = b"".join((part / LEARNED).read_bytes() for part in parts if (part / LEARNED).exists())
        if learned:
            (new.root / LEARNED).touch(0o600)
            (new.root / LEARNED).write_bytes(learned)
        new.finish(None, profile)
