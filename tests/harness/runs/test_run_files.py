"""The files of a run: names, and what is damaged or none at all."""

import json
import os
import shutil
from pathlib import Path

import pytest

from stillweb.harness.results.certificate import certify, make_certificate
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs import hashes
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings, snapshots_now, trace_name
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.view.export import write_report
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import exchange
from tests.support.runs import SHELF, make_run, write_script


def test_task_ids_make_safe_and_different_file_names():
    assert trace_name("penguins_001", 2) == "penguins_001.2.jsonl"
    odd = {trace_name(name, 1) for name in ("a/b", "a_b", "a b", "../a_b", ".a_b", "ä" * 300)}
    assert len(odd) == 6
    assert all("/" not in name and not name.startswith(".") and len(name) < 120 for name in odd)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        (
            '{"settings": {"agent": "script:a", "prices": {"m": {"input": 1e999}}}}',
            "not JSON: 1e999 is not a number",
        ),
        ("[" * 100_000, "not JSON"),
        ("{}", "is not a stillweb run"),
        ('{"schema": "stillweb-run", "version": 7}', "version 7 is not known"),
        ('{"schema": "stillweb-run", "version": 1, "settings": {}}', "missing required field agent"),
        (
            '{"schema": "stillweb-run", "version": 1, "settings": {"agent": "a", "x": 1}}',
            "unknown member 'x'",
        ),
        (
            '{"schema": "stillweb-run", "version": 1, "settings": {"agent": "a", "limits": {"years": 1}}}',
            "unknown member 'years'",
        ),
        *(
            (
                json.dumps(
                    {"schema": "stillweb-run", "version": 1, "settings": {"agent": "a", "epochs": epochs}}
                ),
                f"run.json: settings: Expected int {bound} - at .*epochs",
            )
            for epochs, bound in ((0, ">= 1"), (10**12, "<= 10000"))
        ),
        *(
            (
                json.dumps({"schema": "stillweb-run", "version": 1, "settings": {"agent": "a", name: value}}),
                f"run.json: settings: Expected .* - at .*{name}",
            )
            for name, value in {
                "epochs": "2",
                "agent": 7,
                "snapshots": "s",
                "contracts": [5],
                "limits": None,
            }.items()
        ),
    ],
)
def test_a_damaged_manifest_is_named(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DamagedInput, match=message):
        RunFiles(tmp_path).manifest()


@pytest.mark.parametrize("line", [b"\xff\n", b"{\n", b"[" * 100_000 + b"\n"])
def test_a_damaged_line_of_the_tasks_is_named(tmp_path, line):
    files = make_run(tmp_path, ["right"], run=False)
    with (files.path / "tasks.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(DamagedInput, match=r"tasks\.jsonl:2: not JSON"):
        files.tasks()


def test_tasks_with_half_a_character_are_run_and_go_on(tmp_path):
    half = Task("half", "\ud83d?", "x", "exact")
    settings = Settings(agent=write_script(tmp_path, {"default": {"answer": "x"}}), contracts=(SHELF,))
    files = start_run(tmp_path / "run", settings, [half])
    assert run_attempts(files.path, display=SilentDisplay()) == 1
    assert make_certificate(files.path)["scores"]["statuses"]["scored"] == 1
    assert run_attempts(start_run(tmp_path / "run", settings, [half]).path, display=SilentDisplay()) == 0


def test_a_directory_that_is_no_run_is_named(tmp_path):
    with pytest.raises(UsageError, match="is not a run"):
        summarise(tmp_path)
    with pytest.raises(UsageError, match="is not a run"):
        run_attempts(tmp_path / "nowhere", display=SilentDisplay())


def test_a_damaged_task_file_names_its_line(tmp_path):
    files = make_run(tmp_path, ["a", "b"])
    text = (files.path / "tasks.jsonl").read_text().splitlines()
    broken = json.loads(text[1])
    del broken["question"]
    (files.path / "tasks.jsonl").write_text(text[0] + "\n" + json.dumps(broken) + "\n")
    with pytest.raises(
        DamagedInput, match=r"tasks\.jsonl:2: no task: Object missing required field question"
    ):
        files.tasks()


def test_a_directory_full_of_other_things_is_refused_and_left_as_it_was(tmp_path):
    agent = write_script(tmp_path, {"agent": "script", "default": {"answer": "x"}})
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "tasks.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and no run; name another directory with -o"):
        start_run(folder, Settings(agent=agent), [Task("a", "?")])
    assert [(one.name, one.read_text()) for one in folder.iterdir()] == [("tasks.jsonl", "mine")]
    with pytest.raises(UsageError, match=r"tasks\.jsonl: is not a directory"):
        start_run(folder / "tasks.jsonl", Settings(agent=agent), [Task("a", "?")])


def test_an_empty_directory_a_tape_and_a_run_killed_at_its_start_are_taken(tmp_path):
    agent = write_script(tmp_path, {"agent": "script", "default": {"answer": "x"}})
    folder = tmp_path / "run"
    (folder / "tape").mkdir(parents=True)
    files = start_run(folder, Settings(agent=agent), [Task("a", "?")], rubrics={"a": {}})
    for _ in range(2):
        start_run(folder, Settings(agent=agent), [Task("a", "?")], rubrics={"a": {}})
        (folder / "run.json").unlink(missing_ok=True)  # killed before it was written
    assert files.traces.is_dir()


