"""Each figure names its basis beside it, on the page and in the terminal."""

import json
import re
from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.harness.console import decimals
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring import METRICS, SCORERS, Score, register
from stillweb.harness.task import Task
from stillweb.harness.view.export import write_report
from tests.harness.commands.calling import call
from tests.support.runs import bird_task, make_run, write_script

ANSWERS = {"piped": "7|3900\n9|3700", "csv": "id,mass\n7,3900\n9,1", "prose": "I can't say."}


@pytest.fixture
def mixed(tmp_path: Path) -> RunFiles:
    """A text, then three tables: one in the required form, one in another, one that is none; and two records refused."""
    script = {"default": {"answer": "x"}, "tasks": {name: {"answer": text} for name, text in ANSWERS.items()}}
    tasks = [Task("first", "?", "x"), *map(bird_task, ["piped", "csv", "prose"])]
    tasks.append(Task("broken", "?", "x", "stillweb.harness.task:Task"))
    settings = Settings(agent=write_script(tmp_path, script), contracts=())
    files = start_run(tmp_path / "run", settings, tasks, refused=2)
    run_attempts(files.path, display=SilentDisplay())
    write_certificate(files.path)
    return files


def cells(page: str, metric: str) -> list[str]:
    """The texts of a row of the table of scores."""
    row = re.search(rf'<tr><th scope="row">{metric}</th>(.*?)</tr>', page)
    assert row is not None
    return [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row[1])]


def test_a_mean_over_fewer_says_so(mixed: RunFiles) -> None:
    page = write_report(mixed.path).read_text()
    # Of three answers one is in the required form, and right: no 1 beside the 0.5 of the two that can be read.
    assert cells(page, "em") == ["0.5", "1 of 1", "0.5", "2 of 3", "0.333"]
    assert cells(page, "exact") == ["1", "", "", "1 of 1", "1"]


def test_the_page_says_what_is_in_no_figure(mixed: RunFiles) -> None:
    page = write_report(mixed.path).read_text()
    assert "2 records of the task set could not be read: not in these figures." in page
    assert "1 of 5 attempts failed (broken.1: its scorer failed: " in page
    assert "made again" not in page
    run_attempts(mixed.path, display=SilentDisplay(), retry_failed=True)
    assert "1 failed attempt made again; what failed is kept" in write_report(mixed.path).read_text()


def test_a_run_without_such_has_no_note(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path, ["right", "wrong"]).path).read_text()
    assert 'class="note"' not in page.partition("<h2>In full</h2>")[0]


def test_score_names_what_failed(mixed: RunFiles, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["score", str(mixed.path)])
    assert "1 of 5 attempts failed (broken.1: its scorer failed: " in capsys.readouterr().err


def test_metrics_that_the_table_has_no_room_for_are_told_below_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"m{number}" for number in range(10)]
    register("many", lambda task, answer, context: Score(dict.fromkeys(names, 0.25)), names)
    try:
        settings = Settings(agent=write_script(tmp_path, {"default": {"answer": "x"}}), contracts=())
        files = start_run(tmp_path / "run", settings, [Task("a", "?", "x", "many")])
        run_attempts(files.path, display=SilentDisplay())
        code, out = call(capsys, "score", files.path)
    finally:
        del SCORERS["many"], METRICS["many"]
    assert code == 0
    assert "mean of all, of the other metrics: m8 0.250, m9 0.250" in out


def test_what_is_not_scored_is_left_out_of_a_mean_of_its_own(
    mixed: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (whole := tmp_path / "whole").mkdir()
    shown = call(capsys, "score", mixed.path)[1]
    rows = {line[:14].strip(): line.split() for line in shown.splitlines() if line.startswith("mean of ")}
    assert (rows["mean of all"][3:5], rows["mean of scored"][3:5]) == (["1.000", "0.333"], ["1.000", "0.500"])
    assert "mean of all counts an attempt without a score as 0, mean of scored leaves it out\n" in shown
    assert "mean of scored" not in call(capsys, "score", make_run(whole, ["right"]).path)[1]


def test_errors_of_a_run_say_of_which_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = make_run(tmp_path, ["wrong", "silent"], epochs=2)
    files.trace_path("wrong", 2).unlink()
    _, out = call(capsys, "compare", files.path)
    assert "errors: wrong: 2 of 2 attempts (1 scored, 1 unfinished)" in out
    assert "errors: silent: 2 of 2 attempts (2 zero)" in out


def test_what_a_rubric_does_not_say_is_told_with_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {"rubric": {"normalization": {"schema": ["id", "mass"], "field_separator": "|"}}}
    task = Task("a", "?", "7|3900\n9|3700", "table", meta=rules)
    whole = bird_task("b")  # its side-car says all
    settings = Settings(agent=write_script(tmp_path, {"default": {"answer": "7|3900"}}), contracts=())
    files = start_run(tmp_path / "run", settings, [task, whole])
    run_attempts(files.path, display=SilentDisplay())
    words = "ssumed, since the rubric does not say it: ordered of 1 task, row_key of 1 task ("
    assert words in call(capsys, "score", files.path)[1]
    assert json.loads(call(capsys, "score", files.path, "--json")[1])["supposed"] == {
        "ordered": 1,
        "row_key": 1,
    }
    assert words in write_report(files.path).read_text()


def test_the_page_of_a_comparison_says_on_what_the_runs_do_not_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name, accept in (("one", "rule"), ("two", "exact")):
        (tmp_path / name).mkdir()
        paths.append(make_run(tmp_path / name, ["right", "wrong"], accept=accept).path)
    page = tmp_path / "page.html"
    call(capsys, "compare", *paths, "--html", page)
    assert "in what it stands on: accept: &#34;rule&#34; -&gt; &#34;exact&#34;." in page.read_text()
    call(capsys, "compare", paths[0], paths[0], "--html", page)
    assert "what it stands on" not in page.read_text()


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.5, 3, "0.500"),
        (0.9996, 3, "0.9996"),
        (2 / 2**20, 4, "0.000002"),
        (0.0, 4, "0.0000"),
        (1.0, 3, "1.000"),
        (4.000000000000001, 3, "4.000"),
        (99.99999999999999, 3, "100.000"),
    ],
)
def test_a_figure_looks_whole_only_where_it_is(value: float, digits: int, text: str) -> None:
    assert decimals(value, digits) == text
    assert decimals(-value, digits, "+") == f"-{text}"


def test_the_page_shows_where_an_agent_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent_that_raises.py").write_text(
        "class Raising:\n    name = 'r'\n    def identity(self): return {}\n"
        "    async def run(self, attempt):\n        return {}['<nothing>']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(agent="agent_that_raises:Raising", contracts=())
    files = start_run(tmp_path / "run", settings, [Task("a", "?", "x")])
    run_attempts(files.path, display=SilentDisplay())
    page = write_report(files.path).read_text()
    assert "agent_that_raises.py&#34;, line 5, in run\n" in page
    assert "KeyError: &#39;&lt;nothing&gt;&#39;" in page
