"""Publishing a run: no secret, and no plain text of an encrypted task set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillweb.harness.datasets import load_tasks
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.view.export import write_report
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.benchmarks.browsecomp.test_dataset import bclc
from tests.harness.commands.calling import call
from tests.harness.datasets.test_load import write
from tests.snapshots.making import record, small_snapshot
from tests.support.openai_endpoint import KEY, Endpoint

CANARY = "canary-0123"
PLAIN = ("Which lake?", "Alpha", "wild guess")


@pytest.fixture(params=[CANARY])
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> RunFiles:
    """A run of an encrypted set (or of one in plain text) with its tape, report and certificate."""
    monkeypatch.setenv("GRADER_API_KEY", KEY)
    row = {name: value for name, value in bclc([], CANARY).items() if name != "urls"}
    if not request.param:
        row = {"problem": "Which lake?", "answer": "Alpha", "urls": "[]"}
    tasks = load_tasks(write(tmp_path / "set.jsonl", [row]))
    saved = tmp_path / "saved.jsonl"
    saved.write_text(json.dumps({"id": tasks[0].id, "answer": "a wild guess"}) + "\n")
    with Writer.open(small_snapshot(tmp_path / "site")) as writer:  # a search that quotes the set
        record(writer, "http://example.test/search?q=Which+lake%3F", b"You asked: Which lake?")
    sealed = str(seal(tmp_path / "site").path)
    with Endpoint(lambda asked: "correct: no") as endpoint:
        env = {"GRADER_MODEL": "g", "GRADER_BASE_URL": endpoint.url}
        settings = Settings(agent=f"predictions:{saved}", contracts=(), env=env, snapshots=(sealed,))
        files = start_run(tmp_path / "run", settings, tasks)
        run_attempts(files.path, display=SilentDisplay())
    write_certificate(files.path)
    write_report(files.path)
    return files


@pytest.mark.slow
def test_an_encrypted_sets_text_is_encrypted_again_and_the_canary_stands_in_each_file(
    run: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, opened = tmp_path / "published", tmp_path / "opened"
    assert "Which lake?" in (run.path / "tasks.jsonl").read_text()
    assert call(capsys, "publish", run.path, "-o", out)[0] == 0
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 4
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert CANARY in text, path
        assert not [plain for plain in PLAIN if plain in text], path
    assert not (out / ".secrets").exists()
    assert call(capsys, "publish", out, "-o", tmp_path / "again")[0] == 2
    assert call(capsys, "publish", out, "--open", "-o", opened)[0] == 0
    for path in files:
        name = path.relative_to(out).as_posix().removesuffix(".encrypted")
        if name.endswith("certificate.json") or name == "run.json":
            assert json.loads((opened / name).read_text()) == json.loads((run.path / name).read_text())
        else:
            assert (opened / name).read_bytes() == (run.path / name).read_bytes()
    outcome = certify(opened, times=1)
    assert outcome.holds, outcome.differences
    (out / "tasks.jsonl.encrypted").write_text('{"canary": "x", "encrypted": "%"}')
    assert call(capsys, "publish", out, "--open", "-o", tmp_path / "damaged")[0] == 3


@pytest.mark.slow
def test_the_snapshot_of_an_encrypted_set_is_published_encrypted(
    run: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, opened = tmp_path / "there", tmp_path / "opened"
    assert call(capsys, "publish", run.path, "--to", there)[0] == 0
    for path in (path for path in there.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert CANARY.encode() in data, path
        assert not [p for p in (*PLAIN, "example.test") if p.encode() in data], path
    sealed = tmp_path / "site.wacz"
    assert call(capsys, "pull", there, "-o", tmp_path / "pulled")[0] == 0
    assert call(capsys, "publish", tmp_path / "pulled", "--open", "-o", opened)[0] == 0
    assert (opened / "site.wacz").read_bytes() == sealed.read_bytes()
    sealed.unlink()
    assert certify(opened, times=1).holds
    kept = tmp_path / "pulled" / "site.wacz.encrypted"
    whole = kept.read_bytes()
    for damaged in (whole[:-9], whole + b"x", whole.replace(b"canary", b"canari")):
        kept.write_bytes(damaged)
        assert call(capsys, "publish", tmp_path / "pulled", "--open", "-o", tmp_path / "damaged")[0] == 3
        assert not (tmp_path / "damaged").exists()


@pytest.mark.parametrize("run", [""], indirect=True)
def test_another_run_is_copied_without_what_only_this_machine_needs(
    run: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = run.path / "tasks.jsonl"
    (run.path / "interrupted").mkdir()
    (run.path / "interrupted" / "x.jsonl").write_text("half")
    assert call(capsys, "publish", run.path, "-o", tmp_path / "out")[0] == 0
    assert (tmp_path / "out" / "tasks.jsonl").read_bytes() == tasks.read_bytes()
    assert not (tmp_path / "out" / "interrupted").exists()
    assert call(capsys, "publish", run.path, "-o", tmp_path / "out")[0] == 2
