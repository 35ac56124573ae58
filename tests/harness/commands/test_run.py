"""`run`: what is kept of the surroundings, and what of a set was not run."""

import json
import re
import sys
from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.harness.runs.display import one_line
from tests.harness.commands.calling import call
from tests.support.runs import write_script

RIGHT = {"id": "a", "question": "?", "answer": "x"}


def command(folder: Path, *records: str, answer: str = "x") -> list[object]:
    tasks = folder / "tasks.jsonl"
    tasks.write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
    agent = write_script(folder, {"agent": "script", "default": {"answer": answer}})
    return ["run", "--tasks", tasks, "--agent", agent, "-o", folder / "run"]


@pytest.mark.parametrize(
    "words", [("--timeout", "nan"), ("--timeout", "-5"), ("--timeout", "inf"), ("--max-cost", "nan")]
)
def test_a_limit_that_nothing_can_be_counted_to_is_refused_before_a_run_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    code, _ = call(capsys, *command(tmp_path, json.dumps(RIGHT)), *words)
    assert code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "seconds"), [((), 1800), (("--timeout", "0"), None), (("--timeout", "2.5"), 2.5)]
)
def test_an_attempt_has_half_an_hour_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], seconds: float | None
) -> None:
    code, _ = call(capsys, *command(tmp_path, json.dumps(RIGHT)), *words)
    assert code == 0
    limits = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["limits"]
    assert limits["seconds"] == seconds


@pytest.mark.slow
def test_records_that_could_not_be_read_stay_in_sight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(tmp_path, json.dumps(RIGHT), "{broken", json.dumps({"id": "c", "question": "?"}))
    said = "2 records of the task set could not be read: not in these figures"
    for _ in range(2):  # the second makes no attempt
        code, out = call(capsys, *words)
        assert code == 1  # a misspelt field is no task that went well
        assert said in out
    assert said in call(capsys, "score", tmp_path / "run")[1]
    assert "of B, 2 records of the task set could not" in call(capsys, "compare", *2 * [tmp_path / "run"])[1]
    code, out = call(capsys, "certify", tmp_path / "run", "--times", 1)
    assert code == 0
    assert json.loads((tmp_path / "run" / "certificate.json").read_text())["refused"] == 2
    words[-1] = tmp_path / "one"
    assert said in call(capsys, *words, "--limit", 1)[1]  # which is all that could be read


@pytest.mark.slow
def test_a_part_of_a_set_says_so_wherever_its_figures_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(tmp_path, *(json.dumps(RIGHT | {"id": name}) for name in "abcdefgh"), "{broken")
    assert call(capsys, *words)[0] == 1
    whole, part, said = tmp_path / "run", tmp_path / "part", "2 of the 8 tasks of the set (--only, --limit)"
    words[-1] = part
    for few in (("--limit", 2), ("--only", "a, b"), ("--only", "a", "--only", "b")):  # the same run
        code, out = call(capsys, *words, *few)
        assert (code, f"the figures are of {said}" in out, "could not be read" in out) == (0, True, False)
    assert f"the figures are of {said}" in call(capsys, "score", part)[1]
    assert json.loads(call(capsys, "score", part, "--json")[1])["part_of"] == 8
    assert json.loads(call(capsys, "score", whole, "--json")[1])["part_of"] is None
    call(capsys, "report", part)
    assert f"The figures are of {said}." in (part / "report.html").read_text()
    code, out = call(capsys, "certify", part, "--times", 1)
    assert (code, f"the figures are of {said}\n" in out) == (0, True)
    kept = [json.loads((run / "certificate.json").read_text())["part_of"] for run in (part, whole)]
    assert kept == [8, None]

    page = tmp_path / "page.html"
    out = call(capsys, "compare", part, whole, "--html", page)[1]
    assert f"A has {said}; compared are the tasks that both have\n" in out
    assert "left out of exact: c and 5 more: only in the second run\n" in out
    assert f"A has {said}; compared are the tasks that both have" in page.read_text()
    assert f"B has {said}" in call(capsys, "compare", whole, part)[1]
    assert json.loads(call(capsys, "compare", whole, whole, "--json")[1])["parts"] == [
        f"of {name}, 1 record of the task set could not be read" for name in "AB"
    ]


