"""More small servers that remember, of kinds that applications have: `SITES` are those of `mini_sites` and these."""

from __future__ import annotations

import json

from benchmarks.mini_sites import HOST, SITES, Asked, Memory, away, data, form, get, page, sent, site
from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request

__all__ = ["SITES"]


@site(*get("/feed", "/feed/more", "/feed/more", "/about"), form("/feed/refresh"))
def scrolled(memory: Memory, asked: Asked) -> Response:
    """A list of which the server knows how far it was scrolled."""
    if asked.path == "/about":
        return page("about")
    if asked.path == "/feed/refresh":
        memory["at"] = 0
        memory["version"] = memory.get("version", 0) + 1
        return data("ok")
    if asked.path == "/feed":
        memory["at"] = 0
    at = memory.get("at", 0)
    memory["at"] = at + 2
    if at >= 6:
        return data({"items": [], "end": True})
    return data(
        {"items": [f"{memory.get('version', 0)}-{n}" for n in range(at, at + 2)], "rows": ["row"] * 40}
    )


@site(*get("/search?q=a", "/search?q=b", "/search?q=c", "/", "/"), form("/history/clear"))
def searched(memory: Memory, asked: Asked) -> Response:
    """A start page that shows what was searched for."""
    recent = memory.setdefault("recent", [])
    if asked.path == "/history/clear":
        recent.clear()
        return away("/")
    if asked.path == "/search":
        q = asked.told["q"]
        if q in recent:
            recent.remove(q)
        recent.append(q)
        return page(f"results {q}")
    return page(recent[-2:])


@site(*get("/notifications", "/n/1", "/n/2", "/badge", "/badge"), form("/n/read-all"))
def notified(memory: Memory, asked: Asked) -> Response:
    """Notifications that are read by being looked at, and a badge."""
    unread = memory.setdefault("unread", ["1", "2"])
    if asked.path == "/n/read-all":
        unread.clear()
        return data({"ok": True})
    if asked.path.startswith("/n/") and asked.path[3:] in unread:
        unread.remove(asked.path[3:])
    if asked.path == "/badge":
        return data({"unread": len(unread)})
    if asked.path == "/notifications":
        return page([f"{n} {'new' if n in unread else ''}" for n in "12"])
    return page(asked.path)


@site(
    sent("/jobs", {"kind": "a"}),
    sent("/jobs", {"kind": "b"}),
    *get("/jobs/1", "/jobs/1", "/jobs/2", "/result/1", "/result/2"),
)
def polled(memory: Memory, asked: Asked) -> Response:
    """Jobs that are done after a few polls."""
    jobs = memory.setdefault("jobs", {})
    if asked.method == "POST":
        n = str(len(jobs) + 1)
        jobs[n] = [asked.told["kind"], 0]
        return Response(
            202,
            "Accepted",
            (("Content-Type", "application/json"), ("Location", f"/jobs/{n}")),
            json.dumps({"id": n}).encode(),
        )
    n = asked.path.rsplit("/", 1)[1]
    if n not in jobs:
        return data("none", 404)
    if asked.path.startswith("/jobs/"):
        jobs[n][1] += 1
        return data({"id": n, "status": "done" if jobs[n][1] > 2 else "running"})
    return data({"kind": jobs[n][0]}) if jobs[n][1] > 2 else data("not yet", 409)


@site(
    sent("/notes", {"text": "x"}),
    sent("/notes", {"text": "y"}),
    Request("DELETE", f"{HOST}/notes/1"),
    form("/notes/1/restore"),
    *get("/notes", "/notes?page=2", "/trash"),
)
def restored(memory: Memory, asked: Asked) -> Response:
    """Notes in pages, of which a deleted one can be restored."""
    notes = memory.setdefault("notes", [["1", "a"], ["2", "b"], ["3", "c"]])
    trash = memory.setdefault("trash", [])
    if asked.method == "DELETE":
        found = [n for n in notes if n[0] == "1"]
        if not found:
            return data("none", 404)
        notes.remove(found[0])
        trash.append(found[0])
        return Response(204, "", (), b"")
    if asked.path.endswith("/restore"):
        if not trash:
            return data("none", 404)
        notes.insert(0, trash.pop())
        return away("/notes")
    if asked.method == "POST":
        notes.append([str(4 + memory.setdefault("n", 0)), asked.told["text"]])
        memory["n"] += 1
        return data({"id": 3 + memory["n"]}, 201)
    if asked.path == "/trash":
        return data([n for n, _ in trash])
    return data(notes[2:4] if asked.told.get("page") == "2" else notes[:2])


