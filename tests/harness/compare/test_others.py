"""Changes that a comparison by `em` does not show."""

from stillweb.harness.compare.compare import Outcome, compare, other_metrics_worse


def run(**tasks: dict[str, float | None]) -> list[Outcome]:
    return [Outcome(name, name, 1, metrics, "scored") for name, metrics in tasks.items()]


def told(a: list[Outcome], b: list[Outcome], metric: str | None = None) -> list[str]:
    return other_metrics_worse(compare(a, b, metric), a, b)


def test_a_table_that_is_less_right_and_was_never_wholly_right_is_told() -> None:
    a = run(t={"em": 0.0, "item_f1": 0.9, "raw_item_f1": 0.9}, u={"em": 1.0, "item_f1": 1.0})
    b = run(t={"em": 0.0, "item_f1": 0.25, "raw_item_f1": 0.1}, u={"em": 0.0, "item_f1": 0.5})
    said = "not worse by em, but by item_f1: 1 task (t 0.900 to 0.250; --metric item_f1 compares by it)"
    assert told(a, b) == [said]  # u is worse by em, which stands in the table
    assert told(a, a) == told(b, a) == []
    assert told(a, b, "item_f1") == []


def test_an_answer_that_can_no_longer_be_read_has_lost_all_of_it() -> None:
    a = run(t={"em": 0.0, "item_f1": 0.5}, u={"em": 0.0, "item_f1": 0.5})
    b = [
        Outcome("t", "t", 1, {"em": None, "item_f1": None}, "unparsable"),
        *run(u={"em": 0.0, "item_f1": 0.4}),
    ]
    (said,) = told(a, b)
    assert "2 tasks (the first: t 0.500 to 0.000;" in said
