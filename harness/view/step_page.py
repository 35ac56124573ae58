"""The page at a step of an attempt, made again by replaying the attempt's calls up to it, and kept in the cache.

An attempt repeats to the byte, so nothing need have been recorded for it. A result that differs from the one in the
trace is reported on the page.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.trace import Event, Trace
from stillweb.snapshots._os.cache import cache_dir
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.warc.appending import write_whole
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.harness.tools.toolset import ToolSession
    from stillweb.proxy.browser.page_snapshot import PageSnapshot
    from stillweb.snapshots.snapshot import Snapshot

BROWSER = "playwright-mcp"
FORMAT = "stillweb step page 2"


class StepPage(msgspec.Struct, frozen=True):
    """A page as a step of an attempt left it.

    `differences` say which calls gave another result than the trace tells, `notes` what could not be repeated.
    """

    address: str
    title: str
    text: str
    html: bytes
    picture: bytes
    notes: tuple[str, ...]
    differences: tuple[str, ...] = ()


def has_page(event: Event) -> bool:
    """Return True if the event is a call after which a browser can show a page."""
    if event["event"] != "tool_call":
        return False
    return by_browser(event) or str(event.get("address") or "").startswith(("http://", "https://"))


def key_of(trace: Trace, snapshot: Snapshot, n: int) -> str:
    """Return the name under which a step's page is kept: it changes with the trace, the snapshot and the code."""
    from stillweb.harness.runs.hashes import code_hash

    return sha256(f"{FORMAT}\n{trace.hash}\n{snapshot.id}\n{code_hash()}\n{n}".encode()).hexdigest()


def kept_page(key: str) -> StepPage | None:
    """Return a page that was made before, or None."""
    try:
        return msgspec.msgpack.decode(_place(key).read_bytes(), type=StepPage)
    except (FileNotFoundError, msgspec.DecodeError):  # not made yet, or of another format: it is made anew
        return None


def _place(key: str) -> Path:
    return cache_dir() / f"{key}-step"


def make_page(files: RunFiles, snapshot: Snapshot, trace: Trace, n: int, key: str) -> StepPage:
    """Replay an attempt's calls up to event `n`, keep the page that its browser shows then, and return it.

    Raise UsageError for a step without a page, or a run with tools of its own code.
    """
    from stillweb.harness.tools.workspace import copy_uploads

    events = [event for event in trace.of("tool_call") if event["n"] <= n]
    if not events or events[-1]["n"] != n or not has_page(events[-1]):
        raise UsageError(f"{trace.path.name}: step {n} shows no page. Choose a call of a browser or a fetch")
    settings, _ = files.manifest()
    own = [name for name in settings.contracts if ":" in name]
    if own:
        raise UsageError(
            f"{files.path}: its tools are code of its own ({own[0]}), which a viewer does not run. Use `stillweb certify`"
        )
    work = _by_calls if by_browser(events[-1]) else _by_addresses
    with tempfile.TemporaryDirectory(prefix="stillweb-step-", ignore_cleanup_errors=True) as folder:
        copy_uploads(files.uploads, Path(folder), settings.uploads)
        page = asyncio.run(work(snapshot, settings, str(trace.header["session"]), events, Path(folder)))
    write_whole(_place(key), [msgspec.msgpack.encode(page)])
    return page


def by_browser(event: Event) -> bool:
    """Return True if the event is a call of the browser's tools."""
    return str(event.get("contract") or "").startswith(f"{BROWSER}@")


async def _repeat(tools: ToolSession, events: Sequence[Event]) -> list[str]:
    """Make the tool calls of an attempt again, one after the other, and return which results differ."""
    from stillweb.harness.agents.tool_event import describe

    differences = []
    for event in events:
        if event["contract"] == "proxy":
            continue
        result = await tools.call(event["tool"], dict(event["arguments"]))
        if describe(result.content)["digest"] != event["output"]["digest"]:
            differences.append(
                f"Step {event['n']}: the call gave another result than the trace tells, so the page may differ, too."
            )
    return differences


