"""SGI-Bench's run file, and the environment and fixtures of its dry experiments (harness.ready asks for them)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.task import Task
from snapshots.errors import DamagedInput, MissingCapability, UsageError

# Number of the sample -> folder below data/ into which its fixture goes.
FIXTURES = {"0200": ".", "0206": "mnist_raw", "0236": "em_3d_user_study"}
DATASETS = {
    "sgibench-deepresearch": "deep-research",
    "sgibench-ideageneration": "idea-generation",
    "sgibench-dryexperiment": "dry-experiment",
    "sgibench-wetexperiment": "wet-experiment",
}


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model of the run file. `api_key` is the name of a variable, never a key."""

    name: str
    api_model_name: str
    base_url: str
    api_key: str
    temperature: float = 0.0
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """A data set of the run file."""

    dataset_id: str
    splits: tuple[str, ...] = ("test",)


@dataclass(frozen=True, slots=True)
class RunFile:
    """The run file of the guide: models, data sets, and how to run. `limit` is None unless demo_mode."""

    models: tuple[ModelEntry, ...]
    datasets: tuple[DatasetEntry, ...]
    output_dir: str = "./results"
    concurrency: int = 8
    demo_mode: bool = False
    demo_limit: int = 10
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        """How many samples of each set to run."""
        return self.demo_limit if self.demo_mode else None


def load_run_file(path: str | Path) -> RunFile:
    """Reads and checks a run file (YAML). DamagedInput names the member that is missing, unknown or wrong."""
    import yaml

    try:
        document = yaml.safe_load(Path(path).read_text("utf-8-sig"))
    except yaml.YAMLError as error:
        raise DamagedInput(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise DamagedInput(f"{path}: must be a mapping with models, datasets and run")
    _only(document, ("models", "datasets", "run"), str(path))
    models = [
        ModelEntry(
            **_checked(
                entry, f"{path}: models[{i}]", _MODEL, ("name", "api_model_name", "base_url", "api_key")
            )
        )
        for i, entry in enumerate(_list(document, "models", path))
    ]
    datasets = []
    for i, entry in enumerate(_list(document, "datasets", path)):
        where = f"{path}: datasets[{i}]"
        values = _checked(entry, where, _DATASET, ("dataset_id",))
        if values["dataset_id"] not in DATASETS:
            raise DamagedInput(
                f"{where}.dataset_id: {values['dataset_id']!r} is none of {', '.join(DATASETS)}"
            )
        if not all(isinstance(name, str) for name in values.get("splits", [])):
            raise DamagedInput(f"{where}.splits: must be a list of names")
        datasets.append(DatasetEntry(values["dataset_id"], tuple(values.get("splits", ("test",)))))
    run = _checked(document.get("run") or {}, f"{path}: run", _RUN, ())
    for name in ("concurrency", "demo_limit"):
        if run.get(name, 1) < 1:
            raise DamagedInput(f"{path}: run.{name}: must be at least 1")
    for model in models:
        if any(mark in model.api_key for mark in ("-", " ", ".")) or not model.api_key:
            raise DamagedInput(f"{path}: model {model.name!r}: api_key must name a variable, not hold a key")
    return RunFile(tuple(models), tuple(datasets), **run)


_Kinds = Mapping[str, type | tuple[type, ...]]
_MODEL: _Kinds = {
    "name": str,
    "api_model_name": str,
    "base_url": str,
    "api_key": str,
    "temperature": (int, float),
    "timeout": (int, float),
}
_DATASET: _Kinds = {"dataset_id": str, "splits": list}
_RUN: _Kinds = {"output_dir": str, "concurrency": int, "demo_mode": bool, "demo_limit": int}


def _list(document: Mapping[str, Any], name: str, path: str | Path) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list) or not value:
        raise DamagedInput(f"{path}: {name}: must be a list with at least one entry")
    return value


def _only(value: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    if unknown := [str(name) for name in value if name not in known]:
        raise DamagedInput(f"{where}.{unknown[0]}: unknown member")


def _checked(value: Any, where: str, kinds: _Kinds, required: Iterable[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DamagedInput(f"{where}: must be a mapping")
    _only(value, kinds, where)
    for name in required:
        if name not in value:
            raise DamagedInput(f"{where}.{name}: is missing")
    for name, member in value.items():
        kind = kinds[name]
        if not isinstance(member, kind) or (isinstance(member, bool) and kind is not bool):
            raise DamagedInput(f"{where}.{name}: must not be {type(member).__name__}")
    return dict(value)


def find_environment(name: str) -> Path:
    """The Python of a conda environment of that name, or of an environment (conda or virtual) in that folder."""
    folder = Path(name).expanduser()
    if "/" in name or folder.is_dir():
        return _python(folder, name)
    conda = shutil.which("conda") or shutil.which("mamba") or shutil.which("micromamba")
    if conda is None:
        raise MissingCapability(
            f"SGI_CONDA_ENV {name!r}: there is no conda; name the folder of a virtual environment instead"
        )
    listed = subprocess.run(
        [conda, "env", "list", "--json"], capture_output=True, text=True, timeout=60, check=False
    )
    try:
        folders = json.loads(listed.stdout)["envs"]
    except (ValueError, KeyError, TypeError) as error:
        raise MissingCapability(f"SGI_CONDA_ENV: `{conda} env list --json` says nothing readable") from error
    for entry in folders:
        if Path(entry).name == name:
            return _python(Path(entry), name)
    raise MissingCapability(f"no conda environment {name!r}: conda create -n {name} python=3.10")


def _python(folder: Path, name: str) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        raise MissingCapability(f"SGI_CONDA_ENV {name!r}: no {python}")
    return python.absolute()  # not resolve(): the link's own place is what makes it that environment


def environment_of(python: Path) -> dict[str, str]:
    """What activating the environment would set: its programs come first."""
    prefix = python.parent.parent
    return {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(prefix)}


def execution_seconds(text: str) -> float:
    """The limit SGI_EXECUTION_TIMEOUT in seconds; UsageError where it is none."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"SGI_EXECUTION_TIMEOUT {text!r} is not a number of seconds")
    return seconds


def check_fixtures(tasks: Iterable[Task], env: Mapping[str, str]) -> None:
    """MissingCapability for the first dry experiment whose data files are not where SGI_DRY_EXPERIMENT_DATA_DIR says."""
    folder = env.get("SGI_DRY_EXPERIMENT_DATA_DIR", "")
    for number in sorted({task.id[-4:] for task in tasks} & set(FIXTURES)):
        place = Path(folder or "/nonexistent") / f"SGI_DryExperiment_{number}"
        if not place.is_dir() or not any(place.iterdir()):
            raise MissingCapability(
                f"task {number} needs fixtures in {place if folder else 'SGI_DRY_EXPERIMENT_DATA_DIR (not set)'}"
            )
