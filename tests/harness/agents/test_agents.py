"""Agents: scripts and what they take out of texts, agents of one's own, and how each is named."""

import asyncio
import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.agents import load_agent
from stillweb.harness.agents import script as filters
from stillweb.harness.agents.attempt import Limits
from stillweb.harness.agents.retrieval import EMPTY, changes, state_of
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring.judging import Evaluator, conclude
from stillweb.harness.scoring.value_search import ToolOutputIndex
from stillweb.harness.task import Task
from stillweb.harness.trace import TraceWriter, read_trace
from stillweb.snapshots.errors import UsageError
from tests.support.runs import SHELF, bird_task, make_run, write_script

MARKDOWN = "words\n\n| id | name |\n|---|:--:|\n| 1 | a \\| b |\n| 2 |  |\n\nmore\n\nx | y\n--|--\n3 | 4\n"
HTML = "<html><table><tr><th>id<th>name</tr><tr><td> 1 </td><td><a>a</a> b</td></tr></table></html>"
ARIA = """\
- generic [ref=e1]:
  - button "Apply" [ref=e2]
  - table [ref=e3]:
    - rowgroup [ref=e4]:
      - row "id name" [ref=e5]:
        - columnheader "id" [ref=e6]
        - columnheader "name" [ref=e7]
    - rowgroup [ref=e8]:
      - row "1 Ada" [ref=e9]:
        - cell "1" [ref=e10]
        - cell [ref=e11]:
          - link "Ada" [ref=e12] [cursor=pointer]:
            - /url: /ada
      - row "2 plain" [ref=e13]:
        - cell "2" [ref=e14]
        - cell [ref=e15]: plain
"""


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        (MARKDOWN, [[["id", "name"], ["1", "a | b"], ["2", ""]], [["x", "y"], ["3", "4"]]]),
        (HTML, [[["id", "name"], ["1", "a b"]]]),
        (ARIA, [[["id", "name"], ["1", "Ada"], ["2", "plain"]]]),
        ("no table", []),
    ],
)
def test_tables_are_taken_from_markdown_html_and_browser_snapshots(text, tables):
    assert filters.tables(text) == tables


def test_a_table_is_found_by_its_columns_or_place():
    assert filters.table(MARKDOWN, "Y")[1] == ["3", "4"]
    assert filters.table(MARKDOWN, index=1)[1] == ["3", "4"]
    assert filters.records(MARKDOWN, "id")[1] == {"id": "2", "name": ""}
    with pytest.raises(UsageError, match=r"no table has the columns mass; tables found: id \| name; x \| y"):
        filters.table(MARKDOWN, "mass")
    with pytest.raises(UsageError, match="there is no table 5: the text has 2"):
        filters.table(MARKDOWN, index=5)


def test_cells_lines_json_and_references_are_taken_out():
    assert filters.pick([{"a": "1", "B": "2"}], "b", "A") == [["2", "1"]]
    with pytest.raises(UsageError, match="no column 'c'; there are a"):
        filters.pick([{"a": "1"}], "c")
    assert filters.piped([["1", "2"], ["3", "4"]]) == "1|2\n3|4"
    assert filters.find("year: 2012.", r"year: (\d+)") == "2012"
    assert filters.find("year: 2012.", r"\d+") == "2012"
    assert filters.find_all("a1 b2", r"([a-z])(\d)") == [["a", "1"], ["b", "2"]]
    assert filters.from_json('Contents of x:\n{"a": [1]} and more') == {"a": [1]}
    assert filters.ref(ARIA, "button") == "e2"
    assert filters.ref(ARIA, "cell", 1) == "e11"
    assert filters.columns_of("2007   34  5071\n\n2008\t46\t5020") == [
        ["2007", "34", "5071"],
        ["2008", "46", "5020"],
    ]
    assert filters.words_of("a b\n\nc") == [["a", "b"], ["c"]]
    assert filters.csv_rows('a,"b,c"\n') == [["a", "b,c"]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: filters.find("x", "y"), "nothing matches 'y' in a text of 1 character: x$"),
        (lambda: filters.find(" ", "y"), "nothing matches 'y' in an empty text$"),
        (lambda: filters.find("a\n" * 200, "y"), "in a text of 400 characters: (a ){79}a…$"),
        (lambda: filters.find("x", "(x)|(y)", 2), r"the match has no group 2 of '\(x\)\|\(y\)'"),
        (lambda: filters.from_json("x"), "no JSON object or array in a text of 1 character: x$"),
        (lambda: filters.from_json("{x"), "holds no whole JSON value"),
        (lambda: filters.ref(ARIA, "slider"), r"no element 0 of the page matches 'slider' \(0 do\)"),
    ],
)
def test_what_is_not_there_is_named(call, message):
    with pytest.raises(UsageError, match=message):
        call()


