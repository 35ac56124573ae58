"""Small servers that do what everyday sites do: `EVERYDAY`. Their clients keep cookies and send hidden form values back.

In a request, `__NAME__` stands for the hidden form value NAME that the client saw last, and `__clock__` for its clock in
milliseconds. `drawn()` makes values that differ from walk to walk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

from benchmarks.mini_sites import HOST, Answer, Asked, Memory, Mini, away, data, form, get, sent
from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request

EVERYDAY: list[Mini] = []
STYLE, SCRIPT = get("/style.css", "/app.js")
PRODUCTS = {"1": ("Kettle", 20), "2": ("Teapot", 35), "3": ("Cup", 5), "4": ("Tray", 12)}


def everyday_in(servers: list[Mini]) -> Callable[..., Callable[[Answer], Answer]]:
    """Return a decorator that lists a server by the name of its function. Style sheet and script are answered for it."""

    def everyday(*requests: Request) -> Callable[[Answer], Answer]:
        return partial(keep, requests)

    def keep(requests: tuple[Request, ...], answer: Answer) -> Answer:
        def whole(memory: Memory, asked: Asked) -> Response:
            memory["asked"] = memory.get("asked", 0) + 1
            if asked.path == "/style.css":
                return Response(200, "OK", (("Content-Type", "text/css"),), b"body { margin: 0 }")
            if asked.path == "/app.js":
                return Response(200, "OK", (("Content-Type", "text/javascript"),), b"start()")
            return answer(memory, asked)

        servers.append(Mini(answer.__name__, whole, requests, seeded=True))
        return answer

    return everyday


everyday = everyday_in(EVERYDAY)


def drawn(memory: Memory, what: str) -> str:
    """Return a token that differs in each walk and each time that it is drawn."""
    memory["draws"] = memory.get("draws", 0) + 1
    text = f"{memory['walk']} {memory['draws']} {what}"
    return "drawn" + hashlib.sha256(text.encode()).hexdigest()[:8]


def html(title: str, *lines: object, status: int = 200, more: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return a page with a title, a menu and lines of text."""
    text = "".join(f"<p>{line}</p>" for line in lines)
    body = f'<!doctype html><title>{title}</title><link rel=stylesheet href=/style.css><nav><a href="/">Home</a></nav><h1>{title}</h1>{text}'
    return Response(status, "OK", (("Content-Type", "text/html; charset=utf-8"), *more), body.encode())


def refused(why: str, status: int = 403) -> Response:
    """Return a page that says why a request is not served."""
    return html("Refused", why, status=status)


def with_fields(request: Request, **fields: str) -> Request:
    """Return a request with header fields; `accept_language="en"` makes one."""
    more = tuple((name.replace("_", "-"), value) for name, value in fields.items())
    return Request(request.method, request.url, (*request.headers, *more), request.body)


def graphql(query: str, **variables: object) -> Request:
    """Return a GraphQL request, named as its operation is."""
    name = query.split("(")[0].split()[1]
    return sent("/graphql", {"operationName": name, "query": query, "variables": variables})


@everyday(
    *(form("/facet", name=name, value=value) for name, value in (("color", "red"), ("color", "blue"), ("size", "s"), ("size", "m"))),
    form("/facet/clear"),
    *get("/list", "/list", "/list?page=2", "/p/1"),
    STYLE,
)  # fmt: skip
def facets(memory: Memory, asked: Asked) -> Response:
    """A list that facets narrow, one value of each."""
    chosen = memory.setdefault("facets", {})
    if asked.path == "/facet/clear":
        chosen.clear()
    elif asked.method == "POST":
        chosen[asked.told["name"]] = asked.told["value"]
    if asked.method == "POST":
        return away("/list")
    if asked.path == "/list":
        return html(f"List {asked.told.get('page', '1')}", *(f"{k}: {v}" for k, v in sorted(chosen.items())))
    return html("Kettle", "20 EUR")


@everyday(
    *(form("/facets", value=value) for value in ("red", "blue", "large")),
    *get("/list", "/list", "/about"),
    STYLE,
)
def facets_on_and_off(memory: Memory, asked: Asked) -> Response:
    """A list of checkboxes, each of which the same request sets and unsets."""
    chosen = memory.setdefault("facets", set())
    if asked.method == "POST":
        chosen ^= {asked.told["value"]}
        return away("/list")
    return html("List", sorted(chosen)) if asked.path == "/list" else html("About")


