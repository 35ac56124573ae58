from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stillweb.harness.commands.options import FILE, OUT, PATH, engine_option
from stillweb.harness.console import make_search_ready, print_json, progress, say


@click.command("seal")
@click.argument("snapshot", type=PATH)
@click.option("-o", "--out", type=OUT, help="The file to write; SNAPSHOT.wacz by default.")
@click.option(
    "--rules", type=FILE, help="A file of rules of your own (docs/identity.md), kept in the snapshot."
)
@click.option("--keep-secrets", is_flag=True, help="Seal in spite of secrets that were learned too late.")
@click.option(
    "--search-index", is_flag=True, help="Build the search index now; it is kept in the user's cache."
)
@click.option(
    "--sign",
    type=FILE,
    metavar="KEY",
    help="Sign it with the P-384 private key in a PEM file (WACZ-auth 0.1).",
)
@click.option(
    "--certificate",
    type=FILE,
    metavar="PEM",
    help="With --sign and --timestamp: the key's certificate for a domain, and those above it.",
)
@click.option("--timestamp", metavar="URL", help="With --certificate: a time-stamp authority (RFC 3161).")
@engine_option("Extract texts")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    snapshot: Path,
    out: Path | None,
    search_index: bool,
    engine: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Freeze the texts of SNAPSHOT, sort its index and make one .wacz file.

    \b
    stillweb seal site               writes site.wacz
    stillweb seal site -o v1.wacz
    stillweb seal site --sign key.pem
    """
    from stillweb.snapshots._os.cluster import workers_of
    from stillweb.snapshots.wacz import seal

    if options["sign"] is None and (options["certificate"] or options["timestamp"]):
        raise click.UsageError("--certificate and --timestamp go with --sign")
    with progress("sealing", unit="bytes") as advance:
        report = seal(snapshot, out, progress=advance, pool=workers_of(engine), **options)
    if search_index:
        from stillweb.snapshots import Snapshot

        with Snapshot.open(report.path) as sealed:
            make_search_ready(sealed)
    if as_json:
        print_json(report.to_json())
        return
    say(report.text())
    click.echo(str(report.path))
