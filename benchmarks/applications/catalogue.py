"""The applications that are walked, each with its acts and walks: A is recorded, those that begin with B are truth."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.applications.application import Act, Application, python

KETTLES = Path(__file__).parent / "kettles"
PASSWORDS = {"ada": "tea-4711-pot", "bob": "tea-4712-pot"}


def go(path: str) -> Act:
    """Return the act of opening an address below the application's."""
    return lambda page, base: page.goto(base + path)


def acts(*steps: tuple[str, ...]) -> Act:
    """Return an act of steps: ("open", path), ("fill", css, text), ("click", css), ("press", css, key), ("choose", css, value) or ("see", css)."""

    def perform(page: Any, base: str) -> None:
        for what, target, *more in steps:
            if what == "open":
                page.goto(base + target)
            elif what == "choose":
                page.select_option(target, *more)
            elif what == "see":
                page.wait_for_selector(target)
            elif what == "rest":
                page.wait_for_timeout(int(target))
            elif what == "run":
                page.evaluate(target)
            else:
                getattr(page, what)(target, *more)

    return perform


# -- Django's admin


def _django_data(data: Path) -> None:
    environment = os.environ | {"DATABASE": str(data / "shop.sqlite")}
    subprocess.run(
        [python(data.parent), "manage.py", "fill"], cwd=KETTLES / "django", env=environment, check=True
    )


def _django_login(user: str, password: str) -> Act:
    return acts(
        ("open", ""),
        ("fill", "#id_username", user),
        ("fill", "#id_password", password),
        ("click", "input[type=submit]"),
    )


def _django_price(price: str) -> Act:
    return acts(
        ("open", "shop/kettle/7/change/"), ("fill", "#id_price", price), ("click", "input[name=_save]")
    )


def _django_page2(page: Any, base: str) -> None:
    page.goto(base + "shop/kettle/")
    page.click(".paginator a:has-text('2')")


DJANGO_ACTS: dict[str, Act] = {
    "login": _django_login("ada", PASSWORDS["ada"]),
    "wrong": _django_login("ada", "nope-99"),
    "index": go(""),
    "list": go("shop/kettle/"),
    "makers": go("shop/maker/"),
    "k7": go("shop/kettle/7/change/"),
    "y2023": go("shop/kettle/?made__year=2023"),
    "hist": go("shop/kettle/7/history/"),
    "search": acts(("open", "shop/kettle/"), ("fill", "#searchbar", "blue"), ("click", "#changelist-search input[type=submit]")),
    "filter": acts(
        ("open", "shop/kettle/"),
        ("run", "document.querySelectorAll('#changelist-filter details').forEach(one => one.open = true)"),
        ("click", "#changelist-filter a:has-text('camping')"),
    ),
    "sort": acts(("open", "shop/kettle/"), ("click", "th.column-price a")),
    "page2": _django_page2,
    "edit": _django_price("99.50"),
    "edit2": _django_price("42.00"),
    "add": acts(("open", "shop/maker/add/"), ("fill", "#id_name", "Valley"), ("click", "input[name=_save]")),
    "bad": acts(
        ("open", "shop/maker/add/"),
        ("run", "document.querySelectorAll('[required]').forEach(one => one.required = false)"),
        ("click", "input[name=_save]"),
    ),
    "action": acts(
        ("open", "shop/kettle/?kind__exact=c"),
        ("check", "#action-toggle"),
        ("choose", "select[name=action]", "mark_sold"),
        ("click", "button[name=index]"),
    ),
    "editable": acts(("open", "shop/kettle/?kind__exact=g"), ("check", "#id_form-0-sold"), ("click", "input[name=_save]")),
    "auto": acts(("open", "shop/kettle/add/"), ("click", ".select2-selection"), ("type", ".select2-search__field", "ill")),
    "delete": acts(("open", "shop/kettle/9/change/"), ("click", "a.deletelink"), ("click", "input[type=submit]")),
    "logout": acts(("open", ""), ("click", "#logout-form button")),
}  # fmt: skip
DJANGO = Application(
    "django-admin",
    7101,
    "/admin/",
    ("django>=5.2,<5.3",),
    _django_data,
    lambda data: (
        [python(data.parent), "manage.py", "runserver", "--noreload", "127.0.0.1:7101"],
        {"DATABASE": str(data / "shop.sqlite")},
        KETTLES / "django",
    ),
    DJANGO_ACTS,
    {
        "A": [
            "wrong",
            "login",
            "list",
            "search",
            "filter",
            "sort",
            "page2",
            "y2023",
            "k7",
            "edit",
            "k7",
            "list",
            "hist",
            "bad",
            "add",
            "makers",
            "action",
            "editable",
            "auto",
            "delete",
            "list",
            "index",
            "logout",
        ],
        "B": [
            "login",
            "page2",
            "sort",
            "list",
            "k7",
            "search",
            "filter",
            "y2023",
            "edit",
            "list",
            "k7",
            "hist",
            "index",
            "makers",
            "add",
            "makers",
            "list",
            "filter",
            "page2",
            "logout",
            "login",
            "list",
        ],
        "B2": [
            "login",
            "list",
            "action",
            "filter",
            "list",
            "edit",
            "hist",
            "k7",
            "delete",
            "list",
            "bad",
            "makers",
            "index",
            "page2",
            "sort",
            "logout",
            "wrong",
            "login",
            "makers",
        ],
        "B3": [
            "login",
            "add",
            "makers",
            "edit",
            "list",
            "editable",
            "list",
            "y2023",
            "search",
            "index",
            "delete",
            "index",
            "list",
            "hist",
            "filter",
            "logout",
            "login",
            "k7",
        ],
    },
    r"csrfmiddlewaretoken|csrftoken|sessionid|messages",
    (
        r"\b\w{3,4}\.? \d{1,2}, \d{4}, \d{1,2}(:\d\d)? [ap]\.m\.",
        r"(?i)today at \d+:\d+",
        r"\b\d\d:\d\d:\d\d\b",
        r'value="\d{4}-\d\d-\d\d"',
    ),
    warm=2,
)


# -- Flask-Admin


def _flask_data(data: Path) -> None:
    environment = os.environ | {"DATABASE": str(data / "shop.sqlite")}
    subprocess.run(
        [python(data.parent), "flask_admin_shop.py", "fill"], cwd=KETTLES, env=environment, check=True
    )


def _flask_login(password: str) -> Act:
    return acts(
        ("open", "login"), ("fill", "[name=u]", "ada"), ("fill", "[name=p]", password), ("click", "button")
    )


LIST = ("open", "admin/kettle/")
FLASK_ACTS: dict[str, Act] = {
    "login": _flask_login(PASSWORDS["ada"]),
    "wrong": _flask_login("nope"),
    "list": go("admin/kettle/"),
    "makers": go("admin/maker/"),
    "home": go("admin/"),
    "logout": go("logout"),
    "search": acts(LIST, ("fill", "input[name=search]", "blue"), ("press", "input[name=search]", "Enter")),
    "filter": acts(
        LIST,
        ("click", "a.dropdown-toggle:has-text('Add Filter')"),
        ("click", "a.filter:has-text('Kind')"),
        ("fill", ".filters input.filter-val", "gas"),
        ("click", ".filters button:has-text('Apply')"),
    ),
    "sort": acts(LIST, ("click", "th.col-price a")),
    "page2": acts(LIST, ("click", ".pagination a:has-text('2')")),
    "edit": acts(
        LIST,
        ("click", "tr:nth-child(3) a.icon[title*=Edit]"),
        ("see", ".modal.show input#name"),
        ("fill", ".modal.show input#name", "Kettle edited"),
        ("click", ".modal.show input[type=submit]"),
    ),
    "inline": acts(LIST, ("click", "tr:nth-child(2) td.col-price a"), ("fill", ".editable-input input", "777"), ("click", ".editable-submit")),
    "delete": acts(LIST, ("click", "tr:nth-child(5) button[title*=Delete]")),
    "add": acts(("open", "admin/maker/new/"), ("fill", "#name", "Valley"), ("click", "input[type=submit]")),
}  # fmt: skip
FLASK = Application(
    "flask-admin",
    7102,
    "/",
    ("flask-admin==2.2.*", "flask-sqlalchemy"),
    _flask_data,
    lambda data: (
        [python(data.parent), "flask_admin_shop.py", "7102"],
        {"DATABASE": str(data / "shop.sqlite")},
        KETTLES,
    ),
    FLASK_ACTS,
    {
        "A": [
            "list",
            "wrong",
            "login",
            "list",
            "search",
            "filter",
            "sort",
            "page2",
            "edit",
            "list",
            "inline",
            "list",
            "delete",
            "list",
            "makers",
            "add",
            "makers",
            "home",
            "logout",
            "list",
        ],
        "B": [
            "login",
            "page2",
            "sort",
            "filter",
            "search",
            "list",
            "makers",
            "edit",
            "list",
            "page2",
            "inline",
            "list",
            "home",
            "logout",
            "list",
            "login",
            "list",
        ],
        "B2": [
            "wrong",
            "login",
            "list",
            "delete",
            "list",
            "page2",
            "add",
            "makers",
            "list",
            "edit",
            "search",
            "list",
            "home",
            "logout",
            "makers",
            "login",
            "makers",
        ],
        "B3": [
            "login",
            "inline",
            "list",
            "sort",
            "delete",
            "list",
            "filter",
            "edit",
            "list",
            "makers",
            "home",
            "logout",
            "list",
            "login",
            "search",
        ],
    },
    r"csrf\w*|session",
    warm=2,
)


