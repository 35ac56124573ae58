"""Prompt building of BrowseComp Long Context, as its card describes it, from frozen texts.

The opening and closing messages are taken off the budget first; then required pages in order until one
doesn't fit (the prompt then fails), then additional pages until one doesn't fit. The pages that fit are
shuffled and joined by newlines. Every row and every page has its state in the result, so that none is lost
silently.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

from stillweb.harness.benchmarks.browsecomp.built_prompts import hash_of
from stillweb.harness.benchmarks.browsecomp.dataset import parse_urls
from stillweb.harness.benchmarks.browsecomp.pages import PageReader, Texts
from stillweb.harness.benchmarks.browsecomp.tokens import Tokenizer, load_tokenizer
from stillweb.harness.datasets.records import RecordError
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.words import counted


def shuffled(pages: Sequence[str], seed: int | str) -> list[str]:
    """Return pages shuffled by `random.Random(seed)` as on the card (the same since CPython 3.2)."""
    order = list(pages)
    random.Random(seed).shuffle(order)
    return order


def hash_order(pages: Sequence[str], seed: int | str) -> list[str]:
    """Return pages sorted by sha256(seed + page), so that two pages' order is independent of others."""
    prefix = hashlib.sha256(str(seed).encode())

    def place(page: str) -> bytes:
        digest = prefix.copy()
        digest.update(page.encode("utf-8", "surrogatepass"))
        return digest.digest()

    return sorted(pages, key=place)


Algorithm = Literal["shuffle", "sha256"]
ALGORITHMS: dict[str, Callable[[Sequence[str], int | str], list[str]]] = {
    "shuffle": shuffled,
    "sha256": hash_order,
}
State = Literal["taken", "cut", "dead", "unread"]
SHORT = 200  # characters; a shorter text is used but marked, as it is often a block page or an empty shell


@dataclass(frozen=True, slots=True)
class Page:
    """Page of a row.

    `state`: taken; cut, this page or one before it didn't fit; dead, the snapshot has no text of it; unread,
    the row failed before its turn. `digest` is the SHA-256 of the text; `notes` say what looks wrong.
    """

    url: str
    role: Literal["required", "additional"]
    state: State
    tokens: int = 0
    digest: str = ""
    extractor: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt with all that determines it.

    `certificate` repeats to the byte; its hash covers the text, too.
    """

    task_id: str
    text: str
    tokens: int  # messages and pages as the card counts them, without the newlines between
    pages: tuple[Page, ...]
    certificate: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the certificate as canonical JSON."""
        return hash_of(self.certificate)


@dataclass(frozen=True, slots=True)
class Failure:
    """Row without a prompt: the reason, and the state of every page."""

    task_id: str
    reason: str
    pages: tuple[Page, ...]
    certificate: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the certificate as canonical JSON."""
        return hash_of(self.certificate)


@lru_cache(maxsize=1)
def template() -> dict[str, str]:
    """Return the card's opening (`initial`) and closing (`final`) messages, with `version` and `source`."""
    text = resources.files(__package__).joinpath("messages.json").read_text("utf-8")
    value: dict[str, str] = json.loads(text)
    return value


def parse_budget(text: str | int) -> int:
    """Return the tokens of a budget: a number, or one with k (1024) or M (1024²): 8k … 2M."""
    found = re.fullmatch(r"(\d+)\s*([kKmM]?)", str(text).strip())
    factor = {"": 1, "k": 1024, "m": 1024 * 1024}
    budget = int(found[1]) * factor[found[2].lower()] if found else 0
    if budget < 1:
        raise UsageError(f"budget {text!r} is not a number of tokens (such as 131072, 128k or 1M)")
    return budget


def fit_pages(counts: Iterable[int], budget: int) -> tuple[int, int]:
    """Return how many of the first pages fit a budget, and what is left of it.

    Counting stops at the first page that doesn't fit.
    """
    fitted = 0
    for count in counts:
        if count > budget:
            break
        budget -= count
        fitted += 1
    return fitted, budget


def build(
    rows: Iterable[Task],
    snapshot: Texts | PageReader,
    budget: int | str,
    tokenizer: str | Tokenizer = "o200k_base",
    seed: int | str = 0,
    algorithm: Algorithm = "shuffle",
    progress: Callable[[int, int], None] | None = None,
) -> list[Prompt | Failure]:
    """Return one prompt or failure per row, in the rows' order.

    `algorithm`: "shuffle" is `random.Random(seed).shuffle`, "sha256" orders by sha256(seed + page). All rows
    use the same seed, so that a row's prompt doesn't depend on which others are built.
    """
    tokens = parse_budget(budget)
    if algorithm not in ALGORITHMS:
        raise UsageError(f"no algorithm {algorithm!r}; known are {', '.join(ALGORITHMS)}")
    counter = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    todo, reader = list(rows), snapshot if isinstance(snapshot, PageReader) else PageReader(snapshot)
    results: list[Prompt | Failure] = []
    for done, task in enumerate(todo, 1):
        results.append(_build_one(task, reader, tokens, counter, seed, algorithm))
        if progress:
            progress(done, len(todo))
    return results


