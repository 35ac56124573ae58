"""Retrieval state, and where values were seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.agents.retrieval import EMPTY, changes, state_of
from stillweb.harness.scoring.judging import Evaluator, conclude
from stillweb.harness.scoring.value_search import Seen
from stillweb.harness.task import Task
from stillweb.harness.trace import TraceWriter


def test_a_url_says_filters_page_and_sort():
    state = state_of(
        "https://data.example/open/penguins?species=Chinstrap&sex=female&_sort_desc=mass&_next=20#map"
    )
    assert state["site"] == "data.example"
    assert state["filters"] == {"species": "Chinstrap", "sex": "female"}
    assert (state["page"], state["sort"], state["fragment"]) == ("20", "_sort_desc=mass", "map")


def test_where_a_login_leads_back_to_is_no_page_number():
    state = state_of("https://a.example/login?next=/members/&p=2")
    assert (state["page"], state["filters"]) == ("2", {"next": "/members/"})


def test_filters_that_come_again_are_lists_and_fragments_count():
    assert state_of("https://a.example/?c=1&c=2")["filters"] == {"c": ["1", "2"]}
    assert state_of("https://a.example/#/search?q=x&page=3")["page"] == "3"


def test_what_the_browser_reads_off_the_page_goes_before_the_url():
    seen = {
        "url": "https://a.example/list?page=1",
        "fields": [
            {"label": "Year", "type": "select", "name": "year", "value": ["2012"]},
            {"label": "Rain", "type": "checkbox", "name": "kind", "value": "rain", "checked": True},
            {"label": "Sun", "type": "checkbox", "name": "kind", "value": "sun", "checked": False},
            {"label": "Snow", "type": "checkbox", "name": "kind", "value": "snow", "checked": True},
        ],
        "tabs": ["Renewables"],
        "page": "4",
        "sort": ["Mass descending"],
    }
    state = state_of("https://a.example/other", seen)
    assert state["url"] == "https://a.example/list?page=1"
    assert state["fields"] == {"year": ["2012"], "kind": ["rain", "snow"]}
    assert state["filters"] == {"tabs": ["Renewables"]}
    assert (state["page"], state["sort"]) == ("4", "Mass descending")


def test_changes_name_the_member_and_both_values():
    before, after = state_of("https://a.example/?y=1&page=1"), state_of("https://a.example/?y=2&page=1")
    assert changes(before, after) == [
        {"name": "url", "from": "https://a.example/?y=1&page=1", "to": "https://a.example/?y=2&page=1"},
        {"name": "filters.y", "from": "1", "to": "2"},
    ]
    assert changes(after, after) == []


urls = st.builds(
    lambda pairs, fragment: "https://a.example/?" + "&".join(f"{k}={v}" for k, v in pairs) + fragment,
    st.lists(st.tuples(st.sampled_from(["year", "page", "sort", "q"]), st.sampled_from(["", "1", "2"]))),
    st.sampled_from(["", "#x", "#q=1"]),
)


@given(urls, urls)
def test_there_are_changes_exactly_where_states_differ(one, two):
    before, after = state_of(one), state_of(two)
    assert (changes(before, after) == []) == (before == after)
    assert changes(EMPTY, EMPTY) == []


def seen_in(*texts):
    return Seen(
        {"event": "tool_call", "n": i, "error": False, "output": {"text": t}} for i, t in enumerate(texts, 1)
    )


@pytest.mark.parametrize(
    ("value", "text", "at"),
    [
        ("3900", "mass 3900 g", 5),
        ("3900", "mass 3,900 g", 5),
        ("3,900", "mass 3900 g", 5),
        ("New  York", "in new\nyork, today", 3),
        ("Ｋｅｓｔｒｅｌ", "a kestrel", 2),
        ("a|b", "x a|b y", 2),
        ("0.5", "about 0.5.", 6),
        ("12", "312", None),
        ("12", "12.5", None),
        ("12", "1,012", None),
        ("12", "-12-", 1),
        ("", "anything", None),
        ("0012", "x 12 y", None),
        ("1" * 5000, "a 1", None),
        ("1" * 7, "1,111,111", 0),
        ("1234.5", "1,234.5", 0),
        ("cat", "category", None),
        ("北京", "他住在北京市", 3),
        ("3650", "体重3650克", 2),
        ("365", "体重3650克", None),
    ],
)
def test_a_value_is_seen_as_a_whole_word_only(value, text, at):
    places = seen_in(text).places(value)
    assert places == ([] if at is None else [{"event": 1, "at": at}])


@pytest.mark.parametrize(
    ("reference", "page", "seen"),
    [
        ("2020-01-31", "surveyed on 31 January 2020", True),
        ("2020-03-04", "surveyed on 04/03/2020", False),
        ("12.50", "12.5 m deep", True),
        ("61", "61.00 kr", True),
        ("61", "61.05 kr", False),
        ("**Alpha**", "lake Alpha", True),
    ],
)
def test_what_a_page_spells_otherwise_was_seen_too(tmp_path, reference, page, seen):
    options = {"rubric": {"columns": ["id", "v"], "row_key": ["id"]}}
    task = Task("t", "?", f"1|{reference}", "table", options=options)
    with TraceWriter(tmp_path / "t.jsonl") as trace:
        output = {"digest": "", "text": page}
        none = {"contract": None, "verdict": None, "captures": [], "error": False}
        trace.write("tool_call", tool="fetch", arguments={}, output=output, **none)
        conclude(trace, task, "1|x", "answered", None, Evaluator(), "s")
    cell = trace.events[1]["rows"][0][1]
    assert (cell["reference_seen"] != []) is seen


def test_failed_calls_show_nothing_and_the_earliest_places_come_first():
    seen = seen_in("no", "yes 7", "7", "7", "7")
    assert [p["event"] for p in seen.places("7")] == [2, 3, 4]
    failed = Seen([{"event": "tool_call", "n": 1, "error": True, "output": {"text": "7"}}])
    assert failed.places("7") == []


@given(st.text(max_size=40), st.text(max_size=10))
def test_a_place_points_at_the_text_itself(text, value):
    places = seen_in(text).places(value)
    for place in places:
        assert 0 <= place["at"] < len(text)
