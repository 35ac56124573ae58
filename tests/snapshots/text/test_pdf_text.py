"""All that a reader sees on the page of a PDF is in its text; and its metadata."""

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

FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
FORM = b"/AcroForm<</Fields[6 0 R]/DA(/F1 12 Tf 0 g)/DR<</Font<</F1 5 0 R>>>>>>"
PICTURE = b"/Tx BMC q BT /F1 12 Tf 0 g 2 5 Td (Kittiwake) Tj ET Q EMC"
PLACE = b"/Rect[200 690 400 712]/P 3 0 R/DA(/F1 12 Tf 0 g)"


def stream(body: bytes, more: bytes = b"") -> bytes:
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (more, len(body), body)


def page(content: bytes, *more: bytes, root: bytes = b"") -> str:
    """The text of a PDF of one page; the first of `more` objects is its annotation."""
    [text] = extract_pdf(one_page(content, *more, root=root)).pages
    return text


def one_page(content: bytes, *more: bytes, root: bytes = b"") -> bytes:
    objects = [
        b"<</Type/Catalog/Pages 2 0 R%s>>" % root,
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>%s>>"
        % (b"/Annots[6 0 R]" if more else b""),
        stream(b"BT /F1 12 Tf 72 700 Td " + content + b" ET"),
        FONT,
        *more,
    ]
    out, places = b"%PDF-1.7\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    tail = b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + head + table + tail


@pytest.mark.parametrize(
    ("root", "told"),
    [
        (b"/NeedsRendering true/AcroForm<</Fields[]/XFA 4 0 R>>", "its pages are made by the reader's program"),
        (b"/Names<</EmbeddedFiles<</Names[(a.csv)<</Type/Filespec/F(a.csv)>>]>>>>", "1 attached file is not read"),
        (b"/OCProperties<</OCGs[5 0 R]/D<</OFF[5 0 R]>>>>", "1 layer that a reader's program hides"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_said(root: bytes, told: str) -> None:
    found = extract_pdf(one_page(b"(Please wait) Tj", root=root))
    assert found.pages == ["Please wait"]
    assert [told in warning for warning in found.warnings] == [True]


def test_the_value_of_a_field_is_read_as_it_is_drawn() -> None:
    field = b"<</Type/Annot/Subtype/Widget/FT/Tx/T(vessel)/V(Kittiwake)/F 4/AP<</N 7 0 R>>" + PLACE + b">>"
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 200 22]/Resources<</Font<</F1 5 0 R>>>>"
    assert page(b"(Name:) Tj", field, stream(PICTURE, form), root=FORM) == "Name:\nKittiwake"


def test_so_is_one_without_a_picture() -> None:
    field = b"<</Type/Annot/Subtype/Widget/FT/Tx/T(vessel)/V(Kittiwake)/F 4" + PLACE + b">>"
    assert page(b"(Name:) Tj", field, root=FORM) == "Name:\nKittiwake"


def test_what_is_hidden_is_not() -> None:
    field = b"<</Type/Annot/Subtype/Widget/FT/Tx/T(vessel)/V(Kittiwake)/F 2" + PLACE + b">>"
    assert page(b"(Name:) Tj", field, root=FORM) == "Name:"
    note = b"<</Type/Annot/Subtype/FreeText/Contents(Closed)/F 2" + PLACE + b">>"
    assert page(b"(Plan) Tj", note) == "Plan"


def test_free_text_is_read() -> None:
    note = b"<</Type/Annot/Subtype/FreeText/Contents(Closed in winter)/F 4" + PLACE + b">>"
    assert page(b"(Plan) Tj", note) == "Plan\nClosed in winter"


@pytest.mark.parametrize("rise", [4, 5, 7])
def test_raised_digits_are_marked_and_break_no_line(rise: int) -> None:
    up, down = b"/F1 8 Tf %d Ts " % rise, b" 0 Ts /F1 12 Tf "
    content = (
        b"(about 10) Tj "
        + up
        + b"(6) Tj"
        + down
        + b"( cells, x) Tj "
        + up
        + b"(-12) Tj"
        + down
        + b"( of 123) Tj"
    )
    assert page(content + b" 0 -20 Td (line 5) Tj") == "about 10^6 cells, x^-12 of 123\nline 5"


def test_lowered_digits_and_large_ones_are_not() -> None:
    low = b"(H) Tj /F1 8 Tf -2 Ts (2) Tj 0 Ts /F1 12 Tf (O at 20 C) Tj"
    assert page(low) == "H2O at 20 C"
    assert page(b"(about 10) Tj /F1 14 Tf (6) Tj") == "about 106"


def script(text: bytes, rise: int) -> bytes:
    return b" /F1 8 Tf %d Ts (%s) Tj 0 Ts /F1 12 Tf " % (rise, text)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"(H) Tj" + script(b"2", -3) + b"(SO) Tj" + script(b"4", -3) + b"( and Ca) Tj" + script(b"2+", 5) + b"(.) Tj", "H2SO4 and Ca^2+."),
        (b"(log) Tj" + script(b"2", -3) + b"(8 of 101) Tj" + script(b"2", -3) + b"( is) Tj", "log_2 8 of 101_2 is"),
        (b"(e) Tj" + script(b"x", 5) + b"( and 3) Tj" + script(b"n+1", 5) + b"( and x) Tj" + script(b"2n", 5) + b"( k) Tj", "e^x and 3^(n+1) and x^(2n) k"),
        (b"(the 1) Tj" + script(b"st", 5) + b"( basin) Tj" + script(b"12", 5) + b"( of 1887) Tj" + script(b"3", 5) + b"(.) Tj", "the 1st basin^12 of 1887^3."),
        (b"(about 10) Tj 5 Ts (6) Tj 0 Ts ( cells) Tj", "about 10^6 cells"),
        (b"(by ) Tj" + script(b"14", 5) + b"(C and ) Tj" + script(b"235", 5) + b"(U of 12 cm) Tj", "by ^14 C and ^235 U of 12 cm"),
        (script(b"99", 5) + b"(Tc is made) Tj", "^99 Tc is made"),
        (b"(about 10 ) Tj" + script(b"6", 5) + b"( cells in 7 m) Tj", "about 10 ^6 cells in 7 m"),
        (b"(about 10) Tj ET BT /F1 8 Tf 131 705 Td (6) Tj ET BT /F1 12 Tf 138 700 Td (cells) Tj", "about 10 ^6 cells"),
        (b"(at ) Tj /F1 8 Tf (12) Tj /F1 12 Tf (C and 5 ) Tj /F1 8 Tf (6) Tj", "at 12C and 5 6"),
        (b"ET BT /F1 12 Tf 0.94 0.34 -0.34 0.94 100 300 Tm (slanted 1234 and 567) Tj", "slanted 1234 and 567"),
        *((b"[(about 10%s) -%d] TJ" % (blank, gap) + script(b"6", 5) + b"( cells) Tj", "about 10 ^6 cells")
          for blank, gap in ((b" ", 0), (b"", 170), (b" ", 170), (b"", 500))),
        (b"[(1.5 x 10) -250] TJ" + script(b"-3", 5) + b"( m ) Tj" + script(b"2", 5) + b"( wide) Tj", "1.5 x 10 ^-3 m ^2 wide"),
        (script(b"14", 5) + b"(C and ) Tj" + script(b"238", 5) + b"(U of 5) Tj", "^14 C and ^238 U of 5"),
        (script(b"1", 5) + b"( See the report of Vol ) Tj" + script(b"12", 0) + b"( ok) Tj", "^1 See the report of Vol 12 ok"),
        (b"(5 ) Tj" + script(b"3", 5) + b"(/) Tj" + script(b"4", -3) + b"( inch, 1) Tj" + script(b"1", 5) + b"(/2 cup) Tj", "5 3/4 inch, 1 1/2 cup"),
        *((b"ET BT /F1 12 Tf %s 300 300 Tm (turned 1234 of 10) Tj" % turn + script(b"6", 5) + b"( ok) Tj", "turned 1234 of 10^6 ok")
          for turn in (b"0 1 -1 0", b"0 -1 1 0", b"-1 0 0 -1")),
    ],
)  # fmt: skip
def test_raised_and_lowered_parts_read_as_no_other_word(content: bytes, text: str) -> None:
    assert page(content) == text