# -- SvelteKit


def _svelte_data(data: Path) -> None:
    built = data.parent / "app"
    if not built.exists():
        shutil.copytree(KETTLES / "sveltekit", built)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=built, check=True)
        subprocess.run(["npm", "run", "build"], cwd=built, check=True, capture_output=True)


def _svelte_login(password: str) -> Act:
    return acts(("open", "login"), ("rest", "300"), ("fill", "[name=user]", "ada"), ("fill", "[name=password]", password), ("click", "button:has-text('Go')"))  # fmt: skip


def _svelte(path: str, *steps: tuple[str, ...]) -> Act:
    return acts(("open", path), ("rest", "300"), *steps)


SVELTE_ACTS: dict[str, Act] = {
    "home": go(""),
    "list": go("list"),
    "g5": go("item/5"),
    "login": _svelte_login(PASSWORDS["ada"]),
    "wrong": _svelte_login("nope-1"),
    "nhome": acts(("click", "nav a:has-text('Home')")),
    "nlist": acts(("click", "nav a:has-text('List')")),
    "gas": _svelte("list", ("choose", "#kind", "gas")),
    "q1": _svelte("list", ("fill", "#q", "1"), ("press", "#q", "Tab")),
    "sort": _svelte("list", ("click", "#sort")),
    "next": _svelte("list", ("click", "#next")),
    "i3": _svelte("list", ("click", "a[href='/item/3']")),
    "add3": _svelte("item/3", ("click", "#add")),
    "add5": _svelte("item/5", ("click", "#add")),
    "ren4": _svelte("item/4", ("fill", "input[name=name]", "Renamed kettle"), ("click", "#ren")),
    "out": acts(("rest", "300"), ("click", "button:has-text('Sign out')")),
}
SVELTE = Application(
    "sveltekit",
    7108,
    "/",
    (),
    _svelte_data,
    lambda data: (
        ["npx", "vite", "preview", "--port", "7108", "--host", "127.0.0.1"],
        {},
        data.parent / "app",
    ),
    SVELTE_ACTS,
    {
        "A": [
            "home",
            "wrong",
            "add3",
            "login",
            "nhome",
            "nlist",
            "gas",
            "q1",
            "sort",
            "next",
            "i3",
            "add3",
            "g5",
            "add5",
            "list",
            "ren4",
            "list",
            "home",
            "out",
            "list",
        ],
        "B": [
            "home",
            "login",
            "sort",
            "nhome",
            "nlist",
            "i3",
            "gas",
            "next",
            "add3",
            "nlist",
            "q1",
            "g5",
            "add5",
            "ren4",
            "list",
            "home",
            "out",
            "list",
            "i3",
        ],
        "B2": [
            "login",
            "add5",
            "g5",
            "list",
            "next",
            "add3",
            "i3",
            "nhome",
            "wrong",
            "login",
            "list",
            "sort",
            "out",
            "home",
            "add3",
            "g5",
        ],
        "B3": [
            "list",
            "i3",
            "ren4",
            "list",
            "login",
            "home",
            "g5",
            "add3",
            "nlist",
            "q1",
            "gas",
            "ren4",
            "out",
            "list",
            "wrong",
            "home",
        ],
    },
    r"sid",
    warm=3,
)

# -- Roundup: a tracker whose forms carry nonces that are good for one sending


def _roundup_login(password: str) -> Act:
    return acts(
        ("open", ""),
        ("fill", "[name=__login_name]", "ada"),
        ("fill", "[name=__login_password]", password),
        ("click", ".userblock input[type=submit]"),
    )


def _roundup_change(issue: str, *steps: tuple[str, ...]) -> Act:
    return acts(("open", issue), *steps, ("click", "#submit_button"))


ROUNDUP_COLUMNS = "@columns=id,activity,title,status&@group=priority"
ROUNDUP_ACTS: dict[str, Act] = {
    "login": _roundup_login(PASSWORDS["ada"]),
    "wrong": _roundup_login("nope-12"),
    "logout": acts(("open", ""), ("click", "a:has-text('Logout')")),
    "index": go(""),
    "issue3": go("issue3"),
    "issue4": go("issue4"),
    "user3": go("user3"),
    "keyword1": go("keyword1"),
    "mine": acts(("open", ""), ("click", "a:has-text('Your Issues')")),
    "all": acts(("open", ""), ("click", "a:has-text('Show All')")),
    "bytitle": go(f"issue?{ROUNDUP_COLUMNS}&@sort=title"),
    "resolved": go(f"issue?{ROUNDUP_COLUMNS}&@sort=activity&@filter=status&status=8"),
    "search": acts(("open", ""), ("fill", "#search-text", "lid"), ("press", "#search-text", "Enter")),
    "resolve3": _roundup_change("issue3", ("choose", "[name=status]", "8")),
    "urgent4": _roundup_change("issue4", ("choose", "[name=priority]", "2")),
    "note4": _roundup_change("issue4", ("fill", "[name='@note']", "I have seen it too.")),
    "take3": _roundup_change("issue3", ("choose", "[name=assignedto]", "3")),
    "new": _roundup_change("issue?@template=item", ("fill", "#title", "Whistle is mute"), ("choose", "[name=priority]", "3")),
    "untitled": acts(
        ("open", "issue?@template=item"),
        ("run", "document.querySelectorAll('[required]').forEach(one => one.required = false)"),
        ("click", "#submit_button"),
    ),
}  # fmt: skip
ROUNDUP_TIMES = (
    r"\b20\d\d-\d\d-\d\d(\.|&nbsp;| )\d\d:\d\d(:\d\d)?",
    r"\b20\d\d-\d\d-\d\d\b",
    r"\b(\d+|an?) (second|minute|hour)s? ago\b|\b(in )?a moment\b( ago)?|just now",
    r'nonce="\w+"',
    r"\d\d:\d\d:\d\d",
)
ROUNDUP = Application(
    "roundup",
    7103,
    "/",
    ("roundup>=2.6,<2.7", "werkzeug"),
    lambda data: _program(data, "roundup_tracker.py", "fill", str(data / "tracker"), "7103"),
    lambda data: (
        [python(data.parent), "roundup_tracker.py", "serve", str(data / "tracker"), "7103"],
        {},
        KETTLES,
    ),
    ROUNDUP_ACTS,
    {
        "A": [
            "index",
            "wrong",
            "login",
            "mine",
            "all",
            "bytitle",
            "issue3",
            "resolve3",
            "issue3",
            "resolved",
            "issue4",
            "note4",
            "urgent4",
            "search",
            "new",
            "index",
            "untitled",
            "take3",
            "mine",
            "keyword1",
            "user3",
            "logout",
            "index",
        ],
        "B": [
            "login",
            "bytitle",
            "issue4",
            "issue3",
            "search",
            "all",
            "note4",
            "issue4",
            "resolve3",
            "mine",
            "resolved",
            "new",
            "all",
            "untitled",
            "user3",
            "keyword1",
            "logout",
            "index",
            "login",
            "index",
        ],
        "B2": [
            "index",
            "login",
            "index",
            "resolve3",
            "take3",
            "issue3",
            "mine",
            "note4",
            "bytitle",
            "search",
            "wrong",
            "index",
            "all",
            "urgent4",
            "issue4",
            "resolved",
            "logout",
            "login",
            "new",
        ],
        "B3": [
            "login",
            "new",
            "index",
            "urgent4",
            "issue4",
            "search",
            "take3",
            "mine",
            "issue3",
            "user3",
            "logout",
            "index",
            "issue3",
            "login",
            "resolve3",
            "resolved",
            "all",
        ],
    },
    r"@csrf|@lastactivity|roundup_session_\w+",
    ROUNDUP_TIMES,
    warm=2,
)


def _program(data: Path, *words: str) -> None:
    subprocess.run([python(data.parent), *words], cwd=KETTLES, check=True, capture_output=True)


# -- Datasette, with stored queries that write


def _datasette_data(data: Path) -> None:
    with sqlite3.connect(data / "shop.db") as database:
        database.execute("CREATE TABLE kettles (id INTEGER PRIMARY KEY, name TEXT, kind TEXT, price INTEGER)")
        rows = [(n, f"Kettle {n:02d}", ("electric", "gas", "camping")[n % 3], 10 + n) for n in range(1, 41)]
        database.executemany("INSERT INTO kettles VALUES (?, ?, ?, ?)", rows)
    database.close()
    queries = {
        "add": "INSERT INTO kettles (name, kind, price) VALUES (:name, :kind, :price)",
        "reprice": "UPDATE kettles SET price = :price WHERE id = :id",
        "remove": "DELETE FROM kettles WHERE id = :id",
    }
    settings = {
        "databases": {
            "shop": {
                "tables": {"kettles": {"facets": ["kind"], "size": 15}},
                "queries": {
                    name: {"sql": sql, "write": True, "on_success_message": f"done: {name}"}
                    for name, sql in queries.items()
                },
            }
        }
    }
    (data / "settings.json").write_text(json.dumps(settings))


def _datasette_write(query: str, **values: str) -> Act:
    fields = [("fill", f"[name={name}]", value) for name, value in values.items()]
    return acts(("open", f"shop/{query}"), *fields, ("click", "form.sql input[type=submit], form input[value='Run SQL']"))  # fmt: skip


