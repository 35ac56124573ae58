from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import FILE, SNAPSHOT
from stillweb.harness.console import left_out_notes, print_json, progress, say
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.operations.leaks import Leak
    from stillweb.snapshots.operations.verifying import Problem


MOST_CUT = 20  # answers whose bodies are incomplete that are named


@click.command("verify")
@click.argument("snapshots", type=SNAPSHOT, nargs=-1, required=True)
@click.option("--secrets", is_flag=True, help="Also look for keys, tokens, passwords and session cookies.")
@click.option("--second-reader", is_flag=True, help="Have warcio read every record, too, and compare.")
@click.option(
    "--signer",
    "signers",
    multiple=True,
    type=FILE,
    metavar="KEY",
    help="A gate: exit code 1 unless it is signed by the public key in this PEM file, or in another --signer.",
)
@click.option(
    "--authority",
    "authorities",
    multiple=True,
    type=FILE,
    metavar="PEM",
    help="A gate: exit code 1 unless certificate and time stamp of its signature are issued under these roots.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the problems as JSON.")
def command(
    snapshots: tuple[Path | str, ...],
    secrets: bool,
    second_reader: bool,
    signers: tuple[Path, ...],
    authorities: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Re-read every record, digest, offset, index line and listed file of each of SNAPSHOTS.

    With --secrets also what still looks like a secret, in archives that others made as in our own; each is told by its
    kind, its place and its first characters.

    \b
    stillweb verify site.wacz                exit code 0: sound, 3: damaged
    stillweb verify site.wacz --secrets      also 1: sound, but something looks like a secret
    """
    from stillweb.snapshots.operations.verifying import verify

    problems: list[Problem] = []
    leaks: list[Leak] = []
    foreign = False
    for snapshot in snapshots:
        with progress("verifying", unit="bytes") as advance:
            found = verify(snapshot, progress=advance, second_reader=second_reader)
        leaked = _leaks(snapshot) if secrets and not found else []
        if not as_json:
            _report(snapshot, found, leaked if secrets else None)
        if (signers or authorities) and not found:
            from stillweb.snapshots.operations.signatures import certificates_in, check_signer, public_key_in

            roots = [one for path in authorities for one in certificates_in(path.read_text(), str(path))]
            if why := check_signer(snapshot, [public_key_in(key) for key in signers], roots):
                say(f"{snapshot}: {why}; --signer and --authority name who may sign")
                foreign = True
        problems += found
        leaks += leaked
    if as_json:
        listed = [asdict(problem) for problem in problems]
        print_json({"problems": listed, "secrets": [asdict(leak) for leak in leaks]} if secrets else listed)
    return 3 if problems else int(bool(leaks or foreign))


def _report(snapshot: Path | str, problems: list[Problem], leaks: list[Leak] | None) -> None:
    """Print what was found in a snapshot; `leaks` is None if secrets were not looked for."""
    for problem in problems:
        click.echo(str(problem))
    if (signature := _signature(snapshot)) is not None:
        click.echo(f"{snapshot}: signature: {signature}")
    for leak in leaks or ():
        click.echo(str(leak))
    if not problems:
        _tell(snapshot)
    click.echo(f"{snapshot}: {'sound' if not problems else pluralize(len(problems), 'problem')}")
    if leaks is not None and not problems:
        click.echo(f"{snapshot}: {pluralize(len(leaks), 'secret') if leaks else 'no secrets'}")


def _tell(path: Path | str) -> None:
    """Print what recorded a snapshot, and notes on what an import left out."""
    from stillweb.snapshots import Snapshot

    with Snapshot.open(path) as snapshot:
        for one in snapshot.provenance:
            click.echo(f"{path}: recorded {one}")
        for note in left_out_notes(snapshot):
            say(note)
        cut = [(c.url, why) for c in snapshot.captures() if (why := snapshot.cut_short(c))]
        for url, why in cut[:MOST_CUT]:
            say(f"cut short: {url}: {why}; its answers are presumed")
        if len(cut) > MOST_CUT:
            say(f"cut short: {len(cut) - MOST_CUT} more")


def _signature(path: Path | str) -> str | None:
    """Return a text about the signature of an archive from elsewhere, or None."""
    from stillweb.snapshots.errors import DamagedInput
    from stillweb.snapshots.operations.signatures import signature_of

    try:
        found = signature_of(path)
    except DamagedInput:
        return None  # `verify` reports it
    return None if found is None else found.words


def _leaks(path: Path | str) -> list[Leak]:
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.operations.leaks import scan

    with Snapshot.open(path) as snapshot, progress("looking for secrets") as advance:
        count = sum(1 for _ in snapshot.captures())
        return scan(snapshot, progress=lambda done: advance(done, count))
