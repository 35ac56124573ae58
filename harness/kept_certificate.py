"""The certificate that lies with a run, held against what it says of itself and against the traces as they are now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.trace import canonical
from snapshots.errors import DamagedInput

NAME = "certificate.json"
UNHASHED = ("hash", "made_again", "version_of_code")


def hash_of(certificate: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over the members that a certificate's hash covers."""
    return sha256(canonical({n: m for n, m in certificate.items() if n not in UNHASHED})).hexdigest()


def read_kept(path: Path) -> dict[str, Any] | None:
    """The certificate in a run's directory, None where there is none; DamagedInput for one that its hash is not of."""
    file = path / NAME
    if not file.exists():
        return None
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        traces = [attempt["trace"] for attempt in value["attempts"].values()]
        if value["hash"] != hash_of(value) or not all(isinstance(one, str) for one in traces):
            raise ValueError("its hash is not that of what it says")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedInput(f"{file}: not a certificate: {error}; `stillweb score` makes it anew") from error
    return dict(value)


def check_kept(path: Path, traces: Mapping[str, str]) -> None:
    """DamagedInput where a certificate lies with the run that was made of other traces than these (task/number -> hash)."""
    kept = read_kept(path)
    now = {"attempts": {name: {"trace": trace} for name, trace in traces.items()}}
    if kept is not None and (other := other_traces(kept, now)):
        raise DamagedInput(told_other(path, other))


def told_other(path: Path, other: Sequence[str]) -> str:
    """What is said of attempts whose traces are not those that the certificate was made of."""
    return (
        f"{path}: the trace of {other[0]} is not the one that {NAME} was made of"
        f"{f', nor are those of {len(other) - 1} more' if len(other) > 1 else ''}; `stillweb certify {path}` says "
        f"where it differs from a repetition, `stillweb score {path} --write` makes a certificate of what is there"
    )


def other_traces(kept: Mapping[str, Any], certificate: Mapping[str, Any]) -> list[str]:
    """The attempts (task/number) of which the traces now are not those that the kept certificate was made of."""
    now = {name: attempt["trace"] for name, attempt in certificate["attempts"].items()}
    was = {name: attempt["trace"] for name, attempt in kept["attempts"].items()}
    return [name for name in sorted(now.keys() | was.keys()) if now.get(name) != was.get(name)]
