"""Traces: strict reading, and hashes that see what happened and not when."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.harness._parsing import problem
from stillweb.harness.compare.compare import read_outcomes
from stillweb.harness.curation.affected import affected_by_run
from stillweb.harness.curation.needs import needs_of_run, tasks_as_asked
from stillweb.harness.export.inspect_log import export_inspect
from stillweb.harness.export.openinference import export_openinference
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.scoring.judging import Evaluator
from stillweb.harness.task import Task
from stillweb.harness.trace import (
    TraceWriter,
    append_event,
    canonical,
    check_event,
    digest,
    hash_events,
    read_json,
    read_trace,
    replace_events,
)
from stillweb.harness.view.export import write_report
from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from stillweb.snapshots.operations.diff import Diff
from tests.support.room import room_for
from tests.support.runs import make_run

HEADER = {"attempt": 1, "session": "a/1", "snapshot": None, "agent": {}, "contracts": []}
HEADER["scoring"] = Evaluator().settings()
SCHEMA = json.loads((Path(__file__).parents[2] / "harness" / "trace.schema.json").read_text())


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def trace_path(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run"), ["wrong"]).trace_path("wrong", 1)


def test_every_line_of_a_real_trace_holds_against_the_schema_by_another_validator(trace_path):
    for line in lines(trace_path):
        jsonschema.validate(line, {**SCHEMA, "$ref": f"#/$defs/{line['event']}"})


def _spoil(line, member, value):
    changed = json.loads(json.dumps(line))
    if value is ...:
        changed.pop(member, None)
    else:
        changed[member] = value
    return changed


@pytest.mark.parametrize("value", [..., None, 7, -1, "x", [], {}, True, [1], {"x": 1}, 1.5])
def test_our_check_and_jsonschema_agree_on_every_spoilt_member(trace_path, value):
    for line in lines(trace_path):
        schema = {**SCHEMA, "$ref": f"#/$defs/{line['event']}"}
        schema.pop("oneOf")
        checker = jsonschema.Draft202012Validator(schema)
        for member in [*line, "unheard_of"]:
            changed = _spoil(line, member, value)
            ours = problem(changed, SCHEMA["$defs"][line["event"]], SCHEMA)
            assert (ours is None) == checker.is_valid(changed), (line["event"], member, value, ours)


def _write(path, changed):
    path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ls: ls[1].update(verdict=4), ":2: verdict: must be string or null, not int"),
        (lambda ls: ls[1].pop("tool"), ":2: member 'tool' is missing"),
        (lambda ls: ls[1].update(colour="red"), ":2: unknown member 'colour'"),
        (lambda ls: ls[0].update(version=2), ":1: version: must be 1, not 2"),
        (lambda ls: ls[2].update(n=9), ":3: n: must be 2, not 9"),
        (lambda ls: ls[1].update(event="thought"), ":2: event: 'thought' is not a kind of event"),
        (lambda ls: ls.pop(0), ":1: the header must be the first line"),
        (lambda ls: ls.pop(), "the trace ends without a score"),
        (lambda ls: ls.clear(), ":1: the trace is empty"),
        (lambda ls: ls[1]["captures"].append({"file": "a"}), ":2: captures[1]: member 'offset' is missing"),
    ],
)
def test_a_spoilt_trace_is_refused_with_its_line_and_member(trace_path, tmp_path, change, message):
    changed = lines(trace_path)
    change(changed)
    with pytest.raises(DamagedInput) as error:
        read_trace(_write(tmp_path / "t.jsonl", changed))
    assert message in str(error.value)


def test_a_line_that_is_not_json_is_named(trace_path, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(trace_path.read_bytes().replace(b'{"event":"state"', b'{"event":state"'))
    with pytest.raises(DamagedInput, match=r"t\.jsonl:3: not JSON"):
        read_trace(path)


@pytest.mark.parametrize("odd", ["NaN", "-Infinity", "1e999", "9" * 400, "[" * 100_000, '{"a": 1, "a": 2}'])
def test_a_number_that_no_hash_can_hold_is_no_json(trace_path, tmp_path, odd):
    path = tmp_path / "t.jsonl"
    score = trace_path.read_bytes().rsplit(b'"em":', 1)
    path.write_bytes(score[0] + b'"em":' + odd.encode() + score[1][3:])
    with pytest.raises(DamagedInput, match=r"t\.jsonl:\d+: not JSON: "):
        read_trace(path)


def test_a_review_never_grows_into_the_line_before_it(trace_path, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(trace_path.read_bytes().rstrip(b"\n"))  # as an editor may leave it
    append_event(path, "evidence", kind="note", text="later")
    assert read_trace(path).events[-1]["text"] == "later"


def test_the_hash_sees_no_clock_and_no_review_but_all_else(trace_path, tmp_path):
    before = read_trace(trace_path).hash
    changed = lines(trace_path)
    for line in changed:
        line["aside"] = {"started": 4, "seconds": 9}
    assert read_trace(_write(tmp_path / "t.jsonl", changed)).hash == before
    append_event(
        tmp_path / "t.jsonl",
        "review",
        reviewer="ada",
        **{"class": "drift"},
        decisive_event=1,
        cause="c",
        evidence="e",
        nearest_class="self-rewriting",
        why_not="w",
    )
    assert read_trace(tmp_path / "t.jsonl").hash == before
    for i, line in enumerate(lines(trace_path)):
        for member in line:
            if member in ("aside", "event", "n"):
                continue
            again = lines(trace_path)
            again[i][member] = "something else"
            assert hash_events(again) != before, (i, member)


def test_a_writer_that_is_not_finished_leaves_a_part_only(tmp_path):
    with TraceWriter(tmp_path / "t.jsonl") as trace:
        trace.header(**HEADER, task=Task("a", "?").to_json())
        trace.write("evidence", kind="note", text="half way")
    assert not (tmp_path / "t.jsonl").exists()
    assert "half way" in (tmp_path / "t.jsonl.part").read_text()


def test_a_line_that_finds_no_room_is_not_there_and_no_cut_trace_is_finished(trace_path, tmp_path):
    trace = read_trace(trace_path)
    header = {
        name: value for name, value in trace.header.items() if name not in ("event", "schema", "version")
    }
    size = len((json.dumps(trace.header, ensure_ascii=False, separators=(",", ":")) + "\n").encode())
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        writer.header(**header)
        with room_for(size + 10), pytest.raises(MissingCapability, match=r"t\.jsonl\.part"):
            writer.write("answer", text="7", end="answered")
        assert writer.part.stat().st_size == size
        assert writer.write("answer", text="7", end="answered") == 1
    whole = Path(shutil.copy(trace_path, tmp_path / "whole.jsonl"))
    with room_for(whole.stat().st_size + 10), pytest.raises(MissingCapability, match=r"whole\.jsonl"):
        append_event(whole, "evidence", kind="note", text="later")
    assert whole.read_bytes() == trace_path.read_bytes()


def test_an_event_that_breaks_the_schema_is_not_appended(trace_path, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(trace_path.read_bytes())
    with pytest.raises(DamagedInput, match="class: must be one of"):
        append_event(
            path,
            "review",
            reviewer="ada",
            **{"class": "laziness"},
            decisive_event=1,
            cause="",
            evidence="",
            nearest_class="drift",
            why_not="",
        )
    assert path.read_bytes() == trace_path.read_bytes()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=40)
@given(json_values)
def test_canonical_json_reads_back_and_forgets_the_order_of_members(value):
    assert json.loads(canonical(value)) == value
    if isinstance(value, dict):
        assert digest(dict(reversed(value.items()))) == digest(value)


def test_what_nobody_could_read_is_not_written(tmp_path):
    with TraceWriter(tmp_path / "t.jsonl") as trace:
        for value, why in (
            (7, "text: must be string, not int"),
            (object(), "text: must be string, not object"),
        ):
            with pytest.raises(UsageError, match=why):
                trace.write("evidence", kind="note", text=value)
        with pytest.raises(UsageError, match="it is not JSON"):
            trace.write("evidence", kind="page", expression="x", value=float("nan"))
        assert trace.write("evidence", kind="note", text="sound") == 1
    assert [line["text"] for line in lines(trace.part)] == ["sound"]


def test_lone_surrogates_are_written_and_hashed(tmp_path):
    assert canonical("\ud800") == b'"\\ud800"'
    with TraceWriter(tmp_path / "t.jsonl") as trace:
        trace.header(**HEADER, task=Task("\ud800", "?").to_json())
    assert read_json((tmp_path / "t.jsonl.part").read_bytes().splitlines()[0])["task"]["id"] == "\ud800"


def test_an_event_that_is_no_object_is_named():
    assert check_event([1]) == "must be a JSON object, not list"
    assert "not a kind of event" in (check_event({"event": "places"}) or "")


# As the agent `openai` writes it where the arguments that a model wrote are no JSON.
UNREADABLE: dict[str, Any] = {
    "event": "tool_call",
    "n": 1,
    "id": "c1",
    "tool": "google_search",
    "contract": None,
    "arguments": "{not json",
    "verdict": None,
    "captures": [],
    "output": {"digest": "", "text": "Error: not JSON"},
    "error": True,
}
# As an agent of one's own may: what an endpoint says of cached tokens is no must.
PLAIN: dict[str, Any] = {
    "event": "model",
    "n": 2,
    "purpose": "agent",
    "api": "other",
    "model": "m",
    "request": {"digest": "", "new": []},
    "reply": {"text": "x", "tool_calls": []},
    "usage": {"input": 2, "output": 3},
}
# As tools of one's own may, and a person who writes the event by hand.
OWN: list[dict[str, Any]] = [
    {**UNREADABLE, "arguments": {}, "nearest": ["https://a.test/", 5], "meta": {"missed": 3}},
    {"event": "evidence", "kind": "page"},
]
REVIEW: dict[str, Any] = {
    "event": "review",
    "reviewer": "ada",
    "class": "drift",
    "decisive_event": 1,
    "nearest_class": "self-rewriting",
    **dict.fromkeys(("cause", "evidence", "why_not"), "x"),
}


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    made = make_run(tmp_path, ["right"])
    trace = read_trace(made.trace_path("right", 1))
    events = [*trace.events[:-2], UNREADABLE, PLAIN, *OWN, *trace.events[-2:], REVIEW]
    numbered = [{**event, "n": n} for n, event in enumerate(events, 1)]
    assert not any(map(check_event, numbered))
    replace_events(trace.path, [trace.header, *numbered])
    return made


def test_every_reader_reads_a_call_without_what_it_may_lack(files: RunFiles, tmp_path: Path) -> None:
    snapshot = read_trace(files.trace_path("right", 1)).header["snapshot"]
    assert "google_search" in write_report(files.path).read_text()
    assert '"stringValue": "google_search"' in export_openinference(files.path, tmp_path / "o").read_text()
    assert '"total_tokens": 5' in export_inspect(files.path, tmp_path / "i").read_text()
    assert len(read_outcomes(files.path)) == 1
    assert score_run(files.path) == []
    assert needs_of_run(files.path, snapshot).captures
    assert "ada" in write_report(files.path).read_text()
    (asked,) = tasks_as_asked(files.path)
    assert asked.meta["searches"] == []
    assert affected_by_run(files.path, Diff(snapshot, "two")) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scoring": ...}, "member 'scoring' is missing"),
        ({"scoring": {}}, "scoring: member 'mode' is missing"),
        ({"task": {}}, "task: member 'id' is missing"),
        ({"aside": {"started": None}}, "aside.started: must be number, not NoneType"),
    ],
)
def test_a_header_without_what_scoring_needs_is_told_by_its_line(
    files: RunFiles, change: dict[str, Any], says: str
) -> None:
    trace = read_trace(files.trace_path("right", 1))
    header = {name: value for name, value in {**trace.header, **change}.items() if value is not ...}
    replace_events(trace.path, [header, *trace.events])
    with pytest.raises(DamagedInput, match=rf"right\.1\.jsonl:1: {says}"):
        read_outcomes(files.path)
