"""Audit before scoring: if the snapshot holds the answers, prompts leak them, and dates will expire."""

from __future__ import annotations

import decimal
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit

from stillweb.harness.rubric.normalise import MONTHS, as_decimal, decimal_text, spellings
from stillweb.harness.rubric.sidecar import Rubric
from stillweb.harness.rubric.spelling import IN_WORD, UNSPACED, normalise_text, write_out_powers
from stillweb.harness.rubric.tables import parse_reference
from stillweb.harness.scoring import TEXTUAL, Context
from stillweb.harness.scoring.table import rubric_of
from stillweb.harness.task import Task
from stillweb.snapshots.text.search import folded
from stillweb.snapshots.text.text import FrozenText

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Finding about a task.

    `check` is gold-missing, gold-computable, gold-unread, leak, date, relative-date, certificate or cookie.
    """

    task_id: str
    check: str
    level: Level
    message: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.task_id + ': ' if self.task_id else ''}{self.level}: {self.check}: {self.message}"


_EXACT = decimal.Context(prec=100)  # more digits than are compared
_ROUNDINGS = (decimal.ROUND_HALF_UP, decimal.ROUND_HALF_EVEN)  # 12.345 is 12.35 by hand, 12.34 in Python
_WORD = re.compile(rf"{IN_WORD}+|[{UNSPACED}]")  # a single character in scripts without blanks


class TextIndex:
    """Index of values in texts: whole words, case, width and accents folded, numbers and dates in other spellings."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """Build the index from (address, text) pairs."""
        self._texts = [(address, _loose(write_out_powers(text))) for address, text in texts]
        self._by_word: defaultdict[str, set[int]] = defaultdict(set)
        for number, (_, text) in enumerate(self._texts):
            for word in set(_WORD.findall(text)):
                self._by_word[word].add(number)

    def find(self, value: str) -> str | None:
        """Return the address of the first text that has the value in any of its spellings, or None."""
        for spelling in spellings(value):
            wanted = _loose(normalise_text(spelling))
            words = _WORD.findall(wanted)
            if not words:
                continue
            texts = set.intersection(*(self._by_word.get(word, set()) for word in words))
            # Digits must not continue: 12 is not in 312, 12.5 or 1,012.
            pattern = re.compile(
                rf"(?<!{IN_WORD})(?<!\d[.,])" + re.escape(wanted) + rf"(?!{IN_WORD})(?![.,]\d)"
            )
            for number in sorted(texts):
                if pattern.search(self._texts[number][1]):
                    return self._texts[number][0]
        return None

    def rounds_to(self, value: str) -> str | None:
        """Return the address of a text with a longer decimal that rounds to the value, or None."""
        number = as_decimal(normalise_text(value))
        if number is None or len(value) > 20:
            return None
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        stem = decimal_text(abs(number)).partition(".")[0]
        if len(stem) > 40:
            return None
        starts = {stem[:-1] or stem, str(max(int(stem) - 1, 0))}  # 9.96 is rounded to 10.0
        begin = "|".join(",?".join(start) for start in sorted(starts))
        longer = re.compile(rf"(?<![\d.,])(?:{begin})[\d,]{{0,20}}\.\d{{1,20}}(?!\d)")
        for address, text in self._texts:
            for found in longer.findall(text):
                other = as_decimal(found)
                if other is not None and other != abs(number):
                    digits = len(found.partition(".")[2])
                    places = Decimal(1).scaleb(min(exponent, 0))
                    rounded = {other.quantize(places, how, _EXACT) for how in _ROUNDINGS}
                    if digits > max(-exponent, 0) and abs(number) in rounded:
                        return address
        return None


_WITH_UNIT = re.compile(r"(?<![^\W_])(\d[\d.,]*)(?=[^\W\d_]{2})")  # 12a may be a name, 12kg is none


def _loose(text: str) -> str:
    """Return the text without case, width and accents, with single blanks, and one before a unit: 5kg is 5 kg."""
    return _WITH_UNIT.sub(r"\1 ", folded(" ".join(text.split())))


def audit(
    tasks: Iterable[Task],
    texts: Iterable[FrozenText] | None,
    *,
    today: date,
    rubrics: Mapping[str, Rubric] | None = None,
    certificates: Iterable[Path] = (),
    cookies: Iterable[CookieDate] = (),
) -> list[AuditFinding]:
    """Return findings before scoring, task by task.

    `texts` are the snapshot's frozen texts (and views' texts), None to skip the gold check. `today` is a
    parameter so that the same call gives the same findings.
    """
    findings: list[AuditFinding] = []
    pairs = [(text.address, text.markdown) for text in texts or ()]
    index = TextIndex(pairs) if pairs else None
    if texts is not None and not pairs:
        message = "the snapshot has no frozen texts, so no gold cell was looked for: seal it first"
        findings.append(AuditFinding("", "gold-unread", "warning", message))
    context = Context(rubrics=rubrics or {})
    for task in tasks:
        rows = gold_rows(task, context)
        if index is not None:
            findings += _gold(task, rows, index)
        findings += _leaks(task, rows, task.question)
        findings += _dates(task, today)
    for path in certificates:
        findings += _certificate(path, today)
    for (site, name), ends in sorted(_latest(cookies).items()):
        when = "ended" if ends <= today else "ends"
        message = f"cookie {name!r} of {site} {when} on {ends.isoformat()}; a replay keeps it, a client with a clock may not"
        findings.append(AuditFinding("", "cookie", "note", message))
    return findings


def _latest(cookies: Iterable[CookieDate]) -> dict[tuple[str, str], date]:
    """Return the last expiry day of each cookie by site and name, without deleted cookies (before 2000)."""
    found: dict[tuple[str, str], date] = {}
    for cookie in cookies:
        key = (urlsplit(cookie.url).netloc, cookie.name)
        if cookie.expires.year >= 2000:
            found[key] = max(found.get(key, cookie.expires), cookie.expires)
    return found


def gold_rows(task: Task, context: Context | None = None) -> list[tuple[str, ...]]:
    """Return a task's right cells: the reference table's rows, or a one-cell row per accepted answer."""
    if task.scorer == "table" and isinstance(task.reference, str):
        table = parse_reference(task.reference, rubric_of(task, context or Context()))
        return list(table.rows) if table else []
    reference = task.reference
    if isinstance(reference, Mapping):
        reference = reference.get("answer")
    accepted = reference if isinstance(reference, list) else [reference]
    return [
        (str(one),) for one in accepted if isinstance(one, str | int | float) and not isinstance(one, bool)
    ]


def _gold(task: Task, rows: Sequence[Sequence[str]], index: TextIndex) -> Iterator[AuditFinding]:
    if task.scorer != "table" and task.scorer not in TEXTUAL:
        return
    if task.scorer != "table":  # one of the accepted answers is enough
        rows = [] if any(index.find(cell) for row in rows for cell in row) else rows[:1]
    for number, row in enumerate(rows, 1):
        for column, cell in enumerate(row, 1):
            if not normalise_text(cell) or index.find(cell):
                continue
            where = f"row {number}, column {column}" if task.scorer == "table" else "the answer"
            shown = cell if len(cell) <= 60 else cell[:57] + "…"
            if address := index.rounds_to(cell):
                message = f"{where}: {shown!r} is a rounding of a number in {address}"
                yield AuditFinding(task.id, "gold-computable", "note", message)
            elif (
                (count := as_decimal(normalise_text(cell))) is not None
                and count == int(count)
                and 0 <= count < 1000
            ):
                message = f"{where}: {shown!r} is in no text of the snapshot; it may be a count"
                yield AuditFinding(task.id, "gold-computable", "note", message)
            else:
                message = f"{where}: {shown!r} is in no text of the snapshot"
                yield AuditFinding(task.id, "gold-missing", "warning", message)


def _leaks(task: Task, rows: Sequence[Sequence[str]], prompt: str) -> Iterator[AuditFinding]:
    """Yield findings for answers in the prompt (a whole row) or in an id or URL (a characteristic cell)."""
    problem = str(task.meta.get("problem") or task.question)
    if prompt == task.question or task.scorer == "browsecomp":
        prompt = problem  # pages hold the answer by design, and the form of an answer its examples
    for place, text in (
        ("the prompt", prompt),
        ("the task id", task.id),
        ("the start URL", task.start_url or ""),
    ):
        if not text:
            continue
        texts = [text]
        if place != "the prompt":  # as written, and as words separated at the marks
            plain = unquote_plus(text)
            texts += [plain, plain.replace("_", " "), re.sub(r"[_\-/]", " ", plain)]
        index = TextIndex([(place, one) for one in texts])
        for number, row in enumerate(rows, 1):
            # a question that holds the one answer gives all away, however short; elsewhere a short cell says little
            least = 1 if place == "the prompt" and len(row) == 1 else 3
            telling = [cell for cell in row if _width(cell) >= least]
            if place == "the prompt" and len(row) > 1:
                leaked = len(telling) > 1 and all(index.find(cell) for cell in telling)
                where = f"row {number} of the reference"
            else:
                hits = [cell for cell in telling if len(row) == 1 or _width(cell) >= 5]
                hits = [cell for cell in hits if index.find(cell)]
                leaked, where = bool(hits), repr(hits[0]) if hits else ""
            if leaked:
                level: Level = "warning" if place == "the prompt" or len(row) == 1 else "note"
                yield AuditFinding(task.id, "leak", level, f"{where} stands in {place}")
                break


def _width(cell: str) -> int:
    """Return the number of characters of a cell; a Han or kana character counts as two letters."""
    text = normalise_text(cell)
    return len(text) + len(re.findall(f"[{UNSPACED}]", text))


_ISO_DATE = re.compile(r"(?<!\d)(20\d{2})-(\d{2})-(\d{2})(?!\d)")
_LONG_DATE = re.compile(rf"\b({'|'.join(MONTHS)})\s+(\d{{1,2}}),?\s+(20\d{{2}})\b")
_RELATIVE = re.compile(
    r"\b(today|yesterday|tomorrow|currently|current(?! of)|latest|most recent|so far|up to now|as of now|to date"
    r"|this (?:year|month|week)|(?:last|past|previous) (?:\d+ )?(?:years?|months?|weeks?|days?))\b"
    r"|今天|昨天|目前|当前|最新|截至目前|今年|去年|本月|上个月",
    re.I,
)


def _dates(task: Task, today: date) -> Iterator[AuditFinding]:
    for day in sorted({*_dates_in(task.question)}):
        if day > today:
            yield AuditFinding(task.id, "date", "warning", f"{day.isoformat()} in the question will pass")
    if found := _RELATIVE.search(task.question):
        message = f"{found[0]!r} in the question changes its meaning from day to day"
        yield AuditFinding(task.id, "relative-date", "warning", message)


def _dates_in(text: str) -> Iterator[date]:
    for year, month, day in _ISO_DATE.findall(text):
        yield from _day(int(year), int(month), int(day))
    for name, day, year in _LONG_DATE.findall(text):
        yield from _day(int(year), MONTHS.index(name) + 1, int(day))


def _day(year: int, month: int, day: int) -> Iterator[date]:
    try:
        yield date(year, month, day)
    except ValueError:
        return


def _certificate(path: Path, today: date) -> Iterator[AuditFinding]:
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        yield AuditFinding("", "certificate", "error", f"{path.name}: can't be read: {error}")
        return
    ends = certificate.not_valid_after_utc.date()
    if ends <= today:
        yield AuditFinding("", "certificate", "error", f"{path.name}: not valid since {ends.isoformat()}")
    else:
        yield AuditFinding("", "certificate", "note", f"{path.name}: valid until {ends.isoformat()}")


@dataclass(frozen=True, slots=True)
class CookieDate:
    """Recorded cookie with its expiry day. Replay sessions don't expire it; a live run would."""

    url: str
    name: str
    expires: date


def cookie_dates(responses: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> list[CookieDate]:
    """Return the cookies with an expiry date in (url, header fields) pairs, the earliest first."""
    from email.utils import parsedate_to_datetime

    found = set()
    for url, headers in responses:
        for name, value in headers:
            if name.lower() != "set-cookie":
                continue
            expires = re.search(r";\s*expires=([^;]+)", value, re.I)
            if expires is None:
                continue
            try:
                day = parsedate_to_datetime(expires[1].strip().replace("-", " ")).date()
            except (ValueError, TypeError, OverflowError):
                continue
            found.add(CookieDate(url, value.partition("=")[0].strip(), day))
    return sorted(found, key=lambda cookie: (cookie.expires, cookie.url, cookie.name))
