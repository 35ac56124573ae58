"""`python -m benchmarks.fuzz [--cases N] [--seed S] [--jobs J] [--only KIND]`: inputs that are wrong in what they mean.

Each input (`benchmarks.damaging.meaning`) is opened by some commands in this process: none may raise what the command line
takes for a bug, take more than `SECONDS` of the processor, or more than `MEMORY` beyond what the process has. `verify` is asked each time,
so that it never dies. A find names its number; `--case N` shows it again with its traceback.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from types import FrameType

import click

from benchmarks.damaging.bounded import Found, bounded
from benchmarks.damaging.meaning import KINDS, URL, Chance, Data, Masters, case, encoded, masters

SECONDS = 10  # of the processor, for a command on an input
MEMORY = 400  # MB that an input may add to the process
BUSY = 6  # times the processor's time that a batch may take on a machine that does other things too
TOGETHER = 50  # inputs of a process
TRACED = 5  # functions of ours that a find names


class TooSlow(BaseException):
    """An input took more than `SECONDS`."""


@click.command()
@click.option("--cases", default=2000, show_default=True, type=click.IntRange(1), help="Inputs.")
@click.option("--seconds", default=0.0, help="Begin no more inputs after so many seconds; 0: do all.")
@click.option("--seed", default=1, show_default=True)
@click.option("--first", default=0, show_default=True, help="The number of the first input.")
@click.option("--only", default="", type=click.Choice(["", *KINDS]), help="Inputs of this kind.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Processes at once.")
@click.option("--case", "number", default=-1, help="Try this input alone, and show its traceback.")
def main(cases: int, seconds: float, seed: int, first: int, only: str, jobs: int, number: int) -> None:
    """Try inputs that are wrong in what they mean; exit code 1 if one is a find."""
    with tempfile.TemporaryDirectory(prefix="stillweb-fuzz-") as folder:
        made = make_masters(Path(folder))
        if number >= 0:
            kind, data, chance = case(made, seed, number)
            click.echo(f"{kind}: {encoded(data)}")
            found = try_input(made, data, chance, Path(folder), shown=True)
        else:
            found = fuzz(made, seed, range(first, first + cases), jobs, seconds, only)
    click.echo(table(found))
    sys.exit(any(name.startswith("find") for name in found))


def make_masters(folder: Path) -> Masters:
    """Make the sound inputs in a folder: a snapshot, a HAR, flows and a run."""
    from tests.support.runs import make_run

    (folder / "run").mkdir()
    return masters(folder, make_run(folder / "run", ["right", "wrong"]).path)


def fuzz(
    made: Masters, seed: int, numbers: range, jobs: int, seconds: float = 0, only: str = ""
) -> Counter[str]:
    """Return what came of inputs, by kind: how many were taken, refused in a line, or are finds."""
    end = time.monotonic() + seconds if seconds else float("inf")
    batches = (
        numbers[at : at + TOGETHER] for at in range(0, len(numbers), TOGETHER) if time.monotonic() < end
    )
    found: Counter[str] = Counter()
    for batch, told in bounded(
        batches, partial(_batch, made=made, seed=seed, only=only), jobs, TOGETHER * SECONDS * BUSY
    ):
        for name, count in told.items():
            if name.startswith(("crash", "hang", "memory")):  # of the whole process: a signal, or no end
                name = f"find: {name} in {batch}"
            found[name] += count
            if name.startswith("find"):
                click.echo(name[:400], err=True)
    return found


def _batch(numbers: range, *, made: Masters, seed: int, only: str) -> Found:
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="stillweb-fuzz-") as folder:
        for number in numbers:
            kind, data, chance = case(made, seed, number)
            if only in ("", kind):
                for name, count in try_input(made, data, chance, Path(folder)).items():
                    found[
                        f"find: {number} {kind}{name[4:]}" if name.startswith("find") else f"{kind} {name}"
                    ] += count
    return dict(found)


def try_input(
    made: Masters, data: Data, chance: Chance, folder: Path, *, shown: bool = False
) -> Counter[str]:
    """Return what came of an input: "taken" or "refused", and each find with the functions that failed."""
    os.environ["STILLWEB_CACHE"] = str(folder / "cache")
    place = folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    commands = _commands(made, data, chance, place)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    codes, found = set(), Counter[str]()
    for words in commands:
        said, code = _call(words)
        if shown:
            click.echo(f"{' '.join(words)[:200]}: {code}\n{said[1][-3000:]}")
        codes.add(code)
        if code is None:
            found[f"find: {words[0]}: {said[0]}"] += 1
        elif code not in (0, 1, 2, 3) or said[1].startswith("Usage: "):
            found[f"find: {words[0]}: exit code {code}: {said[1][-200:]}"] += 1
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    if more > MEMORY:
        found[f"find: {more} MB"] += 1
    shutil.rmtree(folder / "cache", ignore_errors=True)
    found["taken" if codes <= {0, 1} else "refused"] += 1
    return found


def _commands(made: Masters, data: Data, chance: Chance, place: Path) -> list[list[str]]:
    """The words of some commands for an input, which is written into `place`."""
    name, content = data
    file = str(place / name)
    if name.endswith((".json", ".jsonl")) and name != "tasks.jsonl":
        run = place / "run"
        shutil.copytree(made.run, run)
        (run / name).write_bytes(content)
        ways = [
            ["score", str(run)],
            ["report", str(run), "-o", str(place / "r.html")],
            ["compare", str(made.run), str(run)],
        ]
        return chance.sample(ways, 2)
    (place / name).write_bytes(content)
    if name == "tasks.jsonl":
        site = place / "site.wacz"
        site.write_bytes(made.sealed)
        return [
            ["coverage", str(site), "--tasks", file, "--json"],
            ["coverage", str(site), "--tasks", file, "--check-references"],
        ]
    if name.endswith(".yaml"):
        return [["load", file]]
    out = str(place / "out")
    archive = place / "open" / "archive"  # as if a recording had left it
    archive.mkdir(parents=True)
    (archive / name).write_bytes(content)
    ways = [
        ["ls", file, "--json"], ["ls", file, "--views"], ["lookup", file, URL], ["lookup", file, f"{URL}b?_=1736000777001"],
        ["lookup", file, f"{URL}c", "-X", "POST", "-d", "csrf=zzzz&x=1", "--json"], ["fetch", file, URL], ["search", file, "hello"],
        ["import", file, "-o", out], ["diff", file, file], ["text", file, "--upgrade"], ["index", str(place / "open")],
    ]  # fmt: skip
    return [
        ["verify", file],
        *chance.sample(ways, 3),
        chance.choice(
            [
                ["verify", file, "--secrets"],
                ["seal", str(place / "open"), "-o", str(place / "sealed.wacz")],
                ["mutate", file, "-o", str(place / "mutated"), "--replace", "hello", "goodbye"],
                ["text", file, "--upgrade", "--accept", "-o", str(place / "texts")],
            ]
        ),
    ]


def _call(words: list[str]) -> tuple[tuple[str, str], int | None]:
    """What a command said, and its exit code: None for what the command line takes for a bug."""
    from stillweb.harness.cli import main as stillweb

    buffer = io.BytesIO()
    out, err = (io.TextIOWrapper(one, "utf-8", write_through=True) for one in (io.BytesIO(), buffer))
    code: int | None = 0
    trace = ""
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            _load(words[1]) if words[0] == "load" else stillweb(words)
    except SystemExit as end:
        code = int(str(end.code or 0))
    except BaseException as error:  # noqa: BLE001 -- that is what is looked for
        code = None
        ours = [
            f
            for f in traceback.extract_tb(error.__traceback__)
            if "stillweb" in f.filename or "/damage/" in f.filename
        ]
        trace = f"{type(error).__name__}: {str(error)[:100]!r} in " + " ".join(
            f"{Path(f.filename).name}:{f.lineno}" for f in ours[-TRACED:]
        )
        err.write(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return (trace, buffer.getvalue().decode()), code


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow(f"more than {SECONDS} s")


def _load(file: str) -> None:
    """Read a steps file or the file of a scripted agent, as `record` and `run` do before they begin."""
    from stillweb.harness.agents.script import ScriptAgent
    from stillweb.proxy.browser.steps import load_flows
    from stillweb.snapshots.errors import StillwebError

    try:
        if file.endswith("agent.yaml"):
            ScriptAgent.from_file(Path(file)).identity()
        else:
            load_flows(Path(file))
    except StillwebError as error:
        sys.exit(error.exit_code)


def table(found: Counter[str]) -> str:
    """What came of inputs, as Markdown."""
    lines = ["| kind | inputs | taken | refused in a line | finds |", "|---|---|---|---|---|"]
    for kind in KINDS:
        taken, refused = found[f"{kind} taken"], found[f"{kind} refused"]
        finds = sum(
            count for name, count in found.items() if name.startswith("find: ") and f" {kind}: " in name
        )
        lines.append(f"| {kind} | {taken + refused} | {taken} | {refused} | {finds} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
