"""Every way in which a page can tell one run from another: each gives the same in two runs, and what it should."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.proxy.browser.freeze import start_of
from stillweb.snapshots.profile import Profile
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

START = start_of(Profile())
INNER = """<script>const say = (...x) => parent.postMessage(["NAME", ...x], "*");
say(Math.random(), Date.now(), performance.now(), crypto.randomUUID?.(), document.lastModified);
setTimeout(() => say("later", Date.now(), performance.now()), 120);</script>"""
PAGE = """<!DOCTYPE html><title>Holes</title><style>@keyframes grow { from { width: 0 } to { width: 500px } }
#grow { animation: grow 1s linear; width: 500px } #fade { transition: opacity 1s linear; opacity: 0 } body { height: 9000px }
</style><div id=grow></div><div id=fade></div><iframe src=/frame.html></iframe>
<svg width=200 height=20><rect id=rect height=9><animate attributeName=width from=0 to=100 dur=1s fill=freeze /></rect></svg><p id=declared><template shadowrootmode=open><style>@keyframes grow { from { width: 0 } to { width: 500px } }
div { animation: grow 1s linear; width: 500px }</style><div></div></template></p>
<script>
const seen = window.seen = {};
const note = (k, v) => { (seen[k] ||= []).push(v); };
const attempt = (k, f) => Promise.resolve().then(f).then((v) => note(k, v), (e) => note(k, "ERR " + e));
const later = (ms, k, f) => setTimeout(() => attempt(k, f), ms);
addEventListener("message", (e) => { if (Array.isArray(e.data)) note("frame " + e.data[0], e.data.slice(1)); });
const INNER = {{INNER}};
for (const [name, set] of Object.entries({
  srcdoc: (f, s) => { f.srcdoc = s; }, twin: (f, s) => { f.srcdoc = s; },
  blob: (f, s) => { f.src = URL.createObjectURL(new Blob([s], {type: "text/html"})); },
  data: (f, s) => { f.src = "data:text/html," + encodeURIComponent(s); },
  sandboxed: (f, s) => { f.sandbox = "allow-scripts"; f.srcdoc = s; },
  foreign: (f, s) => { f.src = location.href.replace("127.0.0.1", "localhost").replace("/holes", "/frame.html?foreign"); },
  written: (f, s) => setTimeout(() => { f.contentDocument.open(); f.contentDocument.write(s); f.contentDocument.close(); }, 0),
})) { const f = document.createElement("iframe"); set(f, INNER.replace("NAME", name)); document.body.append(f); }
for (const name of ["blank", "blank"]) attempt(name, () => { const f = document.createElement("iframe"); document.body.append(f);
  const w = f.contentWindow; return [w.Math.random(), w.Date.now(), w.crypto.randomUUID()]; });
attempt("lastModified", () => document.lastModified);
attempt("records", () => { const o = new PerformanceObserver(() => {}); o.observe({entryTypes: ["resource", "mark"]});
  const x = new XMLHttpRequest(); x.open("GET", "/lib.js?records", false); x.send();
  return [o.takeRecords().map((e) => [new URL(e.name).search, e.startTime, e.duration]), o.constructor === PerformanceObserver]; });
later(40, "measures", () => [["domComplete"], ["navigationStart", "responseEnd"], ["connectStart"]].map((a) => {
  const m = performance.measure("m", ...a); return [m.startTime, m.duration]; }));
later(45, "measure of nothing", () => { try { performance.measure("m", "unloadEventStart"); } catch (e) { return e.name; } });
setTimeout(() => note("endless", performance.now()), Infinity); setTimeout(() => note("endless", performance.now()), 2 ** 31);
attempt("cookies", async () => {
  for (const one of [`month=1; expires=${new Date(Date.now() + 30 * 864e5).toUTCString()}`, "dashes=1; Path=/; Expires=Wed, 01-Jan-2025 01:00:00 GMT",
    "age=1; max-age=60", "gone=1; Expires=Tuesday, 31-Dec-24 23:59:59 GMT", "no=1; expires=rubbish", "both=1; max-age=9; expires=Thu, 01 Jan 1970 00:00:00 GMT",
    "out=1", "out=; Max-Age=0", "off=1", "off=; expires=Thu, 01 Jan 1970 00:00:00 GMT"]) document.cookie = one;
  await cookieStore.set({name: "stored", value: "1", expires: Date.now() + 1000});
  await cookieStore.set({name: "past", value: "1", expires: Date.now() - 1000});
  return document.cookie.replaceAll("=1", "").split("; ").sort(); });  // which of two ways of setting comes first is Chromium's affair
