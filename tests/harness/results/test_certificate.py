"""Certificates: what they cover, that repetitions agree, and that what differs is found and named."""

import errno
import json
import shutil
import sys
from dataclasses import replace

import pytest

from stillweb.api import score
from stillweb.harness.cli import main
from stillweb.harness.results.certificate import (
    certify,
    check_traces,
    make_certificate,
    shuffled,
    write_certificate,
)
from stillweb.harness.results.kept_certificate import changed_certificate, hash_of
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.engine import Job
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import append_event, read_trace, replace_events
from stillweb.snapshots.errors import DamagedInput, StillwebError, UsageError
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import exchange
from tests.support.openai_endpoint import KEY, Endpoint
from tests.support.runs import RUBRIC, bird_task, make_run, write_script

NAMES = ["right", "wrong", "silent", "babble", "broken"]


@pytest.mark.slow
def test_a_run_repeated_in_other_surroundings_has_one_hash(tmp_path):
    files = make_run(tmp_path, NAMES, epochs=2)
    seen = []
    report = certify(files.path, times=2, progress=lambda done, total: seen.append((done, total)))
    assert report.differences == ()
    assert set(report.repeated) == {report.hash}
    assert seen == [(1, 2), (2, 2)]
    assert json.loads((files.path / "certificate.json").read_text())["hash"] == report.hash


@pytest.mark.slow
@pytest.mark.parametrize("on", ["seed", "zone", "locale", "order"])
def test_what_depends_on_seed_zone_locale_or_order_is_found_and_named(tmp_path, on):
    script = {
        "default": {"steps": [{"call": "fetch", "with": {"url": "https://shelf.example/"}}], "answer": "NONE"}
    }
    settings = Settings(
        agent=write_script(tmp_path, script),
        contracts=("tests.support.shelf_tools:Restless",),
        tool_options={"on": on},
    )
    files = start_run(tmp_path / "run", settings, [bird_task("a"), bird_task("b"), bird_task("c")])
    run_attempts(files.path, display=SilentDisplay())
    report = certify(files.path, times=1)
    assert not report.holds
    assert "event 1 (tool_call) differs in output.digest" in report.differences[0]


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "tape"), [(None, "auto"), ("7", "none")])
def test_nobody_is_asked_and_no_key_needed_where_there_is_no_tape(tmp_path, monkeypatch, answer, tape):
    """No tape, for the judge had nothing to judge, or did not answer: a repetition asked it."""
    monkeypatch.setenv("GRADER_API_KEY", KEY)
    script = {"default": {"steps": [{"set": {"a": 1}}], **({"answer": answer} if answer else {})}}
    with Endpoint(lambda asked: "correct: yes", [404]) as judge:
        env = {"GRADER_BASE_URL": judge.url, "GRADER_MODEL": "judge"}
        agent = write_script(tmp_path, script)
        settings = Settings(agent=agent, contracts=(), env=env, tape=tape)
        files = start_run(tmp_path / "run", settings, [Task("a", "Which?", "7", "judge")])
        run_attempts(files.path, display=SilentDisplay())
        asked = len(judge.requests)
        monkeypatch.delenv("GRADER_API_KEY")
        assert certify(files.path, times=1).holds
        assert len(judge.requests) == asked


