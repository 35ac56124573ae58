"""Reviews: the form, the gate on composition errors, hints, and two reviewers' agreement."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.review.reviews import (
    CLASSES,
    COMPOSITION,
    Review,
    add_review,
    agreement,
    hints_of,
    import_reviews,
    kappa,
    latest_reviews,
)
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.harness.view.run_table import RunTable
from stillweb.snapshots.errors import DamagedInput, UsageError
from tests.harness.commands.calling import call
from tests.support.runs import make_run, write_script

WORDS = {"cause": "Took the wrong row.", "evidence": "Step 1 has both.", "why_not": "The page was right."}


def review(reviewer="ada", primary="in-page misreading", **members):
    ready = {"decisive_event": 1, "nearest_class": "drift", **WORDS, **members}
    return Review(reviewer, primary, **ready)


@pytest.fixture
def files(tmp_path):
    return make_run(tmp_path, ["right", "wrong", "silent", "broken"])


def hints(files, name):
    return hints_of(read_trace(files.trace_path(name, 1)))


def test_hints_name_class_text_and_events(files):
    found = {hint.suggests: hint for hint in hints(files, "wrong")}
    assert found["retrieval dependency not closed"].events == (3,)
    assert found["retrieval dependency not closed"].upstream
    assert "2012" not in found.get("self-rewriting", found["retrieval dependency not closed"]).text
    assert hints(files, "right") == [] or all(not hint.upstream for hint in hints(files, "right"))


def script_run(folder, steps, answer):
    files = make_run(folder, ["t"], script={"default": {"steps": steps, "answer": answer}})
    return read_trace(files.trace_path("t", 1))


def fetch(query):
    return {"call": "fetch", "with": {"url": f"https://shelf.example/list?{query}"}}


def test_a_value_beside_the_right_one_in_the_same_output_hints_at_misreading(tmp_path):
    trace = script_run(tmp_path, [fetch("year=2012&page=1")], "7|3700\n9|3700")
    assert any(h.suggests == "in-page misreading" and h.events == (1,) for h in hints_of(trace))


def test_a_condition_that_is_left_hints_at_drift(tmp_path):
    steps = [fetch("year=2012&page=1"), {"call": "fetch", "with": {"url": "https://shelf.example/"}}]
    trace = script_run(tmp_path, steps, "NONE")
    assert [h.text for h in hints_of(trace) if h.suggests == "drift"] == [
        "a condition was left: filters.year"
    ]


def test_rows_beyond_the_reference_hint_at_the_criterion(tmp_path):
    trace = script_run(tmp_path, [fetch("year=2012&page=1")], "7|3900\n9|3700\n11|3650")
    texts = [h.text for h in hints_of(trace) if h.suggests == "criterion mismatch"]
    assert texts[0] == "1 of the answer's rows are not in the reference"


def test_high_item_f1_with_wrong_rows_is_first_checked_upstream(tmp_path):
    trace = script_run(tmp_path, [fetch("year=2012&page=1")], "9|3700\n7|3900")
    hint = next(h for h in hints_of(trace) if "check criterion" in h.text)
    assert hint.upstream
    assert "with right rows in another order" in hint.text


def test_a_right_row_that_is_repeated_is_not_said_to_be_missing_from_the_reference(tmp_path):
    trace = script_run(tmp_path, [fetch("year=2012&page=1")], "7|3900\n7|3900\n9|3700")
    texts = [hint.text for hint in hints_of(trace)]
    assert not any("not in the reference" in text or "rows wrong" in text for text in texts)
    assert any("right rows repeated" in text for text in texts)
    (tmp_path / "other").mkdir()
    other = script_run(tmp_path / "other", [fetch("year=2012&page=1")], "7|3900\n7|3900\n8|1\n9|3700")
    assert any("1 of the answer's rows are not in the reference" in hint.text for hint in hints_of(other))


def test_a_number_of_the_question_that_was_never_used_hints_at_rewriting(tmp_path):
    trace = script_run(tmp_path, [{"call": "fetch", "with": {"url": "https://shelf.example/"}}], "NONE")
    assert any(h.suggests == "self-rewriting" and "2012" in h.text for h in hints_of(trace))


def test_composition_is_closed_while_an_upstream_signal_is_open(files):
    path = files.trace_path("wrong", 1)
    with pytest.raises(UsageError, match="can't be chosen while an upstream signal is open"):
        add_review(path, review(primary=COMPOSITION))
    assert read_trace(path).of("review") == []
    add_review(path, review(primary=COMPOSITION, override="The miss was for an advert."))
    assert read_trace(path).of("review")[0]["override"] == "The miss was for an advert."


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"primary": "laziness"}, "'laziness' is none of"),
        ({"primary": "drift"}, "must be another than the class chosen"),
        ({"decisive_event": 99}, "the trace has 5 steps, not 99"),
    ],
)
def test_a_review_that_does_not_hold_is_refused(files, members, message):
    path = files.trace_path("wrong", 1)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=message):
        add_review(path, review(**members))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "missing", ["reviewer", "class", "cause", "evidence", "nearest_class", "why_not", "decisive_event"]
)
def test_every_field_of_the_form_is_needed(missing):
    form = {
        "reviewer": "ada",
        "class": "drift",
        "nearest_class": "self-rewriting",
        "decisive_event": "1",
        **WORDS,
    }
    assert Review.from_mapping(form).primary == "drift"
    with pytest.raises(UsageError, match=missing.replace("_", " ")):
        Review.from_mapping({**form, missing: " "})


def test_the_last_review_of_a_reviewer_counts(files):
    path = files.trace_path("wrong", 1)
    add_review(path, review())
    add_review(path, review(primary="self-rewriting"))
    assert latest_reviews(read_trace(path))["ada"]["class"] == "self-rewriting"


def test_two_reviewers_agreement_over_what_both_judged(files, capsys):
    assert call(capsys, "review", files.path, "--agreement") == (0, "no two reviewers yet\n")
    for name, ada, bob in (
        ("wrong", "drift", "drift"),
        ("silent", "drift", "self-rewriting"),
        ("broken", "drift", None),
    ):
        path = files.trace_path(name, 1)
        add_review(path, review("ada", ada, nearest_class="in-page misreading"))
        if bob:
            add_review(path, review("bob", bob, nearest_class="in-page misreading"))
    [found] = agreement(files.path)
    assert (found.reviewers, found.both, found.agreed, found.disputed) == (
        ("ada", "bob"),
        2,
        1,
        ("silent/1",),
    )
    assert found.kappa == 0.0
    said = "ada and bob: 1 of 2 agreed, Cohen's kappa 0.000; disputed: silent/1\n"
    assert call(capsys, "review", files.path, "--agreement") == (0, said)


@pytest.mark.parametrize(
    ("pairs", "value"),
    [
        ([], None),
        ([("a", "a")] * 5, 1.0),
        ([("a", "a")] * 20 + [("b", "b")] * 15 + [("a", "b")] * 5 + [("b", "a")] * 10, 0.4),
        ([("a", "b"), ("b", "a")], -1.0),
    ],
)
def test_kappa_has_its_known_values(pairs, value):
    assert kappa(pairs) == (None if value is None else pytest.approx(value))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1))
def test_kappa_is_symmetric_and_at_most_one(pairs):
    assert kappa(pairs) == pytest.approx(kappa([(b, a) for a, b in pairs]))
    assert kappa(pairs) <= 1
    assert (kappa(pairs) == 1) == all(a == b for a, b in pairs)


def test_a_saved_file_may_hold_any_text_and_windows_line_ends(files, tmp_path):
    saved = {
        "task": "silent",
        "attempt": 1,
        "reviewer": "bob",
        "class": "drift",
        "decisive_event": 1,
        "nearest_class": "self-rewriting",
        **WORDS,
        "cause": "two\u2028lines\x85and\fmore",
    }
    path = tmp_path / "reviews.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(saved, ensure_ascii=False).encode() + b"\r\n\r\n")
    assert import_reviews(files.path, path) == 1
    assert read_trace(files.trace_path("silent", 1)).of("review")[-1]["cause"] == saved["cause"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda v: v.update(task="unheard"), UsageError, ":2: the run has no attempt unheard/1"),
        (lambda v: v.update({"class": "x"}), UsageError, ":2: class: 'x' is none of"),
        (lambda v: v.pop("attempt"), DamagedInput, ":2: not a saved review: it has no member 'attempt'"),
        (lambda v: v.update(cause=""), UsageError, ":2: cause: must be filled in"),
    ],
)
def test_nothing_is_taken_in_from_a_file_with_a_bad_line(files, tmp_path, change, error, message):
    good = {"task": "wrong", "attempt": 1, "reviewer": "bob", "class": "drift", "decisive_event": 1}
    good |= {"nearest_class": "self-rewriting", **WORDS}
    bad = dict(good)
    change(bad)
    source = tmp_path / "reviews.jsonl"
    source.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    with pytest.raises(error, match=message):
        import_reviews(files.path, source)
    assert read_trace(files.trace_path("wrong", 1)).of("review") == []


def test_a_file_that_is_no_text_is_told(files, tmp_path):
    (tmp_path / "reviews.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(DamagedInput, match=r"reviews\.jsonl: not saved reviews: not UTF-8 at byte 0"):
        import_reviews(files.path, tmp_path / "reviews.jsonl")


def test_a_file_without_reviews_is_told(files, tmp_path):
    (tmp_path / "reviews.jsonl").write_text("\n")
    with pytest.raises(DamagedInput, match=r"reviews\.jsonl: holds no reviews"):
        import_reviews(files.path, tmp_path / "reviews.jsonl")


def test_one_right_row_and_right_rows_in_a_free_order_are_wholly_right(tmp_path):
    """Order accuracy is 0 with one row, and says nothing where no order is asked for."""
    columns = {"columns": ["id", "v"], "row_key": ["id"]}
    tasks = [
        Task("one", "?", "1|A", "table", options={"rubric": columns}),
        Task("free", "?", "1|A\n2|B", "table", options={"rubric": {**columns, "ordered": False}}),
        Task("order", "?", "1|A\n2|B", "table", options={"rubric": columns}),
    ]
    answers = {"one": "1|A", "free": "2|B\n1|A", "order": "2|B\n1|A"}
    script = {"tasks": {name: {"answer": text} for name, text in answers.items()}}
    agent = write_script(tmp_path, {"agent": "script", **script})
    files = start_run(tmp_path / "run", Settings(agent=agent, contracts=()), tasks)
    run_attempts(files.path, display=SilentDisplay())
    table = RunTable(files.path)
    table.refresh(None)
    assert [row.task for row in table.select("unreviewed")] == ["order"]


def test_there_are_six_classes_and_the_schema_knows_them():
    from stillweb.harness.trace import _schema

    assert list(CLASSES) == _schema()["$defs"]["review"]["properties"]["class"]["enum"]
