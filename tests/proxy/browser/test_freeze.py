"""Time stands still, chance is seeded, and both are the same each time."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stillweb.proxy.browser.freeze import pass_time, script, settle, start_of
from stillweb.proxy.browser.settle import SettleTimeouts, Traffic
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.profile import Profile
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve
from tests.support.waiting import HANG

PAGE = """<!DOCTYPE html><title>Frozen</title><iframe src="/inner.html"></iframe><script>
const seen = window.seen = {};
seen.random = [Math.random(), Math.random()];
seen.values = [...crypto.getRandomValues(new Uint8Array(4))];
seen.now = Date.now(); seen.date = new Date().toISOString(); seen.text = Date();
seen.performance = performance.now(); seen.origin = performance.timeOrigin;
const first = performance.getEntriesByType("navigation")[0];
seen.navigation = [first instanceof PerformanceNavigationTiming, JSON.stringify(first)];
seen.timing = performance.timing.navigationStart;
seen.intl = new Intl.DateTimeFormat("en", {dateStyle: "short", timeStyle: "short"}).format();
seen.kept = [new Date(2020, 0, 1).getFullYear(), new Date() instanceof Date, new (class extends Date {})().getTime()];
seen.native = [/native code/.test(Date.toString()), setTimeout.name, /native code/.test(setTimeout.toString())];
seen.machine = [navigator.hardwareConcurrency, navigator.deviceMemory];
seen.measure = performance.measure("m").duration;
seen.order = [];
setTimeout((x) => seen.order.push([x, Date.now()]), 300, "late");
setTimeout(() => seen.order.push(["soon", Date.now()]), 10);
setTimeout(async () => {
  const answer = await (await fetch("/slow.json")).json();
  seen.order.push(["answered " + answer.a, Date.now()]);
}, 100);
requestAnimationFrame((t) => seen.order.push(["frame", t]));
const once = setTimeout(() => seen.order.push(["never"]), 50); clearTimeout(once);
let ticks = 0; setInterval(() => { seen.ticks = ++ticks; }, 1000);
const say = (name) => (event) => { seen[name] = event.data; };
const inFile = new Worker("/worker.js?x=1"); inFile.onmessage = say("worker");
const inBlob = new Worker(URL.createObjectURL(new Blob(["postMessage([Math.random(), Date.now()])"])));
inBlob.onmessage = say("blob");
const inModule = new Worker("/module.js", {type: "module"}); inModule.onmessage = say("module");
</script>"""
CHANCE = """<!DOCTYPE html><script>
const seen = {random: [Math.random(), Math.random()], values: [...crypto.getRandomValues(new Uint8Array(4))]};
new Worker(URL.createObjectURL(new Blob(["postMessage(Math.random())"]))).onmessage = (e) => { seen.worker = e.data; };
</script>"""
RACE = """<!DOCTYPE html><script>
const told = [];
const ask = (name, path, kind = "onload") => { const x = new XMLHttpRequest(); x[kind] = (e) => {
  if (kind === "onload" || x.readyState === 4) told.push([name, x instanceof XMLHttpRequest, x.status, x.responseText]); };
  x.open("GET", path); x.send(); return x; };
