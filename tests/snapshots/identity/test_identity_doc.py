"""The examples in docs/identity.md are true."""

import doctest
from pathlib import Path


def test_the_examples_are_true() -> None:
    page = Path(__file__).parents[3] / "docs" / "identity.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried >= 10
    assert failed == 0
