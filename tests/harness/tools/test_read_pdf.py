"""`read_pdf` from frozen pages, in the real reader's shapes and words."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillweb.harness.tools import Toolset, load
from stillweb.harness.tools.read_pdf import wanted_pages
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.conftest import Call
from tests.harness.tools.frozen import BIRDS, REPORT, SITE, Recorder
from tests.snapshots.making import freeze_texts
from tests.snapshots.text.test_pdf_text import with_metadata
from tests.snapshots.text.test_text import make_pdf


def data_of(result: Any) -> dict[str, Any]:
    (only,) = json.loads(result.content[0]["text"])["results"]
    assert only["success"]
    return dict(only["data"])


def test_metadata_in_xml_is_told_as_the_real_one_tells_it(tmp_path: Path) -> None:
    """The real reader's PDF.js does not show what metadata in XML holds."""
    with Writer.open(tmp_path / "s") as writer:
        Recorder(writer).add(REPORT, with_metadata(), "application/pdf")
        freeze_texts(writer)
    with Snapshot.open(tmp_path / "s") as snapshot:
        session = Toolset(snapshot, ["pdf-reader"]).session("s")
        data = data_of(asyncio.run(session.call("read_pdf", {"sources": [{"url": REPORT}]})))
    assert (list(data), data["metadata"]) == (["num_pages", "info", "metadata"], {})


def test_metadata_and_page_count_by_default(call: Call) -> None:
    result = call("read_pdf", sources=[{"url": REPORT}])
    assert not result.is_error
    assert len(result.content) == 1
    data = data_of(result)
    assert data["num_pages"] == 4
    assert data["info"]["Title"] == "Report"
    assert list(data["info"])[:2] == ["PDFFormatVersion", "Language"]
    assert result.meta["verdict"] == "exact"
    assert result.meta["captures"][0]["url"] == REPORT
    bare = data_of(
        call("read_pdf", sources=[{"url": REPORT}], include_metadata=False, include_page_count=False)
    )
    assert bare == {}


def test_full_text_then_pages_in_order(call: Call) -> None:
    result = call("read_pdf", sources=[{"url": REPORT}], include_full_text=True)
    assert data_of(result)["full_text"] == "Page one\n\nPage two\n\nPage three\n\n"
    assert [part["text"] for part in result.content[1:]] == [
        "[Page 1]\nPage one",
        "[Page 2]\nPage two",
        "[Page 3]\nPage three",
    ]


def test_a_page_range(call: Call) -> None:
    result = call("read_pdf", sources=[{"url": REPORT, "pages": "3,1-2,9"}], include_full_text=True)
    data = data_of(result)
    assert data["page_texts"] == [
        {"page": 1, "text": "Page one"},
        {"page": 2, "text": "Page two"},
        {"page": 3, "text": "Page three"},
    ]
    assert data["warnings"] == ["Requested page numbers 9 exceed total pages (4)."]
    assert "full_text" not in data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_any_pages_in_any_order_are_those_of_the_whole(toolset: Toolset, pages: list[int]) -> None:
    session = toolset.session("pages")
    whole = data_of(asyncio.run(session.call("read_pdf", {"sources": [{"url": REPORT, "pages": "1-4"}]})))[
        "page_texts"
    ]
    by_list = data_of(asyncio.run(session.call("read_pdf", {"sources": [{"url": REPORT, "pages": pages}]})))[
        "page_texts"
    ]
    by_text = data_of(
        asyncio.run(
            session.call("read_pdf", {"sources": [{"url": REPORT, "pages": ",".join(map(str, pages))}]})
        )
    )["page_texts"]
    assert by_list == by_text == [whole[n - 1] for n in sorted(set(pages))]


