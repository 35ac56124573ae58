"""Recording a snapshot's pages and views again from the live web, at the pace that each host asks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from stillweb.harness.curation.missing import record_misses
from stillweb.harness.models.transport import retry_after
from stillweb.proxy.browser import running
from stillweb.proxy.explore.politeness import Manners
from stillweb.proxy.replay.ledger import misses as find_misses
from stillweb.proxy.replay.ledger import read
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.contents.provenance import provenance_now
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.secrets.detect import holds_secret

if TYPE_CHECKING:
    from stillweb.proxy.browser.steps import Flow
    from stillweb.proxy.record.recorder import Recorder, RecorderStats
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.writer import Writer

T = TypeVar("T")

TRIES = 3  # of a page whose host asks to be left alone for a while
UNTOLD_SECONDS = 10.0  # waited after a 429 without Retry-After
MOST_SECONDS = 300.0  # waited for a host; a page for which it asks for more is given up

Asked = list[tuple[str, float]]  # URL, and seconds in which its host wants no other request


class BusyAnswers:
    """Answers by which a host asks to be left alone: 429 (RFC 6585, 4), and 503 with Retry-After (RFC 9110, 10.2.3).

    Given to a Recorder as `leave_out`: its client gets such an answer, and the snapshot holds the one that comes later.
    """

    def __init__(self) -> None:
        self._asked: Asked = []

    def __call__(self, exchange: Exchange) -> bool:
        asked = next((value for name, value in exchange.headers if name.lower() == "retry-after"), None)
        if exchange.status != 429 and (exchange.status != 503 or asked is None):
            return False
        self._asked.append((exchange.request.url, UNTOLD_SECONDS if asked is None else retry_after(asked)))
        return True

    def take(self) -> Asked:
        """Return the requests since the last call."""
        taken, self._asked = self._asked, []
        return taken


@dataclass(frozen=True)
class RefreshResult:
    """Outcome of a refresh.

    `forbidden` are the URLs that robots.txt forbids, `failed` (URL, reason) of each page that was not recorded,
    `failures` those of its requests; `stats` counts what was recorded, and `others` the recorded requests with methods
    that are repeated only where a view's steps make them.
    """

    forbidden: list[str]
    failed: list[tuple[str, str]]
    failures: list[tuple[str, str]]
    stats: RecorderStats
    others: int


def refresh(
    snapshot: Snapshot,
    out: Path,
    ledgers: Sequence[Path],
    *,
    pause: float,
    ca_file: Path | None,
    private: bool,
    obey_robots: bool,
    progress: Callable[[int, int], None],
) -> RefreshResult:
    """Record a snapshot's views and pages again into the new directory `out`; see `stillweb.refresh`."""
    from stillweb.proxy.browser.browser import complete, new_profile
    from stillweb.proxy.browser.steps import Flow
    from stillweb.proxy.browser.uploads import contents_of
    from stillweb.proxy.record.recorder import Recorder, private_places
    from stillweb.snapshots.writer import Writer

    if out.exists():
        raise UsageError(f"{out}: exists. Name a new directory with -o")
    closed = [view for view in snapshot.views() if holds_secret([*view.steps])]
    flows = [
        Flow(view.url, view.steps, contents_of(snapshot, view))
        for view in snapshot.views()
        if view not in closed
    ]
    entries = list(_alone(snapshot))
    entries += [entry for ledger in ledgers for entry in find_misses(read(ledger))]
    others = len({c.key for c in snapshot.captures() if c.method not in ("GET", "HEAD")})
    profile = complete(snapshot.profile) if snapshot.profile is not None else new_profile()
    busy = BusyAnswers()
    private = private or not ledgers  # a model may have chosen what was missed
    held = None if private else private_places(capture.url for capture in snapshot.captures())
    with (
        Writer.open(out, provenance=provenance_now("refresh", {})) as writer,
        Recorder(writer, upstream_ca=ca_file, private=private, resolve=held, leave_out=busy) as recorder,
    ):
        if flows:
            writer.adopt(profile)
        forbidden, failed = _record(
            recorder, writer, busy, flows, entries,
            profile=profile, pause=pause, obey_robots=obey_robots, progress=progress,
        )  # fmt: skip
    why = f"its steps hold a secret, of which only the pseudonym is known: `stillweb record -o {out} --steps FILE` adds it"
    failed += [(view.address, why) for view in closed]
    return RefreshResult(forbidden, failed, list(recorder.failures), recorder.stats, others)


