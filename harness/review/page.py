"""The review page: served on loopback for reviewers of this machine, or exported as one file.

with ReviewServer(run) as server: print(server.url)
export_review(run, out)         forms save into a file of the browser; take it in with import_reviews
"""

from __future__ import annotations

import base64
import secrets
import threading
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

from markupsafe import Markup

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
from stillweb.snapshots.archives.appending import write_text
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError

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
    """The page. Attempts that are wholly right are left out unless `everything`; "" as token makes it static."""
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    items: list[dict[str, Any]] = []
    left_out = unfinished = 0
    with Screenshots.of(snapshots_now(path, settings.snapshots), stands_on.get("snapshot")) as screenshots:
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
    script = (_HERE / "review.js").read_text(encoding="utf-8")
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
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
        script=Markup(script),
        script_digest=digest,
    )


def export_review(path: Path, out: Path) -> Path:
    """Writes the page as one file that needs no server."""
    write_text(out, review_html(path))
    return out


class ReviewServer:
    """Serves the page on loopback; reviews are checked and appended to the traces. A context manager.

    Only requests that name this host and carry the page's token are heard, so that no other page in the browser
    can write a review.
    """

    def __init__(self, path: Path, *, port: int = 0, everything: bool = False) -> None:
        RunFiles(path).manifest()
        self._path, self._everything = path, everything
        self._token = secrets.token_urlsafe(16)
        self._lock = threading.Lock()
        review = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                return

            def do_GET(self) -> None:
                review.get(self)

            def do_POST(self) -> None:
                review.post(self)

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise MissingCapability(f"port {port}: {error.strerror}; choose another with --port") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def get(self, request: BaseHTTPRequestHandler) -> None:
        """Answers with the page."""
        if not self._ours(request):
            return _send(request, 403, "This page is for this machine only.")
        if urlsplit(request.path).path != "/":
            return _send(request, 404, "There is only one page here.")
        return self._page(request, 200)

    def post(self, request: BaseHTTPRequestHandler) -> None:
        """Takes a review; what does not hold is said on the page, with what was filled in kept."""
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _MOST_BODY:
            return _send(request, 413, "The form is too large.")
        pairs = parse_qs(request.rfile.read(int(length)).decode("utf-8", "replace"), keep_blank_values=True)
        form = {name: values[-1] for name, values in pairs.items()}
        if not self._ours(request) or not secrets.compare_digest(form.get("token", ""), self._token):
            return _send(request, 403, "This form is not from this page.")
        try:
            path = RunFiles(self._path).trace_path(form.get("task", ""), int(form.get("attempt") or 0))
            if not path.exists():
                raise UsageError(f"there is no attempt {form.get('task')}/{form.get('attempt')}")
            with self._lock:
                add_review(path, Review.from_mapping(form), of=form.get("trace", ""))
        except (UsageError, ValueError) as error:
            return self._page(request, 422, problem=str(error), filled=form)
        except (StillwebError, OSError) as error:
            return _send(request, 500, f"Not saved: {error}")
        request.send_response(303)
        request.send_header("Location", f"/?saved=1#{quote(form.get('anchor', ''))}")
        request.send_header("Content-Length", "0")
        request.end_headers()
        return None

    def _page(self, request: BaseHTTPRequestHandler, status: int, **more: Any) -> None:
        try:
            text = review_html(self._path, token=self._token, everything=self._everything, **more)
        except (
            StillwebError,
            OSError,
        ) as error:  # a trace that was damaged since: said, and the server goes on
            status, text = 500, f"The run can't be shown: {error}"
        _send(request, status, text)

    def _ours(self, request: BaseHTTPRequestHandler) -> bool:
        port = self._server.server_port
        return request.headers.get("host") in (f"127.0.0.1:{port}", f"localhost:{port}")


def _send(request: BaseHTTPRequestHandler, status: int, text: str) -> None:
    data = text.encode("utf-8", "replace")
    request.send_response(status)
    kind = "text/html" if text.lstrip().startswith("<!DOCTYPE") else "text/plain"
    request.send_header("Content-Type", f"{kind}; charset=utf-8")
    request.send_header("Content-Length", str(len(data)))
    request.send_header("Cache-Control", "no-store")
    request.end_headers()
    request.wfile.write(data)
