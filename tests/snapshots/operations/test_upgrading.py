"""Upgrading frozen texts: shown first, written beside, never in place."""

from pathlib import Path

import pytest

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.diff import counts, diff
from stillweb.snapshots.operations.upgrading import TextUpgrade, accept, changes
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text import freezing
from stillweb.snapshots.text.freezing import NO_TEXT, Sent
from stillweb.snapshots.text.text import FrozenText
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record

SITE = "http://mill.test"
STEPS = ({"click": {"text": "More"}},)
VIEW = view_address(f"{SITE}/view", STEPS)
BODY = "<html><title>%s</title><p>%s are the mills of this valley, and all of them turn.</p></html>"


def page(text: str) -> bytes:
    return (BODY % (text, text)).encode()


def site(path: Path) -> Path:
    """Three pages and a view, sealed: frozen by the extractors of today, but two texts by one of long ago."""
    with Writer.open(path) as writer:
        record(writer, f"{SITE}/today", page("Twelve"))
        for name, text in (("old", "old words\nTwo lines of them"), ("other", None)):
            capture = record(writer, f"{SITE}/{name}", page(name.title()))
            made = freezing.extract(capture, _response(page(name.title())))
            assert made is not None
            frozen = FrozenText(
                capture.url,
                text or made.markdown,
                None,
                made.title,
                extractor="ancient",
                version="0.1",
                meta=made.meta,
            )
            writer.conversion(
                capture.url,
                frozen.markdown,
                refers_to=capture,
                extractor="ancient",
                version="0.1",
                options=frozen.to_record(),
            )
        view = View(VIEW, f"{SITE}/view", f"{SITE}/view", "Mills", STEPS, timestamp="20250102030405")
        writer.view(view, {"dom": page("Viewed"), "text": b"Viewed"})
    return seal(path, workers=1).path


def _response(body: bytes):  # type: ignore[no-untyped-def]
    from stillweb.snapshots.capture import Response

    return Response(200, "OK", (("Content-Type", "text/html; charset=utf-8"),), body)


def found(path: Path) -> list[TextUpgrade]:
    with Snapshot.open(path) as snapshot:
        return list(changes(snapshot, workers=1))


def texts(*paths: Path) -> dict[str, tuple[str, str]]:
    with Snapshot.open(*paths) as snapshot:
        return {t.address: (t.extractor, t.markdown) for t in snapshot.texts()}


def test_only_what_differs_is_shown(tmp_path: Path) -> None:
    shown = found(site(tmp_path / "site"))
    assert [(one.kind, one.address) for one in shown] == [
        ("changed", f"{SITE}/old"),
        ("same", f"{SITE}/other"),
    ]
    assert counts(shown[0].text) == (1, 2)
    assert "-Two lines of them" in shown[0].text
    assert shown[0].text.startswith("--- ancient/0.1\n+++ stillweb/")
    assert shown[1].text == ""


@pytest.mark.parametrize("name", ["new", "new.wacz"])
def test_accepted_texts_stand_in_a_whole_new_snapshot(tmp_path: Path, name: str) -> None:
    old = site(tmp_path / "site")
    before = old.read_bytes()
    made = accept(old, found(old), tmp_path / name)
    assert old.read_bytes() == before
    assert verify(tmp_path / name) == []
    assert found(tmp_path / name) == []  # nothing more to upgrade
    with Snapshot.open(old) as first, Snapshot.open(tmp_path / name) as second:
        assert second.id == made != first.id
        differing = diff(first, second)
        assert (differing.captures, differing.views) == ([], [])
        assert [(t.kind, t.address, t.cause) for t in differing.texts] == [
            ("changed", f"{SITE}/old", "extractor")
        ]
    assert len(list(texts(tmp_path / name))) == len(texts(old)) == 4
    assert texts(tmp_path / name)[f"{SITE}/other"][0] == "stillweb"


def test_a_layer_holds_the_new_texts_only_and_lies_over_the_first(tmp_path: Path) -> None:
    old = site(tmp_path / "site")
    accept(old, found(old), tmp_path / "layer.wacz", layer=True)
    assert verify(tmp_path / "layer.wacz") == []
    assert set(texts(tmp_path / "layer.wacz")) == {f"{SITE}/old", f"{SITE}/other"}
    together = texts(old, tmp_path / "layer.wacz")
    assert len(together) == 4
    assert "Old are the mills" in together[f"{SITE}/old"][1]
    with Snapshot.open(old, tmp_path / "layer.wacz") as both, Snapshot.open(old) as alone:
        assert [c.url for c in both.captures()] == [c.url for c in alone.captures()]
        assert both.profile == alone.profile
        assert [v.address for v in both.views()] == [VIEW]


def test_the_same_upgrade_has_the_same_bytes(tmp_path: Path) -> None:
    old = site(tmp_path / "site")
    for layer in (False, True):
        one, two = tmp_path / f"one{layer}.wacz", tmp_path / f"two{layer}.wacz"
        assert accept(old, found(old), one, layer=layer) == accept(old, found(old), two, layer=layer)
        assert one.read_bytes() == two.read_bytes()


def test_a_text_that_nothing_was_frozen_of_is_added(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "open", keep_text=False) as writer:
        record(writer, f"{SITE}/", page("Nine"))
        view = View(VIEW, f"{SITE}/view", f"{SITE}/view", "Mills", STEPS, timestamp="20250102030405")
        writer.view(view, {"dom": page("Viewed"), "text": b"Viewed"})
    shown = found(tmp_path / "open")
    assert [(one.kind, one.address) for one in shown] == [("added", f"{SITE}/"), ("added", VIEW)]
    accept(tmp_path / "open", shown, tmp_path / "new")
    assert verify(tmp_path / "new") == []
    assert set(texts(tmp_path / "new")) == {f"{SITE}/", VIEW}


def test_a_text_that_today_fails_is_told_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = site(tmp_path / "site")
    before = freezing.work

    def failing(sent: Sent) -> FrozenText | None:
        if sent[0] == f"{SITE}/today":
            return FrozenText(sent[0], "", extractor=NO_TEXT, version="0", warnings=("it broke",))
        return None if sent[0] == f"{SITE}/old" else before(sent)

    monkeypatch.setattr(freezing, "work", failing)
    shown = found(old)
    assert [(one.kind, one.address) for one in shown] == [
        ("lost", f"{SITE}/old"),
        ("same", f"{SITE}/other"),
        ("lost", f"{SITE}/today"),
    ]
    accept(old, shown, tmp_path / "new.wacz")
    new = texts(tmp_path / "new.wacz")
    assert new[f"{SITE}/old"] == texts(old)[f"{SITE}/old"]
    assert new[f"{SITE}/today"] == texts(old)[f"{SITE}/today"]


def test_an_archive_of_another_tool_gets_a_layer(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with Writer.open(folder) as writer:
        record(writer, f"{SITE}/", page("Nine"))
    warc = tmp_path / "crawl.warc.gz"
    warc.write_bytes((folder / "archive" / "data-00000.warc.gz").read_bytes())
    with pytest.raises(UsageError, match="was not written by Stillweb; take a layer"):
        accept(warc, found(warc), tmp_path / "new.wacz")
    accept(warc, found(warc), tmp_path / "layer.wacz", layer=True)
    assert "Nine are the mills" in texts(warc, tmp_path / "layer.wacz")[f"{SITE}/"][1]
