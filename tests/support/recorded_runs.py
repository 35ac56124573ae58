"""Script runs over real snapshots with the real tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task


def run_on(
    snapshot: Path | tuple[Path, ...],
    folder: Path,
    names: list[str],
    script: dict[str, Any],
    *,
    into: str = "run",
    **settings: Any,
) -> RunFiles:
    """A run of a script on tasks with these ids against a snapshot or several, in `folder/into`."""
    agent = folder / "agent.yaml"
    agent.write_text(yaml.safe_dump(script, allow_unicode=True), encoding="utf-8")
    layers = snapshot if isinstance(snapshot, tuple) else (snapshot,)
    ready = Settings(agent=str(agent), snapshots=tuple(map(str, layers)), **settings)
    files = start_run(folder / into, ready, [Task(name, "What does it say?", "nothing") for name in names])
    run_attempts(files.path, display=SilentDisplay())
    return files
