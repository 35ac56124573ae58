"""The documents say what the code does."""

import json
import re
from dataclasses import fields
from pathlib import Path

import yaml

from stillweb.harness.pytest_plugin import _MEMBERS
from stillweb.harness.results.certificate import make_certificate
from stillweb.harness.scoring.judging import Evaluator, rescore
from stillweb.harness.testing.shared_snapshots import MODES
from stillweb.harness.trace import _schema, read_trace
from tests.support.runs import make_run

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_trace_reads_scores_and_hashes_as_the_document_says(tmp_path):
    text = (DOCS / "trace.md").read_text()
    example = re.search(r"```jsonl\n(.*?)```", text, re.DOTALL)[1]
    path = tmp_path / "example.jsonl"
    path.write_text(example)
    trace = read_trace(path)
    assert f"`{trace.hash}`" in text
    assert rescore(trace, Evaluator()) == [trace.header, *trace.events]
    assert trace.last("score")["metrics"] == {"exact": 1.0}


def test_every_event_and_every_end_is_described():
    text = (DOCS / "trace.md").read_text()
    described = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert described == set(_schema()["$defs"]) - {"places"}
    for end in _schema()["$defs"]["answer"]["properties"]["end"]["enum"]:
        assert f"`{end}`" in text


def test_every_member_of_a_certificate_is_described(tmp_path):
    certificate = make_certificate(make_run(tmp_path, ["right"]).path)
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "certificate.md").read_text(), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert described == set(certificate)
    json.dumps(certificate)


def test_every_mode_and_fixture_of_the_plugin_is_described():
    import stillweb.harness.pytest_plugin as plugin

    text = (DOCS / "pytest.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(MODES) | {
        name for name in dir(plugin) if name.startswith("stillweb")
    }
    for member in _MEMBERS - {"upstream_ca"}:
        assert f"{member}=" in text or f"`{member}`" in text


def test_every_member_of_a_program_s_file_is_described():
    from stillweb.harness.agents.command import CommandAgent

    page = (DOCS / "runs.md").read_text()
    members = next(
        found for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if (found := yaml.safe_load(block))["agent"] == "command"
    )  # fmt: skip
    agent = CommandAgent.from_options({n: m for n, m in members.items() if n != "agent"}, "runs.md")
    assert set(members) == {"agent", *(field.name for field in fields(agent))} - {"name"}


def test_the_script_of_the_page_is_played_and_every_filter_is_named(tmp_path):
    from stillweb.harness.agents.script import _FILTERS

    page = (DOCS / "runs.md").read_text()
    script = next(
        found for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if (found := yaml.safe_load(block))["agent"] == "script"
    )  # fmt: skip
    files = make_run(tmp_path, ["birds_001", "other"], script=script)
    answers = [
        read_trace(files.trace_path(name, 1)).last("answer")["text"] for name in ("birds_001", "other")
    ]
    assert answers == ["7|3,900\n9|3700", "NONE"]
    table = page.partition("| filter |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)", table)) == set(_FILTERS)


def test_every_member_of_a_model_s_file_and_every_option_of_a_run_that_limits_is_described():
    from stillweb.harness.agents.openai import _TYPES, OpenAIAgent
    from stillweb.harness.commands.run import command
    from stillweb.harness.commands.score import command as scoring

    page = (DOCS / "runs.md").read_text()
    block = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1]
    members = yaml.safe_load(block)
    assert set(members) == {"agent", *_TYPES}
    OpenAIAgent.from_options({name: value for name, value in members.items() if name != "agent"}, "runs.md")
    options = {word for option in command.params for word in option.opts if word.startswith("--")}
    again = {word for option in scoring.params for word in option.opts}
    assert set(re.findall(r"`(--[a-z-]+)", page)) <= options | again
    assert {"--max-steps", "--max-calls", "--max-tokens", "--max-cost", "--timeout", "--prices"} <= options
