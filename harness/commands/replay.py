from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillweb.harness.commands.options import (
    FILE,
    ORIGIN_OPTIONS,
    OUT,
    SNAPSHOT_TO_BE,
    accept_option,
    at_option,
    faults_option,
    local_copies,
    max_expected_wrong_option,
    min_confidence_option,
    origin_options,
    timing_option,
)
from stillweb.harness.commands.program import (
    ADVICE,
    WithProgram,
    is_browser_command,
    isolate_program,
    only_with_program,
    program_of,
)
from stillweb.harness.console import ServerEnd, make_search_ready, say, say_damage
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import SAFE_METHODS
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from subprocess import Popen


@click.command("replay", cls=WithProgram)
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT_TO_BE)
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one."
)
@accept_option
@min_confidence_option
@click.option("--isolate", is_flag=True, help="Run in a network namespace that has only loopback.")
@click.option(
    "--no-proxy",
    multiple=True,
    metavar="HOST",
    help="PROGRAM asks HOST itself, past the snapshot: a live model, say.",
)
@click.option(
    "--clock",
    metavar="MOMENT",
    help="PROGRAM's clock begins at MOMENT: 'recorded' (the first capture), or a time as 2026-11-24T10:00:00Z.",
)
@click.option("--ledger", type=OUT, help="Write a JSON line for each request (docs/ledger.md).")
@click.option(
    "--max-misses",
    type=click.IntRange(0),
    help="A gate: exit code 1 if more than N requests were not in the snapshot, or if PROGRAM (without --isolate) "
    "asked for nothing.",
)
@max_expected_wrong_option
@click.option(
    "--rules",
    type=FILE,
    help="Apply rules of your own, too (docs/identity.md); `seal --rules` keeps them in the snapshot.",
)
@click.option(
    "--stop-at-miss", is_flag=True, help="End PROGRAM, or the server, at the first miss, with exit code 1."
)
@click.option(
    "--record-misses",
    metavar="DIR",
    type=OUT,
    help="Ask live what is not in the snapshot, and keep it in the new snapshot DIR: a layer for the next replay. "
    "The next five options say how.",
)
@origin_options
@click.option(
    "--private/--no-private",
    help="With --record-misses: ask addresses that are not public, too. Those that the snapshot holds are always asked. "
    "[default: --no-private]",
)
@click.option(
    "--synthetic-search",
    is_flag=True,
    help="Answer searches at google.serper.dev that were never recorded from the frozen texts.",
)
@at_option
@faults_option
@timing_option
@click.option("--session", default="default", show_default=True, help="Name of PROGRAM's session.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    snapshots: tuple[Path | str, ...],
    isolate: bool,
    no_proxy: tuple[str, ...],
    clock: str | None,
    ledger: Path | None,
    max_misses: int | None,
    max_expected_wrong: float | None,
    rules: Path | None,
    stop_at_miss: bool,
    record_misses: Path | None,
    at: str,
    faults: str | None,
    timing: str,
    session: str,
    **options: Any,
) -> int:
    """Serve SNAPSHOTS (later ones lie over earlier ones) as a proxy that never connects to anything.

    \b
    stillweb replay site.wacz                                    print the address and serve
    stillweb replay site.wacz --isolate -- python agent.py       run a program against it
    stillweb replay site.wacz --max-misses 0 -- pytest           a gate: exit code 1 on a miss
    stillweb replay site.wacz --clock recorded -- python agent.py    as on the day of the recording
    stillweb replay site.wacz --record-misses more -- python agent.py    ask live what is missing
    stillweb replay site.wacz more -- python agent.py            with both
    """
    from stillweb.api import open as open_snapshot
    from stillweb.api import replay as replay_snapshot
    from stillweb.harness.drills import read_faults
    from stillweb.proxy.net.client_env import direct_hosts, ports_to_let_in
    from stillweb.proxy.net.clock import moment_of
    from stillweb.proxy.replay.answering import tune_process
    from stillweb.proxy.replay.faults import read_pace
    from stillweb.snapshots.dates import iso_date
    from stillweb.snapshots.errors import MissingCapability

    program = program_of(ctx)
    _check(snapshots, program)
    disturbed = read_faults(faults)
    read_pace(timing)
    past = direct_hosts(no_proxy)
    only_with_program(
        program, {"--no-proxy": past, "--clock": clock is not None, "--session": session != "default"}
    )
    _check_recording(record_misses, snapshots, isolate=isolate, stop_at_miss=stop_at_miss)
    if record_misses is None and (given := [name for name in (*ORIGIN_OPTIONS, "private") if options[name]]):
        name = given[0].replace("_", "-")
        raise click.UsageError(f"--{name} is for --record-misses: nothing is asked live without it")
    if isolate:
        from stillweb.proxy.net.isolation import canary

        snapshots = local_copies(snapshots)
        isolate_program(ports_to_let_in(past))
        proof = canary()
        say(proof.line())
        if proof.escaped:
            raise MissingCapability("the namespace has a way out, so it does not isolate")
    with open_snapshot(*snapshots, at=at) as snapshot:
        say_damage(snapshot)
        if rules is not None:
            snapshot.add_rules(rules)
        moment = moment_of(clock, snapshot) if clock is not None else None
        if options["synthetic_search"]:
            make_search_ready(snapshot)
        until = ServerEnd()
        programs: list[Popen[bytes]] = []

        def stop() -> None:
            until.end()
            for one in programs:
                one.terminate()

        with replay_snapshot(
            snapshot,
            ledger=ledger,
            record_misses=record_misses,
            on_miss=stop if stop_at_miss else None,
            faults=disturbed,
            timing=timing,
            **options,
        ) as replaying:
            tune_process()
            if program:
                if past:
                    say(f"asked directly, so in no ledger, and not the same each time: {', '.join(past)}")
                if moment is not None:
                    say(f"the program's clock begins at {iso_date(moment)}")
                code = replaying.run(
                    program, session=session, no_proxy=past, clock=moment, started=programs.append
                )
            else:
                with until.signals():
                    url = replaying.gateway.url
                    say(
                        f"serving snapshot {snapshot.id[:12]} at {url}; status at http://stillweb.local/ through it"
                    )
                    click.echo(url)
                    code = until.wait()
        book = replaying.ledger
        doubts = replaying.gateway.stats
        broken = replaying.gateway.failures
        misses = [entry for entry in book.misses() if not entry.get("irrelevant")]
        failed = [one for one in book if one["verdict"].startswith("failed:") and not one["irrelevant"]]
        # a browser whose pages bypass the proxy may still use it for its own requests
        unasked = bool(program) and all(entry.get("irrelevant") for entry in book)
    if broken:
        say(f"{pluralize(doubts.failures, 'error')} broke off answers; the last: {broken[-1]}")
    if unasked and not broken:
        say(
            f"{program[0]} asked the snapshot nothing: it made no requests, they went past the proxy, or it does "
            "not trust our certificate "
            '(see docs/clients.md, "What a client must be told"; --isolate leaves no way past)'
        )
    if failed:
        say(
            f"{pluralize(len(failed), 'request')} failed as while recording, which {'is' if len(failed) == 1 else 'are'} no "
            f"miss; first: {failed[0]['method']} {failed[0]['url']} ({failed[0]['verdict'].partition(':')[2]})"
        )
    if misses:
        say(
            f"{pluralize(len(misses), 'request')} {'was' if len(misses) == 1 else 'were'} not in the snapshot; first: "
            f"{misses[0]['method']} {misses[0]['url']}"
            f"{'; --ledger FILE lists them with what came nearest' if ledger is None else ''}"
        )
        if reason := _reason(misses[0]):
            say(f"  {reason}")
            if clock is None and _asks_for_today(misses[0]):
                say("  it asks for today; --clock recorded gives the program the day of the recording")
        if record_misses is not None:
            layers = " ".join(map(str, (*snapshots, record_misses)))
            say(f"{record_misses} has what was asked live: stillweb replay {layers}")
            if unknown := _writes_before_live(book):
                say(
                    f"{pluralize(len(unknown), 'request')} asked live after {unknown[0]['method']} {unknown[0]['url']}, which "
                    "the snapshot answered and the server never got: the live answers may be those of another state (no "
                    "login, an empty cart). Record the program anew instead: stillweb record -o DIR -- PROGRAM"
                )
        elif stop_at_miss:
            say("stopped at the first miss")
    if any(is_browser_command(m["method"], m["url"], m.get("body", "")) for m in misses):
        say(f"a library asked the proxy for the browser that it drives; {ADVICE}")
    if doubts.expected_wrong:
        say(
            f"{pluralize(doubts.presumed, 'answer')} presumed, of {pluralize(doubts.requests, 'request')}; "
            f"expected number of wrong answers: {doubts.expected_wrong:.2f}"
        )
    if max_expected_wrong is not None and doubts.expected_wrong > max_expected_wrong:
        return 1
    if stop_at_miss and misses:
        return 1
    if max_misses is not None and (len(misses) > max_misses or (unasked and not isolate)):
        return 1  # requests that bypassed the proxy are in no ledger
    return code


