from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from stillweb.harness._parsing import read_lines
from stillweb.harness.commands.options import (
    ORIGIN_OPTIONS,
    OUT,
    PATH,
    FiniteRange,
    LocalPath,
    OptionFor,
    engine_option,
    origin_options,
    read_headers,
    read_tasks,
)
from stillweb.harness.commands.program import ADVICE, WithProgram, only_with_program, program_of, used_browser
from stillweb.harness.console import say, say_failures, status_line, table
from stillweb.snapshots.contents.failures import failures_message
from stillweb.snapshots.errors import GateFailed, UsageError
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.api import Recording
    from stillweb.harness.task import Task
    from stillweb.proxy.browser.options import BrowserOptions
    from stillweb.proxy.browser.steps import Flow
    from stillweb.proxy.explore.explorer import Limits
    from stillweb.proxy.explore.moves import Choices
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.contents.provenance import Provenance
    from stillweb.snapshots.operations.late_secrets import LateSecret
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.writer import Place

explore_option = partial(click.option, cls=OptionFor, needs="--explore", show_default=True)
MOST_LATE = 10  # records with late secrets named in the output


@click.command("record", cls=WithProgram)
@click.argument("urls", nargs=-1)
@click.option("-o", "--out", required=True, type=OUT, help="The snapshot directory to write.")
@click.option("--urls", "url_file", type=PATH, help="A file with one URL a line.")
@click.option("--tasks", type=LocalPath(exists=True), help="A task set: record every address that it names.")
@click.option(
    "--steps",
    type=PATH,
    help="A YAML file of steps (select, fill, click, …), each of which gives a view (docs/views.md).",
)
@click.option("--misses", type=PATH, help="The ledger of a replay: record just what it lacked.")
@click.option(
    "--explore",
    type=click.IntRange(1),
    help="Operate the page, and record up to N of the views that this finds.",
)
@explore_option("--depth", default=2, type=click.IntRange(1), help="most actions in a row.")
@explore_option("--seconds", type=FiniteRange(0, min_open=True), default=900.0, help="when to stop.")
@explore_option("--delay", type=FiniteRange(0), default=0.5, help="seconds between two actions on a host.")
@explore_option(
    "--values",
    type=PATH,
    help="words for search fields, one a line.",
)
@explore_option(
    "--links",
    type=click.Choice(["near", "site", "none"]),
    default="near",
    help="links to follow: to the same path with another query, on the whole site, or none.",
)
@explore_option("--ignore-robots", is_flag=True, show_default=False, help="do not ask robots.txt.")
@click.option(
    "--locale", metavar="TAG", help="The browser's language, as de-DE. [default: the tasks', or en-US]"
)
@click.option("--timezone", metavar="ZONE", help="The browser's time zone, as Europe/Berlin. [default: UTC]")
@click.option("--viewport", metavar="WxH", help="Size of the page in pixels. [default: 1280x800]")
@click.option("--device", metavar="NAME", help='A device of Playwright\'s list, as "Pixel 7".')
@click.option("--user-agent", metavar="TEXT", help="The browser's name for itself.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header that the browser sends with every request. One with a secret is not kept.",
)
@click.option(
    "--clock",
    metavar="TIME",
    help="Where the pages' clock starts, as 2026-11-24T10:00:00Z. [default: the present]",
)
@click.option(
    "--storage-state",
    metavar="FILE",
    help="Cookies and local storage to begin with, as Playwright writes them after a login by hand.",
)
@click.option("--headful", is_flag=True, help="Show the browser's window.")
@click.option(
    "--cdp",
    metavar="URL",
    help="Use the browser that listens there (--remote-debugging-port), with its cookies and storage.",
)
@click.option("--pdfs", is_flag=True, help="Fetch linked PDFs too.")
@click.option(
    "--parallel",
    type=click.IntRange(1, 16),
    help="Pages at once. [default: two for each core, at most 16; with --explore 2]",
)
@click.option(
    "--session",
    default="default",
    show_default=True,
    help="Name of PROGRAM's session. Programs recorded under one name count as one client that goes on: give each its own to replay it alone.",
)
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="The recorder's port; 0 takes a free one."
)
@click.option(
    "--resolve", multiple=True, metavar="HOST=ADDRESS:PORT", help="Connect to ADDRESS:PORT for HOST."
)
@origin_options
@click.option(
    "--private/--no-private",
    default=None,
    help="Connect to addresses that are not public, too: this machine, private networks, metadata of clouds. "
    "[default: --private; with --misses only to those that the snapshot holds]",
)
@click.option(
    "--no-proxy",
    multiple=True,
    metavar="HOST",
    help="PROGRAM asks HOST itself, past the recorder: a model whose answers are not to be frozen, say.",
)
@click.option("--isolate", is_flag=True, help="Leave PROGRAM no way past the recorder.")
@engine_option("Record each URL")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    urls: tuple[str, ...],
    out: Path,
    url_file: Path | None,
    tasks: str | None,
    steps: Path | None,
    misses: Path | None,
    explore: int | None,
    depth: int,
    seconds: float,
    delay: float,
    values: Path | None,
    links: str,
    ignore_robots: bool,
    pdfs: bool,
    parallel: int | None,
    session: str,
    port: int,
    resolve: tuple[str, ...],
    private: bool | None,
    no_proxy: tuple[str, ...],
    isolate: bool,
    engine: str,
    **options: Any,
) -> int:
    """Record URLS with a browser, or whatever PROGRAM fetches, into the snapshot directory OUT.

    \b
    stillweb record https://example.com -o site --pdfs
    stillweb record -o site --steps steps.yaml           URLs and steps from a file
    stillweb record https://example.com -o site --explore 50
    stillweb record https://example.com -o site --locale de-DE --device "Pixel 7"
    stillweb record https://example.com -o site --storage-state login.json
    stillweb record https://example.com -o site --cdp http://127.0.0.1:9222
    stillweb record -o site -- python agent.py           whatever the program fetches
    stillweb record -o more --misses ledger.jsonl        what a replay lacked, as a layer
    stillweb record --urls urls.txt -o site --engine ray each URL by a worker of a cluster
    """
    from stillweb.api import record
    from stillweb.proxy.net.client_env import direct_hosts
    from stillweb.proxy.record.recorder import private_places, tune_process
    from stillweb.snapshots.contents.provenance import provenance_now
    from stillweb.snapshots.identity.sites import host_of

    tune_process()
    program = program_of(ctx)
    past = direct_hosts(no_proxy)
    only_with_program(program, {"--no-proxy": past, "--isolate": isolate, "--session": session != "default"})
    task_set = read_tasks(tasks) if tasks else None
    wanted = _wanted(urls, url_file, task_set or ())
    flows = _flows(steps)
    if program and (wanted or flows):
        raise click.UsageError("give either URLs or a program after '--', not both")
    if not (program or wanted or flows or misses):
        raise click.UsageError(
            "nothing to record; give URLs, --urls, --tasks, --steps, --misses or '-- PROGRAM'"
        )
    if misses and (program or wanted or flows):
        raise click.UsageError("--misses stands alone: no URLs, steps or program beside it")
    _check(wanted, flows, steps, explore is not None)
    origins = {name: options.pop(name) for name in ORIGIN_OPTIONS}
    given = {**options, "headers": dict(read_headers(options["headers"]))}  # of the browser
    if (program or misses) and any(given.values()):
        name = next(name for name, value in given.items() if value).replace("_", "-").removesuffix("s")
        raise click.UsageError(
            f"--{name} is for the browser that records URLs: leave it out with a program or --misses"
        )
    entries = None
    if misses:
        from stillweb.proxy.replay.ledger import read

        entries = read(misses)
        if not entries:
            raise click.UsageError(f"{misses}: holds no requests")
    places = _places(resolve)
    if private is None:
        private = entries is None
        # a model may have chosen what was missed, and its owner what was recorded
        places = {**private_places(_held(entries or ())), **places}
    limits = choices = None
    if explore is not None:
        from stillweb.proxy.explore.explorer import Limits
        from stillweb.proxy.explore.moves import Choices

        limits = Limits(explore, depth, seconds, delay, parallel or 2, not ignore_robots)
        choices = Choices(values=read_lines(values) if values else [], links=links)
    browser = None if program or misses else _options(steps, task_set or (), given)
    origin = f"program {Path(program[0]).name}" if program else "ledger" if misses else "browser"
    provenance = provenance_now(origin, _chosen(ctx))
    if engine == "ray":
        alone = {
            "PROGRAM": program, "--misses": misses, "--explore": explore, "--cdp": given["cdp"],
            "--headful": given["headful"], "--port": port,
        }  # fmt: skip
        if named := next((name for name, value in alone.items() if value), None):
            raise click.UsageError(f"--engine ray records URLs by browsers of its own: not with {named}")
        code = _browse_on_cluster(
            wanted, flows, out, browser, pdfs, parallel, provenance,
            {"resolve": places, "private": private, "upstream_ca": origins.pop("ca_file"), **origins},
        )  # fmt: skip
        return max(code, 1) if task_set and task_set.problems else code
    again = (out / "archive").is_dir()
    recording: Recording | None = None
    try:
        with (
            status_line() as show,
            record(
                out,
                browser=browser,
                private=private,
                resolve=places,
                port=port,
                on_status=lambda stats: show(stats.line()),
                provenance=provenance,
                **origins,
            ) as recording,
        ):
            since = recording.writer.place
            for repair in recording.writer.repairs:
                say(f"repaired: {repair}")
            if program:
                code = recording.run(program, session=session, no_proxy=past, isolate=isolate)
            elif entries is not None:
                code = _record_misses(recording.recorder, entries)
            elif limits is not None and choices is not None:
                code = _explore(recording, wanted, limits, choices, pdfs, show)
            else:
                results = recording.visit_all(
                    wanted,
                    flows,
                    pdfs=pdfs,
                    parallel=parallel,
                    progress=lambda url, event: show(f"{event}: {url}"),
                )
                _show_rows([result.row() for result in results])
                code = 1 if any(not result.ok for result in results) else 0
    except GateFailed:
        if recording is None or not recording.late:
            raise
    finally:
        if recording is not None:
            _say_late(out, recording.late)
    recorder = recording.recorder
    if not misses:  # `record_misses` has printed them
        say_failures(recorder.failures)
    if program:  # a browser cancels requests that its page no longer needs
        for url, count in Counter(recorder.given_up).items():
            say(f"given up by the client: {url}{f' ({count} times)' if count > 1 else ''}")
    if recorder.errands:
        hosts = sorted({host_of(url) for url, _ in recorder.errands})
        say(f"not recorded, and not needed: requests of the browser itself ({', '.join(hosts)})")
    if program and not (recording.writer.captures or recorder.stats.requests):
        say(
            f"nothing was recorded: {program[0]} made no requests, they went past the proxy, or it does not "
            "trust our certificate "
            '(see docs/clients.md, "What a client must be told"; --isolate leaves no way past)'
        )
        code = max(code, 1)
    if program and used_browser(out, recorder.captures_of(session)):
        say(
            "a library told the browser that it drives what to do through the proxy: that is recorded, with all that was "
            f"typed, and no replay can start a browser so. Record it anew, and {ADVICE}"
        )
    if recording.late or (task_set and task_set.problems):
        code = max(code, 1)
    for line in advice(reason for _, reason in recorder.failures):
        say(line)
    if recorder.unanswered:
        say(f"{out}: {failures_message(recorder.unanswered)}")
    say(f"{out}: {recorder.stats.line()}")
    if again and recording.writer.captures:
        _say_changed(out, since)
    return code


