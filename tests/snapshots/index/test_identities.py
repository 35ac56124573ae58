"""A snapshot's id depends on all that is served and on the order of layers; not on how files are split."""

from pathlib import Path
from typing import Any

import pytest

from stillweb.snapshots import Snapshot, Writer, verify
from stillweb.snapshots.writer import reindex
from tests.snapshots.making import record

BASE: dict[str, Any] = {"text": "Hello", "extractor": "plain", "version": "1", "options": {"title": "One"}}


def made(path: Path, page: bytes = b"<p>Hello", **conversion: Any) -> Path:
    with Writer.open(path) as writer:
        capture = record(writer, "http://example.test/", page)
        if conversion:
            text = conversion.pop("text")
            writer.conversion("http://example.test/", text, refers_to=capture, **conversion)
    return path


def identity(*paths: Path) -> str:
    with Snapshot.open(*paths) as snapshot:
        return snapshot.id


def test_the_order_of_layers_counts(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one"), made(tmp_path / "two", b"<p>Goodbye")
    assert len({identity(one), identity(two), identity(one, two), identity(two, one)}) == 4
    assert identity(one, two) == identity(one, two)


@pytest.mark.parametrize(
    "change", [{"text": "Hi"}, {"extractor": "other"}, {"version": "2"}, {"options": {"title": "Two"}}, {"media": "text/plain"}]
)  # fmt: skip
def test_all_that_a_text_is_served_with_counts(tmp_path: Path, change: dict[str, Any]) -> None:
    first = made(tmp_path / "a", **BASE)
    assert identity(first) == identity(made(tmp_path / "b", **BASE))
    reindex(tmp_path / "b")  # from the records alone
    assert identity(first) == identity(tmp_path / "b")
    reindex(first)
    assert verify(first) == []
    assert identity(first) != identity(made(tmp_path / "c", **BASE | change))
