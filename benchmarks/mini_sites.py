"""Small servers that remember, each in a way of its own: a request and what a client told before, to an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request

HOST = "http://mini.test"
Memory = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request as these servers read it: its target, its parameters, its cookies and its header fields."""

    method: str
    path: str
    told: dict[str, Any]  # of its query, form or JSON
    match: str = ""  # its If-Match
    cookies: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)  # by name in lower case


@dataclass(frozen=True)
class Mini:
    """A server, and the requests that a client makes of it at random.

    A `seeded` server finds the number of its walk in `memory["walk"]`, from which it draws tokens and the time of day.
    """

    name: str
    answer: Callable[[Memory, Asked], Response]
    requests: tuple[Request, ...]
    seeded: bool = False

    def memory(self, walk: int) -> Memory:
        """Return the memory of a server that was just started."""
        return {"walk": walk} if self.seeded else {}


SITES: list[Mini] = []
Answer = Callable[[Memory, Asked], Response]


def site(*requests: Request) -> Callable[[Answer], Answer]:
    """Lists a server by the name of its function."""

    def keep(answer: Answer) -> Answer:
        SITES.append(Mini(answer.__name__, answer, requests))
        return answer

    return keep


def asked_of(request: Request) -> Asked:
    """Read a request."""
    parts = urlsplit(request.url)
    told: dict[str, Any] = dict(parse_qsl(parts.query))
    if request.body:
        json_body = "json" in (request.header("content-type") or "")
        told |= json.loads(request.body) if json_body else dict(parse_qsl(request.body.decode()))
    cookies = {name: one.value for name, one in SimpleCookie(request.header("cookie") or "").items()}
    fields = {name.lower(): value for name, value in request.headers}
    return Asked(request.method, parts.path, told, fields.get("if-match", ""), cookies, fields)


def get(*paths: str) -> tuple[Request, ...]:
    """Pages to ask for."""
    return tuple(Request("GET", HOST + path) for path in paths)


def form(path: str, **fields: str) -> Request:
    """A form that is sent."""
    media = (("Content-Type", "application/x-www-form-urlencoded"),)
    return Request("POST", HOST + path, media, urlencode(fields).encode())


def sent(path: str, value: dict[str, Any], method: str = "POST") -> Request:
    """JSON that is sent."""
    return Request(method, HOST + path, (("Content-Type", "application/json"),), json.dumps(value).encode())


def page(text: object, status: int = 200) -> Response:
    """A page."""
    return Response(status, "OK", (("Content-Type", "text/html"),), f"<p>{text}</p>".encode())


def data(value: object, status: int = 200) -> Response:
    """Data."""
    return Response(status, "OK", (("Content-Type", "application/json"),), json.dumps(value).encode())


def away(path: str) -> Response:
    """A redirect."""
    return Response(303, "See Other", (("Location", path),), b"")


@site(*get("/p/1", "/p/2", "/p/3", "/recent", "/recent", "/about"))
def seen_last(memory: Memory, asked: Asked) -> Response:
    """A list of the pages that were looked at."""
    seen = memory.setdefault("seen", [])
    if asked.path == "/recent":
        return page(seen[-3:])
    if asked.path != "/about":
        seen.append(asked.path)
    return page(asked.path)


@site(*get("/p/1", "/p/2", "/p/3", "/about"))
def seen_in_pages(memory: Memory, asked: Asked) -> Response:
    """The same list in each of the pages."""
    seen = memory.setdefault("seen", [])
    told = page(f"{asked.path} {seen[-3:] if asked.path != '/about' else ''}")
    seen.append(asked.path)
    return told


@site(*get("/basket", "/basket", "/basket?add=1", "/basket?add=2", "/basket?clear=1", "/p/1"))
def basket_by_links(memory: Memory, asked: Asked) -> Response:
    """A basket that links fill."""
    items = memory.setdefault("items", [])
    if "add" in asked.told:
        items.append(asked.told["add"])
    if "clear" in asked.told:
        items.clear()
    return page(items if asked.path == "/basket" else asked.path)


@site(*get("/set?lang=fr", "/set?lang=de", "/a", "/b"))
def chosen_by_link(memory: Memory, asked: Asked) -> Response:
    """A language that a link chooses, with a page for an answer."""
    memory["lang"] = asked.told.get("lang", memory.get("lang", "en"))
    return page("chosen" if asked.told else f"{asked.path} {memory['lang']}")


@site(*get("/mail/1", "/mail/2", "/inbox", "/inbox"), form("/unread", id="/mail/1"))
def mail(memory: Memory, asked: Asked) -> Response:
    """Mail that is read by being looked at."""
    read = memory.setdefault("read", set())
    if asked.path == "/unread":
        read.discard(asked.told["id"])
        return away("/inbox")
    if asked.path == "/inbox":
        return page(sorted(read))
    read.add(asked.path)
    return page(asked.path)


