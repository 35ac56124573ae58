"""Text of PDFs page by page (pypdfium2), and their metadata, encryption and structure (pypdf)."""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stillweb.snapshots.text.scripts import lowered_mark, raised_mark
from stillweb.snapshots.words import pluralize

# Of the process that reads a PDF: pdfium knows no limits, and a small file can unpack to much, repeat its parts or break it.
MEMORY = 300 << 20  # bytes, beside three times the file
SECONDS = 120  # of the processor
# Of what is made of pdfium's characters: 2 reads what is drawn over a page, and marks raised digits; 3 marks raised
# letters and lowered digits, too, and says which boxes are checked; 4 marks raised digits behind a gap and before a word.
RENDERING = 4
MOST_PIXELS = 1 << 24  # of a drawn page: 4 bytes each
_DOTS_PER_INCH = 96
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(slots=True)
class PdfText:
    """Text of a PDF: the texts of its pages in order, the extractor, and facts about the document."""

    pages: list[str]
    extractor: str
    version: str
    title: str = ""
    # with the names and order of PDF.js, see `ordered_info`
    info: dict[str, Any] = field(default_factory=dict)
    encrypted: bool = False
    readable: bool = True
    images: list[int] = field(default_factory=list)  # pages (from 1) that have images and no text
    empty: list[int] = field(default_factory=list)  # pages (from 1) that have neither images nor text
    warnings: list[str] = field(default_factory=list)
    labels: list[str] | None = None  # page labels, if they differ from 1, 2, 3 …
    tagged: bool = False
    xmp: bool = False  # True if it has metadata in XML


def extract_pdf(data: bytes) -> PdfText:
    """Extract the text of a PDF. Damaged files don't raise: `readable` and `warnings` say what is wrong.

    A process of limited memory and time reads it.
    """
    done = _apart(data, "write_text")
    if done.returncode == 0:
        return PdfText(**json.loads(done.stdout))
    warning = f"its text was not read: {_why(done)}"
    return PdfText([], "pypdfium2", _version_of_ours(), readable=False, warnings=[warning])


def _version_of_ours() -> str:
    import pypdfium2

    return f"{pypdfium2.PYPDFIUM_INFO}+{RENDERING}"


def _apart(data: bytes, function: str, *arguments: int) -> subprocess.CompletedProcess[bytes]:
    """Call a function of this module in a process of its own, which finds `data` on its standard input."""
    given = ", ".join(map(str, arguments))
    program = f"from stillweb.snapshots.text import pdf_text as m; m.limit({MEMORY + 3 * len(data)}, {SECONDS}); m.{function}({given})"
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-c", program],
        input=data,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )


def _why(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it takes more than {SECONDS} s"
    return f"it needs more than {MEMORY >> 20} MB of memory, or crashes the PDF reader"


def limit(memory: int, seconds: int) -> None:
    """Limit this process to bytes of memory, and to seconds of the processor."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def write_text() -> None:
    """Read a PDF from standard input, and write its text to standard output as JSON."""
    sys.stdout.write(json.dumps(asdict(_extract(sys.stdin.buffer.read()))))


def _extract(data: bytes) -> PdfText:
    import pypdfium2

    out = PdfText([], "pypdfium2", _version_of_ours())
    _structure(data, out)
    try:
        _pages(data, out)
    except pypdfium2.PdfiumError as error:
        if out.encrypted:
            out.readable = False
            out.warnings.append("encrypted: a password is needed to read it")
            return out
        out.warnings.append(f"pdfium can't read it: {error}")
        _pages_by_pypdf(data, out)
    if out.encrypted and out.readable:
        out.warnings.append("encrypted, but readable without a password")
    if out.images:
        what = "all pages" if len(out.images) == len(out.pages) else f"pages {spans(out.images)}"
        out.warnings.append(f"scanned: {what} hold images and no text")
    if out.empty and len(out.empty) == len(out.pages):
        out.warnings.append("no page has any text")
    return out


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufffe", "-").replace("\x02", "-")
    return _CONTROL.sub("", text).rstrip()


def _pages(data: bytes, out: PdfText) -> None:
    import pypdfium2
    import pypdfium2.raw as raw

    document = pypdfium2.PdfDocument(data)
    if document.get_formtype():
        document.init_forms()  # draws the fields that have a value and no picture of it
    if document.get_formtype() == raw.FORMTYPE_XFA_FULL:
        out.warnings.append("its pages are made by the reader's program (XFA): they are not read")
    if attached := document.count_attachments():
        out.warnings.append(
            f"{pluralize(attached, 'attached file')} {'is' if attached == 1 else 'are'} not read"
        )
    damaged: list[int] = []
    comments = 0
    try:
        for number in range(len(document)):
            try:
                page = document[number]
            except pypdfium2.PdfiumError:
                if len(damaged) == number == len(document) - 1:
                    raise  # no page can be read
                damaged.append(number + 1)
                out.pages.append("")  # so that the following pages keep their numbers
                continue
            try:
                shown = _annotations(page)
                comments += shown.comments
                if raw.FPDFPage_GetAnnotCount(page):  # what fields and notes show becomes part of the page
                    raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
                    page.close()
                    page = document[number]
                words = page.get_textpage()
                text = _clean(_with_scripts(words))
                words.close()
                known = " ".join(text.split())
                notes = [note for note in shown.drawn if " ".join(note.split()) not in known]
                text = "\n".join([text, *notes, *shown.undrawn, *shown.checked]).lstrip("\n")
                if not text.strip():
                    image = next(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3), None)
                    (out.images if image is not None else out.empty).append(number + 1)
            finally:
                page.close()
            out.pages.append(text)
    finally:
        document.close()
    if comments:
        out.warnings.append(
            f"{pluralize(comments, 'comment')} that no page shows {'is' if comments == 1 else 'are'} not read"
        )
    if damaged:
        out.warnings.append(f"damaged: of pages {spans(damaged)} nothing can be read")


@dataclass(slots=True)
class _Annotations:
    """Texts that annotations write on a page, with a picture and without one, chosen values, and comments."""

    drawn: list[str] = field(default_factory=list)
    undrawn: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    comments: int = 0  # texts of annotations that a reader sees when it opens them


def _annotations(page: Any) -> _Annotations:
    """Return the text of a page's annotations that pdfium does not draw.

    It draws no free text without a picture, and boxes and chosen options as lines and colours.
    """
    import pypdfium2.raw as raw

    found = _Annotations()
    form = page.formenv.raw if page.formenv else None
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        note = raw.FPDFPage_GetAnnot(page, number)
        if not note:
            continue
        kind = raw.FPDFAnnot_GetSubtype(note)
        contents = _string(raw.FPDFAnnot_GetStringValue, note, b"Contents")
        if raw.FPDFAnnot_GetFlags(note) & (raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW):
            pass
        elif kind == raw.FPDF_ANNOT_FREETEXT:
            text = contents or _TAG.sub("", _string(raw.FPDFAnnot_GetStringValue, note, b"RC"))
            pictured = raw.FPDFAnnot_GetAP(note, raw.FPDF_ANNOT_APPEARANCEMODE_NORMAL, None, 0) > 2
            if text.strip():
                (found.drawn if pictured else found.undrawn).append(text.strip())
        elif kind == raw.FPDF_ANNOT_WIDGET and form is not None:
            name = _string(raw.FPDFAnnot_GetFormFieldName, form, note)
            found.checked += [f"[x] {name}: {value}" for value in _checked(form, note)]
        elif kind in _COMMENTS and contents.strip():
            found.comments += 1
        raw.FPDFPage_CloseAnnot(note)
    return found


# FPDF_ANNOT_TEXT to FPDF_ANNOT_INK, without free text
_COMMENTS = (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
_TAG = re.compile(r"<[^>]*>")


def _checked(form: Any, widget: Any) -> list[str]:
    """Return the value of a checked box or radio button, or the chosen options of a list."""
    import pypdfium2.raw as raw

    kind = raw.FPDFAnnot_GetFormFieldType(form, widget)
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        if not raw.FPDFAnnot_IsChecked(form, widget):
            return []
        return [_string(raw.FPDFAnnot_GetFormFieldExportValue, form, widget) or "Yes"]
    if kind != raw.FPDF_FORMFIELD_LISTBOX:
        return []
    return [
        _string(raw.FPDFAnnot_GetOptionLabel, form, widget, option)
        for option in range(raw.FPDFAnnot_GetOptionCount(form, widget))
        if raw.FPDFAnnot_IsOptionSelected(form, widget, option)
    ]


def _string(read: Any, *given: Any) -> str:
    """Return the text that a function of pdfium writes into a buffer of UTF-16."""
    import ctypes

    import pypdfium2.raw as raw

    length = read(*given, None, 0)
    buffer = ctypes.create_string_buffer(max(length, 2))
    read(*given, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), length)
    return _clean(buffer.raw.decode("utf-16-le", "replace").rstrip("\0"))


class _Glyphs:
    """Places of the characters of a page's text, in the direction in which the last ones that `shift` saw are read."""

    def __init__(self, words: Any) -> None:
        import ctypes

        import pypdfium2.raw as raw

        self._words, self._raw = words, raw
        self._x, self._y, self._box = ctypes.c_double(), ctypes.c_double(), raw.FS_RECTF()
        self._to_x, self._to_y = ctypes.byref(self._x), ctypes.byref(self._y)
        self._quarter = 0  # of a turn, to the left

    def size(self, at: int) -> float:
        return float(self._raw.FPDFText_GetFontSize(self._words.raw, at))

    def baseline(self, at: int) -> float:
        """Return the height of a character's baseline."""
        self._raw.FPDFText_GetCharOrigin(self._words.raw, at, self._to_x, self._to_y)
        x, y = self._x.value, self._y.value
        return (y, -x, -y, x)[self._quarter]

    def box(self, at: int) -> tuple[float, float, float]:
        """Return the left and right edges of a character and the height of its line."""
        self._raw.FPDFText_GetLooseCharBox(self._words, at, self._box)
        box = self._box
        left, right = (
            (box.left, box.right),
            (box.bottom, box.top),
            (-box.right, -box.left),
            (-box.top, -box.bottom),
        )[self._quarter]
        return left, right, box.right - box.left if self._quarter % 2 else box.top - box.bottom

    def shift(self, at: int, beside: int, *, apart: bool = False) -> int:
        """Return 1 if a character is raised beside another one, -1 if it is lowered, else 0.

        It is smaller, or raised by more than a quarter of a line, and next to the other one. With a gap between them
        (`apart`) it is smaller and raised by a fifth at least.
        """
        turned = self._raw.FPDFText_GetCharAngle(self._words.raw, beside)  # to the right
        self._quarter = round(-turned / (math.pi / 2)) % 4
        rise = self.baseline(at) - self.baseline(beside)
        if not rise:
            return 0
        _, _, height = self.box(beside)
        _, _, own = self.box(at)
        smaller = own < 0.9 * height
        away = 0.2 if apart else 0.1 if smaller else 0.25
        near = self.distance(at, beside) < (1.0 if apart else 0.4) * height
        if not near or (apart and not smaller) or not away * height < abs(rise) < 0.9 * height:
            return 0
        return 1 if rise > 0 else -1 if smaller and not apart else 0

    def distance(self, at: int, beside: int) -> float:
        """Return the gap between two characters of a line."""
        left, right = (self.box(one) for one in sorted((at, beside)))
        return abs(right[0] - left[1])


def _with_scripts(words: Any) -> str:
    """Return a page's text with marks before raised and lowered parts, which break no line.

    They are looked for at digits and signs, after changes of a character's size and after line breaks.
    """
    text: str = words.get_text_range()
    if len(text) != words.count_chars():  # characters beyond the 16-bit plane: no place in the text is known
        return text
    glyphs = _Glyphs(words)
    parts: list[str] = []
    done = 0
    for found in _PERHAPS.finditer(text):
        at, start = found.start(), found.end() - 1
        shift, base, blank = _shifted(glyphs, text, at, start, done)
        if not shift:
            continue
        end, level, line = start + 1, glyphs.baseline(start), glyphs.baseline(base)
        while end < len(text) and not text[end].isspace() and glyphs.baseline(end) == level:
            end += 1
        after = end + 2
        if not (text[end:after] == "\r\n" and after < len(text) and glyphs.baseline(after) == line):
            after = end
        script, following = text[start:end], text[after : after + 1]
        before = text[base] if base < start and not blank else ""
        mark = (raised_mark if shift > 0 else lowered_mark)(script, before, following)
        gap = " " if mark and following.isalnum() else ""
        begin = text[done:at] if base < start else text[done:start]
        parts += [begin, blank, mark, script, ")" * mark.count("("), gap]
        done = after
    return "".join(parts) + text[done:]


def _shifted(glyphs: _Glyphs, text: str, at: int, start: int, first: int) -> tuple[int, int, str]:
    """Return how a part at `start`, behind a gap from `at`, is shifted, beside which character, and a blank between.

    That character is not before `first`. Raised digits belong to the nearer neighbour: 10 with a 6 behind it, C with
    a 14 before it.
    """
    base, shift, blank = at - 1, 0, ""
    often = text[start] in _RAISED_OFTEN
    if base >= first and not text[base].isspace():
        smaller = glyphs.size(start) < 0.9 * glyphs.size(base)
        if (smaller or often or start > at) and text[at:start] != " ":
            shift = glyphs.shift(start, base)
        if not shift and smaller and often:
            shift, blank = glyphs.shift(start, base, apart=True), " "
    if (shift and not blank) or start < first or not (digits := _WORD_BEGINS.match(text, start)):
        return shift, base, blank
    last, after = digits.end(1) - 1, digits.end()
    nearer = not shift or (
        not text[after].isspace() and glyphs.distance(last, after) < glyphs.distance(start, base)
    )
    if nearer and glyphs.shift(last, after) > 0 and glyphs.baseline(start) == glyphs.baseline(last):
        return 1, after, ""
    return shift, base, blank


# Where a raised or lowered part may begin: after a line break, at a digit or sign, at the last letter of a word and at
# a letter after a digit or bracket. (To ask for the size of each character takes longer than to read the page.)
_PERHAPS = re.compile(
    r"(?<=[^\s])(?:\r\n[^\s]| ?[-+\u2212\u20130-9])|(?<![^\s])[0-9]|(?<=[^\W_])[^\W\d_](?![^\W_])|(?<=[0-9)])[^\W\d_]"
)
_RAISED_OFTEN = frozenset("0123456789-+\u2212\u2013")
_WORD_BEGINS = re.compile(r"(?<!\S)([0-9]+)(?:\r\n)?(?=[^\r\n0-9]|(?<=\n)[0-9])", re.ASCII)


def _pages_by_pypdf(data: bytes, out: PdfText) -> None:
    """Set the pages of `out` by pypdf, which can repair some files that pdfium rejects."""
    import pypdf

    out.pages, out.images, out.empty = [], [], []
    out.extractor, out.version = "pypdf", pypdf.__version__
    try:
        for number, page in enumerate(pypdf.PdfReader(io.BytesIO(data)).pages, 1):
            text = _clean(page.extract_text())
            out.pages.append(text)
            if not text.strip():
                out.empty.append(number)
    except _PYPDF_FAILURES as error:
        out.warnings.append(f"pypdf can't read it: {_line(error)}")
    out.readable = bool(out.pages)


# pypdf raises any of these for damaged files
_PYPDF_FAILURES: tuple[type[Exception], ...] = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OSError,
    RecursionError,
    AssertionError,
    NotImplementedError,
    ZeroDivisionError,
    OverflowError,
)


