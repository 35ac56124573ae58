"""Review page: served on loopback for reviewers of this machine, or exported as one file.

with ReviewServer(run) as server: print(server.url)
export_review(run, out)         forms save to a file in the browser, to be read by import_reviews
"""

from __future__ import annotations

import base64
import secrets
import threading
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from stillweb.harness.report import Screenshots, render, sheet_of
from stillweb.harness.review.reviews import (
    CLASSES,
    COMPOSITION,
    Review,
    add_review,
    agreement,
    hints_of,
    latest_reviews,
)
from stillweb.harness.runs.moved import snapshots_now
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.servers.guarded import Guarded, configured, listening
from stillweb.proxy.net.own_pages import page_fields, same_token
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.warc.appending import write_text

_MOST_BODY = 100_000
_HERE = Path(__file__).parent


def review_html(
    path: Path,
    *,
    token: str = "",
    problem: str = "",
    filled: dict[str, str] | None = None,
    everything: bool = False,
) -> str:
    """Return the page.

    Fully right attempts are left out unless `everything`; without `token` it is static.
    """
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    items: list[dict[str, Any]] = []
    left_out = unfinished = 0
    with Screenshots.of(
        snapshots_now(path, settings.snapshots), stands_on.get("snapshot"), settings.at
    ) as screenshots:
        for _task, _number, trace in files.attempts():
            if trace is None:
                unfinished += 1
                continue
            sheet = sheet_of(trace, screenshots)
            if sheet.perfect and not everything:
                left_out += 1
                continue
            hints = hints_of(trace)
            items.append(
                {
                    "sheet": sheet,
                    "hints": hints,
                    "open": any(hint.upstream for hint in hints),
                    "reviews": list(latest_reviews(trace).values()),
                    "steps": [
                        event["n"]
                        for event in trace.events
                        if event["event"] in ("tool_call", "model", "state")
                    ],
                    "last": len(trace.events),
                    "trace": trace.hash,
                }
            )
        problems = screenshots.problems
    return render(
        "review.html",
        _HERE,
        items=items,
        run=sha256("".join(item["trace"] for item in items).encode()).hexdigest()[:16],
        left_out=left_out,
        unfinished=unfinished,
        classes=CLASSES,
        composition=COMPOSITION,
        agreements=agreement(path),
        problems=problems,
        token=token,
        problem=problem,
        filled=filled or {},
        script=Markup(_script()),
        policy=_policy(token),
    )


def _script() -> str:
    return (_HERE / "review.js").read_text(encoding="utf-8")


def _policy(token: str) -> str:
    """Return the page's Content-Security-Policy: it may run its one script and send its forms."""
    digest = base64.b64encode(sha256(_script().encode()).digest()).decode()
    return f"; script-src 'sha256-{digest}'; form-action '{'self' if token else 'none'}'; base-uri 'none'"


def export_review(path: Path, out: Path) -> Path:
    """Write the page as one file that needs no server."""
    write_text(out, review_html(path))
    return out


class ReviewServer:
    """Server of the page on loopback, as a context manager. Reviews are checked and appended to the traces.

    A review must carry the page's token, so that no other page in the browser can write one; `Guarded`
    refuses foreign requests.
    """

    def __init__(self, path: Path, *, port: int = 0, everything: bool = False) -> None:
        import uvicorn

        RunFiles(path).manifest()
        self._path, self._everything = path, everything
        self._token = secrets.token_urlsafe(16)
        self._lock = threading.Lock()
        routes = [Route("/", self._get), Route("/{_:path}", self._post, methods=["POST"])]
        app = Guarded(Starlette(routes=routes), most=_MOST_BODY)
        self._listener = listening("127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._server = uvicorn.Server(configured(app, lifespan="off"))
        sockets = [self._listener]
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def _get(self, request: Request) -> Response:
        return self._page(200)

    async def _post(self, request: Request) -> Response:
        """Accept a review. An invalid one is explained on the page, which keeps the entries."""
        pairs = parse_qs((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
        return await run_in_threadpool(self._take, {name: values[-1] for name, values in pairs.items()})

    def _take(self, form: dict[str, str]) -> Response:
        if not same_token(form.get("token", ""), self._token):
            return PlainTextResponse("This form is not from this page.", 403)
        try:
            path = RunFiles(self._path).trace_path(form.get("task", ""), int(form.get("attempt") or 0))
            if not path.exists():
                raise UsageError(f"there is no attempt {form.get('task')}/{form.get('attempt')}")
            with self._lock:
                add_review(path, Review.from_mapping(form), of=form.get("trace", ""))
        except (UsageError, ValueError) as error:
            return self._page(422, problem=str(error), filled=form)
        except (StillwebError, OSError) as error:
            return PlainTextResponse(f"Not saved: {error}", 500)
        return RedirectResponse(f"/?saved=1#{quote(form.get('anchor', ''))}", 303)

    def _page(self, status: int, **more: Any) -> Response:
        try:
            text = review_html(self._path, token=self._token, everything=self._everything, **more)
        except (
            StillwebError,
            OSError,
        ) as error:  # e.g. a damaged trace: shown to the reviewer, and the server continues
            return PlainTextResponse(f"The run can't be shown: {error}", 500)
        data = text.encode("utf-8", "replace")
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{_policy(self._token)}"
        return HTMLResponse(data, status, dict(page_fields(policy)))
