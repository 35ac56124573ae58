"""Options shared by commands that answer from a snapshot."""

from __future__ import annotations

import click

accept_option = click.option(
    "--accept",
    default="rule",
    show_default=True,
    metavar="VERDICT",
    help="Lowest verdict served: exact, canonical, varies or rule; '+unambiguous' refuses guesses.",
)
synthetic_search_option = click.option(
    "--synthetic-search", is_flag=True, help="Answer searches that were never recorded from the frozen texts."
)
