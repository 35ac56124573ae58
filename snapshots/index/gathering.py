"""Results of a scan on their way to the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stillweb.snapshots.dates import timestamp_of
from stillweb.snapshots.index.cdxj import line_of
from stillweb.snapshots.index.indexing import Findings
from stillweb.snapshots.index.pairing import RequestRecord, ResponseRecord, UnpairedRecords
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.warc import messages

Place = tuple[str, int, int]  # filename, offset, length


class PendingRevisit(NamedTuple):
    """A revisit whose line only lacks the place of the record that holds its payload."""

    offset: int
    digest: str
    url: str
    moment: str  # timestamp and URL of the original
    line: bytes  # the line up to the place
    rest: bytes  # the line after the place


@dataclass(slots=True)
class ScanResult:
    """Result of the scan of an archive file, or of a part of one."""

    name: str = ""
    listed: list[bytes] = field(default_factory=list)  # the lines of captures, for the index
    # one item per capture that is not a revisit, by which revisits find it
    lines: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)  # record ids
    revisits: list[ResponseRecord] = field(default_factory=list)
    waiting: list[PendingRevisit] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)  # lines of views, texts and metadata
    unasked: list[ResponseRecord] = field(default_factory=list)
    questions: list[RequestRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    profile: Profile | None = None
    settings: dict[str, Any] | None = None  # of ours; other tools write none
    reached: int = 0
    cut: bool = False
    unpaired: UnpairedRecords = field(default_factory=UnpairedRecords)

    def take(self, answers: Iterable[ResponseRecord]) -> None:
        """Make the lines of paired answers; revisits wait in `revisits`, unusable answers get a note."""
        for answer in answers:
            lost = answer.lacks_request
            if answer.fault:
                where = f"{answer.filename}: offset {answer.offset}"
                self.notes.append(f"{where}: {answer.fault} of {answer.url}")
                continue
            if lost:
                where = f"{answer.filename}: offset {answer.offset}"
                self.notes.append(
                    DamageNote(f"{where}: the request of this response of {answer.url} is missing")
                )
            if answer.revisit is not None:
                if not lost:
                    self.revisits.append(answer)
                continue
            line = self.add(
                answer, answer.mime, answer.status, answer.digest, answer.truncated, listed=not lost
            )
            self.original(line, answer.offset, answer.record_id)

    def original(self, line: bytes, offset: int, record_id: str) -> None:
        """Add a capture with its offset and record id, by which revisits name it."""
        self.lines.append(line)
        self.offsets.append(offset)
        self.ids.append(record_id)

    def add(
        self,
        answer: ResponseRecord,
        mime: str,
        status: int,
        digest: str,
        truncated: str,
        original: Place | None = None,
        listed: bool = True,
    ) -> bytes:
        """Make the line of an answer and return it.

        A line that is not `listed` doesn't get into the index; only revisits refer to it.
        """
        key, url = answer.key, answer.url
        timestamp = timestamp_of(answer.date)
        line = line_of(
            key.urlkey,
            timestamp,
            url,
            answer.method,
            status,
            mime,
            digest,
            answer.filename,
            answer.offset,
            answer.length,
            answer.request_offset,
            answer.request_length,
            key.canonical,
            key.exact,
            answer.session,
            answer.begin,
            answer.end,
            answer.protocol,
            messages.vary_values(answer.vary, answer.headers) if answer.vary else (),
            original,
            truncated,
            answer.personal,
            answer.identity,
        )
        if listed:
            self.listed.append(line)
        return line


def add_scan(found: Findings, part: ScanResult) -> ScanResult:
    """Add the findings of a scan to `part`, which has the name of the file and may have lines already; return it."""
    part.others = found.others
    part.unasked = found.unasked
    part.questions = found.questions
    part.notes = found.notes
    part.profile = found.profile
    part.settings = found.settings
    part.reached = found.reached
    part.cut = found.cut
    part.unpaired = found.unpaired
    part.take(found.answers)
    return part