def test_the_bytes_decide_what_is_a_pdf_not_what_it_is_called(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/text", make_pdf("In truth a PDF"), "text/plain")
        site.add(f"{SITE}/empty", b"", "application/pdf")
    with Snapshot.open(tmp_path / "snap") as snapshot:
        session = Toolset(snapshot, ["pdf-reader"]).session("s")

        def read(path: str) -> Any:
            sources = [{"url": f"{SITE}/{path}", "pages": "1"}]
            return asyncio.run(session.call("read_pdf", {"sources": sources}))

        assert data_of(read("text"))["page_texts"] == [{"page": 1, "text": "In truth a PDF"}]
        assert read("empty").text.endswith("Reason: The PDF file is empty, i.e. its size is zero bytes.")


def test_a_page_number_beyond_all_bounds_is_told_as_javascript_tells_it(call: Call) -> None:
    result = call("read_pdf", sources=[{"url": REPORT, "pages": "99999999999999999999"}])
    (warning,) = data_of(result)["warnings"]
    assert warning == "Requested page numbers 100000000000000000000 exceed total pages (4)."


def test_images_are_pictures_of_pages(call: Call) -> None:
    result = call("read_pdf", sources=[{"url": f"{SITE}/scan.pdf", "pages": [1]}], include_images=True)
    assert data_of(result)["image_info"][0]["page"] == 1
    assert result.content[1]["type"] == "image"
    assert result.content[1]["mimeType"] == "image/png"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"url": "https://unknown.test/a.pdf"}, "Failed to load PDF document from https://unknown.test/a.pdf. Reason: fetch failed"),
        ({"url": f"{SITE}/gone"}, f'Failed to load PDF document from {SITE}/gone. Reason: Unexpected server response (404) while retrieving PDF "{SITE}/gone".'),
        ({"url": BIRDS}, f"Failed to load PDF document from {BIRDS}. Reason: Invalid PDF structure."),
        ({"url": f"{SITE}/not-a.pdf"}, f"Failed to load PDF document from {SITE}/not-a.pdf. Reason: Invalid PDF structure."),
        ({"url": f"{SITE}/shut.pdf"}, f"Failed to load PDF document from {SITE}/shut.pdf. Reason: No password given"),
        ({"path": "a.pdf"}, "File not found at 'a.pdf'."),
        ({}, "Source unknown source missing 'path' or 'url'."),
        ({"url": REPORT, "pages": "5-2"}, f"Invalid page specification for source {REPORT}: Invalid page range values: 5-2"),
        ({"url": REPORT, "pages": "x"}, f"Invalid page specification for source {REPORT}: Invalid page number: x"),
        ({"url": REPORT, "pages": []}, f"Invalid page specification for source {REPORT}: Page specification resulted in an empty set of pages."),
    ],
)  # fmt: skip
def test_failures_have_the_real_words(call: Call, source: dict[str, Any], reason: str) -> None:
    name = source.get("path") or source.get("url") or "unknown source"
    alone = call("read_pdf", sources=[source])
    assert alone.is_error
    assert (
        alone.text
        == f"All PDF sources failed to process: Failed to process PDF from {name}. Reason: {reason}"
    )
    beside = call("read_pdf", sources=[source, {"url": REPORT}])
    first, second = json.loads(beside.content[0]["text"])["results"]
    assert first == {
        "source": name,
        "success": False,
        "error": f"Failed to process PDF from {name}. Reason: {reason}",
    }
    assert second["success"]
    assert not beside.is_error


def test_a_miss_is_marked(call: Call) -> None:
    assert (
        call("read_pdf", sources=[{"url": REPORT}, {"url": "https://unknown.test/"}]).meta["verdict"]
        == "miss"
    )
    assert call("read_pdf", sources=[{"path": "x"}]).meta["verdict"] == "exact"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "sources: Expected array"),
        ({"sources": "x"}, "sources: Expected array"),
        ({"sources": [{"url": 5}]}, "sources: [0]: url: Expected string"),
        (
            {"sources": [{}, {"url": REPORT, "pages": [0]}]},
            "sources: [1]: pages: Value does not match any type in union",
        ),
        (
            {"sources": [{"url": REPORT, "pages": [1.5]}]},
            "sources: [0]: pages: Value does not match any type in union",
        ),
        ({"sources": [], "include_full_text": "yes"}, "include_full_text: Expected boolean"),
    ],
)
def test_bad_arguments_have_the_real_words(call: Call, arguments: dict[str, Any], problem: str) -> None:
    result = call("read_pdf", **arguments)
    assert result.is_error
    assert result.text == f"Validation error: {problem}"


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 1.5])
def test_what_is_no_page_number_is_refused(call: Call, number: float) -> None:
    """Python reads 1e999 as a number: the tool broke off with an error of its own."""
    result = call("read_pdf", sources=[{"url": REPORT, "pages": [number]}])
    assert result.is_error
    assert result.text.endswith("sources: [0]: pages: Value does not match any type in union")


