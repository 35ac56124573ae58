"""`stillweb fetch --content tables`: a CSV for each table of a view or page."""

import json
from pathlib import Path

import pytest

import stillweb
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import record

SITE = "http://mill.test"
STEPS = ({"click": {"text": "More"}},)
VIEW = view_address(f"{SITE}/", STEPS)
PAGE = "<html><h1>Mühlen</h1><table><tr><th>Name<th>Sails<tr><td>North, old<td>%d</table>%s</html>"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Writer.open(tmp_path / "s") as writer:
        latin = (PAGE % (4, "")).encode("latin-1")
        record(writer, f"{SITE}/", latin, headers=(("Content-Type", "text/html; charset=iso-8859-1"),))
        record(writer, f"{SITE}/moved", b"", status=302, headers=(("Location", "/"),))
        mislabelled = (("Content-Type", "text/html; charset=utf-8"), ("Content-Encoding", "gzip"))
        record(writer, f"{SITE}/never-packed", (PAGE % (4, "")).encode(), headers=mislabelled)
        record(writer, f"{SITE}/plain", b"<html><p>Nothing</html>")
        dom = (PAGE % (5, "<table><tr><td>a<td>b</table>")).encode()
        writer.view(View(VIEW, f"{SITE}/", f"{SITE}/", "Mills", STEPS), {"dom": dom, "text": b"x"})
    return tmp_path / "s"


def test_the_table_of_a_page_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for address in (f"{SITE}/", f"{SITE}/moved", f"{SITE}/never-packed"):
        code, out = call(capsys, "fetch", path, address, "--content", "tables")
        assert (code, out) == (0, 'Name,Sails\n"North, old",4\n')
        assert [table.csv() for table in stillweb.tables(path, address) or ()] == [out]


def test_the_tables_of_a_view_are_files_in_a_directory(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = call(capsys, "fetch", path, VIEW, "--content", "tables", "-o", tmp_path / "out")
    assert (code, out) == (0, "")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["table-1.csv", "table-2.csv"]
    assert (tmp_path / "out" / "table-1.csv").read_text() == 'Name,Sails\n"North, old",5\n'


def test_tables_as_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "fetch", path, f"{SITE}/", "--content", "tables", "--json")
    assert code == 0
    assert json.loads(out) == [{"caption": "Mühlen", "rows": [["Name", "Sails"], ["North, old", "4"]]}]


@pytest.mark.parametrize("address", [f"{SITE}/plain", f"{SITE}/none"])
def test_no_table_and_no_page_end_with_1(
    path: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert call(capsys, "fetch", path, address, "--content", "tables") == (1, "")
