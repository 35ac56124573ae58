"""The program of a command line that ends in `-- PROGRAM ARGS…`: its words, its isolation, and a browser that it drives."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from stillweb.harness.console import say
from stillweb.proxy.net.addresses import host_port, on_this_machine

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture

_KEY = "stillweb.program"


class WithProgram(click.Command):
    """Command that takes the words after the first `--` as a program to run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[_KEY] = args[place + 1 :]
            if not args[place + 1 :]:
                raise click.UsageError("no program after '--'; give the program to run", ctx)
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM ARGS...]"]


def program_of(ctx: click.Context) -> list[str]:
    """Return the words after `--`; empty if there was no `--`."""
    words: list[str] = ctx.meta.get(_KEY, [])
    return words


def only_with_program(program: list[str], given: Mapping[str, object]) -> None:
    """Raise UsageError for a given option that needs a program, if there is none."""
    for option, value in given.items():
        if value and not program:
            raise click.UsageError(f"{option} is for a program after '--'")


def isolate_program(let_in: Sequence[tuple[str, int]]) -> None:
    """Enter a network namespace that has only loopback, and print which ports of this machine are reachable.

    The system's list of CA certificates is replaced by ours, for programs that ignore the environment variables.
    Raise MissingCapability if this machine can't do it.
    """
    from stillweb.proxy.net.ca import Authority
    from stillweb.proxy.net.client_env import with_usual
    from stillweb.proxy.net.isolation import enter_isolation, replace_system_list

    enter_isolation(let_in)
    ours = Authority.load_or_create().certificate_path
    if (why := replace_system_list(with_usual(ours) if let_in else ours)) is not None:
        say(why)
    if let_in:
        ports = ", ".join(host_port(*port) for port in let_in)
        say(f"let in from this machine, and nothing else: {ports}")


MOST = 1 << 16  # bytes of an answer to read; a driver's answer to a new session is shorter

ADVICE = (
    "let this machine go past the proxy: --no-proxy 127.0.0.1 --no-proxy localhost "
    '(see docs/clients.md, "Libraries that drive a browser over a socket")'
)


def is_browser_command(method: str, url: str, body: str) -> bool:
    """Return True if a request of an automation library (Selenium, CDP) is for a browser, or its driver, on this machine.

    It can't be replayed: its port changes each time, and it starts or controls a real browser. It must bypass the proxy.
    """
    return _may(method, url) and (_socket(url) or _has_member(body.encode(), "capabilities"))


def used_browser(out: Path, captures: Iterable[Capture]) -> bool:
    """Return True if one of the captures is a request to a browser or driver on this machine."""
    from stillweb.snapshots import Snapshot

    likely = [capture for capture in captures if _may(capture.method, capture.url)]
    if not likely:
        return False
    with Snapshot.open(out) as snapshot:
        for capture in likely:
            with snapshot.open_body(capture) as body:
                if _socket(capture.url) or _has_member(body.read(MOST), "sessionId"):
                    return True
    return False


def _may(method: str, url: str) -> bool:
    """Return True if a request may be for a browser or driver on this machine.

    Web applications may have a POST /session, too, so the caller checks the JSON body for WebDriver's members.
    """
    begins = method == "POST" and urlsplit(url).path.endswith("/session")
    return (begins or _socket(url)) and on_this_machine(urlsplit(url).hostname or "")


def _socket(url: str) -> bool:
    return "/devtools/browser/" in url


def _has_member(body: bytes, member: str) -> bool:
    """Return True if a JSON object has a member, also inside `value`, where WebDriver's answers have theirs."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return False
    inner = value.get("value") if isinstance(value, dict) else None
    return any(isinstance(one, dict) and member in one for one in (value, inner))
