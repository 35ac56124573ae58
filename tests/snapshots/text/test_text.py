"""Extraction: tables and links kept, charsets right, fallbacks named, mislabelled and unreadable files flagged."""

import gzip
import io
import time

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.capture import Response
from stillweb.snapshots.http import charsets, encodings
from stillweb.snapshots.text import html_text, pdf_text
from stillweb.snapshots.text.text import HTML, LARGE, PDF, FrozenText, extract, extract_html, sniff

ARTICLE = """<!doctype html><html><head><title> A  page </title></head><body><nav><a href="/menu">Menu</a></nav>
<article><h1>Penguins</h1><p>Penguins are birds of the south. See <a href="more?x=1">more about them</a>, as this is a
long enough paragraph for an article to be taken for one by any tool.</p>
<table><tr><th>Species</th><th>Mass</th></tr><tr><td>Adelie</td><td>3700</td></tr><tr><td>Gentoo</td><td>5076</td></tr></table>
<p>Another paragraph follows the table, so that there is text after it, too, and the table is in the middle.</p></article></body></html>"""


def page(
    body: bytes | str, content_type: str | None = "text/html; charset=utf-8", coding: str | None = None
) -> Response:
    data = body.encode() if isinstance(body, str) else body
    headers = (("Content-Type", content_type),) if content_type is not None else ()
    if coding:
        headers = (*headers, ("Content-Encoding", coding))
    return Response(200, "OK", headers, encodings.encode(data, coding))


def text_of(
    body: bytes | str, content_type: str | None = "text/html; charset=utf-8", coding: str | None = None
) -> FrozenText:
    found = extract(None, page(body, content_type, coding), address="https://site.test/birds/index.html")
    assert found is not None
    return found


def make_pdf(
    *texts: str, title: str | None = None, password: str | None = None, owner: str | None = None
) -> bytes:
    """A PDF with a line of Helvetica on each page; an empty text gives an empty page, "image" a picture."""
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for text in texts:
        if text == "image":
            content = b"q 100 0 0 100 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q"
        else:
            content = b"BT /F1 12 Tf 72 700 Td (" + text.encode("latin-1") + b") Tj ET" if text else b""
        objects.append(b"<< /Length %d >>\nstream\n" % len(content) + content + b"\nendstream")
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
            % len(objects)
        )
        kids.append(len(objects))
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (
        len(kids),
        b" ".join(b"%d 0 R" % k for k in kids),
    )
    out = bytearray(b"%PDF-1.4\n")
    places = []
    for number, value in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n" % number + value + b"\nendobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + b"".join(
        b"%010d 00000 n \n" % p for p in places
    )
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    if title is None and password is None and owner is None:
        return bytes(out)
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(bytes(out)))
    if title is not None:
        writer.add_metadata({"/Title": title, "/Author": "Ann"})
    if password is not None or owner is not None:
        writer.encrypt(password or "", owner, algorithm="AES-256")
    stream = io.BytesIO()
    writer.write(stream)
    return stream.getvalue()


def test_tables_and_links_are_kept() -> None:
    found = text_of(ARTICLE)
    assert found.extractor == "stillweb"
    assert found.version
    assert found.title == "A page"
    assert "# Penguins" in found.markdown
    assert "[more about them](https://site.test/birds/more?x=1)" in found.markdown
    rows = [line.strip() for line in found.markdown.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if "---" not in row] == [
        ["Species", "Mass"],
        ["Adelie", "3700"],
        ["Gentoo", "5076"],
    ]
    assert found.warnings == ()


def test_the_same_bytes_give_the_same_text() -> None:
    assert text_of(ARTICLE) == text_of(ARTICLE)
    assert (
        text_of(ARTICLE, coding="br").markdown
        == text_of(ARTICLE, coding="gzip").markdown
        == text_of(ARTICLE).markdown
    )


def test_short_pages_do_not_make_the_list_of_stop_words_anew() -> None:
    from trafilatura import external

    text_of("<html><body><p>A short page.</p></body></html>")
    assert isinstance(external.JT_STOPLIST, frozenset)
    assert {"the", "und", "della"} <= external.JT_STOPLIST


