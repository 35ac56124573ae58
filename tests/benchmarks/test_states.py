"""The measure of servers that remember: what its figures count."""

from collections.abc import Callable

import pytest

from benchmarks.everyday import EVERYDAY
from benchmarks.mini_services import SITES
from benchmarks.mini_sites import Mini
from benchmarks.states import (
    DEFAULT,
    ENGINES,
    GROUPS,
    RANDOM,
    RECORDED,
    Session,
    Step,
    curve,
    figures,
    held_out,
    largest_gap,
    measure,
    report,
)
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.matcher import Store
from stillweb.snapshots.request import Request


class _First:
    """An engine that always serves the first recorded answer and says that it is sure."""

    def __init__(self, store: Store) -> None:
        self._answers = {store.read_request(c): store.read(c) for c in reversed([*store.captures()])}

    def ask(self, request: Request) -> tuple[Response | None, float]:
        response = self._answers.get(request)
        return response, 1.0 if response is not None else 0.0

    def settle(self, served: bool) -> None:
        pass

    def happened(self, request: Request, response: Response) -> None:
        pass


def _first(store: Store) -> Callable[[], Session]:
    return lambda: _First(store)


def _named(name: str) -> Mini:
    return next(one for one in (*SITES, *EVERYDAY) if one.name == name)


@pytest.mark.parametrize("name", ["seen_last", "shop", "stateless", "login_then_pages", "language_by_cookie"])
def test_walks_as_recorded_are_right(name: str) -> None:
    steps = [step for seed in range(2) for step in measure(_named(name), seed, ENGINES["evidence"])[RECORDED]]
    assert len(steps) > 20
    assert all(step.right and step.answerable and step.confidence >= DEFAULT for step in steps)


def test_an_engine_that_knows_no_state_is_caught() -> None:
    steps = [step for seed in range(3) for step in measure(_named("filtered"), seed, _first)[RANDOM]]
    assert figures(steps)["sure and wrong"] > 0.1
    assert curve(steps, 0.01)[0] == 0.0
    assert largest_gap([step for step in steps for _ in range(100)]) > 0.1


def test_a_server_that_remembers_nothing_is_answered_whole() -> None:
    steps = [step for seed in range(3) for step in measure(_named("stateless"), seed, _first)[RANDOM]]
    assert curve(steps, 0.01) == (1.0, 1.0)


def test_the_curve_stands_at_the_lowest_threshold_within_its_limit() -> None:
    steps = [Step(0.9, True, True)] * 60 + [Step(0.8, False, True)] * 2 + [Step(0.7, True, True)] * 30 + [Step(0.3, False, True)] * 8  # fmt: skip
    assert curve(steps, 0.01) == (0.6, 0.9)
    assert curve(steps, 0.03) == (0.9, 0.7)
    assert curve(steps, 0.10) == (0.9, 0.3)
    found = figures(steps, 0.75)
    assert (found["right"], found["wrong"], found["needless misses"]) == (0.6, 0.02, 0.38)


def test_each_server_is_in_one_group_and_a_third_is_kept_back() -> None:
    grouped = [mini.name for name, group in GROUPS.items() for mini in group if name != "unseen"]
    assert sorted(grouped) == sorted(mini.name for mini in (*SITES, *EVERYDAY))
    assert 0.25 < sum(map(held_out, grouped)) / len(grouped) < 0.42


def test_each_everyday_server_answers_its_requests_and_is_no_error() -> None:
    for mini in EVERYDAY:
        steps = measure(mini, 2, _first)[RECORDED]
        assert len(steps) >= 18, mini.name


def test_the_report_has_a_row_for_each_kind_of_walk() -> None:
    text = report({"everyday": {"facets": measure(_named("facets"), 0, _first)}})
    for name in ("everyday: random", "everyday: shuffled", "everyday: left out", "**everyday**"):
        assert f"| {name} |" in text