@everyday(
    *(form("/sort", by=by) for by in ("name", "price")),
    *(form("/direction", to=to) for to in ("up", "down")),
    *get("/list?page=1", "/list?page=2", "/list?page=1", "/about"),
)
def sort_order(memory: Memory, asked: Asked) -> Response:
    """A list in an order that two forms choose."""
    memory |= {k: v for k, v in asked.told.items() if k in ("by", "to")}
    if asked.method == "POST":
        return away("/list?page=1")
    if asked.path == "/about":
        return html("About")
    return html(
        "List", f"by {memory.get('by', 'name')} {memory.get('to', 'up')}, page {asked.told.get('page')}"
    )


@everyday(*get("/list?sort=name", "/list?sort=price", "/list", "/list", "/p/1", "/p/2"), STYLE, SCRIPT)
def sort_by_link(memory: Memory, asked: Asked) -> Response:
    """A list whose links choose an order, which stays."""
    if asked.path == "/list":
        memory["sort"] = asked.told.get("sort", memory.get("sort", "name"))
        return html("List", f"by {memory['sort']}")
    return html(PRODUCTS[asked.path[-1]][0])


@everyday(*get("/settings", "/settings/profile", "/settings/mail", "/settings/keys", "/settings", "/about"))
def tabs(memory: Memory, asked: Asked) -> Response:
    """Settings that open at the tab that was open last."""
    if asked.path == "/about":
        return html("About")
    name = asked.path.partition("/settings/")[2]
    memory["tab"] = name or memory.get("tab", "profile")
    return html("Settings", f"tab {memory['tab']}")


@everyday(
    *(form("/compare/add", id=n) for n in "123"),
    *(form("/compare/remove", id=n) for n in "12"),
    *get("/compare", "/p/1", "/p/2", "/about"),
    STYLE,
)
def compare_list(memory: Memory, asked: Asked) -> Response:
    """Products to compare: at most two, the oldest leaves."""
    chosen = memory.setdefault("compare", [])
    if asked.path == "/compare/add" and asked.told["id"] not in chosen:
        chosen.append(asked.told["id"])
        del chosen[:-2]
    elif asked.path == "/compare/remove" and asked.told["id"] in chosen:
        chosen.remove(asked.told["id"])
    if asked.method == "POST":
        return away("/compare")
    if asked.path == "/compare":
        return html("Compare", *(PRODUCTS[n][0] for n in chosen))
    return html(asked.path, "in the comparison" if asked.path[-1] in chosen else "")


@everyday(
    *(sent(f"/api/cart/{n}", {"quantity": q}, "PUT") for n in "12" for q in (1, 2)),
    *(Request("DELETE", f"{HOST}/api/cart/{n}") for n in "12"),
    *get("/api/cart", "/api/cart", "/api/cart/count", "/api/products"),
)
def cart_by_quantity(memory: Memory, asked: Asked) -> Response:
    """A cart with a quantity of each product."""
    cart = memory.setdefault("cart", {})
    name = asked.path.rsplit("/", 1)[1]
    if asked.method == "PUT":
        cart[name] = asked.told["quantity"]
        return data({"id": name, "quantity": cart[name]})
    if asked.method == "DELETE":
        return data({"removed": cart.pop(name)}) if name in cart else data("none", 404)
    if name == "count":
        return data({"count": sum(cart.values())})
    return data(dict(sorted(cart.items())) if name == "cart" else {n: p for n, (p, _) in PRODUCTS.items()})


@everyday(
    *(with_fields(form("/note", text=text), cookie=f"who={who}") for who in ("ann", "bob") for text in "xy"),
    *(with_fields(one, cookie=f"who={who}") for who in ("ann", "bob") for one in get("/notes", "/wall", "/wall", "/about")),
)  # fmt: skip
def two_users(memory: Memory, asked: Asked) -> Response:
    """Two users of one program: notes of their own, and a wall that both see."""
    who = asked.cookies.get("who", "")
    if asked.method == "POST":
        memory.setdefault(who, []).append(asked.told["text"])
        memory["wall"] = f"{who} wrote {asked.told['text']}"
        return away("/notes")
    if asked.path == "/notes":
        return html(f"Notes of {who}", *memory.get(who, []))
    return html("Wall", memory.get("wall", "")) if asked.path == "/wall" else html("About")


THEME = "mutation SetTheme($theme: String!) { setTheme(theme: $theme) { ok } }"
UNITS = "mutation SetUnits($units: String!) { setUnits(units: $units) { ok } }"


