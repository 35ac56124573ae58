"""What a run says where there is no terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from stillweb.harness.agents.attempt import Spent
from stillweb.harness.runs.display import PlainDisplay, describe
from stillweb.harness.runs.engine import Job, Outcome
from tests.support.waiting import until


def attempt(name: str) -> Any:
    return SimpleNamespace(
        task=SimpleNamespace(id=name), number=1, session=name, spent=Spent(steps=3, calls=7)
    )


def test_a_run_in_which_nothing_ends_says_what_is_still_running() -> None:
    """An agent that hangs looked like a CI that hangs."""
    stream = io.StringIO()
    with PlainDisplay(stream, quiet=0.01) as shown:
        shown.begin(9)
        for number in range(7):
            shown.changed(attempt(f"t{number}"))
        shown.left(attempt("t0"), 1.0)
        assert until(lambda: "[0/9] none ended for 0.02 s" in stream.getvalue())
    text = stream.getvalue()
    assert "still running: t1/1 (3 model calls, 7 tool calls), t2/1" in text
    assert text.splitlines()[0].endswith("t5/1 (3 model calls, 7 tool calls) and 1 more")


def test_the_line_of_a_scored_attempt_has_its_answer_cut_to_a_line() -> None:
    outcome = Outcome(
        Job("a", 2), "answered", "scored", {"exact": 1.0}, answer="one\n\x1b[2Jtwo " + "x" * 200
    )
    line = describe(outcome)
    assert line.startswith("a/2  scored  exact 1, answer: one \ufffd[2Jtwo xxx")
    assert line.endswith("x…")
    assert len(line) < 130


def test_a_figure_that_is_not_whole_does_not_look_it() -> None:
    line = describe(Outcome(Job("a", 1), "answered", "scored", {"em": 0.9996, "item_f1": 0.0004}))
    assert "em 0.9996, item_f1 0.0004" in line
