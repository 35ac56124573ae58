"""A data set on a scripted Hugging Face hub on loopback: what huggingface_hub asks for, and nothing more."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "a" * 40


@contextmanager
def hub(name: str, files: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Its URL (for HF_ENDPOINT), and the paths asked for."""
    asked: list[str] = []
    head = f"/datasets/{name}/resolve/"

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            return

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            asked.append(self.path)
            path = self.path.partition("?")[0]
            headers = {"Content-Type": "application/json"}
            if path.startswith(f"/api/datasets/{name}/revision/"):
                body = json.dumps({"id": name, "sha": COMMIT, "siblings": [{"rfilename": f} for f in files]})
                data = body.encode()
            elif path.startswith(f"/api/datasets/{name}/tree/"):
                listed = [
                    {"type": "file", "path": f, "size": len(d), "oid": _digest(d)} for f, d in files.items()
                ]
                data = json.dumps(listed).encode()
            elif path.startswith(head) and path[len(head) :].partition("/")[2] in files:
                data = files[path[len(head) :].partition("/")[2]]
                headers = {
                    "ETag": f'"{_digest(data)}"',
                    "X-Repo-Commit": COMMIT,
                    "Content-Type": "text/plain",
                }
            else:
                self.send_error(404)
                return
            self.send_response(200)
            for field, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(field, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _digest(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
