"""The benchmarks' own reporting: what got worse is said, what was not run is a row, plots are SVG."""

import json
import platform
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import peers, readme, report
from benchmarks.archives import many, url_of
from benchmarks.bench import NotRun, Row
from benchmarks.load import Load
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot


def test_what_is_worse_by_more_than_a_quarter_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ratios.json"
    path.write_text(json.dumps({"rate": 1.0, "tail": 1.0, "same": 2.0, "gone": 1.0}))
    monkeypatch.setattr(report, "RATIOS", path)
    rows = [
        Row("rate", "", ratio=0.74, bar="≥ 1"),
        Row("tail", "", ratio=1.5, bar="≤ 3"),
        Row("same", "", ratio=1.9, bar="≥ 1"),
        Row("new", "", ratio=0.1, bar="≥ 1"),
        Row("not run", "not run: no compiler", bar="≥ 1"),
    ]
    assert report.compared(rows) == ["rate: 0.74, was 1.00", "tail: 1.50, was 1.00"]
    text = report.table(rows)
    assert "| not run | not run: no compiler |  |  | ≥ 1 |  |" in text
    assert "**not held**" not in text


def test_a_peer_that_is_not_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "BIN", tmp_path)
    monkeypatch.setattr(peers, "_why", {"uwsgi": "gcc: not found"})
    with pytest.raises(NotRun, match=r"uwsgi is not installed .gcc: not found."):
        peers.program("uwsgi")
    assert peers.versions(("uwsgi",)) == {}


def test_the_lock_without_one_package() -> None:
    lock = "a==1 \\\n    --hash=sha256:1\nuwsgi==2 \\\n    --hash=sha256:2\nb==3 \\\n    --hash=sha256:3\n"
    assert peers._without(lock, "uwsgi") == "a==1 \\\n    --hash=sha256:1\nb==3 \\\n    --hash=sha256:3\n"


def test_plots_are_drawn_from_rows() -> None:
    found = {"new": [10.0, 100.0], "again": [1.0, 2.0], "first": 0.1, "mb": 50}
    rows = [
        Row("lookup", "", data={"lookups": [(1000, found), (100_000, found)]}),
        Row(
            "connections", "", data={"rates": {"nginx <fast>": [(1, 10.0), (500, 900.0)], "ours": [(1, 8.0)]}}
        ),
    ]
    plots = report.drawn(rows)
    assert set(plots) == {"captures.svg", "opening.svg", "connections.svg"}
    for svg in plots.values():
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_made_index_is_looked_up_like_a_recorded_one(tmp_path: Path) -> None:
    with Snapshot.open(many(tmp_path / "lines", 50)) as snapshot:
        matcher = snapshot.matcher()
        session = matcher.session("one")
        for number in (0, 7, 49):
            found = matcher.lookup(Request("GET", url_of(number)), session)
            assert found.verdict == "exact"
        assert len(list(snapshot.captures())) == 50


def test_a_run_that_answered_nothing_has_no_ratio() -> None:
    from benchmarks.bench import Turns

    none = Load(0, 1, 1.0, 0.0, 0.0, 0.0, 0, 0.0, "no answer")
    some = Load(10, 0, 1.0, 10.0, 0.0, 0.0, 0, 0.0)
    assert Turns([some], [1.0]).against(Turns([none], [1.0])) is None
    assert Turns([some], [1.0]).against(Turns([some], [1.0])) == 1.0


def test_the_readme_has_the_ratios_of_the_last_run(tmp_path: Path) -> None:
    ratios = json.loads(report.RATIOS.read_text("utf-8"))
    assert readme.shown() == readme.block(ratios)
    copy = tmp_path / "README.md"
    copy.write_text(readme.README.read_text("utf-8"), "utf-8")
    readme.put(dict.fromkeys(ratios, 12.3), copy)
    assert readme.shown(copy).count("| 12 × |") == readme.shown().count("×") > 0
    readme.put(ratios, copy)
    assert copy.read_text("utf-8") == readme.README.read_text("utf-8")


@pytest.mark.parametrize(("prefix", "of"), [("/usr", " of the distribution"), ("/opt/python", "")])
def test_results_say_whose_python_was_measured(prefix: str, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.base_prefix", prefix)
    assert report.versions()["Python"] == platform.python_version() + of
