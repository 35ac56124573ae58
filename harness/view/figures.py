"""Figures of a run as a whole: means, statuses, certificate, and what the run stands on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillweb.harness.results.kept_certificate import read_kept
from stillweb.harness.results.summary import Mean, Summary, describe_left_out, failed_attempts, summarise
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.trace import Trace


@dataclass(frozen=True, slots=True)
class Metric:
    """Mean of a metric, with its forms `raw` (as written) and `forgiven` if scorers give them."""

    name: str
    mean: Mean
    raw: Mean | None
    forgiven: Mean | None


@dataclass(frozen=True, slots=True)
class Figures:
    """Summary of a run. `certificate` is a hash, "" if there is none of these traces."""

    summary: Summary
    metrics: tuple[Metric, ...]
    certificate: str
    who: str
    snapshot: str
    settings: Settings
    notes: tuple[str, ...]


def figures_of(path: Path) -> Figures:
    """Return the figures of a run. Raise DamagedInput for one that can't be read as a whole."""
    files = RunFiles(path)
    hashes: dict[str, str] = {}

    def note(trace: Trace) -> None:
        hashes[f"{trace.task_id}/{trace.attempt}"] = trace.hash

    settings, stands_on = files.manifest()
    summary = summarise(path, on_trace=note)
    certificate, doubts = _certificate(path, hashes, stands_on, settings)
    failed = failed_attempts(summary)
    remarks = [*describe_left_out(files, summary), *([failed] if failed else [])]
    agent = stands_on.get("agent") or {}
    kind = str(agent.get("kind", "an agent"))
    named = agent.get("model") or agent.get("name")
    return Figures(
        summary,
        tuple(_metrics(summary)),
        certificate,
        f"{kind} {named}" if named and named != kind else kind,
        str(stands_on.get("snapshot") or ""),
        settings,
        (*(f"{one[0].upper()}{one[1:]}." for one in remarks), *doubts),
    )


def _metrics(summary: Summary) -> list[Metric]:
    return [
        Metric(name, mean, summary.means.get(f"raw_{name}"), summary.means.get(f"forgiven_{name}"))
        for name, mean in (*summary.means.items(), *summary.measured.items())
        if not name.startswith(("raw_", "forgiven_"))
    ]


def _certificate(
    path: Path, hashes: dict[str, str], stands_on: dict[str, Any], settings: Settings
) -> tuple[str, tuple[str, ...]]:
    """Return the certificate's hash, or "" and why the certificate is not of this run."""
    kept = read_kept(path)
    if kept is None:
        return "", ()
    if {name: one["trace"] for name, one in kept["attempts"].items()} != hashes:
        return "", (
            "The certificate is not of the traces as they are now (stillweb certify says where they differ from a repetition).",
        )
    other = next(
        (
            name
            for name in ("agent", "snapshot", "tasks", "rubrics", "contracts")
            if name in kept and kept[name] != stands_on.get(name)
        ),
        "",
    )
    now, then = settings.certified_members(), kept.get("settings") or {}
    if not other and any(then[name] != now[name] for name in then.keys() & now.keys()):
        other = "settings"
    return (
        ("", (f"The certificate is not of the {other} that run.json tells.",))
        if other
        else (kept["hash"], ())
    )
