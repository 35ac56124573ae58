"""Run file of SGI-Bench's evaluation guide: models, data sets, and run options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillweb.snapshots import yaml_text
from stillweb.snapshots.errors import DamagedInput, UsageError

# dataset_id -> folder in the guide's data/sgibench, and name on the hub
DATASETS = {
    "sgibench-deepresearch": ("deep_research", "SGI-DeepResearch"),
    "sgibench-ideageneration": ("idea_generation", "SGI-IdeaGeneration"),
    "sgibench-dryexperiment": ("dry_experiment", "SGI-DryExperiment"),
    "sgibench-wetexperiment": ("wet_experiment", "SGI-WetExperiment"),
}
DATA = Path("data/sgibench")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """Model of the run file. `api_key` is the name of a variable, never a key."""

    name: str
    api_model_name: str
    base_url: str
    api_key: str
    temperature: float = 0.0
    timeout: float = 600.0


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    dataset_id: str
    splits: tuple[str, ...] = ("test",)


@dataclass(frozen=True, slots=True)
class RunFile:
    """Run file of SGI-Bench's guide. `limit` is None unless demo_mode is set."""

    models: tuple[ModelEntry, ...]
    datasets: tuple[DatasetEntry, ...]
    output_dir: str = "./results"
    concurrency: int = 8
    demo_mode: bool = False
    demo_limit: int = 10

    @property
    def limit(self) -> int | None:
        """Number of samples to run of each set, None for all."""
        return self.demo_limit if self.demo_mode else None

    def runs(self, data: Path | None = None) -> Iterator[tuple[Path, dict[str, Any], str, str | None]]:
        """Yield, for each model and split of a set: directory, agent file, task set, and split.

        The sets lie in `data`, else in data/sgibench if that is there, else on the hub. Raise UsageError if a
        split is not in the folder.
        """
        folder = data or (DATA if DATA.is_dir() else None)
        for model in self.models:
            agent = {
                "agent": "openai",
                "model": model.api_model_name,
                "base_url": model.base_url,
                "key_variable": model.api_key,
                "params": {"temperature": model.temperature},
                "timeout": model.timeout,
            }
            for dataset in self.datasets:
                name, on_hub = DATASETS[dataset.dataset_id]
                for split in dataset.splits:
                    out = Path(self.output_dir) / model.name / f"{dataset.dataset_id}-{split}"
                    if folder is None:
                        yield out, agent, f"hub:InternScience/{on_hub}", split
                        continue
                    file = folder / name / f"{split}.jsonl"
                    if not file.is_file():
                        raise UsageError(
                            f"{file}: there is no such set; name the folder of the sets with --data"
                        )
                    yield out, agent, str(file), None


def load_run_file(path: str | Path) -> RunFile:
    """Read and check a run file (YAML). Raise DamagedInput naming a missing, unknown or wrong member."""
    try:
        document = yaml_text.read(Path(path).read_text("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise DamagedInput(f"{path}: not YAML: {error}") from error
    except UsageError as error:
        raise DamagedInput(str(error)) from error
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
        if not re.fullmatch(r"[\w.-]*[\w-][\w.-]*", model.name):
            raise DamagedInput(
                f"{path}: model {model.name!r}: name must be letters, digits, '.', '_' and '-'"
            )
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
