"""What was not seen to make no difference: an answer that changes is sure only after as much of it as was recorded."""

from __future__ import annotations

import json

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import Recorded, answers, get, html, matcher, post, redirect

A = "http://a.test"
PAGE, ONE = get(f"{A}/page"), get(f"{A}/n/1")
WRITE, BAD = post(f"{A}/set", "to=x"), post(f"{A}/form", "age=")
DONE, LED = (WRITE, redirect("/elsewhere")), (get(f"{A}/elsewhere"), html("done"))
REFUSED = (BAD, html("age is missing", 422))


def data(value: object, status: int = 200) -> Response:
    return Response(status, "OK", (("Content-Type", "application/json"),), json.dumps(value).encode())


FORM = [(PAGE, html("form")), REFUSED, DONE, (PAGE, html("form x"))]


def test_a_refused_form_may_be_kept_where_it_stood_beside_a_write() -> None:
    over = matcher(*FORM)
    assert answers(over, PAGE, BAD, WRITE, PAGE) == ["form", "age is missing", "", "form x"]
    assert answers(over, PAGE, WRITE, PAGE) == ["form", "", "form x?"]
    assert answers(over, BAD, PAGE) == ["age is missing", "form?"]
    assert answers(over, BAD, BAD, WRITE, PAGE)[-1] == "form x?"


def test_how_often_it_was_refused_is_counted_within_what_was_recorded() -> None:
    twice = [(PAGE, html("form")), REFUSED, REFUSED, DONE, (PAGE, html("form x"))]
    over = matcher(*FORM, *[(*one, "two") for one in twice])
    asked = [answers(over, *[BAD] * count, WRITE, PAGE)[-1] for count in range(4)]
    assert asked == ["form x?", "form x", "form x", "form x?"]


def test_a_refused_form_that_changed_nothing_makes_no_difference() -> None:
    stayed = [(PAGE, html("form")), (PAGE, html("form")), REFUSED, (PAGE, html("form"))]
    over = matcher(*FORM, *[(*one, "two") for one in stayed])
    assert answers(over, WRITE, PAGE) == ["", "form x"]


def test_one_that_stood_nowhere_between_two_answers_is_not_suspected() -> None:
    over = matcher(REFUSED, (PAGE, html("form")), DONE, (PAGE, html("form x")))
    assert answers(over, PAGE, WRITE, PAGE) == ["form", "", "form x"]


def test_a_put_that_was_refused_changed_nothing() -> None:
    put = post(f"{A}/doc", "v=1")
    put = type(put)("PUT", put.url, put.headers, put.body)
    over = matcher((PAGE, html("a")), (put, html("conflict", 409)), DONE, (PAGE, html("b")))
    assert answers(over, WRITE, PAGE) == ["", "b"]


def test_a_question_that_is_posted_is_answered_as_before() -> None:
    question = post(f"{A}/api", '{"q": 1}', "application/json")
    first, second = (data([word, *["row"] * 60]) for word in "ab")
    over = matcher((question, first), REFUSED, DONE, LED, (question, second))
    said = answers(over, question, WRITE, question, question)
    assert said[2:] == [second.body.decode()] * 2
    assert answers(over, WRITE, question)[-1] == second.body.decode()


def test_a_form_that_was_taken_is_none_that_was_refused() -> None:
    taken = [(PAGE, html("2")), (BAD, redirect("/page")), (PAGE, html("1")), REFUSED, DONE, (PAGE, html("0"))]
    over = matcher(*taken)
    assert answers(over, *[request for request, _ in taken]) == ["2", "", "1", "age is missing", "", "0"]


MAIL = [(PAGE, html("a")), DONE, (PAGE, html("b")), (ONE, html("one"))]


def test_a_visit_that_never_came_before_may_make_a_difference() -> None:
    over = matcher(*MAIL)
    assert answers(over, PAGE, WRITE, PAGE, ONE) == ["a", "", "b", "one"]
    assert answers(over, WRITE, ONE, PAGE) == ["", "one", "b?"]