@site(*get("/next", "/back", "/about"))
def cursor(memory: Memory, asked: Asked) -> Response:
    """Pages that are turned by the server."""
    if asked.path == "/about":
        return page("about")
    memory["at"] = max(0, memory.get("at", 0) + (1 if asked.path == "/next" else -1))
    return page(memory["at"])


@site(*get("/api/a", "/api/b", "/quota", "/about"))
def quota(memory: Memory, asked: Asked) -> Response:
    """A count of what was asked."""
    memory["asked"] = memory.get("asked", 0) + asked.path.startswith("/api")
    return data(memory["asked"] if asked.path == "/quota" else asked.path)


@site(*(sent("/doc", told, "PUT") for told in ({"a": 1}, {"b": 1}, {"b": 2})), *get("/doc", "/doc", "/about"))
def put_that_merges(memory: Memory, asked: Asked) -> Response:
    """A document of which a PUT changes what it names."""
    if asked.path == "/about":
        return page("about")
    memory |= asked.told
    return data(dict(sorted(memory.items()))) if asked.method == "GET" else Response(204, "", (), b"")


@site(form("/save", name="x"), form("/save", name="y"), *get("/list", "/list", "/about"))
def shown_once(memory: Memory, asked: Asked) -> Response:
    """A message that is shown once."""
    if asked.method == "POST":
        memory["name"] = memory["said"] = asked.told["name"]
        return away("/list")
    return page(f"{memory.get('name')} {memory.pop('said', '')}" if asked.path == "/list" else "about")


@site(
    form("/add", id="a"),
    form("/add", id="b"),
    form("/take", id="a"),
    form("/buy"),
    *get("/cart", "/orders", "/p"),
)
def shop(memory: Memory, asked: Asked) -> Response:
    """A cart, and orders that empty it."""
    cart, orders = memory.setdefault("cart", []), memory.setdefault("orders", [])
    if asked.path == "/add":
        cart.append(asked.told["id"])
    elif asked.path == "/take" and asked.told["id"] in cart:
        cart.remove(asked.told["id"])
    elif asked.path == "/buy":
        orders.append(list(cart))
        cart.clear()
    if asked.method == "POST":
        return away("/cart" if asked.path != "/buy" else "/orders")
    return page({"/cart": cart, "/orders": orders}.get(asked.path, len(cart)))


@site(
    *(form("/wizard", **{n: v}) for n in ("color", "size") for v in "xy"),
    form("/back"),
    *get("/wizard", "/about"),
)
def wizard(memory: Memory, asked: Asked) -> Response:
    """Two steps, the second after the first."""
    told = memory.setdefault("told", {})
    if asked.path == "/back" and told:
        told.popitem()
    if asked.path == "/wizard" and ["color", "size"][len(told) : len(told) + 1] == list(asked.told):
        told |= asked.told
    if asked.method == "POST":
        return away("/wizard")
    return page(told if asked.path == "/wizard" else "about")


@site(form("/edit", text="x"), form("/edit", text="y"), form("/undo"), *get("/doc", "/doc", "/about"))
def undone(memory: Memory, asked: Asked) -> Response:
    """A text whose changes are taken back."""
    past = memory.setdefault("past", [""])
    if asked.path == "/edit":
        past.append(asked.told["text"])
    elif asked.path == "/undo" and past[1:]:
        past.pop()
    if asked.method == "POST":
        return away("/doc")
    return page(past[-1] if asked.path == "/doc" else "about")


@site(*(sent("/doc", {"version": n, "text": t}, "PUT") for n in (1, 2) for t in "xy"), *get("/doc", "/doc"))
def locked(memory: Memory, asked: Asked) -> Response:
    """A document that is only written with the number of its version."""
    memory.setdefault("version", 1)
    if asked.method == "PUT":
        if asked.told["version"] != memory["version"]:
            return data("conflict", 409)
        memory |= {"text": asked.told["text"], "version": memory["version"] + 1}
    return data(dict(sorted(memory.items())))


@site(
    *(
        sent("/graphql", {"query": q})
        for q in ("mutation { add }", "mutation { clear }", "{ count }", "{ name }")
    )
)
def graphql(memory: Memory, asked: Asked) -> Response:
    """Questions and changes at one address."""
    query = asked.told["query"]
    memory["count"] = 0 if "clear" in query else memory.get("count", 0) + ("add" in query)
    return data({"data": "mini" if "name" in query else memory["count"]})


@site(sent("/keep", {"text": "x"}), sent("/keep", {"text": "y"}), form("/publish"), *get("/edit", "/post"))
def draft(memory: Memory, asked: Asked) -> Response:
    """A draft that is kept as it is written, until it is published."""
    if asked.path == "/keep":
        memory["draft"] = asked.told["text"]
        return data("kept")
    if asked.path == "/publish":
        memory["post"] = memory.pop("draft", memory.get("post"))
        return away("/post")
    return page(memory.get("draft" if asked.path == "/edit" else "post"))


