"""What is told of PDFs beside their text, also of files with something before their header or without an end.

The expected values are those of @sylphx/pdf-reader-mcp 2.4.0 (PDF.js 5.6) for the same bytes.
"""

from __future__ import annotations

import io

import pypdf
import pytest
from pypdf.generic import DecodedStreamObject, NameObject

from stillweb.snapshots.text.pdf_text import extract_pdf
from tests.snapshots.text.test_text import make_pdf

PLAIN = make_pdf("One", "Two", title="T")
HEADER = PLAIN[:8]


def with_metadata(kind: str = "/XML", data: bytes = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'/>") -> bytes:
    """The same with a stream of metadata."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(PLAIN))
    stream = DecodedStreamObject()
    stream.set_data(data)
    stream.update({NameObject("/Type"): NameObject("/Metadata"), NameObject("/Subtype"): NameObject(kind)})
    writer.root_object[NameObject("/Metadata")] = writer._add_object(stream)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (PLAIN, "1.3"),
        (b"junk here\n\0" + PLAIN, "1.3"),
        (b"%!PS-Adobe-3.0 PDF-1\n" + PLAIN, "1.3"),
        (b" " * 900 + PLAIN, "1.3"),
        (PLAIN.replace(HEADER, b"%PDF-x.y"), None),
        (PLAIN.replace(HEADER, b"%PDF-1.33333"), None),
        (PLAIN[: PLAIN.rindex(b"%%EOF")], "1.3"),
        (PLAIN[: PLAIN.rindex(b"startxref")], "1.3"),
    ],
    ids=["plain", "junk", "postscript", "late", "no-version", "long-version", "no-end", "no-start"],
)
def test_header_and_end_decide_no_more_than_they_say(data: bytes, version: str | None) -> None:
    found = extract_pdf(data)
    assert (found.info["PDFFormatVersion"], found.pages) == (version, ["One", "Two"])
    assert (found.info["Title"], found.info["Author"], found.warnings) == ("T", "Ann", [])


def test_a_file_without_its_tables_is_told_as_damaged() -> None:
    found = extract_pdf(PLAIN[: PLAIN.rindex(b"trailer")])
    assert (found.readable, found.info) == (False, {})
    assert found.warnings[0].startswith("its structure is damaged: ")


def test_metadata_in_xml_is_known_to_be_there() -> None:
    for data, there in (
        (PLAIN, False),
        (with_metadata(), True),
        (b"junk" + with_metadata(), True),
        (with_metadata(kind="/Text"), False),
        (with_metadata(data=b""), False),
    ):
        assert extract_pdf(data).xmp is there
