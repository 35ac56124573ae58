"""What could not be recorded is told without secrets, and taken back whatever is learned meanwhile."""

from __future__ import annotations

import pytest

from stillweb.proxy.record.flows import FailureLog
from stillweb.snapshots.secrets.redact import Redactor

SECRET = "k9xq2vlm7prt4wzs8nbd1fgh"


@pytest.mark.parametrize("path", ["", "favicon.ico"])
def test_what_is_taken_back_may_name_a_secret_that_was_learned_since(path: str) -> None:
    redactor = Redactor(b"key")
    lost = FailureLog(redactor)
    url = f"https://{SECRET}.a.test/{path}"
    first = lost.add(url, "closed")
    redactor.learn(SECRET)
    second = lost.add(url, "closed")
    assert SECRET in first[0]
    assert SECRET not in second[0]
    lost.settle(first)
    assert [*lost.failures, *lost.errands] == [second]