def _structure(data: bytes, out: PdfText) -> None:
    import logging

    from pypdf.errors import PyPdfError

    global _PYPDF_FAILURES
    if PyPdfError not in _PYPDF_FAILURES:
        _PYPDF_FAILURES = (*_PYPDF_FAILURES, PyPdfError)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns about every small fault of a file
    try:
        reader = _reader(data)
        out.encrypted = bool(reader.is_encrypted)
        if out.encrypted and not reader.decrypt(""):
            return
        root: Any = reader.trailer["/Root"]
        out.xmp = _has_xmp(root)
        out.tagged = "/MarkInfo" in root and bool(root["/MarkInfo"].get("/Marked", False))
        out.info = _features(data, reader, root)
        known = {
            str(n).lstrip("/"): _CONTROL.sub("", str(v)).strip() for n, v in (reader.metadata or {}).items()
        }
        out.info |= {name: known[name] for name in _INFO if known.get(name)}
        custom = {name: text for name, text in sorted(known.items()) if text and name not in _INFO}
        if custom:
            out.info["Custom"] = custom
        out.title = known.get("Title", "")
        if "/PageLabels" in root:
            labels = list(reader.page_labels)
            out.labels = labels if labels != [str(n) for n in range(1, len(labels) + 1)] else None
        if "/OCProperties" in root and (off := root["/OCProperties"]["/D"].get("/OFF")):
            count = pluralize(len(off.get_object()), "layer")
            out.warnings.append(f"{count} that a reader's program hides at first may be among its text")
    except _PYPDF_FAILURES as error:
        out.warnings.append(f"its structure is damaged: {_line(error)}")


