"""`stillweb lookup`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from harness.commands.address import split_address
from harness.console import print_json, say_damage


@click.command("lookup")
@click.argument("snapshots", nargs=-1, required=True)
@click.option("-X", "--method", default=None, help="GET, or POST where there is a body.")
@click.option("-d", "--data", default=None, help="The body; @FILE reads it from a file.")
@click.option("-H", "--header", "headers", multiple=True, help="A header, as 'Name: value'.")
@click.option("--accept", default="rule", show_default=True, help="Lowest verdict served.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(
    snapshots: tuple[str, ...],
    method: str | None,
    data: str | None,
    headers: tuple[str, ...],
    accept: str,
    as_json: bool,
) -> int:
    """What would be served for URL (the last word), by which verdict, and why not the others.

    \b
    stillweb lookup site.wacz 'https://example.com/list?page=2'
    stillweb lookup site.wacz https://example.com/api -X POST -d '{"q": 1}' -H 'Content-Type: application/json'
    """
    from snapshots import Request, Snapshot

    paths, url = split_address(snapshots, "a URL")
    body = b""
    if data is not None:
        body = Path(data[1:]).read_bytes() if data.startswith("@") else os.fsencode(data)
    pairs = []
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon:
            raise click.UsageError(f"-H {header!r}: a header is written 'Name: value'")
        pairs.append((name.strip(), value.strip()))
    if body and not any(name.lower() == "content-type" for name, _ in pairs):
        pairs.append(("Content-Type", "application/x-www-form-urlencoded"))
    request = Request(
        method or ("POST" if data is not None else "GET"), url.partition("#")[0], tuple(pairs), body
    )
    with Snapshot.open(*paths) as snapshot:
        say_damage(snapshot)
        found = snapshot.matcher().lookup(request, accept=accept)
        nearest = found.explain() if found.capture is None else []
    answer: dict[str, Any] = {"verdict": found.verdict, "ambiguous": found.ambiguous, "state": found.state}
    if found.capture is not None:
        capture = found.capture
        answer["capture"] = {
            "url": capture.url,
            "status": capture.status,
            "mime": capture.mime,
            "timestamp": capture.timestamp,
            "digest": capture.digest,
            "file": capture.filename,
            "offset": capture.offset,
        }
    answer["nearest"] = [
        {"method": near.capture.method, "url": near.capture.url, "differs": near.differs, "rule": near.rule}
        for near in nearest
    ]
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{found.verdict}{' (ambiguous)' if found.ambiguous else ''}")
        if found.capture is not None:
            for name, value in answer["capture"].items():
                click.echo(f"  {name}: {value}")
        if found.capture is None and not answer["nearest"]:
            click.echo("  near: nothing")
        for near in answer["nearest"]:
            click.echo(f"  near: {near['method']} {near['url']}")
            for line in near["differs"]:
                click.echo(f"    {line}")
            if near["rule"]:
                click.echo(f"    rule {near['rule']} would join them")
    return 0 if found.capture is not None else 1
