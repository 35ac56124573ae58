"""`python -m benchmarks.damaging.held`: for how long a request keeps the gateway's event loop from all others, by kind.

Each kind is asked of a snapshot that holds requests like those measured, in sessions that sent a recorded password before. What a thread prepares is left out, and the
processor's time of the loop's thread counts, so that the figures hold on a busy machine, too. The longest wait of a
neighbour is told beside it: as the processor's time that loop and thread used meanwhile, which is how long it takes on a
quiet machine, and in real time, which holds all that others on the machine do.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from stillweb.proxy.replay.answering import Answerer, tune_process
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import Redactor
from tests.proxy.frozen import Site

URL = "http://a.test/"
BESIDE = 20  # captures of each kind that an explanation may name
Made = tuple[str, str, tuple[tuple[str, str], ...], bytes]  # method, URL, fields, body


def _number(chance: random.Random) -> int:
    return chance.randrange(10**6)


def _pairs(chance: random.Random, count: int) -> str:
    return "&".join(f"n{_number(chance)}={_number(chance)}" for _ in range(count))


def _posted(place: str, media: str, body: str | bytes) -> Made:
    data = body if isinstance(body, bytes) else body.encode()
    return "POST", URL + place, (("Content-Type", media),), data


def _members(chance: random.Random, count: int) -> dict[str, int]:
    return {f"n{_number(chance)}": _number(chance) for _ in range(count)}


def _parts(chance: random.Random, count: int) -> bytes:
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="n{_number(chance)}"\r\n\r\n{_number(chance)}\r\n'
        for _ in range(count)
    ]
    return ("".join(parts) + "--x--\r\n").encode()


PASSWORD = "correct-horse-9"
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
LOGIN = _posted("login", FORM, f"password={PASSWORD}")
KINDS: dict[str, Callable[[random.Random], Made]] = {
    "short form": lambda c: _posted("form", FORM, _pairs(c, 3)),
    "form of 4 kB": lambda c: _posted("form", FORM, _pairs(c, 250)),
    "form of 5,000 names": lambda c: _posted("form", FORM, _pairs(c, 5000)),
    "query of 4 kB": lambda c: ("GET", f"{URL}?{_pairs(c, 250)}", (), b""),
    "query of 60 kB": lambda c: ("GET", f"{URL}?{_pairs(c, 4000)[:60_000]}", (), b""),
    "path of 60 kB": lambda c: ("GET", URL + "/".join(str(_number(c)) for _ in range(8000)), (), b""),
    "JSON of 4 kB": lambda c: _posted("json", JSON, json.dumps(_members(c, 200))),
    "JSON of 5,000 members": lambda c: _posted("json", JSON, json.dumps(_members(c, 5000))),
    "JSON of 2,000 objects": lambda c: _posted("json", JSON, json.dumps([_members(c, 3) for _ in range(2000)])),
    "JSON 900 deep": lambda c: _posted("json", JSON, b'{"a":' * 900 + str(_number(c)).encode() + b"}" * 900),
    "multipart of 1,000 parts": lambda c: _posted("parts", "multipart/form-data; boundary=x", _parts(c, 1000)),
    "GraphQL of 60 kB": lambda c: _posted(
        "graphql", JSON, json.dumps({"query": "{" + " ".join(f"f{_number(c)}" for _ in range(7000)) + "}"})
    ),
    "XML of 60 kB": lambda c: _posted("soap", "text/xml", "<a>" + f"<b>{_number(c)}</b>" * 4000 + "</a>"),
    "text of 100 kB": lambda c: _posted("text", "text/plain", " ".join(str(_number(c)) for _ in range(14_000))),
    "bytes of 1 MB": lambda c: _posted("bytes", "application/octet-stream", c.randbytes(1 << 20)),
    "form of 1 MB": lambda c: _posted("form", FORM, _pairs(c, 66_000)),
    "JSON of 1 MB": lambda c: _posted("json", JSON, json.dumps([f"w{_number(c)}" for _ in range(95_000)])),
    "JSON object of 1 MB": lambda c: _posted("json", JSON, json.dumps(_members(c, 55_000))),
    "cookies of 4 kB": lambda c: ("GET", f"{URL}none", (("Cookie", _pairs(c, 200).replace("&", "; ")),), b""),
    "JSON of 5,000 members, with the password": lambda c: _posted(
        "json", JSON, json.dumps({"password": PASSWORD} | _members(c, 5000))
    ),
    "JSON object of 1 MB, with the password": lambda c: _posted(
        "json", JSON, json.dumps({"password": PASSWORD} | _members(c, 55_000))
    ),
    "recorded form of 5,000 names": lambda c: _posted("recorded-form", FORM, _pairs(random.Random(1), 5000)),
    "recorded JSON of 5,000 members": lambda c: _posted("recorded-json", JSON, json.dumps(_members(random.Random(2), 5000))),
    "recorded query of 60 kB": lambda c: ("GET", f"{URL}found?{_pairs(random.Random(3), 4000)[:60_000]}", (), b""),
    "60 fields": lambda c: ("GET", f"{URL}none", tuple((f"X-{_number(c)}", str(n)) for n in range(60)), b""),
}  # fmt: skip


@click.command()
@click.option("--times", default=20, show_default=True, help="Requests of each kind.")
@click.option("--only", default="", help="The kinds whose names hold this.")
@click.option("--seed", default=1, show_default=True)
def main(times: int, only: str, seed: int) -> None:
    """Measure how long each kind of request holds the event loop."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="stillweb-held-") as folder:
        site = Site(Path(folder) / "site")
        site.add(URL, b"<p>page</p>")
        recorder = Redactor(b"k" * 32)
        chosen = {kind: made for kind, made in KINDS.items() if only in kind}
        for made in (lambda _: LOGIN, *chosen.values()):
            for _ in range(BESIDE if len(made(chance)[3]) < 20_000 else 5):
                one = recorder.request(Request(*made(chance)))
                site.add(
                    one.url, b"found", method=one.method, request_headers=one.headers, request_body=one.body
                )
        with site.open() as snapshot, Ledger() as ledger:
            answerer = Answerer(snapshot, ledger)
            tune_process()  # as `stillweb replay` does
            asyncio.run(measure(answerer, times, chosen, chance))
            answerer.close()


