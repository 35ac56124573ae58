"""A steps file is read strictly; the same way has one form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.browser.steps import (
    Flow,
    canonical,
    describe,
    load_flows,
    parse_flows,
    parse_steps,
    to_yaml,
)
from stillweb.snapshots.errors import UsageError

FILE = """
- select: {label: Year, option: 2019}
- fill: {placeholder: Search, value: mill}
- check: Only open
- uncheck: {role: checkbox, name: Archived}
- click: {role: button, name: Apply, exact: true}
- press: Enter
- wait: 2.5
- wait: {selector: "#done"}
- scroll
- next_page: {times: 2}
- goto: /other
"""


def test_canonical_form() -> None:
    assert parse_steps(FILE) == (
        {"select": {"label": "Year", "option": "2019"}},
        {"fill": {"placeholder": "Search", "value": "mill"}},
        {"check": {"label": "Only open"}},
        {"uncheck": {"role": "checkbox", "name": "Archived"}},
        {"click": {"role": "button", "name": "Apply", "exact": True}},
        {"press": {"key": "Enter"}},
        {"wait": {"time": 2.5}},
        {"wait": {"selector": "#done"}},
        {"scroll": {"to": "bottom"}},
        {"next_page": {}},
        {"next_page": {}},
        {"goto": {"url": "/other"}},
    )


def test_printed_steps_are_read_back() -> None:
    steps = parse_steps(FILE)
    assert parse_steps(to_yaml(steps)) == steps
    assert all(describe(step) for step in steps)


@given(st.lists(st.tuples(st.sampled_from(["label", "text", "css"]), st.text(min_size=1)), max_size=5))
def test_any_text_survives_the_file(targets: list[tuple[str, str]]) -> None:
    items = [{"click": {way: text}} for way, text in targets if text.strip()]
    steps = canonical(items)
    assert parse_steps(to_yaml(steps)) == steps


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- click: {text: A}\n- fill: {label: B}", "step 2 (line 2): fill needs a field 'value'"),
        ("- jump: 3", "step 1 (line 1): unknown action 'jump'"),
        ("- click: {text: A, label: B}", "names its element in two ways"),
        ("- click: {label: B, name: C}", "field 'name' goes with 'role' only"),
        ("- click: {}", "names no element"),
        ("- click: {text: A, colour: red}", "unknown field 'colour'"),
        (
            "- fill: {label: A, valeu: b}",
            "fill has unknown field 'valeu' (known: ",
        ),  # not that 'value' is missing
        ("- click: {txet: A}", "click has unknown field 'txet' (known: "),
        ("- click: {text: [1]}", "field 'text' must be text"),
        ("- select: {label: A}", "needs either 'option'"),
        ("- wait: {text: a, time: 1}", "exactly one of"),
        ("- wait: -1", "at least 0"),
        ("- wait: 100000", "at most 600"),
        ("- next_page: {times: 0}", "at least 1"),
        ("- next_page: {times: 1.5}", "whole number"),
        ("- scroll: sideways", "bottom, top or view"),
        ("- goto: 'javascript:alert(1)'", "neither http(s) nor relative"),
        ("- click: a\n  fill: b", "must be one action, but has 2"),
        ("- press: {key: A, nth: 2}", "needs an element"),
        ("- [1]", "must be one action"),
        ("a: b", "must be a list of steps"),
        ("- click: 'a\n- b", "not YAML"),
        (f"- click: 0x{'f' * 5000}", "not YAML: a number has too many digits"),
        ("- click: !!timestamp x", "not YAML: a value is not of the type"),
        ("[" * 9999, "nested too deeply"),
    ],
)
def test_errors_name_step_and_field(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_steps(text, "s.yaml")
    assert str(caught.value).startswith("s.yaml:")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flows() -> None:
    flows = parse_flows("- url: http://a/\n  steps:\n  - click: x\n- steps: []\n")
    assert flows == [Flow("http://a/", ({"click": {"text": "x"}},)), Flow(None, ())]
    assert parse_flows("- click: x") == [Flow(None, ({"click": {"text": "x"}},))]
    with pytest.raises(UsageError, match=r"flow 1: step 1 \(line 3\)"):
        parse_flows("- url: http://a/\n  steps:\n  - clack: x\n")
    with pytest.raises(UsageError, match="not an http"):
        parse_flows("- url: ftp://a/\n  steps: []\n")


def test_a_file_that_is_not_there(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=r"gone\.yaml: No such file"):
        load_flows(tmp_path / "gone.yaml")


def test_a_flow_may_have_a_page_alone_and_a_misspelt_field_is_named() -> None:
    page, walk = parse_flows("- url: http://a.test/\n- steps: [click: B]")
    assert (page, walk.url, len(walk.steps)) == (Flow("http://a.test/", ()), None, 1)
    with pytest.raises(UsageError, match=r"f: flow 1: unknown field 'step' \(known: url, steps\)"):
        parse_flows("- url: http://a.test/\n  step: [click: B]", "f")
