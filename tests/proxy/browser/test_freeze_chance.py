"""Chance hangs on the code that asks for it: not on which module the network brought first."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.snapshots.profile import Profile
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve
from tests.support.waiting import STARTS

SHARED = """export const name = () => [Math.random(), crypto.randomUUID(), ...crypto.getRandomValues(new Uint8Array(4))].join(" ");"""
PAGE = """<!DOCTYPE html><script>const token = "{{TOKEN}}"; window.seen = {inline: Math.random()};
const stack = () => typeof new Error("x").stack; const limit = Error.stackTraceLimit;</script>
<script>seen.kept = [stack(), Error.stackTraceLimit === limit, "prepareStackTrace" in Error];
Error.prepareStackTrace = () => "the page's own"; seen.own = [Math.random(), new Error("x").stack]; delete Error.prepareStackTrace;
seen.loop = new Set(Array.from({length: 5000}, () => Math.random())).size;
for (const name of ["a", "b"]) import(`/${name}.js`);</script>"""
PARTS = """import { name } from "/shared.js"; seen.NAME = [name(), Math.random()];"""


@pytest.fixture(scope="module")
def runs(chromium: Browsing) -> Iterator[list[dict[str, Any]]]:
    """A page loaded twice; the second time its modules come in the other order, and its secret is longer."""
    visits = itertools.count()
    later, other_came = "", threading.Event()

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        nonlocal later, other_came
        if path == "/":
            visit = next(visits)
            later, other_came = ("/a.js", "/b.js")[visit % 2], threading.Event()
            return 200, {"Content-Type": "text/html"}, PAGE.replace("{{TOKEN}}", "x" * (9 * visit)).encode()
        if path == later:
            assert other_came.wait(STARTS)
        if path == "/done":
            other_came.set()
        text = SHARED if path == "/shared.js" else PARTS.replace("NAME", path[1:2])
        if path in ("/a.js", "/b.js") and path != later:
            text += "fetch('/done');"
        return 200, {"Content-Type": "text/javascript"}, text.encode()

    with serve(handle) as url:
        yield [
            chromium.run(chromium.look(f"{url}/", "seen.a && seen.b", "{...seen, order: Object.keys(seen)}"))
            for _ in range(2)
        ]


@pytest.mark.slow
def test_the_order_in_which_modules_come_changes_no_chance(runs: list[dict[str, Any]]) -> None:
    one, other = runs
    assert one["order"][-2:] == ["b", "a"]
    assert other["order"][-2:] == ["a", "b"]
    assert (one["a"], one["b"]) == (other["a"], other["b"])
    assert one["a"][0] != one["b"][0]  # of one function, asked by two


@pytest.mark.slow
def test_what_stands_before_it_in_a_script_changes_no_chance(runs: list[dict[str, Any]]) -> None:
    assert runs[0]["inline"] == runs[1]["inline"]


def test_what_a_page_does_with_its_errors_stays_its_own(runs: list[dict[str, Any]]) -> None:
    assert runs[0]["kept"] == ["string", True, False]
    assert runs[0]["own"] == [runs[1]["own"][0], "the page's own"]


def test_a_loop_draws_other_numbers_each_time(runs: list[dict[str, Any]]) -> None:
    assert runs[0]["loop"] == 5000


def one_stream(seed: str, count: int) -> list[float]:
    """Numbers as `Math.random` gave them before: sfc32, seeded by FNV-1a."""
    mask, h = (1 << 32) - 1, 0x811C9DC5
    for one in seed:
        h = (h ^ ord(one)) * 0x01000193 & mask
    a, b, c, d = h, h ^ 0x9E3779B9, h ^ 0x243F6A88, 1
    drawn = list[int]()
    for _ in range(15 + 2 * count):
        t = (a + b + d) & mask
        a, b, c, d = b ^ b >> 9, (c + (c << 3)) & mask, ((c << 21 | c >> 11) + t) & mask, (d + 1) & mask
        drawn.append(t)
    return [((x >> 5) * 67108864 + (y >> 6)) / 2**53 for x, y in zip(drawn[15::2], drawn[16::2], strict=True)]


@pytest.mark.slow
def test_what_was_recorded_before_draws_the_same_numbers_again(browser: Browsing) -> None:
    page = b"<!DOCTYPE html><script>const f = () => Math.random(), g = () => Math.random(); window.seen = [f(), g(), f()];</script>"

    async def look(browser: Browsing, url: str, profile: Profile) -> list[float]:
        driver = await browser.driver(profile=profile)
        await driver.open(url)
        seen: list[float] = await driver.page.evaluate("() => seen")
        await driver.context.close()
        return seen

    with serve(lambda *_: (200, {"Content-Type": "text/html"}, page)) as url:
        older = Profile.from_json({"seed": 3})
        expected = one_stream(f"3|math|{url}/", 3)
        assert browser.run(look(browser, f"{url}/", older)) == expected
        now = browser.run(look(browser, f"{url}/", Profile(seed=3)))
        assert not set(now) & set(expected)
