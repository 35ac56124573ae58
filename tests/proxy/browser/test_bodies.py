"""A body that a script reads piece by piece is waited for, however it is read; one without an end is not waited for without end."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import stillweb
from stillweb.proxy.check.check import check
from stillweb.proxy.replay.gateway import Gateway
from tests.proxy.origin import Answer, Asked, Origin

PIECES = 6
COUNT = "const count = async (pieces) => { let n = 0; for await (const one of pieces) n += one.length; return n; };"
WAYS = {
    "reader": "const reader = r.body.getReader(); for (let p; !(p = await reader.read()).done;) n += p.value.length;",
    "for-await": "n = await count(r.body);",
    "through": "n = await count(r.body.pipeThrough(new TextDecoderStream()));",
    "to": "await r.body.pipeTo(new WritableStream({write: (piece) => { n += piece.length; }}));",
    "tee": "n = await count(r.body.tee()[1]);",
}
# What a page does with an answer that has no end. It shows the first of it, or nothing.
ENDLESS = {
    "unread": "show('asked');",
    "half": "const p = await r.body.getReader().read(); show(p.value.length);",
    "left": "const reader = r.body.getReader(); show((await reader.read()).value.length); reader.cancel();",
    "all": "for await (const piece of r.body) show(piece.length);",
}


async def pieces(count: float) -> AsyncIterator[bytes]:
    sent = 0
    while sent < count:
        yield b"x" * 10
        sent += 1
        await asyncio.sleep(0.4)


async def one() -> AsyncIterator[bytes]:
    yield b"x" * 10
    await asyncio.Event().wait()


def answer(asked: Asked) -> Answer:
    way = asked.path.rpartition("/")[2]
    if asked.path.startswith("/body/"):
        return Answer(headers=[("Cache-Control", "no-store")], body=pieces(PIECES) if way in WAYS else one())
    ways = (
        {one: script + "show(n);" for one, script in WAYS.items()} if way == "read" else {way: ENDLESS[way]}
    )
    page = f"<title>{way}</title><script>{COUNT}</script>" + "".join(
        f"<p id={one}>-<script>(async () => {{ let n = 0; const show = (n) => {{ document.getElementById('{one}').textContent = n; }};"
        f"const r = await fetch('/body/{one}'); {script} }})();</script>"
        for one, script in ways.items()
    )
    return Answer(headers=[("Content-Type", "text/html")], body=page.encode())


@pytest.mark.slow
def test_bodies_are_read_to_their_end_or_as_far_as_they_come(tmp_path: Path) -> None:
    seconds: dict[str, float] = {}
    with Origin(answer) as origin, stillweb.record(tmp_path / "site") as recording:
        base = f"http://127.0.0.1:{origin.port}"
        assert recording.visit(f"{base}/page/read").ok
        for way in ENDLESS:
            began = time.monotonic()
            recording.visit(f"{base}/page/{way}")
            seconds[way] = time.monotonic() - began
    with stillweb.open(tmp_path / "site") as snapshot, Gateway(snapshot) as gateway:
        shown = {view.title: (snapshot.resource("text", view.address) or b"").decode().strip() for view in snapshot.views()}  # fmt: skip
        report = check(snapshot, gateway)
    assert shown.pop("read").split() == [str(10 * PIECES)] * len(WAYS)
    assert shown == {"unread": "asked", "half": "10", "left": "10", "all": "10"}
    assert [view.address for view in report.views if not view.same] == []
    assert seconds["all"] < seconds["unread"] + 30  # not until the patience with a whole page is out