@pytest.mark.slow
def test_a_run_whose_attempts_failed_is_not_a_run_that_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(
        tmp_path, json.dumps(RIGHT), json.dumps(RIGHT | {"id": "b"}), json.dumps(RIGHT | {"id": "c"})
    )
    out, broken = tmp_path / "run", [*words[:4], "command:false", *words[5:]]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in broken])
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert "3 attempts" in said.out  # the table comes all the same
    assert f"{out}: 3 of 3 attempts failed (a.1: " in said.err
    assert "--retry-failed" in said.err
    code, told = call(capsys, "certify", out, "--times", 1)
    assert (code, "3 of 3 attempts failed (a.1: " in told) == (0, True)  # they do so again
    wrong = command(tmp_path, json.dumps(RIGHT | {"answer": "y"}))
    assert call(capsys, *wrong[:-1], tmp_path / "wrong")[0] == 0  # wrong is no failure


def test_documented_variables_are_kept_and_secrets_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"GRADER_MODEL": "g", "SGI_EXECUTION_TIMEOUT": "7", "SGI_MAX_TOKENS": "9"}
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    secret = (
        "OPENAI_API_KEY",
        "OPENAI_ADMIN_KEY",
        "OPENAI_WEBHOOK_SECRET",
        "GRADER_TOKEN",
        "SGI_JUDGE_API_KEY_1",
    )
    for name in secret:
        monkeypatch.setenv(name, "of-nobody-else")
    assert call(capsys, *command(tmp_path, json.dumps(RIGHT)))[0] == 0
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["env"]["GRADER_MODEL"] == "g"
    assert {"SGI_EXECUTION_TIMEOUT", "SGI_MAX_TOKENS"} <= settings["env"].keys()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files
    assert not any("of-nobody-else" in path.read_text("utf-8", "replace") for path in files)