ask("slow", "/slow.json");
ask("quick", "/quick", "onreadystatechange");
fetch("/slow.json?2").then((r) => r.json()).then((v) => told.push(["slow fetch", v.a]));
fetch("/quick").then((r) => r.text()).then((v) => told.push(["quick fetch", v]));
const left = ask("left", "/slow.json?3"); left.onabort = () => told.push(["abort", left.status]); left.abort();
const stop = new AbortController(); fetch("/slow.json?4", {signal: stop.signal}).catch((e) => told.push([e.name])); stop.abort();
const now = new XMLHttpRequest(); now.open("GET", "/quick", false); now.send(); told.push(["at once", now.responseText]);
ask("last", "/quick");
</script>"""
REOPENED = """<!DOCTYPE html><script>onload = () => setTimeout(() => { document.open();
document.write("<script>told = []; onmessage = (e) => told.push(e.data)</" + "script><iframe src=/ticks.html></iframe>");
document.close(); }, 10);</script>"""
BUSY = {
    "date": "const t = Date.now(); while (Date.now() - t < 20); say(Date.now() - t)",
    "made": "const t = new Date(); while (new Date() - t < 20); say(new Date() - t)",
    "microtasks": "(async () => { const t = performance.now(); while (performance.now() - t < 20) await 0; say(performance.now() - t); })()",
    "idle": "requestIdleCallback((d) => { while (d.timeRemaining() > 0); say(performance.now() - 31) })",
    "worker": "new Worker('/busy.js').onmessage = (e) => say(e.data)",
}
FAULTY = """<!DOCTYPE html><script>const told = [];
onerror = (message, url, line) => { told.push([message, new URL(url).pathname, line]); };
function inner() { null.x; } function outer() { try { inner(); } catch (e) { told.push(e.stack.match(/at .*/g).map((l) => l.replace(/.*\\//, ""))); } }
setTimeout(outer, 5); setTimeout(inner, 6); requestAnimationFrame(outer);
setTimeout("told.push(['text', this === window])", 30); setTimeout(function (...a) { told.push([...a, this === window]); }, 40, 1, 2);
console.time(); console.time("a"); setTimeout(() => { console.timeLog("a", "x"); console.timeEnd("a"); console.timeEnd(); console.timeEnd("a"); }, 50);
</script>"""
LIMITS = """<!DOCTYPE html><script>
const told = [], ask = (path, ms) => { const x = new XMLHttpRequest(); x.open("GET", path); x.timeout = ms;
  for (const kind of ["load", "timeout", "error", "abort"]) x.addEventListener(kind, () => told.push([path, kind, performance.now(), x.timeout]));
  x.send(); };
ask("/slow.json", 50); ask("/never", 500);
const now = new XMLHttpRequest(); now.open("GET", "/quick", false); try { now.timeout = 5; } catch (e) { told.push(e.name); }
</script>"""
WRONG = """<!DOCTYPE html><script>const told = [], attempt = (f) => { try { told.push(String(f())); } catch (e) { told.push(e.name); } };
attempt(() => new Worker("http://[")); attempt(() => new SharedWorker("http://[")); attempt(() => new EventSource("http://["));
attempt(() => setTimeout()); attempt(() => requestAnimationFrame("told.push(1)")); attempt(() => new EventSource("/quick"));
</script>"""
FILES = {
    "/wrong": ("text/html", WRONG),
    "/chance": ("text/html", CHANCE),
    "/limits": ("text/html", LIMITS),
    "/faulty": ("text/html", FAULTY),
    "/drawing": ("text/html", "<p id=t></p><script>(function f() { t.textContent = performance.now(); requestAnimationFrame(f); })()</script>"),
    "/busy.js": ("text/javascript", "while (Date.now() - 1735689600000 < 20); postMessage(Date.now() - 1735689600000)"),
    **{f"/busy/{name}": ("text/html", f"<p id=p></p><script>const say = (t) => {{ p.textContent = t; }}; {code}</script>")
       for name, code in BUSY.items()},
    "/reopened": ("text/html", REOPENED),
    "/ticks.html": ("text/html", "<script>setTimeout(() => parent.postMessage(performance.now(), '*'), 100)</script>"),
    "/race": ("text/html", RACE),
    "/": ("text/html", PAGE),
    "/inner.html": ("text/html", "<script>parent.inner = [Math.random(), Date.now()]</script>"),
    "/slow.json": ("application/json", '{"a": 1}'),
    "/worker.js": ("text/javascript", 'importScripts("lib.js"); setTimeout(() => postMessage([Math.random(), Date.now(),'
                   " location.search, LIB, crypto.randomUUID()]), 200);"),
    "/lib.js": ("text/javascript", "LIB = 7"),
    "/module.js": ("text/javascript", 'import {x} from "./part.js"; postMessage([Math.random(), x, typeof document]);'),
    "/part.js": ("text/javascript", "export const x = 5"),
    "/ticking": ("text/html", "<p id=t></p><script>setInterval(() => { t.textContent = performance.now(); }, 100)</script>"),
    "/asking": ("text/html", "<script>setInterval(() => fetch('/slow.json'), 500)</script>"),
    "/told": ("text/html", "<p id=t></p><script>let asked = 0, told = 0; const say = () => { t.textContent = `${asked} ${told}`; };"
              " setInterval(() => { asked++; fetch('/slow.json').then(() => { told++; say(); }); say(); }, 400)</script>"),
    "/hanging": ("text/html", "<p>x</p><script>fetch('/never')</script>"),
}  # fmt: skip


ended = threading.Event()


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/slow.json":
        time.sleep(0.15)
    if path == "/never":
        ended.wait(HANG)
    kind, text = FILES.get(path.partition("?")[0], ("text/plain", "nothing"))
    return 200, {"Content-Type": kind}, text.encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    ended.clear()  # a worker may come back to this file after others
    with serve(handle) as url:
        yield url
        ended.set()


def look(browser: Browsing, url: str, profile: Profile | None = None) -> dict[str, Any]:
    async def go() -> dict[str, Any]:
        driver = await browser.driver(profile=profile)
        _, calm = await driver.open(url)
        seen = await driver.page.evaluate("() => ({...seen, inner})")
        await driver.context.close()
        return {**seen, "quiet": calm.quiet}

    return browser.run(go())


@pytest.mark.slow
def test_a_page_sees_the_profiles_time_and_seeded_chance(browser: Browsing, site: str) -> None:
    start = start_of(Profile())
    seen = look(browser, f"{site}/")
    assert seen["quiet"]
    assert seen["now"] == start
    assert seen["date"] == "2025-01-01T00:00:00.000Z"
    assert seen["performance"] == 0
    assert seen["origin"] == seen["timing"] == start
    assert seen["navigation"][0] is True
    assert json.loads(seen["navigation"][1])["type"] == "navigate"
    assert "1/1/25" in seen["intl"]
    assert seen["kept"] == [2020, True, start]
    assert seen["native"] == [True, "setTimeout", True]
    assert seen["machine"] == [4, 8]
    assert seen["measure"] == 0
    assert seen["inner"][1] == start
    # timers in the page's own order, and none while an answer is awaited
    assert seen["order"] == [
        ["soon", start + 10],
        ["frame", 16],
        ["answered 1", start + 100],
        ["late", start + 300],
    ]
    assert seen["ticks"] == 3
    assert seen["worker"][1:4] == [start + 200, "?x=1", 7]
    assert seen["blob"][1] == start
    assert seen["module"][1:] == [5, "undefined"]
    again = look(browser, f"{site}/")
    assert again == seen


def test_answers_are_told_in_the_order_of_asking(browser: Browsing, site: str) -> None:
    async def go() -> list[list[Any]]:
        driver = await browser.driver()
        await driver.open(f"{site}/race")
        told = await driver.page.evaluate("told")
        await driver.context.close()
        return list(told)

    told = browser.run(go())
    at_once = [["abort", 0], ["at once", "nothing"], ["AbortError"]]
    assert [one for one in told if one in at_once] == at_once
    assert [one for one in told if one not in at_once] == [
        ["slow", True, 200, '{"a": 1}'],
        ["quick", True, 200, "nothing"],
        ["last", True, 200, "nothing"],
        ["slow fetch", 1],
        ["quick fetch", "nothing"],
    ]


def test_a_document_that_is_written_anew_still_drives_its_frames(browser: Browsing, site: str) -> None:
    async def go() -> Any:
        driver = await browser.driver()
        await driver.open(f"{site}/reopened")
        told = await driver.page.evaluate("told")
        await driver.context.close()
        return told

    assert browser.run(go()) == [100]


@pytest.mark.slow
def test_a_page_that_waits_by_asking_for_the_time_gets_on(browser: Browsing, site: str) -> None:
    async def go() -> dict[str, tuple[str, bool]]:
        driver, said = await browser.driver(), {}
        for way in BUSY:
            _, calm = await driver.open(f"{site}/busy/{way}")
            said[way] = (await driver.page.inner_text("#p"), calm.quiet)
        return said

    assert browser.run(go()) == dict.fromkeys(BUSY, ("21", True))


def test_a_timer_runs_as_the_browsers_own_would(browser: Browsing, site: str) -> None:
    async def go() -> tuple[Any, list[str], list[str]]:
        driver = await browser.driver()
        lines, errors = list[str](), list[str]()
        driver.context.on("console", lambda message: lines.append(message.text))
        driver.context.on("weberror", lambda error: errors.append(error.error.stack or ""))
        await driver.open(f"{site}/faulty")
        told = await driver.page.evaluate("told")
        await driver.context.close()
        return told, lines, errors

    told, lines, errors = browser.run(go())
    assert told == [
        ["faulty:3:25)", "faulty:3:55)"],
        ["Uncaught TypeError: Cannot read properties of null (reading 'x')", "/faulty", 3],
        ["faulty:3:25)", "faulty:3:55)"],
        ["text", True],
        [1, 2, True],
    ]
    assert len(errors) == 1
    assert errors[0].count("\n    at ") == 1
    assert lines == ["a: 50 ms x", "a: 50 ms", "default: 50 ms", "Timer 'a' does not exist"]


@pytest.mark.slow
def test_time_that_can_not_pass_is_told(browser: Browsing, site: str) -> None:
    async def go() -> Any:
        driver = await browser.driver()
        await driver.open(f"{site}/drawing")
        calm = await pass_time(driver.page, driver.traffic, 86_400.0, SettleTimeouts(virtual=10, real=0.5))
        await driver.context.close()
        return calm

    calm = browser.run(go())
    assert not calm.quiet
    assert "of 86400 s did not pass within 0.5 s" in calm.reason


def test_a_requests_limit_is_told_by_the_pages_clock(browser: Browsing, site: str) -> None:
    async def go() -> Any:
        driver = await browser.driver(SettleTimeouts(stuck=0.5))
        await driver.open(f"{site}/limits")
        told = await driver.page.evaluate("told")
        await driver.context.close()
        return told

    assert browser.run(go()) == [
        "InvalidAccessError",
        ["/slow.json", "load", 0, 50],
        ["/never", "timeout", 500, 500],
    ]


def test_what_makes_no_sense_fails_as_ever(browser: Browsing, site: str) -> None:
    async def go() -> Any:
        driver = await browser.driver()
        await driver.open(f"{site}/wrong")
        told = await driver.page.evaluate("told")
        await driver.context.close()
        return told

    refused = ["SyntaxError", "SyntaxError", "SyntaxError", "TypeError", "TypeError"]
    assert browser.run(go()) == [*refused, "[object EventSource]"]


@pytest.mark.slow
def test_another_seed_is_another_chance(browser: Browsing, site: str) -> None:
    one = look(browser, f"{site}/")
    other = look(browser, f"{site}/", replace(Profile(), seed=2, clock="2001-02-03T04:05:06+01:00"))
    assert one["random"] != other["random"]
    assert one["worker"][0] != other["worker"][0]
    assert other["date"] == "2001-02-03T03:05:06.000Z"
    assert len({*one["random"], one["inner"][0], one["worker"][0], one["blob"][0]}) == 5


@pytest.mark.slow
def test_a_secret_in_the_address_has_no_part_in_chance(browser: Browsing, site: str) -> None:
    """In replay a pseudonym stands there, another one in each snapshot."""
    stored = "stillweb-secret-bd546001ddc10b59db6a7d61kc19c3fe9ff5"

    def drawn(query: str) -> tuple[Any, ...]:
        seen = browser.run(browser.look(f"{site}/chance?{query}", "seen.worker", "seen"))
        return (*seen["random"], *seen["values"], seen["worker"])

    once = drawn("page=1&token=3f9d5c81e0a7b64d2c98f1073ae5d6b4")
    assert once == drawn(f"page=1&token={stored}") == drawn("page=1&token=77aa01e0a7b64d2c98f1073ae5d6b4")
    assert drawn("password=hunter2") == drawn(f"password={stored}")
    assert once != drawn(f"page=2&token={stored}")
    assert drawn("token=5") != drawn("token=6")


@pytest.mark.slow
def test_a_clock_that_never_ends_comes_to_rest(browser: Browsing, site: str) -> None:
    async def go() -> tuple[Any, str, str]:
        driver = await browser.driver()
        _, calm = await driver.open(f"{site}/ticking")
        before = await driver.page.inner_text("#t")
        await pass_time(driver.page, driver.traffic, 2.0, SettleTimeouts(virtual=0))
        after = await driver.page.inner_text("#t")
        await driver.context.close()
        return calm, before, after

    calm, before, after = browser.run(go())
    assert calm.quiet
    assert (before, after) == ("3000", "5000")


@pytest.mark.slow
def test_a_page_that_keeps_asking_is_said_to(browser: Browsing, site: str) -> None:
    async def go(path: str, patience: SettleTimeouts) -> Any:
        driver = await browser.driver(patience)
        _, calm = await driver.open(f"{site}{path}")
        await driver.context.close()
        return calm

    asking = browser.run(go("/asking", SettleTimeouts(total=3000)))
    assert not asking.quiet
    assert "keeps sending requests" in asking.reason
    hanging = browser.run(go("/hanging", SettleTimeouts(stuck=0.3)))
    assert not hanging.quiet
    assert "/never" in hanging.reason


def test_what_a_page_asked_for_last_is_told_to_it_before_its_time_is_up(browser: Browsing, site: str) -> None:
    """Otherwise the speed of the answer would decide where the page's time ends, and what it shows would differ each time."""

    async def go() -> str:
        driver = await browser.driver(SettleTimeouts(total=2000))
        _, calm = await driver.open(f"{site}/told")
        assert calm.reason == "keeps sending requests for 2 s"
        said: str = await driver.page.inner_text("#t")
        await driver.context.close()
        return said

    assert browser.run(go()) == "5 5"


class Late(Traffic):
    """Told of a request only when it is next waited for, as by a browser on a busy machine."""

    told = real = 0

    @property
    def count(self) -> int:  # type: ignore[override]
        return self.told

    @count.setter
    def count(self, value: int) -> None:
        self.real = value

    async def idle(self, stuck: float, seconds: float) -> bool:
        await asyncio.sleep(0.05)
        self.told = self.real
        return await super().idle(stuck, seconds)


@pytest.mark.slow
def test_a_page_that_keeps_asking_is_never_quiet_however_late_its_requests_are_told(
    browser: Browsing, site: str
) -> None:
    async def go() -> Any:
        driver = await browser.driver(SettleTimeouts(total=500))
        await driver.open(f"{site}/asking")
        calm = await settle(driver.page, Late(driver.context), SettleTimeouts(virtual=2000, total=4000))
        await driver.context.close()
        return calm

    calm = browser.run(go())
    assert not calm.quiet
    assert "keeps sending requests" in calm.reason


def test_a_clock_that_is_none() -> None:
    with pytest.raises(UsageError, match="clock 'noon' is not an ISO 8601 time"):
        script(replace(Profile(), clock="noon"))
    assert start_of(replace(Profile(), clock="1970-01-01T00:00:01")) == 1000