def test_a_visit_was_made_before_the_last_write_or_never() -> None:
    over = matcher(*MAIL, DONE, (PAGE, html("b")))
    assert answers(over, WRITE, ONE, WRITE, PAGE) == ["", "one", "", "b"]


def test_a_visit_between_two_equal_answers_made_no_difference_to_these() -> None:
    over = matcher(*MAIL[:3], (PAGE, html("b")), MAIL[3], (PAGE, html("b")))
    assert answers(over, WRITE, ONE, PAGE) == ["", "one", "b"]
    assert answers(over, ONE, PAGE)[-1] == "a?"


def test_a_visit_that_was_under_way_beside_an_answer_may_have_come_before_it() -> None:
    times = [(1, 2), (3, 4), (5, 8), (6, 7)]
    over = matcher(*[Recorded(*one, events=when) for one, when in zip(MAIL, times, strict=True)])
    assert answers(over, WRITE, ONE, PAGE)[-1] == "b"


BACK = post(f"{A}/set", "to=y")
TWO = get(f"{A}/n/2")


def came_back(*between: tuple[Request, Response]) -> Matcher:
    """A page that is as before once it was set back, after visits since; which came between equal answers at first."""
    set_back = [(BACK, redirect("/elsewhere")), (PAGE, html("a")), MAIL[3], (TWO, html("two"))]
    return matcher(
        (PAGE, html("a")), (PAGE, html("a")), *between, (PAGE, html("a")), DONE, *MAIL[2:3], *set_back
    )


def test_one_that_left_an_answer_as_it_was_does_so_where_it_is_given_again() -> None:
    assert answers(came_back(MAIL[3]), WRITE, BACK, ONE, PAGE) == ["", "", "one", "a"]
    assert answers(came_back((TWO, html("two")), MAIL[3]), WRITE, BACK, PAGE) == ["", "", "a"]


def test_of_two_that_came_together_one_may_have_undone_the_other() -> None:
    """Read, and marked as unread: that both left the page as it was clears neither."""
    over = came_back(MAIL[3], (TWO, html("two")))
    assert answers(over, WRITE, BACK, ONE, PAGE) == ["", "", "one", "a?"]
    assert answers(over, WRITE, BACK, TWO, PAGE) == ["", "", "two", "a?"]


BADGE = get(f"{A}/badge")
STAYED = [(BADGE, html("1")), (BADGE, html("1")), MAIL[3], (BADGE, html("1"))]


def test_one_that_left_two_answers_as_they_were_makes_none() -> None:
    twice = [*STAYED, *MAIL[:3], (PAGE, html("b")), MAIL[3], (PAGE, html("b")), (BADGE, html("2"))]
    once = [*STAYED, *MAIL[:3], (PAGE, html("b")), (PAGE, html("b")), (BADGE, html("2"))]
    for recorded, said in ((twice, "c"), (once, "c?")):
        other = [(BACK, redirect("/elsewhere")), (PAGE, html("c")), MAIL[3]]
        assert answers(matcher(*recorded, *other), WRITE, BACK, ONE, PAGE) == ["", "", "one", said]


def test_a_page_that_shows_what_was_written_does_not_make_it() -> None:
    shows = [(PAGE, html("a")), (ONE, html("1")), DONE, (PAGE, html("b")), (ONE, html("2"))]
    assert answers(matcher(*shows), WRITE, ONE, PAGE) == ["", "2", "b"]


def test_a_page_to_which_writes_lead_makes_no_difference() -> None:
    over = matcher((PAGE, html("a")), DONE, (PAGE, html("b")), DONE, LED)
    assert answers(over, WRITE, LED[0], PAGE)[-1] == "b"


def test_an_answer_that_never_stayed_may_change_by_being_asked_for() -> None:
    over = matcher((PAGE, html("token 1")), DONE, LED, (PAGE, html("token 2")))
    assert answers(over, PAGE, WRITE, PAGE) == ["token 1", "", "token 2"]
    assert answers(over, PAGE, PAGE) == ["token 1", "token 1?"]
    assert answers(over, WRITE, PAGE, PAGE) == ["", "token 2", "token 2?"]


