"""Cost of the harness in a run: seconds per tool call, and memory over many scripted attempts.

    python -m benchmarks.runs [ATTEMPTS]

The tools answer from a dictionary, so that all time measured is the harness's. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from stillweb.harness.agents.attempt import Attempt, Limits
from stillweb.harness.results.summary import score_run, summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.engine import LocalEngine
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.tools.contract import ToolResult, ToolSpec
from stillweb.harness.trace import TraceWriter

TEXT = (
    "Contents of https://shelf.example/:\n" + "| id | mass |\n|---|---|\n" + "| 7 | 3900 |\n" * 350
)  # 5 kB, as fetch gives


SPEC = ToolSpec("fetch", "Gives a page.", {"type": "object"}, "shelf@1")


class Shelf:
    """Tools and session in one."""

    def __init__(self, snapshot: Any = None) -> None:
        self.result = ToolResult(
            [{"type": "text", "text": TEXT}], False, {"verdict": "exact", "captures": []}
        )

    def session(self, name: str) -> Shelf:
        return self

    def list(self) -> list[ToolSpec]:
        return [SPEC]

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return self.result

    async def close(self) -> None:
        return None


async def per_call(folder: Path, count: int = 2000) -> list[float]:
    """Microseconds that a traced call takes over the tool itself, sorted."""
    times: list[float] = []
    with TraceWriter(folder / "calls.jsonl") as trace:
        shelf = Shelf()
        attempt = Attempt(Task("t", "q"), 1, "t/1", shelf, trace, Limits(calls=None))
        for i in range(count):
            begin = time.perf_counter()
            await attempt.call("fetch", {"url": f"https://shelf.example/?page={i}"})
            times.append((time.perf_counter() - begin) * 1e6)
    return sorted(times)


def megabytes() -> float:
    """Memory of this process now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Watching(SilentDisplay):
    """Notes memory every thousand attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: list[float] = []

    def finished(self, outcome: Any) -> None:
        super().finished(outcome)
        if self.totals.done % 1000 == 0:
            self.memory.append(round(megabytes(), 1))


def main(attempts: int) -> dict[str, Any]:
    """Measures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times = asyncio.run(per_call(folder))
        steps = [{"call": "fetch", "with": {"url": "https://shelf.example/"}, "as": "page"}]
        script = {"default": {"steps": steps, "answer": "{{ (page | table)[1] | join('|') }}"}}
        (folder / "agent.yaml").write_text(yaml.safe_dump(script))
        rubric = {"columns": ["id", "mass"], "row_key": ["id"]}
        tasks = [Task(f"t{i}", "Which?", "7|3900", "table", options={"rubric": rubric}) for i in range(100)]
        settings = Settings(
            agent=str(folder / "agent.yaml"),
            contracts=("benchmarks.runs:Shelf",),
            epochs=max(1, attempts // 100),
        )
        start_run(folder / "run", settings, tasks)
        watching = Watching()
        begin = time.perf_counter()
        run_attempts(folder / "run", engine=LocalEngine(8), display=watching)
        running = time.perf_counter() - begin
        begin = time.perf_counter()
        different = score_run(folder / "run")
        scoring = time.perf_counter() - begin
        summary = summarise(folder / "run")
    return {
        "call_p50_us": round(statistics.median(times), 1),
        "call_p99_us": round(times[int(len(times) * 0.99)], 1),
        "attempts": summary.owed,
        "attempts_per_second": round(summary.owed / running, 1),
        "memory_mb_each_1000": watching.memory,
        "rescored_per_second": round(summary.owed / scoring, 1),
        "rescored_differently": len(different),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]) if sys.argv[1:] else 10_000), indent=1) + "\n")
