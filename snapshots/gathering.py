"""What a scan found, on its way to the index: lines, by site, and what must be known until they are final.

A capture has its line at once, as if nothing had ever changed on its site; most lines stay so. Only those of sites
where something may have (`plain` is False) are taken apart again, by `snapshots.stating`.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from snapshots import messages
from snapshots.cdxj import line_of
from snapshots.conditions import ANY
from snapshots.indexing import Findings
from snapshots.pairing import Answer, Asked, Question, timestamp_of
from snapshots.plain import static, unremarkable
from snapshots.profile import Profile
from snapshots.request import Headers
from snapshots.sites import site_of

Place = tuple[str, int, int]  # filename, offset, length
NO_HEADERS: Headers = ()


@dataclass(slots=True)
class Site:
    """Captures of a site.

    Where it is `plain` the state of none of them hangs on another request: only what one request was answered
    differently needs more thought. `told` says by request key what it was; of those in `differing` it varies.
    """

    plain: bool = True
    told: dict[str, str] = field(default_factory=dict)
    differing: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)  # keys that make the site not plain if they are differing
    keys: list[str] = field(default_factory=list)  # for each line
    lines: list[bytes] = field(default_factory=list)
    asked: list[Asked | None] = field(default_factory=list)  # for each line; None: to be read
    packed: list[bytes] = field(default_factory=list)  # such lists, by marshal, that come before

    def requests(self) -> list[Asked | None]:
        """What was asked, for each line."""
        return [*chain(*map(marshal.loads, self.packed)), *self.asked]

    def merge(self, other: Site) -> None:
        """Takes over what another part of the archives has of this site."""
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
        """The lines that stay as they are; those that don't, with what was asked for each."""
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
    """What is known of a file, or of a part of one."""

    sites: dict[str, Site] = field(default_factory=dict)
    # of each capture that is no revisit, for revisits to find it
    lines: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)  # of its record
    moments: list[str] = field(default_factory=list)  # timestamp and URL
    revisits: list[Answer] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)  # lines of records that are no exchange
    alone: list[Answer] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    profile: Profile | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    reached: int = 0
    cut: bool = False

    def take(self, answers: Iterable[Answer]) -> None:
        """Makes lines of paired answers; revisits wait."""
        for answer in answers:
            if answer.revisit is not None:
                self.revisits.append(answer)
                continue
            line, moment = self.add(answer, answer.mime, answer.status, answer.digest, answer.truncated)
            self.lines.append(line)
            self.offsets.append(answer.offset)
            self.ids.append(answer.record_id)
            self.moments.append(moment)

    def add(
        self,
        answer: Answer,
        mime: str,
        status: int,
        digest: str,
        truncated: str,
        original: Place | None = None,
    ) -> tuple[bytes, str]:
        """Makes the line of an answer; gives it, and the moment and URL that revisits name it by."""
        key, asked = answer.key, answer.asked
        url = answer.url
        if asked is None:
            method, asked_url, headers, body = "GET", url, NO_HEADERS, b""
        else:
            method, asked_url, headers, body = asked
        timestamp = timestamp_of(answer.date)
        site = site_of(url)
        of_site = self.sites.get(site)
        if of_site is None:
            of_site = self.sites[site] = Site()
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
        told = f"{status} {digest}"
        if of_site.told.setdefault(key.canonical, told) != told:
            of_site.differing.add(key.canonical)
        if not (asked_url == url and answer.whole and unremarkable(method, url, headers, body, status)):
            if still:
                of_site.odd.add(key.canonical)
            else:
                of_site.plain = False
        of_site.keys.append(key.canonical)
        of_site.lines.append(line)
        of_site.asked.append(asked if answer.whole else None)
        return line, f"{timestamp} {url}"


def gathered(found: Findings) -> Part:
    """What a scan found, as lines."""
    part = Part(
        others=found.others,
        alone=found.alone,
        questions=found.questions,
        notes=found.notes,
        profile=found.profile,
        settings=found.settings,
        reached=found.reached,
        cut=found.cut,
    )
    part.take(found.answers)
    return part
