"""Files that a run gives its attempts: each has copies of its own, and score and certificate stand on their bytes."""

import json
import shlex
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.results.certificate import certify, make_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput, UsageError
from tests.harness.tools.frozen import make_site
from tests.snapshots.text.test_text import make_pdf

STEPS = [
    {"call": "read_pdf", "with": {"sources": [{"path": "papers/one.pdf", "pages": "1"}]}, "as": "text"},
    {
        "call": "read_pdf",
        "with": {"sources": [{"path": "/workspace/papers/one.pdf", "pages": [1]}], "include_images": True},
    },
    {"call": "read_pdf", "with": {"sources": [{"path": "../run.json"}]}, "may_fail": True},
]


class Writes:
    """An agent that writes into its folder, and says what lay there."""

    name = "writes"

    def identity(self) -> dict[str, object]:
        return {"kind": "writes"}

    async def run(self, attempt: Attempt) -> str:
        assert attempt.workspace is not None
        there = sorted(p.relative_to(attempt.workspace).as_posix() for p in attempt.workspace.rglob("*"))
        (attempt.workspace / "left.txt").write_text("of another attempt")
        return " ".join(there)


@pytest.fixture
def uploads(tmp_path: Path) -> Path:
    folder = tmp_path / "given"
    (folder / "papers").mkdir(parents=True)
    (folder / "papers/one.pdf").write_bytes(make_pdf("Gentoo penguins weigh 5076 g."))
    return folder


def begun(folder: Path, uploads: Path | None, agent: str = "", epochs: int = 1) -> RunFiles:
    if not (folder / "site").exists():
        make_site(folder / "site").close()
        script = {"agent": "script", "default": {"steps": STEPS, "answer": "{{ text }}"}}
        (folder / "agent.yaml").write_text(json.dumps(script))
    settings = Settings(
        agent=agent or str(folder / "agent.yaml"),
        snapshots=(str(folder / "site"),),
        contracts=("pdf-reader",),
        epochs=epochs,
    )
    return start_run(folder / "run", settings, [Task("a", "?", "x")], uploads=uploads)


@pytest.mark.slow
def test_a_run_repeats_with_its_files(tmp_path: Path, uploads: Path) -> None:
    files = begun(tmp_path, uploads)
    run_attempts(files.path, display=SilentDisplay())
    certificate = make_certificate(files.path)
    named = certificate["settings"]["uploads"]
    assert list(named) == ["papers/one.pdf"]
    trace = next(trace for _, _, trace in files.attempts())
    assert trace is not None
    first, second, outside = trace.of("tool_call")
    assert first["meta"]["uploads"] == [{"name": "papers/one.pdf", "digest": named["papers/one.pdf"]}]
    assert "Gentoo penguins weigh 5076 g." in first["output"]["text"]
    assert second["output"]["other"][0]["media"] == "image/png"
    assert "File not found at '../run.json'" in outside["output"]["text"]
    (uploads / "papers/one.pdf").unlink()  # the run has copies
    assert certify(files.path, times=1, parallel=1).holds


@pytest.mark.slow
def test_a_program_starts_beside_the_files_of_its_run(tmp_path: Path, uploads: Path) -> None:
    code = (
        "import os; print(os.getcwd(), os.listdir('papers'), open('papers/one.pdf', 'rb').read(4).decode())"
    )
    files = begun(tmp_path, uploads, agent=f"command:{shlex.join([sys.executable, '-c', code])}")
    run_attempts(files.path, display=SilentDisplay())
    trace = next(trace for _, _, trace in files.attempts())
    assert trace is not None
    assert trace.last("answer")["text"] == "/workspace ['one.pdf'] %PDF"


@pytest.mark.slow
def test_another_file_is_another_run(tmp_path: Path, uploads: Path) -> None:
    files = begun(tmp_path, uploads)
    run_attempts(files.path, display=SilentDisplay())
    begun(tmp_path, uploads)  # goes on
    (uploads / "papers/one.pdf").write_bytes(b"%PDF-1.4 other")
    with pytest.raises(UsageError, match="this run was begun with uploads"):
        begun(tmp_path, uploads)
    with pytest.raises(UsageError, match="this run was begun with uploads"):
        begun(tmp_path, None)


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"changed", "is not the upload that the run began with"), (None, "an upload of the run is missing")],
)
def test_files_of_a_run_that_changed_are_refused(
    tmp_path: Path, uploads: Path, data: bytes | None, words: str
) -> None:
    files = begun(tmp_path, uploads)
    path = files.uploads / "papers/one.pdf"
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DamagedInput, match=words):
        run_attempts(files.path, display=SilentDisplay())


@pytest.mark.parametrize("name", ["../escaped.pdf", "/workspace/../../escaped.pdf"])
def test_a_run_of_others_writes_nowhere_else(tmp_path: Path, uploads: Path, name: str) -> None:
    files = begun(tmp_path, uploads)
    (files.path / "escaped.pdf").write_bytes(b"x")
    settings, stands_on = files.manifest()
    files.write_manifest(replace(settings, uploads={name: f"sha256:{sha256(b'x').hexdigest()}"}), stands_on)
    with pytest.raises(DamagedInput, match="an upload of the run is missing"):
        run_attempts(files.path, display=SilentDisplay())


def test_a_run_of_which_nothing_was_made_takes_other_files(tmp_path: Path, uploads: Path) -> None:
    begun(tmp_path, uploads)
    assert begun(tmp_path, None).manifest()[0].uploads == {}
    assert not (tmp_path / "run/uploads").exists()


def test_a_link_is_no_upload(tmp_path: Path, uploads: Path) -> None:
    (uploads / "link").symlink_to("/etc/hosts")
    with pytest.raises(UsageError, match="link: a link is not an upload"):
        begun(tmp_path, uploads)


@pytest.mark.slow
def test_no_attempt_finds_what_another_left(tmp_path: Path, uploads: Path) -> None:
    files = begun(tmp_path, uploads, agent=f"{__name__}:Writes", epochs=3)
    run_attempts(files.path, display=SilentDisplay())
    answers = [trace.last("answer")["text"] for _, _, trace in files.attempts() if trace]  # type: ignore[index]
    assert answers == ["papers papers/one.pdf"] * 3
    assert "uploads" not in begun_without(tmp_path)


def begun_without(folder: Path) -> dict[str, object]:
    other = folder / "other"
    other.mkdir()
    return begun(other, None).manifest()[0].certified_members()