def test_where_the_recording_does_not_decide_the_result_says_so(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        sent = b'{"user":"ann"}'
        site.add(f"{SITE}/login", status=303, method="POST", sent=sent, headers=(("Location", "/"),))
        site.add(f"{SITE}/home", "", status=302, headers=(("Location", REPORT),))
        site.add(REPORT, make_pdf("One"), "application/pdf")
    with Snapshot.open(tmp_path / "snap") as snapshot:
        toolset = Toolset(snapshot, ["pdf-reader"], min_confidence=0.5)
        result = asyncio.run(toolset.session("a").call("read_pdf", {"sources": [{"url": f"{SITE}/home"}]}))
    assert result.meta["ambiguous"] is True


def test_no_sources_are_no_results(call: Call) -> None:
    assert call("read_pdf", sources=[]).text == "All PDF sources failed to process: "


def test_the_limit_of_pages(snapshot: Snapshot) -> None:
    session = Toolset(snapshot, ["pdf-reader"], limits={"pages": 2}).session("s")
    over = asyncio.run(session.call("read_pdf", {"sources": [{"url": REPORT}], "include_full_text": True}))
    assert over.is_error
    assert over.meta["limit"] == "pages"
    assert not asyncio.run(session.call("read_pdf", {"sources": [{"url": REPORT, "pages": "2-3"}]})).is_error


def test_pages_without_text_count_as_pages(snapshot: Snapshot) -> None:
    session = Toolset(snapshot, ["pdf-reader"], limits={"pages": 1}).session("s")
    sources = [{"url": REPORT, "pages": [1, 4]}]
    over = asyncio.run(session.call("read_pdf", {"sources": sources, "include_images": True}))
    assert (over.is_error, over.meta.get("asked")) == (True, 2)


def test_pictures_that_are_not_there_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a body that was never packed as it says, and of more pages than a call draws."""
    with Writer.open(tmp_path / "s") as writer:
        packed = (("Content-Encoding", "gzip"),)
        pages = make_pdf("Page one", "Page two")
        Recorder(writer).add(f"{SITE}/gz.pdf", pages, "application/pdf", headers=packed)
        freeze_texts(writer)
    given = {"sources": [{"url": f"{SITE}/gz.pdf"}], "include_full_text": True, "include_images": True}
    with Snapshot.open(tmp_path / "s") as snapshot:
        session = Toolset(snapshot, ["pdf-reader"]).session("s")
        whole = asyncio.run(session.call("read_pdf", given))
        assert [part["type"] for part in whole.content] == ["text", "text", "image", "text", "image"]
        assert "warnings" not in data_of(whole)
        monkeypatch.setattr("stillweb.harness.tools.read_pdf.IMAGES_PER_CALL", 1)
        cut = asyncio.run(session.call("read_pdf", given))
    assert [part["type"] for part in cut.content] == ["text", "text", "image", "text"]
    assert data_of(cut)["warnings"] == ["No picture of pages 2."]


def test_page_texts() -> None:
    contract = load("pdf-reader")
    assert wanted_pages(None, contract) is None
    assert wanted_pages(" 2 , 4-5", contract) == [2, 4, 5]
    assert wanted_pages("3-", contract)[:2] == [3, 4]  # type: ignore[index]
    for text in ("", "-", "0", "a-b", "1,,2"):
        with pytest.raises(ValueError, match="Invalid page"):
            wanted_pages(text, contract)
