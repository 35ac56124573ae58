"""Extraction of all texts of a snapshot at sealing: pages, PDFs and views, on all cores, in a fixed order.

Bodies are read in this process and extracted in worker processes, a bounded number ahead, so that memory stays flat.
Records are written in the order of the index, whichever worker is quicker, and views last.

A URL's first successful GET is frozen under the URL itself. If an earlier one is imported after sealing, the URL keeps
its text. Other answers of the same URL, and answers to other methods, are frozen under
`URL#text=<16 hex digits of the payload digest>`, a view under `URL#view=<id>`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol, Self, TypeVar

from stillweb.snapshots._os.processes import Pool, Worker, WorkerDied
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.http.spans import is_whole
from stillweb.snapshots.text.text import HTML, READ, FrozenText, extract, extract_html
from stillweb.snapshots.view import View

IN_PROCESS = 24  # pages below which the start of workers takes longer than the work
CHUNK_BYTES = 1 << 20  # bytes of jobs sent to a worker together
CHUNK_JOBS = 32  # jobs sent to a worker together, at most
AHEAD = 3  # chunks waiting for each worker
NO_TEXT = "none"  # `extractor` of a text that could not be extracted
T = TypeVar("T")
UNTOLD = ("", "application/octet-stream", "binary/octet-stream", "application/download", "unk")


class Source(Protocol):
    """Snapshot methods that freezing needs."""

    def captures(self) -> Iterator[Capture]: ...
    def read_start(self, capture: Capture, size: int) -> Response: ...
    def views(self) -> list[View]: ...
    def resource(self, kind: str, address: str) -> bytes | None: ...
    def text(self, address: str) -> FrozenText | None: ...


class Workers(Protocol):
    """Workers that functions are called in, as `stillweb.snapshots._os.processes.Pool`. A context manager."""

    size: int

    def submit(self, function: Callable[[Any], T], argument: Any) -> Future[T]:
        """Return the future of `function(argument)`; WorkerDied if the worker ended before it answered."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Sink(Protocol):
    """Writer method that freezing needs."""

    def conversion(
        self,
        target_uri: str,
        text: str,
        *,
        refers_to: Capture | None,
        extractor: str,
        version: str,
        options: dict[str, Any],
        timestamp: str,
    ) -> None: ...


@dataclass(slots=True)
class FreezeReport:
    """Counts of frozen texts, by extractor, and pairs of address and warning."""

    texts: int = 0
    extractors: dict[str, int] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)  # address of a page without text, and reason


@dataclass(frozen=True, slots=True)
class Job:
    """A text to extract: from a capture's answer, or from a view's DOM (`view` set, `capture` None)."""

    address: str
    capture: Capture | None = None
    view: View | None = None


def text_address(capture: Capture) -> str:
    """Return the text address of an answer that is not the first one of its URL."""
    return f"{capture.url}#text={capture.digest.rpartition(':')[2][:16].lower()}"


def view_text_address(view: View) -> str:
    """Return the text address of a view; it differs from the page's address even if the view has no steps."""
    return f"{view.url.partition('#')[0]}#view={view.id}"


def jobs(source: Source) -> Iterator[Job]:
    """Yield a job for each text of a snapshot, in the order of the index; each address occurs once.

    Memory holds the addresses, and the captures of one index key.
    """
    found: set[str] = set()
    for _, alike in groupby(source.captures(), key=attrgetter("urlkey")):
        candidates = [c for c in alike if _may_have_text(c) and (c.status != 206 or _all_of_it(source, c))]
        ordered = sorted(candidates, key=lambda c: (c.url, c.timestamp, c.begin, c.place))
        frozen = _frozen_under_url(source, ordered)
        digests: set[tuple[str, str, bool]] = set()
        for capture in ordered:
            get = capture.method == "GET"
            if (capture.url, capture.digest, get) in digests:
                continue
            digests.add((capture.url, capture.digest, get))
            first = get and frozen.get(capture.url, capture.digest) == capture.digest
            address = capture.url if first and capture.url not in found else text_address(capture)
            if address not in found:
                found.add(address)
                yield Job(address, capture)
    for view in source.views():
        address = view_text_address(view)
        if address not in found:
            found.add(address)
            yield Job(address, None, view)


def _frozen_under_url(source: Source, captures: Sequence[Capture]) -> dict[str, str]:
    """Map URLs with several GET answers to the digest of the answer whose text is already frozen under the URL."""
    answers: dict[str, set[str]] = {}
    for capture in captures:
        if capture.method == "GET":
            answers.setdefault(capture.url, set()).add(capture.digest)
    found: dict[str, str] = {}
    for url, digests in answers.items():
        text = source.text(url) if len(digests) > 1 else None
        if text is not None and text.meta.get("digest") in digests:
            found[url] = text.meta["digest"]
    return found


def _may_have_text(capture: Capture) -> bool:
    if not 200 <= capture.status < 300 or capture.status in (204, 205) or not capture.length:
        return False
    mime = capture.mime.partition(";")[0].strip().lower()
    if mime in (HTML, "application/xhtml+xml", "application/pdf"):
        return capture.method != "HEAD"
    return mime in UNTOLD and capture.method == "GET"


def _all_of_it(source: Source, capture: Capture) -> bool:
    """Return True if a partial answer (206) holds the whole file."""
    answer = source.read_start(capture, 0)
    return is_whole(answer.header("content-range"), answer.header("content-length"))


