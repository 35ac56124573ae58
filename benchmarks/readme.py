"""The figures in README.md: taken from the ratios of the last whole run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- ratios of `make bench` -->\n", "<!-- end of ratios -->"

# what a row's name begins with; what was done; against what
SHOWN = (
    ("small pages, for each CPU second: stillweb", "replay, pages of 5 kB, for each CPU second", "nginx serving the files"),
    ("mixed pages, for each CPU second: stillweb", "replay, real pages of 40 kB, for each CPU second", "nginx serving the files"),
    ("small pages, 8 connections: stillweb", "replay, pages of 5 kB, in total: one process", "nginx with two processes"),
    ("mixed pages, 8 connections: stillweb", "replay, real pages of 40 kB, in total: one process", "nginx with two processes"),
    ("small pages, 8 connections, against mitmproxy server replay", "replay, 5 kB", "mitmproxy's server replay"),
    ("small pages, 8 connections, against pywb as shipped", "replay, 5 kB", "pywb"),
    ("small pages, 8 connections, against warcprox playback", "replay, 5 kB", "warcprox' playback"),
    ("recording, real mix, 8 connections, against mitmdump", "recording, redacted", "mitmdump that keeps nothing"),
    ("recording, real mix, 8 connections, against warcprox", "recording, redacted", "warcprox"),
    ("indexing (the real mix on fifty hosts, programs", "indexing 30,000 captures", "cdxj-indexer"),
    ("indexing (the real mix on fifty hosts, recorded by", "indexing 30,000 that another program wrote", "cdxj-indexer"),
)  # fmt: skip


def block(ratios: Mapping[str, float]) -> str:
    """The table, of those rows that were measured."""
    lines = ["| requests or captures a second | ratio | against |", "|---|---|---|"]
    for start, what, against in SHOWN:
        found = [ratio for name, ratio in ratios.items() if name.startswith(start)]
        lines += [f"| {what} | {ratio:.{0 if ratio >= 10 else 2}f} × | {against} |" for ratio in found]
    return "\n".join(lines) + "\n"


def put(ratios: Mapping[str, float], path: Path = README) -> None:
    """Writes the table into README.md, between its marks."""
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(before + BEGIN + block(ratios) + END + after, "utf-8")


def shown(path: Path = README) -> str:
    """The table as README.md has it."""
    return path.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
