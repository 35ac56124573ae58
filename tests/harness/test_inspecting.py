"""An inspect task on a frozen web: its tools, its scorer, its dataset. Wants the extra `inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.solver import generate, use_tools  # noqa: E402
from inspect_ai.tool import ToolDef  # noqa: E402

from stillweb.harness.inspecting import (  # noqa: E402
    KEPT,
    OF_SET,
    SESSION,
    TASK,
    frozen_tools,
    scored_as_here,
    task_samples,
)
from tests.harness.tools.frozen import BIRDS, REPORT, make_site  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspect") / "site"
    make_site(path).close()
    return path


def tasks(folder: Path) -> Path:
    path = folder / "tasks.jsonl"
    lines = [
        {"id": "one", "question": "How heavy is a Gentoo?", "reference": "5076", "scorer": "exact"},
        {"id": "two", "question": "And an Emperor?", "reference": "30000", "scorer": "exact"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


TABLE = {
    "question": "List place|count.",
    "columns": ["place", "count"],
    "row_key": ["place"],
    "table": [["Basin", "42"]],
}


def means(
    folder: Path, records: list[dict[str, object]], answers: list[str], **more: object
) -> dict[str, float]:
    """The means of an eval whose model gives these answers, in order."""
    path = folder / "set.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    said = [ModelOutput.from_content("mockllm/model", answer) for answer in answers]
    for output in said:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    log = inspect_ai.eval(
        inspect_ai.Task(dataset=task_samples(path), solver=generate(), scorer=scored_as_here()),
        model=get_model("mockllm/model", custom_outputs=said),
        display="none",
        log_dir=str(folder),
        max_samples=1,
        **more,
    )[0]
    assert log.status == "success", log.error
    assert log.results is not None
    return {one.name: one.metrics["mean"].value for one in log.results.scores}


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_set_of_texts_and_tables_has_results(tmp_path: Path, epochs: int) -> None:
    records = [{"id": "text", "question": "What?", "answer": "42"}, {"id": "table", **TABLE}]
    found = means(tmp_path, records, ["42", "Basin|42"] * epochs, epochs=epochs)
    assert (found["exact"], found["em"], found["row_f1"]) == (1, 1, 1)


def test_an_answer_that_can_not_be_read_counts_as_it_does_here(tmp_path: Path) -> None:
    records = [{"id": "one", **TABLE}, {"id": "two", **TABLE}]
    assert means(tmp_path, records, ["Basin|42", "I could not find such a table, sorry."])["em"] == 0.5


def test_a_scorer_of_ones_own_among_others_has_its_metrics_named(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    own = {"id": "own", "question": "?", "answer": "x", "scorer": "tests.harness.scoring.standins:percent"}
    path.write_text("".join(json.dumps(record) + "\n" for record in (own, {"id": "table", **TABLE})))
    assert task_samples(path)[0].metadata[OF_SET]["unknown"] == [own["scorer"]]


def call(name: str, **arguments: object) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", name, dict(arguments))


def test_a_task_is_solved_and_scored_on_a_snapshot(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def count(self: object, text: str) -> int:
        return len(text) // 4

    # its own way of counting asks the network for a vocabulary
    monkeypatch.setattr("inspect_ai.model.ModelAPI.count_text_tokens", count)
    said = [
        call("fetch", url=BIRDS, max_length=5000),
        call("read_pdf", sources=[{"url": REPORT, "pages": "1"}]),
        ModelOutput.from_content("mockllm/model", "5076"),
        call("fetch", url="https://no.test/"),
        ModelOutput.from_content("mockllm/model", "I can't tell"),
    ]
    task = inspect_ai.Task(
        dataset=task_samples(tasks(tmp_path)),
        solver=[use_tools(frozen_tools(site, contracts=["fetch", "pdf-reader"])), generate()],
        scorer=scored_as_here(),
    )
    (log,) = inspect_ai.eval(
        task, model=get_model("mockllm/model", custom_outputs=said), max_samples=1, display="none",
        log_dir=str(tmp_path / "logs"), score_display=False,
    )  # fmt: skip
    assert log.status == "success", log.error
    right, wrong = sorted(log.samples, key=lambda sample: sample.id)
    assert right.scores["scored_as_here"].value == {"exact": 1.0}
    assert wrong.scores["scored_as_here"].value == {"exact": 0.0}
    assert right.metadata[TASK]["reference"] == "5076"
    assert [sample.store[SESSION] for sample in (right, wrong)] == ["one/1", "two/1"]  # not by who came first
    page, pdf = right.store[KEPT]
    assert (page["tool"], page["verdict"], page["captures"][0]["url"]) == ("fetch", "exact", BIRDS)
    assert pdf["tool"] == "read_pdf"
    answers = [message for message in right.messages if message.role == "tool"]
    assert "Gentoo" in answers[0].text
    assert "[Page 1]\nPage one" in answers[1].text
    (missed,) = [message for message in wrong.messages if message.role == "tool"]
    assert "ConnectError" in missed.error.message
    assert wrong.store[KEPT][0]["verdict"] == "miss"


def test_the_model_is_told_the_contracts_words(site: Path) -> None:
    (fetch,) = (ToolDef(tool) for tool in frozen_tools(site))
    assert fetch.name == "fetch"
    assert fetch.description.startswith("Fetches a URL from the internet")
    assert list(fetch.parameters.properties) == ["url", "max_length", "start_index", "raw"]
    assert fetch.parameters.required == ["url"]