@pytest.mark.parametrize("hiding", ["hidden", 'style="display:none"', 'aria-hidden="true"'])
def test_what_a_script_would_show_is_kept(hiding: str) -> None:
    """As React's server sends what it had to wait for, and pages their tabs."""
    tab = f'<div {hiding} id="S:0"><p>The ferry leaves at nine in the morning, and on Sundays at noon.</p></div>'
    first = "<p>Departures from the northern harbour are listed for each day of the week.</p>"
    found = text_of(f"<html><body><main>{first}{tab}</main></body></html>")
    assert found.extractor == "stillweb"
    assert "leaves at nine" in found.markdown


def test_where_trafilatura_finds_nothing_the_fallback_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import trafilatura

    monkeypatch.setattr(trafilatura, "extract", lambda tree, **options: None)
    found = text_of(
        "<html><body><form><select><option>1999<option>2000</select></form><p hidden>secret</p></body></html>"
    )
    assert found.extractor == "stillweb-plain"
    assert "1999" in found.markdown
    assert "secret" not in found.markdown
    assert any("plain text" in w for w in found.warnings)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "   ",
        "<!-- nothing -->",
        "<html></html>",
        "<html><body><script>1</script></body></html>",
        "\x00\x01",
    ],
)
def test_pages_with_no_text_say_so(body: str) -> None:
    found = text_of(body)
    assert found.markdown == ""
    assert "no text in it" in found.warnings


CYRILLIC = "<html><head>{meta}</head><body><p>Пингвины живут на юге, и этот текст достаточно длинный.</p></body></html>"


@pytest.mark.parametrize(
    ("body", "label", "encoding", "warned"),
    [
        (CYRILLIC.encode("koi8-r"), "text/html; charset=koi8-r", "koi8-r", False),
        (
            CYRILLIC.format(meta='<meta charset="windows-1251">').encode("cp1251"),
            "text/html",
            "cp1251",
            False,
        ),
        (CYRILLIC.encode("utf-8"), "text/html; charset=iso-8859-1", "utf-8", True),
        (CYRILLIC.encode("utf-8"), "text/html", "utf-8", False),
        (b"\xef\xbb\xbf" + CYRILLIC.encode("utf-8"), "text/html; charset=koi8-r", "utf-8", False),
        (b"\xff\xfe" + CYRILLIC.encode("utf-16-le"), "text/html", "utf-16-le", False),
        (CYRILLIC.encode("utf-8"), "text/html; charset=klingon", "utf-8", True),
    ],
)
def test_charsets(body: bytes, label: str, encoding: str, warned: bool) -> None:
    found = text_of(body, label)
    assert "Пингвины живут на юге" in found.markdown
    assert found.meta["encoding"] == encoding
    assert bool(found.warnings) is warned


@pytest.mark.parametrize("label", ["idna", "undefined", "unicode_escape", "utf-7"])
def test_a_charset_that_only_python_knows_is_unknown(label: str) -> None:
    found = charsets.decode(b"<p>C:\\new \xe9 +AGE-", f"text/html; charset={label}")
    assert found.text == "<p>C:\\new \xe9 +AGE-"
    assert found.encoding == "cp1252"
    assert found.warnings


def test_web_labels_are_not_those_of_python() -> None:
    assert charsets.decode("“quotes”".encode("cp1252"), "text/html; charset=ISO-8859-1").text == "“quotes”"
    assert charsets.decode("镕".encode("gbk"), "text/html; charset=gb2312").text == "镕"
    assert charsets.codec("rot13") is None
    assert charsets.codec("hex") is None
    assert charsets.decode(b"\xff\x81\xfe", "text/html; charset=utf-8").warnings


@given(
    st.binary(max_size=200),
    st.sampled_from(["text/html", "text/html; charset=big5", 'text/html;charset="x"']),
)
def test_decoding_never_fails(body: bytes, label: str) -> None:
    assert isinstance(charsets.decode(body, label).text, str)


def test_pdf_pages_and_metadata() -> None:
    found = text_of(make_pdf("First page", "Second page", title="Report"), "application/pdf")
    assert found.media == PDF
    assert found.pages == ("First page", "Second page")
    assert found.markdown == "First page\n\nSecond page"
    assert found.title == "Report"
    assert found.meta["info"]["Author"] == "Ann"
    assert found.meta["num_pages"] == 2
    assert found.extractor == "pypdfium2"
    assert found.warnings == ()