@everyday(
    *(graphql(THEME, theme=theme) for theme in ("dark", "light")),
    *(graphql(UNITS, units=units) for units in ("metric", "imperial")),
    graphql("query Preferences { preferences { theme units } }"),
    graphql("query Preferences { preferences { theme units } }"),
    *(graphql("query Weight($id: ID!) { weight(id: $id) }", id=n) for n in "12"),
    graphql("query Products { products { name } }"),
)
def graphql_preferences(memory: Memory, asked: Asked) -> Response:
    """Preferences that mutations set and one of which an answer of another kind follows."""
    name, variables = asked.told["operationName"], asked.told["variables"]
    memory |= variables if name.startswith("Set") else {}
    theme, units = memory.get("theme", "light"), memory.get("units", "metric")
    if name == "Preferences":
        return data({"data": {"preferences": {"theme": theme, "units": units}}})
    if name == "Weight":
        return data({"data": {"weight": f"{variables['id']} {'kg' if units == 'metric' else 'lb'}"}})
    if name == "Products":
        return data({"data": {"products": [{"name": product} for product, _ in PRODUCTS.values()]}})
    return data({"data": {name[0].lower() + name[1:]: {"ok": True}}})


@everyday(
    *(sent(f"/api/{n}", {"name": text}, "PUT") for n in "ab" for text in "xy"),
    *(sent(f"/api/{n}", {"tag": "new"}, "PATCH") for n in "ab"),
    Request("DELETE", f"{HOST}/api/a"),
    *get("/api/a", "/api/b", "/api/c"),
)
def resources_apart(memory: Memory, asked: Asked) -> Response:
    """Resources that know nothing of each other."""
    things = memory.setdefault(
        "things", {"/api/a": {"name": "a"}, "/api/b": {"name": "b"}, "/api/c": {"name": "c"}}
    )
    if asked.method == "PUT":
        things[asked.path] = dict(asked.told)
        return Response(204, "No Content", (), b"")
    if asked.path not in things:
        return data({"error": "not found"}, 404)
    if asked.method == "DELETE":
        del things[asked.path]
        return Response(204, "No Content", (), b"")
    things[asked.path] |= asked.told
    return data(things[asked.path])


@everyday(
    sent("/api/items", {"name": "lamp"}),
    *(Request("DELETE", f"{HOST}/api/items/{n}") for n in "123"),
    *get("/api/items", "/api/items/1", "/api/items/2", "/api/items/3", "/api/categories"),
)
def things_deleted(memory: Memory, asked: Asked) -> Response:
    """Things that may be deleted, one by one; each GET of the others stays as it is."""
    items = memory.setdefault("items", {n: PRODUCTS[n][0] for n in "123"})
    name = asked.path.rsplit("/", 1)[1]
    if asked.method == "POST":
        new = str(max(map(int, items), default=0) + 1)
        items[new] = asked.told["name"]
        return data({"id": new, "name": items[new]}, 201)
    if name == "items":
        return data(items)
    if name == "categories":
        return data(["kitchen", "garden"])
    if name not in items:
        return data({"error": "not found"}, 404)
    return (
        data({"id": name, "name": items[name]})
        if asked.method == "GET"
        else data({"deleted": items.pop(name)})
    )


@everyday(
    *get(*(f"/list?page={n}" for n in range(1, 5)), "/list", "/p/1", "/about"),
    *(form("/page-size", size=n) for n in ("10", "20")),
)
def pagination(memory: Memory, asked: Asked) -> Response:
    """Pages of a list, whose length a form chooses."""
    if asked.method == "POST":
        memory["size"] = asked.told["size"]
        return away("/list")
    if asked.path == "/list":
        page, size = int(asked.told.get("page", 1)), int(memory.get("size", 10))
        return html(f"Page {page}", f"{(page - 1) * size + 1} to {page * size}")
    return html(asked.path)


@everyday(
    *get("/suggest?q=te", "/suggest?q=ke", "/search?q=tea", "/search?q=kettle", "/search?q=cup", "/", "/"),
    form("/history/clear"),
    SCRIPT,
)
def search_with_history(memory: Memory, asked: Asked) -> Response:
    """A search with suggestions, whose start page shows the last three searches."""
    recent = memory.setdefault("recent", [])
    if asked.path == "/history/clear":
        recent.clear()
        return away("/")
    if asked.path == "/suggest":
        return data([word for word in ("tea", "teapot", "kettle") if word.startswith(asked.told["q"])])
    if asked.path == "/search":
        recent[:] = [q for q in recent if q != asked.told["q"]] + [asked.told["q"]]
        return html(f"Results for {asked.told['q']}", "three products")
    return html("Welcome", *reversed(recent[-3:]))


