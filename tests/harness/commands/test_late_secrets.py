"""A killed recording is searched for secrets by each command that makes a snapshot of it to give away."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots import seal
from stillweb.snapshots.errors import GateFailed
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.operations.cut import Needs, cut
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.upgrading import accept
from stillweb.snapshots.secrets.keystore import LEARNED as FILE
from stillweb.snapshots.secrets.keystore import state_dir
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.proxy.origin import Answer, Asked, Origin
from tests.snapshots.operations.test_late_secrets import TOKEN, record

pytestmark = pytest.mark.usefixtures("own_state")


def killed(path: Path, page: str = f"<p>{TOKEN}</p>") -> Path:
    """Leave a killed recording whose page showed a token before it was known as one."""
    with Writer.open(path):
        redactor = Redactor.for_snapshot(path, state_dir(), keep=True)
    record(path, redactor, first=page.encode())
    return path


def code_and_words(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    from stillweb.harness.cli import main

    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0), capsys.readouterr().err


def test_sealing_looks_through_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = killed(tmp_path / "s")
    assert (path / FILE).exists()
    for _ in range(2):  # what was found is noted
        code, said = code_and_words(capsys, "seal", path)
        assert code == 1
        assert "a secret that was recognised only later, in the response body of http://a.test/" in said
        assert (
            "a secret stands in 2 records; if the secret may become known, seal with --keep-secrets" in said
        )
        assert not (path / FILE).exists()
    assert not (tmp_path / "s.wacz").exists()
    code, said = code_and_words(capsys, "seal", path, "--keep-secrets")
    assert code == 0
    assert "all the same" in said


def test_a_sound_one_is_sealed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s"
    with Writer.open(path):
        Redactor.for_snapshot(path, state_dir(), keep=True).learn(TOKEN[::-1])
    record(path, Redactor(b"k" * 32), first=b"<p>nothing</p>")
    assert (path / FILE).exists()
    assert call(capsys, "seal", path)[0] == 0
    assert not (path / FILE).exists()
    with Snapshot.open(tmp_path / "s.wacz") as snapshot:
        assert [capture.url for capture in snapshot.captures()] == ["http://a.test/", "http://a.test/token"]


def test_what_another_user_recorded_is_not_sealed_unseen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = killed(tmp_path / "s")
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "another user"))
    code, said = code_and_words(capsys, "seal", path)
    assert code == 1
    assert (
        "can't be read with this user's key; if the secret may become known, seal with --keep-secrets" in said
    )
    assert (path / FILE).exists()
    assert code_and_words(capsys, "seal", path, "--keep-secrets")[0] == 0


def test_nothing_else_makes_a_snapshot_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = killed(tmp_path / "s")
    out = tmp_path / "out.wacz"
    for words in (
        ("import", path, "-o", tmp_path / "other"),
        ("text", path, "--upgrade", "--accept", "-o", out),
        ("cut", path, "--run", tmp_path, "-o", out),
    ):
        code, said = code_and_words(capsys, *words)
        assert code == 1, words
        assert (
            "a secret stands in 2 records; if the secret may become known, seal with --keep-secrets" in said
        )
    assert not out.exists()
    assert not (tmp_path / "other").exists()


def test_nor_does_python(tmp_path: Path) -> None:
    path = killed(tmp_path / "s")
    out = tmp_path / "out.wacz"
    calls: dict[str, Callable[[], object]] = {
        "seal": lambda: seal(path, out),
        "import": lambda: import_files([path], tmp_path / "other"),
        "accept": lambda: accept(path, [], out, layer=True),
        "cut": lambda: cut(path, Needs(frozenset(), frozenset(), frozenset()), out),
    }
    for name, make in calls.items():
        with pytest.raises(
            GateFailed, match=r"a secret stands in 2 records.*\n.*response body of http://a.test/"
        ) as told:
            make()
        assert TOKEN not in str(told.value), name
    assert not out.exists()
    assert not (tmp_path / "other").exists()
    report = seal(path, out, keep_secrets=True)
    assert "sealed all the same" in report.text()
    assert "2 records" in report.secrets


def test_a_recorder_in_python_keeps_what_sealing_looks_for(tmp_path: Path) -> None:
    first = f'"your code is {TOKEN}"'.encode()

    def answer(asked: Asked) -> Answer:
        body = f'{{"access_token": "{TOKEN}"}}'.encode() if asked.path == "/token" else first
        return Answer(headers=[("Content-Type", "application/json")], body=body)

    path = tmp_path / "s"
    with (
        Origin(answer) as origin,
        Writer.open(path) as writer,
        Recorder(writer) as recorder,
        httpx.Client(proxy=recorder.proxy_url()) as client,
    ):
        client.get(f"{origin.url}/first")
        client.get(f"{origin.url}/token")
    with pytest.raises(GateFailed, match=r"a secret stands in 1 record;.*\n.*/first"):
        seal(path)


def test_who_goes_on_with_it_knows_what_it_knew(tmp_path: Path) -> None:
    path = killed(tmp_path / "s", "<p>nothing</p>")
    redactor = Redactor.for_snapshot(path, state_dir(), keep=True)
    assert redactor.knows([TOKEN.encode()])
    assert [one.part for one in late_secrets.look_through(path, redactor)] == ["view's text"]
    assert not (path / FILE).exists()
    assert not Redactor.for_snapshot(path, state_dir(), keep=True).knows([TOKEN.encode()])