def _check_recording(
    directory: Path | None, snapshots: tuple[Path | str, ...], *, isolate: bool, stop_at_miss: bool
) -> None:
    """Raise UsageError where misses can't be recorded into a directory."""
    if directory is None:
        return
    if isolate or stop_at_miss:
        other = "--isolate" if isolate else "--stop-at-miss"
        raise click.UsageError(
            f"--record-misses asks the web, which {other} rules out; leave one of them out"
        )
    if directory.exists():
        layers = " ".join(map(str, (*snapshots, directory)))
        raise click.UsageError(
            f"--record-misses {directory}: exists; take it as a layer and another directory for what is still missed: "
            f"stillweb replay {layers} --record-misses DIR"
        )


def _reason(miss: Mapping[str, Any]) -> str:
    """Return why the snapshot has no answer to a request, or its nearest capture and the differences; else ""."""
    if "why" in miss:
        return f"why: {miss['why']}"
    for near in miss.get("nearest", ()):
        return f"nearest: {near['method']} {near['url']}, which differs in {'; '.join(near['differs'])}"
    return ""


def _writes_before_live(book: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return, for each request that was asked live, the first write of its session that the snapshot answered at its site before."""
    writes: dict[tuple[str, str], Mapping[str, Any]] = {}
    found = []
    for entry in book:
        place = entry["session"], site_of(entry["url"])
        if entry.get("live"):
            found += [writes[place]] if place in writes and entry["state"] else []
        elif entry["method"] not in SAFE_METHODS and 0 < entry["status"] < 400:
            writes.setdefault(place, entry)
    return found


def _asks_for_today(miss: Mapping[str, Any]) -> bool:
    """Return True if the nearest capture differs from a miss in today's date. In other places a capture's own date may stand."""
    for difference in (text for near in miss.get("nearest", ())[:1] for text in near["differs"]):
        asked, _, recorded = difference.partition(", recorded ")
        if ": asked " in asked and any(day in asked and day not in recorded for day in _today()):
            return True
    return False


def _today() -> set[str]:
    """Return today's date in the formats that programs use, in local time and UTC."""
    moments = (datetime.now(), datetime.now(UTC))
    return {moment.strftime(form) for moment in moments for form in ("%Y-%m-%d", "%Y%m%d", "%Y/%m/%d")}


def _check(snapshots: tuple[Path | str, ...], program: list[str]) -> None:
    """Raise UsageError for a missing snapshot; it may be a program given without `--`."""
    gone = next((path for path in snapshots if isinstance(path, Path) and not path.exists()), None)
    if gone is None:
        return
    if gone == snapshots[0] or program:
        raise click.UsageError(f"{gone}: no such file or directory")
    raise click.UsageError(
        f"{gone}: no such file or directory; a program to run comes after '--': -- {gone} …"
    )