def _check(urls: Sequence[str], flows: Sequence[Flow], steps: Path | None, explore: bool) -> None:
    """Raise UsageError for arguments that would have no effect, before a directory is made."""
    if explore and flows:
        raise click.UsageError("--explore finds its own steps: no --steps beside it")
    if explore and not urls:
        raise click.UsageError("--explore needs a URL to begin at")
    if not urls and any(flow.url is None for flow in flows):
        raise click.UsageError(
            f"{steps}: these steps are for no URL; give one, or name it in the file (url: …)"
        )
    if urls or flows:
        # imported here because it loads the browser's library, which a program does not need
        from stillweb.proxy.browser.capture_view import plan

        plan(urls, flows)


def _say_changed(out: Path, since: Place) -> None:
    """Print which requests have a new answer: both are kept, and a replay gives the earlier one first."""
    from stillweb.snapshots import Snapshot

    with Snapshot.open(out) as snapshot:
        changed = changed_captures(snapshot, since)
    if changed:
        say(
            f"{out}: {pluralize(len(changed), 'request')} that it held answered otherwise now (first: "
            f"{changed[0].method} {changed[0].url}); both answers are kept, and the earlier one is served first. "
            "For the site as it is now, record into another directory"
        )


def changed_captures(snapshot: Snapshot, since: Place) -> list[Capture]:
    """Return the first new capture of each request that has another answer than before.

    `since` is the writer's `place` when it was opened. Both answers stay in the snapshot, and a replay may give the
    earlier one; the user, who may want the site as it is now, must be told.
    """
    from stillweb.snapshots.identity.sites import site_of
    from stillweb.snapshots.request import SAFE_METHODS
    from stillweb.snapshots.writer import OURS

    known: dict[str, set[tuple[int, str]]] = {}
    later: list[Capture] = []
    for capture in snapshot.captures():
        if OURS.fullmatch(capture.place[0]) and capture.place >= since:
            later.append(capture)
        else:
            known.setdefault(capture.key, set()).add((capture.status, capture.digest))
    found: dict[str, Capture] = {}
    # sessions and sites: what comes after a write may differ because of it
    wrote: set[tuple[str, str]] = set()
    for capture in sorted(later, key=lambda one: one.place):
        name = capture.session, site_of(capture.url)
        if capture.method not in SAFE_METHODS:
            wrote.add(name)
        if name in wrote:
            continue
        answers = known.get(capture.key)
        if answers and (capture.status, capture.digest) not in answers:
            found.setdefault(capture.key, capture)
    return list(found.values())


