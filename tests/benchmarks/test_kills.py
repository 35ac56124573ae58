"""Commands that are killed in the middle: a few of what `benchmarks.damaging.kills` does many times."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.damaging import kills
from tests.harness import small_site
from tests.proxy.origin import Origin
from tests.support.command_line import Started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kills")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kills, "CAPTURES", 100)
        patch.setattr(kills, "start", lambda killed: Started(*killed.words))  # a fork, killed in its work
        patch.setenv("STILLWEB_STATE", str(folder / "state"))
        patch.setenv("STILLWEB_CACHE", str(folder / "cache"))
        kills.prepare(folder / "made")
        yield folder / "made"


@pytest.mark.parametrize("name", ["index", "import", "cut", "cut to a directory", "publish a run", "pull"])
def test_a_killed_command_leaves_nothing_half_done(made: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "work"
    with Origin(small_site.answer) as origin:
        killed = kills.commands(folder, made, origin.url)[name]
        took = kills.timed(killed, folder, made)
        expected = kills.listed(folder)
        for part, number in ((0.8, signal.SIGKILL), (0.7, signal.SIGINT)):
            kills.fresh(folder, made)
            _, wrong = kills.kill(killed, part * took, number)
            assert [*wrong, *kills.faults(killed, folder, expected)] == []


def test_a_folder_without_its_list_is_no_publication(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "published"
    shutil.copytree(made / "published", folder)
    assert (kills.pulled(folder), kills.pulled_or_refused(folder)) == ("", "")
    (folder / "datapackage.json").unlink()
    assert "no publication" in kills.pulled(folder)
    assert kills.pulled_or_refused(folder) == ""
    (folder / "datapackage.json").write_text("{")
    assert "datapackage.json" in kills.pulled_or_refused(folder)