@everyday(
    *(sent(f"/api/wishes/{n}", {}, "PUT") for n in "12"),
    *(Request("DELETE", f"{HOST}/api/wishes/{n}") for n in "12"),
    *get("/wishes", "/p/1", "/p/2", "/p/3"),
    STYLE,
)
def wishlist(memory: Memory, asked: Asked) -> Response:
    """Wishes, each of which shows on its product's page."""
    wishes = memory.setdefault("wishes", set())
    name = asked.path.rsplit("/", 1)[1]
    if asked.method == "PUT":
        wishes.add(name)
        return data({"wished": True})
    if asked.method == "DELETE":
        wishes.discard(name)
        return data({"wished": False})
    if name == "wishes":
        return html("Wishes", *(PRODUCTS[n][0] for n in sorted(wishes)))
    return html(PRODUCTS[name][0], "a wish" if name in wishes else "")


GREETINGS = {"en": "Welcome", "fr": "Bienvenue", "de": "Willkommen"}


@everyday(*get("/language?to=fr", "/language?to=de", "/language?to=en", "/", "/about", "/"), STYLE)
def language_by_cookie(memory: Memory, asked: Asked) -> Response:
    """Pages in the language that a cookie names."""
    if asked.path == "/language":
        return Response(
            302, "Found", (("Location", "/"), ("Set-Cookie", f"lang={asked.told['to']}; Path=/")), b""
        )
    return html(asked.path, GREETINGS[asked.cookies.get("lang", "en")])


@everyday(
    *(with_fields(one, accept_language=language) for language in ("en", "fr", "de") for one in get("/", "/about", "/p/1")),
    *(with_fields(form("/basket", id=n), accept_language="fr") for n in "12"),
    with_fields(get("/basket")[0], accept_language="fr"),
)  # fmt: skip
def language_by_header(memory: Memory, asked: Asked) -> Response:
    """Pages in the language that a header field asks for, without a word about it in `Vary`."""
    if asked.method == "POST":
        memory.setdefault("basket", []).append(asked.told["id"])
        return away("/basket")
    greeting = GREETINGS[asked.fields.get("accept-language", "en")]
    return html(asked.path, greeting, *(memory.get("basket", []) if asked.path == "/basket" else ()))


@everyday(
    *(
        with_fields(one, x_tenant=tenant)
        for tenant in ("north", "south")
        for one in (
            *get("/api/orders", "/api/me"),
            sent("/api/orders", {"id": 1}),
            sent("/api/orders", {"id": 2}),
        )
    )
)
def tenants(memory: Memory, asked: Asked) -> Response:
    """Two customers' data, chosen by a header field."""
    orders = memory.setdefault(asked.fields.get("x-tenant", ""), [])
    if asked.method == "POST":
        orders.append(asked.told["id"])
        return data({"count": len(orders)}, 201)
    return data(orders if asked.path == "/api/orders" else {"tenant": asked.fields.get("x-tenant")})


@everyday(
    form("/login", user="ann", password="tea-and-cake"),
    form("/login", user="ann", password="not-this-one"),
    form("/logout"),
    *get("/account", "/orders", "/", "/p/1", "/account"),
    STYLE,
)
def login_then_pages(memory: Memory, asked: Asked) -> Response:
    """A login that gives a drawn cookie, without which two pages refer to it."""
    known = memory.setdefault("sessions", set())
    if asked.path == "/login":
        if asked.told["password"] != "tea-and-cake":
            return refused("Wrong user or password.", 401)
        token = drawn(memory, "session")
        known.add(token)
        return Response(
            303,
            "See Other",
            (("Location", "/account"), ("Set-Cookie", f"sid={token}; Path=/; HttpOnly")),
            b"",
        )
    signed_in = asked.cookies.get("sid") in known
    if asked.path == "/logout":
        known.discard(asked.cookies.get("sid"))
        return Response(303, "See Other", (("Location", "/"), ("Set-Cookie", "sid=; Path=/; Max-Age=0")), b"")
    if asked.path in ("/account", "/orders"):
        return html(asked.path, "of ann") if signed_in else away("/")
    return html(asked.path, "Hello ann" if signed_in and asked.path == "/" else "")


