"""Time and chance held still in a page, and the driver that lets its clock move.

The script (freeze.js) replaces the page's clock, timers and randomness. `settle` gives time back in virtual
milliseconds, only while no network answer is awaited. So a page's state after `settle` depends on its
requests and their answers, not on the machine's speed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.documents import MOST_REDIRECTS
from stillweb.proxy.browser.settle import WORKER, PageStreams, SettleResult, SettleTimeouts, Traffic
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.secrets.detect import SECRET_NAMES

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Frame, Page, Request, Route

_PART = re.compile(r"^ *//= (\S+)$", re.MULTILINE)  # where freeze.js includes a part of itself
# Indents and comment lines; no quoted text spans lines.
_IDLE = re.compile(r"^[ \t]*//.*\n|^[ \t]+", re.MULTILINE)
# What a module loads before it runs: `import` that is no call, and `export` from elsewhere (or of names,
# which does no harm).
_STATIC = re.compile(r"(?<![\w$.])(?:import(?!\s*[(.])|export\s*[*{])")
_CONTROL = 'globalThis[Symbol.for("stillweb")]'
ASK = 30.0  # s in which a page must answer; time that passed in an abandoned call is not counted
# ms of the page's time after which the browser is asked again: only it knows of an `import()`
STRIDE = 25.0
ENDINGS = 200  # rounds in which a page whose time is up must have its answers
LOADING = 5.0  # s in which a document without further requests must be complete
LOADINGS = 200  # times that it must have been asked: a busy machine gives it no turn for seconds


class State(TypedDict, total=False):
    """The state of a document, as freeze.js reports it; times in virtual milliseconds."""

    elapsed: float
    pending: int
    held: int
    started: int
    mutations: int
    next: float | None
    leaving: int
    untold: int
    ready: str
    replay: bool
    ran: int
    moved: float
    asked: int
    fetched: int
    sent: int
    heard: int
    silent: int


def start_of(profile: Profile) -> int:
    """Return the profile's clock in milliseconds since 1970. Raises UsageError if it is not an ISO 8601 time."""
    try:
        moment = datetime.fromisoformat(profile.clock)
    except ValueError:
        raise UsageError(f"profile: clock {profile.clock!r} is not an ISO 8601 time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


@functools.cache
def _source() -> str:
    folder = files("stillweb.proxy.browser")
    text = folder.joinpath("freeze.js").read_text(encoding="utf-8")
    whole = _PART.sub(lambda found: folder.joinpath(found[1]).read_text(encoding="utf-8"), text)
    return _IDLE.sub("", whole)  # each document parses it anew


def script(profile: Profile, *, replay: bool = False) -> str:
    """Return the JavaScript that freezes a document or worker, to run before any other script of it.

    With `replay`, streams are read to their recorded end before the clock moves.
    """
    config = {
        "start": start_of(profile),
        "seed": profile.seed,
        "chance": profile.chance,
        "replay": replay,
        "secrets": SECRET_NAMES,
    }
    return f"{_source().rstrip()}({json.dumps(config)});\n"


async def install(
    context: BrowserContext, profile: Profile, proxy_url: str | None, *, replay: bool = False
) -> None:
    """Freeze every document and worker of a context that has no pages yet.

    An init script does not reach workers. So a worker's script is fetched through the same proxy and given to
    the browser with ours before it.
    """
    source = script(profile, replay=replay)

    async def worker(route: Route, request: Request) -> None:
        import httpx

        from stillweb.proxy.net.bounded_clients import AsyncBoundedClient

        url, followed = WORKER.sub("", request.url), list[str]()
        try:
            headers = await request.all_headers()
            fields = {k.encode(): v.encode() for k, v in headers.items() if not k.startswith(":")}
            # The proxy checks the origin's certificate; only the proxy's own would be checked here.
            async with AsyncBoundedClient(proxy_url, verify=False, timeout=60) as client:
                answer = await client.get(url, headers=fields)
                # the browser would follow redirects without this route
                while answer.next_request is not None and len(followed) < MOST_REDIRECTS:
                    at = answer.next_request.url
                    if (at.scheme, at.netloc) != (answer.url.scheme, answer.url.netloc):
                        break  # a worker's script can't come from another origin
                    followed.append(str(at))
                    answer = await client.get(at, headers=fields)
            kept = {
                k: v for k, v in answer.headers.items() if k not in ("content-length", "content-encoding")
            }
            prelude = _prelude(source, request.url, answer.text) if answer.is_success else b""
            await _quietly(
                route.fulfill(status=answer.status_code, headers=kept, body=prelude + answer.content)
            )
        except (httpx.HTTPError, httpx.InvalidURL, PlaywrightError):
            await _quietly(route.abort())

    await context.add_init_script(source)
    await context.route(WORKER, worker)


def _prelude(source: str, marked: str, text: str) -> bytes:
    """Return the code to put before a worker's script.

    A module's imports run before its first line, so if it has some, ours becomes the first import. Only then:
    a policy that lets the page have its worker may forbid the data: address of that import.
    """
    found = WORKER.search(marked)
    if found is None or found[2] is None or _STATIC.search(text) is None:
        return source.encode()
    return f'import "data:text/javascript,{quote(source)}";\n'.encode()


async def _quietly(action: Any) -> None:
    try:
        await action
    except PlaywrightError:
        return  # the page is gone; nobody waits for this answer


async def _ask(frame: Frame, call: str, seconds: float) -> State | None:
    """Call the freeze script in one frame. Return None if the frame is gone, busy or has no script."""
    try:
        answer = await asyncio.wait_for(
            frame.evaluate(f"async () => {{ const s = {_CONTROL}; return s ? await s.{call} : null; }}"),
            seconds,
        )
    except PlaywrightError:
        return None
    except TimeoutError:
        return None
    return answer  # type: ignore[no-any-return]


async def ask_all(page: Page, call: str, seconds: float = ASK) -> State | None:
    """Call the freeze script of a page, its frames and workers; None if the document is being replaced.

    Also None if a script holds the page up for `seconds`.
    """
    return await _ask(page.main_frame, call, seconds)


async def step(page: Page, traffic: Traffic, ms: float, patience: SettleTimeouts, how: str) -> State | None:
    """Let at most `ms` of the page's time pass, in the manner `how`, and wait for opened tabs.

    `how` holds members of an options object for freeze.js. The wait ends when the browser has reported the
    tabs.
    """
    state = await ask_all(page, f"run({ms}, {{{how}}})", min(ASK, patience.real))
    if state is not None:
        await wait_for_tabs(page, traffic, state, patience)
    return state


async def begin_step(page: Page, traffic: Traffic) -> None:
    """Note that a step or a wait begins.

    In replay, the socket messages that time had brought by the next view are sent now.
    """
    traffic.steps += 1
    await ask_all(page, f"ask({traffic.steps})")


async def wait_for_tabs(page: Page, traffic: Traffic, state: State, patience: SettleTimeouts) -> bool:
    """Wait until the browser has reported the tabs that the page opened. Return True if there are any."""
    if not state["untold"]:
        return False
    await traffic.wait_for_tabs(state["untold"], patience.stuck, patience.real)
    await ask_all(page, "told()")
    return True


async def pass_time(
    page: Page, traffic: Traffic, seconds: float, patience: SettleTimeouts | None = None
) -> SettleResult:
    """Let exactly `seconds` of the page's own time pass, and wait for what that starts."""
    left = seconds * 1000
    patience = patience or SettleTimeouts()
    reading = 0.0
    deadline = asyncio.get_running_loop().time() + patience.real
    while left > 0 and asyncio.get_running_loop().time() < deadline:
        await traffic.idle(patience.stuck, patience.real)
        stuck = "true" if traffic.hanging(reading) else "false"
        state = await step(page, traffic, left, patience, f"whole: true, through: {stuck}")
        if state is None:
            await asyncio.sleep(0.02)
            continue
        left -= state["moved"]
        reading = patience.stuck if state["pending"] else 0
        if state["pending"] or state["held"]:
            await asyncio.sleep(0.002)
    calm = await settle(page, traffic, patience)
    if left > 0:
        return replace(
            calm,
            quiet=False,
            reason=f"{left / 1000:g} s of {seconds:g} s did not pass within {patience.real:g} s",
        )
    return calm


async def settle(page: Page, traffic: Traffic, patience: SettleTimeouts | None = None) -> SettleResult:
    """Run the page until it rests: no requests, no timer due within its patience, no change in two frames.

    A page whose timers never end rests when its virtual time is used up. A page that keeps asking the
    network, or waits for an answer that doesn't come, is reported as not quiet.
    """
    patience = patience or SettleTimeouts()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience.real
    spent = since = 0.0
    loading = loop.time() + LOADING
    listening = PageStreams(page, traffic, patience, deadline)
    rounds = settled = asked = 0
    unasked = traffic.unasked
    fetched: int | None = None  # number of the page's fetches, as it last reported
    endings = 0  # rounds since its time is up
    ahead = 0.0  # ms to the next timer, as the page last reported
    reading = 0.0  # s from which on a body is not waited for that the page reads; 0 if it reads none
    restless = f"keeps sending requests for {patience.total / 1000:g} s"
    while True:
        rounds += 1
        left = deadline - loop.time()
        if left <= 0 or not await traffic.idle(patience.stuck, left):
            waiting = traffic.under_way(patience.stuck)
            what = f"still waiting for {waiting[0]}" if waiting else f"not quiet within {patience.real:g} s"
            return SettleResult(False, spent, rounds, what)
        through = "true" if traffic.hanging(reading) else "false"
        before = traffic.count
        span = min(patience.virtual - since, max(STRIDE, since, ahead), max(0.0, patience.total - spent))
        state = await step(page, traffic, span, patience, f"through: {through}")
        if state is None:
            if page.is_closed():
                return SettleResult(True, spent, rounds)
            await asyncio.sleep(0.01)
            continue
        ahead = 1 + (state["next"] or 0)
        reading = patience.stuck if state["pending"] else 0
        still = loop.time() < loading or asked < LOADINGS
        hanging = traffic.hanging(reading)
        if state["ready"] != "complete" and not hanging and still:
            asked += 1
            await asyncio.sleep(0.01)  # bounded: a document written to after loading never completes
            continue
        spent += state["moved"]
        if state["leaving"]:  # the page is being left, which the browser reports late
            if traffic.navigations == traffic.rested:
                await asyncio.sleep(0.005)
                continue
            await ask_all(page, "stay()")
        # The page counts its own requests: the browser reports them late, when the clock may have gone on.
        asking = traffic.unasked != unasked or (
            bool(state["asked"]) if fetched is None else state["fetched"] != fetched
        )
        unasked, fetched = traffic.unasked, state["fetched"]
        since = 0.0 if asking else since + state["moved"]
        over = spent + (state["next"] or 0) > patience.total
        # the last requests are waited for: the end of its time must not depend on the speed of an answer
        endings += spent + ahead > patience.total
        if endings > ENDINGS:
            return SettleResult(False, spent, rounds, restless)
        if state["held"] or (state["pending"] and not hanging):
            await asyncio.sleep(0.003)  # the answer is here, and the page is still reading it
            continue
        if asking or traffic.under_way(patience.stuck):
            continue
        rested = (
            since >= patience.virtual or state["next"] is None or state["next"] > patience.virtual - since
        )
        if not rested and over:
            return SettleResult(False, spent, rounds, restless)
        if not rested:
            continue
        after = await ask_all(page, "frames()")
        if after is None or await wait_for_tabs(page, traffic, after, patience) or traffic.count != before:
            continue
        if after["mutations"] != state["mutations"] and since < patience.virtual and settled < 20:
            settled += 1  # observers or the last network events changed it: once more
            continue
        if traffic.under_way(patience.stuck):
            continue
        recorded = bool(traffic.streams) and not after["replay"]
        if recorded and await listening.brings(after, functools.partial(ask_all, page, "hearing()")):
            continue
        hanging, traffic.rested = traffic.hanging(reading), traffic.navigations
        reason = f"no answer from {hanging[0]}" if hanging else ""
        if recorded:
            reason = reason or await listening.accept()
        return SettleResult(not reason, spent, rounds, reason)