def test_what_went_wrong_is_told_by_the_line_that_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a program's traceback the end, of a tool's error what follows its heading, of an empty answer that it is none."""
    words = command(tmp_path, json.dumps(RIGHT))
    for number, (program, says) in enumerate(
        (
            (f"{sys.executable} -c 1/0", "ended with code 1: ZeroDivisionError: division by zero"),
            ("true", "a/1  zero  exact 0, the attempt ended without an answer"),
        )
    ):
        with pytest.raises(SystemExit):
            main(
                [str(word) for word in [*words[:4], f"command:{program}", "-v", "-o", tmp_path / str(number)]]
            )
        said = capsys.readouterr().err
        assert says in next(line for line in said.splitlines() if line.startswith("[1/1]"))
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one line", "one line"),
        ("browser_navigate failed: ### Error\nError: net::ERR_FAILED at x", "browser_navigate failed: Error: net::ERR_FAILED at x"),
        ("ended: Traceback (most recent call last):\n  File x\nKeyError: 'a'\n", "ended: KeyError: 'a'"),
        (
            "  + Exception Group Traceback (most recent call last):\n  |  File x\n  | E: two\n    | x.ConnectError: no\n    +-----",
            "+ Exception Group x.ConnectError: no",
        ),
        ("x" * 300, "x" * 240 + "…"),
        ("", ""),
    ],
)  # fmt: skip
def test_an_error_on_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_scoring_that_failed_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command(tmp_path, json.dumps(RIGHT | {"scorer": "math:sqrt"}))
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in [*words, "-v"]])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "failed (a.1: its scorer failed: scorer math:sqrt: TypeError" in said
    assert "[1/1] a/1  unparsable  scoring failed: scorer math:sqrt: TypeError" in said


def test_a_program_without_a_snapshot_is_told_to_be_on_the_real_web(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(tmp_path, json.dumps(RIGHT))
    told = "no snapshot: the program has no frozen web"
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in [*words[:4], "command:echo x", *words[5:]]])
    assert (ended.value.code, told in capsys.readouterr().err) == (0, True)
    with pytest.raises(SystemExit):
        main([str(word) for word in [*words[:-1], tmp_path / "script"]])
    assert told not in capsys.readouterr().err  # which asks for nothing


def test_a_variable_to_pass_that_is_not_set_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(tmp_path, json.dumps(RIGHT))
    (tmp_path / "agent.yaml").write_text("agent: command\ncommand: echo x\npass_env: [STILLWEB_TEST_KEY]\n")
    told = "pass_env: STILLWEB_TEST_KEY is not set here"
    for place, said in (("one", True), ("two", False)):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in [*words[:-1], tmp_path / place]])
        assert (ended.value.code, told in capsys.readouterr().err) == (0, said)
        monkeypatch.setenv("STILLWEB_TEST_KEY", "x")


def test_an_agent_that_is_not_there_leaves_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command(tmp_path, json.dumps(RIGHT))
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in [*words[:4], f"script:{tmp_path / 'agent.yml'}", *words[5:]]])
    said = capsys.readouterr().err
    assert (ended.value.code, "agent.yml: No such file" in said, "attempts" in said) == (2, True, False)
    assert not (tmp_path / "run").exists()


def test_a_run_that_lacked_a_key_is_begun_with_another_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = command(tmp_path, json.dumps(RIGHT))
    assert call(capsys, *words[:3], "--agent", "openai:m", *words[5:])[0] == 4
    assert call(capsys, *words)[0] == 0
    assert [path.name for path in (tmp_path / "run" / "traces").iterdir()] == ["a.1.jsonl"]


def test_a_script_for_a_task_that_the_set_lacks_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(tmp_path, json.dumps(RIGHT | {"id": "rug"}))
    script = {"tasks": {"rugg": {"answer": "x"}}, "default": {"answer": "y"}}
    words[4] = write_script(tmp_path, {"agent": "script", **script})
    with pytest.raises(SystemExit):
        main([str(word) for word in words])
    assert "the script for 'rugg' is for no task of the set; did you mean 'rug'?" in capsys.readouterr().err


def test_a_run_prints_a_line_of_progress_and_ten_of_summary_with_the_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = "\n".join(json.dumps(RIGHT | {"id": f"task{number}"}) for number in range(20))
    words = [str(word) for word in command(tmp_path, tasks)]
    with pytest.raises(SystemExit):
        main(words)
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("20 of 20 attempts (20 scored)")
    assert len(said.out.splitlines()) <= 10
    assert "standard error  0.000" in said.out
    with pytest.raises(SystemExit):
        main([*words[:-1], str(tmp_path / "each"), "-v"])
    said = capsys.readouterr()
    assert "[20/20] " in said.err
    assert "task19.1" in said.out


def test_the_spread_of_a_metric_is_over_the_tasks_that_have_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"columns": ["id"], "row_key": ["id"], "table": [["x"]]}
    records = [RIGHT | {"id": f"t{number}", "answer": "xxxyy"[number]} for number in range(5)]
    records += [table | {"id": f"table{number}", "question": "?"} for number in range(2)]
    code, out = call(capsys, *command(tmp_path, *map(json.dumps, records), answer="x"))
    assert code == 0
    lines = {line.rsplit("  ", 1)[0].split("  ")[0]: line.split()[-5:] for line in out.splitlines()[2:5]}
    found = [float(cell) for cell in lines["spread"]]
    assert found == [0.548, 0, 0, 0, 0]  # statistics.stdev([1, 1, 1, 0, 0]), and of two tables that are equal
    assert float(lines["standard error"][0]) == 0.245


def test_forms_of_one_base_task_count_once_in_the_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forms = [("a", "x"), ("a", "x"), ("b", "y"), ("b", "y"), ("c", "x"), ("c", "y")]
    records = [
        RIGHT | {"id": f"t{number}", "base": base, "answer": answer}
        for number, (base, answer) in enumerate(forms)
    ]
    code, out = call(capsys, *command(tmp_path, *map(json.dumps, records), answer="x"))
    assert code == 0
    # sums of the deviations of each base from the mean of 0.5: 1, -1 and 0; sqrt((1 + 1 + 0) * 3 / 2) / 6
    assert re.search(r"standard error +0\.289", out)
    _, told = call(capsys, "score", tmp_path / "run", "--json")
    found = json.loads(told)["spreads"]["exact"]
    assert (round(found["spread"], 3), round(found["standard_error"], 3)) == (0.548, 0.289)


def test_base_tasks_with_one_mean_have_no_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [RIGHT | {"id": f"t{n}", "base": "ab"[n % 2], "answer": "xyy"[n // 2]} for n in range(6)]
    _, out = call(capsys, *command(tmp_path, *map(json.dumps, records), answer="x"))
    assert re.search(r"standard error +0\.000$", out, re.MULTILINE)
