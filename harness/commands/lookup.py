from __future__ import annotations

import os
from pathlib import Path

import click

from stillweb.harness.commands.options import (
    accept_option,
    at_option,
    min_confidence_option,
    read_headers,
    split_address,
)
from stillweb.harness.console import print_json, say_damage


@click.command("lookup")
@click.argument("snapshots", nargs=-1, required=True, metavar="SNAPSHOTS... URL")
@click.option("-X", "--method", default=None, help="The method; GET by default, POST with --data.")
@click.option("-d", "--data", default=None, help="The body; @FILE reads it from a file.")
@click.option("-H", "--header", "headers", multiple=True, help="A header, as 'Name: value'.")
@accept_option
@min_confidence_option
@at_option
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(
    at: str,
    snapshots: tuple[str, ...],
    method: str | None,
    data: str | None,
    headers: tuple[str, ...],
    accept: str,
    min_confidence: float,
    as_json: bool,
) -> int:
    """Say what would be served for URL, by which verdict, and why not the others.

    Exit code 1 for a miss, and for what failed while recording.

    \b
    stillweb lookup site.wacz 'https://example.com/list?page=2'
    stillweb lookup site.wacz https://example.com/api -X POST -d '{"q": 1}' -H 'Content-Type: application/json'
    """
    from stillweb.api import lookup
    from stillweb.api import open as open_snapshot
    from stillweb.snapshots import Request

    paths, url = split_address(snapshots, "a URL")
    body = b""
    if data is not None:
        body = Path(data[1:]).read_bytes() if data.startswith("@") else os.fsencode(data)
    pairs = read_headers(headers)
    if body and not any(name.lower() == "content-type" for name, _ in pairs):
        pairs.append(("Content-Type", "application/x-www-form-urlencoded"))
    request = Request(method or ("POST" if data is not None else "GET"), url, tuple(pairs), body)
    with open_snapshot(*paths, at=at) as snapshot:
        say_damage(snapshot)
        answer = lookup(snapshot, request, accept=accept, min_confidence=min_confidence)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['verdict']}{' (ambiguous)' if answer['ambiguous'] else ''}")
        for name in ("confidence", "derived", "why"):
            if name in answer:
                click.echo(f"  {name}: {answer[name]}")
        for ground in answer.get("grounds", ()):
            click.echo(f"  ground: {ground}")
        for name, value in answer.get("capture", {}).items():
            click.echo(f"  {name}: {value}")
        if "capture" not in answer and not answer["nearest"] and "why" not in answer:
            click.echo("  near: nothing")
        for near in answer["nearest"]:
            click.echo(f"  near: {near['method']} {near['url']}")
            for line in near["differs"]:
                click.echo(f"    {line}")
            if near["rule"]:
                click.echo(f"    rule {near['rule']} would join them")
    return 1 if answer["verdict"] == "miss" or answer["verdict"].startswith("failed:") else 0
