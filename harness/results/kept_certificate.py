"""The certificate file of a run, checked against its own hash and against the present traces."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from stillweb.harness.trace import canonical, read_json
from stillweb.snapshots.errors import DamagedInput

NAME = "certificate.json"
UNHASHED = ("hash", "made_again", "confinement", "confidence", "version_of_code")
# members that only run.json determines
OF_THE_RUN = ("settings", "contracts", "part_of", "refused", "prompts")
# members that depend on the code that made the certificate, not on the run
VERSIONED = ("code", "evaluator", "scorers", "judges")


def hash_of(certificate: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) over the members that a certificate's hash covers."""
    return sha256(canonical({n: m for n, m in certificate.items() if n not in UNHASHED})).hexdigest()


def read_kept(path: Path) -> dict[str, Any] | None:
    """Return the certificate in a run's directory, or None. Raise DamagedInput if its hash is wrong."""
    file = path / NAME
    if not file.exists():
        return None
    try:
        value = read_json(file.read_text(encoding="utf-8"))
        traces = [attempt["trace"] for attempt in value["attempts"].values()]
        if value["hash"] != hash_of(value) or not all(isinstance(one, str) for one in traces):
            raise ValueError("its hash is not that of its content")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedInput(f"{file}: not a certificate: {error}; `stillweb score` makes it anew") from error
    return dict(value)


def kept_hash(path: Path) -> str | None:
    """Return the hash of the certificate in a run's directory, "altered" if it is wrong, None without one."""
    try:
        kept = read_kept(path)
    except DamagedInput:
        return "altered"
    return None if kept is None else str(kept["hash"])


def check_kept(path: Path, traces: Mapping[str, str]) -> None:
    """Raise DamagedInput if the run's certificate is not of these traces (task/number -> hash)."""
    kept = read_kept(path)
    now = {"attempts": {name: {"trace": trace} for name, trace in traces.items()}}
    if kept is not None and (other := other_traces(kept, now)):
        raise DamagedInput(wrong_traces_error(path, other))


def wrong_traces_error(path: Path, other: Sequence[str]) -> str:
    """Return the error message for attempts whose traces are not those of the certificate."""
    return (
        f"{path}: the trace of {other[0]} is not the one that {NAME} was made of"
        f"{f', nor are those of {len(other) - 1} more' if len(other) > 1 else ''}; `stillweb certify {path}` says "
        f"where it differs from a repetition, `stillweb score {path} --write` makes a certificate of what is there"
    )


def other_traces(kept: Mapping[str, Any], certificate: Mapping[str, Any]) -> list[str]:
    """Return the attempts (task/number) whose traces are not those that the kept certificate was made of."""
    now = {name: attempt["trace"] for name, attempt in certificate["attempts"].items()}
    was = {name: attempt["trace"] for name, attempt in kept["attempts"].items()}
    return [name for name in sorted(now.keys() | was.keys()) if now.get(name) != was.get(name)]


def changed_certificate(path: Path, certificate: Mapping[str, Any]) -> list[str]:
    """Return [] or one line: the first difference of the run's certificate file from its traces.

    A file made by another version may differ in hashes of code and in newer members; these are ignored. Files
    made of other traces are reported by `other_traces`.
    """
    try:
        kept = read_kept(path)
    except DamagedInput as error:
        return [str(error)]
    if kept is None or other_traces(kept, certificate):
        return []
    members = [n for n in certificate if n in kept and n not in (*UNHASHED, *VERSIONED)]
    place, was, now = find_difference({n: kept[n] for n in members}, {n: certificate[n] for n in members})
    if not place:
        return []
    gives = "run.json gives" if re.split(r"[.\[]", place)[0] in OF_THE_RUN else "its traces give"
    return [f"{path / NAME} says {place}: {short(was)}, {gives} {short(now)}"]


def find_difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any]:
    """Return where two values first differ (members joined by dots) and both values there.

    The place is "" if the whole values differ or nothing does.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(n for n in new if n not in old)]:
            if old.get(name) != new.get(name) or (name in old) != (name in new):
                return find_difference(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    if isinstance(old, list) and isinstance(new, list):
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            if a != b:
                return find_difference(a, b, f"{path}[{i}]")
    return path, old, new


def short(value: Any) -> str:
    """Return a value as JSON, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "…"
