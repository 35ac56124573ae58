"""Results of a scan on their way to the index: lines by site, and the data needed until the lines are final.

A capture gets its line at once, as if nothing had ever changed on its site. Most lines stay so. Only on sites where
something may have changed (`plain` is False) are lines parsed again, by `stillweb.snapshots.index.stating`.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from stillweb.snapshots.dates import timestamp_of
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.index.cdxj import line_of
from stillweb.snapshots.index.indexing import Findings
from stillweb.snapshots.index.pairing import Answer, Asked, Question, Surroundings
from stillweb.snapshots.notes import Damaged
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Headers
from stillweb.snapshots.states.answers import static
from stillweb.snapshots.states.conditions import ANY
from stillweb.snapshots.states.plain import unremarkable
from stillweb.snapshots.warc import messages

Place = tuple[str, int, int]  # filename, offset, length
NO_HEADERS: Headers = ()

# Evidence of a server state in an exchange: none; none unless its request ever got another answer; or some
SILENT, ODD, TELLING = range(3)


class Waiting(NamedTuple):
    """A revisit whose line only lacks the place of the record that holds its payload."""

    offset: int
    digest: str
    url: str
    moment: str  # timestamp and URL of the original
    line: bytes  # the line up to the place
    rest: bytes  # the line after the place
    site: str
    key: str
    told: str
    says: int
    asked: Asked


@dataclass(slots=True)
class Site:
    """Captures of a site.

    On a `plain` site no capture's state depends on another request. Only requests with differing answers need their
    states computed. `told` maps a request key to its first answer (`told_by`), and `differing` holds the keys that
    have several.
    """

    plain: bool = True
    told: dict[str, str] = field(default_factory=dict)
    differing: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)  # keys that make the site not plain if their answers differ
    keys: list[str] = field(default_factory=list)  # request key of each line
    lines: list[bytes] = field(default_factory=list)
    asked: list[Asked | None] = field(default_factory=list)  # request of each line; None: not in memory
    packed: list[bytes] = field(default_factory=list)  # marshalled lists of requests that come before `asked`

    def take(self, key: str, told: str, says: int, line: bytes, asked: Asked | None) -> None:
        """Add an exchange: request key, answer (`told_by`), evidence of a state, index line and request."""
        if self.told.setdefault(key, told) != told:
            self.differing.add(key)
        if says == ODD:
            self.odd.add(key)
        elif says == TELLING:
            self.plain = False
        self.keys.append(key)
        self.lines.append(line)
        self.asked.append(asked)

    def requests(self) -> list[Asked | None]:
        """Return the request of each line."""
        return [*chain(*map(marshal.loads, self.packed)), *self.asked]

    def merge(self, other: Site) -> None:
        """Add the captures that another part of the archives has of this site."""
        self.plain = self.plain and other.plain
        if self.plain:
            told, more = self.told, other.told
            self.differing |= other.differing
            self.differing.update([key for key in told.keys() & more.keys() if told[key] != more[key]])
            told.update(more)
            self.odd |= other.odd
        self.keys += other.keys
        self.lines += other.lines
        if self.asked and other.packed:
            self.packed.append(marshal.dumps(self.asked))
            self.asked = []
        self.packed += other.packed
        self.asked += other.asked

    def final(self) -> tuple[list[bytes], list[bytes], list[Asked | None]]:
        """Return the final lines, the lines whose states must be computed, and the requests of the latter."""
        if not self.plain or self.differing & self.odd:
            return [], self.lines, self.requests()
        if not self.differing:
            return self.lines, [], []
        left = [key in self.differing for key in self.keys]
        kept = [line for line, differs in zip(self.lines, left, strict=True) if not differs]
        asked = [one for one, differs in zip(self.requests(), left, strict=True) if differs]
        return kept, [line for line, differs in zip(self.lines, left, strict=True) if differs], asked


@dataclass(slots=True)
class Part:
    """Result of the scan of an archive file, or of a part of one."""

    name: str = ""
    sites: dict[str, Site] = field(default_factory=dict)
    # one item per capture that is no revisit, by which revisits find it
    lines: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)  # record ids
    moments: list[str] = field(default_factory=list)  # timestamp and URL
    revisits: list[Answer] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)  # lines of views, texts and metadata
    alone: list[Answer] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    profile: Profile | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    reached: int = 0
    cut: bool = False
    around: Surroundings = field(default_factory=Surroundings)

    def take(self, answers: Iterable[Answer]) -> None:
        """Make the lines of paired answers; revisits wait in `revisits`, unusable answers get a note."""
        for answer in answers:
            lost = answer.astray
            if answer.fault:
                where = f"{answer.filename}: offset {answer.offset}"
                self.notes.append(f"{where}: {answer.fault} of {answer.url}")
                continue
            if lost:
                where = f"{answer.filename}: offset {answer.offset}"
                self.notes.append(
                    Damaged(f"{where}: the request of this response of {answer.url} is missing")
                )
            if answer.revisit is not None:
                if not lost:
                    self.revisits.append(answer)
                continue
            line, moment = self.add(
                answer, answer.mime, answer.status, answer.digest, answer.truncated, listed=not lost
            )
            self.original(line, answer.offset, answer.record_id, moment)

    def original(self, line: bytes, offset: int, record_id: str, moment: str) -> None:
        """Add a capture with its offset, record id and moment, by which revisits name it."""
        self.lines.append(line)
        self.offsets.append(offset)
        self.ids.append(record_id)
        self.moments.append(moment)

    def site(self, name: str) -> Site:
        """Return the site of that name; create it if it is new."""
        found = self.sites.get(name)
        if found is None:
            found = self.sites[name] = Site()
        return found

    def add(
        self,
        answer: Answer,
        mime: str,
        status: int,
        digest: str,
        truncated: str,
        original: Place | None = None,
        listed: bool = True,
    ) -> tuple[bytes, str]:
        """Make the line of an answer; return it with its moment (timestamp and URL), by which revisits name it.

        A line that is not `listed` doesn't get into the index; only revisits refer to it.
        """
        key, asked = answer.key, answer.asked
        url = answer.url
        if asked is None:
            method, asked_url, headers, body = "GET", url, NO_HEADERS, b""
        else:
            method, asked_url, headers, body, _ = asked
        timestamp = timestamp_of(answer.date)
        still = static(method, mime, status)
        line = line_of(
            key.urlkey,
            timestamp,
            url,
            method,
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
            messages.vary_values(answer.vary, headers) if answer.vary else (),
            "",
            ANY if still else "",
            False,
            original,
            truncated,
            answer.identity,
        )
        if not listed:
            return line, f"{timestamp} {url}"
        says = SILENT
        if not (asked_url == url and answer.whole and unremarkable(method, url, headers, body, status)):
            says = ODD if still else TELLING
        known = asked if answer.whole else None
        told = told_by(method, status, digest, answer.filename, answer.offset)
        self.site(site_of(url)).take(key.canonical, told, says, line, known)
        return line, f"{timestamp} {url}"


def told_by(method: str, status: int, digest: str, filename: str, offset: int) -> str:
    """Return a text that is the same for equal answers.

    Answers to HEAD have no body to compare, so each counts as different.
    """
    return f"{status} {digest}" if method != "HEAD" else f"{filename} {offset}"


def gathered(found: Findings, part: Part) -> Part:
    """Add the findings of a scan to `part`, which has the name of the file and may have lines already; return it."""
    part.others = found.others
    part.alone = found.alone
    part.questions = found.questions
    part.notes = found.notes
    part.profile = found.profile
    part.settings = found.settings
    part.reached = found.reached
    part.cut = found.cut
    part.around = found.around
    part.take(found.answers)
    return part
