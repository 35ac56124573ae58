"""Benchmarks of other distributions: installed, they are read and scored as Stillweb's own are."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stillweb.harness.benchmark import GROUP, PACKAGED, benchmarks

ROOT = Path(__file__).parents[3]
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "riddles"
version = "1"
[project.entry-points."stillweb.benchmarks"]
riddles = "riddles:BENCHMARK"
[tool.setuptools]
packages = ["riddles"]
"""
PACKAGE = """
from stillweb.harness.benchmark import Benchmark, ScorerInfo
BENCHMARK = Benchmark(
    kinds={"riddles": "riddles.records"},
    scorers={"riddle": ScorerInfo("riddles.scorer:score_riddle", ("solved", "length"), best=10.0)},
    variables="RIDDLE_",
)
"""
RECORDS = """
from stillweb.harness.task import Task
FIELDS = frozenset({"number", "riddle", "solution"})
def recognise(data): return "riddle" in data
def build(record): return Task(str(record.data["number"]), record.text("riddle"), record.text("solution"), "riddle")
"""
SCORER = """
from stillweb.harness.scoring import Score
def score_riddle(task, answer, context):
    most = float(context.env.get("RIDDLE_MOST", "10"))
    return Score({"solved": most if answer == task.reference else 0.0, "length": float(len(answer))})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages into which pip installed the distribution from its path."""
    source, site = tmp_path_factory.mktemp("riddles"), tmp_path_factory.mktemp("site")
    (source / "riddles").mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", PACKAGE), ("records", RECORDS), ("scorer", SCORER)):
        (source / "riddles" / f"{name}.py").write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", site, source], check=True, capture_output=True, timeout=300)
    return site


def stillweb(site: Path, folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stillweb", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{site}:{ROOT}", **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_an_installed_benchmark_is_read_run_scored_and_certified(site: Path, tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text('{"number": 1, "riddle": "What has keys?", "solution": "A piano"}\n')
    (tmp_path / "agent.yaml").write_text('{"agent": "script", "default": {"steps": [], "answer": "A piano"}}')
    words = ["run", "--tasks", "set.jsonl", "--agent", "agent.yaml", "-o", "run", "--json"]
    done = stillweb(site, tmp_path, *words, RIDDLE_MOST="9")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: one["mean"] for name, one in found["metrics"].items()} == {"solved": 9.0, "length": 7.0}
    certificate = found["certificate"]
    assert certificate["settings"]["env"] == {"RIDDLE_MOST": "9"}
    assert certificate["scorers"][
        "riddle"
    ]  # the scorer's file is hashed, which the evaluator's hash leaves out
    again = stillweb(site, tmp_path, "certify", "run", "--times", "1")
    assert (again.returncode, again.stdout.split()[0]) == (0, certificate["hash"]), again.stderr
    without = stillweb(ROOT, tmp_path, "run", *words[1:5], "-o", "other")
    assert without.returncode == 3  # nobody reads such records


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("sgi", "", "takes the name 'sgi' of stillweb.harness.benchmarks.sgi:BENCHMARK"),
        ("odd", "raise OSError('no such disk')", "OSError: no such disk. Mend or uninstall the distribution"),
        ("odd", "BENCHMARK = 5", "is not a Benchmark"),
        ("odd", "", "AttributeError"),
        (
            "odd",
            "from stillweb.harness.benchmark import *\nBENCHMARK = Benchmark(kinds={'sgr': 'odd'})",
            "'sgr' is a name of the benchmark 'sgr'",
        ),
    ],
)
def test_a_benchmark_that_can_not_be_loaded_is_named(tmp_path: Path, name: str, code: str, why: str) -> None:
    (tmp_path / "odd.py").write_text(code)
    info = tmp_path / "odd-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = odd:BENCHMARK\n")
    (tmp_path / "set.jsonl").write_text('{"question": "?", "answer": "1"}\n')
    done = stillweb(tmp_path, tmp_path, "run", "--tasks", "set.jsonl", "--agent", "module:x", "-o", "run")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert why in done.stderr


def test_the_project_names_its_own_benchmarks_as_entry_points() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {name: f"stillweb.harness.benchmarks.{name}:BENCHMARK" for name in PACKAGED}
    assert project["entry-points"][GROUP] == named
    assert {
        path.name for path in (ROOT / "harness/benchmarks").iterdir() if (path / "__init__.py").exists()
    } == set(PACKAGED)
    assert tuple(benchmarks())[: len(PACKAGED)] == PACKAGED
