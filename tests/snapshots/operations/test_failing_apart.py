"""What failed in one snapshot only, or for another reason, is a difference."""

from __future__ import annotations

from pathlib import Path

from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.operations.diff import Diff, diff
from stillweb.snapshots.operations.failing_apart import FailureChange
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import START, record

SITE = "http://example.test"


def failing(path: str, reason: str, body: bytes = b"") -> Failure:
    form = (("Content-Type", "application/x-www-form-urlencoded"),) if body else ()
    return Failure(Request("POST" if body else "GET", f"{SITE}{path}", form, body), reason, reason, START)


def compared(tmp_path: Path, old: list[Failure], new: list[Failure], *, captured: str = "/") -> Diff:
    for name, failures in (("a", old), ("b", new)):
        with Writer.open(tmp_path / name) as writer:
            record(writer, f"{SITE}{captured}", b"<p>page</p>")
            for failure in failures:
                failure.write(writer)
    with Snapshot.open(tmp_path / "a") as a, Snapshot.open(tmp_path / "b") as b:
        return diff(a, b)


def test_what_came_went_and_changed(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        [failing("/gone", "dns"), failing("/same", "tls"), failing("/other", "dns")],
        [failing("/new", "reset"), failing("/same", "tls"), failing("/other", "refused")],
    )
    assert not found.same
    assert found.failures == [
        FailureChange("removed", "GET", f"{SITE}/gone", ("dns",), ()),
        FailureChange("added", "GET", f"{SITE}/new", (), ("reset",)),
        FailureChange("changed", "GET", f"{SITE}/other", ("dns",), ("refused",)),
    ]
    assert found.count("failures", "added") == 1
    assert found.to_json()["failures"][0]["url"] == f"{SITE}/gone"


def test_bodies_and_how_often_it_was_tried(tmp_path: Path) -> None:
    """The same body, tried once or twice, is no difference; another one is."""
    again = [failing("/a", "dns", b"q=1"), failing("/a", "dns", b"q=1")]
    assert compared(tmp_path / "1", again, again[:1]).failures == []
    other = compared(tmp_path / "2", [failing("/a", "dns", b"q=1")], [failing("/a", "dns", b"q=2")])
    assert sorted(change.kind for change in other.failures) == ["added", "removed"]


def test_a_pseudonym_of_another_recording_is_no_difference(tmp_path: Path) -> None:
    one, two = (f"password=stillweb-secret-{digit * 24}".encode() for digit in "ab")
    assert compared(tmp_path, [failing("/in", "dns", one)], [failing("/in", "dns", two)]).failures == []


def test_what_was_captured_too_did_not_fail(tmp_path: Path) -> None:
    assert compared(tmp_path, [failing("/page", "reset")], [], captured="/page").failures == []