PICTURES = b"/AP<</N<</Card 7 0 R/Off 8 0 R>>>>"
CROSS = stream(b"2 2 m 18 18 l S", b"/Type/XObject/Subtype/Form/BBox[0 0 20 22]")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (b"/FT/Btn/T(paid)/V/Card/AS/Card" + PICTURES, "Plan\n[x] paid: Card"),
        (b"/FT/Btn/Ff 49152/T(paid)/V/Card/AS/Card" + PICTURES, "Plan\n[x] paid: Card"),
        (b"/FT/Btn/T(paid)/V/Off/AS/Off" + PICTURES, "Plan"),
        (b"/FT/Ch/Ff 131072/T(port)/Opt[[(a)(Arden)][(b)(Bexley)]]/V(b)", "Plan\nBexley"),
        (b"/FT/Ch/T(port)/Opt[(Arden)(Bexley)]/V(Bexley)", "Plan\nArden\nBexley\n[x] port: Bexley"),
        (b"/FT/Tx/T(note)/Ff 4096/V(one\\rtwo)", "Plan\none\ntwo"),
    ],
)  # fmt: skip
def test_a_field_of_any_type_has_its_value(field: bytes, text: str) -> None:
    widget = b"<</Type/Annot/Subtype/Widget/F 4" + field + PLACE + b">>"
    assert page(b"(Plan) Tj", widget, CROSS, CROSS, root=FORM) == text


@pytest.mark.parametrize(
    ("note", "text"),
    [
        (b"/Subtype/FreeText/Contents(12)", "Total 12\n12"),
        (b"/Subtype/FreeText/RC(<p>Rich</p>)", "Total 12\nRich"),
        (b"/Subtype/FreeText/Contents(Closed now)/AP<</N 7 0 R>>", "Total 12\nClosed\nnow"),
        (b"/Subtype/Stamp/AP<</N 7 0 R>>", "Total 12\nClosed\nnow"),
    ],
)
def test_a_note_is_read_once(note: bytes, text: str) -> None:
    drawn = b"BT /F1 12 Tf 2 14 Td (Closed) Tj 0 -12 Td (now) Tj ET"
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 200 30]/Resources<</Font<</F1 5 0 R>>>>"
    annotation = b"<</Type/Annot/F 4" + note + PLACE + b">>"
    assert page(b"(Total 12) Tj", annotation, stream(drawn, form)) == text


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
        "its text was not read: it needs more than 80 MB of memory, or crashes the PDF reader"
    ]
    with pytest.raises(ValueError, match="is not drawn: it needs more than 80 MB of memory"):
        pdf_text.page_image(data, 1)


@pytest.mark.slow
def test_a_pdf_that_takes_too_long_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_text, "SECONDS", 1)
    monkeypatch.setattr(pdf_text, "MEMORY", 4 << 30)
    found = extract_pdf(repeated(20))
    assert found.warnings == ["its text was not read: it takes more than 1 s"]


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