def freeze(
    source: Source,
    sink: Sink,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    pool: Callable[[], Workers] | None = None,
) -> FreezeReport:
    """Extract every text of `source` and write it to `sink` as a conversion record.

    `workers` defaults to the number of cores; 1 works in this process. `pool` makes other workers than processes of
    this machine. Texts that are already frozen are kept.
    """
    count = sum(1 for _ in jobs(source))
    kept = 0

    def todo() -> Iterator[Job]:
        nonlocal kept
        for job in jobs(source):
            if source.text(job.address) is None:
                yield job
            else:
                kept += 1

    report = FreezeReport()
    for done, (job, text) in enumerate(extract_all(source, todo(), count, workers=workers, pool=pool), 1):
        if text is not None:
            sink.conversion(
                text.address,
                text.markdown,
                refers_to=job.capture,
                extractor=text.extractor,
                version=text.version,
                options=text.to_record(),
                timestamp=job.view.timestamp if job.view else "",
            )
            if text.extractor == NO_TEXT:
                report.missing += [(text.address, warning) for warning in text.warnings]
            else:
                report.texts += 1
                report.warnings += [(text.address, warning) for warning in text.warnings]
            report.extractors[text.extractor] = report.extractors.get(text.extractor, 0) + 1
        if progress is not None:
            progress(done + kept, count)
    return report


# address, capture, response, DOM and meta of a job, as sent to a worker
Sent = tuple[str, Capture | None, Response | None, str, dict[str, Any]]


def extract_all(
    source: Source,
    todo: Iterable[Job],
    count: int,
    *,
    workers: int | None = None,
    pool: Callable[[], Workers] | None = None,
) -> Iterator[tuple[Job, FrozenText | None]]:
    """Yield each job with its text, in the given order; None if the bytes are neither HTML nor PDF.

    `count` is the number of jobs, or a little more. `pool` makes the workers, in place of so many processes of this machine.
    """
    workers = workers or os.cpu_count() or 1
    if pool is None and (workers == 1 or count < IN_PROCESS):
        for job in todo:
            yield job, work(_load(source, job))
        return
    waiting: deque[tuple[list[Job], list[Sent], Future[list[FrozenText | None]]]] = deque()
    with pool() if pool is not None else Pool(workers) as hands:
        for batch, sent in _chunks(source, todo, count, hands.size):
            if len(waiting) >= hands.size * AHEAD:
                yield from _finished(*waiting.popleft())
            waiting.append((batch, sent, hands.submit(work_all, sent)))
        while waiting:
            yield from _finished(*waiting.popleft())


def _finished(
    batch: list[Job], sent: list[Sent], future: Future[list[FrozenText | None]]
) -> Iterator[tuple[Job, FrozenText | None]]:
    try:
        results = future.result()
    except WorkerDied:  # try the pages one by one, so that only the text of the fatal page is missing
        results = [_alone(one) for one in sent]
    yield from zip(batch, results, strict=True)


def _alone(sent: Sent) -> FrozenText | None:
    """Extract one text in a process of its own."""
    worker = Worker()
    try:
        return worker.call(work, sent)
    except WorkerDied:
        return _no_text(sent, "the extractor crashed on this page; it has no text")
    finally:
        worker.close()


def _no_text(sent: Sent, why: str) -> FrozenText:
    return FrozenText(sent[0], "", extractor=NO_TEXT, version="0", warnings=(why,), meta=sent[4])


def _chunks(
    source: Source, todo: Iterable[Job], count: int, workers: int
) -> Iterator[tuple[list[Job], list[Sent]]]:
    """Yield chunks of jobs with their data; smaller ones towards the end, so that all workers finish together."""
    batch: list[Job] = []
    sent: list[Sent] = []
    size = 0
    for number, job in enumerate(todo):
        data = _load(source, job)
        batch.append(job)
        sent.append(data)
        size += len(data[2].body) if data[2] else len(data[3])
        most = min(CHUNK_JOBS, 1 + max(0, count - number) // (4 * workers))
        if size >= CHUNK_BYTES or len(batch) >= most:
            yield batch, sent
            batch, sent, size = [], [], 0
    if batch:
        yield batch, sent


def _load(source: Source, job: Job) -> Sent:
    if job.view is not None:
        dom = source.resource("dom", job.view.address) or b""
        meta = {"url": job.view.final_url.partition("#")[0] or job.view.url, "view": job.view.address}
        return job.address, None, None, dom.decode("utf-8", "replace"), meta
    assert job.capture is not None
    return job.address, job.capture, source.read_start(job.capture, READ + 1), "", {"url": job.capture.url}


def work_all(sent: list[Sent]) -> list[FrozenText | None]:
    """Extract a chunk of texts in a worker process."""
    return [work(one) for one in sent]


def work(sent: Sent) -> FrozenText | None:
    """Extract the text of one job, in a worker process or here; return None if it is neither HTML nor PDF."""
    address, capture, response, dom, meta = sent
    try:
        if response is None:
            return extract_html(address, dom, meta=meta)
        return extract(capture, response, address=address)
    except Exception as error:  # noqa: BLE001 -- a library's bug costs one text, which is reported
        return _no_text(sent, f"the extractor failed ({type(error).__name__}: {error}); it has no text")
