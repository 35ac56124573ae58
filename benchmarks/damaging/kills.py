"""`python -m benchmarks.damaging.kills [--times N] [--only NAME] [--seed S]`: commands killed at random moments.

Each command runs once to its end; then so many times with SIGKILL to its process alone or SIGINT to its group, by turns, at
a random moment of that time. Afterwards no process of it runs, what has its final name is whole, what it read is as it
was, and the same command goes on to the same end, or says in a line what to do. After that nothing unfinished lies about.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.container import PACKAGE
from tests.harness import small_site
from tests.proxy.origin import Origin
from tests.support.command_line import Done, Started

CAPTURES = 400


def held(path: Path) -> int:
    """Return the number of captures of a snapshot."""
    with Snapshot.open(path) as snapshot:
        return sum(1 for _ in snapshot.captures())


def checked(path: Path) -> str:
    """Return what is wrong with a snapshot; "" if nothing is."""
    faults = [str(one) for one in verify(path)]
    return faults[0] if faults else ""


@dataclass
class Killed:
    """A command that is killed: its words, what it reads, and the file or directory that it makes."""

    words: list[str | Path]
    out: Path
    reads: list[Path] = field(default_factory=list)
    whole: Callable[[Path], str] = checked
    after_kill: Callable[[Path], str] | None = None  # None is `whole`
    grows: bool = False  # its result is there from the start, and the next command mends it
    keeps: str = "^$"  # names that a killed command may leave, as a regular expression


def commands(folder: Path, made: Path, origin: str) -> dict[str, Killed]:
    """Return the commands, each with inputs of its own below `folder`, copied from `made`."""
    site, wacz, out = folder / "site", folder / "site.wacz", folder / "out"
    return {
        "record": Killed(
            ["record", "-o", out, "--", "curl", "-so", "/dev/null", f"{origin}/noise/[0-39]"], out, grows=True
        ),
        "record by a browser": Killed(["record", f"{origin}/a", f"{origin}/b", "-o", out], out, grows=True),
        "seal": Killed(["seal", site], wacz, [site]),
        "index": Killed(["index", site], site, grows=True),
        "import": Killed(["import", made / "site" / "archive" / "data-00000.warc.gz", "-o", out], out, grows=True),
        "cut": Killed(["cut", site, "--ledger", made / "ledger.jsonl", "-o", folder / "cut.wacz"], folder / "cut.wacz", [site]),
        "cut to a directory": Killed(["cut", site, "--ledger", made / "ledger.jsonl", "-o", out], out, [site]),
        "run": Killed(
            ["run", "--tasks", str(made / "tasks.jsonl"), "--agent", f"script:{made / 'agent.yaml'}", "--snapshot", made / "site.wacz",
             "--epochs", "60", "-o", out], out, whole=lambda out: "", grows=True, keeps="out/interrupted",
        ),
        "publish": Killed(["publish", made / "site.wacz", "--to", out], out, whole=pulled, after_kill=pulled_or_refused),
        "publish a run": Killed(["publish", made / "run", "--to", out], out, whole=pulled, after_kill=pulled_or_refused),
        "pull": Killed(["pull", made / "published", "-o", out], out, whole=lambda out: checked(out / "site.wacz")),
    }  # fmt: skip


def pulled(published: Path) -> str:
    """Return what `pull` says of a publication; "" if it is whole."""
    with tempfile.TemporaryDirectory() as folder:
        done = Started("pull", published, "-o", Path(folder) / "p").end()
    return done.said if done.code else ""


def pulled_or_refused(published: Path) -> str:
    """Return what is wrong with a folder that a killed `publish` left; "" if nothing is.

    The list is sent last: a folder without it is not a publication, and `pull` says so in a line and writes nothing.
    """
    if (published / PACKAGE).exists():
        return pulled(published)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "p"
        done = Started("pull", published, "-o", out).end()
        if (
            done.code == 2
            and re.fullmatch(r"stillweb: error: \S+: no publication: .*", done.said)
            and not out.exists()
        ):
            return ""
    return f"pull of a folder without its list: {done.code} {done.said}"


def prepare(made: Path) -> None:
    """Make what the commands read."""
    made.mkdir()
    site = small_site.make(made / "site", CAPTURES, body=small_site.WORDS * 20)
    (made / "tasks.jsonl").write_text(
        '{"id": "one", "question": "?", "answer": "A page", "start_url": "https://a.test/0"}\n'
    )
    (made / "agent.yaml").write_text(
        "agent: script\ndefault:\n  steps:\n    - {call: fetch, with: {url: 'https://a.test/0'}}\n  answer: A page\n"
    )
    program = "import sys, urllib.request\nfor n in range(100): urllib.request.urlopen(f'https://a.test/{n}').read()"
    for words in (
        ["seal", str(site)],
        ["replay", str(site), "--ledger", str(made / "ledger.jsonl"), "--", sys.executable, "-c", program],
        ["run", "--tasks", made / "tasks.jsonl", "--agent", f"script:{made / 'agent.yaml'}", "--snapshot", str(made / "site.wacz"),
         "--epochs", "5", "-o", str(made / "run")],
        ["publish", str(made / "site.wacz"), "--to", str(made / "published")],
    ):  # fmt: skip
        done = Started(*words).end()
        assert done.code == 0, (words, done)


def fresh(folder: Path, made: Path) -> None:
    """Give a command inputs of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copytree(made / "site", folder / "site")


