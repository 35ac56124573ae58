"""The audit: answers that the snapshot can't hold, answers given away, dates that pass."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.harness.curation.audit import TextIndex, audit, cookie_dates, gold_rows, spellings
from stillweb.harness.rubric import Rubric
from stillweb.harness.scoring import Context
from stillweb.harness.task import Task

TODAY = date(2026, 1, 1)
RUBRIC = Rubric(("id", "name", "depth", "day"), ("id",))


@dataclass(frozen=True)
class Frozen:
    address: str
    markdown: str


def table(reference: str = "L1|Alpha|1234|2020-01-31", question: str = "Which lakes?", **change: Any) -> Task:
    return Task("t", question, reference, "table", base="b", **change)


def checks(task: Task, text: str | None = None, **options: Any) -> list[str]:
    texts = None if text is None else [Frozen("https://a.test/", text)]
    return [f.check for f in audit([task], texts, today=TODAY, rubrics={"b": RUBRIC}, **options)]


def test_cells_that_no_text_has_are_named() -> None:
    assert checks(table(), "L1 ALPHA 1,234 m, January 31, 2020") == []
    assert checks(table(), "L1 ALPHA 1,234.00 m, January 31, 2020") == []
    findings = audit([table()], [Frozen("x", "L1 and 1,234")], today=TODAY, rubrics={"b": RUBRIC})
    assert [f.message for f in findings] == [
        "row 1, column 2: 'Alpha' is in no text of the snapshot",
        "row 1, column 4: '2020-01-31' is in no text of the snapshot",
    ]
    assert checks(Task("t", "?", "Alpha", "exact"), "Beta") == ["gold-missing"]


def test_what_may_be_computed_is_a_note() -> None:
    assert checks(table("L1|Alpha|12|2020-01-31"), "L1 Alpha 2020-01-31") == ["gold-computable"]
    rounded = checks(table("L1|Alpha|12.35|2020-01-31"), "L1 Alpha 2020-01-31 12.3456")
    assert rounded == ["gold-computable"]
    assert checks(table("L1|Alpha|12.35|2020-01-31"), "L1 Alpha 2020-01-31 12.3556") == ["gold-missing"]


def test_numbers_of_any_length_are_looked_for() -> None:
    many = "1" + "0" * 9999
    assert f"{many[:1]},{many[1:4]}," in next(s for s in spellings("1e9999") if "," in s)
    for value in ("1.0000000000", "1e9999", "9" * 900):
        assert TextIndex([("a", "9" * 19 + "." + "1" * 19)]).rounds_to(value) is None
    long = "1000000000000000000000.12345678901234567891"
    assert TextIndex([("a", long)]).rounds_to("1000000000000000000") is None
    assert TextIndex([("a", "12345678.123456789012346")]).rounds_to("12345678.1234567890") == "a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1000000", "some 10⁶ cells"),
        ("1500000", "some 1.5 × 10^6 cells"),
        ("1999", "built in 1999² by hand"),
        ("50%", "of 50 % or"),
        ("50 %", "of 50% or"),
        ("50%", "of 50 percent or"),
        ("$40", "for $ 40 each"),
        ("€ 1,200", "for €1,200 each"),
        ("5kg", "of 5 kg each"),
        ("5 kg", "of 5kg each"),
        ("5", "of 5kg each"),
        ("20 °C", "at 20°C there"),
        ("5000 km/h", "at 5,000km/h there"),
        ("Zürich", "to Zurich by"),
        ("Lodz", "to Łódź by"),
        ("l'œuvre", "of l’oeuvre by"),
    ],
)
def test_numbers_units_and_accents_are_found_in_other_spellings(value: str, text: str) -> None:
    assert TextIndex([("a", text)]).find(value) == "a"
    assert TextIndex([("a", text)]).find("106") is None


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("12", True),
        ("x 12, y", True),
        ("312", False),
        ("12.5", False),
        ("1,012", False),
        ("12a", False),
        ("v12kg", False),
        ("12.", True),
    ],
)
def test_numbers_are_found_whole(text: str, there: bool) -> None:
    assert (TextIndex([("a", text)]).find("12") is not None) is there


@pytest.mark.slow
@settings(max_examples=40)
@given(st.dates(date(1000, 1, 1)))
def test_all_spellings_of_a_day_are_found(day: date) -> None:
    for spelling in spellings(day.isoformat()):
        assert TextIndex([("a", f"on {spelling} it")]).find(day.isoformat()) == "a"


@given(st.text(min_size=1, max_size=20), st.text(max_size=10), st.text(max_size=10))
def test_finding_never_fails_and_finds_words(value: str, before: str, after: str) -> None:
    index = TextIndex([("a", f"{before} {value} {after}")])
    assert index.find(value) in ("a", None)
    if value.isascii() and value.isalpha():
        assert index.find(value) == "a"


def test_leaks() -> None:
    assert checks(table(question="Is it L1, Alpha, 1234 deep on 2020-01-31?")) == ["leak"]
    assert checks(table(question="What is Alpha's depth?")) == []
    assert checks(Task("t", "Is Alpha the deepest?", "Alpha", "exact")) == ["leak"]
    assert checks(Task("lake_alpha_1", "Which?", "Alpha", "exact")) == ["leak"]
    assert checks(Task("t", "Which?", "Alpha", "exact", start_url="https://a.test/lakes/alpha?x=1")) == [
        "leak"
    ]
    for short in ("7", "no", 7, "12.5"):
        assert checks(Task("t", f"Is it {short} or another?", short, "exact")) == ["leak"]
        assert checks(Task("t", f"Is it 1{short}9x or another?", short, "exact")) == []
    formed = Task(
        "t", "Which?\n<answer>1.00</answer>", {"answer": "1"}, "sgi-deep-research", {"problem": "Which?"}
    )
    assert checks(formed) == []  # an example of the form is no question


@pytest.mark.parametrize(
    ("answer", "change"),
    [
        ("F-07", {"start_url": "https://f.test/boats/F-07"}),
        ("2024-05-01", {"start_url": "https://f.test/2024-05-01/list"}),
        ("Quay Alpha", {"start_url": "https://f.test/?q=Quay%20Alpha"}),
        ("Quay Alpha", {"start_url": "https://f.test/?q=Quay+Alpha"}),
        ("Café Lune", {"start_url": "https://f.test/caf%C3%A9-lune"}),
        ("2024-05-01", {"task_id": "day_2024-05-01"}),
        ("北京", {"question": "答案是北京吗？"}),
    ],
)
def test_an_answer_is_found_however_an_address_spells_it(answer: str, change: dict[str, str]) -> None:
    task = Task(change.pop("task_id", "t"), change.pop("question", "Which?"), answer, "exact", **change)  # type: ignore[arg-type]
    assert checks(task) == ["leak"]


def test_words_of_scripts_without_blanks_are_found_in_their_sentence() -> None:
    assert checks(Task("t", "?", "北京", "exact"), "他住在北京市。") == []
    assert checks(Task("t", "?", "3650", "exact"), "体重3650克") == []
    assert checks(Task("t", "?", "365", "exact"), "体重3650克") == ["gold-computable"]
    assert checks(Task("t", "?", "北海", "exact"), "海北") == ["gold-missing"]


@pytest.mark.parametrize(
    ("gold", "text"), [("12.35", "12.345"), ("12.34", "12.345"), ("10.0", "9.96"), ("1234.6", "1,234.56")]
)
def test_roundings_by_hand_and_by_machine(gold: str, text: str) -> None:
    assert checks(Task("t", "?", gold, "exact"), f"it was {text} m") == ["gold-computable"]
    assert TextIndex([("a", f"it was {text} m")]).rounds_to(gold) == "a"


def test_dates_that_pass_and_words_that_move() -> None:
    assert checks(table(question="Until 2027-05-01?")) == ["date"]
    assert checks(table(question="Until May 1, 2027 or 2026-02-30?")) == ["date"]
    assert checks(table(question="Until 2025-05-01?")) == []
    for words in ("the latest report", "in the last 3 months", "as of now", "目前有多少"):
        assert checks(table(question=f"How many, {words}?")) == ["relative-date"]
    assert checks(table(question="the current of the river")) == []


def test_certificates(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    start = datetime(2025, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=400))
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "ca.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    bad = tmp_path / "bad.pem"
    bad.write_text("no")
    for today, level in ((date(2025, 6, 1), "note"), (date(2027, 1, 1), "error")):
        findings = audit([], None, today=today, certificates=[path, bad])
        assert [finding.level for finding in findings] == [level, "error"]
        assert "ca.pem" in str(findings[0])


def test_cookies() -> None:
    headers = [
        ("Set-Cookie", "b=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Path=/"),
        ("set-cookie", "a=1; expires=Wed, 21-Oct-2025 07:28:00 GMT"),
        ("Set-Cookie", "c=1; Max-Age=5"),
        ("Set-Cookie", "d=1; expires=never"),
        ("Set-Cookie", "e=1; expires=Mon, 01 Jan 99999999999999 00:00:00 GMT"),
        ("Expires", "Wed, 21 Oct 2026 07:28:00 GMT"),
    ]
    found = cookie_dates([("https://a.test/", headers)])
    assert [(cookie.name, cookie.expires.isoformat()) for cookie in found] == [
        ("a", "2025-10-21"),
        ("b", "2026-10-21"),
    ]


def test_one_of_several_accepted_answers_is_enough_and_any_of_them_leaks() -> None:
    task = Task("t", "Who keeps the light?", ["Ann Oake", "A. Oake"], "exact")
    assert checks(task, "The light is kept by A. Oake.") == []
    assert checks(task, "The light is kept.") == ["gold-missing"]
    assert checks(replace(task, question="Who is A. Oake?"), "Ann Oake") == ["leak"]


def test_without_frozen_texts_no_gold_is_called_missing() -> None:
    (finding,) = audit([table()], [], today=TODAY, rubrics={"b": RUBRIC})
    assert (finding.check, finding.level) == ("gold-unread", "warning")
    assert "seal it first" in finding.message


def test_gold_of_other_sets() -> None:
    assert gold_rows(Task("t", "?", {"answer": "x"}, "sgi-deep-research")) == [("x",)]
    assert gold_rows(Task("t", "?", ["x", 2], "exact")) == [("x",), ("2",)]
    assert gold_rows(Task("t", "?", None, "page")) == []
    assert gold_rows(table("NONE"), Context(rubrics={"b": RUBRIC})) == []
