"""Secrets among a run's settings and in a model's address stand in none of its files, and do their work all the same."""

import random
import string
import sys
import zlib
from pathlib import Path

import pytest
import yaml

from stillweb.harness.results.certificate import certify, make_certificate, write_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import UsageError
from tests.support.openai_endpoint import Endpoint

TOKEN = "".join(
    random.Random(7).choices(string.ascii_letters + string.digits, k=32)
)  # made here: no commit holds it
PROGRAM = """
import sys
assert sys.argv[-1].rpartition("=")[2] == sys.argv[1][::-1], "not the token"
sys.exit(f"failed with {sys.argv}") if {failing} else print("42")
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "state"))


def contents(folder: Path) -> bytes:
    """All files under a folder, unpacked where they are packed."""
    held = []
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        held.append(data)
        while data[:2] == b"\x1f\x8b":
            member = zlib.decompressobj(31)
            held.append(member.decompress(data))
            data = member.unused_data
    return b"\n".join(held)


def started(folder: Path, name: str, option: str, *, failing: bool = False) -> RunFiles:
    program = folder / "agent.py"
    program.write_text(PROGRAM.replace("{failing}", str(failing)))
    spelt = TOKEN[::-1]  # so that the program can tell whether it was given the real one
    settings = Settings(agent=f"command:{sys.executable} {program} {spelt} {option}")
    return start_run(folder / name, settings, [Task("a", "?", reference=["42"], scorer="exact")])


@pytest.mark.slow
@pytest.mark.parametrize("option", [f"--token {TOKEN}", f"--token={TOKEN}", f"--api-key={TOKEN}"])
def test_a_token_among_a_programs_arguments_is_handed_to_it_alone(tmp_path: Path, option: str) -> None:
    files = started(tmp_path, "run", option)
    run_attempts(files.path, display=SilentDisplay())
    answer = read_trace(files.trace_path("a", 1)).last("answer")
    assert answer is not None
    assert answer["text"] == "42"
    certificate = write_certificate(files.path)
    assert TOKEN.encode() not in contents(files.path)
    assert "agent.py" in str(certificate)
    assert certify(files.path, times=1).holds
    again = started(tmp_path, "run", option)  # goes on with it
    assert make_certificate(again.path)["hash"] == certificate["hash"]


def test_what_a_program_says_when_it_fails_does_not_tell_its_token(tmp_path: Path) -> None:
    files = started(tmp_path, "run", f"--token {TOKEN}", failing=True)
    run_attempts(files.path, display=SilentDisplay())
    told = contents(files.path)
    assert b"failed with" in told
    assert TOKEN.encode() not in told


def test_another_user_is_told_that_he_has_not_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = started(tmp_path, "run", f"--token {TOKEN}")
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "another"))
    with pytest.raises(UsageError, match="can't be read with this user's key"):
        run_attempts(files.path, display=SilentDisplay())


@pytest.mark.slow
@pytest.mark.usefixtures("openai_key")
@pytest.mark.parametrize("how", ["agent file", "variable"])
def test_user_info_and_a_key_in_a_models_address_are_on_no_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with Endpoint(lambda asked: f"42 {TOKEN}@x") as endpoint:
        url = endpoint.url.replace("://", f"://me:{TOKEN}%40x@")  # filled in again as it was spelt
        agent = tmp_path / "model.yaml"
        agent.write_text(
            yaml.safe_dump(
                {"agent": "openai", "model": "m", **({"base_url": url} if how == "agent file" else {})}
            )
        )
        settings = Settings(agent=str(agent), env={"OPENAI_BASE_URL": url} if how == "variable" else {})
        files = start_run(tmp_path / "run", settings, [Task("a", "?", reference=["42"], scorer="exact")])
        run_attempts(files.path, display=SilentDisplay())
        assert len(endpoint.requests) == 1
    held = contents(files.path)
    assert b"chat/completions" in held
    assert TOKEN.encode() not in held
    monkeypatch.delenv("OPENAI_API_KEY")
    assert certify(files.path, times=1).holds


def test_settings_come_back_as_they_were_given(tmp_path: Path) -> None:
    given = Settings(
        agent="own:agent",
        agent_options={"password": "hunter2-x", "words": ["--token", TOKEN, f"http://a/?key={TOKEN}", "x"]},
        env={"OPENAI_BASE_URL": f"http://me:{TOKEN}%2F@h.test/v1"},
    )
    files = RunFiles(tmp_path / "run")
    files.path.mkdir()
    files.write_manifest(given, {})
    shown = files.manifest()[0]
    assert TOKEN not in str(shown)
    assert "hunter2-x" not in str(shown)
    assert files.with_secrets(shown).to_json() == given.to_json()
    files.write_manifest(shown, {"code": "x"})  # as a run does that notes what it stands on
    assert files.with_secrets(files.manifest()[0]).to_json() == given.to_json()
    assert TOKEN not in str(given.certified_members())
