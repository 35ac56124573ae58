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
from typing import TYPE_CHECKING, Any, Literal

from stillweb.harness.benchmarks.browsecomp.built_prompts import hash_of
from stillweb.harness.benchmarks.browsecomp.dataset import parse_urls
from stillweb.harness.datasets.records import RecordError
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import require
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


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
    snapshot: Snapshot | PageReader,
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
    task: Task, reader: PageReader, budget: int, counter: Tokenizer, seed: int | str, algorithm: Algorithm
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
            f"the messages around the pages alone have {pluralize(fixed, 'token')}; the budget is {budget}"
        )
    fitted, left = fit_pages((page.tokens for _, page, _ in by_role["required"]), budget - fixed)
    _mark(states, by_role["required"], fitted)
    if fitted < len(by_role["required"]):
        missing = by_role["required"][fitted][1]
        return failure(
            f"required page {missing.url} ({pluralize(missing.tokens, 'token')}) doesn't fit: {left} left"
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
        notes = (*notes, f"short: {pluralize(len(text), 'character')}")
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Page(url, role, "unread", counter.count(text), digest, found.extractor, notes), text


def _mark(states: dict[int, Page], entries: list[tuple[int, Page, str]], fitted: int) -> None:
    for index, (place, page, _) in enumerate(entries):
        states[place] = replace(page, state="taken" if index < fitted else "cut")


def _told(page: Page) -> dict[str, Any]:
    return asdict(page) | {"notes": list(page.notes)}


TOKENIZERS = ("o200k_base", "cl100k_base")
# A text with known ids in both vocabularies; its encoding identifies a vocabulary without reading its file.
_PROBE = "Stillweb \u2014 the web, held still. \u9759\u6b62\u7684\u7f51\u7edc \U0001f578 1234567890\n\tnaïve\u00a0café"


class Tokenizer:
    """Tokenizer that counts and encodes text offline in a vocabulary of rs-bpe; counts are cached by the text's digest.

    `identity` is "name:sha256 of the ids of a fixed probe text". It changes with the vocabulary and the way
    text is split, not with the package that carries them.
    """

    def __init__(self, name: str) -> None:
        if name not in TOKENIZERS:
            raise UsageError(f"no tokenizer {name!r}; known are {', '.join(TOKENIZERS)}")
        self.name = name
        self._encoding: Any = getattr(require("rs_bpe.bpe").openai, name)()
        self._counts: dict[bytes, int] = {}
        ids = ",".join(map(str, self.encode(_PROBE)))
        self.identity = f"{name}:{hashlib.sha256(ids.encode()).hexdigest()}"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; special tokens in it are read as plain text."""
        ids: list[int] = self._encoding.encode(_sound(text))
        return ids

    def count(self, text: str) -> int:
        key = _key(text)
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = self._encoding.count(_sound(text))
        return found


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _sound(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 can't encode, replaced."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode() if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@lru_cache(maxsize=2)
def load_tokenizer(name: str) -> Tokenizer:
    return Tokenizer(name)


@dataclass(frozen=True, slots=True)
class PageText:
    """Text of a page, or the reason why it has none (`dead`). `notes` say what looks wrong with it."""

    text: str = ""
    extractor: str = ""
    dead: str = ""
    notes: tuple[str, ...] = ()


class PageReader:
    """Reader of pages. Every URL is requested by a new client, so that no row affects another.

    Texts are cached up to the store's limit: pass the same reader to several builds to profit from it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        from stillweb.harness.tools.store import Store

        self.id = snapshot.id
        self._store = Store(snapshot)

    def read(self, url: str) -> PageText:
        """Return the page at a URL, whose fragment is ignored."""
        page = url.partition("#")[0]
        found = self._store.session("prompts").follow(page)
        if found.redirects:
            return PageText(dead="it redirects without end")
        if found.capture is None:
            return PageText(
                dead="not in the snapshot" if found.url == page else f"it redirects to {found.url}, not in it"
            )
        if found.capture.status >= 400:
            return PageText(dead=f"recorded with status {found.capture.status}")
        notes = [f"answered by {found.verdict}"] if found.verdict not in ("exact", "canonical") else []
        if found.ambiguous:
            notes.append("the recording does not decide that it is this answer")
        text = self._store.text_of(found.capture)
        if text is None:
            return PageText(dead="no text in the snapshot", notes=tuple(notes))
        warnings = (*notes, *text.warnings)
        if not text.markdown.strip():
            return PageText(dead="its text is empty", notes=warnings)
        return PageText(text.markdown, f"{text.extractor} {text.version}".strip(), notes=warnings)