_ENDS = (b"", b"\n%%EOF\n", b"\nstartxref\n0\n%%EOF\n")  # ends that a truncated file may lack


def _reader(data: bytes) -> Any:
    """Return pypdf's reader of a file, also of one without its last lines. Raises `_PYPDF_FAILURES`."""
    import pypdf

    for end in _ENDS:
        try:
            reader = pypdf.PdfReader(io.BytesIO(data + end), strict=False)
            if "/Root" in reader.trailer:
                return reader
        except _PYPDF_FAILURES:
            if end == _ENDS[-1]:
                raise
    raise ValueError("no root object")


def _has_xmp(root: Any) -> bool:
    """Return True if PDF.js reports XMP metadata: for any non-empty stream of type /Metadata and /XML."""
    from pypdf.generic import IndirectObject, StreamObject

    if not isinstance(root.raw_get("/Metadata") if "/Metadata" in root else None, IndirectObject):
        return False
    stream = root["/Metadata"]
    named = isinstance(stream, StreamObject) and (stream.get("/Type"), stream.get("/Subtype"))
    return named == ("/Metadata", "/XML") and bool(stream.get_data())


_INFO = (
    "Title", "Author", "Subject", "Keywords", "Creator", "Producer", "CreationDate", "ModDate", "Trapped"
)  # fmt: skip


