"""The demo's own site: `python -m stillweb.harness.demo.site --port N`.

- `/weather`: a form that POSTs a filter into a server-side session; the same URL then shows other rows.
- `/electricity`: tabs, and a table that JavaScript draws from the answer to a JSON POST.
- `/reports`: two PDFs.
"""

from __future__ import annotations

import csv
import json
import secrets
from functools import cache
from pathlib import Path
from typing import Any

import click
import jinja2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from stillweb.harness.demo.origin import DESK_HOST
from stillweb.harness.servers.guarded import RequestGuard, server_config

HERE = Path(__file__).parent
PAGE_SIZE = 10
COOKIE = "desk_session"
MONTHS = [f"{month:02d}" for month in range(1, 13)]

_templates = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True)
_sessions: dict[str, dict[str, str]] = {}  # session id -> its filter


@cache
def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a data set in `data/`."""
    with (HERE / "data" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _page(template: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(_templates.get_template(template).render(**values))


async def home(request: Request) -> Response:
    return _page("home.html")


async def weather(request: Request) -> Response:
    """Show the rows that pass the session's filter. A POST sets the filter and redirects back here."""
    session = request.cookies.get(COOKIE, "")
    if request.method == "POST":
        form = await request.form()
        if session not in _sessions:
            session = secrets.token_hex(16)
        _sessions[session] = {name: str(form.get(name, "")) for name in ("year", "month", "kind")}
        answer: Response = RedirectResponse("/weather", status_code=303)
        answer.set_cookie(COOKIE, session, httponly=True)
        return answer
    chosen = _sessions.get(session, {})
    found = [
        row
        for row in rows("seattle-weather")
        if row["date"].startswith(chosen.get("year", ""))
        and (not chosen.get("month") or row["date"][5:7] == chosen["month"])
        and (not chosen.get("kind") or row["weather"] == chosen["kind"])
    ]
    asked = request.query_params.get("page", "1")
    number = int(asked) if asked.isascii() and asked.isdigit() and 0 < len(asked) < 9 else 1
    pages = max(1, -(-len(found) // PAGE_SIZE))
    shown = found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
    kinds = sorted({row["weather"] for row in rows("seattle-weather")})
    return _page(
        "weather.html",
        rows=shown,
        total=len(found),
        page=number,
        pages=pages,
        chosen=chosen,
        kinds=kinds,
        months=MONTHS,
    )


async def electricity(request: Request) -> Response:
    sources = sorted({row["source"] for row in rows("iowa-electricity")})
    return _page("electricity.html", sources=sources)


async def generation(request: Request) -> Response:
    """Answer `{"source", "from", "to"}` with the years and their net generation."""
    try:
        asked = json.loads(await request.body())
        source, begin, end = str(asked["source"]), int(asked["from"]), int(asked["to"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return JSONResponse({"error": "source, from and to are needed"}, status_code=400)
    found = [
        {"year": int(row["year"][:4]), "net_generation": int(row["net_generation"])}
        for row in rows("iowa-electricity")
        if row["source"] == source and begin <= int(row["year"][:4]) <= end
    ]
    return JSONResponse({"source": source, "unit": "thousand MWh", "rows": found})


async def reports(request: Request) -> Response:
    return _page("reports.html", files=sorted(path.name for path in (HERE / "pdf").glob("*.pdf")))


async def report(request: Request) -> Response:
    path = HERE / "pdf" / Path(request.path_params["name"]).name
    if not path.is_file():
        return HTMLResponse("<!doctype html><title>Not found</title><h1>Not found</h1>", status_code=404)
    return FileResponse(path, media_type="application/pdf")


async def style(request: Request) -> Response:
    return FileResponse(HERE / "templates" / "desk.css", media_type="text/css")


app = Starlette(
    routes=[
        Route("/", home),
        Route("/weather", weather, methods=["GET", "POST"]),
        Route("/electricity", electricity),
        Route("/api/generation", generation, methods=["POST"]),
        Route("/reports", reports),
        Route("/reports/{name}", report),
        Route("/desk.css", style),
    ]
)


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--certificate", type=click.Path(exists=True))
@click.option("--key", type=click.Path(exists=True))
def main(port: int, certificate: str | None, key: str | None) -> None:
    """Serve the site on loopback until stopped."""
    config = server_config(
        RequestGuard(app, names=(DESK_HOST,), pages=False),
        host="127.0.0.1",
        port=port,
        level="warning",
        idle=600,  # a slow recorder may use a connection late
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