def test_scanned_and_empty_pdfs_are_flagged() -> None:
    scanned = text_of(make_pdf("image", "words", "image"), "application/pdf")
    assert scanned.meta["scanned"] == [1, 3]
    assert "pages 1, 3 hold images and no text" in scanned.warnings[0]
    assert "no page has any text" in text_of(make_pdf("", ""), "application/pdf").warnings


def test_encrypted_pdfs_are_flagged() -> None:
    shut = text_of(make_pdf("Top secret", password="open sesame"), "application/pdf")
    assert shut.meta["encrypted"] is True
    assert shut.meta["readable"] is False
    assert shut.markdown == ""
    assert any("password" in w for w in shut.warnings)
    free = text_of(make_pdf("For all to read", owner="boss"), "application/pdf")
    assert free.pages == ("For all to read",)
    assert any("readable without a password" in w for w in free.warnings)


@pytest.mark.parametrize("data", [b"%PDF-1.4", b"%PDF-1.7 junk" * 100, make_pdf("x")[:200]])
def test_damaged_pdfs_are_flagged(data: bytes) -> None:
    found = text_of(data, "application/pdf")
    assert found.warnings


@pytest.mark.parametrize("instead", [b"null", b"[1 2 3]", b"junk"])
def test_pages_behind_a_damaged_one_keep_their_numbers(instead: bytes) -> None:
    data = bytearray(make_pdf("First", "Second", "Third"))
    start = data.index(b"<< /Type /Page ", data.index(b"(Second)"))
    end = data.index(b"\nendobj", start)
    data[start:end] = instead.ljust(end - start)
    found = text_of(bytes(data), "application/pdf")
    assert found.pages == ("First", "", "Third")
    assert "damaged: of pages 2 nothing can be read" in found.warnings


def test_mislabelled_files_are_told_by_their_bytes() -> None:
    html = text_of(ARTICLE, "application/pdf")
    assert html.media == HTML
    assert "labelled application/pdf, but the bytes are HTML" in html.warnings
    assert "Adelie" in html.markdown
    pdf = text_of(make_pdf("In truth a PDF"), "text/html")
    assert pdf.pages == ("In truth a PDF",)
    assert "labelled text/html, but the bytes are a PDF" in pdf.warnings
    assert text_of(make_pdf("x"), "application/octet-stream").media == PDF
    assert text_of(b"hello", "application/pdf").warnings


def test_other_media_have_no_text() -> None:
    assert extract(None, page('{"a": 1}', "application/json"), address="https://site.test/") is None
    assert extract(None, page(b"\x89PNG", "image/png"), address="https://site.test/") is None


@pytest.mark.parametrize(("coding", "said"), [("gzip", "not gzip"), ("none", "unknown coding 'none'")])
def test_a_wrong_content_encoding_is_said(coding: str, said: str) -> None:
    found = extract(
        None,
        Response(200, "OK", (("Content-Type", "text/html"), ("Content-Encoding", coding)), ARTICLE.encode()),
        address="https://site.test/",
    )
    assert found is not None
    assert "Adelie" in found.markdown
    assert found.warnings[0].startswith(f"content encoding: {said}")


@pytest.mark.parametrize(
    ("body", "media"),
    [
        (ARTICLE, "text/html; charset=utf-8"),
        (make_pdf("a", "", "b", title="T"), "application/pdf"),
        (make_pdf(), "application/pdf"),
    ],
    ids=["html", "pdf", "empty pdf"],
)
def test_records_round_trip(body: bytes | str, media: str) -> None:
    found = text_of(body, media)
    assert (
        FrozenText.from_record(
            found.address, found.markdown, found.extractor, found.version, found.to_record()
        )
        == found
    )


def test_a_record_whose_pages_do_not_fit_is_refused() -> None:
    found = text_of(make_pdf("a", "b"), "application/pdf")
    with pytest.raises(ValueError, match="page lengths"):
        FrozenText.from_record(found.address, "other text", found.extractor, found.version, found.to_record())