@everyday(
    *get("/thread", "/thread", "/reply", "/reply", "/about"),
    *(form("/reply", text=text, nonce="__nonce__") for text in ("first", "second")),
)
def one_time_nonces(memory: Memory, asked: Asked) -> Response:
    """A form whose drawn token is good for one reply."""
    open_, replies = memory.setdefault("open", set()), memory.setdefault("replies", [])
    if asked.method == "POST":
        if asked.told["nonce"] not in open_:
            return refused("This form has expired.")
        open_.discard(asked.told["nonce"])
        replies.append(asked.told["text"])
        return away("/thread")
    if asked.path == "/reply":
        token = drawn(memory, "nonce")
        open_.add(token)
        return html(
            "Reply",
            f'<form method=post><input type="hidden" name="nonce" value="{token}"><input name="text"></form>',
        )
    return html("Thread", *replies) if asked.path == "/thread" else html("About")


@everyday(
    *(form(f"/step/{n}", value=value) for n in "123" for value in "xy"),
    *get("/step/1", "/step/2", "/step/3", "/summary", "/help"),
)
def wizard_of_three(memory: Memory, asked: Asked) -> Response:
    """Three steps, each of which may be filled in again, and a summary."""
    told = memory.setdefault("told", {})
    if asked.path == "/help":
        return html("Help")
    name = asked.path[-1]
    if asked.method == "POST":
        told[name] = asked.told["value"]
        return away(f"/step/{int(name) + 1}" if name < "3" else "/summary")
    if asked.path == "/summary":
        return html("Summary", *(f"{k}: {v}" for k, v in sorted(told.items())))
    if name > "1" and str(int(name) - 1) not in told:
        return away(f"/step/{int(name) - 1}")
    return html(f"Step {name}", f'<input name="value" value="{told.get(name, "")}">')


@everyday(*get("/", "/about", "/p/1", "/"), form("/guestbook", text="hello"), STYLE)
def counter(memory: Memory, asked: Asked) -> Response:
    """A start page that counts its visits, beside pages that don't."""
    if asked.method == "POST":
        memory["signed"] = memory.get("signed", 0) + 1
        return away("/")
    if asked.path != "/":
        return html(asked.path)
    memory["visits"] = memory.get("visits", 0) + 1
    return html("Welcome", f"visit {memory['visits']}", f"{memory.get('signed', 0)} entries")


@everyday(
    *get("/page/Tea", "/page/Coffee", "/page/Cocoa", "/page/Milk", "/recent"),
    *(form(f"/page/{name}", text=text) for name in ("Tea", "Milk") for text in ("hot", "cold")),
    STYLE,
)
def wiki_with_breadcrumbs(memory: Memory, asked: Asked) -> Response:
    """A wiki whose pages show the three that were visited before, and a list of changes."""
    texts, seen = memory.setdefault("texts", {}), memory.setdefault("seen", [])
    if asked.path == "/recent":
        return html("Recent changes", *reversed(memory.get("log", [])))
    name = asked.path.rsplit("/", 1)[1]
    if asked.method == "POST":
        texts[name] = asked.told["text"]
        memory.setdefault("log", []).append(f"{name} now says {asked.told['text']}")
        return away(asked.path)
    trail = " &raquo; ".join(seen[-3:])
    seen[:] = [one for one in seen if one != name] + [name]
    return html(name, f"You were here: {trail}", texts.get(name, "empty"))


@everyday(
    *get("/api/stock/1", "/api/stock/2", "/log", "/log", "/health"),
    sent("/api/stock/1", {"take": 1}),
    sent("/api/stock/2", {"take": 2}),
)
def log_that_echoes(memory: Memory, asked: Asked) -> Response:
    """A log that shows the last three requests to the other addresses."""
    log, stock = memory.setdefault("log", []), memory.setdefault("stock", {"1": 9, "2": 9})
    if asked.path == "/log":
        return html("Log", *log[-3:])
    if asked.path == "/health":
        return data({"up": True})
    name = asked.path[-1]
    stock[name] -= asked.told.get("take", 0)
    log.append(f"{asked.method} {asked.path} {json.dumps(asked.told)}")
    return data({"left": stock[name]})


@everyday(
    *(form(f"/notifications/{n}/read") for n in "123"),
    form("/notifications/read-all"),
    *get("/notifications", "/api/badge", "/", "/about"),
    SCRIPT,
)
def notifications_read(memory: Memory, asked: Asked) -> Response:
    """Notifications that are marked as read, and their number on two pages."""
    unread = memory.setdefault("unread", ["1", "2", "3"])
    if asked.path == "/notifications/read-all":
        unread.clear()
    elif asked.method == "POST":
        unread[:] = [n for n in unread if n != asked.path.split("/")[2]]
    if asked.method == "POST":
        return away("/notifications")
    if asked.path == "/notifications":
        return html("Notifications", *(f"message {n} {'(new)' if n in unread else ''}" for n in "123"))
    if asked.path == "/api/badge":
        return data({"unread": len(unread)})
    return html(asked.path, f"{len(unread)} new" if asked.path == "/" else "")