@site(
    form("/signup", name="x", age=""),
    form("/signup", name="x", age="30"),
    form("/signup", name="y", age="40"),
    *get("/signup", "/me", "/me"),
)
def validated(memory: Memory, asked: Asked) -> Response:
    """A form that is shown again with what is wrong in it."""
    if asked.method == "POST":
        if not asked.told.get("age"):
            memory["typed"] = asked.told["name"]
            return page(f"age is missing, {asked.told['name']}", 422)
        if memory.get("me") == asked.told["name"]:
            return page("taken", 409)
        memory["me"] = asked.told["name"]
        memory.pop("typed", None)
        return away("/me")
    if asked.path == "/signup":
        return page(f"form {memory.get('typed', '')}")
    return page(memory.get("me"))


@site(
    form("/login", user="a", password="p"),
    form("/login", user="a", password="wrong"),
    form("/logout"),
    *get("/", "/account", "/about"),
)
def signed_in(memory: Memory, asked: Asked) -> Response:
    """An account that is locked after three wrong passwords."""
    if asked.path == "/login":
        if memory.get("wrong", 0) >= 3:
            return page("locked", 423)
        if asked.told["password"] != "p":
            memory["wrong"] = memory.get("wrong", 0) + 1
            return page("wrong password", 401)
        memory["in"] = True
        memory["wrong"] = 0
        return away("/account")
    if asked.path == "/logout":
        memory.pop("in", None)
        return away("/")
    if asked.path == "/account":
        return page("account") if memory.get("in") else away("/")
    if asked.path == "/about":
        return page("about")
    return page(f"hello {'a' if memory.get('in') else ''} {memory.get('wrong', 0) or ''}")


@site(sent("/like", {"id": 1}), sent("/like", {"id": 2}), *get("/post/1", "/post/2", "/likes"))
def liked(memory: Memory, asked: Asked) -> Response:
    """Likes that are turned on and off by the same request."""
    likes = memory.setdefault("likes", set())
    if asked.method == "POST":
        likes ^= {asked.told["id"]}
        return data({"liked": asked.told["id"] in likes})
    if asked.path == "/likes":
        return data(sorted(likes))
    return page(f"{asked.path} {int(asked.path[-1]) in likes}")


@site(
    *get("/form", "/form", "/done"),
    *(form("/send", token=f"t0ken{n}000", text=t) for n in (1, 2) for t in "xy"),
)
def renewed_token(memory: Memory, asked: Asked) -> Response:
    """A form whose hidden token is another one each time that it is shown, and good for one sending."""
    if asked.method == "POST":
        if asked.told["token"] != memory.get("token"):
            return page("form expired", 403)
        memory["token"] = ""
        memory.setdefault("sent", []).append(asked.told["text"])
        return away("/done")
    if asked.path == "/done":
        return page(memory.get("sent", []))
    memory["shown"] = memory.get("shown", 0) + 1
    memory["token"] = f"t0ken{memory['shown']}000"
    return page(f'<input type="hidden" name="token" value="{memory["token"]}">')


@site(
    form("/flags", name="new-list"),
    form("/flags", name="dark"),
    form("/flags/reset"),
    *get("/", "/list", "/flags", "/about"),
)
def flagged(memory: Memory, asked: Asked) -> Response:
    """Features that are turned on one by one, each of which shows in some pages only."""
    flags = memory.setdefault("flags", set())
    if asked.method == "POST":
        if asked.path == "/flags/reset":
            flags.clear()
        else:
            flags.add(asked.told["name"])
        return away("/flags")
    if asked.path == "/flags":
        return page(sorted(flags))
    shown = {"/": "dark", "/list": "new-list"}.get(asked.path)
    return page(f"{asked.path} {shown in flags if shown else ''}")


@site(
    form("/login", user="a"),
    *get("/account", "/account", "/p/1", "/about"),
)
def timed_out(memory: Memory, asked: Asked) -> Response:
    """A session that ends after a few pages, by none of what was asked for."""
    if asked.method == "POST":
        memory["left"] = 4
        return away("/account")
    memory["left"] = memory.get("left", 0) - 1
    if asked.path == "/account":
        return page("account") if memory["left"] >= 0 else page("please sign in", 401)
    return page(asked.path)


@site(
    form("/filters", name="mine", by="x"),
    form("/filters", name="mine", by="y"),
    Request("DELETE", f"{HOST}/filters/mine"),
    *get("/search?filter=mine", "/search?filter=mine", "/filters", "/search"),
)
def saved_filter(memory: Memory, asked: Asked) -> Response:
    """A search by the name of a filter that is kept."""
    if asked.method == "POST":
        memory[asked.told["name"]] = asked.told["by"]
        return away("/filters")
    if asked.method == "DELETE":
        return data("gone") if memory.pop("mine", None) else data("none", 404)
    if asked.path == "/filters":
        return page(sorted(memory.items()))
    name = asked.told.get("filter")
    if name and name not in memory:
        return page("no such filter", 404)
    return page(f"found by {memory[name]}" if name else "found all")
