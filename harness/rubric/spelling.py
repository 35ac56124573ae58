"""Basic clean-up of every cell: joins spellings of the same text."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from functools import lru_cache

_LINK = re.compile(r"!?\[([^\[\]]*)\]\((?:[^()\s]|\([^()]*\))*(?:\s+\"[^\"]*\")?\)")
# Emphasis in CommonMark pairs, so that an asterisk inside a word (HLA-A*02:01) stays.
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=[^\s*])(.+?)(?<=[^\s*])\1(?![\w*])")
_CODE = re.compile(r"(`+)(.+?)\1")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:;/()\-+%&'=#@<>?$!\" ]*", re.ASCII)

# UNSPACED: scripts without blanks between words (Han, kana). IN_WORD: letters and digits of all others.
UNSPACED = "\u3005\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
IN_WORD = rf"[^\W{UNSPACED}]"

# A power of ten, with or without a number before it; NFKC would make 106 of 10⁶.
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻−–", "0123456789+---")
_EXPONENT = r"[-+−–]?\d{1,2}"
_POWER = re.compile(
    r"(?<![\w.,^])(?P<math>\$)?(?:(?P<factor>[+-]?\d{1,40}(?:\.\d{1,40})?)\s*(?:[×x·⋅*]|\\times|\\cdot)\s*)?10"
    rf"(?:\s?(?P<raised>[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{{1,2}})|<sup>(?P<html>{_EXPONENT})</sup>"
    rf"|\s?(?:\^|\*\*)\s?(?:\{{(?P<tex>{_EXPONENT})\}}|(?P<text>{_EXPONENT})))(?(math)\$)(?![\w^⁰¹²³⁴⁵⁶⁷⁸⁹]|[.,]\d)",
    re.A,
)
_RAISED = re.compile(r"(?<=[0-9])(\s?)([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+)")

# Marks that models and pages set as typographers do, as keyboards type them; and what nobody sees.
_TYPED = str.maketrans(
    dict.fromkeys("‘’‚‛ʼ′", "'") | dict.fromkeys("“”„‟″", '"') | dict.fromkeys("‐‑‒–—―−", "-")
)
_UNSEEN = dict.fromkeys((0xAD, 0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF))
_ESCAPED = re.compile(r"\\([_*#~<>|\[\]])")  # as models write them in markdown
_DIGIT = re.compile(r"[^\D0-9]")  # of other scripts, as in ١٢ or १२

LONGEST = 4000  # characters of a cell in which marks are paired, which takes quadratic time


@lru_cache(maxsize=65536)
def normalise_text(text: str) -> str:
    """Return the text in NFKC, trimmed, without link, emphasis and code marks, with single blanks and plain quotes.

    Dashes are hyphens. Powers of ten are written out (10⁶ is 1000000), another digit's exponent stays one (2³ is 2^3). Idempotent. Source: SGR-Bench's answer canonicalisation; case is kept (see `fold`).
    """
    if _PLAIN.fullmatch(text) and "<sup>" not in text:
        return " ".join(text.split())
    while (cleaned := _clean_once(text)) != text:  # marks nest, and removing one may uncover another
        text = cleaned
    return text


def _power(found: re.Match[str]) -> str:
    digits = found["raised"] or found["html"] or found["tex"] or found["text"]
    exponent = int(digits.translate(_SUPERSCRIPTS))
    return f"{Decimal(found['factor'] or 1).scaleb(exponent):f}"


def write_out_powers(text: str) -> str:
    """Return the text with its powers of ten written out, and other raised digits behind a `^`."""
    text = _POWER.sub(_power, text)
    return _RAISED.sub(lambda found: f"{found[1]}^{found[2].translate(_SUPERSCRIPTS)}", text)


def _clean_once(text: str) -> str:
    text = unicodedata.normalize("NFKC", write_out_powers(text.translate(_UNSEEN))).translate(_TYPED).strip()
    text = _DIGIT.sub(lambda found: str(unicodedata.decimal(found[0])), text)
    if len(text) > LONGEST:
        return " ".join(text.split())
    text = _LINK.sub(r"\1", _ESCAPED.sub(r"\1", text))
    text = _CODE.sub(r"\2", text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(text.strip("`* \t").split())


@lru_cache(maxsize=4096)
def name_form(text: str) -> str:
    """Return a column name without case, spaces, dashes and underscores, to recognise a header."""
    return re.sub(r"[\s_\-]+", "", normalise_text(text)).casefold()


def fold(text: str) -> str:
    """Return the text case-folded, in NFKC again because folding can compose."""
    return unicodedata.normalize("NFKC", text.casefold())
