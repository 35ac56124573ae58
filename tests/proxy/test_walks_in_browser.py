"""Random walks on the stateful site in Chromium, several contexts at once, while recording and while replaying.

What a person sees must be what the live site shows for that walk, or a miss. STILLWEB_BROWSER_WALKS says how many
(default 3), STILLWEB_BROWSER_FIRST the first of them (many in parts: 25 take two minutes).
"""

import asyncio
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from stillweb.proxy import Authority, Gateway, Recorder
from stillweb.proxy.browser.browser import BrowserHost
from stillweb.snapshots import Profile, Snapshot, Writer, seal
from tests.proxy.browsing import Browsing
from tests.support.stateful_site import HOST, serve_both

WALKS = int(os.environ.get("STILLWEB_BROWSER_WALKS", "3"))
FIRST = int(os.environ.get("STILLWEB_BROWSER_FIRST", "0"))
SESSIONS = 3
LENGTH = 6
Action = tuple[str, str]
ACTIONS: dict[str, list[str]] = {
    "open": ["/", "/list", "/list?page=2", "/account", "/hello", "/cart", "/old", "/language?to=fr", "/sort?by=name", "/secure", "/menu"],
    "filter": ["/filter category=toys", "/filter category=books", "/filter category="],
    "period": ["/period year=2020", "/period year="],
    "login": ["/login user=ann&password=apple-pie-7", "/login user=ann&password=wrong-guess-1"],
    "count": ["/count x=1"],
    "logout": ["/logout x=1"],
    "theme": ["dark", "light"],
    "tab": ["second", "third"],
    "shelf": ["upper", "lower"],
    "grid": ["next"],
    "fetch": ['PUT /things/1 {"name":"1x"}', 'PATCH /things/1 {"suffix":"!"}', "DELETE /things/1 ", "GET /things ",
              'POST /api/search {"q":"toys","step":2}', 'POST /graphql {"operationName":"Note","query":"mutation N","variables":{"text":"milk"}}',
              'POST /graphql {"operationName":"Notes","query":"query Notes","variables":{}}'],
}  # fmt: skip
FORMS = {"filter", "period", "login", "count", "logout"}


def random_walk(seed: int) -> list[Action]:
    """A walk that stays with three kinds of action most of the time."""
    draw = random.Random(seed)
    kinds = [*draw.sample(sorted(ACTIONS), 3), "open", "open"]
    walk = []
    for _ in range(LENGTH):
        what = draw.choice(kinds)
        walk.append((what, draw.choice(ACTIONS[what])))
        if what in ("filter", "period"):
            walk.append(("open", "/list"))
    return walk


class Missed(Exception):
    """A page on the way was not recorded."""


async def go(page: Page, path: str) -> None:
    await page.goto(HOST + path)
    if "stillweb: miss" in await page.evaluate("document.body.innerText"):
        raise Missed


async def perform(page: Page, action: Action) -> str:
    """Perform an action; return the text and the address after it. Raises Missed."""
    what, value = action
    if what in FORMS:
        path, _, query = value.partition(" ")
        if not page.url.startswith("http"):
            await go(page, "/")
        async with page.expect_navigation():
            await page.evaluate(SUBMIT, [path, query])
    elif what == "grid":
        await go(page, "/grid.aspx")
        async with page.expect_navigation():
            await page.evaluate(POSTBACK)
    elif what in ("theme", "tab"):
        if not page.url.startswith(f"{HOST}/app"):
            await go(page, "/app")
        await page.evaluate(TURN, [what, value])
    elif what == "shelf":
        await go(page, "/shelf")
        await page.evaluate(f"document.cookie = 'shelf={value}; path=/'")
        await page.reload()
    elif what == "fetch":
        await go(page, "/app")
        await page.evaluate(ASK, value.split(" ", 2))
    else:
        await go(page, value)
    await page.evaluate("async () => { await window.ready; }")
    text = str(await page.evaluate("document.body.innerText"))
    spoken = await page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol")
    return "miss" if "stillweb: miss" in text else f"{page.url} {spoken}: {text}"


