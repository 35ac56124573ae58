"""Command lines that end in `-- PROGRAM ARGS…`."""

from __future__ import annotations

from collections.abc import Mapping

import click

_KEY = "stillweb.program"


class WithProgram(click.Command):
    """Command that takes the words after the first `--` as a program to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[_KEY] = args[place + 1 :]
            if not args[place + 1 :]:
                raise click.UsageError("nothing stands after '--'; give the program to run", ctx)
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM ARGS...]"]


def program_of(ctx: click.Context) -> list[str]:
    """Return the words after `--`; empty if there was no `--`."""
    words: list[str] = ctx.meta.get(_KEY, [])
    return words


def only_with_program(program: list[str], given: Mapping[str, object]) -> None:
    """Raise UsageError for a given option that needs a program, if there is none."""
    for option, value in given.items():
        if value and not program:
            raise click.UsageError(f"{option} is for a program after '--'")
