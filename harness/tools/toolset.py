"""Set of tools over one snapshot, and the sessions of its clients."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from stillweb.harness._parsing import load_module
from stillweb.harness.tools.contract import Contract, ToolResult, ToolSpec, fill_template, load
from stillweb.harness.tools.store import Store, Visit
from stillweb.harness.tools.workspace import Workspace
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.evidence.confidence import SERVED, read_confidence
from stillweb.snapshots.identity.accept_level import check_accept
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.proxy.browser.page_snapshot import PageSnapshot
    from stillweb.proxy.replay.faults import Faults
    from stillweb.snapshots.snapshot import Snapshot

T = TypeVar("T")

_WRITTEN = ("data", "blob")  # schemes of pages that are written in their address, or by a script


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a session; None is no limit. A call over a limit gets an error that names it.

    `requests`: calls in all. `in_flight`: concurrent calls. `pages`: the highest page of a search, and the most
    PDF pages of a call. `records`: results on one search page.
    """

    requests: int | None = None
    in_flight: int | None = None
    pages: int | None = None
    records: int | None = None

    @classmethod
    def of(cls, value: Limits | Mapping[str, Any] | None) -> Limits:
        """Return the limits in a mapping of settings. Raise UsageError for an unknown name or a wrong number."""
        if value is None or isinstance(value, Limits):
            return value or cls()
        known = {f.name for f in fields(cls)}
        for name, number in value.items():
            if name not in known:
                raise UsageError(f"unknown limit {name!r}; known are {', '.join(sorted(known))}")
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
                raise UsageError(f"limit {name!r} must be a whole number from 0 on, not {number!r}")
        return cls(**value)


class Tool(Protocol):
    """Tools of one contract. One object serves all sessions; the state of a session is in its `Visit`.

    `call` never raises because of the arguments or the snapshot; it returns the real tool's error. Optional members:
    - `open(session_name)`, if the tool keeps state for a session. It returns an object with `call`, `close` and
      optionally `prepare` (run before the first call). If that object has a member `workspace`, it is set to the
      session's `Workspace`.
    - `specs`, a list, if the tool offers fewer tools than its contract.
    - an async `close`, if the tool holds resources.
    """

    async def call(self, name: str, arguments: dict[str, Any], visit: Visit) -> ToolResult: ...


class OwnTool(Protocol):
    """Factory of a custom tool, with the tool's contract."""

    contract: Contract

    def __call__(self, toolset: Toolset) -> Tool: ...


def _fetch(toolset: Toolset) -> Tool:
    from stillweb.harness.tools.fetch import FetchTool

    return FetchTool(next(c for c in toolset.contracts if c.name.startswith("mcp-fetch@")))


def _serper(toolset: Toolset) -> Tool:
    from stillweb.harness.tools.serper import SerperTool

    return SerperTool(toolset.searcher)


def _pdf(toolset: Toolset) -> Tool:
    from stillweb.harness.tools.read_pdf import PdfTool

    return PdfTool(most_pages=toolset.limits.pages)


# contract name without version -> factory of its tool, or `module:function`
MAKERS: dict[str, Callable[[Toolset], Tool] | str] = {
    "mcp-fetch": _fetch,
    "serper-mcp": _serper,
    "pdf-reader": _pdf,
    "playwright-mcp": "stillweb.harness.tools.browser:make_tool",
}