def _say_late(out: Path, found: Sequence[LateSecret]) -> None:
    """Print the records with a secret that was learned after they were written."""
    from stillweb.snapshots.operations import late_secrets

    for one in found[:MOST_LATE]:
        say(str(one))
    if len(found) > MOST_LATE:
        say(f"and {len(found) - MOST_LATE} more")
    if found:
        say(
            f"{out} holds secrets that were learned too late to replace. Don't publish it unless the account is "
            f"disposable; see {out / late_secrets.FILE}"
        )


def _wanted(urls: Sequence[str], url_file: Path | None, tasks: Iterable[Task]) -> list[str]:
    found = list(urls)
    if url_file:
        lines = [line for line in read_lines(url_file) if not line.startswith("#")]
        if lines and lines[0].startswith("{"):
            raise UsageError(f"{url_file}: holds JSON, not one URL a line; a task set is recorded by --tasks")
        found += lines
    if tasks:
        from stillweb.harness.curation.coverage import urls_of

        found += [url for task in tasks for url in urls_of(task)]
    return list(dict.fromkeys(found))


def _flows(steps: Path | None) -> list[Flow]:
    if steps is None:
        return []
    from stillweb.proxy.browser.steps import load_flows

    flows = load_flows(steps)
    if not any(flow.url or flow.steps for flow in flows):
        raise click.UsageError(f"{steps}: holds no steps")
    return flows


