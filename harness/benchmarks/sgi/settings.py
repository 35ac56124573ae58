"""Environment and fixtures of SGI-Bench's dry experiments and their check before a run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from stillweb.harness.benchmarks.sgi.common import DEFAULTS
from stillweb.harness.sandbox.running import Limits, program_folder, run
from stillweb.harness.task import Task
from stillweb.snapshots.errors import MissingCapability, UsageError

# Number of the sample -> folder below data/ for its fixture.
FIXTURES = {"0200": ".", "0206": "mnist_raw", "0236": "em_3d_user_study"}


def find_environment(name: str) -> Path:
    """Return the Python of the conda environment `name`, or of the environment in that folder."""
    folder = Path(name).expanduser()
    if "/" in name or folder.is_dir():
        return _python(folder, name)
    conda = shutil.which("conda") or shutil.which("mamba") or shutil.which("micromamba")
    if conda is None:
        raise MissingCapability(
            f"SGI_CONDA_ENV {name!r}: there is no conda; name the folder of a virtual environment instead"
        )
    words = [conda, "env", "list", "--json"]
    try:
        listed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        folders = json.loads(listed.stdout)["envs"]
    except (ValueError, KeyError, TypeError, OSError, subprocess.TimeoutExpired) as error:
        raise MissingCapability(f"SGI_CONDA_ENV: `{conda} env list --json` says nothing readable") from error
    for entry in folders:
        if Path(entry).name == name:
            return _python(Path(entry), name)
    raise MissingCapability(f"no conda environment {name!r}: conda create -n {name} python=3.10")


def _python(folder: Path, name: str) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        raise MissingCapability(f"SGI_CONDA_ENV {name!r}: no {python}")
    return python.absolute()  # not resolve(): the path of the link is what selects the environment


def environment_of(python: Path) -> dict[str, str]:
    """Return the variables that activating the environment would set, with its programs first in PATH."""
    prefix = python.parent.parent
    return {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(prefix)}


def execution_seconds(text: str) -> float:
    """Return SGI_EXECUTION_TIMEOUT in seconds. Raise UsageError if it is not a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"SGI_EXECUTION_TIMEOUT {text!r} is not a number of seconds")
    return seconds


def execution_limits(seconds: float, env: Callable[[str], str]) -> Limits:
    """Return the limits of a test: the wall clock, and those that SGI_…_LIMIT variables name.

    Raise UsageError for a limit that is no whole number from 1 on.
    """

    def limit(name: str) -> int | None:
        text = env(name)
        if text and not (text.isascii() and text.isdecimal() and int(text)):
            raise UsageError(f"{name} {text!r} is no whole number from 1 on")
        return int(text) if text else None

    return Limits(
        seconds=seconds,
        memory=limit("SGI_MEMORY_LIMIT"),
        file_size=None,
        open_files=None,
        disk=limit("SGI_DISK_LIMIT"),
        processes=limit("SGI_PROCESS_LIMIT"),
    )


def check_fixtures(tasks: Iterable[Task], env: Mapping[str, str]) -> None:
    """Raise MissingCapability for the first dry experiment without its data files.

    They are expected in SGI_DRY_EXPERIMENT_DATA_DIR.
    """
    folder = env.get("SGI_DRY_EXPERIMENT_DATA_DIR", "")
    for number in sorted({task.id[-4:] for task in tasks} & set(FIXTURES)):
        place = Path(folder or "/nonexistent") / f"SGI_DryExperiment_{number}"
        if not place.is_dir() or not any(place.iterdir()):
            raise MissingCapability(
                f"task {number} needs fixtures in {place if folder else 'SGI_DRY_EXPERIMENT_DATA_DIR (not set)'}"
            )


def check(tasks: Sequence[Task], env: Mapping[str, str], allow_unconfined: bool) -> None:
    """Start the Python of dry experiments once in the sandbox, as the tests of every answer do.

    Raise MissingCapability for what the machine lacks, UsageError for a wrong limit.
    """
    tasks = [task for task in tasks if task.scorer == "sgi-dry-experiment"]
    if not tasks:
        return
    name = env.get("SGI_CONDA_ENV") or DEFAULTS["SGI_CONDA_ENV"]
    python = find_environment(name)
    execution_seconds(env.get("SGI_EXECUTION_TIMEOUT") or DEFAULTS["SGI_EXECUTION_TIMEOUT"])
    check_fixtures(tasks, env)
    with program_folder("ready") as folder:
        result = run(
            [str(python), "-c", "pass"],
            cwd=folder,
            limits=Limits(seconds=60),
            environment=environment_of(python),
            allow_unconfined=allow_unconfined,
        )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or [f"code {result.returncode}"])[-1]
        raise MissingCapability(f"SGI_CONDA_ENV {name!r}: its Python does not run in the sandbox: {last}")