@everyday(
    *(sent("/api/text", {"text": text}) for text in "xyz"),
    form("/api/undo"),
    form("/api/redo"),
    *get("/api/text", "/api/text", "/api/fonts"),
)
def undo_and_redo(memory: Memory, asked: Asked) -> Response:
    """A text whose changes are taken back and made again."""
    past, at = memory.setdefault("past", [""]), memory.get("at", 0)
    if asked.path == "/api/fonts":
        return data(["serif", "sans"])
    if asked.path == "/api/undo":
        at = max(0, at - 1)
    elif asked.path == "/api/redo":
        at = min(len(past) - 1, at + 1)
    elif asked.method == "POST":
        past[at + 1 :] = [asked.told["text"]]
        at += 1
    memory["at"] = at
    return data({"text": past[at]})


@everyday(
    *(sent("/api/draft", {"text": text}, "PUT") for text in ("x", "y")),
    form("/publish"),
    form("/discard"),
    *get("/edit", "/post", "/post", "/about"),
)
def drafts(memory: Memory, asked: Asked) -> Response:
    """A draft that is kept while it is written, published or thrown away."""
    if asked.method == "PUT":
        memory["draft"] = asked.told["text"]
        return data({"saved": True})
    if asked.path == "/publish":
        memory["post"] = memory.pop("draft", memory.get("post", ""))
    elif asked.path == "/discard":
        memory.pop("draft", None)
    if asked.method == "POST":
        return away("/post" if asked.path == "/publish" else "/edit")
    if asked.path == "/edit":
        return html("Edit", memory.get("draft", memory.get("post", "")))
    return html("Post", memory.get("post", "")) if asked.path == "/post" else html("About")


def _upload(name: str, content: str) -> Request:
    media = (("Content-Type", "application/octet-stream"),)
    return Request("POST", f"{HOST}/upload?name={name}", media, f"text={content}".encode())


@everyday(
    *(_upload(name, content) for name in ("a.txt", "b.txt") for content in ("one", "two")),
    Request("DELETE", f"{HOST}/files/a.txt"),
    *get("/files", "/files", "/files/a.txt", "/files/b.txt", "/quota"),
)
def uploads(memory: Memory, asked: Asked) -> Response:
    """Files that are sent, shown, replaced and deleted."""
    files = memory.setdefault("files", {})
    if asked.path == "/upload":
        files[asked.told["name"]] = asked.told["text"]
        return data({"stored": asked.told["name"]}, 201)
    if asked.path == "/files":
        return html("Files", *sorted(files))
    if asked.path == "/quota":
        return data({"used": len(files), "of": 10})
    name = asked.path.rsplit("/", 1)[1]
    if name not in files:
        return refused("No such file.", 404)
    if asked.method == "DELETE":
        del files[name]
        return Response(204, "No Content", (), b"")
    return Response(200, "OK", (("Content-Type", "text/plain"),), files[name].encode())


@everyday(
    *get("/", "/", "/article/1", "/article/2", "/weather", "/imprint"),
    form("/subscribe", mail="a@b.test"),
    STYLE,
    SCRIPT,
)
def news_by_time(memory: Memory, asked: Asked) -> Response:
    """News whose first page changes with time alone, once in some twelve requests."""
    now = memory["asked"] + memory["walk"] % 3 * 4
    if asked.path == "/":
        return html("News", f"edition {now // 12}")
    if asked.path == "/weather":
        return html("Weather", f"{12 + now // 15 % 3} degrees")
    return away("/") if asked.method == "POST" else html(asked.path)


@everyday(
    *get("/api/rooms", "/api/rooms", "/api/rooms?floor=2", "/status"),
    sent("/api/book", {"room": 1}),
    sent("/api/book", {"room": 2}),
)
def stamped(memory: Memory, asked: Asked) -> Response:
    """Rooms that are booked, in answers that tell the moment at which they were made."""
    now = datetime(2025, 1, 1, 9, memory["walk"] % 60, tzinfo=UTC) + timedelta(seconds=memory["asked"] * 7)
    if asked.method == "POST":
        memory.setdefault("booked", []).append(asked.told["room"])
    said = (
        {}
        if asked.path == "/status"
        else {"booked": memory.get("booked", []), "floor": asked.told.get("floor")}
    )
    told = data({"at": now.isoformat(), **said}, 201 if asked.method == "POST" else 200)
    return Response(
        told.status, told.reason, (*told.headers, ("Date", format_datetime(now, usegmt=True))), told.body
    )


