"""The public interface of Stillweb: record, open, replay, look up coverage, run, compare and call tools.

Importing this module loads no browser, no mitmproxy and no model client: each function loads what it needs, and
raises MissingCapability with the command that installs it where an extra is missing.
"""

from __future__ import annotations

import os
import ssl
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import isfunction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.evidence import SERVED
from stillweb.snapshots.evidence.confidence import read_confidence
from stillweb.snapshots.remote import absolute, local
from stillweb.snapshots.request import must_be_url
from stillweb.snapshots.snapshot import Snapshot

if TYPE_CHECKING:
    from datetime import date, datetime
    from subprocess import Popen

    from stillweb.harness.agents.attempt import Limits
    from stillweb.harness.compare.compare import RunComparison
    from stillweb.harness.curation.coverage import Coverage
    from stillweb.harness.curation.drift import Drift
    from stillweb.harness.curation.refreshing import RefreshResult
    from stillweb.harness.environment import Environment
    from stillweb.harness.export.publication import Publication
    from stillweb.harness.results.certificate import Certification
    from stillweb.harness.results.summary import Mean, Summary
    from stillweb.harness.runs.display import Display
    from stillweb.harness.scoring import Context
    from stillweb.harness.task import Task, TaskSet
    from stillweb.harness.tools.contract import ToolResult, ToolSpec
    from stillweb.harness.tools.toolset import Limits as ToolLimits
    from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
    from stillweb.proxy.browser.options import BrowserOptions
    from stillweb.proxy.browser.steps import Flow
    from stillweb.proxy.check.check import CheckReport
    from stillweb.proxy.explore.explorer import Explorer
    from stillweb.proxy.explore.explorer import Limits as ExploreLimits
    from stillweb.proxy.explore.moves import Choices
    from stillweb.proxy.record.live import LiveRequests
    from stillweb.proxy.record.recorder import Recorder, RecorderStats
    from stillweb.proxy.replay.faults import Faults
    from stillweb.proxy.replay.gateway import Gateway
    from stillweb.proxy.replay.ledger import Ledger
    from stillweb.snapshots.contents.provenance import Provenance
    from stillweb.snapshots.operations.cut import CutReport
    from stillweb.snapshots.operations.diff import Diff
    from stillweb.snapshots.operations.late_secrets import LateSecret
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.text.tables import Table
    from stillweb.snapshots.text.text import FrozenText
    from stillweb.snapshots.view import Step
    from stillweb.snapshots.writer import Writer

StrPath = str | os.PathLike[str]
T = TypeVar("T")


def open(*paths: StrPath, at: str = "") -> Snapshot:
    """Open a snapshot for reading: a `.wacz`, an open snapshot directory, a WARC, ARC, HAR or mitmproxy flow file.

    Several paths (or fsspec URLs) are layers; later ones lie over earlier ones. The snapshot is a context manager.
    `at` is a date (2026-03-01) after which nothing is seen, or "latest"; of several answers the newest then counts.
    Raises UsageError for a missing path and DamagedInput for an unreadable one.
    """
    return Snapshot.open(*paths, at=at)


# --- what a new client gets


def lookup(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    request: Request | str,
    *,
    accept: str = "rule",
    min_confidence: float = SERVED,
) -> dict[str, Any]:
    """Return what a replay would note of a request (a string is the URL of a GET) of a new session.

    The members are those of a ledger's line (docs/ledger.md): `verdict`, `ambiguous`, `state`, `nearest` and, where
    there is one, `confidence`, `derived`, `why` and `capture`; `grounds` say why the confidence is what it is.
    `Snapshot.lookup` reads the response itself. Raises UsageError for a wrong argument, also for a text that is not a URL.
    """
    from stillweb.proxy.net.addresses import DEFAULT_SESSION
    from stillweb.proxy.replay.answering import Answerer
    from stillweb.proxy.replay.ledger import Ledger
    from stillweb.snapshots.identity.accept_level import check_accept
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.view import id_in

    check_accept(accept)
    least = read_confidence(min_confidence)
    asked = Request.of(request)
    address = request if isinstance(request, str) else request.url
    with _opened(snapshot) as opened, Ledger() as ledger:
        if id_in(address) is not None and opened.view(address) is None:
            why = "no view of the snapshot has this address; 'stillweb ls SNAPSHOT --views' lists them"
            return {"verdict": "miss", "ambiguous": False, "state": "", "why": why, "nearest": []}
        answerer = Answerer(opened, ledger, accept=accept, min_confidence=least)
        capture = answerer.answer(asked, answerer.state(DEFAULT_SESSION)).capture
        entry = ledger.entries()[0]
        matcher = answerer.matcher
        likeliest = matcher.lookup(asked, matcher.session(), accept=accept, min_confidence=0.0)
    if likeliest.grounds is not None and likeliest.reported_confidence is not None:
        entry |= likeliest.reported_confidence.members() | {"grounds": likeliest.grounds()}
    names = ("verdict", "ambiguous", "state", "confidence", "grounds", "derived", "why")
    found = {name: entry[name] for name in names if name in entry}
    if capture is not None:
        names = ("url", "status", "mime", "timestamp", "digest", "filename", "offset")
        found["capture"] = {name.removesuffix("name"): getattr(capture, name) for name in names}
    return {**found, "nearest": entry.get("nearest", [])}


def fetch(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    address: str,
    *,
    note: Callable[[str], None] | None = None,
) -> FrozenText | None:
    """Return the text of a page or PDF as a new client gets it, or of a view; None for a miss, or without a text.

    Redirects are followed. `note` is called if only a client in another state gets the page. The result's text is
    `markdown`; it has `title`, `extractor`, `version` and `warnings`, too. Raises UsageError for a text that is not a URL.
    """
    from stillweb.harness.tools.store import Store
    from stillweb.snapshots.view import id_in

    with _opened(snapshot) as opened:
        store = Store(opened)
        frozen = opened.text(must_be_url(address))
        if frozen is None:
            if (found := store.view_text(address)) is not None or id_in(address) is not None:
                return found[0] if found is not None else None
        elif "#" in frozen.address or "digest" not in frozen.meta:
            return frozen
        page = store.session("fetch").follow(frozen.address if frozen is not None else address)
        if page.capture is None:
            if frozen is not None and note is not None:
                note(f"{frozen.address}: recorded in another state; a client that begins anew gets a miss")
            return frozen
        if frozen is None:
            return None if page.redirects else store.text_of(page.capture)
        # the frozen text may be of a later state of the server
        same = page.capture.digest == frozen.meta["digest"]
        return frozen if same else store.text_of(page.capture) or frozen


