"""`python -m benchmarks.identity [--pairs N]`: the hard set asked of Stillweb and of its peers.

A wrong answer is an answer given to a request that is another one; a miss is none given to the same request. What is
given and said to be unsure (`ambiguous`, which no peer can say) is counted apart. The pairs are those of the tests
(tests/support/hard_set.py), each on hosts of its own. What can be run is run: mitmproxy's server playback here, pywb and
vcrpy with the Python of .venv-peers, wabac.js in Node (`npm ci --ignore-scripts --prefix benchmarks/wabac` first),
Playwright's HAR in Chromium. Where wabac.js can't be run its published rule is applied (the same URL with the body in its
query, else any capture that begins with the part before "?").
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stillweb.snapshots.http.bodies import typed_body
from stillweb.snapshots.identity.keys import canonical_url
from stillweb.snapshots.identity.urlkeys import request_urlkey
from stillweb.snapshots.request import Request
from tests.support.hard_set import Pair, pairs
from tests.support.served_pairs import served_pairs

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
IN_A_BROWSER = 600  # pairs asked in Chromium, which is slower


def own_hosts(number: int, pair: Pair) -> Pair:
    """The pair on hosts that no other pair has."""

    def moved(request: Request) -> Request:
        scheme, _, rest = request.url.partition("://")
        www = "www." if rest.startswith("www.") else ""
        return replace(request, url=f"{scheme}://{www}p{number}{rest.removeprefix(www)}")

    return replace(pair, recorded=moved(pair.recorded), asked=moved(pair.asked))


def stillweb(asked: list[Pair], accept: str = "rule") -> list[bool | None]:
    """Ours, with its default accept level; what it recorded is what the site says, where the site was asked.

    None is an answer that it says to be unsure.
    """
    from stillweb.snapshots.evidence.matcher import Matcher
    from tests.support.memory_store import MemoryStore, Recorded, html
    from tests.support.stateful_site import HOST, Site

    found: list[bool | None] = []
    for pair in asked:
        at = pair.recorded.url.lower().find(HOST.removeprefix("http://"))
        answer = html("answer")
        if at >= 0:
            path = pair.recorded.url[at + len(HOST) - len("http://") :]
            answer = Site().handle(replace(pair.recorded, url=HOST + path))
        matcher = Matcher(MemoryStore([Recorded(pair.recorded, answer)]))
        lookup = matcher.lookup(pair.asked, matcher.session(), accept=accept)
        found.append(None if lookup.ambiguous else lookup.capture is not None)
    return found


def cautious(asked: list[Pair]) -> list[bool | None]:
    """Ours with `--accept canonical+unambiguous`: no rule, no other value of a field that Vary names, nothing unsure."""
    return stillweb(asked, "canonical+unambiguous")


def mitmproxy(asked: list[Pair]) -> list[bool]:
    """mitmproxy's server playback with its defaults."""
    from mitmproxy import http
    from mitmproxy.addons import serverplayback
    from mitmproxy.test import taddons, tflow, tutils

    def flow(request: Request, answered: bool) -> http.HTTPFlow:
        made = http.Request.make(
            request.method, request.url.partition("#")[0], request.body, http.Headers(_bytes(request))
        )
        return tflow.tflow(req=made, resp=tutils.tresp() if answered else False)

    found = []
    addon = serverplayback.ServerPlayback()
    with taddons.context(addon) as context:
        context.configure(addon)
        for pair in asked:  # one for all, since each pair is on hosts of its own
            try:
                addon.add_flows([flow(pair.recorded, True)])
                found.append(addon.next_flow(flow(pair.asked, False)) is not None)
            except ValueError:
                found.append(False)
    return found


def _bytes(request: Request) -> list[tuple[bytes, bytes]]:
    return [(n.encode(), v.encode()) for n, v in request.headers]


def wabac(asked: list[Pair]) -> list[bool]:
    """wabac.js in Node: its database, its way of writing a body into a URL, its fuzzy matching."""
    return _told_by(["node", str(HERE / "wabac" / "ask.mjs")], asked)


def published(asked: list[Pair]) -> list[bool]:
    """The published rule of wabac.js, applied to index keys: the same one, else any that shares the path."""

    def key(request: Request) -> str:
        body = typed_body(request.body, request.header("content-type"))
        return request_urlkey(request.method, canonical_url(request.url), body, request.body)

    return [key(p.recorded).partition("?")[0] == key(p.asked).partition("?")[0] for p in asked]