def test_a_row_of_dashes_is_a_row():
    """Dashes stand for what is missing; only below the head are they a rule."""
    text = "| a | b |\n|---|---|\n| - | - |\n| 1 | 2 |\n| --- | --- |\n\n|---|---|\n| x | y |\n"
    assert filters.tables(text) == [[["a", "b"], ["-", "-"], ["1", "2"], ["---", "---"]], [["x", "y"]]]


def played(folder, script, **settings):
    files = make_run(folder, ["t"], script=script, **settings)
    return read_trace(files.trace_path("t", 1))


def test_a_script_fills_arguments_and_skips_steps(tmp_path):
    steps = [
        {"set": {"pages": [1, 2], "empty": []}},
        {"when": "{{ pages | length > 5 }}", "call": "fetch", "with": {"url": "never"}},
        {
            "call": "fetch",
            "with": {"url": "https://shelf.example/list?year=2012&page={{ pages[1] }}"},
            "as": "page",
        },
    ]
    trace = played(
        tmp_path,
        {"default": {"steps": steps, "answer": "{{ task.id }} {{ (page | table)[1][0] }} {{ attempt }}"}},
    )
    assert [c["arguments"] for c in trace.of("tool_call")] == [
        {"url": "https://shelf.example/list?year=2012&page=2"}
    ]
    assert trace.last("answer")["text"] == "t 11 1"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            {"steps": [{"set": {"a": "{{ nothing_here }}"}}], "answer": "x"},
            "step 1: 'nothing_here' is undefined",
        ),
        ({"steps": [], "answer": "{{ task.id | table }}"}, "answer: no table has the columns"),
        (
            {"steps": [{"call": "fetch", "with": {"url": "https://no.example/"}}]},
            "step 1: fetch failed: Failed to fetch",
        ),
        ({"steps": [{"set": {"a": "{{ 'x' | find('[') }}"}}]}, "step 1: unterminated character set"),
        ({"steps": [{"set": {"a": "{{ 1 / 0 }}"}}]}, "step 1: division by zero"),
        ({"steps": [{"set": {"a": "{{ ''.__class__.__mro__ }}"}}]}, "step 1: .*unsafe"),
    ],
)
def test_a_script_that_fails_says_at_which_step(tmp_path, script, message):
    answer = played(tmp_path, {"default": script}).last("answer")
    assert answer["end"] == "error"
    assert re.search(message, answer["error"])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"taks": {}}, "unknown field taks"),
        ({"tasks": ["x"]}, r"- at \$\.tasks"),
        ({"tasks": {"a": []}}, r"tasks\.a: Expected object, got array"),
        ({"tasks": {"a": {"stepz": []}}}, "unknown field stepz"),
        (
            {"tasks": {"a": {"steps": ["x"]}}},
            r"tasks\.a: Expected object, got str - at \$\.steps\[0\]",
        ),
        ({"tasks": {"a": {"steps": [{"cal": "x"}]}}}, r"unknown field cal - at .*\.steps\[0\]"),
        ({"tasks": {"a": {"steps": [{"with": {}}]}}}, r"needs call or set - at .*\.steps\[0\]"),
        (
            {"tasks": {"a": {"steps": [{"call": 5}]}}},
            r"Expected str, got (int|null) - at .*\.steps\[0\]\.call",
        ),
        (
            {"tasks": {"a": {"steps": [{"call": None}]}}},
            r"Expected str, got (int|null) - at .*\.steps\[0\]\.call",
        ),
        (
            {"tasks": {"a": {"steps": [{"call": "x", "with": ["y"]}]}}},
            r"Expected object \| null, got array - at .*\.steps\[0\]\.with",
        ),
        (
            {"tasks": {"a": {"steps": [{"call": "x", "with": {"day": date(2020, 1, 2)}}]}}},
            r"agent\.yaml: tasks\.a\.steps\[1\]\.with\.day: is read as a date; put it in quotes",
        ),
        ({"tasks": {"a": {"steps": [{"call": "x", "with": {True: 1}}]}}}, "the name True is read as a bool"),
        (
            {"tasks": {"a": {"steps": [{"call": "x", "with": {"n": float("inf")}}]}}},
            "inf is not a number of JSON",
        ),
        ({"tasks": {7: {"steps": [{"call": "x", "with": {1: 2, "b": 3}}]}}}, None),
        ([1], "must hold a mapping, not list"),
    ],
)
def test_a_script_that_is_wrong_is_named_with_its_place(tmp_path, script, message):
    path = write_script(tmp_path, script)
    if message is None:
        assert load_agent(path).identity()
        return
    with pytest.raises(UsageError, match=message):
        load_agent(path)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nonsense", "no agent 'nonsense': say script:FILE"),
        ("no_such_module:Agent", "there is no module 'no_such_module'"),
        ("stillweb.harness.task:Agent", "the module has no 'Agent'; its own names are .*Problem"),
        ("stillweb.harness.task:Problem.x", "the module has no"),
        ("command:", "no agent"),
        ("scrip:agent.yaml", r"no agent 'scrip:agent\.yaml': say script:FILE"),
        ("json:dumps", "agent json:dumps: can't be made: dumps"),
        ("math:pi", "agent math:pi: is not an agent and makes none, but float"),
        ("command:'python agent.py", "command: No closing quotation"),
    ],
)
def test_an_agent_that_cannot_be_loaded_is_named(spec, message):
    with pytest.raises(UsageError, match=message):
        load_agent(spec)


