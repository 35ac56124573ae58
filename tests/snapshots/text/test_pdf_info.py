"""What is told of PDFs beside their text, also of files with something before their header or without an end.

The expected values are those of @sylphx/pdf-reader-mcp 2.4.0 (PDF.js 5.6) for the same bytes.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from functools import cache

import pypdf
import pytest
from PIL import Image
from pypdf.generic import DecodedStreamObject, NameObject

from stillweb.snapshots.text import pdf_text
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


def with_content(content: bytes, filters: bytes = b"/FlateDecode") -> bytes:
    """Return a PDF of one page, whose content is packed as `filters` say."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R"
        b" /Resources << /Font << /F1 3 0 R >> >> >>",
        b"<< /Filter %b /Length %d >>\nstream\n%b\nendstream" % (filters, len(content), content),
    ]
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(out)
    return out + b"xref\n0 6\n0000000000 65535 f \n" + rows + end


SAID = b"BT /F1 12 Tf (said) Tj ET\n"


@cache
def packed() -> bytes:
    return zlib.compress(SAID + b"0 0 m " * (8 << 20))  # 50 MB, of which pdfium makes as much again


def repeated(times: int) -> bytes:
    """Return a PDF whose page has the same content that many times."""
    once = with_content(zlib.compress(SAID + b"0 0 m " * (1 << 20)))
    return once.replace(b"/Contents 5 0 R", b"/Contents [" + b"5 0 R " * times + b"]")


@pytest.mark.parametrize(
    "made",
    [
        lambda: with_content(packed()),
        lambda: with_content(zlib.compress(packed()), b"[ /FlateDecode /FlateDecode ]"),
        lambda: with_content(packed(), b"/Flate#44ecode"),
        lambda: with_content(packed().hex().encode() + b">", b"[/ASCIIHexDecode /FlateDecode]"),
        lambda: repeated(300),
    ],
    ids=["once", "twice", "escaped", "hexadecimal", "repeated"],
)
def test_a_pdf_that_unpacks_to_much_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[], bytes]
) -> None:
    monkeypatch.setattr(pdf_text, "MEMORY", 80 << 20)
    found = extract_pdf(data := made())
    assert (found.pages, found.readable) == ([], False)
    assert found.warnings == [
        "its text is not read: it needs more than 80 MB of memory, or breaks its reader"
    ]
    with pytest.raises(ValueError, match="is not drawn: it needs more than 80 MB of memory"):
        pdf_text.page_image(data, 1)


@pytest.mark.slow
def test_a_pdf_that_takes_too_long_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_text, "SECONDS", 1)
    monkeypatch.setattr(pdf_text, "MEMORY", 4 << 30)
    found = extract_pdf(repeated(20))
    assert found.warnings == ["its text is not read: it takes more than 1 s"]


def test_a_page_of_any_size_is_drawn_within_bounds() -> None:
    small = with_content(zlib.compress(SAID))
    assert extract_pdf(small).pages == ["said"]
    large = small.replace(b"[0 0 612 792]", b"[0 0 14400 14400]")
    for data, size in ((small, (816, 1056)), (large, (4096, 4096))):
        assert Image.open(io.BytesIO(pdf_text.page_image(data, 1))).size == size
    with pytest.raises(ValueError, match="no page 2: it has 1"):
        pdf_text.page_image(small, 2)
    with pytest.raises(ValueError, match="the PDF can't be read"):
        pdf_text.page_image(b"none", 1)
