"""Prompts: fitting, order, states of pages, certificates, tokens, and speed."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.benchmarks.browsecomp.prompts import (
    Failure,
    PageReader,
    PageText,
    Prompt,
    build,
    fit_pages,
    hash_order,
    load_tokenizer,
    parse_budget,
    shuffled,
    template,
)
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import SITE, Recorder
from tests.snapshots.text.test_text import ARTICLE
from tests.support.spending import cpu_seconds

VECTORS = Path(__file__).parents[2] / "vectors"


def vector(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


class Shelf(PageReader):
    """Pages from a dictionary."""

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages, self.id = pages, "5" * 64

    def read(self, url: str) -> PageText:
        return PageText(self.pages[url], "stand-in 1") if url in self.pages else PageText(dead="not there")


def row(*urls: tuple[str, str], task_id: str = "t") -> Task:
    return Task(task_id, "Which {lake}?", "Alpha", "browsecomp", {"urls": [list(url) for url in urls]})


PAGES = {f"https://{name}.test/": f"Page {name}. " * 30 for name in "abcde"}
REQUIRED = [(url, "required") for url in list(PAGES)[:2]]
ADDITIONAL = [(url, "additional") for url in list(PAGES)[2:]]


@pytest.mark.parametrize("case", vector("bclc_fit_pages.json"))
def test_fit_vectors(case: dict[str, Any]) -> None:
    assert fit_pages(case["tokens"], case["budget"]) == (case["n"], case["left"])


@pytest.mark.parametrize("case", vector("bclc_shuffle.json"))
def test_shuffle_vectors(case: dict[str, Any]) -> None:
    assert "".join(shuffled("ABCDE", case["seed"])) == case["out"]


def test_hash_order_vector() -> None:
    case = vector("bclc_hash_order.json")
    assert "".join(hash_order(case["pages"], case["seed"])) == case["order"]


@given(st.lists(st.integers(0, 50)), st.integers(0, 200))
def test_fitting_takes_the_longest_prefix(counts: list[int], budget: int) -> None:
    fitted, left = fit_pages(counts, budget)
    assert left == budget - sum(counts[:fitted]) >= 0
    if fitted < len(counts):
        assert counts[fitted] > left


def test_a_prompt_holds_messages_and_all_pages() -> None:
    (prompt,) = build([row(*REQUIRED, *ADDITIONAL)], Shelf(PAGES), "8k")
    assert isinstance(prompt, Prompt)
    assert prompt.text.startswith(template()["initial"].replace("{problem}", "Which {lake}?"))
    assert prompt.text.endswith(template()["final"].replace("{problem}", "Which {lake}?"))
    middle = [p for p in PAGES.values() if p in prompt.text]
    assert len(middle) == 5
    counter = load_tokenizer("o200k_base")
    words = [template()[name].replace("{problem}", "Which {lake}?") for name in ("initial", "final")]
    assert prompt.tokens == sum(map(counter.count, [*words, *PAGES.values()]))
    assert prompt.text == "\n".join([words[0], *shuffled(list(PAGES.values()), 0), words[1]])


def test_additional_pages_are_cut_in_order_and_required_pages_fail() -> None:
    counter = load_tokenizer("o200k_base")
    full = build([row(*REQUIRED, *ADDITIONAL)], Shelf(PAGES), "8k")[0]
    assert isinstance(full, Prompt)
    each = counter.count(PAGES["https://a.test/"])
    (cut,) = build([row(*REQUIRED, *ADDITIONAL)], Shelf(PAGES), full.tokens - each)
    assert isinstance(cut, Prompt)
    assert [page.state for page in cut.pages] == ["taken", "taken", "taken", "taken", "cut"]
    (failed,) = build([row(*REQUIRED, *ADDITIONAL)], Shelf(PAGES), full.tokens - 4 * each)
    assert isinstance(failed, Failure)
    assert [page.state for page in failed.pages] == ["taken", "cut", "unread", "unread", "unread"]
    assert "doesn't fit" in failed.reason


def test_the_budget_is_met_to_the_token() -> None:
    full = build([row(*REQUIRED)], Shelf(PAGES), "8k")[0]
    assert isinstance(full, Prompt)
    assert isinstance(build([row(*REQUIRED)], Shelf(PAGES), full.tokens)[0], Prompt)
    assert isinstance(build([row(*REQUIRED)], Shelf(PAGES), full.tokens - 1)[0], Failure)


def test_messages_that_alone_are_over_the_budget_make_no_prompt() -> None:
    (got,) = build([row(*ADDITIONAL)], Shelf(PAGES), 10)
    assert isinstance(got, Failure)
    assert got.reason.endswith("tokens; the budget is 10")
    assert {page.state for page in got.pages} == {"unread"}


def test_no_row_and_no_page_goes_missing() -> None:
    shelf = Shelf({**PAGES, "https://short.test/": "Please enable JavaScript."})
    rows = [
        row(("https://gone.test/", "required"), *REQUIRED, task_id="dead"),
        row(
            *REQUIRED,
            ("https://gone.test/", "additional"),
            task_id="some",
        ),
        row(("https://short.test/", "required"), task_id="short"),
        row(task_id="none"),
        row(("https://a.test/", "perhaps"), task_id="role"),
    ]
    results = build(rows, shelf, "8k")
    assert [result.task_id for result in results] == ["dead", "some", "short", "none", "role"]
    assert [type(result) for result in results] == [Failure, Prompt, Prompt, Failure, Failure]
    assert "https://gone.test/" in getattr(results[0], "reason", "")
    assert [page.state for page in results[1].pages] == ["taken", "taken", "dead"]
    assert "short: 25 characters" in results[2].pages[0].notes


def test_the_same_certificate_gives_the_same_bytes_and_another_differs() -> None:
    rows = [row(*REQUIRED, *ADDITIONAL)]
    one, again = (build(rows, Shelf(dict(PAGES)), "8k", seed=7)[0] for _ in range(2))
    assert isinstance(one, Prompt)
    assert one == again
    changed = dict(PAGES) | {"https://a.test/": "Another text. " * 30}
    others = [
        build(rows, Shelf(PAGES), "8k", seed=8)[0],
        build(rows, Shelf(PAGES), "9k", seed=7)[0],
        build(rows, Shelf(PAGES), "8k", "cl100k_base", 7)[0],
        build(rows, Shelf(PAGES), "8k", seed=7, algorithm="sha256")[0],
        build(rows, Shelf(changed), "8k", seed=7)[0],
    ]
    digests = {one.digest, *(other.digest for other in others if isinstance(other, Prompt))}
    assert len(digests) == 6
    certificate = one.certificate
    assert certificate["prompt"] == hashlib.sha256(one.text.encode()).hexdigest()
    assert certificate["snapshot"] == "5" * 64
    assert json.loads(json.dumps(certificate)) == certificate


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    first, second = row(*REQUIRED, *ADDITIONAL, task_id="1"), row(*REQUIRED, task_id="2")
    alone = build([first], Shelf(PAGES), "8k", seed=3)
    assert build([second, first], Shelf(PAGES), "8k", seed=3)[1] == alone[0]


@pytest.mark.parametrize(
    ("text", "tokens"), [("8k", 8192), ("128k", 131072), ("256K", 262144), ("2M", 2097152), (9, 9)]
)
def test_budgets(text: str | int, tokens: int) -> None:
    assert parse_budget(text) == tokens


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5k", "lots"])
def test_wrong_budgets(text: str) -> None:
    with pytest.raises(UsageError, match="budget"):
        parse_budget(text)


# Ids that the vocabularies are known by (published with them, and given by every implementation).
IDS = {
    "o200k_base": {"hello world": [24912, 2375]},
    "cl100k_base": {"hello world": [15339, 1917], "tiktoken is great!": [83, 1609, 5963, 374, 2294, 0]},
}


@pytest.mark.parametrize("name", IDS)
def test_known_ids(name: str) -> None:
    tokenizer = load_tokenizer(name)
    for text, ids in IDS[name].items():
        assert tokenizer.encode(text) == ids
        assert tokenizer.count(text) == len(ids)


def test_odd_texts_are_counted() -> None:
    tokenizer = load_tokenizer("o200k_base")
    for text in ["", "<|endoftext|>", "\ud800", "\u9759\u6b62", "a" * 100_000]:
        assert tokenizer.count(text) == len(tokenizer.encode(text))
    with pytest.raises(UsageError, match="tokenizer"):
        load_tokenizer("other")


def test_what_was_counted_once_is_not_counted_again() -> None:
    words = random.Random(1)
    vocabulary = [
        "".join(words.choices("abcdefghijklmnopqrstuvwxyz", k=words.randint(2, 8))) for _ in range(3000)
    ]
    pages = {f"https://p{i}.test/": " ".join(words.choices(vocabulary, k=3000)) for i in range(126)}
    rows = [row(*((url, "required" if i < 3 else "additional") for i, url in enumerate(pages)))]
    spent: list[float] = []
    for _ in range(2):
        with cpu_seconds() as took:
            (prompt,) = build(rows, Shelf(pages), "1M")
        spent += took
    assert isinstance(prompt, Prompt)
    assert prompt.tokens > 1_000_000
    assert spent[0] < 10, spent
    assert spent[1] < spent[0] / 4, spent


def test_a_page_of_which_the_recording_does_not_decide_is_told(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/first", ARTICLE)
        sent = b'{"user":"ann"}'
        site.add(f"{SITE}/login", status=303, method="POST", sent=sent, headers=(("Location", "/"),))
        site.add(f"{SITE}/home", ARTICLE)
    with Snapshot.open(tmp_path / "snap") as snapshot:
        reader = PageReader(snapshot)
        told = "the recording does not decide that it is this answer"
        assert [told in reader.read(SITE + path).notes for path in ("/first", "/home")] == [False, True]


def test_a_fragment_is_read_from_its_page_and_an_empty_page_is_dead(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/page", ARTICLE)
        site.add(f"{SITE}/empty", "<title>Nothing</title>")
    with Snapshot.open(tmp_path / "snap") as snapshot:
        reader = PageReader(snapshot)
        assert reader.read(f"{SITE}/page#part").text == reader.read(f"{SITE}/page").text != ""
        assert reader.read(f"{SITE}/empty").dead == "its text is empty"