class Toolset:
    """Tools of some contracts over a snapshot. Make a session for each client.

    `contracts` are names with or without version ("fetch", "mcp-fetch@0.6.3"), or `module:object`, a custom tool
    (`OwnTool`). `accept` is the lowest verdict served, `min_confidence` the lowest confidence. `matcher` and `store` replace those of the snapshot.
    `uploads` is a folder that sessions without a folder of their own may read; by default they may read no files.
    `faults` disturb answers on purpose (docs/drills.md). `options` are for tools that need more (a gateway, a browser).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        contracts: Sequence[str] = ("fetch",),
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        synthetic_search: bool = False,
        accept: str = "rule",
        min_confidence: float | Literal["sure"] = SERVED,
        matcher: Any = None,
        store: Store | None = None,
        uploads: Path | None = None,
        faults: Faults | None = None,
        timing: str = "none",
        **options: Any,
    ) -> None:
        from stillweb.harness.tools.serper import Searcher

        check_accept(accept)
        self.limits = Limits.of(limits)
        self.snapshot = snapshot
        self.options = options
        self.uploads = uploads
        self.store = store or Store(
            snapshot,
            accept=accept,
            min_confidence=read_confidence(min_confidence),
            matcher=matcher,
            faults=faults,
            timing=timing,
        )
        self.searcher = Searcher(
            synthetic=synthetic_search, most_pages=self.limits.pages, most_records=self.limits.records
        )
        chosen = map(_chosen, contracts)
        by_name = {contract.name: (contract, maker) for contract, maker in chosen}
        self.contracts = [contract for contract, _ in by_name.values()]
        self._tools: dict[str, Tool] = {}
        self.specs: list[ToolSpec] = []
        for contract, maker in by_name.values():
            tool = _make(contract.name, self) if maker is None else maker(self)
            specs: list[ToolSpec] = getattr(tool, "specs", None) or contract.specs
            for spec in specs:
                if spec.name in self._tools:
                    raise UsageError(f"two contracts have a tool called {spec.name!r}; take one of them")
                self._tools[spec.name] = tool
                self.specs.append(spec)

    def tool(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def instead(self) -> Tool | None:
        """Return the tool that takes calls of unknown names, or None: the older fetch server ignores the name."""
        name = self._alone("unknown_tool").get("call")
        return self.tool(name) if name else None

    def unknown(self, name: str) -> ToolResult:
        """Return the error for an unknown tool, in the real server's words if only one contract is served."""
        text = "Unknown tool: {name}"
        if len(self.contracts) == 1:
            text = self.contracts[0].strings.get("unknown_tool", text)
        return fill_template(text.format(name=name), error=True)

    def unknown_code(self, name: str) -> int | None:
        """Return the JSON-RPC error code for an unknown tool; None if it exists or gets an error result."""
        code: int | None = None if self.tool(name) else self._alone("unknown_tool").get("code")
        return code

    def _alone(self, member: str) -> Mapping[str, Any]:
        """Return a member of the contract if only one is served, else an empty mapping."""
        found: Mapping[str, Any] = self.contracts[0].more.get(member, {}) if len(self.contracts) == 1 else {}
        return found

    def session(self, name: str, folder: Path | None = None) -> ToolSession:
        """Return a new session with its own replay state, counters, browser and `folder` of files."""
        return ToolSession(self, name, Workspace(folder or self.uploads))

    async def close(self) -> None:
        """Close the tools and the store. The snapshot stays open."""
        for tool in dict.fromkeys(self._tools.values()):
            closing = getattr(tool, "close", None)
            if closing is not None:
                await closing()
        self.store.close()


class ToolThread:
    """A toolset and a thread in whose event loop its calls run, for callers with another loop or none."""

    def __init__(self, toolset: Toolset) -> None:
        self.toolset = toolset
        self.numbers = itertools.count(1)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="stillweb-tools", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop; return its result."""
        if not self._thread.is_alive():
            work.close()
            raise UsageError("these tools are closed")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def close(self) -> None:
        """Close the toolset and end the loop; a second call does nothing."""
        if not self._thread.is_alive():
            return
        try:
            self.run(self.toolset.close())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


def _make(contract: str, toolset: Toolset) -> Tool:
    maker = MAKERS.get(contract.partition("@")[0])
    if maker is None:
        raise UsageError(f"contract {contract!r} has no tool")
    if isinstance(maker, str):
        module, _, attribute = maker.partition(":")
        try:
            found: Callable[[Toolset], Tool] = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise UsageError(f"contract {contract!r} is not available here: {error}") from error
        return found(toolset)
    return maker(toolset)


def find_own(name: str) -> Any:
    """Return the class or function that `module:object` names. Raise UsageError if there is none."""
    module, _, attribute = name.partition(":")
    found = getattr(load_module(module, f"contract {name!r}"), attribute, None)
    if not callable(found):
        raise UsageError(f"contract {name!r}: module {module!r} has no class or function {attribute!r}")
    return found


def own_tool(name: str) -> OwnTool:
    """Return the factory of a custom tool. Raise UsageError if `module:object` is missing or has no contract."""
    maker = find_own(name)
    if not isinstance(getattr(maker, "contract", None), Contract):
        raise UsageError(f"contract {name!r}: has no member `contract` made by read_contract (docs/tools.md)")
    made: OwnTool = maker
    return made


def _chosen(name: str) -> tuple[Contract, OwnTool | None]:
    """Return the contract with this name, and the factory if the tool is a custom one."""
    if ":" not in name:
        return load(name), None
    maker = own_tool(name)
    return maker.contract, maker


class ToolSession:
    """Tools of one client, with its state and limits."""

    def __init__(self, toolset: Toolset, name: str, workspace: Workspace | None = None) -> None:
        self.name = name
        self.toolset = toolset
        self.workspace = workspace or Workspace()
        self.calls = 0
        self.visit = toolset.store.session(name)
        self.visit.workspace = self.workspace
        self._in_flight = 0
        self._opened: dict[int, Any] = {}
        self._preparing: list[asyncio.Future[None]] = []

    def list(self) -> list[ToolSpec]:
        """Return the tools, in the order of the contracts and of each real server's list."""
        return list(self.toolset.specs)

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool. A wrong name, wrong arguments or a miss give a result with `is_error`."""
        tool = self.toolset.tool(name) or self.toolset.instead()
        if tool is None:
            return self.toolset.unknown(name)
        limits = self.toolset.limits
        if limits.requests is not None and self.calls >= limits.requests:
            return breach("requests", limits.requests, self.calls + 1)
        if limits.in_flight is not None and self._in_flight >= limits.in_flight:
            return breach("in_flight", limits.in_flight, self._in_flight + 1)
        self.calls += 1
        self._in_flight += 1
        try:
            own = self._own(tool)
            if own is None:
                result = await tool.call(name, arguments, self.visit)
            else:
                result = await own.call(name, arguments)
            if delay := self.visit.delay:
                self.visit.delay = 0.0
                await asyncio.sleep(delay)
            return result
        finally:
            self._in_flight -= 1

    @asynccontextmanager
    async def without_own_content(self, calls: Iterable[tuple[str, Any]]) -> AsyncIterator[ToolSession]:
        """Yield a session whose browser is as `calls` made it, but those that put content of the client's own into it.

        It is this session if it made no such call. Else the others are made again, in a session that ends with the context.
        """
        made = [call for call in calls if hasattr(self.toolset.tool(call[0]), "open")]
        others = [call for call in made if not puts_own_content(*call)]
        if len(others) == len(made):
            yield self
            return
        again = ToolSession(self.toolset, f"{self.name}/again", self.workspace)
        try:
            for name, arguments in others:
                await again.call(name, arguments)
            yield again
        finally:
            await again.close()

    async def do(self, work: Callable[[Visit], T]) -> T:
        """Run `work` with the session's visit, outside of a tool call."""
        return work(self.visit)

    def prepare(self) -> None:
        """Start opening slow resources (a browser) and return. A failure shows at the first call."""
        for tool in dict.fromkeys(map(self.toolset.tool, (spec.name for spec in self.toolset.specs))):
            if hasattr(tool, "open"):
                self._preparing.append(asyncio.ensure_future(self._prepare(tool)))

    async def _prepare(self, tool: Any) -> None:
        ready = getattr(self._own(tool), "prepare", None)
        if ready is not None:
            await ready()

    def _own(self, tool: Any) -> Any:
        """Return the object that a tool keeps for this session, or None."""
        opener = getattr(tool, "open", None)
        if opener is None:
            return None
        if id(tool) not in self._opened:
            self._opened[id(tool)] = own = opener(self.name)
            if hasattr(own, "workspace"):
                own.workspace = self.workspace
        return self._opened[id(tool)]

    async def look(self) -> PageSnapshot | None:
        """Return what the session's browser shows; None without a browser or a page."""
        browsers = (own for own in self._opened.values() if hasattr(own, "look"))
        browser = next(browsers, None)
        content: PageSnapshot | None = None if browser is None else await browser.look()
        return content

    async def close(self) -> None:
        """End the session; a second call does nothing."""
        preparing, self._preparing = self._preparing, []
        await asyncio.gather(*preparing, return_exceptions=True)
        opened, self._opened = self._opened, {}
        for own in opened.values():
            await own.close()


