"""Connections from a run to its tools and, for programs, to the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from stillweb.harness.runs.run_files import Settings
from stillweb.harness.tools.store import first_alike
from stillweb.harness.trace import SURENESS
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.http import charsets
from stillweb.snapshots.text.text import HTML, PDF, READ, kind_of, unpack_body

if TYPE_CHECKING:
    from stillweb.harness.tools.store import Store


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


MOST_ASKED = 64 << 20  # bytes of the ledger of a program's requests, which its trace holds: 140,000 of them
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

        def requests() -> list[dict[str, Any]]:
            if ledger.size > MOST_ASKED:
                raise UsageError(f"its requests take more than {MOST_ASKED >> 20} MB of a ledger")
            return request_events(ledger.entries(), given, given.evidence)

        try:
            gateway.set_default_session(session)
            address = gateway.proxy_url(session)
            environment = client_environment(address, gateway.ca_path, base={})
            if not isinstance(toolset, Toolset) or tools is None:
                yield environment, requests
                return
            async with serve_program(toolset, tools) as server:
                environment["STILLWEB_MCP_URL"] = server.url
                environment = with_no_proxy(environment, server.no_proxy.split(","))
                yield environment, lambda: [*requests(), *server.calls()]
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


MOST = 1_000_000  # characters of a response that are kept in a trace
_TOLD = ("text/", "application/json", "application/xml", "application/csv", "application/x-ndjson")
_CODE = ("text/css", "text/javascript", "text/ecmascript")
_IN_PART = {"head", "range", "conditional"}
_HIDING = ("hidden", "aria-hidden", "style")


class GivenText:
    """Texts of the responses that the client of one ledger received, and the captures to cite for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # by place of a capture: a program may ask for one again and again
        self._texts: dict[tuple[str, int], str] = {}

    def __call__(self, entry: Mapping[str, Any]) -> str:
        """Return the text of the response in a ledger entry, "" if it has none."""
        derived = str(entry.get("derived") or "").split("+")
        if not entry.get("capture") or entry["method"] == "HEAD" or _IN_PART & set(derived):
            return ""
        capture = self._capture(entry)
        if capture is None or 300 <= capture.status < 400 or capture.status == 206:
            return ""
        if capture.place not in self._texts:
            try:
                self._texts[capture.place] = _text(self._store, capture)[:MOST]
            except DamagedInput:  # the client got an error, as the ledger says
                self._texts[capture.place] = ""
        return self._texts[capture.place]

    def evidence(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a reference to the first capture with the content of the entry's, or None."""
        named: Mapping[str, Any] | None = entry.get("capture")
        capture = self._capture(entry) if named else None
        if named is None or capture is None:
            return named
        first = first_alike(self._store.snapshot, capture)
        return {**named, "file": first.filename, "offset": first.offset}

    def _capture(self, entry: Mapping[str, Any]) -> Capture | None:
        place = entry["capture"]["file"], entry["capture"]["offset"]
        return self._store.snapshot.capture_at(place, entry["url"])


def _text(store: Store, capture: Capture) -> str:
    mime = capture.mime.lower()
    if mime.startswith(_CODE) or not (
        mime.startswith(_TOLD) or mime.endswith(("+json", "+xml")) or _page(mime)
    ):
        return ""
    response = store.snapshot.read_start(capture, READ + 1)
    label = response.header("content-type")
    body, _ = unpack_body(response)
    kind, _ = kind_of(body, label)
    if kind == PDF:
        text = store.text_of(capture)
        return text.markdown if text else ""
    said = charsets.decode(body, label).text
    return _words(said) if kind == HTML else said


def _page(mime: str) -> bool:
    return mime in (
        "application/pdf",
        "application/xhtml+xml",
        "application/octet-stream",
        "binary/octet-stream",
        "",
    )


def _words(html: str) -> str:
    from stillweb.snapshots.text import html_text  # of an extra

    tree = html_text.parse(html)
    if tree is None:
        return ""
    for element in tree.iter():
        for name in _HIDING:
            element.attrib.pop(name, None)
    return html_text.markdown(tree) or html_text.without_tags(html)