DATASETTE_ACTS: dict[str, Act] = {
    "home": go(""),
    "shop": go("shop"),
    "table": go("shop/kettles"),
    "gas": acts(("open", "shop/kettles"), ("click", ".facet-info a:has-text('gas')")),
    "camping": go("shop/kettles?kind=camping"),
    "byprice": go("shop/kettles?_sort_desc=price"),
    "next": acts(("open", "shop/kettles"), ("click", "a:has-text('Next page')")),
    "row3": go("shop/kettles/3"),
    "row5": go("shop/kettles/5"),
    "count": go("shop?sql=select+count(*)+from+kettles"),
    "api": go("shop/kettles.json?kind=gas&_shape=array"),
    "add": _datasette_write("add", name="Valley", kind="gas", price="99"),
    "reprice3": _datasette_write("reprice", id="3", price="1"),
    "reprice5": _datasette_write("reprice", id="5", price="2"),
    "remove5": _datasette_write("remove", id="5"),
    "remove8": _datasette_write("remove", id="8"),
}
DATASETTE = Application(
    "datasette",
    7104,
    "/",
    ("datasette>=0.65,<0.66",),
    _datasette_data,
    lambda data: (
        [str(Path(python(data.parent)).with_name("datasette")), "serve", str(data / "shop.db"), "-m", str(data / "settings.json"), "-p", "7104", "--secret", "kettles"],
        {},
        data,
    ),
    DATASETTE_ACTS,
    {
        "A": ["home", "shop", "table", "gas", "byprice", "next", "row3", "count", "reprice3", "row3", "api", "add", "table", "count", "camping", "row5", "remove5", "row5", "table", "api", "reprice5", "remove8", "count", "home"],
        "B": ["table", "add", "count", "gas", "row3", "remove5", "table", "row5", "api", "reprice3", "row3", "byprice", "remove8", "count", "camping", "next", "home", "shop"],
        "B2": ["home", "row5", "reprice5", "row5", "table", "remove8", "count", "add", "api", "gas", "table", "row3", "reprice3", "row3", "remove5", "next", "byprice"],
        "B3": ["count", "api", "add", "api", "add", "count", "table", "remove5", "row5", "count", "camping", "byprice", "row3", "shop", "gas"],
    },
    r"csrftoken|ds_csrftoken|ds_messages",
    (r"Queries took [\d.]+ms", r"[\d.]+ms"),
    warm=3,
)  # fmt: skip


# -- Fossil: a wiki, tickets and a timeline in one program


def _fossil_data(data: Path) -> None:
    made = data.parent / "kettles.fossil"  # made once: the names of its cookies are drawn with it
    if not made.exists():
        _fossil_made(data, str(made))
    shutil.copy(made, data)


def _fossil_made(data: Path, repository: str) -> None:
    environment = os.environ | {"HOME": str(data), "USER": "ada"}
    (data / "Tea.txt").write_text("Tea is made in a *kettle*. See [Coffee].\n")
    (data / "Coffee.txt").write_text("Coffee is made in a pot.\n")
    for words in (
        ["init", "--admin-user", "ada", "--date-override", "2024-12-02T09:00:00", repository],
        ["user", "password", "ada", PASSWORDS["ada"], "-R", repository],
        ["wiki", "create", "Tea", str(data / "Tea.txt"), "-R", repository],
        ["wiki", "create", "Coffee", str(data / "Coffee.txt"), "-R", repository],
        ["ticket", "add", "title", "Lid rattles", "status", "Open", "type", "Code_Defect", "-R", repository],
        [
            "ticket",
            "add",
            "title",
            "Spout leaks",
            "status",
            "Open",
            "type",
            "Feature_Request",
            "-R",
            repository,
        ],
    ):
        subprocess.run(["fossil", *words], cwd=data, env=environment, check=True, capture_output=True)


def _fossil_login(password: str) -> Act:
    return acts(
        ("open", "login"), ("fill", "#u", "ada"), ("fill", "#p", password), ("click", "input[name=in]")
    )


def _fossil_ticket(title: str) -> Act:
    return acts(
        ("open", "tktnew"),
        ("fill", "[name=title]", title),
        ("click", "input[name=preview]"),
        ("click", "input[name=submit]"),
    )


FOSSIL_ACTS: dict[str, Act] = {
    "login": _fossil_login(PASSWORDS["ada"]),
    "wrong": _fossil_login("nope-12"),
    "logout": acts(("open", "login"), ("click", "input[name=out]")),
    "home": go("home"),
    "wiki": go("wiki"),
    "pages": go("wcontent"),
    "tea": go("wiki?name=Tea"),
    "coffee": go("wiki?name=Coffee"),
    "timeline": go("timeline"),
    "wikitime": go("timeline?y=w"),
    "tickets": go("rptview?rn=1"),
    "users": go("setup_ulist"),
    "append": acts(("open", "wikiappend?name=Tea"), ("fill", "[name=r]", "With milk."), ("click", "input[name=submit], input[name=append]")),
    "newpage": acts(("open", "wikinew"), ("fill", "[name=name]", "Cocoa"), ("click", "input[value=Create]")),
    "ticket": _fossil_ticket("Whistle is mute"),
    "ticket2": _fossil_ticket("Handle is hot"),
    "search": go("wikisrch?s=pot"),
}  # fmt: skip
FOSSIL = Application(
    "fossil",
    7105,
    "/",
    (),
    _fossil_data,
    lambda data: (
        ["fossil", "server", "--port", "7105", "--localhost", str(data / "kettles.fossil")],
        {"HOME": str(data), "USER": "ada"},
        data,
    ),
    FOSSIL_ACTS,
    {
        "A": ["home", "wrong", "login", "wiki", "pages", "tea", "coffee", "timeline", "ticket", "tickets", "append", "tea", "wikitime", "newpage", "pages", "ticket2", "tickets", "users", "search", "timeline", "logout", "tea", "timeline"],
        "B": ["login", "tea", "timeline", "append", "tea", "pages", "tickets", "ticket", "tickets", "coffee", "wikitime", "users", "home", "logout", "tea", "login", "timeline"],
        "B2": ["home", "tea", "coffee", "login", "append", "wikitime", "tea", "ticket2", "tickets", "ticket", "tickets", "pages", "search", "logout", "timeline", "wrong"],
        "B3": ["timeline", "login", "newpage", "pages", "ticket", "tickets", "tea", "append", "tea", "logout", "tea", "pages", "home", "login", "users"],
    },
    r"csrf|cs|fossil-\w+",
    (r"captcha-audio/\d+", r"\b[0-9a-f]{10,64}\b", r"\b\d\d:\d\d(:\d\d)?\b", r"20\d\d-\d\d-\d\d", r"generated in about\s+[\d.]+s?", r"\b[\d.]+ (seconds|minutes|hours|days|years)( ago)?", r'(?s)<pre class="captcha">.*?</pre>', r"(?m)^[ _|/\\()<>,]{8,}$", r"Suggestion: \w+", r"sortkey='[\d.]+'", r"\d\d%3A\d\d%3A\d\d", r"[?&]?id=[0-9a-f]{8}"),
    warm=1,
)  # fmt: skip


# -- marimo and NiceGUI, whose pages talk over web sockets


def _nothing(data: Path) -> None:
    """Make no data: the application begins empty."""


MARIMO = Application(
    "marimo",
    7111,
    "/",
    ("marimo==0.25.*",),
    _nothing,
    lambda data: (
        [python(data.parent), "-m", "marimo", "run", "--headless", "--no-token", "-p", "7111", str(KETTLES / "marimo_notebook.py")],
        {},
        data,
    ),
    {
        "open": acts(("open", ""), ("see", "text=kettles of kind")),
        "more": acts(("click", "button:has-text('One more')"), ("rest", "500")),
        "camping": acts(("choose", "select", "camping"), ("rest", "500")),
        "electric": acts(("choose", "select", "electric"), ("rest", "500")),
        "gas": acts(("choose", "select", "gas"), ("rest", "500")),
    },
    {
        "A": ["open", "more", "camping", "more", "electric", "gas", "open", "electric"],
        "B": ["open", "camping", "more", "more", "gas", "open", "electric", "more"],
    },
)  # fmt: skip
NICEGUI = Application(
    "nicegui",
    7112,
    "/",
    ("nicegui==3.*",),
    _nothing,
    lambda data: ([python(data.parent), "nicegui_shop.py", "7112"], {"HOME": str(data)}, KETTLES),
    {
        "open": acts(("open", ""), ("see", "text=in the basket")),
        "about": acts(("open", "about"), ("see", "text=since 1904")),
        "gas": acts(("click", "button:has-text('Gas')"), ("rest", "500")),
        "camping": acts(("click", "button:has-text('Camping')"), ("rest", "500")),
        "electric": acts(("click", "button:has-text('Electric')"), ("rest", "500")),
        "note": acts(("fill", "input", "for Ada"), ("rest", "800")),
    },
    {
        "A": ["open", "gas", "note", "camping", "about", "open", "electric", "gas"],
        "B": ["about", "open", "camping", "gas", "note", "open", "electric"],
    },
)


# -- the back offices SQLAdmin and Starlette-Admin