def test_where_a_run_s_endpoints_are_decides_nothing(tmp_path):
    names = ["OPENAI_BASE_URL", "GRADER_BASE_URL", *(f"SGI_JUDGE_BASE_URL_{n}" for n in (1, 2, 3))]
    hashes = []
    for port in (1, 2):
        env = dict.fromkeys(names, f"http://127.0.0.1:{port}/v1") | {"SGI_JUDGE_MODEL_1": "m"}
        folder = tmp_path / str(port)
        folder.mkdir()
        hashes.append(make_certificate(make_run(folder, ["right"], env=env).path)["hash"])
    assert hashes[0] == hashes[1]
    assert Settings("x", env=env).certified_members()["env"] == {"SGI_JUDGE_MODEL_1": "m"}


def test_a_task_that_is_there_twice_is_not_counted_twice(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"])
    tasks = files.path / "tasks.jsonl"
    tasks.write_text(tasks.read_text() + tasks.read_text().splitlines(keepends=True)[0])
    for read in (summarise, write_report):
        with pytest.raises(
            DamagedInput, match=r"tasks\.jsonl: the tasks are not those that the run began with"
        ):
            read(files.path)


def test_a_snapshot_may_lie_under_a_name_that_is_not_utf_8(tmp_path):
    """The run ended with a traceback, as its run.json could not be written."""
    name = os.fsdecode(b"/caf\xe9/site.wacz")
    RunFiles(tmp_path / "run").claim()
    files = RunFiles(tmp_path / "run")
    files.create(Settings(agent="script:a", snapshots=(name,)), [Task("a", "Q?")], {})
    assert files.manifest()[0].snapshots == (name,)


HARNESS = Path(hashes.__file__).parents[1]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "harness"
    shutil.copytree(HARNESS, copy, ignore=shutil.ignore_patterns("__pycache__", "demo"))
    monkeypatch.setattr(hashes, "_HARNESS", copy)
    return copy


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("scoring/judging.py", True),
        ("scoring/value_search.py", True),
        ("scoring/grader.json", True),
        ("rubric/rules.py", True),
        ("rubric/spelling.py", True),
        ("sandbox/running.py", True),
        ("sandbox/launcher.py", True),
        ("task.py", True),
        ("curation/lint.py", False),
        ("view/static/view.css", False),
    ],
)
def test_the_evaluator_is_what_turns_an_answer_into_a_score(copied: Path, name: str, covered: bool) -> None:
    before = hashes.evaluator_hash.__wrapped__()
    with (copied / name).open("a") as file:
        file.write("\n")
    assert (hashes.evaluator_hash.__wrapped__() != before) is covered


@pytest.fixture
def received(tmp_path, monkeypatch, capsys):
    """A folder with a snapshot and a run on it, both of a folder that is no more."""
    sender = tmp_path / "sender"
    sender.mkdir()
    with Writer.open(sender / "site") as writer:
        writer.exchange(exchange("https://a.test/", b"<p>Kestrel</p>"))
    (sender / "tasks.jsonl").write_text('{"id": "a", "question": "?", "answer": "Kestrel"}\n')
    (sender / "agent.yaml").write_text(
        "agent: script\ndefault:\n  steps: [{call: fetch, with: {url: 'https://a.test/'}, as: page}]\n"
        "  answer: \"{{ page | find('(Kestrel)') }}\"\n"
    )
    monkeypatch.chdir(sender)
    words = ("--tasks", "tasks.jsonl", "--agent", "agent.yaml", "--snapshot", "site", "-o", "run")
    assert call(capsys, "run", *words)[0] == 0
    monkeypatch.chdir(tmp_path)
    return sender.rename(tmp_path / "received")


@pytest.mark.slow
def test_a_received_run_is_repeated_on_the_snapshot_beside_it(received, monkeypatch, capsys):
    monkeypatch.chdir(received)
    code, out = call(capsys, "certify", "run", "--times", 1)
    assert code == 0, out
    call(capsys, "report", "run")
    assert "can't be opened" not in (received / "run" / "report.html").read_text()


@pytest.mark.slow
def test_a_received_run_is_repeated_on_the_snapshot_that_is_named(received, tmp_path, monkeypatch, capsys):
    snapshot = (received / "site").rename(tmp_path / "renamed")
    monkeypatch.chdir(received)
    with pytest.raises(UsageError, match="say where it is with --snapshot"):
        certify(Path("run"), times=1)
    assert call(capsys, "certify", "run", "--times", 1, "--snapshot", snapshot)[0] == 0


@pytest.mark.slow
def test_another_snapshot_of_that_name_is_told(received, monkeypatch, capsys):
    with Writer.open(received / "site") as writer:
        writer.exchange(exchange("https://a.test/more", b"<p>Merlin</p>"))
    monkeypatch.chdir(received)
    code, out = call(capsys, "certify", "run", "--times", 1)
    assert code == 1
    assert "the header differs in snapshot" in out


def test_a_snapshot_that_is_where_it_was_is_taken_from_there(tmp_path):
    for folder in ("there", "run"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "site.wacz").write_bytes(b"")
    there = str(tmp_path / "there" / "site.wacz")
    assert snapshots_now(tmp_path / "run", [there, "s3://bucket/site.wacz", "/nowhere/else.wacz"]) == (
        there,
        "s3://bucket/site.wacz",
        "/nowhere/else.wacz",
    )