async def measure(
    answerer: Answerer, times: int, kinds: dict[str, Callable[[random.Random], Made]], chance: random.Random
) -> None:
    """Ask for each kind and say how long the answers took the loop's thread."""
    for kind, made in kinds.items():
        held, waits, computed = [], [], []
        for number in range(times + 1):
            request, line = Request(*made(chance)), answerer.state(f"{kind}-{number}")
            login = Request(*LOGIN)
            await answerer.prepare(login, line)
            answerer.answer(login, line)
            neighbour = asyncio.create_task(wait(answerer))
            await asyncio.sleep(0)
            if answerer.slow(request):
                await answerer.prepare(request, line)
            begun = time.thread_time()
            reply = answerer.answer(request, line)
            took = time.thread_time() - begun
            if reply.held is not None:  # the thread explains it meanwhile
                await reply.held.wait()
                begun = time.thread_time()
                reply = reply.held.make() or reply
                took = max(took, time.thread_time() - begun)
            held.append(took * 1000)
            await asyncio.sleep(0)
            neighbour.cancel()
            real, used = await neighbour
            waits.append(real * 1000)
            computed.append(used * 1000)
            assert reply.status == 200 or not kind.startswith("recorded"), f"{kind}: {reply.status}"
        first, *held = held  # the first one reads the site's evidence
        held.sort()
        waits.sort()
        computed.sort()
        click.echo(
            f"{kind}: median {held[len(held) // 2]:.1f} ms, longest {held[-1]:.1f} ms; first {first:.1f} ms; "
            f"a neighbour waits {computed[len(computed) // 2]:.1f} ms of the processor's time (median), "
            f"{computed[-1]:.1f} ms (longest); in real time {waits[len(waits) // 2]:.1f} ms, {waits[-1]:.1f} ms"
        )


def threads(answerer: Answerer) -> list[int]:
    """Return the ids of the threads that prepare requests."""
    pool = answerer._worker
    return [] if pool is None else [thread.ident for thread in pool._threads if thread.ident is not None]


async def wait(answerer: Answerer) -> tuple[float, float]:
    """Wait for the loop again and again until cancelled; return the longest wait in real and in the processor's time, in seconds."""

    def now() -> tuple[float, float]:
        clocks = [time.pthread_getcpuclockid(thread) for thread in threads(answerer)]
        return time.perf_counter(), time.thread_time() + sum(map(time.clock_gettime, clocks))

    longest, before = (0.0, 0.0), now()
    try:
        while True:
            await asyncio.sleep(0)
            after = now()
            waited = after[0] - before[0], after[1] - before[1]
            longest, before = (max(longest[0], waited[0]), max(longest[1], waited[1])), after
    except asyncio.CancelledError:
        return longest


if __name__ == "__main__":
    sys.exit(main())
