"""Small servers on which nothing was tuned: `UNSEEN`. Written in November 2026, after the model, from what applications do.

Each group of these is a measure once only: whoever changes the model because of them moves them to `everyday.py` and writes others.
"""

from __future__ import annotations

import json

from benchmarks.everyday import PRODUCTS, SCRIPT, STYLE, drawn, everyday_in, html
from benchmarks.mini_sites import Asked, Memory, Mini, away, data, form, get, sent
from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request

UNSEEN: list[Mini] = []
unseen = everyday_in(UNSEEN)


@unseen(
    *(form("/order", product=n, quantity=q) for n in "12" for q in ("1", "2")),
    *get("/", "/p/1", "/p/2", "/p/3", "/orders", "/imprint"),
    STYLE,
)
def stock_that_falls(memory: Memory, asked: Asked) -> Response:
    """Products of which each order leaves fewer, until they are sold out."""
    left = memory.setdefault("left", dict.fromkeys(PRODUCTS, 4))
    orders = memory.setdefault("orders", [])
    if asked.method == "POST":
        name, wanted = asked.told["product"], int(asked.told["quantity"])
        if left[name] < wanted:
            return html("Order", f"only {left[name]} left", status=409)
        left[name] -= wanted
        orders.append(f"{wanted} {PRODUCTS[name][0]}")
        return away("/orders")
    if asked.path == "/orders":
        return html("Your orders", *orders)
    if asked.path == "/":
        return html("Shop", *(f"{PRODUCTS[n][0]} {'in stock' if left[n] else 'sold out'}" for n in left))
    if asked.path.startswith("/p/"):
        return html(PRODUCTS[asked.path[-1]][0], f"{left[asked.path[-1]]} left")
    return html("Imprint", "Kettles Ltd")


@unseen(
    sent("/api/tickets", {"desk": "passports"}),
    sent("/api/tickets", {"desk": "cars"}),
    form("/desk/passports/next"),
    form("/desk/cars/next"),
    *get("/display", "/display", "/api/desks/passports", "/api/desks/cars", "/hours"),
)
def queue_numbers(memory: Memory, asked: Asked) -> Response:
    """Numbers that are drawn at two desks, and a display of those that are called."""
    desks = memory.setdefault("desks", {"passports": [0, 0], "cars": [0, 0]})  # drawn, called
    if asked.path == "/api/tickets":
        desks[asked.told["desk"]][0] += 1
        return data({"desk": asked.told["desk"], "number": desks[asked.told["desk"]][0]}, 201)
    if asked.method == "POST":
        desk = desks[asked.path.split("/")[2]]
        desk[1] = min(desk[0], desk[1] + 1)
        return away("/display")
    if asked.path == "/display":
        return html("Now serving", *(f"{name} {called}" for name, (_, called) in desks.items()))
    if asked.path.startswith("/api/"):
        given, called = desks[asked.path.rpartition("/")[2]]
        return data({"waiting": given - called})
    return html("Hours", "9 to 5")


@unseen(
    *get("/search?q=tea", "/search?q=cup", "/search?q=tray", "/search?q=tea&page=2", "/", "/p/1"),
    form("/captcha", answer="7"),
    form("/captcha", answer="8"),
    SCRIPT,
)
def throttled_search(memory: Memory, asked: Asked) -> Response:
    """A search that wants a sum worked out after each four questions."""
    if asked.method == "POST":
        if asked.told["answer"] != "7":
            return html("Are you human?", "Wrong. 3 + 4 = ?")
        memory["searches"] = 0
        return away("/")
    if asked.path == "/search":
        memory["searches"] = memory.get("searches", 0) + 1
        if memory["searches"] > 4:
            return html("Are you human?", "3 + 4 = ?", status=429, more=(("Retry-After", "60"),))
        return html(f"Results for {asked.told['q']}", f"page {asked.told.get('page', '1')}")
    return html("Kettle", "20 EUR") if asked.path == "/p/1" else html("Search")


@unseen(
    *get("/", "/", "/pricing", "/signup", "/blog", "/?variant=b", "/?variant=a"),
    form("/signup", plan="free"),
    STYLE,
    SCRIPT,
)
def design_by_cookie(memory: Memory, asked: Asked) -> Response:
    """Two designs, one of which the first visit draws into a cookie, and a link that asks for one."""
    variant = asked.told.get("variant") or asked.cookies.get("ab") or "ab"[memory["walk"] % 2]
    more = () if asked.cookies.get("ab") == variant else (("Set-Cookie", f"ab={variant}; Path=/"),)
    if asked.method == "POST":
        memory["plan"] = asked.told["plan"]
        return away("/signup")
    if asked.path == "/blog":
        return html("Blog", "Kettles are back")
    if asked.path == "/signup":
        return html("Sign up", memory.get("plan", "choose a plan"), f"design {variant}", more=more)
    return html("Welcome" if asked.path == "/" else "Pricing", f"design {variant}", more=more)


