from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from stillweb.harness.commands.options import (
    FOLDER,
    SNAPSHOT_TO_BE,
    OptionFor,
    accept_option,
    at_option,
    served_options,
    synthetic_search_option,
)
from stillweb.harness.console import make_search_ready, say, say_damage, say_failures


@click.command("mcp")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT_TO_BE)
@click.option(
    "--contract",
    "contracts",
    multiple=True,
    default=("fetch",),
    show_default=True,
    metavar="CONTRACT",
    help="mcp-fetch, serper-mcp, pdf-reader or playwright-mcp, with or without @version; or module:object, a tool of your own. May be given several times.",
)
@served_options
@click.option(
    "--uploads",
    type=FOLDER,
    help="A folder of files that clients may give to pages, or read; by default there are none.",
)
@at_option
@accept_option
@synthetic_search_option
@click.option("--max-requests", type=click.IntRange(1), help="Most calls of a session.")
@click.option(
    "--max-pages", type=click.IntRange(1), help="Highest page of a search, and most PDF pages of a call."
)
@click.option("--max-records", type=click.IntRange(1), help="Most results of one search page.")
@click.option(
    "--record", is_flag=True, help="Ask the real web, and store what comes in SNAPSHOT, a directory."
)
@click.option(
    "--private/--no-private",
    cls=OptionFor,
    needs="--record",
    default=False,
    show_default=True,
    help="let the client ask addresses that are not public, too: this machine, private networks, "
    "metadata of clouds.",
)
def command(
    at: str,
    snapshots: tuple[Path | str, ...],
    contracts: tuple[str, ...],
    transport: Literal["stdio", "http"],
    port: int | None,
    uploads: Path | None,
    accept: str,
    synthetic_search: bool,
    max_requests: int | None,
    max_pages: int | None,
    max_records: int | None,
    record: bool,
    private: bool,
) -> None:
    """Serve the frozen web of SNAPSHOTS through the tools that agents already call.

    \b
    stillweb mcp site.wacz --contract fetch --contract pdf-reader
    stillweb mcp site.wacz --contract playwright-mcp --transport http --port 8931
    stillweb mcp site --record --contract fetch                    fetch for real, and keep what came
    """
    from stillweb.api import open as open_snapshot
    from stillweb.api import serve, serve_live
    from stillweb.harness.tools import Limits

    limits = Limits(requests=max_requests, pages=max_pages, records=max_records)

    def ready(url: str) -> None:
        say(f"serving at {url}")

    if record:
        if uploads is not None:
            raise click.UsageError("--uploads goes without --record: no tool that records reads files")
        if len(snapshots) != 1 or isinstance(snapshots[0], str):
            raise click.UsageError("--record takes one SNAPSHOT: the directory to record into")
        say_failures(
            serve_live(
                snapshots[0], *contracts, private=private, limits=limits, transport=transport, port=port or 0, ready=ready
            )
        )  # fmt: skip
        return
    with open_snapshot(*snapshots, at=at) as snapshot:
        say_damage(snapshot)
        if synthetic_search:
            make_search_ready(snapshot)
        serve(
            snapshot, *contracts, transport=transport, port=port or 0, ready=ready, accept=accept,
            synthetic_search=synthetic_search, limits=limits, uploads=uploads,
        )  # fmt: skip