async def _by_calls(
    snapshot: Snapshot, settings: Settings, session: str, events: Sequence[Event], folder: Path
) -> StepPage:
    """Make the calls of an attempt again, and look at its browser."""
    from stillweb.harness.runs.tool_setup import make_toolset

    notes = [
        f"Step {event['n']}: a program's own request is not made again."
        for event in events
        if event["contract"] == "proxy"
    ]
    toolset = make_toolset(snapshot, settings)
    try:
        tools = toolset.session(session, folder)
        try:
            return await _seen(tools, notes, await _repeat(tools, events))
        finally:
            await tools.close()
    finally:
        await toolset.close()


async def _by_addresses(
    snapshot: Snapshot, settings: Settings, session: str, events: Sequence[Event], folder: Path
) -> StepPage:
    """Make the calls of an attempt again, ask for their addresses, and open the last one's in a browser.

    The browser belongs to the session that asked for the addresses.
    """
    import httpx

    from stillweb.harness.agents.tool_event import describe
    from stillweb.harness.runs.tool_setup import make_toolset
    from stillweb.proxy.replay.faults import Faults
    from stillweb.proxy.replay.gateway import Gateway

    notes = ["The call read no page in a browser: this is its address, opened in one."]
    toolset = make_toolset(snapshot, settings)
    try:
        tools = toolset.session(session, folder)
        try:
            differences = await _repeat(tools, events)
        finally:
            await tools.close()
    finally:
        await toolset.close()
    gateway = Gateway(
        snapshot,
        accept=settings.accept,
        min_confidence=settings.min_confidence,
        own_pages=False,
        faults=Faults(settings.faults) if settings.faults else None,
    )
    with gateway:
        client = httpx.AsyncClient(
            proxy=gateway.proxy_url(session),
            verify=_trusting(gateway.ca_path),
            trust_env=False,
            follow_redirects=True,
        )
        skipped = 0
        async with client:
            for event in sorted(events[:-1], key=_asked):
                arguments = event["arguments"] if isinstance(event["arguments"], dict) else {}
                if not has_page(event) or arguments.get("method", "GET") != "GET":
                    skipped += 1
                    continue
                before = len(list(gateway.ledger.entries()))
                try:
                    await client.get(event["address"])
                except httpx.HTTPError as error:
                    if not event["error"]:
                        differences.append(
                            f"Step {event['n']}: its address can't be asked for again: {error}"
                        )
                    continue
                differences += _otherwise(event, list(gateway.ledger.entries())[before:])
        if skipped:
            notes.append(
                f"{pluralize(skipped, 'call')} before it, without an address or with a body, could not be asked for again."
            )
        before = len(list(gateway.ledger.entries()))
        toolset = make_toolset(
            snapshot, replace(settings, contracts=(BROWSER,), tool_options={"gateway": gateway})
        )
        try:
            tools = toolset.session(session, folder)
            try:
                opened = await tools.call("browser_navigate", {"url": events[-1]["address"]})
                if opened.is_error:
                    notes.append(describe(opened.content)["text"][:500])
                differences += _otherwise(events[-1], list(gateway.ledger.entries())[before:])
                return await _seen(tools, notes, differences)
            finally:
                await tools.close()
        finally:
            await toolset.close()


def _otherwise(event: Event, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a difference if the answer to a call's address is not one that the call's event cites."""
    cited = {capture["digest"] for capture in event["captures"]}
    address = event["address"].partition("#")[0]
    served = [(entry.get("capture") or {}).get("digest") for entry in entries if entry["url"] == address]
    if not cited or not served or cited.intersection(served):
        return []
    return [
        f"Step {event['n']}: its address now has another answer than the trace tells, so the page may differ, too."
    ]


def _asked(event: Event) -> int:
    """Return the place of a call among the attempt's: a program's requests are traced by address, not in order."""
    aside = event.get("aside") or {}
    return int(aside["order"] if "order" in aside else event["n"])


def _trusting(ca: Path) -> Any:
    import ssl

    return ssl.create_default_context(cafile=str(ca))


async def _seen(tools: ToolSession, notes: Sequence[str], differences: Sequence[str]) -> StepPage:
    content: PageSnapshot | None = await tools.look()
    if content is None:
        none = "The browser shows no page after this step."
        return StepPage("", "", "", b"", b"", (*notes, none), tuple(differences))
    encode = partial(str.encode, encoding="utf-8", errors="replace")
    address, title, text = (encode(one).decode() for one in (content.url, content.title, content.text))
    return StepPage(address, title, text, encode(content.html), content.png, tuple(notes), tuple(differences))
