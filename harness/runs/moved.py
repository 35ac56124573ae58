"""Where the snapshots of a run lie now: a run that was received from another machine names places of that machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.opening import is_url


def snapshots_now(run: Path, snapshots: Sequence[str]) -> tuple[str, ...]:
    """The snapshots of a run by where they are: as it names them, else under the same name in the run's directory, beside
    it, or in the working directory.

    One that is nowhere keeps its name, for what opens it to tell. That it is the run's own shows by its id, which whoever
    opens it compares.
    """
    return tuple(_now(run, named) for named in snapshots)


def snapshots_to_repeat(run: Path, snapshots: Sequence[str], told: Sequence[str]) -> tuple[str, ...]:
    """The snapshots to repeat a run on: those that one tells, else where the run's lie now. UsageError for one that is nowhere."""
    if told:
        return tuple(told)
    found = snapshots_now(run, snapshots)
    for one in found:
        if not is_url(one) and not Path(one).exists():
            raise UsageError(
                f"{run}: its snapshot is neither {one} nor a {Path(one).name} beside it or here; say where it is with --snapshot"
            )
    return found


def _now(run: Path, named: str) -> str:
    if is_url(named) or Path(named).exists():
        return named
    name = Path(named).name
    for folder in (run, run.resolve().parent, Path.cwd()):
        if (here := folder / name).exists():
            return str(here.resolve())
    return named
