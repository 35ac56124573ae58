"""`stillweb score --predictions`: saved answers are scored, reported and certified as a run is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.cli import main
from stillweb.harness.results.certificate import certify
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import read_trace
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import KEY, Endpoint

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
    assert "no answer to 2 tasks, which count as unanswered (silent first)" in capsys.readouterr().err
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