def playwright(asked: list[Pair]) -> list[bool]:
    """Chromium with `route_from_har`, a fetch for each pair."""
    from playwright.sync_api import Error, sync_playwright

    from stillweb.proxy.browser.browser import find_browser

    entries = [_entry(p.recorded) for p in asked]
    har = {"log": {"version": "1.2", "creator": {"name": "x", "version": "1"}, "entries": entries}}
    found = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "all.har"
        path.write_text(json.dumps(har))
        browser = driver.chromium.launch(executable_path=str(find_browser()), args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.route("**/*", lambda route: route.abort())
            page.route_from_har(path, not_found="abort")
            for pair in asked:
                told = {
                    "url": pair.asked.url,
                    "method": pair.asked.method,
                    "headers": dict(pair.asked.headers),
                    "body": base64.b64encode(pair.asked.body).decode(),
                }
                try:
                    found.append(page.evaluate(_FETCH, told) == "answer")
                except Error:
                    found.append(False)
        finally:
            browser.close()
    return found


_FETCH = """async ({url, method, headers, body}) => {
  const data = Uint8Array.from(atob(body), c => c.charCodeAt(0));
  delete headers['Accept-Encoding']; delete headers['User-Agent'];
  const answer = await fetch(url, {method, headers, body: data.length && method !== 'GET' ? data : undefined});
  return await answer.text();
}"""


def _entry(request: Request) -> dict[str, Any]:
    headers = [{"name": n, "value": v} for n, v in request.headers]
    asked: dict[str, Any] = {
        "method": request.method, "url": request.url.partition("#")[0], "httpVersion": "HTTP/1.1", "cookies": [],
        "headers": headers, "queryString": [], "headersSize": -1, "bodySize": len(request.body),
    }  # fmt: skip
    if request.body:
        media = request.header("content-type") or ""
        asked["postData"] = {"mimeType": media, "text": request.body.decode("utf-8", "replace"), "params": []}
    answer = {
        "status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "cookies": [], "redirectURL": "",
        "headers": [{"name": n, "value": "*"} for n in ("Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods")],
        "content": {"size": 6, "mimeType": "text/plain", "text": "answer"}, "headersSize": -1, "bodySize": 6,
    }  # fmt: skip
    return {
        "startedDateTime": "2025-01-01T00:00:00Z", "time": 1, "request": asked, "response": answer, "cache": {},
        "timings": {"send": 0, "wait": 1, "receive": 0},
    }  # fmt: skip


def peer(name: str) -> Callable[[list[Pair]], list[bool]]:
    """A program in .venv-peers."""

    return lambda asked: _told_by([str(PEERS), str(HERE / "identity_peers.py"), name], asked)


def _told_by(command: list[str], asked: list[Pair]) -> list[bool]:
    told = [{"recorded": _plain(p.recorded), "asked": _plain(p.asked)} for p in asked]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed")
    found: list[bool] = json.loads(done.stdout)
    return found


def _plain(request: Request) -> dict[str, Any]:
    body = base64.b64encode(request.body).decode()
    return {"method": request.method, "url": request.url, "headers": request.headers, "body": body}


CONTESTANTS: dict[str, Callable[[list[Pair]], Sequence[bool | None]]] = {
    "Stillweb": stillweb,
    "Stillweb --accept canonical+unambiguous": cautious,
    "mitmproxy server playback": mitmproxy,
    "vcrpy (default matchers)": peer("vcrpy"),
    "pywb": peer("pywb"),
    "wabac.js (ReplayWeb.page)": wabac,
    "wabac.js (published rule)": published,
    "Playwright route_from_har": playwright,
}


def measure(asked: list[Pair]) -> str:
    """The table of some pairs, as Markdown."""
    asked = [own_hosts(n, p) for n, p in enumerate(asked)]
    lines = [
        "| | pairs | wrong answers | said to be unsure: wrong, right | misses of the same request | wrong most often |",
        "|---|---|---|---|---|---|",
    ]
    for name, run in CONTESTANTS.items():
        mine = asked[:IN_A_BROWSER] if run is playwright else asked
        click.echo(f"asking {name}", err=True)
        try:
            found = run(mine)
        except (RuntimeError, OSError, ImportError) as error:
            lines.append(f"| {name} | could not be run: {error} | | | | |")
            continue
        apart = sum(not p.same for p in mine)
        wrong = Counter(p.kind for p, hit in zip(mine, found, strict=True) if hit and not p.same)
        missed = sum(p.same and hit is False for p, hit in zip(mine, found, strict=True))
        doubted = Counter(p.same for p, hit in zip(mine, found, strict=True) if hit is None)
        unsure = f"{doubted[False]}, {doubted[True]}" if run in (stillweb, cautious) else ""
        often = ", ".join(kind.replace("_", " ") for kind, _ in wrong.most_common(3))
        lines.append(
            f"| {name} | {len(mine)} | {sum(wrong.values())} of {apart} | {unsure} | {missed} of {len(mine) - apart} | {often} |"
        )
    return "\n".join(lines)


HARD = """## The hard set: sameness as we define it

Near-duplicates over all methods and body types. Which pairs are the same request follows our own definition
(docs/identity.md), which other tools never promised to keep."""
SERVED = """## The site's own word

Our stateful site is asked both requests by a new client: they are the same if its answers are. The site ignores some
parameters, which no client can know, so a careful tool has misses there. Where `Vary` names a field of which another
value was recorded, Stillweb gives the recorded answer and calls it `ambiguous` ("said to be unsure");
`--accept rule+unambiguous` refuses it."""


@click.command()
@click.option("--pairs", "count", default=5000, show_default=True)
@click.option("--keep", is_flag=True, help="Write IDENTITY.md.")
def main(count: int, keep: bool) -> None:
    """Prints the table of wrong answers and misses."""
    text = "\n\n".join(
        f"{about}\n\n{measure(list(made))}"
        for about, made in ((HARD, pairs(count)), (SERVED, served_pairs(count // 2)))
    )
    click.echo(text)
    if keep:
        about = "# Identity: the hard set, asked of others\n\nWritten by `python -m benchmarks.identity --keep`; see there what each row is.\n\n"
        (HERE / "IDENTITY.md").write_text(about + text + "\n")


if __name__ == "__main__":
    sys.exit(main())