def test_a_program_may_be_given_a_yaml_file():
    assert load_agent("command:python agent.py settings.yaml").command[-1] == "settings.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent: openai\n", "missing required field model"),
        ("agent: openai\nmodel: m\napi: telepathy\n", r"- at \$\.api"),
        ("agent: openai\nmodel: 3\n", r"Expected str, got int - at \$\.model"),
        ("agent: openai\nmodel: m\ntimeout: soon\n", r"Expected float, got str - at \$\.timeout"),
        ("agent: openai\nmodel: m\ntries: true\n", r"Expected int, got bool - at \$\.tries"),
        ("agent: openai\nmodel: m\nlast_call: 3\n", r"Expected str, got int - at \$\.last_call"),
        ("agent: command\ncommand: x\nenv: [A]\n", r"- at \$\.env"),
        ("agent: command\ncommand: x\nenv: {A: [b]}\n", r"got array - at \$\.env"),
        ("agent: openai\nmodel: m\ntemperature: 0\n", "unknown member 'temperature'"),
        ("agent: command\n", "missing required field command"),
        ("agent: command\ncommand: x\nstdin: voice\n", r"none of json, text - at \$\.stdin"),
        ("agent: command\ncommand: x\ncolour: red\n", "unknown field colour"),
        ("agent: command\ncommand: x\npass_env: {A: b}\n", r"got object - at \$\.pass_env"),
        ("agent: command\ncommand: x\ndirect: [1]\n", r"Expected str, got int - at \$\.direct"),
        (
            "agent: command\ncommand: x\ndirect: [https://a.test/]\n",
            "direct: 'https://a.test/' is not a host",
        ),
        ("agent: 7\n", "agent: must be script, openai, anthropic, gemini, command or module:object"),
        ("agent: [\n", r"agent\.yaml:2: not YAML"),
    ],
)
def test_an_agent_file_that_is_wrong_names_the_member(tmp_path, text, message):
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_agent(str(path))


class AtOnce:
    """An agent of one's own that makes ten calls at a time."""

    name = "at-once"

    def identity(self):
        return {"kind": "at-once"}

    async def run(self, attempt):
        calls = (attempt.call("fetch", {"url": "https://shelf.example/"}) for _ in range(10))
        await asyncio.gather(*calls, return_exceptions=True)
        return "x"


def test_calls_at_once_keep_the_limit_too(tmp_path):
    settings = Settings(
        agent="tests.harness.agents.test_agents:AtOnce",
        contracts=(SHELF,),
        tool_options={"wait": 0.01},
        limits=Limits(calls=3),
    )
    files = start_run(tmp_path / "run", settings, [bird_task("one")])
    run_attempts(files.path, display=SilentDisplay())
    assert len(read_trace(files.trace_path("one", 1)).of("tool_call")) == 3


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
    return ToolOutputIndex(
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
    failed = ToolOutputIndex([{"event": "tool_call", "n": 1, "error": True, "output": {"text": "7"}}])
    assert failed.places("7") == []


@given(st.text(max_size=40), st.text(max_size=10))
def test_a_place_points_at_the_text_itself(text, value):
    places = seen_in(text).places(value)
    for place in places:
        assert 0 <= place["at"] < len(text)
