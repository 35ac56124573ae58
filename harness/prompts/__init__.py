"""Long-context prompts, built from a snapshot's frozen texts and certified one by one.

build(rows, snapshot, budget, tokenizer=…, seed=…, algorithm=…) -> list[Prompt | Failure]
"""

from stillweb.harness.prompts.build import ALGORITHMS, Failure, Page, Prompt, build, parse_budget
from stillweb.harness.prompts.order import hash_order, shuffled
from stillweb.harness.prompts.pages import PageReader
from stillweb.harness.prompts.tokens import TOKENIZERS, Tokenizer, load_tokenizer

__all__ = [
    "ALGORITHMS",
    "TOKENIZERS",
    "Failure",
    "Page",
    "PageReader",
    "Prompt",
    "Tokenizer",
    "build",
    "hash_order",
    "load_tokenizer",
    "parse_budget",
    "shuffled",
]