_FEATURES = (
    "PDFFormatVersion", "Language", "EncryptFilterName", "IsLinearized", "IsAcroFormPresent",
    "IsXFAPresent", "IsCollectionPresent", "IsSignaturesPresent"
)  # fmt: skip


def ordered_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document's information in the order of PDF.js, which is lost when it is stored."""
    order = (*_FEATURES, *_INFO, "Custom")
    return {name: info[name] for name in order if name in info}


def _features(data: bytes, reader: Any, root: Any) -> dict[str, Any]:
    """Return the features that PDF.js lists before a document's own entries, in its order and with its names."""
    encrypt = reader.trailer.get("/Encrypt")
    encrypt = encrypt.get_object() if encrypt is not None else {}
    form = root.get("/AcroForm")
    form = form.get_object() if form is not None else {}
    fields = list(form.get("/Fields", ())) if hasattr(form, "get") else []
    return {
        "PDFFormatVersion": _version(data, str(root.get("/Version", "")).lstrip("/")),
        "Language": str(root["/Lang"]) if "/Lang" in root else None,
        "EncryptFilterName": str(encrypt["/Filter"]).lstrip("/") if "/Filter" in encrypt else None,
        "IsLinearized": b"/Linearized" in data[:1024],
        "IsAcroFormPresent": bool(fields),
        "IsXFAPresent": hasattr(form, "get") and "/XFA" in form,
        "IsCollectionPresent": "/Collection" in root,
        "IsSignaturesPresent": hasattr(form, "get") and bool(int(form.get("/SigFlags", 0)) & 1),
    }


_VERSION = re.compile(r"[1-9]\.[0-9]", re.ASCII)
_HEADER = re.compile(rb"%PDF-([^\x00- ]{0,7})")


def _version(data: bytes, catalogued: str) -> str | None:
    """Return the PDF version in the catalog, else in the header in the first KiB; None if neither is a version."""
    header = _HEADER.search(data[:1024])
    version = header[1].decode("latin-1") if header else ""
    return next((one for one in (catalogued, version) if _VERSION.fullmatch(one)), None)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:120] or type(error).__name__


def spans(numbers: list[int]) -> str:
    """Format page numbers as ranges: "1-3, 7"."""
    out: list[str] = []
    start = previous = None
    for number in [*sorted(numbers), None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            out.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ", ".join(out)


def page_image(data: bytes, number: int) -> bytes:
    """Render page `number` (from 1) as PNG, smaller if it would have more than `MOST_PIXELS`.

    Raises ValueError if the PDF can't be read, needs too much to be drawn, or has no such page.
    """
    done = _apart(data, "write_image", number)
    if done.returncode != 0:
        raise ValueError(f"page {number} is not drawn: {_why(done)}")
    if not done.stdout:
        raise ValueError(done.stderr.decode("utf-8", "replace"))
    return done.stdout


def write_image(number: int) -> None:
    """Read a PDF from standard input, and write a page as PNG to standard output, or why not to standard error."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    except pypdfium2.PdfiumError as error:
        sys.stderr.write(f"the PDF can't be read: {error}")
        return
    if not 1 <= number <= len(document):
        sys.stderr.write(f"no page {number}: it has {len(document)}")
        return
    try:
        page = document[number - 1]
        width, height = page.get_size()
        fitting = math.sqrt(MOST_PIXELS / max(1.0, width * height))
        image = page.render(scale=min(_DOTS_PER_INCH / 72, fitting)).to_pil()
    except pypdfium2.PdfiumError as error:
        sys.stderr.write(f"page {number} can't be read: {error}")
        return
    image.save(sys.stdout.buffer, "PNG")