@pytest.mark.slow
def test_tasks_the_snapshot_cannot_answer_stay_so_when_repeated(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"], run=False)
    run_attempts(files.path, display=SilentDisplay(), unsolvable={"wrong": "not captured"})
    assert certify(files.path, times=1).holds


def test_a_changed_score_trace_or_setting_is_another_certificate(tmp_path):
    files = make_run(tmp_path, NAMES)
    before = make_certificate(files.path)
    assert make_certificate(files.path) == before
    trace = read_trace(files.trace_path("right", 1))
    lines = [trace.header, *trace.events]
    forged = [*lines[:-1], {**lines[-1], "metrics": {**lines[-1]["metrics"], "em": 0.5}}]
    replace_events(trace.path, forged)
    assert make_certificate(files.path)["hash"] != before["hash"]
    replace_events(trace.path, lines)
    assert make_certificate(files.path)["hash"] == before["hash"]
    settings, stands_on = files.manifest()
    files.write_manifest(Settings(**{**vars_of(settings), "accept": "exact"}), stands_on)
    assert make_certificate(files.path)["hash"] != before["hash"]


def vars_of(settings):
    return {name: getattr(settings, name) for name in Settings.__dataclass_fields__}


def test_a_review_and_the_place_of_files_change_no_certificate(tmp_path):
    files = make_run(tmp_path, ["wrong"])
    before = make_certificate(files.path)["hash"]
    append_event(
        files.trace_path("wrong", 1),
        "review",
        reviewer="ada",
        **{"class": "drift"},
        decisive_event=1,
        cause="c",
        evidence="e",
        nearest_class="self-rewriting",
        why_not="w",
    )
    assert make_certificate(files.path)["hash"] == before
    (tmp_path / "elsewhere").mkdir()
    moved = files.path.rename(tmp_path / "elsewhere" / "moved")
    assert make_certificate(moved)["hash"] == before


def test_a_certificate_names_what_the_score_stands_on(tmp_path):
    certificate = write_certificate(make_run(tmp_path, ["right"]).path)
    for name in ("tasks", "rubrics", "contracts", "prompts", "evaluator", "code", "hash"):
        assert len(certificate[name]) == 64, name
    assert certificate["scores"]["attempts"] == 1
    assert list(certificate["attempts"]) == ["right/1"]


def test_tasks_and_side_cars_that_are_not_those_of_the_run_are_not_certified(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"])
    path = files.path / "tasks.jsonl"
    whole = path.read_text()
    path.write_text(whole.splitlines(keepends=True)[0])  # the wrong one goes, and the mean is 1
    with pytest.raises(DamagedInput, match=r"tasks\.jsonl: the tasks are not those that the run began with"):
        make_certificate(files.path)
    path.write_text(whole)
    (files.path / "rubrics.json").write_text(json.dumps({"right": {"columns": ["id"]}}))
    with pytest.raises(DamagedInput, match=r"rubrics\.json: the side-cars are not those that the run began"):
        make_certificate(files.path)


def test_a_trace_counts_for_its_own_attempt_and_run_only(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"])
    wrong = files.trace_path("wrong", 1)
    before = wrong.read_bytes()
    shutil.copy(files.trace_path("right", 1), wrong)
    with pytest.raises(DamagedInput, match=r"wrong\.1\.jsonl: is the trace of attempt 1 at 'right'"):
        make_certificate(files.path)
    wrong.write_bytes(before)
    trace = read_trace(wrong)
    for member, value in {
        "task": {**trace.header["task"], "reference": "7|3900\n9|3800"},
        "snapshot": "another",
        "agent": {"kind": "another"},
        "scoring": {**trace.header["scoring"], "fold_case": True},
        "rubric": {**RUBRIC, "columns": ["id"]},  # a score computed again would be computed by it
    }.items():
        replace_events(wrong, [{**trace.header, member: value}, *trace.events])
        with pytest.raises(DamagedInput, match=f"wrong.1.jsonl: its {member} is not that of the run"):
            make_certificate(files.path)


def test_scores_of_another_version_of_the_scorers_are_computed_again_before_they_are_certified(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"])
    settings, stands_on = files.manifest()
    old = {**stands_on, "evaluator": "of a year ago"}
    before = make_certificate(files.path)
    files.write_manifest(settings, old)
    assert make_certificate(files.path) == before  # computed again, and the same
    assert files.manifest()[1] == stands_on
    trace = read_trace(files.trace_path("wrong", 1))
    other = {**trace.events[-1], "metrics": {**trace.events[-1]["metrics"], "em": 1.0}}
    replace_events(trace.path, [trace.header, *trace.events[:-1], other])
    files.write_manifest(settings, old)
    run_attempts(files.path, display=SilentDisplay())  # going on hides nothing
    with pytest.raises(UsageError, match=r"1 score came out differently .*stillweb score .* --write"):
        make_certificate(files.path)
    assert files.manifest()[1]["evaluator"] == "of a year ago"
    assert len(score_run(files.path, write=True)) == 1
    assert make_certificate(files.path) == before


def test_a_run_that_goes_on_with_other_scorers_keeps_in_mind_who_scored_the_rest(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"])
    files.trace_path("right", 1).unlink()
    settings, stands_on = files.manifest()
    files.write_manifest(settings, {**stands_on, "evaluator": "of a year ago"})
    run_attempts(files.path, display=SilentDisplay())
    assert files.manifest()[1]["evaluator"] == "of a year ago"


def test_scores_that_come_out_differently_get_no_certificate(tmp_path, capsys):
    files = make_run(tmp_path, ["right", "wrong"])
    trace = read_trace(files.trace_path("wrong", 1))
    forged = {**trace.events[-1], "metrics": {**trace.events[-1]["metrics"], "em": 1.0}}
    replace_events(trace.path, [trace.header, *trace.events[:-1], forged])
    code, out = call(capsys, "score", files.path)
    assert code == 1
    assert "no certificate" in out
    assert not (files.path / "certificate.json").exists()
    code, out = call(capsys, "score", files.path, "--json")
    assert (code, json.loads(out)["certificate"]) == (1, None)
    code, out = call(capsys, "score", files.path, "--write")
    assert code == 1
    assert json.loads((files.path / "certificate.json").read_text())["hash"] in out
    assert call(capsys, "score", files.path)[0] == 0


def test_a_scorer_of_ones_own_is_part_of_the_certificate(tmp_path, monkeypatch):
    code = "from stillweb.harness.scoring import Score\n\ndef mine(task, answer, context):\n    return Score({'m': 1.0})\n"
    (tmp_path / "own_scorer_of_a_test.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(agent=write_script(tmp_path), contracts=("tests.support.shelf_tools:Shelf",))
    task = replace(bird_task("right"), scorer="own_scorer_of_a_test:mine")
    files = start_run(tmp_path / "run", settings, [task])
    run_attempts(files.path, display=SilentDisplay())
    one = make_certificate(files.path)
    assert list(one["scorers"]) == ["own_scorer_of_a_test:mine"]
    (tmp_path / "own_scorer_of_a_test.py").write_text(code.replace("1.0", "0.5 + 0.5"))
    assert make_certificate(files.path)["scorers"] != one["scorers"]


def test_an_unfinished_run_has_no_certificate(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"])
    files.trace_path("wrong", 1).unlink()
    with pytest.raises(UsageError, match="1 of 2 attempts unfinished"):
        make_certificate(files.path)


@pytest.mark.slow
def test_a_run_whose_agent_is_gone_says_so(tmp_path):
    files = make_run(tmp_path, ["right"])
    (tmp_path / "agent.yaml").unlink()
    told = r"the repetition failed: .*agent\.yaml: No such file or directory \(the agent's files are looked for in "
    with pytest.raises(StillwebError, match=told):
        certify(files.path, times=1)


@pytest.mark.slow
def test_a_run_repeats_wherever_it_is_asked_from(tmp_path, capsys, monkeypatch):
    """The agent's path counts from where the run was begun; a folder there with our package's name is not imported for it."""
    write_script(tmp_path, {"agent": "script", "default": {"answer": "x"}})
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "question": "?", "answer": "x"}\n')
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "run", "--tasks", "tasks.jsonl", "--agent", "agent.yaml", "-o", "run")[0] == 0
    monkeypatch.chdir("/")
    assert call(capsys, "certify", tmp_path / "run", "--times", 1)[0] == 0


def test_a_run_that_nobody_may_write_to_is_scored_by_another_version(tmp_path, monkeypatch):
    files = make_run(tmp_path, ["right"])
    write_certificate(files.path)
    kept = files.path / "certificate.json"
    before = kept.read_bytes()
    monkeypatch.setattr("stillweb.harness.results.certificate.code_hash", lambda: "of another version")

    def refused(path, parts):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("stillweb.harness.results.certificate.write_whole", refused)
    assert check_traces(files.path)["code"] == "of another version"
    assert kept.read_bytes() == before
    with pytest.raises(PermissionError):
        write_certificate(files.path)


def test_jobs_are_shuffled_the_same_everywhere_and_differently_by_seed():
    jobs = [Job(f"t{i}", 1) for i in range(20)]
    assert shuffled(jobs, "1") == shuffled(jobs[::-1], "1")
    assert sorted(shuffled(jobs, "1"), key=str) == sorted(jobs, key=str)
    assert shuffled(jobs, "1") != jobs != shuffled(jobs, "2")


def test_a_certificate_that_is_there_is_not_written_again(tmp_path):
    """A run may lie where nobody writes, and is scored there all the same."""
    files = make_run(tmp_path, NAMES)
    first = write_certificate(files.path)
    kept = files.path / "certificate.json"
    before = kept.stat()
    assert write_certificate(files.path) == first
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    kept.write_text("{}")
    write_certificate(files.path)
    assert json.loads(kept.read_text()) == first


@pytest.mark.slow
def test_an_altered_trace_does_not_get_a_certificate_in_silence(tmp_path, capsys):
    files = make_run(tmp_path, NAMES)
    write_certificate(files.path)
    kept = files.path / "certificate.json"
    before, path = kept.read_bytes(), files.trace_path("wrong", 1)
    original = path.read_bytes()
    altered = original.replace(b"shelf.example/list", b"shelf.example/lost")
    assert altered != original
    path.write_bytes(altered)
    for words in (("score", files.path), ("certify", files.path, "--times", 1)):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        told = capsys.readouterr()
        assert ended.value.code == (3 if words[0] == "score" else 1)
        assert "wrong/1" in told.err + told.out
        assert kept.read_bytes() == before
    assert call(capsys, "score", files.path, "--write")[0] == 0
    assert kept.read_bytes() != before
    path.write_bytes(original)
    assert call(capsys, "certify", files.path, "--times", 1)[0] == 0  # it repeats, so it is the right one
    assert kept.read_bytes() == before


def test_a_certificate_that_was_altered_is_made_anew_and_not_shown(tmp_path, capsys):
    files = make_run(tmp_path, ["right"])
    write_certificate(files.path)
    kept = files.path / "certificate.json"
    before = kept.read_bytes()
    twice = b'"mean": 0.9, "mean": 1.0'  # of which parsers take the last one, and people read the first
    for old, new in (
        (b'"mean": 1.0', b'"mean": 0.9'),
        (b'"refused": 0', b'"refused": 1'),
        (b'"mean": 1.0', twice),
    ):
        kept.write_bytes(before.replace(old, new))
        assert kept.read_bytes() != before
        assert call(capsys, "report", files.path)[0] == 3
        assert call(capsys, "score", files.path)[0] == 0
        assert kept.read_bytes() == before


@pytest.mark.slow
def test_a_repetition_that_ends_in_an_error_says_which(tmp_path, monkeypatch, capsys):
    (tmp_path / "needy.py").write_text(
        "import os, sys, urllib.request\n"
        "if 'STILLWEB_TEST_KEY' not in os.environ:\n    sys.exit('no key here')\n"
        "print(urllib.request.urlopen('https://a.test/').read())\n"
    )
    with Writer.open(tmp_path / "site") as writer:
        writer.exchange(exchange("https://a.test/", b"<p>Kestrel</p>"))
    options = {"command": [sys.executable, str(tmp_path / "needy.py")], "pass_env": ["STILLWEB_TEST_KEY"]}
    (tmp_path / "agent.yaml").write_text(json.dumps({"agent": "command", **options}))
    monkeypatch.setenv("STILLWEB_TEST_KEY", "Kestrel")
    settings = Settings(agent=str(tmp_path / "agent.yaml"), snapshots=(str(tmp_path / "site"),))
    files = start_run(tmp_path / "run", settings, [bird_task("a")])
    run_attempts(files.path, display=SilentDisplay())
    monkeypatch.delenv("STILLWEB_TEST_KEY")
    (difference,) = certify(files.path, times=1).differences
    assert "event 1 (tool_call) differs in event" in difference
    assert "no key here" in difference
    with pytest.raises(SystemExit):
        main(["certify", str(files.path), "--times", "1"])
    said = capsys.readouterr().err
    assert (
        f"{settings.agent}: pass_env: STILLWEB_TEST_KEY is not set here, so the program does not get it"
        in said
    )


@pytest.mark.slow
@pytest.mark.parametrize("hashed_again", [False, True])
def test_figures_that_its_traces_do_not_give_are_named_by_certify(tmp_path, capsys, hashed_again):
    files = make_run(tmp_path, ["right", "wrong"])
    certificate = write_certificate(files.path)
    certificate["scores"]["metrics"]["em"]["mean"] = 1.0
    if hashed_again:
        certificate["hash"] = hash_of(certificate)
    kept = files.path / "certificate.json"
    kept.write_text(json.dumps(certificate))
    forged = kept.read_bytes()
    code, out = call(capsys, "certify", files.path, "--times", 1)
    assert code == 1
    assert kept.read_bytes() == forged
    if hashed_again:
        assert "certificate.json says scores.metrics.em.mean: 1.0, its traces give 0.5" in out
    else:
        assert "its hash is not that of its content" in out


@pytest.mark.parametrize(
    ("member", "harm", "said"),
    [
        (("settings", "accept"), "exact", 'says settings.accept: "rule", run.json gives "exact"'),
        (("settings", "limits", "calls"), 7, "says settings.limits.calls: 200, run.json gives 7"),
        (("stands_on", "contracts"), "exact", 'run.json gives "exact"'),
    ],
)
def test_harm_to_what_only_the_settings_say_is_named(tmp_path, member, harm, said):
    files = make_run(tmp_path, ["right"])
    write_certificate(files.path)
    file = files.path / "run.json"
    value = json.loads(file.read_text())
    place = value
    for name in member[:-1]:
        place = place[name]
    place[member[-1]] = harm
    file.write_text(json.dumps(value))
    [told] = changed_certificate(files.path, make_certificate(files.path))
    assert said in told


def test_a_certificate_of_other_code_is_told_apart_from_a_forged_one(tmp_path, capsys):
    files = make_run(tmp_path, ["right"])
    certificate = write_certificate(files.path)
    certificate |= {"code": "of another version", "evaluator": "of another version"}
    certificate["hash"] = hash_of(certificate)
    (files.path / "certificate.json").write_text(json.dumps(certificate))
    code, out = call(capsys, "certify", files.path, "--times", 1)
    assert code == 0, out
    assert f"{certificate['hash']}, was made by another version of the code" in out


def test_score_says_that_a_certificate_was_not_that_of_its_traces(tmp_path, capsys):
    files = make_run(tmp_path, ["right"])
    certificate = write_certificate(files.path)
    kept = files.path / "certificate.json"
    kept.write_text(json.dumps(certificate | {"refused": 1}))
    with pytest.raises(SystemExit):
        main(["score", str(files.path)])
    assert "the earlier certificate (altered) is not that of its traces" in capsys.readouterr().err


def test_a_score_that_comes_out_differently_is_told_by_its_first_member(tmp_path):
    files = make_run(tmp_path, ["right"])
    trace = read_trace(files.trace_path("right", 1))
    forged = {**trace.events[-1], "metrics": {**trace.events[-1]["metrics"], "em": 0.5}}
    replace_events(trace.path, [trace.header, *trace.events[:-1], forged])
    notes = []
    again = score(files.path, note=notes.append)
    assert (again.different, again.certificate) == (("right.1",), {})
    assert notes == ["right.1: a score came out differently: metrics.em: 0.5, now 1.0"]
    assert score(files.path, write=True).certificate["hash"] == score(files.path).certificate["hash"]
