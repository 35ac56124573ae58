"""Rules of a user's own: what they join, what is refused of them, and that a snapshot keeps them."""

from pathlib import Path

import pytest

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.identity.rules import builtin
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import exchange

RULE = """
[[rule]]
id = "shelf-trace"
about = "The id that the page draws for each search."
blank = [{ in = ["query"], name = 'trace', value = '[0-9a-f]{8}' }]
join = [["GET http://a.test/s?q=x&trace=0123abcd", "GET http://a.test/s?q=x&trace=4567ef01"]]
apart = [["GET http://a.test/s?q=x&trace=0123abcd", "GET http://a.test/s?q=y&trace=0123abcd"]]
"""
ASKED = "http://a.test/s?q=x&trace=89abcdef"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "rules.toml").write_text(RULE)
    with Writer.open(tmp_path / "site") as writer:
        writer.exchange(exchange("http://a.test/s?q=x&trace=0123abcd", b"found"))
    return tmp_path / "site", tmp_path / "rules.toml"


def verdict(snapshot: Snapshot, url: str = ASKED) -> tuple[str, bool]:
    over = snapshot.matcher()
    lookup = over.lookup(Request("GET", url), over.session("default"))
    return lookup.verdict, lookup.ambiguous


def test_an_own_rule_joins_requests_for_sure(files: tuple[Path, Path]) -> None:
    with Snapshot.open(files[0]) as snapshot:
        assert verdict(snapshot)[0] == "miss"
    with Snapshot.open(files[0]) as snapshot:
        snapshot.add_rules(files[1])
        assert verdict(snapshot) == ("rule:shelf-trace", False)
        assert verdict(snapshot, ASKED.replace("q=x", "q=y"))[0] == "miss"


def test_an_own_rule_names_segments_of_a_path(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text("""
[[rule]]
id = "signed-path"
about = "The signature with which pictures are asked for."
blank = [{ in = ["segments"], name = '/s=([0-9a-f]{8})/' }]
join = [["GET http://a.test/s=0123abcd/kettle.png", "GET http://a.test/s=4567ef01/kettle.png"]]
apart = [["GET http://a.test/s=0123abcd/kettle.png", "GET http://a.test/s=0123abcd/teapot.png"]]
""")
    with Writer.open(tmp_path / "site") as writer:
        writer.exchange(exchange("http://a.test/s=0123abcd/kettle.png", b"kettle"))
    with Snapshot.open(tmp_path / "site") as snapshot:
        snapshot.add_rules(tmp_path / "rules.toml")
        assert verdict(snapshot, "http://a.test/s=89abcdef/kettle.png") == ("rule:signed-path", False)
        assert verdict(snapshot, "http://a.test/s=89abcdef/teapot.png")[0] == "miss"


def test_a_sealed_snapshot_keeps_them(files: tuple[Path, Path], tmp_path: Path) -> None:
    plain = seal(files[0], tmp_path / "plain.wacz").id
    first = seal(files[0], tmp_path / "own.wacz", rules=files[1]).id
    assert seal(files[0], tmp_path / "again.wacz").id == first != plain
    with Snapshot.open(tmp_path / "again.wacz") as snapshot:
        assert verdict(snapshot) == ("rule:shelf-trace", False)


def test_a_layer_without_them_leaves_them_in_force(files: tuple[Path, Path], tmp_path: Path) -> None:
    seal(files[0], tmp_path / "own.wacz", rules=files[1])
    with Writer.open(tmp_path / "more") as writer:
        writer.exchange(exchange("http://a.test/other", b"more"))
    with Snapshot.open(tmp_path / "own.wacz", tmp_path / "more") as snapshot:
        assert verdict(snapshot) == ("rule:shelf-trace", False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (RULE.replace("4567ef01", "4567"), "keeps apart"),
        (RULE.replace("q=y", "q=x").replace("trace=0123abcd\"]]\n", "trace=4567ef01\"]]\n"), "joins"),
        (RULE.replace("shelf-trace", "tracking"), "another rule has this id"),
        (RULE.replace("[[rule]]", "[[rule"), "own.toml: "),
        ("a = " + "[" * 9999, "own.toml: is nested too deeply"),
        ("a = " + "9" * 5000, "own.toml: Exceeds the limit"),
        (RULE.replace("[[rule]]", "[[rules]]"), r"Begin each with \[\[rule\]\]"),
        ("", r"Begin each with \[\[rule\]\]"),
        ("rule = 3", r"Begin each with \[\[rule\]\]"),
        ("rule = [1]", "1 is not a rule"),
        (RULE.replace("join = [[", 'join = ["x", ['), "rule shelf-trace: Expected array"),
        (RULE.replace("blank = [{", 'blank = ["x", {'), "rule shelf-trace: Expected object"),
    ],
)  # fmt: skip
def test_what_does_not_do_what_it_says_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        builtin().with_own(text, "own.toml")
