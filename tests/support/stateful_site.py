"""A site whose answers depend on what it was told before, in every way that the web knows.

`Site.handle` is the whole server; `serve` puts it on a loopback port. All state hangs off the `sid` cookie (drawn
at random for a client without one), so that clients don't disturb one another, and nothing depends on the clock.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Headers, Request
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.stateful_media import ALLOWED, Media, as_asked, parts_text

if TYPE_CHECKING:
    from stillweb.proxy.net.ca import Authority

NAME = "state.test"
HOST = f"http://{NAME}"
CATEGORIES = ["", "tools", "toys", "books"]
YEARS = ["", "2019", "2020", "2021"]
ITEMS = [
    (f"{category}-{year}-{n}", category, year)
    for category in CATEGORIES[1:]
    for year in YEARS[1:]
    for n in range(3)
]
GREETINGS = {"en": "Good day", "fr": "Bonjour", "de": "Guten Tag"}
PASSWORDS = {"ann": "apple-pie-7", "bob": "birch-tree-9"}
PROGRESS = ["10%", "50%", "80%", "done"]


class Client:
    """The server's state of a client."""

    def __init__(self) -> None:
        self.category = self.year = self.sort = self.user = ""
        self.count = 0
        self.cart: list[str] = []
        self.notes: list[str] = []
        self.messages: list[str] = []
        self.tokens: set[str] = set()
        self.polls = -1
        self.ticks = 0
        self.things: dict[str, dict[str, Any]] = {"1": {"name": "one"}, "2": {"name": "two"}}


def page(title: str, body: str, hidden: str = "") -> str:
    return f"<!doctype html><title>{title}</title><h1>{title}</h1>{body}<form>{hidden}</form>"


def text_of_page(response: Response) -> str:
    """Return the text that a reader sees, without hidden fields and the boundary of parts."""
    if (parts := parts_text(response)) is not None:
        return parts
    return f"{response.status} " + re.sub(
        r'<input type="hidden"[^>]*>', "", response.body.decode("utf-8", "replace")
    )


def hidden_fields(response: Response) -> dict[str, str]:
    return dict(
        re.findall(
            r'<input type="hidden" name="([^"]+)" value="([^"]*)">', response.body.decode("utf-8", "replace")
        )
    )