def _office(
    name: str, port: int, package: str, one: tuple[str, str], editing: Act, searching: Act
) -> Application:
    """Return a back office of the shop in kettles/sqlalchemy_shop.py. `one` holds a kettle's page and its form."""
    return Application(
        name,
        port,
        "/admin/",
        (package, "uvicorn", "sqlalchemy", "greenlet", "itsdangerous", "python-multipart"),
        _nothing,
        lambda data: (
            [python(data.parent), "sqlalchemy_shop.py", name.replace("-", "_"), str(port)],
            {"DATABASE": str(data / "shop.sqlite")},
            KETTLES,
        ),
        {
            "home": go(""),
            "list": go("kettle/list"),
            "makers": go("maker/list"),
            "page2": go("kettle/list?page=2"),
            "k7": go(one[0]),
            "form": go(one[1]),
            "edit": editing,
            "search": searching,
        },
        {
            "A": ["home", "list", "search", "k7", "edit", "k7", "list", "makers", "page2", "form"],
            "B": ["makers", "list", "k7", "page2", "edit", "list", "search", "k7", "home"],
        },
        r"csrf\w*|session",
    )


_OFFICE1 = ("kettle/details/7", "kettle/edit/7")
_OFFICE2 = ("kettle/detail?pk=7", "kettle/edit?pk=7")
SQLADMIN = _office(
    "sqladmin",
    7113,
    "sqladmin==0.*",
    _OFFICE1,
    acts(
        ("open", _OFFICE1[1]),
        ("fill", "[name=price]", "99"),
        ("click", "input[type=submit][name=save]:not([value*=another]):not([value*=Continue])"),
    ),
    acts(("open", "kettle/list"), ("fill", "#search-input", "Kettle 1"), ("click", "#search-button")),
)
STARLETTE_ADMIN = _office(
    "starlette-admin",
    7114,
    "starlette-admin==1.*",
    _OFFICE2,
    acts(
        ("open", _OFFICE2[1]),
        ("fill", "[name=price]", "99"),
        ("click", "button[type=submit]:has-text('Save') >> nth=0"),
    ),
    go("kettle/list?search=Kettle%201"),
)


# -- DokuWiki and Mercurial, as Debian packs them. DEBIAN_ROOT may name a folder into which their packages were unpacked.

DEBIAN = Path(os.environ.get("DEBIAN_ROOT", "/"))


def _dokuwiki_data(data: Path) -> None:
    """Copy the wiki, whose links lead into other folders of the system, and give it users and pages."""
    wiki = data / "wiki"
    shutil.copytree(
        DEBIAN / "usr/share/dokuwiki", wiki, ignore=shutil.ignore_patterns("plugins", "tpl", ".htaccess")
    )
    for path in (*(wiki / "vendor/composer").glob("*.php"), *(wiki / "inc").glob("*.php")):
        text = path.read_text()
        path.write_text(text.replace("'/usr/share/php", f"'{DEBIAN / 'usr/share/php'}"))
    (data / "sessions").mkdir()
    for name in ("plugins", "tpl"):
        shutil.copytree(DEBIAN / "var/lib/dokuwiki/lib" / name, wiki / "lib" / name)
    shutil.copytree(
        DEBIAN / "etc/dokuwiki",
        wiki / "conf",
        ignore=shutil.ignore_patterns("htaccess", "apache.conf", "*.auth.php"),
    )
    for name in (
        "attic",
        "cache",
        "index",
        "locks",
        "log",
        "media",
        "media_attic",
        "media_meta",
        "meta",
        "pages",
        "tmp",
    ):
        (data / "data" / name).mkdir(parents=True)
    for name in ("tea", "coffee"):
        (data / "data" / "pages" / f"{name}.txt").write_text(
            f"====== {name.title()} ======\n\nHow to make {name}.\n"
        )
    (data / "data" / "pages" / "start.txt").write_text("====== Kettles ======\n\n[[tea]] and [[coffee]]\n")
    hashed = hashlib.md5(PASSWORDS["ada"].encode()).hexdigest()
    (wiki / "conf" / "users.auth.php").write_text(f"ada:{hashed}:Ada:ada@kettles.test:admin,user\n")
    (wiki / "conf" / "acl.auth.php").write_text("* @ALL 1\n* @user 8\n")
    settings = {
        "savedir": str(data / "data"),
        "title": "Kettles",
        "useacl": 1,
        "superuser": "@admin",
        "updatecheck": 0,
    }
    lines = [f"$conf['{name}'] = {json.dumps(value)};" for name, value in settings.items()]
    (wiki / "conf" / "local.php").write_text("<?php\n" + "\n".join(lines) + "\n")
    (wiki / "inc" / "preload.php").write_text(f"<?php define('DOKU_CONF', '{wiki}/conf/');\n")


def _dokuwiki_login(password: str) -> Act:
    return acts(("open", "doku.php?id=start&do=login"), ("fill", "main [name=u], #dokuwiki__content [name=u]", "ada"), ("fill", "#dokuwiki__content [name=p]", password), ("click", "#dokuwiki__content form button[type=submit]"))  # fmt: skip


def _php() -> list[str]:
    """Return PHP's command with the extensions of the packages that were unpacked."""
    if (installed := shutil.which("php")) and "DEBIAN_ROOT" not in os.environ:
        return [installed]
    folder = next((DEBIAN / "usr/lib/php").glob("2*"))
    found = [word for name in ("xml", "dom", "simplexml", "mbstring", "ctype", "tokenizer") for word in ("-d", f"extension={folder / name}.so")]  # fmt: skip
    includes = DEBIAN / "usr/share/php"
    return [str(next((DEBIAN / "usr/bin").glob("php8*"))), *found, "-d", f"include_path=.:{includes}"]


DOKUWIKI = Application(
    "dokuwiki",
    7115,
    "/",
    (),
    _dokuwiki_data,
    lambda data: (
        [*_php(), "-d", f"session.save_path={data / 'sessions'}", "-S", "127.0.0.1:7115", "-t", str(data / "wiki")],
        {},
        data / "wiki",
    ),
    {
        "start": go("doku.php?id=start"),
        "tea": go("doku.php?id=tea"),
        "coffee": go("doku.php?id=coffee"),
        "wrong": _dokuwiki_login("nope-12"),
        "login": _dokuwiki_login(PASSWORDS["ada"]),
        "logout": acts(("open", "doku.php?id=start"), ("click", "a.logout, li.logout a")),
        "edit": acts(
            ("open", "doku.php?id=tea&do=edit"),
            ("fill", "#wiki__text", "====== Tea ======\n\nWith milk."),
            ("click", "#edbtn__save"),
        ),
        "changes": go("doku.php?id=start&do=recent"),
        "index": go("doku.php?id=start&do=index"),
        "old": go("doku.php?id=tea&do=revisions"),
    },
    {
        "A": ["start", "tea", "wrong", "login", "tea", "edit", "tea", "changes", "old", "index", "coffee", "logout", "tea", "start"],
        "B": ["tea", "login", "index", "tea", "coffee", "edit", "old", "tea", "changes", "logout", "start", "tea"],
    },
    r"sectok|DokuWiki|DW\w+|changecheck|date",
    (r"\d{4}/\d\d/\d\d \d\d:\d\d", r"rev=\d+"),
)  # fmt: skip


def _mercurial() -> tuple[list[str], dict[str, str]]:
    """Return Mercurial's command and environment."""
    if "DEBIAN_ROOT" not in os.environ:
        return ["hg"], {"HGPLAIN": "1"}
    libraries = str(DEBIAN / "usr/lib/python3/dist-packages")
    return ["/usr/bin/python3", str(DEBIAN / "usr/bin/hg")], {"PYTHONPATH": libraries, "HGPLAIN": "1"}


def _mercurial_data(data: Path) -> None:
    command, environment = _mercurial()
    (data / "hgrc").write_text(
        f"[ui]\nusername = ada\n[web]\ntemplates = {DEBIAN}/usr/share/mercurial/templates\n[templates]\n"
    )

    def hg(*words: str) -> None:
        subprocess.run(
            [*command, *words],
            cwd=data / "kettles",
            env=os.environ | environment | {"HGRCPATH": str(data / "hgrc")},
            check=True,
        )

    (data / "kettles").mkdir()
    hg("init")
    for number in range(1, 9):
        (data / "kettles" / f"kettle{number % 3}.txt").write_text(f"Kettle of day {number}\n")
        hg("commit", "-A", "-m", f"Kettle of day {number}", "-d", f"{1_700_000_000 + 86_400 * number} 0")
    hg("tag", "v1", "-r", "3", "-d", "1700900000 0")


HGWEB = Application(
    "hgweb",
    7116,
    "/",
    (),
    _mercurial_data,
    lambda data: (
        [*_mercurial()[0], "serve", "-a", "127.0.0.1", "-p", "7116"],
        _mercurial()[1] | {"HGRCPATH": str(data / "hgrc")},
        data / "kettles",
    ),
    {
        "log": go(""),
        "graph": go("graph"),
        "tags": go("tags"),
        "files": go("file/tip"),
        "file": go("file/tip/kettle1.txt"),
        "annotate": go("annotate/tip/kettle1.txt"),
        "change": go("rev/3"),
        "search": go("log?rev=day+5"),
        "summary": go("summary"),
    },
    {
        "A": ["log", "graph", "tags", "files", "file", "annotate", "change", "search", "log"],
        "B": ["change", "log", "annotate", "search", "files", "tags", "graph", "file", "summary"],
    },
    moving=(r"(?m)\b(\d+|an?|less than|just) \w+ (ago|now)\b",),
)  # fmt: skip