SUBMIT = """([path, query]) => {
  const form = document.createElement('form');
  form.method = 'post'; form.action = path;
  for (const [name, value] of new URLSearchParams(query)) {
    const field = document.createElement('input');
    field.type = 'hidden'; field.name = name; field.value = value; form.append(field);
  }
  document.body.append(form); form.submit();
}"""
POSTBACK = """() => {
  const form = document.querySelector('form');
  const field = document.createElement('input');
  field.type = 'hidden'; field.name = '__EVENTTARGET'; field.value = 'next'; form.append(field);
  form.method = 'post'; form.action = '/grid.aspx'; form.submit();
}"""
TURN = """async ([what, value]) => {
  await window.ready;
  if (what === 'theme') { localStorage.setItem('theme', value); window.ready = all(); return; }
  if (location.hash === '#' + value) return;
  const turned = new Promise(done => addEventListener('hashchange', done, {once: true}));
  location.hash = value; await turned;
}"""
ASK = """async ([method, path, body]) => {
  await window.ready;
  const options = {method, headers: body ? {'Content-Type': 'application/json'} : {}, body: body || undefined};
  const answer = await fetch(path, options);
  document.getElementById('reply').textContent = answer.status + ' ' + await answer.text();
}"""


async def walked(host: BrowserHost, proxy_url: str, name: str, walk: list[Action]) -> list[str]:
    """The texts of a walk in a fresh context; "miss" ends them."""
    context = await host.context(name, proxy_url, Profile())
    try:
        page = await context.new_page()
        texts: list[str] = []
        for action in walk:
            try:
                texts.append(await perform(page, action))
            except Missed:
                texts.append("miss")
            if texts[-1] == "miss":
                break
        return texts
    finally:
        await context.close()


async def walk_all(host: BrowserHost, proxy: Any, walks: list[list[Action]], label: str) -> list[list[str]]:
    """All walks, some at once."""
    turn = asyncio.Semaphore(SESSIONS)

    async def one(number: int) -> list[str]:
        async with turn:
            name = f"{label}{number}"
            return await walked(host, proxy.proxy_url(name), name, walks[number])

    return await asyncio.gather(*(one(n) for n in range(len(walks))))


@dataclass
class Seen:
    """Replayed texts beside live ones."""

    right: int = 0
    missed: int = 0
    wrong: list[str] = field(default_factory=list)

    def compare(self, walk: list[Action], live: list[str], frozen: list[str]) -> None:
        for number, (want, have) in enumerate(zip(live, frozen, strict=False)):
            if have == "miss":
                self.missed += 1
            elif want == have:
                self.right += 1
            else:
                self.wrong.append(f"{walk[: number + 1]}\n  live {want!r}\n  here {have!r}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_in_a_browser_the_text_is_the_live_one_or_a_miss(tmp_path: Path, chromium: Browsing) -> None:
    walks = [random_walk(seed) for seed in range(FIRST, FIRST + WALKS)]
    others = [
        *(w[LENGTH // 2 :] for w in walks[: WALKS // 3]),
        *(random_walk(900 + FIRST + n) for n in range(WALKS // 3)),
    ]
    ours, theirs = (Authority.load_or_create(tmp_path / name) for name in ("ours", "theirs"))

    async def run() -> tuple[Seen, Seen]:
        same, other = Seen(), Seen()
        host = chromium.host
        with serve_both(theirs) as places:
            options: dict[str, Any] = {
                "resolve": places,
                "authority": ours,
                "upstream_ca": theirs.certificate_path,
            }
            with Writer.open(tmp_path / "site") as writer, Recorder(writer, **options) as recorder:
                live = await walk_all(host, recorder, walks, "w")
            with Writer.open(tmp_path / "aside") as writer, Recorder(writer, **options) as recorder:
                live_others = await walk_all(host, recorder, others, "o")
        with (
            Snapshot.open(seal(tmp_path / "site", state=ours.directory).path) as snapshot,
            Gateway(snapshot, authority=ours) as gateway,
        ):
            for walk, want, have in zip(walks, live, await walk_all(host, gateway, walks, "r"), strict=True):
                same.compare(walk, want, have)
            found = await walk_all(host, gateway, others, "s")
            for walk, want, have in zip(others, live_others, found, strict=True):
                other.compare(walk, want, have)
        return same, other

    same, other = chromium.run(run())
    if "STILLWEB_BROWSER_WALKS" in os.environ:
        for label, seen in (("as recorded", same), ("others", other)):
            print(f"\n{label}: {seen.right} right, {seen.missed} missed, {len(seen.wrong)} wrong")  # noqa: T201
    assert same.wrong == []
    assert other.wrong == []
    assert same.right > 8 * max(1, same.missed)