def puts_own_content(name: str, arguments: Any) -> bool:
    """Return True for a call of a browser that runs a script of the client's, or opens a page that the client wrote."""
    url = arguments.get("url") if isinstance(arguments, dict) else None
    try:
        return name == "browser_evaluate" or (
            isinstance(url, str) and urlsplit(url.strip()).scheme in _WRITTEN
        )
    except ValueError:  # no address
        return False


def breach(limit: str, most: int, asked: int) -> ToolResult:
    """Return the error of a call that exceeds a limit."""
    text = f"limit reached: {limit} {asked} is over the limit of {most}"
    return fill_template(text, error=True, limit=limit, most=most, asked=asked)


def query_verdict(toolset: Toolset) -> Callable[[str | Mapping[str, Any]], tuple[str, tuple[str, ...]]]:
    """Return a function that gives the verdict of a search, and notes on what may be wrong with its answer.

    A query text is looked up in two forms: as a program posts it to Serper, and as the MCP wrapper posts it with its
    defaults. A mapping holds the arguments of the wrapper's `google_search` and is looked up as the wrapper posts it.
    """

    from stillweb.harness.tools.serper import JSON_TYPE, SEARCH_URL, json_bytes, wrapper_body

    def verdict(query: str | Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        bodies = [{"q": query}, wrapper_body({"q": query})] if isinstance(query, str) else []
        best: tuple[str, tuple[str, ...]] = ("miss", ())
        for body in bodies or [wrapper_body(dict(query))]:  # type: ignore[arg-type]  # a mapping: texts have bodies
            request = Request("POST", SEARCH_URL, JSON_TYPE, json_bytes(body))
            # each query has a session of its own, so that no query depends on another
            response, there = toolset.searcher.ask(request, toolset.store.session("coverage"))
            if response is None:
                continue
            notes: list[str] = []
            if response.status >= 400:
                notes.append(f"recorded with status {response.status}")
            if there.ambiguous:
                notes.append("the recording does not decide that it is this answer")
            if there.verdict != "synthetic" and not notes:
                return there.verdict, ()
            if best[0] in ("miss", "synthetic"):
                best = there.verdict, tuple(notes)
        return best

    return verdict
