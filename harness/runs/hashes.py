"""Hashes of the code, evaluator, contracts and rubrics that a score depends on."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from stillweb.harness.scoring import find_scorer, is_packaged
from stillweb.harness.task import Task
from stillweb.harness.trace import digest
from stillweb.snapshots.errors import UsageError

_HARNESS = Path(__file__).parents[1]
_ROOT = _HARNESS.parent
_SOURCES = {".py", ".json", ".toml", ".js", ".cjs", ".txt", ".html", ".css", ".yaml"}


def _hash_files(root: Path, paths: Iterable[Path]) -> str:
    state = sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in paths):
        state.update(f"{name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return state.hexdigest()


def _sources(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.suffix in _SOURCES and "__pycache__" not in p.parts]


@cache
def evaluator_hash() -> str:
    """Return the SHA-256 over all code that turns an answer into a score."""
    folders = ("benchmarks", "scoring", "rubric", "sandbox")
    paths = [path for folder in folders for path in _sources(_HARNESS / folder)]
    return _hash_files(_HARNESS, [*paths, _HARNESS / "benchmark.py", _HARNESS / "task.py"])


def scoring_hashes(tasks: Iterable[Task]) -> dict[str, Any]:
    """Return the evaluator's hash and, per custom scorer, the SHA-256 of its file ("" without one)."""
    own = {task.scorer for task in tasks if not is_packaged(task.scorer)}
    return {"evaluator": evaluator_hash(), "scorers": {name: _scorer_hash(name) for name in sorted(own)}}


def _scorer_hash(name: str) -> str:
    try:
        return sha256(Path(inspect.getfile(find_scorer(name))).read_bytes()).hexdigest()
    except (UsageError, TypeError, OSError):
        return ""


@cache
def code_hash() -> str:
    """Return the SHA-256 over the source files of the three installed packages, without the demo."""
    paths = [p for package in ("snapshots", "proxy", "harness") for p in _sources(_ROOT / package)]
    return _hash_files(_ROOT, [p for p in paths if "demo" not in p.relative_to(_ROOT).parts])


def code_version() -> str:
    """Return the version of the installed distribution, or `unknown`."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("stillweb")
    except PackageNotFoundError:
        return "unknown"


def contracts_hash(specs: Iterable[Any]) -> str:
    """Return the SHA-256 over the tools as shown to a model: name, description, schema, contract."""
    members = [[spec.name, spec.description, spec.input_schema, spec.contract] for spec in specs]
    return digest(sorted(members, key=lambda tool: json.dumps(tool, sort_keys=True)))


def rubrics_hash(rubrics: Mapping[str, Any]) -> str:
    """Return the SHA-256 over compiled side-cars, keyed by task or base task."""
    return digest({name: as_json(rubric) for name, rubric in rubrics.items()})


def as_json(rubric: Any) -> Any:
    """Return a side-car, a Rubric or already JSON, as JSON."""
    return rubric.to_json() if hasattr(rubric, "to_json") else rubric