class Site(Media):
    """The server. Thread-safe for different clients."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}

    def handle(self, request: Request) -> Response:
        cookies = dict(
            part.strip().partition("=")[::2]
            for name, value in request.headers
            if name.lower() == "cookie"
            for part in value.split(";")
        )
        sid = cookies.get("sid", "")
        fresh = sid not in self.clients
        if fresh:
            sid = secrets.token_hex(16)
            self.clients[sid] = Client()
        status, body, more = self._answer(request, cookies, self.clients[sid])
        headers = list(more)
        if not any(n.lower() == "content-type" for n, _ in headers):
            headers.append(("Content-Type", "text/html; charset=utf-8"))
        if any(n == "X-Forget" for n, _ in headers):
            headers = [h for h in headers if h[0] != "X-Forget"]
            del self.clients[sid]
            headers.append(("Set-Cookie", "sid=; Max-Age=0; Path=/"))
        elif fresh:
            headers.append(("Set-Cookie", f"sid={sid}; Path=/; HttpOnly"))
        data = body.encode()
        headers.append(("Content-Length", str(len(data))))
        whole = Response(status, "OK" if status == 200 else "Answer", tuple(headers), data)
        return as_asked(whole, request)

    def _answer(self, request: Request, cookies: dict[str, str], client: Client) -> tuple[int, str, Headers]:
        url = urlsplit(request.url)
        query = {k: v[-1] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        form = {k: v[-1] for k, v in parse_qs(request.body.decode("latin-1"), keep_blank_values=True).items()}
        method, path = request.method, url.path
        name = "_" + re.sub(r"\W+", "_", path.strip("/")).strip("_").lower()
        if path.startswith("/things"):
            return self._things(method, path, request.body, client)
        found = getattr(self, f"{'get' if method == 'HEAD' else method.lower()}{name}", None)
        if found is None:
            return 404, page("Not found", escape(path)), ()
        answer: tuple[int, str, Headers] = found(
            query=query, form=form, cookies=cookies, client=client, request=request
        )
        return answer

    # A filter in the server's session: posted, then shown by GET. Two forms that combine, and a GET that sorts.

    def get_(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        who = f"Signed in as {client.user}" if client.user else "Not signed in"
        return 200, page("Home", f"<p>{who}</p>"), ()

    def get_about(self, **_: Any) -> tuple[int, str, Headers]:
        return 200, page("About", "<p>The same for all.</p>"), ()

    def get_list(self, client: Client, query: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        rows = [
            name
            for name, category, year in ITEMS
            if client.category in ("", category) and client.year in ("", year)
        ]
        if client.sort == "name":
            rows.sort()
        elif client.sort == "year":
            rows.sort(key=lambda r: (r.split("-")[1], r))
        number = int(query.get("page", "1"))
        shown = "".join(f"<li>{r}</li>" for r in rows[(number - 1) * 5 : number * 5])
        return 200, page("List", f"<p>{len(rows)} rows, page {number}</p><ul>{shown}</ul>"), ()

    def post_filter(self, client: Client, form: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        client.category = form.get("category", "")
        return 303, "", (("Location", "/list"),)

    def post_period(self, client: Client, form: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        client.year = form.get("year", "")
        return 303, "", (("Location", "/list"),)

    def get_sort(self, client: Client, query: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        client.sort = query.get("by", "")
        return 302, "", (("Location", "/list"),)

    # Login, a wrong password, logout.

    def get_login(self, **_: Any) -> tuple[int, str, Headers]:
        return 200, page("Sign in", "<p>Name and password</p>"), ()

    def post_login(self, client: Client, form: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        if PASSWORDS.get(form.get("user", "")) != form.get("password"):
            return 200, page("Sign in", "<p>Wrong name or password</p>"), ()
        client.user = form["user"]
        return 303, "", (("Location", "/account"),)

    def get_account(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        if not client.user:
            return 303, "", (("Location", "/login"),)
        return 200, page("Account", f"<p>{client.user}, filter {client.category or 'none'}</p>"), ()

    def post_logout(self, **_: Any) -> tuple[int, str, Headers]:
        return 303, "", (("Location", "/"), ("X-Forget", "1"))

    # Choices in cookies: one that a script sets, one that the server sets.

    def get_shelf(self, cookies: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        shelf = cookies.get("shelf", "all")
        return 200, page("Shelf", f"<p>Shelf {escape(shelf)}</p>"), ()

    def get_language(self, query: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        to = query.get("to", "en")
        return 302, "", (("Location", "/hello"), ("Set-Cookie", f"lang={to}; Path=/"))

    def get_hello(self, cookies: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        return 200, page("Hello", f"<p>{GREETINGS.get(cookies.get('lang', 'en'), '?')}</p>"), ()

    def get_greeting(self, request: Request, **_: Any) -> tuple[int, str, Headers]:
        language = (request.header("accept-language") or "en")[:2]
        vary = (("Vary", "Accept-Language, Accept-Encoding"), ("Content-Language", language))
        return 200, page("Greeting", f"<p>{GREETINGS.get(language, GREETINGS['en'])}</p>"), vary

    # A view state, with postback paging and a validation value that is new at every visit.

    def _grid(self, number: int) -> tuple[int, str, Headers]:
        state = base64.b64encode(f"grid;page={number};sig=0123456789".encode()).decode()
        hidden = (
            f'<input type="hidden" name="__VIEWSTATE" value="{state}">'
            f'<input type="hidden" name="__EVENTVALIDATION" value="{secrets.token_urlsafe(18)}">'
        )
        return 200, page("Grid", f"<p>Grid page {number}: {number * 11}</p>", hidden), ()

    def get_grid_aspx(self, **_: Any) -> tuple[int, str, Headers]:
        return self._grid(1)

    def post_grid_aspx(self, form: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        state = base64.b64decode(form["__VIEWSTATE"]).decode()
        number = int(re.search(r"page=(\d+)", state)[1])  # type: ignore[index]
        return self._grid(max(1, number + (1 if form.get("__EVENTTARGET") == "next" else -1)))

    # Questions as JSON and GraphQL; mutations; resources.

    def post_api_search(self, request: Request, **_: Any) -> tuple[int, str, Headers]:
        asked = json.loads(request.body)
        rows = [r for r, _, _ in ITEMS if asked["q"] in r][:: asked.get("step", 1)]
        shared = (("Access-Control-Allow-Origin", ALLOWED),) if request.header("origin") == ALLOWED else ()
        return 200, json.dumps({"asked": asked["q"], "rows": rows, "total": len(rows)}), _JSON + shared

    def post_graphql(self, client: Client, request: Request, **_: Any) -> tuple[int, str, Headers]:
        asked = json.loads(request.body)
        if "mutation" in asked["query"]:
            client.notes.append(asked["variables"]["text"])
            return 200, json.dumps({"data": {"note": len(client.notes)}}), _JSON
        if asked["operationName"] == "Notes":
            return 200, json.dumps({"data": {"notes": client.notes}}), _JSON
        return 200, json.dumps({"data": {"item": f"item {asked['variables']['id']}"}}), _JSON

    def _things(self, method: str, path: str, body: bytes, client: Client) -> tuple[int, str, Headers]:
        things, name = client.things, path.removeprefix("/things").strip("/")
        if method == "GET":
            if not name:
                return 200, json.dumps(things, sort_keys=True), _JSON
            if name not in things:
                return 404, "{}", _JSON
            return 200, json.dumps(things[name]), _JSON
        if method == "PUT":
            things[name] = json.loads(body)
        elif method == "PATCH":
            if name not in things:
                return 404, "{}", _JSON
            old = things[name]
            things[name] = {**old, "name": old.get("name", "") + json.loads(body)["suffix"]}
            return 200, json.dumps(things[name]), _JSON
        elif method == "DELETE":
            things.pop(name, None)
            return 204, "", ()
        return 200, '{"ok": true}', _JSON

    # What changes nothing, and what changes at every call.

    def post_hit(self, **_: Any) -> tuple[int, str, Headers]:
        return 204, "", ()

    def post_touch_session(self, **_: Any) -> tuple[int, str, Headers]:
        return 200, '{"ok":1}', _JSON

    def get_count(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        return 200, page("Count", f"<p>{client.count}</p>"), ()

    def post_count(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        client.count += 1
        return 200, page("Counted", f"<p>now {client.count}</p>"), ()

    def post_cart(self, client: Client, form: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        client.cart.append(form.get("item", "?"))
        return 303, "", (("Location", "/cart"),)

    def get_cart(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        return 200, page("Cart", f"<p>{', '.join(client.cart) or 'empty'}</p>"), ()

    def post_cart_clear(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        client.cart.clear()
        return 303, "", (("Location", "/cart"),)

    def post_jobs(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        client.polls = 0
        return 303, "", (("Location", "/jobs"),)

    def get_jobs(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        if client.polls < 0:
            return 200, page("Job", "<p>none</p>"), ()
        told = PROGRESS[min(client.polls, len(PROGRESS) - 1)]
        client.polls += 1
        return 200, page("Job", f"<p>{told}</p>"), ()

    # A form with a token that is new at every visit.

    def get_contact(self, client: Client, **_: Any) -> tuple[int, str, Headers]:
        token = secrets.token_urlsafe(18)
        client.tokens.add(token)
        return (
            200,
            page("Contact", "<p>Write to us</p>", f'<input type="hidden" name="csrf" value="{token}">'),
            (),
        )

    def post_contact(self, client: Client, form: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        if form.get("csrf") not in client.tokens:
            return 403, page("Contact", "<p>Expired</p>"), ()
        client.messages.append(form.get("text", ""))
        return (
            200,
            page("Contact", f"<p>Thanks, message {len(client.messages)}: {escape(client.messages[-1])}</p>"),
            (),
        )

    # A chain of redirects.

    def get_old(self, **_: Any) -> tuple[int, str, Headers]:
        return 301, "", (("Location", "/older"),)

    def get_older(self, **_: Any) -> tuple[int, str, Headers]:
        return 302, "", (("Location", "/new?from=old"),)

    def get_new(self, query: dict[str, str], **_: Any) -> tuple[int, str, Headers]:
        return 200, page("New", f"<p>came from {escape(query.get('from', 'nowhere'))}</p>"), ()


_JSON: Headers = (("Content-Type", "application/json"),)


@contextmanager
def serve(site: Site | None = None) -> Iterator[str]:
    """The site on a loopback port; gives its URL."""
    with Origin(_answering(site or Site(), "http")) as plain:
        yield plain.url


@contextmanager
def serve_both(authority: Authority, site: Site | None = None) -> Iterator[dict[str, tuple[str, int]]]:
    """The site plain and over TLS with HTTP/2, certified by `authority`; gives where its names are to be found."""
    answering = site or Site()
    tls = authority.context_for(NAME, ("h2", "http/1.1"))
    with (
        Origin(_answering(answering, "http")) as plain,
        Origin(_answering(answering, "https"), tls) as secure,
    ):
        yield {f"{NAME}:80": ("127.0.0.1", plain.port), f"{NAME}:443": ("127.0.0.1", secure.port)}


def _answering(site: Site, scheme: str) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        url = f"{scheme}://{NAME}{asked.path}"
        made = site.handle(Request(asked.method, url, tuple(asked.headers), asked.body))
        return Answer(made.status, list(made.headers), made.body)

    return answer