def tables(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    address: str,
    *,
    note: Callable[[str], None] | None = None,
) -> list[Table] | None:
    """Return the tables of a view's DOM, or of the page that a new client gets; None for a miss.

    Each has a `caption` and `rows`. `note` is called if the page can be unpacked in part only.
    """
    from stillweb.harness.tools.store import Store
    from stillweb.snapshots.http import charsets
    from stillweb.snapshots.text.tables import tables_of
    from stillweb.snapshots.text.text import READ, unpack_body
    from stillweb.snapshots.view import id_in

    with _opened(snapshot) as opened:
        view = opened.view(must_be_url(address))
        if view is not None and (dom := opened.resource("dom", view.address)) is not None:
            return tables_of(dom.decode("utf-8", "replace"))
        if id_in(address) is not None:
            return None  # the page without the view's steps would be another view
        found = Store(opened).session("fetch").follow(address)
        if found.capture is None or found.redirects:
            return None
        response = opened.read_start(found.capture, READ + 1)
    body, problem = unpack_body(response)
    if problem and note is not None:
        note(f"{address}: read as far as it can be unpacked: {problem}")
    return tables_of(charsets.decode(body, response.header("content-type")).text)


# --- recording


class Recording:
    """A snapshot being recorded. Made by `record`."""

    def __init__(self, writer: Writer, recorder: Recorder, browser: BrowserOptions | None) -> None:
        self.writer = writer
        self.recorder = recorder
        self.late: list[
            LateSecret
        ] = []  # records with a secret that was learned too late, known when `record` is left
        self._given = browser

    @property
    def failures(self) -> list[tuple[str, str]]:
        """(URL, reason) of each request that was not recorded."""
        return list(self.recorder.failures)

    def visit(
        self, url: str, *, steps: Sequence[Step] | Sequence[Flow] = (), pdfs: bool = False
    ) -> FetchResult:
        """Load `url` in Chromium, do the `steps`, and record every exchange and a view of each state.

        Steps are those of a steps file (docs/views.md), in short forms, too: `{"click": "Show"}`. `pdfs` fetches
        linked PDFs too. The result's `ok` is False, with `error`, where the page could not be recorded as it should
        be. Raises UsageError for a wrong step, MissingCapability without a browser.
        """
        from stillweb.proxy.browser.steps import Flow, canonical

        flows = [step for step in steps if isinstance(step, Flow)]
        given = flows if len(flows) == len(steps) else canonical(steps)
        return self._fetcher.fetch([url], given, pdfs)[0]

    def visit_all(
        self,
        urls: Iterable[str],
        flows: Sequence[Flow] = (),
        *,
        pdfs: bool = False,
        parallel: int | None = None,
        progress: Callable[[str, str], None] | None = None,
    ) -> list[FetchResult]:
        """Record many pages as `visit` does, several at once; return a result for each, in their order.

        Flows without a URL are done on each of `urls`. `parallel` None is two pages for each core. `progress` is
        called with a URL and an event.
        """
        return self._fetcher.fetch(_several(urls), flows, pdfs, progress, parallel)

    def explorer(self, limits: ExploreLimits | None = None, choices: Choices | None = None) -> Explorer:
        """Return an explorer, whose `explore(url)` operates a page and records the views that it finds."""
        from stillweb.proxy.explore.explorer import Explorer

        return Explorer(
            self.recorder,
            self.writer,
            self.profile,
            limits=limits,
            choices=choices,
            launch=self._browser.host,
        )

    def run(
        self,
        command: Sequence[str],
        *,
        session: str = "default",
        no_proxy: Sequence[str] = (),
        isolate: bool = False,
    ) -> int:
        """Run a program, record whatever it fetches, and return its exit code.

        The program gets the proxy and the certificate by its environment variables. Programs of one `session`
        count as one client that goes on. It asks the hosts of `no_proxy` itself; `isolate` leaves it no other way
        past the recorder. Raises UsageError if the program can't be started.
        """
        from stillweb.proxy.record.recorder import record_command

        return record_command(command, self.recorder, session, no_proxy, isolate)

    @cached_property
    def _browser(self) -> BrowserOptions:
        from stillweb.proxy.browser.options import BrowserOptions

        return self._given or BrowserOptions()

    @cached_property
    def profile(self) -> Profile:
        """The browser's profile, which the snapshot keeps. Raises UsageError if the snapshot has another."""
        found = self._browser.profile(self.writer.profile, self.writer.path)
        if self.recorder.redactor is not None:
            found = self._browser.stored_profile(found, self.recorder.redactor)
        if found != self.writer.profile:
            self.writer.adopt(found)
        return found

    @cached_property
    def _fetcher(self) -> Fetcher:
        from stillweb.proxy.browser.capture_view import Fetcher

        return Fetcher(self.recorder, self.writer, self.profile, launch=self._browser.host)


@contextmanager
def record(
    out: StrPath,
    *,
    browser: Mapping[str, Any] | BrowserOptions | None = None,
    ca_file: StrPath | None = None,
    insecure: bool = False,
    private: bool = True,
    resolve: Mapping[str, tuple[str, int]] | None = None,
    upstream: str | None = None,
    client_cert: StrPath | None = None,
    port: int = 0,
    on_status: Callable[[RecorderStats], None] | None = None,
    provenance: Provenance | None = None,
) -> Iterator[Recording]:
    """Record into the snapshot directory `out`, which is made, or continued if it is one.

    `browser` is written as at the head of a steps file: `{"locale": "de-DE", "viewport": "390x844"}`. `ca_file` is a
    PEM file of authorities to trust besides the usual ones; `insecure` accepts any certificate. Unless `private`,
    addresses that are not public are refused. `resolve` maps a host to the (address, port) to connect to. `upstream`
    is the URL of the proxy by which the web is reached, by default that of HTTP_PROXY and its kin; `client_cert` a
    PEM file for origins that ask for one. `provenance` says what records, if it is another program than this call.

    Secrets are replaced by pseudonyms. On leaving, everything is on disk; GateFailed is raised if a secret was
    learned too late to replace it. Raises UsageError for wrong options, MissingCapability if `port` is in use.
    """
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.errors import GateFailed, StillwebError
    from stillweb.snapshots.extras import require
    from stillweb.snapshots.operations import late_secrets
    from stillweb.snapshots.writer import Writer

    options = profile = None
    if browser is not None:  # a program is recorded without loading the browser's library
        from stillweb.proxy.browser.options import BrowserOptions, browser_options

        options = browser if isinstance(browser, BrowserOptions) else browser_options(browser, "browser")
        profile = options.profile(_profile_in(Path(out)), Path(out))
    source = provenance or provenance_now("stillweb.record", {"insecure": insecure, "private": private})
    with Writer.open(out, profile=profile, provenance=source) as writer:
        recorder = require("stillweb.proxy.record.recorder").Recorder(
            writer,
            port=port,
            private=private,
            resolve=resolve,
            on_status=on_status,
            **_origins(ca_file, insecure, upstream, client_cert),
        )
        recording = Recording(writer, recorder, options)

        def look() -> None:
            if recorder.redactor is not None:
                recording.late = late_secrets.look_through(writer.path, recorder.redactor)

        try:
            with recorder:
                yield recording
        except BaseException:
            # The first error is raised, such as a full disk; `seal` refuses what nobody has looked through.
            with suppress(OSError, StillwebError):
                look()
            raise
        look()
    if recording.late:
        raise GateFailed(
            f"{out}: {len(recording.late)} records hold secrets that were learned too late to replace. "
            f"Don't publish it unless the account is disposable; see {writer.path / late_secrets.FILE}"
        )


