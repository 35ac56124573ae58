"""`stillweb prompts build`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from harness.console import progress, say
from snapshots.words import counted


@click.group("prompts")
def command() -> None:
    """Build long-context prompts (BrowseComp Long Context) from a snapshot.

    \b
    stillweb prompts build pages.wacz --tasks rows.jsonl --budget 128k -o prompts.jsonl
    """


@command.command("build", short_help="One line for each row: its prompt.")
@click.argument("snapshots", nargs=-1, required=True)
@click.option("--tasks", "source", required=True, help="The rows (JSONL, JSON or Parquet).")
@click.option("--budget", default="128k", show_default=True, help="Tokens: a number, or with k or M.")
@click.option("--tokenizer", default="o200k_base", show_default=True, help="o200k_base or cl100k_base.")
@click.option("--seed", default="0", show_default=True)
@click.option("--algorithm", type=click.Choice(["shuffle", "sha256"]), default="shuffle", show_default=True)
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The JSONL to write.")
def build(
    snapshots: tuple[str, ...], source: str, budget: str, tokenizer: str, seed: str, algorithm: str, out: Path
) -> int:
    """One line for each row: the prompt with its certificate, or why there is none. No row is left out.

    \b
    stillweb prompts build pages.wacz --tasks rows.jsonl --budget 128k -o prompts.jsonl
    stillweb run --tasks prompts.jsonl --agent openai:gpt-5 --snapshot pages.wacz -o run1 --contract none
    """
    from dataclasses import asdict

    from harness.datasets import load_tasks
    from harness.prompts import Failure
    from harness.prompts import build as build_prompts
    from harness.runs.run_files import json_line
    from snapshots import Snapshot

    rows = load_tasks(source, kind="browsecomp-lc")
    for problem in rows.problems:
        say(f"not a row: {problem}")
    for notice in rows.notices:
        say(f"not read: {notice}")
    with Snapshot.open(*snapshots) as snapshot, progress("building prompts") as advance:
        value = int(seed) if re.fullmatch(r"-?[0-9]{1,4000}", seed) else seed
        results = build_prompts(rows, snapshot, budget, tokenizer, value, algorithm, advance)  # type: ignore[arg-type]
    failed = [result for result in results if isinstance(result, Failure)]
    with out.open("w", encoding="utf-8") as file:
        for task, result in zip(rows, results, strict=True):
            line = {
                "state": "failed" if isinstance(result, Failure) else "built",
                **asdict(result),
                "digest": result.digest,
                "problem": task.question,
                "answer": task.reference,
            }
            file.write(json_line(line) + "\n")
    for failure in failed:
        say(f"no prompt for {failure.task_id}: {failure.reason}")
    say(
        f"{out}: {counted(len(results) - len(failed), 'prompt')}, {len(failed)} failed, {len(rows.problems)} unreadable"
    )
    return 1 if failed or rows.problems else 0