attempt("zone", () => [Intl.DateTimeFormat().resolvedOptions().timeZone, navigator.languages.join(), new Date().toString(), new Date().toLocaleString()]);
attempt("toJSON", () => JSON.stringify(performance.toJSON()));
attempt("keys", async () => Promise.all([{name: "AES-GCM", length: 128}, {name: "HMAC", hash: "SHA-256"}].map(async (a) =>
  [...new Uint8Array(await crypto.subtle.exportKey("raw", await crypto.subtle.generateKey(a, true, a.length ? ["encrypt"] : ["sign"])))])));
later(500, "css animation", () => [document.getAnimations().map((a) => [a.animationName, a.currentTime, a.playState, a.startTime]), getComputedStyle(grow).width]);
grow.onanimationend = (e) => note("animationend", [Date.now(), e.elapsedTime, e.timeStamp]);
fade.ontransitionend = (e) => note("transitionend", [Date.now(), e.elapsedTime]);
setTimeout(() => { fade.style.opacity = 1; }, 50);
later(550, "transition", () => getComputedStyle(fade).opacity);
{ const a = document.body.animate([{outlineWidth: 0}, {outlineWidth: "9px"}], 400); a.onfinish = () => note("finish", Date.now()); a.finished.then(() => note("finished", Date.now())); }
later(500, "smil", () => document.querySelector("svg").getCurrentTime());
const frames = []; const step = (t) => { frames.push([t, Date.now()]); frames.length < 4 ? requestAnimationFrame(step) : note("frames", frames); }; requestAnimationFrame(step);
requestIdleCallback((d) => note("idle", [d.timeRemaining(), d.didTimeout, Date.now()]), {timeout: 500});
const ticks = []; const id = setInterval(() => { ticks.push(Date.now() - {{START}}); if (ticks.length === 5) { clearInterval(id); note("interval", ticks); } }, 33);
attempt("postTask", () => scheduler.postTask(() => Date.now(), {delay: 77}));
attempt("abort", () => new Promise((d) => AbortSignal.timeout(60).addEventListener("abort", () => d(Date.now()))));
const shared = new SharedWorker("/shared.js", "one"); shared.port.onmessage = (e) => note("shared", e.data); shared.port.postMessage("hello");
const SHARED = "onconnect = ({ports: [p]}) => { p.postMessage([Math.random(), Date.now(), ++count]); setTimeout(() => p.postMessage(['later', Date.now()]), 150); }; let count = 0;";
const blobbed = URL.createObjectURL(new Blob([SHARED], {type: "text/javascript"}));
for (const [name, url, options] of [["shared blob", blobbed, "a"], ["shared blob again", blobbed, "a"], ["shared data", "data:text/javascript," + encodeURIComponent(SHARED), {type: "module"}]])
  new SharedWorker(url, options).port.onmessage = (e) => note(name, e.data);
for (const [name, url, options] of [["module", "/module.js", {type: "module"}], ["nested", "/nested.js?a=1", {}], ["classic", "/classic.js", {name: "me"}],
  ["blob worker", URL.createObjectURL(new Blob(["postMessage([Math.random(), Date.now(), performance.timeOrigin])"], {type: "text/javascript"})), {type: "module"}],
  ["data worker", "data:text/javascript,postMessage([Math.random(), Date.now()])", {}]])
  new Worker(url, options).onmessage = (e) => note(name, e.data);
attempt("streamed", async () => { const reader = (await fetch("/slow.txt")).body.getReader(); let n = 0;
  for (let r; !(r = await reader.read()).done;) n += r.value.length; return [n, Date.now()]; });
later(20, "smooth", async () => { scrollTo({top: 4000, behavior: "smooth"}); await new Promise((d) => requestAnimationFrame(d)); return scrollY; });
const GROWS = "<style>@keyframes grow { from { width: 0 } to { width: 500px } } div { animation: grow 1s linear; width: 500px }</style><div></div>";
const grows = (name, root) => { const e = root.querySelector("div"); e.onanimationend = () => note(name, "ended " + Date.now());
  later(250, name, () => getComputedStyle(e).width); later(260, name, () => e.animate([{opacity: 0}, {opacity: 1}], 100).finished.then(() => Date.now())); };
