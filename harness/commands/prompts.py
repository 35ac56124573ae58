from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import OUT, SNAPSHOT
from stillweb.harness.console import progress, say
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.harness.benchmarks.browsecomp.prompts import Prompt


@click.group("prompts")
def command() -> None:
    """Build long-context prompts (BrowseComp Long Context) from a snapshot.

    \b
    stillweb prompts build pages.wacz --tasks rows.jsonl --budget 128k -o prompts.jsonl
    """


@command.command("build", short_help="One line for each row: its prompt.")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option("--tasks", "source", required=True, metavar="SET", help="The rows (JSONL, JSON or Parquet).")
@click.option(
    "--budget",
    default="128k",
    show_default=True,
    help="Tokens: a number, or with k (1,024) or M (1,048,576).",
)
@click.option("--tokenizer", default="o200k_base", show_default=True, help="o200k_base or cl100k_base.")
@click.option("--seed", default="0", show_default=True, help="Decides the order of the pages.")
@click.option(
    "--algorithm",
    type=click.Choice(["shuffle", "sha256"]),
    default="shuffle",
    show_default=True,
    help="The order of the pages: by random.Random(seed).shuffle, as the card has it, or by sha256(seed + page).",
)
@click.option("-o", "--out", required=True, type=OUT, help="The JSONL to write.")
def build(
    snapshots: tuple[Path | str, ...],
    source: str,
    budget: str,
    tokenizer: str,
    seed: str,
    algorithm: str,
    out: Path,
) -> int:
    """Write one line for each row: the prompt with its certificate, or why there is none. No row is left out.

    \b
    stillweb prompts build pages.wacz --tasks rows.jsonl --budget 128k -o prompts.jsonl
    stillweb run --tasks prompts.jsonl --agent openai:gpt-5 --snapshot pages.wacz -o run1 --contract none
    """
    from dataclasses import asdict

    from stillweb.harness.benchmarks.browsecomp.prompts import Failure
    from stillweb.harness.benchmarks.browsecomp.prompts import build as build_prompts
    from stillweb.harness.datasets import load_tasks
    from stillweb.harness.runs.run_files import json_line
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.warc.appending import write_whole

    if out.is_dir() or not out.parent.is_dir():
        raise click.UsageError(
            f"{out}: is a directory" if out.is_dir() else f"{out}: there is no directory {out.parent}"
        )
    rows = load_tasks(source, kind="browsecomp-lc")
    for problem in rows.problems:
        say(f"not a row: {problem}")
    for notice in rows.notices:
        say(f"not read: {notice}")
    with Snapshot.open(*snapshots) as snapshot, progress("building prompts") as advance:
        value = int(seed) if re.fullmatch(r"-?[0-9]{1,4000}", seed) else seed
        results = build_prompts(rows, snapshot, budget, tokenizer, value, algorithm, advance)  # type: ignore[arg-type]
    failed = [result for result in results if isinstance(result, Failure)]
    lines = (
        {
            "state": "failed" if isinstance(result, Failure) else "built",
            **asdict(result),
            "digest": result.digest,
            "problem": task.question,
            "answer": task.reference,
            **({"canary": task.meta["canary"]} if "canary" in task.meta else {}),
        }
        for task, result in zip(rows, results, strict=True)
    )
    write_whole(out, (f"{json_line(line)}\n".encode() for line in lines))
    for failure in failed:
        say(f"no prompt for {failure.task_id}: {failure.reason}")
    for line in _told_of_pages(result for result in results if not isinstance(result, Failure)):
        say(line)
    say(
        f"{out}: {pluralize(len(results) - len(failed), 'prompt')}, {len(failed)} failed, {len(rows.problems)} unreadable"
    )
    return 1 if failed or rows.problems else 0


def _told_of_pages(prompts: Iterable[Prompt]) -> Iterator[str]:
    """Yield a line for each kind of bad page (left out, dead, looking wrong), with the count and the first page."""

    kinds: dict[str, list[str]] = {
        "not in the prompts, for want of room": [],
        "dead": [],
        "looking wrong": [],
    }
    for prompt in prompts:
        for page in prompt.pages:
            notes = page.notes
            line = f"{prompt.task_id}: {page.url}{f' ({notes[0]})' if notes else ''}"
            if page.state == "cut":
                kinds["not in the prompts, for want of room"].append(line)
            elif page.state == "dead":
                kinds["dead"].append(line)
            elif notes:
                kinds["looking wrong"].append(line)
    for kind, pages in kinds.items():
        if pages:
            yield f"{pluralize(len(pages), 'page')} {kind} (first: {pages[0]})"
