"""Connections from a run to its tools and, for programs, to the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from stillweb.harness.runs.run_files import Settings
from stillweb.harness.trace import SURENESS

Access = tuple[Mapping[str, str], Callable[[], list[dict[str, Any]]]]  # environment, requests so far


def make_toolset(snapshot: Any, settings: Settings) -> Any:
    from stillweb.harness.tools import Toolset
    from stillweb.proxy.replay.faults import Faults

    return Toolset(
        snapshot,
        settings.contracts,
        accept=settings.accept,
        min_confidence=settings.min_confidence,
        synthetic_search=settings.synthetic_search,
        faults=Faults(settings.faults) if settings.faults else None,
        timing=settings.timing or "none",
        **dict(settings.tool_options),
    )


LONG = 1000  # characters of a response's text that is not repeated
AGAIN = "(the text of an earlier call)"


@asynccontextmanager
async def program_access(
    snapshot: Any, settings: Settings, session: str, toolset: Any = None, tools: Any = None
) -> AsyncIterator[Access]:
    """Run a replay gateway for the program of one attempt.

    Yields its environment and a function for its requests.

    Each attempt has its own gateway and ledger, which end with it. The HTTP APIs of the run's tools
    (Serper's, …) answer at their real addresses. The tools themselves, in the attempt's session `tools`, are
    served by the MCP server that STILLWEB_MCP_URL names.
    """
    from stillweb.harness.runs.given_text import GivenText
    from stillweb.harness.servers.program import serve_program
    from stillweb.harness.tools import Toolset, http_hosts
    from stillweb.harness.tools.store import Store
    from stillweb.proxy.net.client_env import client_environment, with_no_proxy
    from stillweb.proxy.replay.faults import Faults
    from stillweb.proxy.replay.gateway import Gateway
    from stillweb.proxy.replay.ledger import Ledger

    with Ledger() as ledger:
        hosts = http_hosts(toolset) if isinstance(toolset, Toolset) else None
        store = toolset.store if isinstance(toolset, Toolset) else Store(snapshot)
        given = GivenText(store)
        gateway = Gateway(
            snapshot,
            accept=settings.accept,
            min_confidence=settings.min_confidence,
            ledger=ledger,
            virtual_hosts=hosts,
            own_pages=False,
            faults=Faults(settings.faults) if settings.faults else None,
            timing=settings.timing or "none",
        )
        await asyncio.to_thread(gateway.start)
        try:
            gateway.set_default_session(session)
            address = gateway.proxy_url(session)
            environment = client_environment(address, gateway.ca_path, base={})
            if not isinstance(toolset, Toolset) or tools is None:
                yield environment, lambda: request_events(ledger.entries(), given, given.evidence)
                return
            async with serve_program(toolset, tools) as server:
                environment["STILLWEB_MCP_URL"] = server.url
                environment = with_no_proxy(environment, server.no_proxy.split(","))
                yield (
                    environment,
                    lambda: [*request_events(ledger.entries(), given, given.evidence), *server.calls()],
                )
        finally:
            await asyncio.to_thread(gateway.close)


def request_events(
    entries: Sequence[Mapping[str, Any]],
    text_of: Callable[[Mapping[str, Any]], str] = lambda entry: "",
    evidence: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda entry: entry.get("capture"),
) -> list[dict[str, Any]]:
    """Return ledger entries as members of tool calls, each with its response text and the capture to cite.

    A program may send several requests at once, in an order that no two runs share. So they are sorted by
    address and by the payload that answered (the request itself may hold ids that are drawn in each run), and
    the real order goes into `aside`. A long text is there once: a program may poll. Irrelevant requests (a browser's errands, icons, telemetry), which
    depend on the machine, go into the `aside` of the last other request.
    """
    from stillweb.proxy.replay.ledger import settle_broken_tunnels

    def place(entry: Mapping[str, Any]) -> tuple[Any, ...]:
        digest = (entry.get("capture") or {}).get("digest", "")
        return entry["url"], entry["method"], digest, entry.get("key") or "", entry["seq"]

    ordered = sorted(settle_broken_tunnels(map(dict, entries)), key=place)
    events: list[dict[str, Any]] = []
    told: set[str] = set()
    for entry in ordered:
        if not entry.get("irrelevant"):
            text = text_of(entry)
            events.append(_request_event(entry, AGAIN if text in told else text, evidence(entry)))
            if len(text) > LONG:
                told.add(text)
    beside = [
        {n: e[n] for n in ("method", "url", "verdict", "status")} for e in ordered if e.get("irrelevant")
    ]
    if events and beside:
        events[-1]["aside"]["irrelevant"] = beside
    return events


def _request_event(entry: Mapping[str, Any], text: str, capture: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "tool": "http",
        "contract": "proxy",
        "arguments": {"method": entry["method"], "url": entry["url"]},
        "verdict": entry["verdict"],
        "address": entry["url"],
        "captures": [dict(capture)] if capture else [],
        "nearest": list(entry.get("nearest") or ()),
        "output": {"digest": str((capture or {}).get("digest") or ""), "text": text},
        "error": entry["verdict"].partition(":")[0] in ("miss", "failed")
        or entry.get("fault", {}).get("kind") == "reset",
        **{name: entry[name] for name in SURENESS if name in entry},
        "meta": {
            "status": entry["status"],
            "irrelevant": False,
            **({"fault": entry["fault"]} if "fault" in entry else {}),
        },
        # how sure an answer is depends on what was asked before, so on the order
        "aside": {"order": entry["seq"], **({"ambiguous": True} if entry.get("ambiguous") else {})},
    }
