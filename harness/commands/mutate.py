from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillweb.harness.commands.options import FILE, OUT, SNAPSHOT
from stillweb.harness.console import print_json, say
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.view import View


@click.command("mutate")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option("-o", "--out", required=True, type=OUT, help="The layer, a new directory.")
@click.option("--spec", type=FILE, help="A YAML file of mutations.")
@click.option(
    "--id", "name", help="The id of the layer, in its verdict mutated:ID; by default the first change."
)
@click.option("--url", default="*", show_default=True, help="Which answers change; * stands for any text.")
@click.option("--css", help="A CSS selector.")
@click.option("--json-path", help="A path in a JSON document, such as items[*].price.")
@click.option("--text", help="Set the text of what --css or --json-path finds.")
@click.option("--replace", "words", nargs=2, multiple=True, metavar="OLD NEW", help="Replace words.")
@click.option("--drop", is_flag=True, help="Remove what --css or --json-path finds.")
@click.option("--popup", help="Cover the page with a pop-up that says this.")
@click.option("--banner", help="Put a banner at the top that says this.")
@click.option("--inject", metavar="ID", help="Insert a prompt injection of the library; `list` lists them.")
@click.option(
    "--place",
    type=click.Choice(["visible", "hidden", "attribute", "comment", "json", "pdf", "tool"]),
    default="visible",
    show_default=True,
    help="Where --inject puts it.",
)
@click.option(
    "--tasks",
    type=FILE,
    help="JSONL tasks; OUT/tasks.jsonl gets them with the gold answers that follow (`gold` of the spec, or --replace).",
)
@click.option(
    "--browser/--no-browser",
    default=True,
    show_default=True,
    help="Take the screenshots of changed views again, or drop them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    snapshots: tuple[Path | str, ...],
    out: Path,
    spec: Path | None,
    name: str | None,
    tasks: Path | None,
    browser: bool,
    as_json: bool,
    **change: Any,
) -> None:
    """Write a layer that changes SNAPSHOTS on purpose; they stay as they are (docs/drills.md).

    \b
    stillweb mutate site.wacz -o dearer --url '*/item/*' --replace '£19' '£99' --tasks tasks.jsonl
    stillweb mutate site.wacz -o injected --inject override --place hidden
    stillweb run … --snapshot site.wacz --snapshot dearer -o run2
    """
    from stillweb.harness._parsing import read_yaml
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.operations.mutate import follow_gold, injections, mutate, read_spec

    if change["inject"] == "list":
        for known, found in injections().items():
            click.echo(f"{known}: {found['source']}")
        return
    options = _spec(name, change)
    if (spec is None) == (options is None):
        raise click.UsageError(
            "give either --spec, or one change by options (--text, --replace, --inject, …)"
        )
    content = options if spec is None else read_spec(read_yaml(spec), str(spec))
    assert content is not None
    if spec is not None:  # its pictures are named as seen from its folder
        for entry in content["mutations"]:
            if "picture" in entry:
                entry["picture"] = str(spec.parent / entry["picture"])
    lines = tasks.read_text(encoding="utf-8").splitlines() if tasks is not None else []
    where = str(spec) if spec is not None else "options"
    with Snapshot.open(*snapshots) as opened:
        report = mutate(opened, content, out, where, _look if browser else None)
    followed: list[str] = []
    if tasks is not None:
        new, followed = follow_gold([line for line in lines if line.strip()], report.gold, where)
        (out / "tasks.jsonl").write_text("".join(f"{line}\n" for line in new), encoding="utf-8")
    if as_json:
        print_json({**report.to_json(), "tasks": followed})
        return
    for one in report.dropped:
        say(f"dropped, as it would show the page as it was: {one}")
    click.echo(
        f"{out}: mutated:{report.id} changes {pluralize(len(report.changed), 'answer')} and "
        f"{pluralize(len(report.views), 'view')}; {report.copied} copied beside them"
    )
    if tasks is not None:
        click.echo(
            f"{out / 'tasks.jsonl'}: the gold of {pluralize(len(followed), 'task')} follows: {json.dumps(followed)}"
        )


def _look(snapshot: Snapshot, views: Sequence[View]) -> Mapping[str, Mapping[str, bytes]]:
    from stillweb.proxy.browser.running import run
    from stillweb.proxy.check.check import reread_views

    return run(reread_views(snapshot, views))


def _spec(name: str | None, change: dict[str, Any]) -> dict[str, Any] | None:
    """Return the spec that the options describe; None if they name no change."""
    one: dict[str, Any] = {"url": change["url"]}
    one |= {
        key: change[key] for key in ("css", "text", "popup", "banner", "inject") if change[key] is not None
    }
    if change["json_path"] is not None:
        one["json"] = change["json_path"]
    if change["drop"]:
        one["drop"] = True
    if change["words"]:
        one["replace"] = one["gold"] = dict(change["words"])
    if change["inject"]:
        one["place"] = change["place"]
    acts = [act for act in ("text", "replace", "drop", "popup", "banner", "inject") if act in one]
    if not acts:
        return None
    return {"id": name or change["inject"] or acts[0], "mutations": [one]}
