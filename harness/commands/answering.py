"""Options shared by commands that answer from a snapshot."""

from __future__ import annotations

from typing import Any

import click

from stillweb.harness.commands.address import LocalPath
from stillweb.harness.commands.finite import FiniteRange
from stillweb.snapshots.evidence import SERVED, SURE


class _Threshold(FiniteRange):
    """A confidence: a number from 0 to 1, or `sure`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Fail with a usage error for anything else."""
        return SURE if value == "sure" else super().convert(value, param, ctx)


min_confidence_option = click.option(
    "--min-confidence",
    type=_Threshold(0, 1),
    default=SERVED,
    show_default=True,
    metavar="X|sure",
    help="Lowest confidence served, from 0 to 1; 'sure' is 0.99.",
)
max_expected_wrong_option = click.option(
    "--max-expected-wrong",
    type=FiniteRange(0),
    metavar="X",
    help="A gate: exit code 1 if more than X answers are expected to be wrong (the sum of 1 - confidence).",
)
accept_option = click.option(
    "--accept",
    default="rule",
    show_default=True,
    metavar="VERDICT",
    help="Lowest verdict served: exact, canonical, varies or rule; '+unambiguous' refuses guesses.",
)
at_option = click.option(
    "--at",
    default="",
    metavar="DATE",
    help="See nothing later than DATE (2026-03-01), and of several answers the newest; 'latest' for the newest of all.",
)
timing_option = click.option(
    "--timing",
    default="none",
    show_default=True,
    metavar="recorded|xN|none",
    help="Send answers with the recorded time to their first byte and at the recorded pace, or N times as slowly.",
)
faults_option = click.option(
    "--faults",
    type=LocalPath(exists=True, dir_okay=False),
    metavar="FILE",
    help="Disturb answers on purpose, as a YAML file says (docs/drills.md).",
)
synthetic_search_option = click.option(
    "--synthetic-search", is_flag=True, help="Answer searches that were never recorded from the frozen texts."
)
