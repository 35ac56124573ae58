"""Report of a run: one HTML file without scripts, external resources or timestamps.

    write_report(run, out) -> Path

`sheet.py` turns traces into the data shown, `screenshots.py` finds the pictures, `report.html` and
`report.css` are the layout. Comparisons and the review page use the same parts.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stillweb.harness.console import decimals
from stillweb.harness.report.screenshots import Screenshots
from stillweb.harness.report.sheet import Sheet, sheet_of
from stillweb.harness.results.kept_certificate import read_kept
from stillweb.harness.results.left_out import failed_attempts, left_out
from stillweb.harness.results.summary import Summary, summarise
from stillweb.harness.runs.moved import snapshots_now
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.trace import Trace
from stillweb.snapshots.warc.appending import write_text
from stillweb.snapshots.words import counted

_HERE = Path(__file__).parent
MOST_ATTEMPTS = 400  # shown in full; the overview has all

__all__ = ["Screenshots", "Sheet", "render", "sheet_of", "write_report"]


@cache
def _environment(folder: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([folder, _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["counted"] = counted
    environment.filters["share"] = lambda part, whole: f"{100 * part / whole:.2f}" if whole else "0"
    return environment


def number(value: float | None, digits: int = 3) -> str:
    """Return a metric for display: three decimals, more if it would look whole; a dash if not scored."""
    if value is None:
        return "–"
    if value == int(value):
        return str(int(value))
    return decimals(value, digits).rstrip("0").rstrip(".")


def render(template: str, folder: Path = _HERE, **names: Any) -> str:
    """Return a page from a template in `folder`, which may import this folder's, with styles inlined."""
    css = Markup((_HERE / "report.css").read_text(encoding="utf-8"))
    return _environment(folder).get_template(template).render(css=css, **names)


def write_report(path: Path, out: Path | None = None, *, title: str | None = None) -> Path:
    """Write the report of a run (default: report.html in it) and return its path."""
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    rows: list[Sheet] = []
    traces: dict[str, str] = {}
    with Screenshots.of(
        snapshots_now(path, settings.snapshots), stands_on.get("snapshot"), settings.at
    ) as screenshots:

        def look(trace: Trace) -> None:
            sheet = sheet_of(trace, screenshots if len(rows) < MOST_ATTEMPTS else None)
            rows.append(sheet)
            traces[sheet.name] = trace.hash

        summary = summarise(path, on_trace=look)
        problems = screenshots.problems
    certificate = _certificate(path)
    if certificate is not None and certificate["traces"] != traces:
        problems = [
            *problems,
            "The certificate is not of the traces as they are now (stillweb certify says where they differ from a repetition).",
        ]
        certificate = None
    if certificate is not None and (other := _not_of(certificate["kept"], stands_on, settings)):
        problems = [*problems, f"The certificate is not of the {other} that run.json tells."]
        certificate = None
    out = out or path / "report.html"
    page = render(
        "report.html",
        title=title or "Stillweb run",
        summary=summary,
        bars=_bars(summary),
        metrics=(metrics := _metric_table(summary)),
        forms=any(row["raw"] or row["forgiven"] for row in metrics),
        sheets=rows,
        told=rows[:MOST_ATTEMPTS],
        certificate=certificate,
        stands_on=stands_on,
        who=_who(stands_on.get("agent") or {}),
        settings=settings,
        problems=[*_notes(files, summary), *problems],
    )
    write_text(out, page)
    return out


def _notes(files: RunFiles, summary: Summary) -> list[str]:
    failed = failed_attempts(summary)
    return [
        f"{one[0].upper()}{one[1:]}." for one in (*left_out(files, summary), *([failed] if failed else []))
    ]


def _who(agent: dict[str, Any]) -> str:
    """Return the agent in a few words."""
    kind = str(agent.get("kind", "an agent"))
    named = agent.get("model") or agent.get("name")
    return f"{kind} {named}" if named and named != kind else kind


def _certificate(path: Path) -> dict[str, Any] | None:
    """Return hash, trace hashes and content of the run's certificate, or None if there is none."""
    kept = read_kept(path)
    if kept is None:
        return None
    traces = {name: one["trace"] for name, one in kept["attempts"].items()}
    return {"hash": kept["hash"], "traces": traces, "kept": kept}


def _not_of(kept: dict[str, Any], stands_on: dict[str, Any], settings: Settings) -> str:
    """Return the first part of run.json that differs from the certificate, "" if none does.

    Of the settings, only those in both are compared.
    """
    for name in ("agent", "snapshot", "tasks", "rubrics", "contracts"):
        if name in kept and kept[name] != stands_on.get(name):
            return name
    now, then = settings.deciding(), kept.get("settings") or {}
    return "settings" if any(then[name] != now[name] for name in then.keys() & now.keys()) else ""


def _bars(summary: Summary) -> list[tuple[str, int]]:
    return [(status, count) for status, count in summary.statuses.items() if count]


def _metric_table(summary: Summary) -> list[dict[str, Any]]:
    """Return metrics by plain name, together with their raw and forgiven forms if there are any."""
    rows: list[dict[str, Any]] = []
    for name, mean in (*summary.means.items(), *summary.measured.items()):
        if name.startswith(("raw_", "forgiven_")):
            continue
        rows.append(
            {
                "name": name,
                "mean": mean,
                "raw": summary.means.get(f"raw_{name}"),
                "forgiven": summary.means.get(f"forgiven_{name}"),
            }
        )
    return rows
