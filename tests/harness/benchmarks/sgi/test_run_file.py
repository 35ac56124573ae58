"""The run file of SGI-Bench's guide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillweb.harness.benchmarks.sgi.run_file import load_run_file
from stillweb.harness.results.summary import summarise
from stillweb.snapshots.errors import DamagedInput, UsageError
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import KEY, Asked, Endpoint

RUN_FILE = """
models:
  - name: some-model
    api_model_name: vendor/some-model
    base_url: https://models.test/v1
    api_key: SOME_API_KEY
    temperature: 0.0
    timeout: 600
datasets:
  - dataset_id: sgibench-deepresearch
    splits: ["test"]
run:
  output_dir: ./results
  concurrency: 8
  demo_mode: true
  demo_limit: 10
"""


def test_the_run_file_of_the_guide(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    run = load_run_file(path)
    assert (run.models[0].api_key, run.datasets[0].splits, run.limit) == ("SOME_API_KEY", ("test",), 10)
    path.write_text(RUN_FILE.replace("demo_mode: true", "demo_mode: false"))
    assert load_run_file(path).limit is None
    path.write_text(RUN_FILE.replace("    temperature: 0.0\n", ""))
    assert load_run_file(path).models[0].temperature == 0


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"models: \xff")
    with pytest.raises(DamagedInput, match=r"run\.yaml: not YAML"):
        load_run_file(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("models:", "modells:", "modells: unknown"),
        ("    base_url: https://models.test/v1\n", "", r"models\[0\].base_url: is missing"),
        ("sgibench-deepresearch", "sgibench-other", r"datasets\[0\].dataset_id"),
        ("timeout: 600", "timeout: soon", r"models\[0\].timeout"),
        ("concurrency: 8", "concurrency: 0", "run.concurrency"),
        ("concurrency: 8", "concurrency: true", "run.concurrency"),
        ("api_key: SOME_API_KEY", "api_key: sk-abc", "must name a variable"),
        ("models:", "models: [", "not YAML"),
        ('splits: ["test"]', "splits: [1]", r"datasets\[0\].splits"),
        (RUN_FILE, "- models", "must be a mapping with models, datasets and run"),
        (RUN_FILE, "{models: 3}", "models: must be a list with at least one entry"),
        (RUN_FILE, "{models: []}", "models: must be a list with at least one entry"),
        (RUN_FILE, "{models: [some-model]}", r"models\[0\]: must be a mapping"),
    ],
)
def test_broken_run_files_name_the_member(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE.replace(old, new, 1))
    with pytest.raises(DamagedInput, match=says):
        load_run_file(path)


def test_the_run_file_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each model on each set, asked as the authors ask, with the guide's temperature and the demo's limit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", KEY)
    monkeypatch.setenv("GRADER_API_KEY", KEY)
    folder = tmp_path / "data" / "sgibench"
    for name, record in (
        ("deep_research", {"idx": "d", "question": "How much?", "steps": ["one"], "answer": "1"}),
        ("wet_experiment", {"idx": "w", "question": "How?", "answer": 'a = <Load>(\n  x="1"\n)'}),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "test.jsonl").write_text(
            "".join(json.dumps(record | {"idx": f"{record['idx']}{n}"}) + "\n" for n in range(3))
        )

    def said(asked: Asked) -> str:
        if asked.body["model"] != "vendor/some-model":
            return '[{"judge": "correct"}]' if asked.body["model"] == "o4-mini" else "1"
        return (
            '<answer>a = <Load>(\n  x="1"\n)</answer>' if "How?" in asked.question else "<answer>1</answer>"
        )

    with Endpoint(said) as endpoint:
        monkeypatch.setenv("GRADER_BASE_URL", endpoint.url)
        text = RUN_FILE.replace("https://models.test/v1", endpoint.url).replace(
            "demo_limit: 10", "demo_limit: 2"
        )
        more = "  - dataset_id: sgibench-wetexperiment\nrun:"
        Path("run.yaml").write_text(text.replace("\nrun:", f"\n{more}", 1))
        code, printed = call(capsys, "run", "--file", "run.yaml")
        assert (code, printed.count("certificate ")) == (0, 2)
        asked = [one for one in endpoint.requests if one["model"] == "vendor/some-model"]
        count = len(endpoint.requests)
        assert call(capsys, "run", "--file", "run.yaml")[0] == 0  # goes on, and has nothing to do
        assert len(endpoint.requests) == count
    assert len(asked) == 4
    assert {one["temperature"] for one in asked} == {0.0}
    assert [one["role"] for one in asked[0]["messages"]] == ["system", "user"]
    assert asked[0]["messages"][0]["content"] == "You are a helpful assistant."
    assert asked[0]["messages"][1]["content"].startswith("How much?\nYou can reason step by step")
    for name, metric in (("deepresearch", "em"), ("wetexperiment", "final")):
        summary = summarise(tmp_path / "results" / "some-model" / f"sgibench-{name}-test" / "run")
        assert (summary.owed, summary.means[metric].value) == (2, 1.0)


def test_a_set_that_is_not_in_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    with pytest.raises(UsageError, match=r"deep_research/test\.jsonl: there is no such set"):
        list(load_run_file(path).runs(tmp_path))
    folder, agent, source, split = next(load_run_file(path).runs())
    assert (source, split) == ("hub:InternScience/SGI-DeepResearch", "test")
    assert (folder.parts[-2:], agent["key_variable"]) == (
        ("some-model", "sgibench-deepresearch-test"),
        "SOME_API_KEY",
    )
