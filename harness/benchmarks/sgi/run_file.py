"""Run file of SGI-Bench's evaluation guide: models, data sets, and run options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from stillweb.snapshots import yaml_text
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.shapes import convert

DatasetId = Literal[
    "sgibench-deepresearch", "sgibench-ideageneration", "sgibench-dryexperiment", "sgibench-wetexperiment"
]
# folder in the guide's data/sgibench, and name on the hub
DATASETS: dict[DatasetId, tuple[str, str]] = {
    "sgibench-deepresearch": ("deep_research", "SGI-DeepResearch"),
    "sgibench-ideageneration": ("idea_generation", "SGI-IdeaGeneration"),
    "sgibench-dryexperiment": ("dry_experiment", "SGI-DryExperiment"),
    "sgibench-wetexperiment": ("wet_experiment", "SGI-WetExperiment"),
}
DATA = Path("data/sgibench")
Several = Meta(min_length=1)


class ModelEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Model of the run file. `name` is that of a folder, `api_key` that of a variable, never a key."""

    name: Annotated[str, Meta(pattern=r"^[\w.-]*[\w-][\w.-]*\Z")]
    api_model_name: str
    base_url: str
    api_key: str
    temperature: float = 0.0
    timeout: float = 600.0


class DatasetEntry(Struct, frozen=True, forbid_unknown_fields=True):
    dataset_id: DatasetId
    splits: tuple[str, ...] = ("test",)


class RunOptions(Struct, frozen=True, forbid_unknown_fields=True):
    output_dir: str = "./results"
    concurrency: Annotated[int, Meta(ge=1)] = 8
    demo_mode: bool = False
    demo_limit: Annotated[int, Meta(ge=1)] = 10


class RunFile(Struct, frozen=True, forbid_unknown_fields=True):
    models: Annotated[tuple[ModelEntry, ...], Several]
    datasets: Annotated[tuple[DatasetEntry, ...], Several]
    run: RunOptions = field(default_factory=RunOptions)

    @property
    def limit(self) -> int | None:
        """Number of samples to run of each set: None, which is all, unless demo_mode is set."""
        return self.run.demo_limit if self.run.demo_mode else None

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
                    out = Path(self.run.output_dir) / model.name / f"{dataset.dataset_id}-{split}"
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
        found = convert(yaml_text.read(Path(path).read_text("utf-8-sig"), str(path)), RunFile)
    except UsageError as error:
        raise DamagedInput(str(error)) from error
    except ValueError as error:  # of UTF-8, too
        raise DamagedInput(f"{path}: {error}") from error
    for model in found.models:
        if any(mark in model.api_key for mark in "- .") or not model.api_key:
            raise DamagedInput(f"{path}: model {model.name!r}: api_key must name a variable, not hold a key")
    return found