# -- sqlite-web, a back office for any database, and Radicale, a calendar server whose page speaks WebDAV


def _sqlite_web_data(data: Path) -> None:
    with sqlite3.connect(data / "shop.sqlite") as base:
        base.execute("CREATE TABLE kettle (id INTEGER PRIMARY KEY, name VARCHAR(40), price INTEGER)")
        base.executemany(
            "INSERT INTO kettle (name, price) VALUES (?, ?)",
            [(f"Kettle {n}", 20 + 7 * n % 90) for n in range(70)],
        )
    base.close()


SQLITE_WEB = Application(
    "sqlite-web",
    7117,
    "/",
    ("sqlite-web==0.*",),
    _sqlite_web_data,
    lambda data: (
        [python(data.parent), "-m", "sqlite_web.sqlite_web", "-x", "-H", "127.0.0.1", "-p", "7117", str(data / "shop.sqlite")],
        {},
        data,
    ),
    {
        "home": go(""),
        "table": go("kettle/"),
        "rows": go("kettle/content/"),
        "page2": acts(("open", "kettle/content/"), ("click", "a.page-link:has-text('›')")),
        "sort": acts(("open", "kettle/content/"), ("click", "th a:has-text('price')")),
        "query": go("kettle/query/?sql=select+name+from+kettle+where+price+%3E+90"),
        "insert": acts(("open", "kettle/insert/"), ("fill", "#id_name", "Valley"), ("fill", "#id_price", "5"), ("click", "form button:has-text('Insert')")),
        "delete": acts(("open", "kettle/content/"), ("click", "tbody tr:nth-child(3) a[href*='/delete/']"), ("click", "button:has-text('Delete')")),
        "update": acts(("open", "kettle/content/"), ("click", "tbody tr:nth-child(5) a[href*='/update/']"), ("check", "[data-target-element=id_price]"), ("fill", "#id_price", "77"), ("click", "form button:has-text('Update')")),
    },
    {
        "A": ["home", "table", "rows", "page2", "sort", "query", "insert", "rows", "update", "rows", "delete", "rows"],
        "B": ["rows", "query", "delete", "rows", "home", "insert", "sort", "table", "page2", "update", "rows"],
    },
    moving=(r"(?i)\d+(\.\d+)? ?ms", r"\d{4}-\d\d-\d\d \d\d:\d\d"),
)  # fmt: skip


def _radicale_data(data: Path) -> None:
    (data / "users").write_text(f"ada:{PASSWORDS['ada']}\n")
    for name in ("kettles", "cups"):
        folder = data / "collections" / "collection-root" / "ada" / name
        folder.mkdir(parents=True)
        (folder / ".Radicale.props").write_text(
            json.dumps({"tag": "VCALENDAR", "D:displayname": name.title()})
        )


def _radicale_login(password: str) -> Act:
    return acts(("open", ".web/"), ("fill", "#loginscene [data-name=user]", "ada"), ("fill", "#loginscene [data-name=password]", password), ("press", "#loginscene [data-name=password]", "Enter"), ("rest", "700"))  # fmt: skip


