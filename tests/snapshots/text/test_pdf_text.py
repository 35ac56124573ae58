"""All that a reader sees on the page of a PDF is in its text: values of fields, notes, raised digits as such."""

from __future__ import annotations

import pytest

from stillweb.snapshots.text.pdf_text import extract_pdf

FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
FORM = b"/AcroForm<</Fields[6 0 R]/DA(/F1 12 Tf 0 g)/DR<</Font<</F1 5 0 R>>>>>>"
PICTURE = b"/Tx BMC q BT /F1 12 Tf 0 g 2 5 Td (Kittiwake) Tj ET Q EMC"
PLACE = b"/Rect[200 690 400 712]/P 3 0 R/DA(/F1 12 Tf 0 g)"


def stream(body: bytes, more: bytes = b"") -> bytes:
    return b"<<%s/Length %d>>stream\n%s\nendstream" % (more, len(body), body)


def page(content: bytes, *more: bytes, root: bytes = b"") -> str:
    """The text of a PDF of one page; the first of `more` objects is its annotation."""
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
    [text] = extract_pdf(out + head + table + tail).pages
    return text


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
