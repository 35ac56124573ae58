"""The examples of docs/views.md are read as it says."""

import re
from pathlib import Path

from stillweb.proxy.browser.steps import ACTIONS, parse_flows, parse_steps

TEXT = (Path(__file__).parents[2] / "docs/views.md").read_text(encoding="utf-8")


def test_the_example_is_a_steps_file() -> None:
    example, _ = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    flows = parse_flows(example)
    assert [len(flow.steps) for flow in flows] == [6, 5]
    assert flows[1].steps[2] == {"wait": {"text": "results"}}


def test_the_table_names_every_action_and_its_short_form() -> None:
    table = TEXT.partition("| step |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in named for name in re.findall(r"`(\w+)`", cell)} == set(ACTIONS)
    for row in table.splitlines()[2:]:
        for short in re.findall(r"`([^`]+)`", row.split("|")[3]):
            assert parse_steps(f"- {short}")
