"""No command makes a snapshot to give away of a recording that holds secrets which became known too late."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.console import say
from snapshots.words import counted


def refuse_late_secrets(snapshots: Iterable[str | Path]) -> None:
    """For commands that copy what is in snapshots. Raises GateFailed for an open one that `seal` would refuse."""
    for snapshot in snapshots:
        _refuse(
            Path(str(snapshot).removeprefix("file://")),
            "if it may be known, seal it with --keep-secrets and take the sealed one",
        )


def refuse_to_seal(snapshot: Path, keep: bool) -> None:
    """For `seal`; with `keep` it says what stands where, and lets it pass."""
    from snapshots.errors import GateFailed

    try:
        _refuse(snapshot, "say --keep-secrets if it may be known")
    except GateFailed as error:
        if not keep:
            raise
        say(f"sealed in spite of this: {error}")


def _refuse(snapshot: Path, way: str) -> None:
    from proxy.wire.certificates import state_dir
    from snapshots.errors import GateFailed
    from snapshots.upkeep import late

    try:
        late.catch_up(snapshot, state_dir())
    except GateFailed as error:
        raise GateFailed(f"{error}; {way}") from error
    known = late.noted(snapshot)
    for one in known:
        say(str(one))
    if known:
        raise GateFailed(f"{snapshot}: a secret stands in {counted(len(known), 'record')}; {way}")