STEPS = ("/checkout/address", "/checkout/delivery", "/checkout/payment", "/checkout/review")


@unseen(
    *(form(STEPS[0], city=city) for city in ("Rome", "Oslo")),
    *(form(STEPS[1], by=by) for by in ("post", "bike")),
    *(form(STEPS[2], card=card) for card in ("visa", "bill")),
    form(STEPS[3]),
    *get(*STEPS, STEPS[3], "/help"),
)
def checkout_with_back_button(memory: Memory, asked: Asked) -> Response:
    """A checkout in which no step is skipped, and each that was filled in is shown so when one goes back."""
    filled = memory.setdefault("filled", {})
    if asked.path == "/help":
        return html("Help", "Call us")
    at = STEPS.index(asked.path)
    missing = next((n for n, step in enumerate(STEPS[:3]) if step not in filled), 3)
    if missing < at:
        return away(STEPS[missing])
    if asked.method == "POST" and at == 3:
        filled.clear()
        memory["number"] = memory.get("number", 1000) + 1
        return html("Thank you", f"order {memory['number']}")
    if asked.method == "POST":
        filled[asked.path] = next(iter(asked.told.values()))
        return away(STEPS[at + 1])
    if at == 3:
        return html("Review", *filled.values())
    return html(asked.path.rpartition("/")[2].title(), filled.get(asked.path, "to be filled in"))


@unseen(
    *(form("/role", role=role) for role in ("reader", "editor", "admin")),
    form("/articles/1", title="News"),
    form("/articles/1", title="Olds"),
    *get("/", "/articles/1", "/articles/1/edit", "/admin", "/account", "/about"),
    STYLE,
)
def roles_switched(memory: Memory, asked: Asked) -> Response:
    """An application in which a tester chooses who to be: buttons, pages and refusals follow."""
    role, title = memory.get("role", "reader"), memory.get("title", "Draft")
    if asked.path == "/role":
        memory["role"] = asked.told["role"]
        return away("/account")
    if asked.path == "/about":
        return html("About")
    if asked.path == "/admin":
        return html("Admin", title) if role == "admin" else html("Refused", "for admins", status=403)
    if asked.path == "/articles/1/edit" or asked.method == "POST":
        if role == "reader":
            return html("Refused", "for editors", status=403)
        if asked.method == "POST":
            memory["title"] = asked.told["title"]
            return away("/articles/1")
        return html("Edit", title)
    if asked.path == "/articles/1":
        return html(title, *(["edit"] if role != "reader" else []))
    return html("Account", role) if asked.path == "/account" else html("Home", f"You are {role}")


def _put(name: str, price: int, match: str) -> Request:
    request = sent(f"/api/items/{name}", {"price": price}, "PUT")
    return Request("PUT", request.url, (*request.headers, ("If-Match", match)), request.body)


@unseen(
    *(_put("1", price, match) for price in (5, 6) for match in ('"v1"', '"v2"', '"v3"')),
    _put("2", 7, '"v1"'),
    sent("/api/items/1", {"price": 9}, "PUT"),
    *get("/api/items/1", "/api/items/1", "/api/items/2", "/api/items", "/api/units"),
)
def versions_by_etag(memory: Memory, asked: Asked) -> Response:
    """Items that are written only by who has seen their last version."""
    items = memory.setdefault("items", {"1": [1, 4], "2": [1, 3]})  # version, price
    name = asked.path.rpartition("/")[2]
    if name == "items":
        return data({n: price for n, (_, price) in items.items()})
    if name == "units":
        return data(["piece", "box"])
    tag = f'"v{items[name][0]}"'
    if asked.method == "PUT":
        if not asked.match:
            return data({"error": "If-Match is required"}, 428)
        if asked.match != tag:
            return data({"error": "changed meanwhile"}, 412)
        items[name] = [items[name][0] + 1, asked.told["price"]]
    version, price = items[name]
    found = {"id": name, "price": price, "version": version}
    media = (("Content-Type", "application/json"), ("ETag", f'"v{version}"'))
    return Response(200, "OK", media, json.dumps(found).encode())


