"""`rubric` and `prompts` say what of the tasks they did not read."""

import json
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.cli import main
from stillweb.harness.datasets import load_tasks
from stillweb.harness.results.certificate import certify
from stillweb.harness.rubric import load_rubrics
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import freeze_texts, record
from tests.support.openai_endpoint import KEY, Endpoint

ROW = {
    "task_id": "lake_001",
    "instruction": "Which lakes?",
    "oracle_answer": "L1|Alpha\nL2|Beta",
    "rubric": {
        "normalization": {
            "field_separator": "|",
            "record_separator": "\\n",
            "header_row": "Do not output a header row.",
            "schema": ["lake_id", "name"],
            "row_key": "Use lake_id as the row key.",
            "ordering": "Sort rows by lake_id in ascending order.",
            "name": "Names are compared as they are printed on the page.",
        }
    },
    "colour": "blue",
}


def tasks(folder: Path) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({"task_id": 3, "instruction": "?"}) + "\n")
    return path


def test_rubric_compile_says_what_nothing_reads(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from stillweb.harness.commands.rubric import command

    done = CliRunner().invoke(command, ["compile", str(tasks(tmp_path)), "-o", str(tmp_path / "r.json")])
    assert done.exit_code == 0
    assert "not read: " in done.stderr
    assert "colour" in done.stderr
    assert "left out: " in done.stderr
    assert "tasks.jsonl:2" in done.stderr


def test_rubric_compile_does_not_write_over_side_cars_that_were_edited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tasks(tmp_path), tmp_path / "r.json"
    for _ in range(2):  # the same ones may be written again
        assert call(capsys, "rubric", "compile", path, "-o", out)[0] == 1  # for the record that can't be read
    document = json.loads(out.read_text())
    rubric = next(iter(document["rubrics"].values()))
    rubric["ordered"] = not rubric["ordered"]
    edited = json.dumps(document)
    out.write_text(edited)
    assert call(capsys, "rubric", "compile", path, "-o", out)[0] == 2
    assert out.read_text() == edited


def test_rubric_lint_shows_notes_on_request_and_counts_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tasks(tmp_path)
    code, out = call(capsys, "rubric", "lint", path)
    more_code, more = call(capsys, "rubric", "lint", path, "--notes")
    assert code == more_code
    assert "unread rule" not in out
    assert "note: unread rule" in more
    assert more.splitlines()[-1] == out.splitlines()[-1]


def test_prompts_build_says_what_nothing_reads(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from stillweb.harness.commands.prompts import command

    Writer.open(tmp_path / "snap").close()
    row = {"id": "t", "problem": "Which?", "answer": "A", "urls": [], "shade": 1}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    words = ["build", str(tmp_path / "snap"), "--tasks", str(path), "-o", str(tmp_path / "out.jsonl")]
    done = CliRunner().invoke(command, words)
    assert "shade" in done.stderr, (done.output, done.stderr)


@pytest.mark.slow
def test_prompts_build_says_which_pages_are_not_there_or_look_wrong(tmp_path: Path) -> None:
    from tests.support.command_line import stillweb

    page = "https://a.example/{}"
    with Writer.open(tmp_path / "snap") as writer:
        record(writer, page.format("long"), b"<p>" + b"The mole is 291 metres long. " * 400 + b"</p>")
        record(writer, page.format("short"), b"<p>The mole is 291 metres long.</p>")
        table = b"<form><select><option>North</select></form><table><tr><th>Mole<th>Metres</tr><tr><td>A<td>291</tr></table>"
        words = b"<article><h1>Mole</h1><p>" + b"The mole is 291 metres long. " * 10 + b"</p></article>"
        record(writer, page.format("table"), words + table)
        freeze_texts(writer)  # it puts the table back, and nothing is wrong with that
    urls = [[page.format(name), "additional"] for name in ("gone", "table", "short", "long")]
    path, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    path.write_text(json.dumps({"id": "t", "problem": "Which?", "answer": "A", "urls": urls}) + "\n")
    words = ("prompts", "build", tmp_path / "snap", "--tasks", path)
    done = stillweb(*words, "-o", out, "--budget", "1k")
    assert done.code == 0
    assert f"1 page not in the prompts, for want of room (first: t: {page.format('long')})" in done.err
    assert f"1 page dead (first: t: {page.format('gone')} (not in the snapshot))" in done.err
    assert f"1 page looking wrong (first: t: {page.format('short')} (short: " in done.err
    done = stillweb(*words, "-o", tmp_path / "none" / "out.jsonl")
    assert done.code == 2
    assert "there is no directory" in done.err
    assert "building" not in done.err
    assert stillweb(*words, "-o", tmp_path).code == 2


@pytest.mark.parametrize(("seed", "kept"), [("-7", -7), ("--5", "--5"), ("\u00b2", "\u00b2")])
def test_prompts_build_takes_any_seed_and_any_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: str, kept: int | str
) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        record(writer, "https://a.example/", b"<p>The mole is 291 metres long.</p>")
        freeze_texts(writer)
    path = tmp_path / "rows.jsonl"
    urls = [["https://a.example/", "additional"]]
    path.write_text(json.dumps({"id": "t", "problem": "Which \ud800?", "answer": "A", "urls": urls}) + "\n")
    out = tmp_path / "out.jsonl"
    words = ("prompts", "build", tmp_path / "snap", "--tasks", path, "-o", out, f"--seed={seed}")
    assert call(capsys, *words)[0] == 0
    line = json.loads(out.read_text())
    assert (line["certificate"]["seed"], line["problem"]) == (kept, "Which \ud800?")
    assert [task.id for task in load_tasks(out)] == ["t"]
    for change in ({"text": line["text"] + " "}, {"certificate": line["certificate"] | {"budget": 7}}):
        (tmp_path / "changed.jsonl").write_text(json.dumps(line | change))
        with pytest.raises(DamagedInput, match=f"changed.jsonl:1: {next(iter(change))}: is not the"):
            load_tasks(tmp_path / "changed.jsonl")
    assert call(capsys, *words, "--budget", "10")[0] == 1
    assert json.loads(out.read_text())["state"] == "failed"


def test_records_that_can_not_be_read_are_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        record(writer, "https://a.example/", b"<p>291 metres</p>")
        freeze_texts(writer)
    good = {"id": "mole", "question": "How long?", "answer": "291 metres", "start_url": "https://a.example/"}
    path = tmp_path / "tasks.jsonl"
    words = ("coverage", tmp_path / "snap", "--tasks", path)
    path.write_text(json.dumps(good) + "\n")
    assert call(capsys, *words)[0] == 0
    assert call(capsys, "rubric", "lint", path)[0] == 0
    path.write_text(json.dumps(good) + "\nno record\n")
    assert call(capsys, *words)[0] == 1
    code, out = call(capsys, *words, "--json")
    assert (code, len(json.loads(out)["refused"])) == (1, 1)
    assert call(capsys, "rubric", "lint", path)[0] == 1


@pytest.mark.slow
def test_half_a_surrogate_pair_ends_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON can hold it, and a model may write it; a file in UTF-8 and a terminal can't."""
    plain = {"id": "t\ud800", "question": "q \ud800", "answer": "x \ud800"}
    row = ROW | {"task_id": "l\ud800", "rubric": {"normalization": {"schema": ["x\ud800", "y"]}}}
    agent = tmp_path / "agent.yaml"
    agent.write_text("agent: script\ndefault: {answer: '1|{{ task.question }}'}\n")
    for name, told in (("plain", plain), ("row", row)):
        path, run = tmp_path / f"{name}.jsonl", tmp_path / name
        path.write_text(json.dumps(told) + "\n")
        assert call(capsys, "run", "--tasks", path, "--agent", f"script:{agent}", "-o", run)[0] == 0
        for words in (
            ("report", run),
            ("report", run, "--format", "inspect"),
            ("review", run, "--export", tmp_path / "review.html"),
            ("compare", run, run, "--html", tmp_path / "compare.html"),
            ("certify", run, "--times", 1),
            ("score", run),
        ):
            assert call(capsys, *words)[0] == 0, words
        code, out = call(capsys, "score", run, "--json")
        assert (code, json.loads(out)["attempts"]) == (0, 1)
    assert call(capsys, "rubric", "compile", tmp_path / "row.jsonl", "-o", tmp_path / "r.json")[0] == 0
    assert load_rubrics(tmp_path / "r.json")["l\ud800"].columns == ("x\ud800", "y")


def test_a_side_car_that_the_file_lacks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    (tmp_path / "rubrics.json").write_text('{"version": 1, "rubrics": {}}')
    (tmp_path / "agent.yaml").write_text("agent: script\ndefault: {answer: x|y}\n")
    words = ["run", "--tasks", path, "--agent", f"script:{tmp_path / 'agent.yaml'}", "-o", tmp_path / "run"]
    with pytest.raises(SystemExit):
        main([str(word) for word in (*words, "--rubrics", tmp_path / "rubrics.json")])
    said = capsys.readouterr().err
    assert "no side-car for lake_001 in " in said
    assert "not read: " in said


def test_a_scorer_that_is_not_there_is_said_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = {"id": "t", "question": "?", "answer": "x", "scorer": "exakt"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "agent.yaml").write_text("agent: script\ndefault: {answer: x}\n")
    words = ("--tasks", tmp_path / "tasks.jsonl", "--agent", f"script:{tmp_path / 'agent.yaml'}")
    assert call(capsys, "run", *words, "-o", tmp_path / "run")[0] == 2
    assert not list((tmp_path / "run" / "traces").iterdir())


def test_a_run_scores_a_table_by_the_columns_and_rules_that_its_task_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = {
        "id": "fleet",
        "question": "Which ferries?",
        "columns": ["id", "minutes"],
        "row_key": ["id"],
        "ordered": False,
        "fields": {"minutes": {"type": "decimal", "units": {"min": ""}}},
        "table": [["F-07", "12.5"], ["F-02", "14"]],
    }
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "agent.yaml").write_text('default: {answer: "F-02|14.0 min\\nF-07|12.50 min"}\n')
    Writer.open(tmp_path / "snap").close()
    words = ["--tasks", "tasks.jsonl", "--agent", "script:agent.yaml", "--snapshot", "snap", "-o", "run"]
    code, told = call(capsys, "run", *words, "--json")
    assert (code, json.loads(told)["metrics"]["em"]["mean"]) == (0, 1.0)
    assert call(capsys, "rubric", "lint", "tasks.jsonl") == (0, "0 findings\n")


