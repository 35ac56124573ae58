"""`stillweb lookup`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillweb.harness.commands.options import (
    accept_option,
    at_option,
    min_confidence_option,
    read_headers,
    split_address,
)
from stillweb.harness.console import print_json, say_damage
from stillweb.proxy.net.addresses import DEFAULT_SESSION

if TYPE_CHECKING:
    from stillweb.snapshots import Capture, Request, Snapshot


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
    from stillweb.snapshots import Request, Snapshot
    from stillweb.snapshots.identity.accepting import check_accept
    from stillweb.snapshots.view import id_in

    check_accept(accept)
    paths, url = split_address(snapshots, "a URL")
    body = b""
    if data is not None:
        body = Path(data[1:]).read_bytes() if data.startswith("@") else os.fsencode(data)
    pairs = read_headers(headers)
    if body and not any(name.lower() == "content-type" for name, _ in pairs):
        pairs.append(("Content-Type", "application/x-www-form-urlencoded"))
    request = Request(
        method or ("POST" if data is not None else "GET"), url.partition("#")[0], tuple(pairs), body
    )
    with Snapshot.open(*paths, at=at) as snapshot:
        say_damage(snapshot)
        if id_in(url) is not None and snapshot.view(url) is None:
            why = "no view of the snapshot has this address; 'stillweb ls SNAPSHOT --views' lists them"
            entry, capture = {"verdict": "miss", "ambiguous": False, "state": "", "why": why}, None
        else:
            entry, capture = _told(snapshot, request, accept, min_confidence)
    answer: dict[str, Any] = {name: entry[name] for name in ("verdict", "ambiguous", "state")}
    answer |= {name: entry[name] for name in ("confidence", "grounds", "derived", "why") if name in entry}
    if capture is not None:
        answer["capture"] = {
            "url": capture.url,
            "status": capture.status,
            "mime": capture.mime,
            "timestamp": capture.timestamp,
            "digest": capture.digest,
            "file": capture.filename,
            "offset": capture.offset,
        }
    answer["nearest"] = entry.get("nearest", [])
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{answer['verdict']}{' (ambiguous)' if answer['ambiguous'] else ''}")
        for name in ("confidence", "derived", "why"):
            if name in answer:
                click.echo(f"  {name}: {answer[name]}")
        for ground in answer.get("grounds", ()):
            click.echo(f"  ground: {ground}")
        if capture is not None:
            for name, value in answer["capture"].items():
                click.echo(f"  {name}: {value}")
        if capture is None and not answer["nearest"] and "why" not in answer:
            click.echo("  near: nothing")
        for near in answer["nearest"]:
            click.echo(f"  near: {near['method']} {near['url']}")
            for line in near["differs"]:
                click.echo(f"    {line}")
            if near["rule"]:
                click.echo(f"    rule {near['rule']} would join them")
    return 1 if answer["verdict"] == "miss" or answer["verdict"].startswith("failed:") else 0


def _told(
    snapshot: Snapshot, request: Request, accept: str, min_confidence: float
) -> tuple[dict[str, Any], Capture | None]:
    """Return the ledger entry that a replay would write for the request, and the capture behind the answer."""
    from stillweb.proxy.replay.answering import Answerer
    from stillweb.proxy.replay.ledger import Ledger

    with Ledger() as ledger:
        answerer = Answerer(snapshot, ledger, accept=accept, min_confidence=min_confidence)
        reply = answerer.answer(request, answerer.line(DEFAULT_SESSION))
        entry = ledger.entries()[0]
        likeliest = answerer.matcher.lookup(
            request, answerer.matcher.session(), accept=accept, min_confidence=0.0
        )
        if likeliest.grounds is not None and likeliest.told is not None:
            entry |= likeliest.told.members() | {"grounds": likeliest.grounds()}
        return entry, reply.capture