for (const mode of ["open", "closed"]) { const e = document.createElement("p"); document.body.append(e);
  const root = e.attachShadow({mode}); root.innerHTML = GROWS; grows(mode + " shadow", root); }
{ const e = document.createElement("p"); document.body.append(e);
  e.setHTMLUnsafe("<p><template shadowrootmode=open>" + GROWS + "</template></p>"); grows("set shadow", e.firstChild.shadowRoot); }
grows("declared shadow", declared.shadowRoot);
const once = (kind) => new Promise((d) => addEventListener(kind, () => d(Date.now()), {once: true}));
later(700, "went back", () => { history.pushState(1, "", "#a"); history.back(); return once("popstate"); });
later(720, "scrolled", () => { scrollTo(0, 10); return once("scroll"); });
later(740, "scrolled on", () => { document.documentElement.scrollTop = 20; return once("scroll"); });
later(800, "view transition", async () => { const said = [], t = document.startViewTransition(async () => { said.push(Date.now());
  await new Promise((d) => setTimeout(d, 30)); }); await t.ready; said.push(Date.now()); await t.finished; said.push(Date.now()); return said; });
later(2000, "clock", () => performance.now());
</script>""".replace("{{INNER}}", json.dumps(INNER).replace("</", "<\\/")).replace("{{START}}", str(START))
# The parser stops for a script before a shadow tree, and again below it, while something moves in it.
PARSED = """<!DOCTYPE html><title>Parsed</title><div id=host><script src=/lib.js></script><template shadowrootmode=open><style>
@keyframes grow { from { width: 0 } to { width: 500px } } div { animation: grow .1s linear }</style><div></div></template></div>
<script src=/slow.js></script><script>const seen = window.seen = {};
host.shadowRoot.querySelector("div").onanimationend = () => { seen.ended = Date.now(); };</script>"""
FILES = {
    "/holes": ("text/html", PAGE),
    "/parsed": ("text/html", PARSED),
    "/frame.html": ("text/html", INNER.replace('"NAME"', "location.search || 'http'")),
    "/shared.js": ("text/javascript", "onconnect = ({ports: [p]}) => { p.postMessage([Math.random(), Date.now()]);"
                   "setTimeout(() => p.postMessage(['later', Date.now()]), 250); p.onmessage = (m) => p.postMessage(['echo', m.data]); }"),
    "/module.js": ("text/javascript", "import {t} from './part.js'; postMessage([Math.random(), Date.now(), t])"),
    "/part.js": ("text/javascript", "export const t = [Date.now(), Math.random()];"),
    "/nested.js": ("text/javascript", "const w = new Worker('deep.js?b=2'); w.onmessage = (e) => postMessage(e.data);"),
    "/deep.js": ("text/javascript", "importScripts('lib.js'); setTimeout(async () => postMessage([Math.random(), Date.now(),"
                 " location.pathname + location.search, LIB, await (await fetch('lib.js')).text()]), 100)"),
    "/classic.js": ("text/javascript", "postMessage([performance.timeOrigin, self.name, new Date().toString(), navigator.language])"),
    "/lib.js": ("text/javascript", "LIB = 7"),
    "/slow.txt": ("text/plain", "x" * 300_000),
}  # fmt: skip


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path.startswith("/slow"):
        time.sleep(0.3)
    kind, text = FILES.get(path.partition("?")[0], ("text/plain", "nothing"))
    return 200, {"Content-Type": kind}, text.encode()


async def look(browser: Browsing, url: str) -> dict[str, Any]:
    driver = await browser.driver()
    _, calm = await driver.open(url)
    seen: dict[str, Any] = await driver.page.evaluate("() => seen")
    await driver.context.close()
    return {**seen, "quiet": [calm.reason]}


@pytest.fixture(scope="module")
def runs(chromium: Browsing) -> Iterator[list[dict[str, Any]]]:
    with serve(handle) as url:
        yield [chromium.run(look(chromium, f"{url}/holes")) for _ in range(2)]


def frame(start: int = START) -> Any:
    return lambda said: said[0][1:3] == [start, 0] and said[1] == ["later", start + 120, 120]


EXPECTED: dict[str, Any] = {
    "quiet": lambda said: said == [""],
    "frame srcdoc": frame(),
    "frame twin": frame(),
    "frame blob": frame(),
    "frame data": frame(),
    "frame sandboxed": frame(),
    "frame ?foreign": frame(),
    "frame http": frame(),
    "frame written": frame(),
    "blank": lambda said: said[0][1] == START and said[0][0] != said[1][0] and said[0][2] != said[1][2],
    "lastModified": lambda said: said == ["01/01/2025 00:00:00"],
    "zone": lambda said: said[0][0] == "UTC" and said[0][1] == "en-US" and "2025 00:00:00 GMT+0000" in said[0][2],
    "records": lambda said: said == [[[["?records", 0, 0]], True]],
    "measures": lambda said: said == [[[2, 38], [0, 1], [0, 40]]],
    "measure of nothing": lambda said: said == ["InvalidAccessError"],
    "went back": lambda said: said == [START + 700],
    "scrolled": lambda said: said == [START + 720],
    "scrolled on": lambda said: said == [START + 740],
    "view transition": lambda said: said == [[START + 800, START + 830, START + 1080]],
    "endless": lambda said: said == [0, 0],
    "cookies": lambda said: said == [["age", "both", "dashes", "month", "no", "stored"]],
    "toJSON": lambda said: json.loads(said[0])["timeOrigin"] == START
    and json.loads(said[0])["timing"]["navigationStart"] == START,
    "keys": lambda said: [len(key) for key in said[0]] == [16, 64],
    "css animation": lambda said: ["grow", 500, "running", 0] in said[0][0] and said[0][1] == "250px",
    "animationend": lambda said: said == [[START + 1000, 1, 1000]],
    "transition": lambda said: said == ["0.5"],
    "transitionend": lambda said: said == [[START + 1050, 1]],
    "finish": lambda said: said == [START + 400],
    "finished": lambda said: said == [START + 400],
    "smil": lambda said: said == [0],  # pictures that move stand at their beginning
    "frames": lambda said: said[0] == [[n, START + n] for n in (16, 32, 48, 64)],
    "idle": lambda said: said == [[50, False, START + 1]],
    "interval": lambda said: said[0] == [33, 66, 99, 132, 165],
    "postTask": lambda said: said == [START + 77],
    "abort": lambda said: said == [START + 60],
    "shared": lambda said: [s[:2] for s in said[1:]] == [["echo", "hello"], ["later", START + 250]],
    "shared blob": lambda said: said[0][1:] == [START, 1] and said[1] == ["later", START + 150],
    "shared blob again": lambda said: said[0][1:] == [START, 2] and said[1] == ["later", START + 150],
    "shared data": lambda said: said[0][1:] == [START, 1] and said[1] == ["later", START + 150],
    "module": lambda said: said[0][1] == said[0][2][0] == START,
    "nested": lambda said: said[0][1:] == [START + 100, "/deep.js?b=2", 7, "LIB = 7"],
    "classic": lambda said: said[0][:2] == [START, "me"] and said[0][3] == "en-US",
    "blob worker": lambda said: said[0][1:] == [START, START],
    "data worker": lambda said: said[0][1] == START,
    "streamed": lambda said: said == [[300_000, START]],
    "smooth": lambda said: said == [4000],
    **dict.fromkeys(
        ("open shadow", "closed shadow", "set shadow", "declared shadow"),
        lambda said: said == ["125px", START + 360, f"ended {START + 1000}"],
    ),
    "clock": lambda said: said == [2000],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", EXPECTED)
def test_a_second_run_sees_the_same(runs: list[dict[str, Any]], what: str) -> None:
    one, other = runs
    assert one.get(what) == other.get(what)
    assert EXPECTED[what](one[what]), one[what]


@pytest.mark.slow
def test_nothing_else_was_said(runs: list[dict[str, Any]]) -> None:
    assert set(runs[0]) == set(EXPECTED)
    chances = [runs[0][f"frame {name}"][0][0] for name in ("srcdoc", "twin", "blob", "data", "sandboxed")]
    assert len(set(chances)) == len(chances)  # two frames of one kind are not twins


@pytest.mark.slow
def test_what_moves_in_a_declared_shadow_tree_stands_while_the_parser_waits(chromium: Browsing) -> None:
    with serve(handle) as url:
        assert chromium.run(look(chromium, f"{url}/parsed")) == {"ended": START + 100, "quiet": [""]}