@everyday(
    *get("/list", "/list", "/p/1", "/p/2"),
    *(form("/filter", by=by) for by in ("new", "old")),
    Request("POST", f"{HOST}/beacon", (("Content-Type", "text/plain"),), b"t=__clock__"),
    *get("/collect?v=2&t=pageview&z=__clock__", "/ping?_=__clock__"),
    STYLE,
    SCRIPT,
)
def with_beacons(memory: Memory, asked: Asked) -> Response:
    """A filtered list, and what counts the visitors, which nothing depends on."""
    if asked.path == "/beacon":
        return Response(204, "No Content", (), b"")
    if asked.path in ("/collect", "/ping"):
        return Response(200, "OK", (("Content-Type", "image/gif"),), b"GIF89a")
    if asked.method == "POST":
        memory["by"] = asked.told["by"]
        return away("/list")
    return html("List", memory.get("by", "all")) if asked.path == "/list" else html(asked.path)


@everyday(
    *get(
        "/api/data?year=2021&_=__clock__",
        "/api/data?year=2022&_=__clock__",
        "/api/data?timestamp=2021",
        "/api/data?timestamp=2022",
        "/api/unit?_=__clock__",
    ),
    *(sent("/api/unit", {"unit": unit}) for unit in ("kg", "lb")),
)
def cache_busters(memory: Memory, asked: Asked) -> Response:
    """Data asked for with a clock that decides nothing, by years that decide."""
    if asked.method == "POST":
        memory["unit"] = asked.told["unit"]
    if asked.path == "/api/unit":
        return data({"unit": memory.get("unit", "kg")})
    return data(
        {"year": asked.told.get("year", asked.told.get("timestamp")), "unit": memory.get("unit", "kg")}
    )


@everyday(
    *(
        Request("MOVE", f"{HOST}/files/{a}", (("Destination", f"/files/{b}"),))
        for a, b in ("ab", "ac", "bc", "ba", "ca")
    ),
    *get("/files", "/files", "/files/a", "/files/b", "/files/c"),
)
def moved_files(memory: Memory, asked: Asked) -> Response:
    """Files that are moved to where a header field says."""
    files = memory.setdefault("files", {"a": "one", "b": "two"})
    name = asked.path.rsplit("/", 1)[1]
    if name == "files":
        return data(sorted(files.items()))
    if name not in files:
        return refused("No such file.", 404)
    if asked.method == "MOVE":
        files[asked.fields["destination"][-1]] = files.pop(name)
        return Response(201, "Created", (), b"")
    return Response(200, "OK", (("Content-Type", "text/plain"),), files[name].encode())


@everyday(
    *(
        form("/settings", theme=theme, size=size)
        for theme, size in (("dark", "12"), ("dark", "14"), ("light", "12"))
    ),
    *get("/settings", "/", "/p/1", "/print"),
    STYLE,
)
def settings(memory: Memory, asked: Asked) -> Response:
    """A form of settings, each of which shows on other pages."""
    if asked.method == "POST":
        memory |= {"theme": asked.told["theme"], "size": asked.told["size"]}
        return away("/settings")
    theme, size = memory.get("theme", "light"), memory.get("size", "12")
    shown = {"/settings": f"{theme} {size}", "/": theme, "/print": size}.get(asked.path, "")
    return html(asked.path, shown)


@everyday(
    *(sent(f"/api/votes/{n}", {"vote": vote}) for n in "12" for vote in (1, -1, 0)),
    *get("/api/votes/1", "/api/votes/2", "/top", "/about"),
)
def votes(memory: Memory, asked: Asked) -> Response:
    """One vote for each of two posts, which may be changed, and their order."""
    cast = memory.setdefault("votes", {"1": 0, "2": 0})
    name = asked.path[-1]
    if asked.method == "POST":
        cast[name] = asked.told["vote"]
    if asked.path.startswith("/api"):
        return data({"id": name, "score": {"1": 10, "2": 10}[name] + cast[name]})
    return html("Top", *sorted(cast, key=lambda n: (-cast[n], n))) if asked.path == "/top" else html("About")


