from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import OUT, SNAPSHOT, engine_option
from stillweb.harness.console import print_json, progress, say, table
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.operations.upgrading import TextUpgrade


@click.command("text")
@click.argument("snapshot", type=SNAPSHOT)
@click.option("--upgrade", is_flag=True, help="Show what today's extractors would change, page by page.")
@click.option("--accept", is_flag=True, help="Write the new texts to a new snapshot; needs -o.")
@click.option("-o", "--out", type=OUT, help="A directory, or a file ending in .wacz.")
@click.option("--layer", is_flag=True, help="Write only the new texts, to lie over SNAPSHOT.")
@click.option(
    "--parallel", type=click.IntRange(1), help="Pages at once, a process each. [default: one for each core]"
)
@engine_option("Extract texts")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    snapshot: Path | str,
    upgrade: bool,
    accept: bool,
    out: Path | None,
    layer: bool,
    parallel: int | None,
    engine: str,
    as_json: bool,
) -> int:
    """Count the frozen texts of SNAPSHOT, and show what newer extractors would make of its pages.

    A snapshot's texts stay as they were frozen, whatever is installed. --upgrade shows what would change, with exit
    code 1 if anything would; only --accept writes it, beside the snapshot.

    \b
    stillweb text site.wacz
    stillweb text site.wacz --upgrade
    stillweb text site.wacz --upgrade --accept -o site-2.wacz
    stillweb text site.wacz --upgrade --accept -o texts --layer      then: stillweb replay site.wacz texts
    """
    if (accept or layer or out) and not (upgrade and accept and out):
        raise click.UsageError("new texts are written by --upgrade --accept -o NEW, all three")
    if not upgrade:
        _list(snapshot, as_json)
        return 0
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots._os.cluster import workers_of
    from stillweb.snapshots.operations.upgrading import accept as take_over
    from stillweb.snapshots.operations.upgrading import changes

    if accept:
        from stillweb.snapshots.operations import late_secrets

        late_secrets.refuse(snapshot)  # refuse before the work
    with Snapshot.open(snapshot) as opened, progress("extracting") as advance:
        found = list(changes(opened, workers=parallel, progress=advance, pool=workers_of(engine)))
    made = take_over(snapshot, found, out, layer=layer) if accept and out else None
    if as_json:
        print_json({"texts": [one.to_json() for one in found], "id": made})
    else:
        _show(found)
        if made is not None:
            say(f"{out}: id {made}" + (f"; a layer: give it after {snapshot}" if layer else ""))
    return 0 if made is not None or not found else 1


def _show(found: list[TextUpgrade]) -> None:
    from stillweb.snapshots.operations.diff import counts
    from stillweb.snapshots.operations.upgrading import KINDS, LOST, SAME

    for one in found:
        if one.kind == SAME:
            continue
        click.echo("{} {}  +{} -{} lines".format(one.kind, one.address, *counts(one.text)))
        if one.kind == LOST:
            why = "; ".join(one.after.warnings) if one.after else "its bytes are neither HTML nor PDF"
            click.echo(f"    {why}; the frozen text stays")
        click.echo("".join(f"    {line}\n" for line in one.text.splitlines()), nl=False)
    kinds = Counter(one.kind for one in found)
    names = {SAME: "only made by another version", LOST: "would be lost and stay"}
    click.echo(", ".join(f"{kinds[kind]} {names.get(kind, kind)}" for kind in KINDS))


def _list(path: Path | str, as_json: bool) -> None:
    from stillweb.snapshots import Snapshot

    with Snapshot.open(path) as snapshot:
        texts = list(snapshot.texts())
    if as_json:
        print_json(
            [
                {"address": t.address, "title": t.title, "media": t.media, "extractor": t.extractor,
                 "version": t.version, "characters": len(t.markdown),
                 "pages": None if t.pages is None else len(t.pages), "warnings": list(t.warnings)}
                for t in texts
            ]
        )  # fmt: skip
        return
    rows = [
        [f"{t.extractor}/{t.version}", str(len(t.markdown)), t.address, "; ".join(t.warnings)] for t in texts
    ]
    click.echo(table(["extractor", "characters", "address", "warnings"], rows))
    click.echo(pluralize(len(texts), "text"))
