"""The run file of SGI-Bench's guide."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.harness.scoring.sgi.run_file import load_run_file
from stillweb.snapshots.errors import DamagedInput

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
