from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import OUT, OptionFor, read_headers
from stillweb.harness.commands.program import WithProgram, program_of
from stillweb.harness.console import say
from stillweb.snapshots.words import pluralize


@click.command("mcp-record", cls=WithProgram)
@click.option("-o", "--out", required=True, type=OUT, help="The snapshot, a directory; may exist.")
@click.option(
    "--url", metavar="URL", help="Record the server that speaks HTTP there, in place of one to start."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    cls=OptionFor,
    needs="--url",
    help="a header to send with every request; it is not kept.",
)
@click.option("--name", default="", help="Name of the server in the snapshot; by default its own.")
@click.pass_context
def command(ctx: click.Context, out: Path, url: str | None, headers: tuple[str, ...], name: str) -> None:
    """Record what a client and an MCP server say to each other: give this command to the client as the server.

    \b
    stillweb mcp-record -o site -- mcp-server-time --local-timezone UTC
    stillweb mcp-record -o site --url https://mcp.example/mcp --header "Authorization: Bearer $TOKEN"
    stillweb mcp-replay site
    """
    program = program_of(ctx)
    if (url is None) == (not program):
        raise click.UsageError("give the server to start after '--' (-- SERVER ARGS...), or --url")
    from stillweb.harness.servers.mcp_tape import record, record_url

    if url is not None:
        recording, code = record_url(out, url, read_headers(headers), name)
    else:
        recording, code = record(out, program, name)
    say(f"{out}: {pluralize(recording.stored, 'call')} recorded")
    for left in recording.left:
        say(f"not recorded: {left}")
    if code > 0:
        say(f"{url or program[0]} ended with exit code {code}")
        ctx.exit(code if code < 126 else 1)