RADICALE = Application(
    "radicale",
    7118,
    "/",
    ("radicale==3.*",),
    _radicale_data,
    lambda data: (
        [python(data.parent), "-m", "radicale", "--server-hosts", "127.0.0.1:7118", "--storage-filesystem-folder", str(data / "collections"),
         "--auth-type", "htpasswd", "--auth-htpasswd-filename", str(data / "users"), "--auth-htpasswd-encryption", "plain", "--auth-delay", "0"],
        {},
        data,
    ),
    {
        "login": _radicale_login(PASSWORDS["ada"]),
        "wrong": _radicale_login("nope-12"),
        "refresh": acts(("click", "#logoutview [data-name=refresh]"), ("rest", "500")),
        "logout": acts(("click", "#logoutview [data-name=logout]")),
        "new": acts(("click", "#collectionsscene a[data-name=new] >> visible=true"), ("fill", "#createcollectionscene [data-name=displayname]", "Tea"), ("fill", "#createcollectionscene [data-name=color]", "#00aa00"), ("click", "#createcollectionscene [data-name=submit]"), ("rest", "500")),
        "rename": acts(("run", "[...document.querySelectorAll('article:not(.hidden)')].find((e) => e.innerText.includes('Cups')).querySelector('a[data-name=edit]').click()"), ("fill", "#editcollectionscene [data-name=displayname]", "Mugs"), ("fill", "#editcollectionscene [data-name=color]", "#aa0000"), ("click", "#editcollectionscene [data-name=submit]"), ("rest", "500")),
    },
    {
        "A": ["wrong", "login", "refresh", "new", "refresh", "rename", "refresh", "logout", "login"],
        "B": ["login", "refresh", "rename", "refresh", "new", "logout", "wrong", "login"],
    },
    moving=(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",),
)  # fmt: skip

# -- Panel, whose pages talk over a web socket; Dash; IHateMoney, a back office; Adminer and gitweb of Debian; TiddlyWiki

PANEL = Application(
    "panel",
    7119,
    "/",
    ("panel==1.8.*",),
    _nothing,
    lambda data: ([python(data.parent), "panel_shop.py", "7119"], {}, KETTLES),
    {
        "open": acts(("open", ""), ("see", "text=kettles of kind")),
        "camping": acts(("choose", "select", "camping"), ("rest", "700")),
        "electric": acts(("choose", "select", "electric"), ("rest", "700")),
        "two": acts(("fill", "input.bk-input[type=text] >> nth=0", "2"), ("press", "input.bk-input[type=text] >> nth=0", "Tab"), ("rest", "700")),
        "note": acts(("fill", "input.bk-input[type=text] >> nth=1", "for Ada"), ("press", "input.bk-input[type=text] >> nth=1", "Tab"), ("rest", "700")),
        "take": acts(("click", "button:has-text('Take')"), ("rest", "700")),
    },
    {
        "A": ["open", "camping", "two", "take", "note", "take", "electric", "open", "two", "electric"],
        "B": ["open", "electric", "two", "note", "take", "open", "camping", "take", "take"],
    },
)  # fmt: skip
DASH = Application(
    "dash",
    7120,
    "/",
    ("dash==4.*",),
    _nothing,
    lambda data: ([python(data.parent), "dash_shop.py", "7120"], {}, KETTLES),
    {
        "open": acts(("open", ""), ("see", "text=in the basket")),
        "camping": acts(("click", "label:has-text('camping')"), ("rest", "500")),
        "electric": acts(("click", "label:has-text('electric')"), ("rest", "500")),
        "most": acts(("fill", "#most", "60"), ("press", "#most", "Tab"), ("rest", "500")),
        "sort": acts(("click", "th[data-dash-column=price] .column-header--sort"), ("rest", "500")),
        "take": acts(("click", "#take"), ("rest", "500")),
    },
    {
        "A": ["open", "camping", "most", "sort", "take", "electric", "take", "open", "sort", "electric"],
        "B": ["open", "electric", "sort", "take", "most", "open", "take", "camping", "take"],
    },
)


def _money_data(data: Path) -> None:
    (data / "settings.cfg").write_text(
        f"SQLALCHEMY_DATABASE_URI = 'sqlite:///{data}/money.db'\nSECRET_KEY = 'tea'\nSESSION_COOKIE_SECURE = False\n"
    )


def _money(*steps: tuple[str, ...]) -> Act:
    return acts(*steps, ("rest", "300"))


MONEY_BILL = (("open", "demo/add"), ("fill", "#what", "Gas kettle"), ("fill", "#amount", "30"))
MONEY = Application(
    "ihatemoney",
    7121,
    "/",
    ("ihatemoney==7.*",),
    _money_data,
    lambda data: (
        [python(data.parent), "-m", "ihatemoney.manage", "run", "-p", "7121"],
        {"IHATEMONEY_SETTINGS_FILE_PATH": str(data / "settings.cfg"), "FLASK_APP": "ihatemoney.run:create_app"},
        data,
    ),
    {
        "demo": go("demo"),
        "bills": go("demo/"),
        "balances": go("demo/settle_bills"),
        "statistics": go("demo/statistics"),
        "wrong": acts(("open", "authenticate?project_id=demo"), ("fill", "#password", "nope-12"), ("click", "form button[type=submit]")),
        "bill": _money(*MONEY_BILL, ("press", "#amount", "Enter")),
        "dear": _money(("open", "demo/"), ("click", "#bill_table tbody tr:last-child a.edit"), ("fill", "#amount", "99"), ("press", "#amount", "Enter")),
        "member": _money(("open", "demo/"), ("fill", "#add-member-form #name", "Zoe"), ("press", "#add-member-form #name", "Enter")),
        "french": go("lang/fr"),
        "english": go("lang/en"),
        "logout": go("exit"),
    },
    {
        "A": ["demo", "bills", "bill", "bills", "member", "balances", "dear", "statistics", "french", "bills", "english", "bills", "balances"],
        "B": ["demo", "balances", "member", "bills", "bill", "statistics", "french", "balances", "english", "bills", "dear", "bills"],
    },
    r"csrf\w*|session",
    warm=3,
)  # fmt: skip


def _adminer_data(data: Path) -> None:
    _sqlite_web_data(data)
    (data / "site").mkdir()
    (data / "sessions").mkdir()
    hashed = subprocess.run(
        [*_php(), "-r", f"echo password_hash('{PASSWORDS['ada']}', PASSWORD_DEFAULT);"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    adminer = DEBIAN / "usr/share/adminer"
    (data / "site" / "index.php").write_text(
        f"<?php function adminer_object() {{ include '{adminer}/plugins/plugin.php'; include '{adminer}/plugins/login-password-less.php';"
        f" return new AdminerPlugin([new AdminerLoginPasswordLess('{hashed}')]); }} include '{adminer}/adminer.php';"
    )


def _adminer(path: str) -> str:
    return f"?sqlite=&username=ada&db=../shop.sqlite{path}"


def _adminer_login(password: str) -> Act:
    return acts(("open", ""), ("choose", "[name='auth[driver]']", "sqlite"), ("fill", "#username", "ada"), ("fill", "[name='auth[password]']", password), ("fill", "[name='auth[db]']", "../shop.sqlite"), ("click", "input[type=submit]"))  # fmt: skip


ADMINER = Application(
    "adminer",
    7122,
    "/",
    (),
    _adminer_data,
    lambda data: (
        [*_php(), "-d", f"session.save_path={data / 'sessions'}", "-S", "127.0.0.1:7122", "-t", str(data / "site")],
        {},
        data / "site",
    ),
    {
        "login": _adminer_login(PASSWORDS["ada"]),
        "wrong": _adminer_login("nope-12"),
        "tables": go(_adminer("")),
        "table": go(_adminer("&table=kettle")),
        "rows": go(_adminer("&select=kettle")),
        "sort": acts(("open", _adminer("&select=kettle")), ("click", "th a:has-text('price')")),
        "page2": go(_adminer("&select=kettle&page=1")),
        "edit": acts(("open", _adminer("&edit=kettle&where[id]=7")), ("fill", "[name='fields[price]']", "99"), ("click", "#form input[type=submit] >> nth=0")),
        "insert": acts(("open", _adminer("&edit=kettle")), ("fill", "[name='fields[name]']", "Valley"), ("fill", "[name='fields[price]']", "5"), ("click", "#form input[type=submit] >> nth=0")),
        "sql": acts(("open", _adminer("&sql=")), ("run", "document.querySelector('textarea[name=query]').value = 'select name from kettle where price > 90'"), ("click", "#form input[type=submit] >> nth=0")),
        "logout": acts(("open", _adminer("")), ("click", "#logout")),
    },
    {
        "A": ["wrong", "login", "tables", "table", "rows", "sort", "page2", "edit", "rows", "insert", "rows", "sql", "tables", "logout", "rows"],
        "B": ["login", "rows", "table", "insert", "rows", "page2", "sql", "edit", "rows", "sort", "logout", "tables", "login", "tables"],
    },
    r"token|adminer_\w+",
    (r"\d+(\.\d+)? s\b", r"\d\d:\d\d:\d\d"),
)  # fmt: skip


def _gitweb_data(data: Path) -> None:
    work = data / "kettles"
    work.mkdir()

    def git(*words: str, day: int = 0) -> None:
        moment = f"{1_700_000_000 + 86_400 * day} +0000"
        told = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment, "GIT_CONFIG_GLOBAL": "/dev/null"}
        who = ("-c", "user.name=ada", "-c", "user.email=ada@kettles.test")
        subprocess.run(
            ["git", *who, *words], cwd=work, env=os.environ | told, check=True, capture_output=True
        )

    git("init", "-b", "main")
    for number in range(1, 9):
        (work / f"kettle{number % 3}.txt").write_text(f"Kettle of day {number}\n")
        git("add", ".", day=number)
        git("commit", "-m", f"Kettle of day {number}", day=number)
    git("tag", "v1", "HEAD~4")
    (work / ".git" / "description").write_text("Kettles\n")
    site = data / "site"
    (site / "cgi-bin").mkdir(parents=True)
    shutil.copy(DEBIAN / "usr/share/gitweb/gitweb.cgi", site / "cgi-bin")
    shutil.copytree(DEBIAN / "usr/share/gitweb/static", site / "static")
    (data / "gitweb.conf").write_text(
        f'$projectroot = "{data}"; $site_name = "Kettles"; @stylesheets = ("/static/gitweb.css"); $logo = "/static/git-logo.png";'
        ' $favicon = "/static/git-favicon.png"; $javascript = "/static/gitweb.js"; $feature{"javascript-actions"}{"default"} = [1];'
        ' $feature{"timed"}{"default"} = [0]; $feature{"blame"}{"default"} = [1];\n'
    )


GITWEB = Application(
    "gitweb",
    7123,
    "/cgi-bin/gitweb.cgi",
    (),
    _gitweb_data,
    lambda data: (
        ["python3", "-m", "http.server", "--cgi", "--bind", "127.0.0.1", "7123"],
        {"GITWEB_CONFIG": str(data / "gitweb.conf")},
        data / "site",
    ),
    {
        "projects": go(""),
        "summary": acts(("open", ""), ("click", "a.list:has-text('kettles')")),
        "log": acts(("open", "?p=kettles/.git"), ("click", ".page_nav a:has-text('shortlog')")),
        "tree": acts(("open", "?p=kettles/.git"), ("click", ".page_nav a:has-text('tree')")),
        "blob": go("?p=kettles/.git;a=blob;f=kettle1.txt;hb=HEAD"),
        "blame": go("?p=kettles/.git;a=blame;f=kettle1.txt;hb=HEAD"),
        "diff": acts(("open", "?p=kettles/.git;a=shortlog"), ("click", "a:has-text('commitdiff') >> nth=2")),
        "search": acts(("open", "?p=kettles/.git"), ("fill", "input[name=s]", "day 5"), ("press", "input[name=s]", "Enter")),
        "feed": acts(("open", "?p=kettles/.git;a=log;h=v1"),),
    },
    {
        "A": ["projects", "summary", "log", "tree", "blob", "blame", "diff", "search", "feed", "projects"],
        "B": ["summary", "search", "blame", "projects", "diff", "log", "feed", "tree", "blob"],
    },
    moving=(r"(?m)\b(\d+|right) \w+ (ago|now)\b",),
)  # fmt: skip


def _tiddlywiki_data(data: Path) -> None:
    built = data.parent / "app"
    if not built.exists():
        built.mkdir()
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--silent", "tiddlywiki@5"], cwd=built, check=True
        )
    subprocess.run(
        ["npx", "tiddlywiki", str(data / "wiki"), "--init", "server"],
        cwd=built,
        check=True,
        capture_output=True,
    )


TIDDLYWIKI = Application(
    "tiddlywiki",
    7124,
    "/",
    (),
    _tiddlywiki_data,
    lambda data: (["npx", "tiddlywiki", str(data / "wiki"), "--listen", "port=7124", "host=127.0.0.1"], {}, data.parent / "app"),
    {
        "open": acts(("open", ""), ("rest", "4000")),
        "tea": acts(("click", "button[aria-label='new tiddler'] >> visible=true"), ("fill", "input.tc-titlebar", "Tea"), ("press", "input.tc-titlebar", "Control+Enter"), ("rest", "3000")),
        "cups": acts(("click", "button[aria-label='new tiddler'] >> visible=true"), ("fill", "input.tc-titlebar", "Cups"), ("press", "input.tc-titlebar", "Control+Enter"), ("rest", "3000")),
        "close": acts(("click", "[data-tiddler-title] button[aria-label='close'] >> nth=0"), ("rest", "1000")),
    },
    {
        "A": ["open", "tea", "cups", "open", "close", "tea"],
        "B": ["open", "cups", "tea", "open", "close"],
    },
    moving=(r"\d+\w\w \w+ \d{4} at \d+:\d\d[ap]m",),
    warm=3,
)  # fmt: skip

# -- Solara and PyWebIO, whose pages talk over web sockets

SOLARA = Application(
    "solara",
    7125,
    "/",
    ("solara==1.58.*", "solara-ui==1.58.*", "solara-server==1.58.*", "solara-assets==1.58.*"),
    _nothing,
    lambda data: (
        [str(Path(python(data.parent)).with_name("solara")), "run", str(KETTLES / "solara_shop.py"), "--host", "127.0.0.1", "--port", "7125", "--production"],
        {"HOME": str(data)},
        data,
    ),
    {
        "open": acts(("open", ""), ("see", "text=in the basket")),
        "gas": acts(("click", "button:has-text('gas')"), ("rest", "700")),
        "camping": acts(("click", "button:has-text('camping')"), ("rest", "700")),
        "electric": acts(("click", "button:has-text('electric')"), ("rest", "700")),
        "note": acts(("fill", "input", "for Ada"), ("press", "input", "Tab"), ("rest", "700")),
        "take": acts(("click", "button:has-text('Take')"), ("rest", "700")),
    },
    {
        "A": ["open", "camping", "take", "note", "take", "electric", "open", "electric", "gas", "take"],
        "B": ["open", "electric", "note", "camping", "take", "open", "take", "gas", "electric"],
    },
    warm=6,
)  # fmt: skip


def _pywebio_take(kind: str, number: str) -> Act:
    return acts(
        ("click", "button:has-text('Take')"),
        ("choose", "select", kind),
        ("fill", "input[type=number]", number),
        ("click", "button[type=submit]"),
        ("see", "button:has-text('Pay')"),
    )


PYWEBIO = Application(
    "pywebio",
    7126,
    "/",
    ("pywebio==1.8.*",),
    _nothing,
    lambda data: ([python(data.parent), "pywebio_shop.py", "7126"], {}, KETTLES),
    {
        "open": acts(("open", ""), ("see", "button:has-text('Pay')")),
        "prices": acts(("click", "button:has-text('Prices')"), ("rest", "500")),
        "gas": _pywebio_take("gas", "2"),
        "camping": _pywebio_take("camping", "1"),
        "pay": acts(("click", "button:has-text('Pay')"), ("rest", "500")),
    },
    {
        "A": ["open", "gas", "prices", "camping", "pay", "open", "camping", "pay", "open", "prices"],
        "B": ["open", "prices", "open", "camping", "gas", "pay", "open", "gas", "camping", "pay"],
    },
)


# -- MediaWiki and phpLiteAdmin of Debian, django-helpdesk and Flask-AppBuilder

MEDIAWIKI_PASSWORD = "tea-4711-pot-x"


def _mediawiki_data(data: Path) -> None:
    install = [*_php(), str(DEBIAN / "usr/share/mediawiki/maintenance/install.php"), "--dbtype", "sqlite", "--dbpath", str(data), "--confpath", str(data)]  # fmt: skip
    site = ["--scriptpath", "", "--server", "http://127.0.0.1:7127", "--pass", MEDIAWIKI_PASSWORD, "Kettles", "Ada"]  # fmt: skip
    subprocess.run([*install, *site], check=True, capture_output=True)


def _wiki(path: str) -> Act:
    """Return the act of opening a page, which keeps its scripts for the next ones after two seconds."""
    return acts(("open", path), ("rest", "2500"))


def _mediawiki_login(password: str) -> Act:
    return acts(("open", "?title=Special:UserLogin"), ("rest", "2500"), ("fill", "#wpName1", "Ada"), ("fill", "#wpPassword1", password), ("click", "#wpLoginAttempt"), ("rest", "2500"))  # fmt: skip


def _mediawiki_edit(title: str, text: str) -> Act:
    return acts(("open", f"?title={title}&action=edit"), ("rest", "2500"), ("fill", "#wpTextbox1", text), ("fill", "#wpSummary", "Said more"), ("press", "#wpSummary", "Tab"), ("rest", "1500"), ("click", "#wpSave"), ("rest", "2500"))  # fmt: skip


MEDIAWIKI = Application(
    "mediawiki",
    7127,
    "/index.php",
    (),
    _mediawiki_data,
    lambda data: (
        [*_php(), "-S", "127.0.0.1:7127", "-t", str(DEBIAN / "usr/share/mediawiki")],
        {"MW_CONFIG_FILE": str(data / "LocalSettings.php"), "PHP_CLI_SERVER_WORKERS": "4"},
        data,
    ),
    {
        "home": _wiki("?title=Main_Page"),
        "wrong": _mediawiki_login("nope-12-nope"),
        "login": _mediawiki_login(MEDIAWIKI_PASSWORD),
        "make": _mediawiki_edit("Tea", "Tea needs [[water]]."),
        "edit": _mediawiki_edit("Tea", "Tea needs [[water]] and a pot."),
        "front": _mediawiki_edit("Main_Page", "All on [[Tea]]."),
        "tea": _wiki("?title=Tea"),
        "history": acts(("open", "?title=Tea"), ("rest", "2500"), ("click", "#ca-history a"), ("rest", "2500")),
        "compare": acts(("open", "?title=Tea&action=history"), ("rest", "2500"), ("click", ".historysubmit >> nth=0"), ("rest", "2500")),
        "search": acts(("open", "?title=Main_Page"), ("rest", "2500"), ("fill", "#searchInput", "needs"), ("rest", "2500"), ("press", "#searchInput", "Enter"), ("rest", "2500")),
        "changes": _wiki("?title=Special:RecentChanges"),
        "unwatch": acts(("open", "?title=Main_Page"), ("rest", "2500"), ("click", "#ca-unwatch a"), ("see", "#ca-watch"), ("rest", "2500")),
        "watched": _wiki("?title=Special:EditWatchlist/raw"),
        "links": _wiki("?title=Special:WhatLinksHere/Tea"),
        "all": _wiki("?title=Special:AllPages"),
        "delete": acts(("open", "?title=Tea&action=delete"), ("click", "#wpConfirmB, [name=wpConfirmB]")),
        "logout": acts(("open", "?title=Main_Page"), ("rest", "2500"), ("click", "#pt-logout a"), ("see", "#pt-login, #pt-login-2"), ("rest", "1500")),
    },
    {
        "A": ["home", "wrong", "login", "make", "tea", "edit", "history", "compare", "front", "home", "unwatch", "watched", "search", "all", "logout"],
        "B": ["tea", "login", "front", "home", "make", "all", "edit", "tea", "compare", "unwatch", "watched", "logout", "home"],
        "B2": ["login", "make", "tea", "links", "delete", "tea", "home", "search", "all", "logout", "tea"],
    },
    r"wp\w+|token|\w*Token|\w+_session|\w+Token|wiki\w*|my_wiki\w*|wgRequestId",
    (r"\d\d:\d\d, \d+ \w+ \d{4}", r"on \d+ \w+ \d{4}, at \d\d:\d\d", r"\d\d:\d\d\b"),
    warm=2,
)  # fmt: skip


def _phpliteadmin_data(data: Path) -> None:
    _sqlite_web_data(data)
    shutil.copytree(
        DEBIAN / "usr/share/phpliteadmin", data / "site", ignore=shutil.ignore_patterns("*.config.php")
    )
    (data / "site" / "phpliteadmin.config.php").write_text(
        f"<?php $password = '{PASSWORDS['ada']}'; $directory = '..'; $rowsNum = 10;"
    )
    (data / "sessions").mkdir()


def _lite(path: str) -> str:
    return f"?database=..%2Fshop.sqlite&numRows=10{path}"


def _lite_login(password: str) -> Act:
    return acts(("open", ""), ("fill", "[name=password]", password), ("click", "[type=submit]"))


ROWS = _lite("&table=kettle&action=row_view")
PHPLITEADMIN = Application(
    "phpliteadmin",
    7131,
    "/phpliteadmin.php",
    (),
    _phpliteadmin_data,
    lambda data: (
        [*_php(), "-d", f"session.save_path={data / 'sessions'}", "-S", "127.0.0.1:7131", "-t", str(data / "site")],
        {},
        data / "site",
    ),
    {
        "wrong": _lite_login("nope-12"),
        "login": _lite_login(PASSWORDS["ada"]),
        "tables": go(_lite("")),
        "rows": go(ROWS),
        "page2": acts(("open", ROWS), ("click", "input[value='→']")),
        "sort": acts(("open", ROWS), ("click", "a:text-is('price')")),
        "columns": go(_lite("&table=kettle&action=column_view")),
        "edit": acts(("open", _lite("&table=kettle&action=row_editordelete&pk=%5B4%5D&type=edit")), ("fill", "[name='2[]']", "99"), ("click", "input[value='Save Changes']")),
        "insert": acts(("open", _lite("&table=kettle&action=row_create")), ("fill", "[name='0:1']", "Valley"), ("fill", "[name='0:2']", "5"), ("click", "input[value='Insert']")),
        "delete": acts(("open", ROWS), ("click", "a[href*='pk=%5B2%5D&type=delete']"), ("click", "input[value='Confirm']")),
        "search": acts(("open", _lite("&table=kettle&action=table_search")), ("fill", "[name=field_2_value]", "99"), ("click", "input[value='Search']")),
        "sql": acts(("open", _lite("&view=sql")), ("fill", "textarea[name=queryval]", "select name from kettle where price > 90"), ("click", "input[name=query]")),
        "logout": acts(("open", _lite("")), ("click", "input[value='Logout']")),
    },
    {
        "A": ["wrong", "login", "rows", "page2", "sort", "edit", "rows", "search", "insert", "tables", "delete", "rows", "sql", "logout", "rows"],
        "B": ["login", "tables", "rows", "sort", "search", "insert", "rows", "edit", "page2", "rows", "sql", "delete", "tables", "logout"],
    },
    r"token|pla\w*|PHPSESSID",
    (r"[\d.]+ sec\w*", r"\d+:\d\d[ap]m on \w+ \d+, \d{4}"),
)  # fmt: skip


def _helpdesk_data(data: Path) -> None:
    subprocess.run(
        [python(data.parent), "helpdesk_desk.py", "fill"],
        cwd=KETTLES,
        env=os.environ | {"DATABASE": str(data / "desk.sqlite")},
        check=True,
    )


def _helpdesk_login(password: str) -> Act:
    return acts(("open", "login/"), ("fill", "[name=username]", "ada"), ("fill", "[name=password]", password), ("click", "form:has([name=password]) [type=submit]"), ("rest", "1000"))  # fmt: skip


HELPDESK = Application(
    "django-helpdesk",
    7128,
    "/",
    ("django-helpdesk==2.6.*",),
    _helpdesk_data,
    lambda data: (
        [python(data.parent), "helpdesk_desk.py", "runserver", "--noreload", "127.0.0.1:7128"],
        {"DATABASE": str(data / "desk.sqlite")},
        KETTLES,
    ),
    {
        "home": go(""),
        "shelf": go("kb/care/"),
        "wrong": _helpdesk_login("nope-12"),
        "login": _helpdesk_login(PASSWORDS["ada"]),
        "list": acts(("open", "tickets/"), ("rest", "1000")),
        "t3": go("tickets/3/"),
        "t4": go("tickets/4/"),
        "board": go("dashboard/"),
        "reports": go("reports/"),
        "search": acts(("open", "dashboard/"), ("fill", "#search_query", "Kettle 05"), ("press", "#search_query", "Enter"), ("rest", "1000")),
        "make": acts(("open", "tickets/submit/"), ("choose", "#id_queue", "2"), ("fill", "#id_title", "A lid is lost"), ("fill", "#id_body", "Since Monday."), ("click", ".btn-primary[type=submit]")),
        "comment": acts(("open", "tickets/3/"), ("click", "#respond-tab"), ("fill", "#commentBox", "Sent a new seal."), ("check", "#st_resolved"), ("click", "#ticket-respond-form [type=submit]")),
        "edit": acts(("open", "tickets/4/edit/"), ("fill", "#id_title", "Kettle 03 is fixed"), ("click", "form:has(#id_title) [type=submit]")),
        "take": acts(("open", "dashboard/"), ("click", "a:has-text('Take'), button:has-text('Take') >> nth=0")),
        "vote": acts(("open", "kb/care/"), ("click", "a:has-text('Descaling'), button:has-text('Descaling') >> nth=0"), ("rest", "500"), ("click", ".btn-outline-success >> nth=0")),
        "delete": acts(("open", "tickets/5/delete/"), ("click", "form:has([name=next]) [type=submit], .btn-danger"), ("rest", "1000")),
        "logout": acts(("open", "dashboard/"), ("run", "document.querySelector('form[action*=logout]').submit()"), ("rest", "500")),
    },
    {
        "A": ["home", "wrong", "login", "t3", "comment", "list", "board", "take", "edit", "make", "search", "delete", "reports", "vote", "logout"],
        "B": ["login", "board", "list", "make", "t3", "edit", "reports", "comment", "board", "delete", "list", "logout", "home"],
    },
    r"csrfmiddlewaretoken|csrftoken|sessionid|messages|secret_key",
    (r"\d+\s\w+(, \d+\s\w+)? ago", r"\w+\.? \d+, \d{4},? \d+(:\d\d)? [ap]\.m\.", r"[0-9a-f]{8}-[0-9a-f-]{27}", r"a moment ago|now\b", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*", r"\d\d/\d\d/\d{4} \d\d:\d\d"),
    warm=2,
)  # fmt: skip


def _appbuilder_data(data: Path) -> None:
    subprocess.run(
        [python(data.parent), "appbuilder_shop.py", "fill"],
        cwd=KETTLES,
        env=os.environ | {"DATABASE": str(data / "shop.sqlite")},
        check=True,
    )


def _appbuilder_login(password: str) -> Act:
    return acts(("open", "login/"), ("fill", "#username", "ada"), ("fill", "#password", password), ("click", "input[type=submit]"))  # fmt: skip


APPBUILDER = Application(
    "flask-appbuilder",
    7129,
    "/",
    ("flask-appbuilder==5.3.*",),
    _appbuilder_data,
    lambda data: (
        [python(data.parent), "appbuilder_shop.py", "7129"],
        {"DATABASE": str(data / "shop.sqlite")},
        KETTLES,
    ),
    {
        "home": go(""),
        "wrong": _appbuilder_login("nope-12"),
        "login": _appbuilder_login(PASSWORDS["ada"]),
        "list": go("kettleview/list/"),
        "k7": go("kettleview/show/7"),
        "page2": acts(("open", "kettleview/list/"), ("click", ".pagination a:text-is('2')")),
        "sort": acts(("open", "kettleview/list/"), ("click", "th a:has-text('Price')")),
        "filter": acts(("open", "kettleview/list/"), ("click", "a[href='#search-form'], .accordion-toggle, [data-toggle=collapse]:has-text('Search')"), ("rest", "500"), ("click", "#filter_form .dropdown-toggle"), ("click", "a.filter:has-text('Kind')"), ("fill", "#filter_form input[type=text]", "gas"), ("click", "#filter_form [type=submit]")),
        "edit": acts(("open", "kettleview/list/"), ("click", "a[href*='/edit/7']"), ("fill", "#price", "99"), ("click", "#model_form [type=submit]")),
        "add": acts(("open", "makerview/add"), ("fill", "#name", "Valley"), ("click", "#model_form [type=submit]")),
        "twice": acts(("open", "makerview/add"), ("fill", "#name", "Hill"), ("click", "#model_form [type=submit]")),
        "makers": go("makerview/list/"),
        "hill": go("makerview/show/2"),
        "delete": acts(("open", "kettleview/list/"), ("click", "[id='btn-delete-/kettleview/delete/5']"), ("rest", "700"), ("click", "#modal-confirm-ok")),
        "users": go("users/list/"),
        "logout": go("logout/"),
    },
    {
        "A": ["home", "wrong", "login", "list", "page2", "sort", "filter", "k7", "edit", "add", "twice", "makers", "delete", "list", "logout"],
        "B": ["login", "makers", "list", "sort", "edit", "k7", "list", "twice", "add", "makers", "filter", "delete", "page2", "logout", "home"],
    },
    r"csrf_token|session",
    (),
    warm=2,
)  # fmt: skip

# -- Piccolo's admin, and Remi, whose widgets have the numbers of their addresses in memory


def _piccolo_data(data: Path) -> None:
    environment = os.environ | {"DATABASE": str(data / "shop.sqlite")}
    subprocess.run([python(data.parent), "piccolo_shop.py", "fill"], cwd=KETTLES, env=environment, check=True)


def _piccolo_login(password: str) -> Act:
    return acts(("open", ""), ("fill", "[name=username]", "ada"), ("fill", "[name=password]", password), ("press", "[name=password]", "Enter"), ("rest", "700"))  # fmt: skip


def _piccolo(path: str, *steps: tuple[str, ...]) -> Act:
    return acts(("open", "#/"), ("rest", "300"), ("open", f"#/{path}"), *steps, ("rest", "700"))


PICCOLO = Application(
    "piccolo-admin",
    7132,
    "/",
    ("piccolo_admin==1.14.*", "piccolo[sqlite]", "uvicorn"),
    _piccolo_data,
    lambda data: ([python(data.parent), "piccolo_shop.py", "7132"], {"DATABASE": str(data / "shop.sqlite")}, KETTLES),
    {
        "wrong": _piccolo_login("nope-12"),
        "login": _piccolo_login(PASSWORDS["ada"]),
        "list": _piccolo("kettle/"),
        "page2": _piccolo("kettle/?__page=2"),
        "sort": _piccolo("kettle/?__order=-price"),
        "k7": _piccolo("kettle/7/"),
        "price": _piccolo("kettle/7/", ("rest", "1500"), ("fill", "[name=price]", "99"), ("click", "button:has-text('Save')"), ("rest", "5000")),
        "makers": _piccolo("maker/"),
        "add": _piccolo("maker/add/", ("rest", "1500"), ("fill", "[name=name]", "Valley"), ("click", "button:has-text('Create')"), ("rest", "5000")),
        "password": _piccolo("change-password/"),
    },
    {
        "A": ["wrong", "login", "list", "sort", "k7", "page2", "price", "k7", "list", "makers", "add", "makers", "list"],
        "B": ["login", "makers", "page2", "list", "price", "list", "k7", "sort", "add", "makers", "list", "k7"],
    },
    r"csrftoken|id",
    warm=3,
)  # fmt: skip

REMI = Application(
    "remi",
    7133,
    "/",
    ("remi==2022.7.27",),
    _nothing,
    lambda data: ([python(data.parent), "remi_shop.py", "7133"], {}, KETTLES),
    {
        "open": acts(("open", ""), ("see", "text=In the basket"), ("rest", "300")),
        "gas": acts(("choose", "select", "gas"), ("rest", "700")),
        "electric": acts(("choose", "select", "electric"), ("rest", "700")),
        "words": acts(("fill", "input", "1"), ("press", "input", "Tab"), ("rest", "700")),
        "take": acts(("click", "button:has-text('Take')"), ("rest", "700")),
        "empty": acts(("click", "button:has-text('Empty')"), ("rest", "700")),
    },
    {
        "A": ["open", "gas", "take", "take", "words", "take", "empty", "electric", "take", "open", "take"],
        "B": ["open", "take", "electric", "take", "gas", "words", "take", "empty", "open", "gas"],
    },
    warm=2,
)

APPLICATIONS = {
    app.name: app
    for app in (
        *(DJANGO, FLASK, SVELTE, ROUNDUP, DATASETTE, FOSSIL),
        *(MARIMO, NICEGUI, SQLADMIN, STARLETTE_ADMIN, DOKUWIKI, HGWEB, SQLITE_WEB, RADICALE),
        *(PANEL, DASH, MONEY, ADMINER, GITWEB, TIDDLYWIKI, SOLARA, PYWEBIO),
        *(MEDIAWIKI, PHPLITEADMIN, HELPDESK, APPBUILDER, PICCOLO, REMI),
    )
}