def test_coverage_says_what_gold_is_missing_what_leaks_and_what_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        headers = (
            ("Content-Type", "text/html"),
            ("Set-Cookie", "pass=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
            ("Set-Cookie", "gone=; Expires=Thu, 01 Jan 1970 00:00:00 GMT"),
        )
        record(
            writer,
            "https://a.example/",
            b"<p>The mole of the harbour is 291 metres long.</p>",
            headers=headers,
        )
        freeze_texts(writer)
    good = {
        "id": "mole",
        "question": "How long is the mole?",
        "answer": "291 metres",
        "start_url": "https://a.example/",
    }
    bad = {"id": "keeper", "question": "Was it Ada Quill? By 2030-01-01?", "answer": "Ada Quill"}
    words = ("coverage", tmp_path / "snap", "--check-references", "--today", "2026-11-21", "--tasks")
    (tmp_path / "good.jsonl").write_text(json.dumps(good) + "\n")
    code, out = call(capsys, *words, tmp_path / "good.jsonl")
    assert code == 0
    assert "note: cookie: cookie 'pass' of a.example ended on 2026-10-21" in out
    assert "gone" not in out
    assert "every gold cell is in a text of the snapshot" in out
    assert "1 of 1 needs answered" in out
    (tmp_path / "bad.jsonl").write_text(json.dumps(bad) + "\n")
    code, out = call(capsys, *words, tmp_path / "bad.jsonl")
    assert "keeper: warning: gold-missing: the answer: 'Ada Quill' is in no text of the snapshot" in out
    assert "leak" in out
    assert "2030-01-01 in the question will pass" in out
    assert "every gold cell" not in out
    assert "the tasks name no need" in out


TASKS = [
    {"id": "text", "question": "2+2?", "answer": "4"},
    {"id": "silent", "question": "3+3?", "answer": "6"},
    {"id": "table", "question": "List id|v.", "columns": ["id", "v"], "table": [["x", "1"], ["y", "2"]]},
]


def lines(path: Path, values: list[Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


@pytest.mark.slow
def test_saved_answers_are_scored_with_report_and_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = lines(tmp_path / "tasks.jsonl", TASKS)
    saved = lines(tmp_path / "saved.jsonl", [{"id": "table", "answer": "x|1"}, {"id": "text", "answer": "4"}])
    out = tmp_path / "out"
    code, printed = call(capsys, "score", "--tasks", tasks, "--predictions", saved, "-o", out, "--json")
    told = json.loads(printed)
    assert code == 0
    assert (told["metrics"]["exact"]["mean_of_all"], told["metrics"]["item_f1"]["mean_of_all"]) == (
        0.5,
        pytest.approx(2 / 3),
    )
    assert told["statuses"]["zero"] == 1
    assert "List id|v." in (out / "report.html").read_text(encoding="utf-8")
    assert json.loads((out / "certificate.json").read_text())["hash"] == told["certificate"]["hash"]
    assert certify(out, times=1).holds
    lines(saved, [{"id": "text", "answer": "5"}])  # other answers are another run
    assert not certify(out, times=1).holds


def test_tasks_without_an_answer_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = lines(tmp_path / "saved.jsonl", [{"id": "text", "answer": None}])
    tasks = lines(tmp_path / "t.jsonl", TASKS)
    with pytest.raises(SystemExit) as ended:
        main(
            [str(word) for word in ("score", "--tasks", tasks, "--predictions", saved, "-o", tmp_path / "o")]
        )
    assert ended.value.code == 0
    assert "no answer to 2 tasks, counted as unanswered (silent first)" in capsys.readouterr().err
    answers = {
        task.id: trace.last("answer") for task, _, trace in RunFiles(tmp_path / "o").attempts() if trace
    }
    assert {(answer or {})["end"] for answer in answers.values()} == {"none"}


@pytest.mark.parametrize(
    ("answer", "given"),
    [(4, "4"), (4.5, "4.5"), (True, "true"), (["ä", 1], '["ä", 1]'), ({"a": None}, '{"a": null}')],
)
def test_an_answer_that_is_no_text_is_its_json(
    answer: object,
    given: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without -o the run lies in the current directory, named for the file."""
    monkeypatch.chdir(tmp_path)
    saved = lines(tmp_path / "mine.jsonl", [{"id": "text", "answer": answer}])
    tasks = lines(tmp_path / "t.jsonl", [{"id": "text", "question": "2+2?", "answer": given}])
    code, printed = call(capsys, "score", "--tasks", tasks, "--predictions", saved, "--json")
    assert (code, json.loads(printed)["metrics"]["exact"]["mean_of_all"]) == (0, 1)
    assert (tmp_path / "mine-scored" / "certificate.json").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "tex", "answer": "4"}', "an answer to 'tex', which is no task of the set"),
        ('{"id": "text"}', "saved.jsonl:1: a prediction needs the members id and answer"),
        ('{"id": "text", "answer": "4"}\n{"id": "text", "answer": "5"}', "2: a second answer to 'text'"),
        ("[1]", "must be an object"),
        ("nonsense", "saved.jsonl:1: not JSON"),
        ("", "holds no predictions"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    line: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, saved = lines(tmp_path / "tasks.jsonl", TASKS), tmp_path / "saved.jsonl"
    saved.write_text(line)
    words = ["score", "--tasks", tasks, "--predictions", saved, "-o", tmp_path / "out"]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code in (2, 3)
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [["-o", "x"], ["--predictions", "P", "-o", "x"], ["--tasks", "T", "--predictions", "P", "--write"]],
)
def test_what_goes_together_is_said(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "P", [{"id": "text", "answer": "4"}])
    with pytest.raises(SystemExit) as ended:
        main(["score", *words])
    assert ended.value.code == 2
    assert "--predictions" in capsys.readouterr().err


def test_a_graders_template_of_the_set_is_asked_with_and_certified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_API_KEY", KEY)
    monkeypatch.setenv("GRADER_MODEL", "g")
    template = tmp_path / "grader.txt"
    template.write_text("Q {question} R {response} A {correct_answer}")
    tasks = lines(
        tmp_path / "tasks.jsonl", [{"id": "one", "question": "Which?", "answer": "Alpha", "scorer": "judge"}]
    )
    saved = lines(tmp_path / "saved.jsonl", [{"id": "one", "answer": "Beta"}])
    with Endpoint(lambda asked: "correct: yes") as endpoint:
        monkeypatch.setenv("GRADER_BASE_URL", endpoint.url)
        words = ["score", "--tasks", tasks, "--predictions", saved]
        assert call(capsys, *words, "--grader-template", template, "-o", tmp_path / "a")[0] == 0
        assert endpoint.requests[0]["messages"][-1]["content"] == "Q Which? R Beta A Alpha"
        template.write_text("Other {response} {correct_answer}")
        more = ["--grader-template", template, "--ask-judge", "-o", tmp_path / "b"]
        assert call(capsys, "score", tmp_path / "a", *more)[0] == 0
        assert endpoint.requests[1]["messages"][-1]["content"] == "Other Beta Alpha"
    certificate = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert "options.template" in json.dumps(certificate)
    assert (
        read_trace(RunFiles(tmp_path / "b").trace_path("one", 1)).header["task"]["options"]["template"][:5]
        == "Other"
    )
    template.write_text("no places")
    with pytest.raises(SystemExit):
        main([str(word) for word in (*words, "--grader-template", template, "-o", tmp_path / "c")])
    assert "options.template must be a text that holds" in capsys.readouterr().err
