from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import (
    SNAPSHOT,
    accept_option,
    min_confidence_option,
    served_options,
)
from stillweb.harness.console import say, say_damage
from stillweb.snapshots.words import pluralize


@click.command("mcp-replay")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option("--server", default="", help="The server's name, if the snapshot holds several.")
@served_options
@click.option("--max-misses", type=click.IntRange(0), help="A gate: exit code 1 after more misses than N.")
@accept_option
@min_confidence_option
@click.pass_context
def command(
    ctx: click.Context,
    snapshots: tuple[Path | str, ...],
    server: str,
    transport: str,
    port: int | None,
    max_misses: int | None,
    accept: str,
    min_confidence: float,
) -> None:
    """Answer as the MCP server that `mcp-record` recorded: a call that was not recorded is an error.

    \b
    stillweb mcp-replay site.wacz
    stillweb mcp-replay site.wacz --transport http --port 8931
    """
    from stillweb.harness.servers.mcp_tape import Tape, serve
    from stillweb.snapshots import Snapshot

    with Snapshot.open(*snapshots) as snapshot:
        say_damage(snapshot)
        tape = Tape(snapshot, server, accept=accept, min_confidence=min_confidence)
        serve(tape, transport, port or 0, ready=lambda url: say(f"serving at {url}"))
        say(f"{pluralize(tape.calls, 'call')}, {pluralize(tape.misses, 'miss')}")
    if max_misses is not None and tape.misses > max_misses:
        ctx.exit(1)