def _origins(
    ca_file: StrPath | None, insecure: bool, upstream: str | None, client_cert: StrPath | None
) -> dict[str, Any]:
    """Return a `Recorder`'s options of how origins are reached and trusted."""
    return {
        "upstream_ca": Path(ca_file) if ca_file is not None else None,
        "insecure": insecure,
        "upstream": upstream,
        "client_cert": Path(client_cert) if client_cert is not None else None,
    }


def _profile_in(path: Path) -> Profile | None:
    """Return the profile of the snapshot that is continued, None for a new one."""
    if not (path / "datapackage.json").exists():
        return None
    with Snapshot.open(path) as snapshot:
        return snapshot.profile


# --- replay


class Replay:
    """A running replay of a snapshot: settings for clients, and the ledger of what they asked. Made by `replay`."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    @property
    def ledger(self) -> Ledger:
        """The entries so far, one mapping a request (docs/ledger.md)."""
        return self.gateway.ledger

    def httpx(self, session: str = "default") -> dict[str, Any]:
        """Return keyword arguments for `httpx.Client` or `httpx.AsyncClient`."""
        verify = ssl.create_default_context(cafile=str(self.gateway.ca_path))
        return {"proxy": self.gateway.proxy_url(session), "verify": verify, "trust_env": False}

    def playwright(self, session: str = "default") -> dict[str, Any]:
        """Return keyword arguments for Playwright's `browser.new_context`. Loopback goes through the proxy, too."""
        from stillweb.proxy.browser.browser import proxy_settings

        return {"proxy": proxy_settings(self.gateway.proxy_url(session)), "ignore_https_errors": True}

    def env(self, session: str = "default", base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment for a child process: `base` (default: ours) with proxy and certificate variables."""
        from stillweb.proxy.net.client_env import client_environment

        return client_environment(self.gateway.proxy_url(session), self.gateway.ca_path, base)

    def run(
        self,
        command: Sequence[str],
        *,
        session: str = "default",
        no_proxy: Iterable[str] = (),
        clock: str | datetime | None = None,
        started: Callable[[Popen[bytes]], None] | None = None,
    ) -> int:
        """Run a program against the snapshot and return its exit code.

        The program gets the proxy and the certificate by its environment variables; `no_proxy` names hosts that it
        asks itself. `clock` is the moment at which its clock begins, or "recorded" for that of the first capture.
        `started` is called with the process. Raises UsageError if the program can't be started, and
        MissingCapability if its clock can't be set.
        """
        from stillweb.proxy.net.client_env import add_no_proxy, direct_hosts, run_command
        from stillweb.proxy.net.clock import moment_of, with_clock

        self.gateway.set_default_session(session)
        environment = add_no_proxy({**os.environ, **self.env(session)}, direct_hosts(no_proxy))
        if clock is not None:
            moment = moment_of(clock, self.gateway.snapshot) if isinstance(clock, str) else clock
            environment = with_clock(environment, moment)
        return run_command(command, environment, started=started or (lambda _: None))


def _status_page(status: Mapping[str, Any], misses: Sequence[Mapping[str, Any]]) -> tuple[bytes, str]:
    from stillweb.harness.view.export import status_page

    return status_page(status, misses)


@contextmanager
def replay(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    *,
    port: int = 0,
    accept: str = "rule",
    min_confidence: float | Literal["sure"] = SERVED,
    ledger: StrPath | None = None,
    synthetic_search: bool = False,
    record_misses: StrPath | None = None,
    ca_file: StrPath | None = None,
    insecure: bool = False,
    upstream: str | None = None,
    client_cert: StrPath | None = None,
    private: bool = False,
    on_miss: Callable[[], None] | None = None,
    faults: Faults | Mapping[str, Any] | StrPath | None = None,
    timing: str = "none",
) -> Iterator[Replay]:
    """Serve a snapshot, or several as layers, as a proxy on loopback that never connects to anything.

    `port` 0 takes a free one. `accept` is the lowest verdict served: exact, canonical, varies or rule;
    `min_confidence` is the lowest confidence, 0 to 1, or "sure". `ledger` is a file for the ledger's JSON lines.
    `synthetic_search` answers searches that were never recorded from the frozen texts. A request that was not
    recorded is answered with status 504 and noted as a miss in the ledger, and `on_miss` is called; with
    `record_misses` it is asked live and kept in that new snapshot; `ca_file`, `insecure`, `upstream` and `client_cert`
    say how, as in `record`. Unless `private`, only those addresses that are not public are asked that the snapshot
    holds, for a model may choose them. `faults` is a fault file, or its content;
    `timing` (none, recorded, xN) sends answers at the recorded pace (docs/drills.md). Raises MissingCapability if
    the port is in use.
    """
    from stillweb.harness.drills import read_faults
    from stillweb.harness.servers.replaying import make_hosts
    from stillweb.proxy import Gateway, Ledger

    disturbed = read_faults(faults)
    with ExitStack() as stack:
        opened = stack.enter_context(_opened(snapshot))
        gateway = Gateway(
            opened,
            port=port,
            accept=accept,
            min_confidence=min_confidence,
            ledger=Ledger(Path(ledger) if ledger is not None else None),
            virtual_hosts=make_hosts(opened, accept=accept, synthetic_search=synthetic_search),
            faults=disturbed,
            timing=timing,
            live=None
            if record_misses is None
            else stack.enter_context(
                _live(record_misses, opened, private, _origins(ca_file, insecure, upstream, client_cert))
            ),
            on_miss=on_miss,
            draw=_status_page,
        )
        yield Replay(stack.enter_context(gateway))


@contextmanager
def _live(
    out: StrPath, snapshot: Snapshot, private: bool, origins: Mapping[str, Any]
) -> Iterator[LiveRequests]:
    """Yield a way to the real web that records into the new snapshot `out`; `origins` are a `Recorder`'s options."""
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.extras import require
    from stillweb.snapshots.writer import Writer

    recording, asking = require("stillweb.proxy.record.recorder"), require("stillweb.proxy.record.live")
    provenance = provenance_now("replay, what it lacked", {})
    held = None if private else recording.private_places(capture.url for capture in snapshot.captures())
    with (
        Writer.open(out, provenance=provenance) as writer,
        recording.Recorder(writer, private=private, resolve=held, **origins) as recorder,
        asking.LiveRequests(recorder) as live,
    ):
        yield live


def check(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    *,
    parallel: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CheckReport:
    """Replay every view of a snapshot offline in a fresh browser, and compare text, accessibility tree and picture.

    `parallel` is the number of views at once, by default two for each core. `progress` is called with the number of views
    done and that of all. The result has `views`, `share(what)` and `passed(text, pixels)`. Raises MissingCapability
    without a browser.
    """
    from stillweb.proxy.check.check import check as look
    from stillweb.proxy.replay.gateway import Gateway

    with _opened(snapshot) as opened, Gateway(opened) as gateway:
        return look(opened, gateway, parallel=parallel, progress=progress)


@contextmanager
def _opened(snapshot: Snapshot | StrPath | Sequence[StrPath]) -> Iterator[Snapshot]:
    """Yield a snapshot; one that is given as paths is closed at the end."""
    if isinstance(snapshot, Snapshot):
        snapshot.must_be_open()
        yield snapshot
    else:
        with Snapshot.open(*_paths(snapshot)) as opened:
            yield opened


def refresh(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    misses: Sequence[StrPath] = (),
    pause: float = 0.5,
    ca_file: StrPath | None = None,
    private: bool = False,
    ignore_robots: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RefreshResult:
    """Record anew, into the new directory `out`, a snapshot's views with their steps and the pages that no view loaded.

    Only GET requests are repeated beside the views. The misses of the ledgers `misses` are recorded, too; with them, and
    unless `private`, only those addresses that are not public are asked that the snapshot holds. `pause` is the seconds
    between two pages of one host; `ca_file` as in `record`. Pages that robots.txt forbids are left out unless
    `ignore_robots`. `progress` is called with the number of pages asked for and that of all. Raises UsageError if `out`
    exists.
    """
    from stillweb.harness.curation.refreshing import refresh as record_anew

    with _opened(snapshot) as opened:
        return record_anew(
            opened, Path(out), list(map(Path, misses)),
            pause=pause, ca_file=Path(ca_file) if ca_file is not None else None, private=private,
            obey_robots=not ignore_robots,
            progress=progress or (lambda done, total: None),
        )  # fmt: skip


# --- snapshots compared and cut


def diff(
    a: Snapshot | StrPath | Sequence[StrPath],
    b: Snapshot | StrPath | Sequence[StrPath],
    *,
    tasks: StrPath | Iterable[Task | Mapping[str, Any]] | None = None,
    run: StrPath | Run | None = None,
    note: Callable[[str], None] | None = None,
) -> Diff:
    """Compare snapshot `b` with snapshot `a`; the result is `same` if nothing that is served differs.

    It lists what differs: `captures`, `failures` (of requests), `views`, `texts`, `profile` and `rules`. With `tasks`,
    a task set or Task objects, or `run`, a run on `a`, its `tasks` are those that the differences affect, with `reasons`;
    those of a run are found by what it used. `note` is called with each remark on the set. Raises UsageError if
    both are given, or if the run was made on another snapshot.
    """
    from stillweb.snapshots.operations.diff import diff as compare_snapshots

    if tasks is not None and run is not None:
        raise UsageError("diff: give tasks or run, not both")
    with _opened(a) as old, _opened(b) as new:
        found = compare_snapshots(old, new)
        if run is not None:
            from stillweb.harness.curation.affected import affected_by_run  # needs more than the core

            found.tasks = affected_by_run(Path(run), found)
        elif tasks is not None:
            from stillweb.harness.curation.affected import affected_tasks

            found.tasks = affected_tasks(_task_set(tasks, note), found, [*old.views(), *new.views()])
    return found


def drift(
    old: Snapshot | StrPath | Sequence[StrPath],
    new: Snapshot | StrPath | Sequence[StrPath],
    *,
    tasks: StrPath | Iterable[Task | Mapping[str, Any]] = (),
    note: Callable[[str], None] | None = None,
) -> Drift:
    """Say how far the site of `old` has drifted by the time of `new`; printing the result gives the report.

    Its `pages` and `tasks` map each page and task to a tier (same, text changed, shape changed, gold gone, unreachable)
    and the reason; `expired` are the tasks of the last two. `tasks` is a task set or Task objects; `note` is called with
    each remark on the set.
    """
    from stillweb.harness.curation.drift import drift as compare_pages

    task_set = _task_set(tasks, note)
    with _opened(old) as before, _opened(new) as after:
        return compare_pages(before, after, task_set)


def cut(
    snapshot: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    runs: Sequence[StrPath | Run] = (),
    ledgers: Sequence[StrPath] = (),
    pictures: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> CutReport:
    """Write the part of a snapshot, or of several as layers, that some runs and replays need; they repeat on it alike.

    `out` is a directory, or a file that ends in `.wacz`. `ledgers` are those of replays. `pictures` keeps the views of
    the pages that a run was at, which its report shows. `progress` is called with the number of sites done and that of
    all. The result has the new `id`, and as pairs of what was kept and what there was `captures`, `views`, `texts` and
    `size`. Raises UsageError without a run or a ledger, or for one of another snapshot, and GateFailed if the snapshot
    holds a secret that was learned too late to replace.
    """
    from functools import reduce
    from operator import or_

    from stillweb.harness.curation.needs import needs_of_ledger, needs_of_run
    from stillweb.snapshots.operations import late_secrets
    from stillweb.snapshots.operations.cut import cut as cut_out

    if not runs and not ledgers:
        raise UsageError("nothing says what is needed; name a run (--run DIR) or a ledger (--ledger FILE)")
    paths = _paths(snapshot)
    for path in paths:
        late_secrets.refuse(path)  # before the work
    with Snapshot.open(*paths) as opened:
        needs = [needs_of_run(Path(run), opened.id, pictures=pictures) for run in runs]
        needs += [needs_of_ledger(Path(ledger), opened) for ledger in ledgers]
    return cut_out(paths, reduce(or_, needs), out, progress=progress)


# --- coverage


def _task(task: Task | Mapping[str, Any]) -> Task:
    """Return a task, or that of a JSON object. Raises UsageError naming a wrong member."""
    from stillweb.harness.datasets.generic import build
    from stillweb.harness.datasets.records import Record, RecordError
    from stillweb.harness.task import Task

    try:
        return task if isinstance(task, Task) else build(Record(dict(task), "task", 0))
    except RecordError as error:
        raise UsageError(f"the task: {error}") from error


def _task_set(
    tasks: StrPath | Iterable[Task | Mapping[str, Any]],
    note: Callable[[str], None] | None = None,
    split: str | None = None,
) -> TaskSet:
    """Return the task set that is named, or Task objects as one; `note` is called with each remark on its records."""
    from stillweb.harness.datasets import load_tasks
    from stillweb.harness.task import TaskSet

    if not isinstance(tasks, str | os.PathLike):
        return tasks if isinstance(tasks, TaskSet) else TaskSet("tasks", tuple(map(_task, tasks)))
    loaded = load_tasks(os.fspath(tasks), split=split)
    if note is not None:
        for remark in loaded.remarks:
            note(remark)
    return loaded


def coverage(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    *,
    tasks: StrPath | Iterable[Task | Mapping[str, Any]] | None = None,
    run: StrPath | Run | None = None,
    synthetic_search: bool = False,
    check_references: bool = False,
    today: date | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Coverage:
    """Look up what a task set names, or what a run asked its tools for, in a snapshot or several as layers.

    Give `tasks`, a task set (a file, a folder, `hub:OWNER/NAME`) or Task objects, or `run`, a run or one trace of it.
    The result has `needs`, those that are `missing` or `doubtful`, `share`, and the records of the set that were
    `refused`. `synthetic_search` counts a search as answered if an index of the frozen texts answers it.
    `check_references` also audits the set: `findings` on reference values that no text holds, on answers given away
    and on dates that will have passed by `today`. `progress` is called with the number of tasks done and that of all.
    Raises UsageError unless one of `tasks` and `run` is given, or if references of a `run` are to be checked.
    """
    from dataclasses import replace
    from datetime import date

    from stillweb.harness.curation.audit import audit, cookie_dates
    from stillweb.harness.curation.coverage import coverage as look_up
    from stillweb.harness.curation.needs import tasks_as_asked
    from stillweb.harness.rubric import compile_rubrics
    from stillweb.harness.tools.toolset import Toolset, query_verdict
    from stillweb.proxy.net.ca import CERTIFICATE_FILE
    from stillweb.snapshots.secrets.keystore import state_dir

    if run is not None and check_references:
        raise UsageError("coverage: a run's trace has no reference answers. Give tasks to check them.")
    if run is not None and tasks is None:
        asked = _task_set(tasks_as_asked(Path(run)))
    elif tasks is not None and run is None:
        asked = _task_set(tasks)
    else:
        raise UsageError("coverage: give either tasks or run")
    with _opened(snapshot) as opened:
        search = query_verdict(Toolset(opened, ("serper-mcp",), synthetic_search=synthetic_search))
        found = look_up(asked, opened, search=search, progress=progress)
        found = replace(found, refused=tuple(map(str, asked.problems)))
        if check_references:
            ca = state_dir() / CERTIFICATE_FILE
            findings = audit(
                asked,
                opened.texts(),
                today=today or date.today(),
                rubrics=compile_rubrics([task for task in asked if task.scorer == "table"]),
                certificates=[ca] if ca.exists() else [],
                cookies=cookie_dates((c.url, opened.read(c).headers) for c in opened.captures()),
            )
            found = replace(found, findings=tuple(findings))
    return found


# --- tools


class Tools:
    """The frozen tools of one client, called without an event loop. Made by `tools`; a context manager.

    Each call runs on a thread of its own event loop, so that this works where another loop runs (a notebook).
    """

    def __init__(
        self,
        snapshot: Snapshot | StrPath | Sequence[StrPath],
        contracts: Sequence[str],
        session: str,
        options: Mapping[str, Any],
    ):
        from stillweb.harness.tools.toolset import Toolset, ToolThread

        with ExitStack() as stack:  # a snapshot given as paths is closed with the tools
            toolset = Toolset(stack.enter_context(_opened(snapshot)), contracts, **options)
            self.session = own = toolset.session(session)
            opened = stack.pop_all()
        self._thread = thread = ToolThread(toolset)

        def close() -> None:
            with opened:
                try:
                    thread.run(own.close())
                finally:
                    thread.close()

        self._close = weakref.finalize(self, close)

    def list(self) -> list[ToolSpec]:
        """Return the tools, each with `name`, `description`, `input_schema` and `contract`."""
        return self.session.list()

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Call a tool with the arguments of its contract.

        The result has `text`, `content` (MCP parts), `is_error` and `meta` (verdict, captures). A miss, an unknown
        tool and wrong arguments give the real tool's error with `is_error`; they raise nothing.
        """
        return self._thread.run(self.session.call(tool, arguments))

    def close(self) -> None:
        """End the session: browser, store and thread. A Snapshot that was given stays open."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def tools(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    *contracts: str,
    session: str = "default",
    accept: str = "rule",
    **options: Any,
) -> Tools:
    """Return the tools of some contracts ("fetch", "serper-mcp", "pdf-reader", "playwright-mcp"), answered offline.

    Without contracts these are the fetch tool's. `options` are those of `stillweb.harness.tools.Toolset`. Raises
    UsageError for an unknown contract.
    """
    return Tools(snapshot, contracts or ("fetch",), session, {"accept": accept, **options})


def serve(
    snapshot: Snapshot | StrPath | Sequence[StrPath],
    *contracts: str,
    transport: Literal["stdio", "http"] = "stdio",
    port: int = 0,
    ready: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """Serve the tools of some contracts by MCP until the client disconnects (stdio) or the process is asked to end (http).

    `contracts` and `options` are as in `tools`. `ready` is called with the address, on loopback, at which clients can
    connect by http; `port` 0 takes a free one. Raises UsageError for an unknown contract or transport, and
    MissingCapability if the port is in use.
    """
    from stillweb.harness.servers.mcp import serve as serve_tools
    from stillweb.harness.tools.toolset import Toolset

    with _opened(snapshot) as opened:
        serve_tools(Toolset(opened, contracts or ("fetch",), **options), transport, port, ready=ready)


def serve_live(
    out: StrPath,
    *contracts: str,
    private: bool = False,
    limits: ToolLimits | None = None,
    transport: Literal["stdio", "http"] = "stdio",
    port: int = 0,
    ready: Callable[[str], None] | None = None,
) -> list[tuple[str, str]]:
    """Serve tools that ask the real web by MCP, as `serve` does, and record what comes into the directory `out`.

    Unless `private`, addresses that are not public are refused, for a model chooses them. Return (URL, reason) of each
    request that was not recorded. Raises UsageError for a contract that can't record.
    """
    from stillweb.harness.servers.mcp import serve as serve_tools
    from stillweb.harness.tools.recording import recording_toolset
    from stillweb.proxy.record.recorder import tune_process

    tune_process()
    with recording_toolset(out, contracts or ("fetch",), limits=limits, private=private) as recorded:
        serve_tools(recorded, transport, port, ready=ready, writes=True)
        return list(recorded.recorder.failures)


# --- environments


def env(
    snapshot: Snapshot | StrPath,
    task: Task | Mapping[str, Any],
    *,
    contracts: Sequence[str] = ("fetch",),
    steps: int | None = 50,
    accept: str = "rule",
    context: Context | None = None,
    **options: Any,
) -> Environment:
    """Return an environment: a task on a snapshot, to be begun, stepped and rewarded by one's own loop.

    `task` is a Task or its JSON object. `steps` is the number of tool calls after which an episode is truncated.
    `context` has a judge and side-cars for scorers that need them; `options` are those of
    `stillweb.harness.tools.Toolset`. Raises UsageError for a wrong task, contract or scorer.
    """
    from stillweb.harness.environment import Environment
    from stillweb.harness.rubric import compile_rubrics
    from stillweb.harness.scoring import Context, find_scorer
    from stillweb.harness.tools.toolset import Toolset, ToolThread

    asked = _task(task)
    find_scorer(asked.scorer)
    if context is None:
        context = Context(rubrics=compile_rubrics([asked]) if asked.scorer == "table" else {})
    opened = snapshot if isinstance(snapshot, Snapshot) else Snapshot.open(snapshot)
    return Environment(
        ToolThread(Toolset(opened, _several(contracts), accept=accept, **options)), asked, steps, context
    )


# --- runs


@dataclass(frozen=True)
class Run:
    """A finished run: its directory, how many attempts were `made` now, and what it comes to.

    `certificate` is that of docs/certificate.md as JSON; its `hash` is what commands print.
    `different` are the attempts (TASK.NUMBER) whose score came out differently, of a run that was scored again.
    """

    path: Path
    certificate: dict[str, Any]
    made: int = 0
    different: tuple[str, ...] = ()

    @cached_property
    def summary(self) -> Summary:
        """Counts of attempts by status and end, means, tool calls, misses, tokens and cost."""
        from stillweb.harness.results.summary import summarise

        return summarise(self.path)

    @property
    def scores(self) -> dict[str, Mean]:
        """Means of the metrics: each has `mean`, over the attempts with a value, `mean_of_all`, `scored` and `of`."""
        return self.summary.means

    def __fspath__(self) -> str:
        return str(self.path)


def run(
    *,
    tasks: StrPath | Iterable[Task | Mapping[str, Any]],
    agent: str | Callable[..., Any],
    snapshot: Snapshot | StrPath | Sequence[StrPath] | None = None,
    out: StrPath,
    contracts: Sequence[str] = ("fetch",),
    split: str | None = None,
    only: Sequence[str] = (),
    limit: int | None = None,
    epochs: int = 1,
    parallel: int | None = None,
    accept: str = "rule",
    min_confidence: float = SERVED,
    synthetic_search: bool = False,
    limits: Limits | None = None,
    prices: Mapping[str, Mapping[str, float]] | None = None,
    tape: Literal["record", "replay", "auto", "none"] = "auto",
    tape_path: StrPath | None = None,
    rubrics: StrPath | None = None,
    grader_template: StrPath | None = None,
    uploads: StrPath | None = None,
    mode: Literal["faithful", "fixed"] = "faithful",
    ignore_case: bool = False,
    engine: Literal["local", "ray"] = "local",
    retry_failed: bool = False,
    allow_unconfined: bool = False,
    faults: Faults | Mapping[str, Any] | StrPath | None = None,
    at: str = "",
    timing: str = "none",
    display: Display | None = None,
    note: Callable[[str], None] | None = None,
) -> Run:
    """Run an agent on tasks against a frozen snapshot, score it and certify it. An unfinished run is continued.

    `tasks` is a task set (a file, a folder, `hub:OWNER/NAME`) or Task objects. `agent` is a name as on the command
    line (`openai:MODEL`, `command:PROGRAM`, `script:FILE`, `module:object`, a YAML file) or a function
    `agent(attempt)`, async or not, that returns the answer as text or None (docs/runs.md). It runs in a
    confined process of its own, closures and lambdas as copies; only one that can't be copied runs in this process, and the
    certificate's `confinement` says so. `snapshot` may be several layers; without one there are no tools. `out` is the run's directory.

    `contracts` are the tools that the agent gets. `split`, `only` (task ids) and `limit` choose tasks. `parallel` is the number
    of attempts at once, by default two for each core. `limits` are
    those of an attempt, by default 50 model calls, 200 tool calls and 1800 seconds. `prices` maps a model to money
    per million tokens. `mode` and `ignore_case` decide how answers are scored; `grader_template` replaces a grader's prompt. `faults` is a fault
    file, or its content; `at` is the date after which nothing is seen, `timing` the pace of answers (docs/drills.md). `note` is called with each remark.

    Raises UsageError for wrong settings, DamagedInput for damaged files and MissingCapability for what the machine
    lacks. Attempts that fail raise nothing: see `summary.failed`.
    """
    from stillweb.harness.agents import load_agent, name_of
    from stillweb.harness.agents.attempt import Limits
    from stillweb.harness.drills import read_faults
    from stillweb.harness.results.certificate import check_traces, write_certificate
    from stillweb.harness.rubric import compile_rubrics, load_rubrics
    from stillweb.harness.runs.run_files import Settings, scoring_variables
    from stillweb.harness.runs.runner import make_engine, run_attempts, start_run
    from stillweb.harness.scoring.grading import with_grader_template
    from stillweb.proxy.browser.running import pages_at_once
    from stillweb.proxy.replay.faults import read_pace
    from stillweb.snapshots.identity.accept_level import check_accept

    tell = note or (lambda text: None)
    disturbed = read_faults(faults)
    path = local(out)
    source = os.fspath(tasks) if isinstance(tasks, str | os.PathLike) else None
    for name, value in (("split", split), ("grader_template", grader_template)):
        if source is None and value is not None:
            raise UsageError(f"{name} is for a task set that is named, not for Task objects")
    task_set = _task_set(tasks, tell, split)
    if grader_template is not None:
        task_set = with_grader_template(task_set, Path(grader_template))
    spec = name_of(agent)
    # report its errors before a directory is made
    made_agent = load_agent(spec, allow_unconfined=allow_unconfined)
    paths = _paths(snapshot)
    for sentence in _remarks(spec, made_agent, task_set, paths, at):
        tell(sentence)
    tables = [task for task in task_set if task.scorer == "table"]
    compiled = load_rubrics(os.fspath(rubrics)) if rubrics is not None else compile_rubrics(tables)
    lacking = [t for t in tables if "rubric" not in t.options and not {t.id, t.base} & compiled.keys()]
    for base in dict.fromkeys(task.base or task.id for task in lacking):
        tell(f"no side-car for {base} in {rubrics}; it is compiled by rule")
    settings = Settings(
        agent=spec,
        snapshots=tuple(map(absolute, paths)),
        contracts=_several(contracts) if paths else (),
        accept=check_accept(accept),
        min_confidence=read_confidence(min_confidence),
        epochs=epochs,
        limits=limits or Limits(seconds=1800),
        synthetic_search=synthetic_search,
        tape=tape,
        tape_path=os.path.abspath(tape_path) if tape_path is not None else None,
        prices=prices or {},
        mode=mode,
        fold_case=ignore_case,
        directory=os.getcwd(),
        source=os.path.abspath(source) if source is not None and os.path.exists(source) else None,
        allow_unconfined=allow_unconfined,
        env=scoring_variables(os.environ),
        at=at or (snapshot.at if isinstance(snapshot, Snapshot) else ""),
        timing=timing if read_pace(timing) else "",
        faults=disturbed.source if disturbed is not None else {},
    )
    start_run(
        path,
        settings,
        task_set,
        rubrics=compiled,
        limit=limit,
        only=_several(only),
        refused=len(task_set.problems),
        uploads=Path(uploads) if uploads is not None else None,
    )
    made = run_attempts(
        path,
        engine=make_engine(engine, path, pages_at_once() if parallel is None else parallel),
        display=display,
        retry_failed=retry_failed,
    )
    if not made:
        tell(f"{path}: every attempt was made before, none now; another directory runs them again")
    return Run(path, write_certificate(path) if made else check_traces(path), made)


def score(
    run: StrPath | Run,
    *,
    write: bool = False,
    out: StrPath | None = None,
    tasks: StrPath | Iterable[Task | Mapping[str, Any]] | None = None,
    rubrics: StrPath | None = None,
    grader_template: StrPath | None = None,
    mode: Literal["faithful", "fixed"] | None = None,
    ignore_case: bool | None = None,
    ask_judge: bool = False,
    parallel: int = 2,
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> Run:
    """Compute every score of a run again, from its traces alone; the result's `different` came out differently.

    `write` replaces the old scores by the new ones; without it, a run with different scores has the certificate {}.

    With other rules the run is scored as a new one in the directory `out`. Rules are `tasks` (other references, scorers
    or options), `rubrics`, `grader_template`, `mode` and `ignore_case`, as in `run`. `ask_judge` asks judges again,
    those that GRADER_MODEL and the other variables name now, about `parallel` attempts at once. `progress` is called
    with the number of attempts done and that of all, `note` with each remark. Raises UsageError for other rules without
    `out`, and for tasks that ask other questions than the run's.
    """
    from stillweb.harness.results.certificate import check_traces, write_certificate
    from stillweb.harness.results.kept_certificate import find_difference, kept_hash, read_kept, short
    from stillweb.harness.results.scoring_otherwise import score_otherwise
    from stillweb.harness.results.summary import score_run
    from stillweb.harness.rubric import load_rubrics
    from stillweb.harness.runs.run_files import RunFiles
    from stillweb.harness.scoring.grading import with_grader_template
    from stillweb.harness.scoring.judging import judge_variables
    from stillweb.harness.task import TaskSet
    from stillweb.harness.trace import hashed_part

    path, tell = Path(run), note or (lambda text: None)
    advance = progress or (lambda done, total: None)
    rules = (tasks, rubrics, grader_template, mode, ignore_case, ask_judge or None)
    otherwise = any(rule is not None for rule in rules)
    if otherwise and out is None:
        raise UsageError(
            f"{path}: scored otherwise, a run is one of its own: name its directory with -o (out)"
        )
    if out is not None and (write or not otherwise):
        raise UsageError(
            "-o (out) goes with --tasks, --rubrics, --grader-template, --mode, --ignore-case or --ask-judge, and not with "
            "--write"
        )
    if out is None:
        changed = score_run(path, write=write, progress=advance)
        for one in changed:
            place, was, now = find_difference(hashed_part(one.before), hashed_part(one.after))
            tell(f"{one.attempt}: a score came out differently: {place}: {short(was)}, now {short(now)}")
        before = kept_hash(path)
        certificate = write_certificate(path) if write else {} if changed else check_traces(path)
        if certificate and not write and before not in (None, certificate["hash"]):
            tell(
                f"{path}: the earlier certificate ({before}) is not that of its traces, or of other code; made anew"
            )
        return Run(path, certificate, different=tuple(one.attempt for one in changed))
    task_set = _task_set(tasks, tell) if tasks is not None else None
    if grader_template is not None:
        asked = task_set if task_set is not None else TaskSet(str(path), tuple(RunFiles(path).tasks()))
        task_set = with_grader_template(asked, Path(grader_template))
    different = score_otherwise(
        path,
        Path(out),
        tasks=task_set,
        rubrics=load_rubrics(os.fspath(rubrics)) if rubrics is not None else None,
        mode=mode,
        fold_case=ignore_case,
        judges=judge_variables(os.environ) if ask_judge else None,
        parallel=parallel,
        progress=advance,
        note=tell,
    )
    return Run(Path(out), read_kept(Path(out)) or {}, different=tuple(different))


def fork(
    run: StrPath | Run,
    attempt: str,
    *,
    step: int,
    model: str,
    out: StrPath,
    retry_failed: bool = False,
    display: Display | None = None,
) -> Run:
    """Repeat an attempt of a run from its tape up to a step, and go on from there with another model.

    `attempt` is TASK.NUMBER, or TASK for its first. `step` is the first model call (from 1) that `model`, another one of
    the same provider, makes. `out` is the new run's directory; an unfinished fork in it is continued, and with
    `retry_failed` an attempt that failed is made again. Raises UsageError if the attempt can't be repeated up to there.
    """
    from stillweb.harness.results.certificate import check_traces, write_certificate
    from stillweb.harness.results.forking import fork_run
    from stillweb.harness.runs.runner import run_attempts

    path = local(out)
    fork_run(Path(run), attempt, path, step=step, model=model)
    made = run_attempts(path, display=display, retry_failed=retry_failed)
    return Run(path, write_certificate(path) if made else check_traces(path), made)


def certify(
    run: StrPath | Run,
    *,
    times: int = 2,
    parallel: int | None = None,
    snapshot: StrPath | Sequence[StrPath] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Certification:
    """Repeat a run from its tape in fresh processes, shuffled and in parallel, and compare the certificates.

    The result `holds`, with a `hash`, or has `differences`, the first of each repetition. `parallel` is the number of
    attempts at once, by default two for each core. `snapshot` is where the run's is on this machine, by default where
    the run names it, or beside it. `progress` is called with the number of repetitions done and that of all. Raises
    UsageError if the run can't be repeated.
    """
    from stillweb.harness.results.certificate import certify as repeat
    from stillweb.proxy.browser.running import pages_at_once

    return repeat(
        Path(run),
        times=times,
        parallel=pages_at_once() if parallel is None else parallel,
        snapshots=[absolute(path) for path in _paths(snapshot)],
        progress=progress,
    )


def _paths(snapshot: Snapshot | StrPath | Sequence[StrPath] | None) -> tuple[str, ...]:
    """Return the paths of a snapshot's layers, the lowest first."""
    if snapshot is None:
        return ()
    if isinstance(snapshot, Snapshot):
        return snapshot.paths
    if isinstance(snapshot, str | os.PathLike):
        return (os.fspath(snapshot),)
    return tuple(os.fspath(path) for path in snapshot)


def _several(texts: str | Iterable[T]) -> tuple[T, ...] | tuple[str, ...]:
    """Return texts that are given as a list, or one that is given alone."""
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _remarks(spec: str, agent: Any, tasks: Sequence[Task], paths: Sequence[str], at: str) -> Iterator[str]:
    """Yield what a person should know before a run of `agent` begins."""
    from stillweb.harness.agents.command import unset_notes
    from stillweb.harness.agents.predictions import PredictionsAgent
    from stillweb.harness.agents.script import ScriptAgent
    from stillweb.harness.console import damage_notes

    if isinstance(agent, PredictionsAgent) and (missing := agent.check(task.id for task in tasks)):
        yield missing
    if isinstance(agent, ScriptAgent):
        for sentence in agent.not_among([task.id for task in tasks]):
            yield f"{spec}: {sentence}"
    if not paths and getattr(agent, "needs_gateway", False):
        yield "no snapshot: the program has no frozen web, and only network isolation keeps it from the real one"
    if spec.startswith("function:"):
        yield f"{spec}: no other process can import it, so `certify` can't repeat the run; define it in a module of its own"
    if trusted := getattr(agent, "trusted", ""):
        yield f"{trusted}; it runs in this process, where it can read the reference answers"
    yield from unset_notes(spec, getattr(agent, "pass_env", ()))
    if paths:
        with Snapshot.open(*paths, at=at) as snapshot:
            yield from damage_notes(snapshot)


def compare(
    a: StrPath | Run, b: StrPath | Run | None = None, *, metric: str | None = None, seed: int = 0
) -> RunComparison:
    """Compare run `b` with run `a`, paired by task and clustered by base task; printing it gives the report.

    Of one run, its goal is compared with its constraint forms. `metric` defaults to the one that ranks each task;
    `seed` is of the resampling. Raises UsageError if the runs share no task or have no such metric.
    """
    from stillweb.harness.compare.compare import compare_runs

    return compare_runs(Path(a), Path(b) if b is not None else None, metric=metric, seed=seed)


def publish(source: StrPath | Run, to: str, *, replace: bool = False) -> Publication:
    """Publish a finished run with its sealed snapshots, or a sealed snapshot. Files that are there are not sent again.

    `to` is `hub:OWNER/SET`, `oci://HOST/NAME:TAG`, an fsspec URL or a directory (docs/sharing.md). The result has
    `address` and the numbers of `files` and of those `sent`. Raises UsageError if something else is there and `replace`
    is False, and GateFailed if a snapshot holds a secret that was learned too late to replace.
    """
    from stillweb.harness.export.publication import publish_to

    return publish_to(Path(source), to, replace=replace)


def pull(address: str, out: StrPath) -> list[str]:
    """Copy what was published, or one remote file, to the new directory `out`; return the names of its files.

    Every digest is checked. Raises UsageError if `out` is not empty, DamagedInput for a file that is not as published.
    """
    from stillweb.harness.export.publication import pull as copy

    return copy(address, Path(out))


def _naming_extras(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of this module that raises MissingCapability, with the extra, for a module that is not installed."""

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except ModuleNotFoundError as error:
            from stillweb.snapshots.extras import missing_extra

            raise missing_extra(error) or error from error

    return call


for _name, _value in list(globals().items()):
    if isfunction(_value) and _value.__module__ == __name__ and not _name.startswith("_"):
        globals()[_name] = _naming_extras(_value)
