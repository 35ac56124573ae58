"""Pairs of requests of which a real server says whether they are the same: it is asked both, and its answers compared.

Unlike the hard set, nobody's definition of sameness takes part: the stateful site answers both requests as a client
that it does not know, and they are the same if the texts are. A server may so call the same what no client can know to
be the same (a parameter that it ignores): that is a miss, and counted as one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

from stillweb.snapshots.request import Request
from tests.support.hard_set import FORM, JSON, Pair
from tests.support.stateful_site import HOST, Site, text_of_page

BASES: list[tuple[str, str, str, str]] = [
    ("GET", "/about", "", ""),
    ("GET", "/list?page=1", "", ""),
    ("GET", "/list?page=2", "", ""),
    ("GET", "/new?from=here", "", ""),
    ("GET", "/new?from=old%20page", "", ""),
    ("GET", "/ping?_=1700000000000", "", ""),
    ("GET", "/menu", "", ""),
    ("GET", "/greeting", "", ""),
    ("GET", "/file", "", ""),
    ("POST", "/api/search", JSON, json.dumps({"q": "tools", "step": 2})),
    ("POST", "/api/search", JSON, json.dumps({"q": "2020", "step": 1})),
    ("POST", "/graphql", JSON, json.dumps({"operationName": "Item", "query": "query Item", "variables": {"id": "1"}})),
    ("POST", "/graphql", JSON, json.dumps({"operationName": "Notes", "query": "query Notes", "variables": {}})),
    ("POST", "/login", FORM, "user=ann&password=apple-pie-7"),
    ("POST", "/login", FORM, "user=ann&password=wrong"),
    ("PUT", "/things/1", JSON, '{"name": "x"}'),
    ("PATCH", "/things/1", JSON, '{"suffix": "x"}'),
    ("GET", "/things/1", "", ""),
    ("GET", "/things/2", "", ""),
]  # fmt: skip


def served_pairs(count: int, seed: int = 1) -> Iterator[Pair]:
    """Pairs in which the second is the first, changed in one way or two, or another request to the same path."""
    draw = random.Random(seed)
    for _ in range(count):
        recorded = _request(*draw.choice(BASES))
        if draw.random() < 0.3:
            near = [
                b
                for b in BASES
                if b[1].partition("?")[0] == recorded.url.removeprefix(HOST).partition("?")[0]
            ]
            yield _judged("another one of the path", recorded, _request(*draw.choice(near)))
            continue
        name, asked = _changed(draw, recorded)
        if draw.random() < 0.3:
            more, asked = _changed(draw, asked)
            name = f"{name}, {more}"
        yield _judged(name, recorded, asked)


def _judged(name: str, recorded: Request, asked: Request) -> Pair:
    return Pair(name, recorded, asked, _text(recorded) == _text(asked))


def _request(method: str, path: str, media: str, body: str) -> Request:
    headers = (("Content-Type", media),) if media else ()
    return Request(method, HOST + path, headers, body.encode())


def _text(request: Request) -> str:
    """Return the server's answer to a client that it doesn't know."""
    answer = Site().handle(request)
    return f"{text_of_page(answer)} -> {answer.header('location')}"


def _changed(draw: random.Random, request: Request) -> tuple[str, Request]:
    base, mark, query = request.url.partition("?")
    pairs = query.split("&") if mark else []
    if request.body and draw.random() < 0.7:
        return _other_body(draw, request)
    what = draw.choice(
        ["cache buster", "campaign", "another value", "another value", "one more", "case of host", "escaped", "language", "accept",
         "user agent", "fragment", "the same"]
    )  # fmt: skip
    if what == "cache buster":
        pairs = [p for p in pairs if not p.startswith("_=")] + [f"_=17000000{draw.randrange(10**5):05d}"]
    elif what == "campaign":
        pairs.append(f"utm_source=m{draw.randrange(99)}")
    elif what == "another value" and pairs:
        name = pairs[0].partition("=")[0]
        values = {"page": ["1", "2", "3"], "from": ["here", "there"]}.get(name, ["1700000000001", "2"])
        pairs[0] = f"{name}={draw.choice(values)}"
    elif what == "one more":
        pairs.append(f"{draw.choice(['page', 'q', 'x'])}={draw.randrange(1, 4)}")
    elif what == "case of host":
        base = base.replace("state.test", "STATE.test")
    elif what == "escaped" and pairs:
        name, _, value = pairs[0].partition("=")
        pairs[0] = (
            f"{name}="
            + "".join(quote(c, safe="") if c == "%" else f"%{ord(c):02X}" for c in value[:1])
            + value[1:]
        )
    elif what in ("language", "accept", "user agent"):
        field, choices = {
            "language": ("Accept-Language", ["fr", "de", "en"]),
            "accept": ("Accept", ["application/json", "text/html", "text/plain"]),
            "user agent": ("User-Agent", ["curl/8", "Mozilla/5.0"]),
        }[what]
        return what, replace(request, headers=(*request.headers, (field, draw.choice(choices))))
    elif what == "fragment":
        return what, replace(request, url=request.url + "#part")
    return what, replace(request, url=base + ("?" + "&".join(pairs) if pairs else ""))


def _other_body(draw: random.Random, request: Request) -> tuple[str, Request]:
    if request.header("content-type") == FORM:
        pairs = request.body.decode().split("&")
        what = draw.choice(["order of a form", "another form value", "one more in a form"])
        if what == "order of a form":
            pairs.reverse()
        elif what == "another form value":
            at = draw.randrange(len(pairs))
            pairs[at] = f"{pairs[at].partition('=')[0]}={draw.choice(['ann', 'bob', 'wrong', 'apple-pie-7'])}"
        else:
            pairs.append(f"x={draw.randrange(9)}")
        return what, replace(request, body="&".join(pairs).encode())
    value = json.loads(request.body)
    what = draw.choice(["order of members", "spacing", "another member value", "one more member"])
    if what == "order of members":
        value = dict(reversed(value.items()))
    elif what == "another member value":
        if value.get("variables"):
            value["variables"] = {"id": draw.choice(["1", "2"])}
        elif "q" in value:
            value["q"] = draw.choice(["tools", "toys", "2020"])
        elif "operationName" not in value:
            value = dict.fromkeys(value, draw.choice(["x", "y"]))
    elif what == "one more member":
        value["x"] = draw.randrange(9)
    text = json.dumps(value, indent=2 if what == "spacing" else None)
    return what, replace(request, body=text.encode())