def test_one_that_stayed_once_does_not() -> None:
    over = matcher((PAGE, html("a")), (PAGE, html("a")), DONE, LED, (PAGE, html("b")))
    assert answers(over, PAGE, PAGE, PAGE, WRITE, PAGE, PAGE) == ["a", "a", "a", "", "b", "b"]


def test_nor_does_a_page_to_which_writes_lead() -> None:
    over = matcher((PAGE, html("a")), (WRITE, redirect("/page")), (PAGE, html("b")))
    assert answers(over, WRITE, PAGE, PAGE) == ["", "b", "b"]


def test_what_a_like_request_does_by_itself_this_may_do_too() -> None:
    make = post(f"{A}/jobs", '{"kind": "a"}', "application/json")
    one, two = get(f"{A}/jobs/1"), get(f"{A}/jobs/2")
    running, done = data({"status": "running"}), data({"status": "done"})
    first = [(one, data("none", 404)), (make, data({"id": 1}, 201)), (one, running), (one, running)]
    second = [(two, data("none", 404)), (make, data({"id": 2}, 201)), (two, running), (two, running)]
    over = matcher(*first, *second, (two, done))
    said = answers(over, make, one, one, one)
    assert said[1:] == ['{"status": "running"}', '{"status": "running"}', '{"status": "running"}?']
    assert answers(matcher(*first, *second), make, one, one, one)[-1] == '{"status": "running"}'


def test_an_order_that_was_never_seen_to_go_on_after_a_write_may_begin_anew() -> None:
    more = get(f"{A}/more")
    pages = [(more, data(["a", *["row"] * 60])), (more, data(["b", *["row"] * 60]))]
    over = matcher(*pages, DONE, *[(*one, "two") for one in pages])
    assert [said.endswith("?") for said in answers(over, more, more)] == [False, False]
    assert [said.endswith("?") for said in answers(over, more, WRITE, more)] == [False, False, True]


def test_where_too_many_were_not_tried_none_is_named() -> None:
    many = [(get(f"{A}/n/{number}"), html(str(number))) for number in range(50)]
    over = matcher(*MAIL[:3], *many)
    assert answers(over, WRITE, many[0][0], PAGE) == ["", "0", "b"]


def test_who_asks_in_no_session_has_asked_for_nothing_before() -> None:
    over = matcher(*FORM)
    first = over.lookup(PAGE)
    assert first.capture is not None
    assert over.snapshot.read(first.capture).body == b"form"
    assert not first.ambiguous
    twice = [REFUSED, (PAGE, html("form")), REFUSED, DONE, (PAGE, html("form x"))]
    assert matcher(*twice).lookup(PAGE).ambiguous


def test_after_more_visits_than_are_remembered_what_hangs_on_them_is_unsure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stillweb.snapshots.evidence.sessions.VISITS", 3)
    plain, others = get(f"{A}/plain", x_page="1"), [get(f"{A}/other/{number}") for number in range(3)]
    recorded = [*((other, html("ok")) for other in others), (plain, html("plain")), *FORM]
    over = matcher(*recorded)
    assert answers(over, *others[:2], PAGE) == ["ok", "ok", "form"]
    assert answers(over, *others, PAGE, plain) == ["ok", "ok", "ok", "form?", "plain"]


@pytest.mark.parametrize(
    ("asked", "answer", "said"),
    [
        (WRITE, redirect("/n/1"), "b"),
        (WRITE, data({"id": 1}, 201), "b?"),
        (get(f"{A}/old"), Response(301, "Moved", (("Location", "/n/1"),), b""), "b?"),
    ],
    ids=["a write leads there", "a write that leads nowhere", "a moved page leads there"],
)
def test_only_what_a_write_leads_to_belongs_to_it(asked: Request, answer: Response, said: str) -> None:
    done = (WRITE, redirect("/n/1") if asked != WRITE else answer)
    walk = [(PAGE, html("a")), done, (PAGE, html("b"))]
    over = matcher(*walk, *[(*one, "two") for one in ((asked, answer), MAIL[3])])
    assert answers(over, WRITE, ONE, PAGE)[-1] == said
