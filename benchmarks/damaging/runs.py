"""Run directories: traces, tasks, settings, side-cars, tape and certificate harmed, and what is then said of them."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from benchmarks.damaging.bounded import Found
from benchmarks.damaging.harms import HARMS, Harmed, Spans
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from tests.support.openai_endpoint import KEY, Endpoint
from tests.support.runs import SHELF, bird_task, make_run

NAMES = ["right", "wrong", "silent", "babble", "broken"]


def digit(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """One digit is another: all reads as before, and says something else."""
    places = [found.start() for found in re.finditer(rb"[0-9]", data)]
    at = chance.choice(places)
    return Harmed(data[:at] + bytes([48 + (data[at] - 47) % 10]) + data[at + 1 :])


def letter(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """One letter is another."""
    places = [found.start() for found in re.finditer(rb"[a-z]", data)]
    at = chance.choice(places)
    return Harmed(data[:at] + bytes([97 + (data[at] - 96) % 26]) + data[at + 1 :])


def value(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A member of an object is of another type, or of another size."""
    places = list(re.finditer(rb'": ?("[^"]*"|[0-9.]+|true|false|null)', data))
    found = chance.choice(places)
    other = chance.choice(
        [b"null", b"[]", b"{}", b"-1", b"1e999", b'"\\ud800"', b"true", b"9" * 30, b'""', b"[" * 500]
    )
    return Harmed(data[: found.start(1)] + other + data[found.end(1) :])


def line(data: bytes, spans: Spans, chance: random.Random) -> Harmed:
    """A line is missing, or there twice, or two have changed places."""
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    made = {
        "missing": lines[:at] + lines[at + 1 :],
        "twice": lines[:at] + lines[at : at + 1] + lines[at:],
        "moved": lines[at:] + lines[:at],
    }[chance.choice(["missing", "twice", "moved"])]
    return Harmed(b"".join(made))


WAYS = {**HARMS, "digit": digit, "letter": letter, "value": value, "line": line}
NOT_OF_IT = "The certificate is not of the "
COMMANDS = ("score", "report", "compare", "certify")


@dataclass(slots=True)
class Run:
    """A run, undamaged, and the hash of its certificate."""

    path: Path
    hash: str
    report: str
    compared: str


@dataclass(frozen=True, slots=True)
class RunCase:
    """One harm to one file of one run, and the command that is to tell."""

    run: str
    file: str
    harm: str
    command: str
    seed: int

    @property
    def form(self) -> str:
        return f"run, {self.command}"

    @property
    def name(self) -> str:
        return f"{self.run}: {self.file}: {self.harm}, {self.command}, seed {self.seed}"


def make_runs(folder: Path) -> dict[str, Run]:
    """A run of a script, and one whose model is on tape."""
    found = {}
    for name in ("scripted", "taped"):
        (folder / name).mkdir()
        if name == "scripted":
            path = make_run(folder / name, NAMES).path
        else:
            path = _taped(folder / name)
        certificate = write_certificate(path)
        said = call("report", path, "-o", folder / f"{name}.html")
        assert said[0] == 0, said
        found[name] = Run(
            path,
            certificate["hash"],
            (folder / f"{name}.html").read_text(),
            call("compare", path, path, "--json")[1],
        )
    return found


def _taped(folder: Path) -> Path:
    with (
        Endpoint(lambda asked: "7|3900\n9|3700") as model,
        mock.patch.dict("os.environ", {"OPENAI_API_KEY": KEY}),
    ):
        env = {"OPENAI_BASE_URL": model.url}
        settings = Settings(agent="openai:a-model", contracts=(SHELF,), env=env)
        files = start_run(folder / "run", settings, [bird_task("right"), bird_task("wrong")])
        run_attempts(files.path, display=SilentDisplay())
    return files.path


def call(*words: object) -> tuple[int, str, str]:
    """Exit code, output and errors of a command, in this process. What escapes it is a bug."""
    from stillweb.harness.cli import main

    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            code = ended.code
    return int(str(code or 0)), out.getvalue(), err.getvalue()


def run_cases(made: dict[str, Run], seeds: int) -> Iterator[RunCase]:
    """All commands on all files; repeating a run takes seconds, and is done of a few."""
    for seed in range(seeds):
        chance = random.Random(seed)
        for name, run in made.items():
            files = sorted(
                p.relative_to(run.path).as_posix()
                for p in run.path.rglob("*")
                if p.is_file() and p.stat().st_size
            )
            for file in files:
                for harm in WAYS:
                    for command in COMMANDS[:3]:
                        yield RunCase(name, file, harm, command, seed)
                for harm in chance.sample(sorted(WAYS), 2):
                    yield RunCase(name, file, harm, "certify", seed)


def try_run(case: RunCase, made: dict[str, Run]) -> Found:
    """What is wrong with what a command says."""
    run = made[case.run]
    with tempfile.TemporaryDirectory(prefix="stillweb-damage-") as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run.path, copy)
        file = copy / case.file
        before = file.read_bytes()
        try:
            after = WAYS[case.harm](before, [], random.Random(case.name)).data
        except IndexError:
            return {}  # no digit, letter or value is there
        file.write_bytes(after)
        return dict(_said(case, run, copy, Path(folder), before == after))


def _said(case: RunCase, run: Run, copy: Path, folder: Path, same: bool) -> Counter[str]:
    page = folder / "report.html"
    words: dict[str, tuple[object, ...]] = {
        "score": (copy, "--json"),
        "report": (copy, "-o", page),
        "compare": (run.path, copy, "--json"),
        "certify": (copy, "--times", "1", "--json"),
    }
    code, out, err = call(case.command, *words[case.command])
    found: Counter[str] = Counter()
    if "Traceback" in err:
        found[f"crash: {err.strip().splitlines()[-1]}"] += 1
    if code not in (0, 1, 2, 3):
        found[f"exit code {code}: {err[-200:]}"] += 1
    if code in (2, 3) and not err.strip():
        found[f"nothing is said: exit code {code}"] += 1
    if code == 0:
        if (
            case.command == "score"
            and (said := json.loads(out).get("certificate", {}).get("hash")) != run.hash
            and "made anew" not in err  # of what is there now, and that it is another one is said
        ):
            found[f"doctored: score gives {said}"] += 1
        if case.command == "certify" and json.loads(out)["hash"] != run.hash:
            found["doctored: certify holds"] += 1
        if case.command == "report":
            shown = page.read_text()
            if run.hash in shown and _parts(shown) != _parts(run.report):
                found[
                    f"doctored: the report shows other things as certified: {_differing(run.report, shown)}"
                ] += 1
            elif run.hash not in shown and NOT_OF_IT not in shown:
                found["doctored: the report does not say that its certificate is not of it"] += 1
    # settings that differ are told by it
    if case.command == "compare" and code in (0, 1) and case.file != "run.json":
        told = out.replace(str(copy), str(run.path))
        if told != run.compared:
            found[f"doctored: compared: {_differing(run.compared, told)}"] += 1
    return found


def _parts(page: str) -> list[str]:
    """What is on a page, in whatever order: that of the tasks is no part of a run."""
    return sorted(page.split("<"))


def _differing(one: str, two: str) -> str:
    pairs = zip(one.splitlines(), two.splitlines(), strict=False)
    return next((f"{a[-150:]!r} {b[-150:]!r}" for a, b in pairs if a != b), "its length")
