"""Web server of `stillweb view`: the pages on one origin of loopback, frozen pages on another."""

from __future__ import annotations

import secrets
import threading
from importlib import import_module
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from stillweb.harness.servers.guarded import RequestGuard, server_config
from stillweb.harness.view.frozen_page import FrozenPages
from stillweb.harness.view.library import Page
from stillweb.harness.view.site import UNREADABLE, Site
from stillweb.proxy.net.addresses import listen
from stillweb.proxy.net.own_pages import page_fields, same_token
from stillweb.snapshots.errors import StillwebError, UsageError

_MOST_BODY = 100_000  # bytes of a form
_LOOPBACK = "127.0.0.1"


class ViewServer:
    """Server of a site on loopback, as a context manager. `url` is its first page.

    Forms must carry the site's token, which only its own pages know. `RequestGuard` refuses requests with a foreign Host
    or Origin.
    """

    def __init__(self, site: Site, *, port: int = 0) -> None:
        self._site = site
        site.token = site.token or secrets.token_urlsafe(16)
        self._lock = threading.Lock()
        self._listener = listen(_LOOPBACK, port)
        self.url = f"http://{_LOOPBACK}:{self._listener.getsockname()[1]}/"
        other = listen(_LOOPBACK, 0)
        self._origin = f"http://{_LOOPBACK}:{other.getsockname()[1]}"
        site.frames = FrozenPages(site.shelf, self._origin, self.url.rstrip("/"))
        routes = [Route("/{_:path}", self._get), Route("/{_:path}", self._post, methods=["POST"])]
        frozen = [Route("/{_:path}", site.frames.answer)]
        self._servers = [
            (RequestGuard(Starlette(routes=routes), most=_MOST_BODY), self._listener),
            (RequestGuard(Starlette(routes=frozen), most=0, pages=False, opaque=True), other),
        ]
        self._running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def __enter__(self) -> Self:
        for app, listener in self._servers:
            server = uvicorn.Server(server_config(app, lifespan="off"))
            thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
            thread.start()
            self._running.append((server, thread))
        # An attempt's page takes it from there at once; the first page of all does not wait for it.
        self._ahead = threading.Timer(0.5, import_module, ["stillweb.snapshots.snapshot"])
        self._ahead.daemon = True
        self._ahead.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ahead.cancel()
        for server, _ in self._running:
            server.should_exit = True
        for _, thread in self._running:
            thread.join()
        for _, listener in self._servers:
            listener.close()
        self._site.close()

    @property
    def _policy(self) -> str:
        return (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            f"frame-src {self._origin}; form-action 'self'; base-uri 'none'"
        )

    def _sent(self, page: Page) -> Response:
        fields = dict(page_fields(self._policy))
        fields["Content-Type"] = page.media
        if page.status >= 400:  # a part of a page that asks for itself again gives way to what is wrong
            fields |= {"HX-Retarget": "#main", "HX-Reselect": "#main", "HX-Reswap": "outerHTML"}
        return Response(page.body, page.status, fields)

    def _get(self, request: Request) -> Response:
        query = {
            name: ",".join(values) if name == "run" else values[-1]
            for name, values in parse_qs(request.url.query).items()
        }
        return self._sent(self._site.page(_path(request), query))

    async def _post(self, request: Request) -> Response:
        pairs = parse_qs((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
        form = {name: values[-1] for name, values in pairs.items()}
        return await run_in_threadpool(self._take, request, form)

    def _take(self, request: Request, form: dict[str, str]) -> Response:
        if not same_token(form.get("token", ""), self._site.token):
            return PlainTextResponse(
                "This form is not from a page of this server. Load the page again.\n", 403
            )
        parts = [unquote(part) for part in _path(request).strip("/").split("/")]
        if len(parts) == 4 and (parts[0], parts[2]) == ("run", "attempt"):
            return self._review(request, parts[1], parts[3], form)
        if len(parts) == 6 and (parts[0], parts[2], parts[4]) == ("run", "attempt", "page"):
            return self._sent(self._site.make_step_page(parts[1], parts[3], parts[5]))
        if len(parts) == 5 and (parts[0], parts[2], parts[4]) == ("snapshot", "view", "replay"):
            return self._sent(self._site.replay(parts[1], parts[3]))
        return self._sent(self._site.page(_path(request)))

    def _review(self, request: Request, run: str, attempt: str, form: dict[str, str]) -> Response:
        """Append a review to a trace. A wrong one is explained on the attempt's page, which keeps what was typed."""
        from stillweb.harness.review.reviews import Review, add_review

        query = {name: values[-1] for name, values in parse_qs(request.url.query).items()}
        try:
            table = self._site.table(run)
            try:
                path = table.files.trace_path(form.get("task", ""), int(form.get("attempt") or 0))
                if path.name != f"{attempt}.jsonl" or not path.exists():
                    raise UsageError(
                        f"there is no attempt {form.get('task')}/{form.get('attempt')} of this run"
                    )
                with self._lock:
                    add_review(path, Review.from_mapping(form), of=form.get("trace", ""))
            except (UsageError, ValueError) as error:
                page = self._site.part("run").attempt(run, attempt, query, problem=str(error), filled=form)
                return self._sent(Page(page.body, page.media, UNREADABLE))
        except (StillwebError, OSError) as error:
            return PlainTextResponse(f"Not saved: {error}\n", UNREADABLE)
        table.refresh(1.0, changed=True)
        asked = "".join(f"&{quote(name)}={quote(value)}" for name, value in query.items() if name != "saved")
        return RedirectResponse(
            f"/run/{quote(run, safe='')}/attempt/{quote(attempt, safe='')}?saved=1{asked}#review", 303
        )


def _path(request: Request) -> str:
    """Return the request's path as it was sent, so that an escaped slash stays within its part."""
    raw: Any = request.scope.get("raw_path") or request.scope["path"].encode()
    return str(raw.decode("latin-1").partition("?")[0])