@site(sent("/api", {"q": 1}), sent("/api", {"q": 2}), *get("/about"))
def long_answers(memory: Memory, asked: Asked) -> Response:
    """Long answers that count what was asked."""
    memory["asked"] = memory.get("asked", 0) + asked.path.startswith("/api")
    return data([memory["asked"], *["row"] * 60]) if asked.told else page("about")


@site(
    sent("/items", {"name": "x"}),
    Request("DELETE", f"{HOST}/items/1"),
    *get("/items", "/items/1", "/items/2"),
)
def made_again(memory: Memory, asked: Asked) -> Response:
    """Things that are made, removed and made again with new numbers."""
    items = memory.setdefault("items", {})
    if asked.method == "POST":
        memory["last"] = memory.get("last", 0) + 1
        items[f"/items/{memory['last']}"] = asked.told["name"]
        return data(memory["last"], 201)
    if asked.path == "/items":
        return data(items)
    if asked.path not in items:
        return data("none", 404)
    return data(items[asked.path] if asked.method == "GET" else items.pop(asked.path))


@site(
    *(form(f"/checkout/{step}", with_=with_) for step in "12" for with_ in "xy"),
    *get("/checkout", "/checkout/back", "/checkout", "/about"),
)
def checkout(memory: Memory, asked: Asked) -> Response:
    """Steps one after the other, with a link back."""
    told = memory.setdefault("told", [])
    if asked.path == "/about":
        return page("about")
    if asked.path.endswith("/back"):
        del told[-1:]
    elif asked.method == "POST" and asked.path.endswith(str(len(told) + 1)):
        told.append(asked.told["with_"])
    return page(f"step {len(told) + 1} {told}") if asked.path == "/checkout" else away("/checkout")


@site(*get("/api/a", "/api/b", "/api/a", "/about"))
def limited(memory: Memory, asked: Asked) -> Response:
    """So many questions and no more."""
    if asked.path == "/about":
        return page("about")
    memory["asked"] = memory.get("asked", 0) + 1
    return data(asked.path) if memory["asked"] <= 4 else data("too many", 429)


@site(form("/invite"), *get("/join?t=1", "/join?t=2", "/members", "/about"))
def one_time_links(memory: Memory, asked: Asked) -> Response:
    """Links that work once, and not before they were made."""
    sent, used = memory.setdefault("sent", []), memory.setdefault("used", [])
    if asked.path == "/invite":
        sent.append(str(len(sent) + 1))
        return away("/members")
    if asked.path == "/join":
        token = asked.told["t"]
        if token not in sent or token in used:
            return page("not valid", 410)
        used.append(token)
        return page("welcome")
    return page(f"{len(used)} of {len(sent)}" if asked.path == "/members" else "about")


@site(*get("/", "/offer", "/p/1", "/about"))
def parted(memory: Memory, asked: Asked) -> Response:
    """Visitors who are shown one of two designs, by where they came in."""
    design = memory.setdefault("design", "ab"[asked.path == "/offer"])
    return page(f"{asked.path} {design if asked.path != '/about' else ''}")


@site(form("/buy", id="a"), form("/buy", id="b"), *get("/shop", "/shop", "/orders"))
def stock(memory: Memory, asked: Asked) -> Response:
    """Things of which there are a few."""
    left = memory.setdefault("left", {"a": 2, "b": 1})
    if asked.method == "POST":
        if not left[asked.told["id"]]:
            return page("sold out", 409)
        left[asked.told["id"]] -= 1
        return away("/orders")
    return page(left if asked.path == "/shop" else 3 - sum(left.values()))


@site(
    *(
        Request("PUT", f"{HOST}/doc", (("If-Match", f'"v{n}"'),), text)
        for n in (1, 2)
        for text in (b"text=x", b"text=y")
    ),
    *get("/doc", "/doc", "/about"),
)
def tagged(memory: Memory, asked: Asked) -> Response:
    """A document that is only written with the tag of its version."""
    if asked.path == "/about":
        return page("about")
    number = memory.get("version", 1)
    if asked.method == "PUT":
        if asked.match != f'"v{number}"':
            return page("changed meanwhile", 412)
        memory |= {**asked.told, "version": number + 1}
        return Response(204, "", (("ETag", f'"v{number + 1}"'),), b"")
    text = page(f"{number} {memory.get('text')}")
    return Response(200, "OK", (*text.headers, ("ETag", f'"v{number}"')), text.body)


@site(form("/filter", by="x"), form("/filter", by="y"), *get("/list", "/list", "/about"))
def filtered(memory: Memory, asked: Asked) -> Response:
    """A filter: the state that most sites have."""
    if asked.method == "POST":
        memory |= asked.told
        return away("/list")
    return page(memory.get("by") if asked.path == "/list" else "about")


@site(*get("/a", "/b", "/c"), sent("/api", {"q": 1}), sent("/api", {"q": 2}))
def stateless(memory: Memory, asked: Asked) -> Response:
    """Serve a site that remembers nothing: any doubt or miss here is one too many."""
    return data([asked.told, *["row"] * 60]) if asked.told else page(asked.path)