@everyday(
    *(form("/todos", text=text) for text in ("milk", "bread")),
    *(Request("PATCH", f"{HOST}/todos/{n}") for n in "12"),
    Request("DELETE", f"{HOST}/todos/1"),
    *get("/", "/todos?show=open", "/todos?show=done"),
    SCRIPT,
)
def todos(memory: Memory, asked: Asked) -> Response:
    """A list of things to do, in pieces of pages."""
    items = memory.setdefault("todos", {})
    if asked.path == "/todos" and asked.method == "POST":
        memory["last"] = memory.get("last", 0) + 1
        items[str(memory["last"])] = [asked.told["text"], False]
        return html(f"Thing {memory['last']}", asked.told["text"])
    name = asked.path.rsplit("/", 1)[1]
    if asked.method in ("PATCH", "DELETE"):
        if name not in items:
            return refused("No such thing.", 404)
        if asked.method == "DELETE":
            del items[name]
            return Response(200, "OK", (("Content-Type", "text/html"),), b"")
        items[name][1] = not items[name][1]
        return html(f"Thing {name}", "done" if items[name][1] else "open")
    wanted = {"open": (False,), "done": (True,)}.get(asked.told.get("show", ""), (False, True))
    return html("Things", *(f"{n} {text}" for n, (text, done) in items.items() if done in wanted))


@everyday(
    *(form(f"/thread/{n}", text=text) for n in "12" for text in ("agreed", "no")),
    *get("/", "/thread/1", "/thread/2", "/user/ann", "/rules"),
    STYLE,
)
def forum(memory: Memory, asked: Asked) -> Response:
    """Threads that grow, their list with counts, and pages that stay."""
    threads = memory.setdefault("threads", {"1": ["On tea"], "2": ["On cups"]})
    name = asked.path.rsplit("/", 1)[1]
    if asked.method == "POST":
        threads[name].append(asked.told["text"])
        return away(asked.path)
    if asked.path == "/":
        return html("Forum", *(f"{posts[0]}: {len(posts)} posts" for posts in threads.values()))
    return html(f"Thread {name}", *threads[name]) if name in threads else html(name)


@everyday(
    *get("/currency/eur", "/currency/usd", "/p/1", "/p/2", "/imprint", "/p/1"),
    form("/cart", id="1"),
    form("/cart", id="2"),
    get("/cart")[0],
    STYLE,
)
def currency(memory: Memory, asked: Asked) -> Response:
    """Prices in a currency that a link chooses, and a cart."""
    if asked.path.startswith("/currency/"):
        memory["currency"] = asked.path.rsplit("/", 1)[1]
        return away("/p/1")
    unit = memory.get("currency", "eur")
    cart = memory.setdefault("cart", [])
    if asked.method == "POST":
        cart.append(asked.told["id"])
        return away("/cart")
    if asked.path == "/cart":
        return html("Cart", *cart, f"{sum(PRODUCTS[n][1] for n in cart)} {unit}")
    return html(asked.path, f"{PRODUCTS[asked.path[-1]][1]} {unit}" if asked.path != "/imprint" else "")


@everyday(
    *(form("/book", day=day) for day in "123"),
    *(form("/cancel", day=day) for day in "12"),
    *get("/day/1", "/day/2", "/day/3", "/free", "/prices"),
)
def booking(memory: Memory, asked: Asked) -> Response:
    """Days that are booked and given back."""
    booked = memory.setdefault("booked", set())
    day = asked.told.get("day") or asked.path[-1]
    if asked.path == "/book" and day in booked:
        return refused("Taken.", 409)
    if asked.method == "POST":
        (booked.add if asked.path == "/book" else booked.discard)(day)
        return away(f"/day/{day}")
    if asked.path == "/free":
        return html("Free", *(n for n in "123" if n not in booked))
    return html(f"Day {day}", "booked" if day in booked else "free") if day in "123" else html("Prices")


@everyday(
    *get("/", "/docs/a", "/docs/b", "/docs/c", "/api/version", "/search?q=x", "/search?q=y"),
    sent("/api/query", {"q": 1}),
    sent("/api/query", {"q": 2}),
    form("/consent", all="yes"),
    STYLE,
    SCRIPT,
)
def manual(memory: Memory, asked: Asked) -> Response:
    """A manual: nothing that matters is remembered; each answer names its request by a drawn number."""
    more = (("X-Request-Id", drawn(memory, "request")),)
    if asked.path == "/consent":
        return Response(303, "See Other", (("Location", "/"), *more), b"")
    if asked.path.startswith("/api"):
        body = json.dumps({"answer": asked.told or "1.0"}).encode()
        return Response(200, "OK", (("Content-Type", "application/json"), *more), body)
    return html(asked.path, asked.told.get("q", ""), more=more)
