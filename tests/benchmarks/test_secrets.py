"""Of the corpus of secrets and look-alikes, as many are found, and as few taken for one, as is promised."""

import pytest

from benchmarks.secrets import COUNT, FALSE, FOUND, corpus, judge, totals


@pytest.mark.slow
@pytest.mark.parametrize("secret", [True, False], ids=["secrets", "look-alikes"])
def test_the_corpus(secret: bool) -> None:
    secrets, look_alikes = corpus(1)
    counts, wrong = judge(secrets if secret else look_alikes, secret=secret)
    found = totals(counts)
    assert found.all == COUNT
    if secret:
        assert min(found.replaced, found.reported) >= FOUND * COUNT, wrong
    else:
        assert max(found.replaced, found.reported) <= FALSE * COUNT, wrong
