"""A run that was received from another machine: its snapshot is found beside it, or where one says that it lies."""

from pathlib import Path

import pytest

from stillweb.harness.results.certificate import certify
from stillweb.harness.runs.relocated_paths import snapshots_now
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import exchange


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
