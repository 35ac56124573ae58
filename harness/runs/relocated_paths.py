"""Paths of the snapshots of a run that was copied from another machine and names paths there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.remote import is_remote


def snapshots_now(run: Path, snapshots: Sequence[str]) -> tuple[str, ...]:
    """Return the present paths of a run's snapshots.

    A snapshot that is not at its named path is looked for under the same name in the run's directory, beside
    the run, and in the working directory. One that is not found keeps its name, so that opening it reports
    the error. Callers compare snapshot ids to make sure that it is the run's own.
    """
    return tuple(_now(run, named) for named in snapshots)


def snapshots_to_repeat(run: Path, snapshots: Sequence[str], told: Sequence[str]) -> tuple[str, ...]:
    """Return the snapshots to repeat a run on: the given ones, else the run's own.

    Raise UsageError for a snapshot that is not found.
    """
    if told:
        return tuple(told)
    found = snapshots_now(run, snapshots)
    for one in found:
        if not is_remote(one) and not Path(one).exists():
            raise UsageError(
                f"{run}: its snapshot is neither {one} nor a {Path(one).name} beside it or here; say where it is with --snapshot"
            )
    return found


def _now(run: Path, named: str) -> str:
    if is_remote(named) or Path(named).exists():
        return named
    name = Path(named).name
    for folder in (run, run.resolve().parent, Path.cwd()):
        if (here := folder / name).exists():
            return str(here.resolve())
    return named
