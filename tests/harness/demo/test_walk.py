"""`stillweb demo` as a new user runs it, and what it leaves, read by other people's readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.demo.walk import MARK, _third
from stillweb.proxy.net.isolation import can_isolate
from stillweb.snapshots import Snapshot
from stillweb.snapshots.operations.verifying import verify
from tests.harness.demo.replaying import summary
from tests.interop.readers import disagreements, wacz_validate
from tests.support.command_line import stillweb
from tests.support.waiting import STARTS

REPLAYS = int(os.environ.get("STILLWEB_REPLAYS", "0"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if REPLAYS else 900)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's directory and what it said."""
    out = tmp_path_factory.mktemp("demo") / "demo"
    shown = stillweb("demo", "-o", out)
    assert shown.code == 0, shown.err
    return out, shown.out + shown.err


def test_the_snapshot_holds_the_views_and_documents_that_were_promised(demo: tuple[Path, str]) -> None:
    with Snapshot.open(demo[0] / "site.wacz") as snapshot:
        views = snapshot.views()
        pdfs = [capture for capture in snapshot.captures() if capture.mime == "application/pdf"]
        assert len(views) >= 12
        assert sum(bool(view.steps) for view in views) >= 6
        assert len(pdfs) == 2
        assert any(capture.method == "POST" and capture.status == 303 for capture in snapshot.captures())


def test_three_tasks_are_right_and_one_is_wrong_on_purpose(demo: tuple[Path, str]) -> None:
    scores = {}
    for trace in (demo[0] / "run" / "traces").glob("*.jsonl"):
        events = [json.loads(line) for line in trace.read_text().splitlines()]
        scores[trace.name.partition(".")[0]] = next(e for e in events if e["event"] == "score")["metrics"][
            "em"
        ]
    assert scores == {"penguins_001": 1.0, "weather_001": 1.0, "report_001": 1.0, "electricity_001": 0.0}


def test_both_runs_have_one_hash(demo: tuple[Path, str]) -> None:
    hashes = [
        json.loads((demo[0] / run / "certificate.json").read_text())["hash"] for run in ("run", "run-again")
    ]
    assert hashes[0] == hashes[1]
    assert f"the same hash: {hashes[0]}" in demo[1]


def test_a_namespace_is_claimed_only_where_there_is_one(demo: tuple[Path, str]) -> None:
    assert ("in a namespace that has only loopback" in demo[1]) == (can_isolate() is None)
    refused = _third("isolation: this user may not make a namespace")
    assert "in a namespace" not in refused
    assert "not isolated: isolation: this user may not" in refused


def test_the_report_stands_alone_and_shows_what_was_wrong(demo: tuple[Path, str]) -> None:
    html = (demo[0] / "report.html").read_text()
    assert all(task in html for task in ("penguins_001", "weather_001", "report_001", "electricity_001"))
    assert "14949" in html  # the reference
    assert "4347" in html  # what the wrong tab said
    assert "data:image/png;base64," in html
    assert 'src="http' not in html


@pytest.mark.peer
def test_outside_readers_agree_on_every_capture(demo: tuple[Path, str], tmp_path: Path) -> None:
    sealed = demo[0] / "site.wacz"
    assert verify(sealed) == []
    assert disagreements(sealed, tmp_path) == []
    assert wacz_validate(sealed) == ""


def test_a_directory_of_somebody_else_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    shown = stillweb("demo", "-o", tmp_path)
    assert shown.code == 2
    assert "is not empty" in shown.err
    assert (tmp_path / "precious").exists()
    assert not (tmp_path / MARK).exists()


@pytest.mark.skipif(not REPLAYS, reason="counted by hand; tests/proxy/browser/test_views.py compares some")
def test_replays_in_fresh_processes_are_one(
    demo: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: STILLWEB_REPLAYS=10 .venv/bin/python -m pytest -q tests/harness/demo -k replays."""
    together = 4
    command = [sys.executable, "-m", "tests.harness.demo.replaying", str(demo[0] / "site.wacz")]
    results: list[dict[str, Any]] = []
    for many in [1, together] * REPLAYS:  # alternately alone and several at once
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(many)]
        said = [process.communicate(timeout=STARTS)[0] for process in running]
        assert [process.returncode for process in running] == [0] * many
        results += [json.loads(line) for line in said]
    with capsys.disabled():
        sys.stdout.write(f"\n{REPLAYS} alone and {REPLAYS} times {together} at once\n{summary(results)}\n")
    first = results[0]
    assert len(first["steps"]) == 20
    assert first["misses"] == []
    for other in results[1:]:
        assert other["steps"] == first["steps"]
        assert other["requests"] == first["requests"]


def test_without_the_demos_extra_nothing_is_begun(tmp_path: Path) -> None:
    """As `pip install` leaves it, which takes no extras."""
    code = "import sys; sys.modules['trustme'] = None; from stillweb.harness.cli import main; main()"
    out = tmp_path / "demo"
    said = subprocess.run(
        [sys.executable, "-c", code, "demo", "-o", str(out)], capture_output=True, text=True, timeout=STARTS
    )
    assert said.returncode == 4
    assert "trustme: not installed. Install it with: pip install 'stillweb[demo]'" in said.stderr
    assert not out.exists()
