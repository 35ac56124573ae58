"""`stillweb ls`: web sockets, provenance; with `--views` the graph as a page, and a view's steps file."""

import json
import re
from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.proxy.browser.steps import parse_steps
from stillweb.snapshots import Snapshot
from stillweb.snapshots.contents.provenance import Provenance
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.proxy.explore.test_graph_layout import VIEWS, snapshot
from tests.proxy.sites import Answer, serve
from tests.snapshots.making import record
from tests.support.command_line import stillweb


@pytest.fixture
def path(tmp_path: Path) -> Path:
    snapshot(tmp_path / "s").close()
    return tmp_path / "s"


def test_the_graph_is_one_html_file(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "ls", path, "--views", "--html", tmp_path / "views.html")
    assert (code, out) == (0, f"{tmp_path / 'views.html'}\n")
    page = (tmp_path / "views.html").read_text()
    assert "Wind mills &lt;b&gt;" in page
    assert "Wind mills <b>" not in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert page.count('class="page-section"') == len(VIEWS) + 1
    assert "Exploring ended: all tried" in page
    assert "option: &#39;2012&#39;" in page  # the steps file


def test_the_steps_file_of_a_view_gives_its_steps_again(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (VIEWS[3].address, VIEWS[3].id):
        code, out = call(capsys, "ls", path, "--views", "--steps", name)
        assert code == 0
        assert out.startswith(f"# stillweb record {VIEWS[3].url} --steps FILE\n")
        assert parse_steps(out) == VIEWS[3].steps


def test_a_secret_in_a_steps_file_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recording by it would give the site a password that is none."""
    steps = parse_steps(f"- fill: {{label: Word, value: stillweb-secret-{'0' * 24}}}")
    url = "http://mill.test/"
    view = View(view_address(url, list(steps)), url, url, "T", steps)
    with Writer.open(tmp_path / "s") as writer:
        writer.view(view, {"text": b"seen"})
    code, out = call(capsys, "ls", tmp_path / "s", "--views", "--steps", view.address)
    assert (code, parse_steps(out)) == (0, steps)
    assert out.splitlines()[1].startswith("# stillweb-secret-…: stands for a secret")


def test_an_address_that_is_no_view_ends_with_1(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = call(capsys, "ls", path, "--views", "--steps", "http://mill.test/none")
    assert code == 1


def test_both_go_with_views_only(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "ls", path, "--html", "x.html")[0] == 2


def test_the_states_of_captures_are_those_that_lookups_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger's entry leads to what was recorded after the same acts."""
    with Writer.open(tmp_path / "s") as writer:
        record(writer, "http://a.test/list", b"all")
        record(writer, "http://a.test/filter", b"", method="POST", sent=b"year=2020")
        record(writer, "http://a.test/list", b"of 2020")
    with Snapshot.open(tmp_path / "s") as recorded:
        matcher, told = Matcher(recorded), []
        session = matcher.session()
        for capture in sorted(recorded.captures(), key=lambda c: c.begin):
            lookup = matcher.lookup(recorded.read_request(capture), session)
            session.answered(lookup)
            told.append((capture.begin, lookup.state))
    listed = json.loads(call(capsys, "ls", tmp_path / "s", "--states", "--json")[1])
    assert sorted(one["state"] for one in listed) == sorted(state for _, state in told)
    assert len({state for _, state in told}) == 3
    assert told[-1][1] in call(capsys, "ls", tmp_path / "s", "--states")[1]
    assert call(capsys, "ls", tmp_path / "s", "--states", "--views")[0] == 2


def test_web_sockets_are_listed_where_nothing_else_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Writer.open(tmp_path / "s") as writer:
        said = {"messages": [{"from": "client", "text": "hi"}, {"from": "server", "text": "hello"}]}
        writer.metadata("http://a.test/talk", said)
    code, out = call(capsys, "ls", tmp_path / "s")
    assert code == 0
    assert "web socket: http://a.test/talk: 2 messages" in out
    assert "0 captures, 0 views, 1 web socket, " in out


ENTRY = Provenance(
    "stillweb/9.9", "2026-01-02T03:04:05Z", "Plan9 mips", "browser", {"pdfs": True, "parallel": 2}
)


def made(path: Path, entry: Provenance | None) -> Path:
    with Writer.open(path, provenance=entry) as writer:
        record(writer, "http://example.test/", b"<p>Hello")
    return path


def test_it_is_told_and_no_part_of_the_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_it, without = seal(made(tmp_path / "a", ENTRY)), seal(made(tmp_path / "b", None))
    assert with_it.id == without.id
    _, out = call(capsys, "verify", with_it.path)
    told = "recorded 2026-01-02T03:04:05Z by stillweb/9.9 on Plan9 mips: browser --parallel 2 --pdfs"
    assert told in out
    _, out = call(capsys, "ls", with_it.path)
    assert told in out
    assert call(capsys, "view", with_it.path, "--export", tmp_path / "pages")[0] == 0
    assert "stillweb/9.9 on Plan9 mips" in (tmp_path / "pages" / "snapshot-a.wacz.html").read_text()


def test_each_recording_adds_its_own_and_a_lost_package_loses_none(tmp_path: Path) -> None:
    made(tmp_path / "a", ENTRY)
    with Writer.open(tmp_path / "a", provenance=ENTRY) as writer:
        record(writer, "http://example.test/2", b"<p>Hello again")
    (tmp_path / "a" / "datapackage.json").unlink()
    (tmp_path / "a" / "indexes" / "index.cdxj").unlink()
    with Snapshot.open(tmp_path / "a") as snapshot:
        assert snapshot.provenance == [ENTRY, ENTRY]


def test_one_of_another_form_is_an_error(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "a", settings={"recordings": [{"software": 5}]}) as writer:
        record(writer, "http://example.test/", b"<p>Hello")
    with Snapshot.open(tmp_path / "a") as snapshot, pytest.raises(DamagedInput, match="list of recordings"):
        _ = snapshot.provenance


def test_what_a_command_records_names_its_switches_and_no_secret(tmp_path: Path) -> None:
    def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return 200, {"Content-Type": "text/html"}, b"<p>Hello"

    secret = "synthetic" + "-token-0123456789abcdef"
    with serve(answer) as base:
        words = ["curl", "-sS", "-H", f"Authorization: Bearer {secret}", base]
        done = stillweb("record", "-o", tmp_path / "a", "--insecure", "--", *words)
    assert done.code == 0, done.err
    package = (tmp_path / "a" / "datapackage.json").read_text()
    entry = json.loads(package)["stillweb"]["settings"]["recordings"][0]
    assert (entry["origin"], entry["settings"]) == ("program curl", {"insecure": True})
    assert secret not in package
    assert base not in package
    with pytest.raises(SystemExit):
        main(["verify", str(tmp_path / "a")])