@unseen(
    *(form("/register", email=f"{name}@mail.test") for name in ("ann", "bob")),
    *(form("/login", email=f"{name}@mail.test") for name in ("ann", "bob")),
    form("/logout"),
    *get("/confirm/ann", "/confirm/bob", "/account", "/account", "/", "/terms"),
)
def address_confirmed(memory: Memory, asked: Asked) -> Response:
    """Accounts that open once the link in a letter was followed, and a drawn cookie for who is signed in."""
    known = memory.setdefault("known", {})
    who = memory.get("in") if asked.cookies.get("sid") else None
    if asked.path == "/register":
        new = known.setdefault(asked.told["email"], False) is False
        return html("Register", "Look into your mail" if new else "You have an account")
    if asked.path.startswith("/confirm/"):
        email = asked.path.rpartition("/")[2] + "@mail.test"
        if email not in known:
            return html("Confirm", "This link is not valid", status=404)
        known[email] = True
        return away("/")
    if asked.path == "/login":
        if not known.get(asked.told["email"]):
            return html("Sign in", "Unknown, or not confirmed")
        memory["in"] = asked.told["email"]
        cookie = ("Set-Cookie", f"sid={drawn(memory, 'sid')}; Path=/; HttpOnly")
        return Response(303, "See Other", (("Location", "/account"), cookie), b"")
    if asked.path == "/logout":
        memory["in"] = None
        return Response(303, "See Other", (("Location", "/"), ("Set-Cookie", "sid=; Max-Age=0")), b"")
    if asked.path == "/account":
        return html("Account", who) if who else away("/")
    return html("Terms") if asked.path == "/terms" else html("Home", who or "Sign in")


@unseen(
    *(form(f"/files/{n}/delete") for n in "12"),
    *(form(f"/files/{n}/restore") for n in "12"),
    form("/trash/empty"),
    *get("/files", "/files", "/trash", "/files/1", "/files/2", "/files/3"),
    STYLE,
)
def recycle_bin(memory: Memory, asked: Asked) -> Response:
    """Files that are deleted softly: listed in a bin, restored from it, and gone when that is emptied."""
    where = memory.setdefault("where", dict.fromkeys("123", "files"))
    name = asked.path.split("/")[2] if asked.path.count("/") > 1 else ""
    if asked.path == "/trash/empty":
        memory["where"] = {n: place if place == "files" else "gone" for n, place in where.items()}
        return away("/trash")
    if asked.method == "POST":
        wanted, moved = ("files", "trash") if asked.path.endswith("/delete") else ("trash", "files")
        if where[name] != wanted:
            return html("Not found", status=404)
        where[name] = moved
        return away("/files" if moved == "trash" else f"/files/{name}")
    if not name:
        return html(asked.path[1:].title(), *(n for n, place in where.items() if place == asked.path[1:]))
    place = where[name]
    if place == "gone":
        return html("Not found", status=404)
    return html(f"File {name}", *(["in the bin"] if place == "trash" else []))


CODES = {"SPRING": 10, "TEA": 20}


@unseen(
    *(form("/cart/add", product=n) for n in "12"),
    *(form("/cart/coupon", code=code) for code in (*CODES, "WRONG")),
    form("/cart/coupon/remove"),
    *get("/cart", "/cart", "/p/1", "/p/2", "/delivery"),
    SCRIPT,
)
def cart_with_coupon(memory: Memory, asked: Asked) -> Response:
    """A cart whose sum a code lessens; a wrong code brings the cart again with a word about it."""
    cart, note = memory.setdefault("cart", []), []
    if asked.path == "/cart/add":
        cart.append(asked.told["product"])
        return away("/cart")
    if asked.path == "/cart/coupon/remove":
        memory.pop("code", None)
        return away("/cart")
    if asked.path == "/cart/coupon":
        if asked.told["code"] in CODES:
            memory["code"] = asked.told["code"]
            return away("/cart")
        note = [f"{asked.told['code']} is no code"]
    if asked.path.startswith("/cart"):
        sum_of = sum(PRODUCTS[n][1] for n in cart)
        less = sum_of * CODES.get(memory.get("code", ""), 0) // 100
        return html("Cart", *note, *(PRODUCTS[n][0] for n in cart), f"{sum_of - less} EUR")
    return html("Delivery", "3 days") if asked.path == "/delivery" else html(PRODUCTS[asked.path[-1]][0])