def _alone(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield an entry for each page, document or data set that no view loaded."""
    loaded = {str(one.get("url", "")) for view in snapshot.views() for one in view.captures}
    loaded |= {view.url.partition("#")[0] for view in snapshot.views()}
    seen: set[str] = set()
    for capture in sorted(snapshot.captures(), key=lambda c: (c.timestamp, c.begin, c.place)):
        if capture.method != "GET" or capture.url in loaded or capture.key in seen:
            continue
        seen.add(capture.key)
        yield {
            "session": "refresh", "seq": len(seen), "method": "GET", "url": capture.url, "verdict": "miss", "status": 0,
        }  # fmt: skip


def _record(
    recorder: Recorder,
    writer: Writer,
    busy: BusyAnswers,
    flows: Iterable[Flow],
    entries: Iterable[Mapping[str, Any]],
    *,
    profile: Profile,
    pause: float,
    obey_robots: bool,
    progress: Callable[[int, int], None],
) -> tuple[list[str], list[tuple[str, str]]]:
    """Record `flows` in Chromium and `entries` (misses of a ledger) by HTTP, one after the other.

    Return the URLs that robots.txt forbids, and (URL, reason) of each page that was not recorded. `pause` is the
    seconds between two of one host, whose turns alternate with those of other hosts. `busy` is the recorder's
    `leave_out`: a page for which it has taken an answer is asked for again when the host's time is over.
    """
    manners = Manners(recorder, profile, pause, "refresh", here=())
    pages = _in_turns(flows, lambda flow: str(flow.url))
    alone = _in_turns(entries, lambda entry: str(entry["url"]))
    forbidden: list[str] = []
    if obey_robots:
        urls = dict.fromkeys([*(str(flow.url) for flow in pages), *(str(entry["url"]) for entry in alone)])
        forbidden = running.run(_forbidden(manners, urls))
        pages = [flow for flow in pages if flow.url not in forbidden]
        alone = [entry for entry in alone if entry["url"] not in forbidden]
    failed: list[tuple[str, str]] = []
    asked_for, total = itertools.count(1), len(pages) + len(alone)

    def shown() -> None:
        """Show that one more page was asked for; pages that are asked for again are no progress."""
        progress(min(next(asked_for), total), total)

    for tries_left in reversed(range(TRIES)):

        def again(url: str, error: str, asked: Asked, tries_left: int = tries_left) -> bool:
            """Return True if a page is to be asked for again; else note why it failed, if it did."""
            for place, seconds in asked:
                manners.hold(place, seconds)
            if asked and tries_left and all(seconds <= MOST_SECONDS for _, seconds in asked):
                return True
            if asked:
                place, seconds = asked[-1]
                error = f"{place} asks to be left alone for {seconds:.0f} s. Refresh later"
            if error:
                failed.append((url, error))
            return False

        pages = [
            page
            for page, error, asked in _browse(recorder, writer, profile, manners, busy, pages, shown)
            if again(str(page.url), error, asked)
        ]
        later = []
        for entry in alone:
            running.run(manners.wait_turn(str(entry["url"])))
            why: list[str] = []
            record_misses(recorder, [dict(entry)], why.append)
            recorder.wait_quiet(str(entry["session"]), seconds=0.0, timeout=30.0)
            if again(str(entry["url"]), "; ".join(why), busy.take()):
                later.append(entry)
            shown()
        alone = later
    return forbidden, failed


def _browse(
    recorder: Recorder,
    writer: Writer,
    profile: Profile,
    manners: Manners,
    busy: BusyAnswers,
    flows: Sequence[Flow],
    shown: Callable[[], None],
) -> Iterator[tuple[Flow, str, Asked]]:
    """Yield each flow with the reason why it was not recorded, or "", and what hosts asked for meanwhile."""
    if not flows:
        return
    from stillweb.proxy.browser.capture_view import Fetcher

    asked: list[Asked] = []

    def note(url: str, event: str) -> None:
        if event == "done" or event.startswith("failed"):
            asked.append(busy.take())
            shown()

    results = Fetcher(recorder, writer, profile).fetch(
        [], flows, progress=note, parallel=1, turn=manners.wait_turn
    )
    for flow, result, heard in zip(flows, results, asked, strict=True):
        yield flow, "" if result.ok else result.error or "it was not recorded", heard


def _in_turns(jobs: Iterable[T], url_of: Callable[[T], str]) -> list[T]:
    """Return jobs so that those of one host alternate with those of others."""
    by_host: dict[str, list[T]] = {}
    for job in jobs:
        by_host.setdefault(urlsplit(url_of(job)).hostname or "", []).append(job)
    return [job for turn in itertools.zip_longest(*by_host.values()) for job in turn if job is not None]


async def _forbidden(manners: Manners, urls: Iterable[str]) -> list[str]:
    return [url for url in urls if url.startswith(("http://", "https://")) and not await manners.allowed(url)]