def _held(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield URLs that a ledger shows to be in the snapshot: of what it answered, and of what came nearest to a miss."""
    for entry in entries:
        if entry.get("capture"):
            yield entry["url"]
        yield from (near["url"] for near in entry.get("nearest") or ())


def _places(resolve: Sequence[str]) -> dict[str, tuple[str, int]]:
    places = {}
    for item in resolve:
        host, _, place = item.partition("=")
        address, colon, port = place.rpartition(":")
        if not (host and address and colon and port.isdigit()):
            raise click.UsageError(f"--resolve {item!r}: write HOST=ADDRESS:PORT")
        places[host] = (address.strip("[]"), int(port))
    return places


def _chosen(ctx: click.Context) -> dict[str, str | int | float | bool]:
    """Return the options given that are switches, numbers or one of some words: none of them can hold a secret."""
    given: dict[str, Any] = {}
    for option in ctx.command.params:
        value = ctx.params.get(option.name or "")
        by_hand = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if by_hand and (isinstance(value, int | float) or isinstance(option.type, click.Choice)):
            given[str(option.name)] = value
    return given


def _options(steps: Path | None, tasks: Iterable[Task], given: dict[str, Any]) -> BrowserOptions:
    """Return the browser options: of the command line, else of the steps file, else the tasks' language."""
    from stillweb.proxy.browser.options import BrowserOptions, browser_options, is_locale
    from stillweb.proxy.browser.steps import load_browser

    languages = sorted({str(task.meta.get("language") or "") for task in tasks})
    found = BrowserOptions()
    if len(languages) == 1 and is_locale(languages[0]):
        found = browser_options({"locale": languages[0]}, "tasks")
    if steps is not None:
        found = found.with_defaults(browser_options(load_browser(steps), str(steps), steps.parent))
    found = found.with_defaults(browser_options(given, "record"))
    if len(languages) > 1 and "locale" not in found.settings:
        listed = ", ".join(language or "none" for language in languages)
        say(f"the tasks name several languages ({listed}), a snapshot has one locale: choose it by --locale")
    return found


def _browse_on_cluster(
    urls: list[str],
    flows: list[Flow],
    out: Path,
    options: BrowserOptions | None,
    pdfs: bool,
    parallel: int | None,
    provenance: Provenance,
    recorder: Mapping[str, Any],
) -> int:
    """Record each URL by a worker of a Ray cluster, and print what came of it; return the exit code."""
    from stillweb.proxy.browser.jobs import record_on_cluster
    from stillweb.snapshots.operations import late_secrets
    from stillweb.snapshots.secrets.keystore import state_dir
    from stillweb.snapshots.secrets.redact import Redactor

    assert options is not None
    with status_line() as show:
        results = record_on_cluster(
            urls, flows, out, options, pdfs=pdfs, parallel=parallel, provenance=provenance, recorder=recorder,
            progress=lambda url, event: show(f"{event}: {url}"),
        )  # fmt: skip
    failures = [failure for result in results for failure in result.failures]
    _show_rows([result.row for result in results])
    say_failures(failures)
    found = late_secrets.look_through(out, Redactor.for_snapshot(out, state_dir(), keep=True))
    _say_late(out, found)
    for line in advice(reason for _, reason in failures):
        say(line)
    if unanswered := sum(result.unanswered for result in results):
        say(f"{out}: {failures_message(unanswered)}")
    say(f"{out}: {sum(result.captures for result in results)} captured by {pluralize(len(results), 'job')}")
    return 1 if found or any(result.row["result"] != "captured" for result in results) else 0


def _show_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    click.echo(
        table(
            ["result", "views", "captures", "files", "URL", "why"],
            [
                [
                    r["result"],
                    str(r["views"]),
                    str(r["captures"]),
                    str(r["documents"]),
                    r["url"],
                    (r["why"] or "").removeprefix(f"{r['url']}: "),  # the URL is in its own column
                ]
                for r in rows
            ],
        )
    )


def _record_misses(recorder: Recorder, entries: list[dict[str, Any]]) -> int:
    """Send each request that a replay missed through the recorder; return the exit code."""
    from stillweb.harness.curation.missing import record_misses

    recorded, missing = record_misses(recorder, entries, say)
    recorder.wait_quiet(seconds=0.0, timeout=30.0)
    say(f"{recorded} of {missing} missing requests recorded")
    return 0 if recorded == missing else 1


_CLIENT = "TLS with the client failed"  # parts of the recorder's reasons
_WANTED = "--client-cert"
# reasons that trusting a CA does not repair
_BY_NOBODY = re.compile(r"expired|not yet valid|hostname mismatch|not valid for", re.I)


def advice(reasons: Iterable[str]) -> list[str]:
    """Return lines of advice for the reasons why requests could not be recorded."""
    certificates = [reason for reason in reasons if "certificate" in reason.lower() or _CLIENT in reason]
    lines = []
    if any(_CLIENT in reason for reason in certificates):
        lines.append('a client that mistrusts our certificate: docs/clients.md, "What a client must be told"')
    origins = [reason for reason in certificates if _CLIENT not in reason and _WANTED not in reason]
    if any(not _BY_NOBODY.search(reason) for reason in origins):
        lines.append(
            "to record an origin in spite of its certificate: --ca-file FILE (its authority) or --insecure"
        )
    elif origins:
        lines.append("to record an origin in spite of its certificate: --insecure")
    return lines


MOST_FILES = 5  # linked files named that were not fetched


def _explore(
    recording: Recording,
    urls: list[str],
    limits: Limits,
    choices: Choices,
    pdfs: bool,
    show: Callable[[str], None],
) -> int:
    """Explore each URL; with `pdfs` fetch linked PDFs. Return 1 if a URL has no view or a PDF failed, else 0."""
    from stillweb.proxy.explore.moves import FILE

    explorer = recording.explorer(limits, choices)
    failed = 0
    documents: dict[str, None] = {}
    for url in urls:
        graph = explorer.explore(url, lambda count, newest: show(f"{pluralize(count, 'view')}: {newest}"))
        rows = [[node.address, str(node.depth), node.title] for node in graph.views]
        click.echo(table(["view", "depth", "title"], rows))
        for steps, why in [*graph.failed, *graph.walls]:
            say(f"not stored: {steps}: {why}")
        for line in graph.robots:
            say(line)
        say(
            f"{url}: {pluralize(len(graph.views), 'view')}, {pluralize(len(graph.edges), 'way')} between them; {graph.ended or 'interrupted'}"
        )
        files = [address for address, why in graph.left if why == FILE]
        if pdfs:
            documents |= dict.fromkeys(address for address in files if _is_pdf(address))
            files = [address for address in files if not _is_pdf(address)]
        if files:
            say(
                f"{url}: {pluralize(len(files), 'linked file')} not fetched ({', '.join(files[:MOST_FILES])}"
                f"{', …' if len(files) > MOST_FILES else ''}); 'stillweb record -o {recording.writer.path} URL …' adds them"
            )
        failed += not graph.views
    if documents:
        results = recording.visit_all(documents, progress=lambda url, event: show(f"{event}: {url}"))
        for result in results:
            if not result.ok:
                say(f"not fetched: {result.error}")
        fetched = sum(result.ok for result in results)
        say(f"{fetched} of {pluralize(len(documents), 'linked PDF')} fetched")
        failed += len(documents) - fetched
    return 1 if failed else 0


def _is_pdf(address: str) -> bool:
    return urlsplit(address).path.lower().endswith(".pdf")