def _problem(task: Task) -> str:
    return str(task.meta.get("problem") or task.question)


def _build_one(
    task: Task,
    reader: PageReader,
    budget: int,
    counter: Tokenizer,
    seed: int | str,
    algorithm: Algorithm,
) -> Prompt | Failure:
    words = template()
    # Inserted by replace(): a problem may contain braces.
    initial, final = (words[name].replace("{problem}", _problem(task)) for name in ("initial", "final"))
    fixed = counter.count(initial) + counter.count(final)
    urls = task.meta.get("urls")
    certificate: dict[str, Any] = {
        "version": 1,
        "task": task.id,
        "snapshot": reader.id,
        "tokenizer": counter.identity,
        "template": {"version": words["version"], "sha256": hash_of([words["initial"], words["final"]])},
        "budget": budget,
        "seed": seed,
        "algorithm": algorithm,
        "message_tokens": fixed,
    }
    if not isinstance(urls, list) or not urls:
        return Failure(task.id, "the task names no pages (meta.urls)", (), certificate)
    try:
        pairs = parse_urls(urls)
    except RecordError as error:
        return Failure(task.id, f"meta.{error}", (), certificate)
    by_role: dict[str, list[tuple[int, Page, str]]] = {"required": [], "additional": []}
    for place, (url, role) in enumerate(pairs):
        page, text = _read(reader, url, role, counter)
        by_role[role].append((place, page, text))
    # A dead additional page is skipped; without a required page there is nothing to answer from.
    living = [entry for entry in by_role["additional"] if entry[1].state != "dead"]
    dead = [page.url for _, page, _ in by_role["required"] if page.state == "dead"]
    states: dict[int, Page] = {place: page for entries in by_role.values() for place, page, _ in entries}

    def failure(reason: str) -> Failure:
        pages = tuple(states[place] for place in range(len(urls)))
        return Failure(task.id, reason, pages, certificate | {"pages": [_told(page) for page in pages]})

    if dead:
        more = f" (and {len(dead) - 1} more)" if len(dead) > 1 else ""
        why = next(page.notes[0] for _, page, _ in by_role["required"] if page.state == "dead")
        return failure(f"required page {dead[0]}{more} is dead: {why}")
    if fixed > budget:
        return failure(
            f"the messages around the pages alone have {counted(fixed, 'token')}; the budget is {budget}"
        )
    fitted, left = fit_pages((page.tokens for _, page, _ in by_role["required"]), budget - fixed)
    _mark(states, by_role["required"], fitted)
    if fitted < len(by_role["required"]):
        missing = by_role["required"][fitted][1]
        return failure(
            f"required page {missing.url} ({counted(missing.tokens, 'token')}) doesn't fit: {left} left"
        )
    extra, left = fit_pages((page.tokens for _, page, _ in living), left)
    _mark(states, living, extra)
    taken = by_role["required"] + living[:extra]
    ordered = ALGORITHMS[algorithm]([text for _, _, text in taken], seed)
    text = "\n".join([initial, *ordered, final])
    pages = tuple(states[place] for place in range(len(urls)))
    certificate |= {
        "pages": [_told(page) for page in pages],
        "order": [hashlib.sha256(page.encode("utf-8", "surrogatepass")).hexdigest()[:16] for page in ordered],
        "tokens_left": left,
        "prompt": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
    }
    return Prompt(task.id, text, budget - left, pages, certificate)


def _read(reader: PageReader, url: str, role: Any, counter: Tokenizer) -> tuple[Page, str]:
    found = reader.read(url)
    if found.dead:
        return Page(url, role, "dead", notes=(found.dead, *found.notes)), ""
    text, notes = found.text, found.notes
    if len(text) < SHORT:
        notes = (*notes, f"short: {counted(len(text), 'character')}")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Page(url, role, "unread", counter.count(text), digest, found.extractor, notes), text


def _mark(states: dict[int, Page], entries: list[tuple[int, Page, str]], fitted: int) -> None:
    for index, (place, page, _) in enumerate(entries):
        states[place] = replace(page, state="taken" if index < fitted else "cut")


def _told(page: Page) -> dict[str, Any]:
    return asdict(page) | {"notes": list(page.notes)}