def start(killed: Killed) -> Started:
    """Start a command as a process of its own, not as a fork of this one."""
    return Started(*killed.words, close_fds=True)


def timed(killed: Killed, folder: Path, made: Path) -> float:
    """Run a command to its end; return its seconds."""
    fresh(folder, made)
    begun = time.monotonic()
    done = start(killed).end()
    assert done.code == 0, (killed.words, done)
    return time.monotonic() - begun


def listed(folder: Path) -> set[str]:
    """Return the names in a folder and below, with N for numbers and digests."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {re.sub(r"\d{4,}|[0-9a-f]{8,}", "N", name) for name in names}


def faults(killed: Killed, folder: Path, expected: set[str]) -> Iterator[str]:
    """Yield what is wrong after a kill: with what was written, with what was read, and with the command that follows."""
    for path in killed.reads:
        if held(path) != CAPTURES:
            yield f"what it read is damaged: {held(path)} captures"
    if killed.out.exists() and not killed.grows and (said := (killed.after_kill or killed.whole)(killed.out)):
        yield f"half a file under the final name: {said}"
    was = killed.out.exists()
    again = Started(*killed.words).end()
    if again.code and not (was and len(again.said.splitlines()) == 1):
        yield f"the same command again: {again.code} {again.err.strip()[-300:]}"
    elif again.code:
        told.append(again.said)
    if said := killed.whole(killed.out):
        yield f"after the same command again: {said}"
    left = {name for name in listed(folder) - expected if not re.match(killed.keeps, name)}
    if left:
        yield f"left behind: {sorted(left)[:5]}"


told: list[str] = []


@click.command()
@click.option("--times", default=20, show_default=True, help="Kills of each command.")
@click.option("--only", default="", help="Commands whose name this regular expression finds.")
@click.option("--seed", default=1, show_default=True)
def main(times: int, only: str, seed: int) -> None:
    """Print what came of the kills of each command; exit code 1 if one left something half done."""
    chance, found = random.Random(seed), 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with tempfile.TemporaryDirectory(prefix="stillweb-kills-") as root, Origin(small_site.answer) as origin:
        os.environ |= {"STILLWEB_STATE": f"{root}/state", "STILLWEB_CACHE": f"{root}/cache"}
        made, folder = Path(root, "made"), Path(root, "work")
        prepare(made)
        for name in commands(folder, made, origin.url):
            if not re.search(only, name):
                continue
            killed = commands(folder, made, origin.url)[name]
            took = min(timed(killed, folder, made) for _ in range(2))
            expected = listed(folder)
            ends: Counter[str] = Counter()
            told.clear()
            for number in range(times):
                fresh(folder, made)
                end, wrong = kill(
                    killed, chance.random() * took, signal.SIGINT if number % 2 else signal.SIGKILL
                )
                ends[str(end.code) if end else "none"] += 1
                for fault in [*wrong, *faults(killed, folder, expected)]:
                    found += 1
                    click.echo(f"  {name} {'SIGINT' if number % 2 else 'SIGKILL'}: {fault}")
            said = Counter(re.sub(r"/\S+", "…", line) for line in told)
            click.echo(f"{name}: {took:.1f} s, exit codes {dict(ends)}; said by the next {dict(said)}")
    sys.exit(bool(found))


def kill(killed: Killed, after: float, number: signal.Signals) -> tuple[Done | None, list[str]]:
    """Start a command, send a signal after some seconds, and wait until nothing of it is left."""
    started = start(killed)
    time.sleep(after)
    with contextlib.suppress(ProcessLookupError):  # it has ended
        if number == signal.SIGINT:
            started.interrupt()
        else:
            os.kill(started.process.pid, number)
    try:
        end = started.end()
    except AssertionError as error:
        # Python, or a program that is recorded, may have been interrupted before our code begins
        begun = "/stillweb/harness/" in str(error) or "Traceback" not in str(error)
        return None, [f"ended badly: {str(error)[-6000:]}"] if begun else []
    codes = {0, 130, -2} if number == signal.SIGINT else {0, -9}
    return end, [] if end.code in codes else [f"exit code {end.code}: {end.err[-300:]}"]


if __name__ == "__main__":
    main()