def test_records_of_other_tools_are_read_whole() -> None:
    found = FrozenText.from_record("https://a.test/", "text", "some", "1", {})
    assert (found.markdown, found.pages, found.media) == ("text", None, "text/plain")


@pytest.mark.slow
def test_very_large_pages_are_taken_as_plain_text() -> None:
    paragraph = f"<p>{'word ' * 2000}</p>"
    big = f"<html><body>{paragraph * (1 + LARGE // len(paragraph))}<p>the end</p></body></html>"
    found = extract_html("https://a.test/", big)
    assert found.extractor == html_text.PLAIN
    assert found.markdown.endswith("the end")
    assert any("too large" in w for w in found.warnings)


def test_deep_nesting_is_no_problem() -> None:
    found = text_of("<html><body>" + "<div>" * 5000 + "deep word" + "</div>" * 5000)
    assert "deep word" in found.markdown


def test_sniffing() -> None:
    assert sniff(b"  <!DOCTYPE html>") == HTML
    assert sniff("<html>".encode("utf-16")) == HTML
    assert sniff(b"\r\n%PDF-1.4") == PDF
    assert sniff(b"plain") is None


def test_page_images() -> None:
    assert pdf_text.page_image(make_pdf("x"), 1).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no page 2"):
        pdf_text.page_image(make_pdf("x"), 2)
    with pytest.raises(ValueError, match="can't be read"):
        pdf_text.page_image(b"junk", 1)


def test_spans() -> None:
    assert pdf_text.spans([1, 2, 3, 7]) == "1-3, 7"
    assert pdf_text.spans([]) == ""


WORDS = "<p>" + "The quick brown fox jumps over the lazy dog and then rests a while. " * 20 + "</p>"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "why"),
    [
        (WORDS + "<p>" + "<b>x</b> " * 50_000, "too many inline elements together"),
        (WORDS + "<div>" + "<a href=x>x</a> " * 60_000, "too many inline elements together"),
        (
            WORDS + "<table>" + "<tr><td rowspan=65000 colspan=1000>x" * 500 + "</table>",
            "cells of tables, as they span",
        ),
        (
            WORDS + "<table><tr>" + "<td>1" * 9_000 + "<tr><td>1" * 9_000 + "</table>",
            "cells of tables, as they span",
        ),
        (WORDS + "<ul><li>" * 1_000 + "x", "levels of elements"),
        (WORDS + "<blockquote><b>" * 300 + "x", "levels of elements"),
        (WORDS + "<p>x</p>" * 120_000, "elements"),
    ],
)
def test_a_page_that_trafilatura_can_not_take_gives_its_plain_text_with_a_warning(
    page: str, why: str
) -> None:
    began = time.process_time()
    found = extract_html("https://a.test/", page)
    assert time.process_time() - began < 15
    assert found.extractor == html_text.PLAIN
    assert "lazy dog" in found.markdown
    assert [w for w in found.warnings if w.startswith("too large for trafilatura (") and why in w]


def test_a_tag_with_a_hundred_thousand_attributes_takes_no_time() -> None:
    """The parser of HTML compares each attribute with all before it, which took over a minute."""
    many = " ".join(f"a{number}='{number}'" for number in range(100_000))
    assert "at its end" in extract_html("https://a.test/", f"{WORDS}<p id=x {many}>at its end</p>").markdown


def test_a_page_of_too_many_tags_is_not_parsed() -> None:
    found = extract_html("https://a.test/", WORDS + "<i>x</i>" * (html_text.MOST_TAGS + 1))
    assert "lazy dog" in found.markdown
    assert found.warnings[0].startswith("too many tags to be parsed (")


def test_of_a_page_that_unpacks_to_much_the_first_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillweb.snapshots.text.text.READ", 1 << 20)
    body = gzip.compress((WORDS + "<p>y").encode() + b" " * (3 << 20) + b"<p>last")
    found = extract(
        None, Response(200, "OK", (("Content-Type", "text/html"), ("Content-Encoding", "gzip")), body)
    )
    assert found is not None
    assert "lazy dog" in found.markdown
    assert found.warnings[0] == "content encoding: only the first 1 MB are read"
