"""A Hugging Face hub on loopback with one data set: what huggingface_hub asks for to read and to commit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGE = 10_000  # bytes from which a file goes through LFS, as far as this hub is concerned


@dataclass
class Hub:
    """The hub's address for HF_ENDPOINT, its commits, and the paths asked for."""

    name: str
    token: str  # of the one account; "" lets everybody do everything
    url: str = ""
    asked: list[str] = field(default_factory=list)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)  # of branches and tags
    large: dict[str, bytes] = field(default_factory=dict)  # what LFS holds, by SHA-256
    sent: int = 0  # bytes of files that arrived
    failing: str = ""  # requests of a path that has this in it are refused
    cut_after: int = -1  # large files that are taken before the line is cut

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """Add files to a branch; the new commit."""
        now = {**self.commits.get(self.refs.get(ref, ""), {}), **files}
        made = hashlib.sha1(
            f"{len(self.commits)} {sorted((n, _digest(d)) for n, d in now.items())}".encode(),
            usedforsecurity=False,
        ).hexdigest()
        self.commits[made], self.refs[ref] = now, made
        return made

    def answer(
        self, method: str, path: str, sent: bytes, given: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, the fields and the body that answer a request."""
        name = re.escape(self.name)
        if self.failing and self.failing in path:
            return 403, {}, b"{}"
        if self.token and given != f"Bearer {self.token}" and not path.startswith("/large/"):
            return 401, {"X-Error-Message": "Invalid credentials"}, b"{}"
        if method == "POST" and path == "/api/repos/create":
            exists = bool(self.commits)
            if not exists:
                self.commit({})
            return 409 if exists else 200, {}, _json({"url": f"{self.url}/datasets/{self.name}"})
        if path == "/api/validate-yaml":
            return 200, {}, _json({"errors": [], "warnings": []})
        if not self.commits:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if found := re.fullmatch(rf"/api/datasets/{name}(?:/revision/(.+))?", path):
            at = self._at(found[1] or "main")
            if at is None:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            files = [
                {"rfilename": n, "size": len(d), "blobId": _digest(d), **_lfs(d)}
                for n, d in self.commits[at].items()
            ]
            return 200, {}, _json({"id": self.name, "sha": at, "siblings": files})
        if found := re.fullmatch(rf"/api/datasets/{name}/tree/([^/]+).*", path):
            listed = self.commits[self._at(found[1]) or ""]
            return (
                200,
                {},
                _json(
                    [
                        {"type": "file", "path": n, "size": len(d), "oid": _digest(d)}
                        for n, d in listed.items()
                    ]
                ),
            )
        if found := re.fullmatch(rf"/datasets/{name}/resolve/([^/]+)/(.+)", path):
            at = self._at(found[1])
            data = self.commits.get(at or "", {}).get(found[2])
            if data is None:
                return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
            return (
                200,
                {"ETag": f'"{_digest(data)}"', "X-Repo-Commit": str(at), "Content-Type": "text/plain"},
                data,
            )
        if found := re.fullmatch(rf"/api/datasets/{name}/preupload/(.+)", path):
            there = self.commits[self._at(found[1]) or ""]
            modes = [
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if one["size"] >= LARGE else "regular",
                    "shouldIgnore": False,
                    "oid": _digest(there[one["path"]]) if one["path"] in there else None,
                }
                for one in json.loads(sent)["files"]
            ]
            return 200, {}, _json({"files": modes})
        if path == f"/datasets/{self.name}.git/info/lfs/objects/batch":
            objects = [
                {
                    **one,
                    **(
                        {}
                        if one["oid"] in self.large
                        else {"actions": {"upload": {"href": f"{self.url}/large/{one['oid']}"}}}
                    ),
                }
                for one in json.loads(sent)["objects"]
            ]
            return 200, {}, _json({"transfer": "basic", "objects": objects})
        if method == "PUT" and path.startswith("/large/"):
            if self.cut_after == 0:
                return 403, {}, b"{}"
            self.cut_after -= 1
            self.large[path.rpartition("/")[2]] = sent
            self.sent += len(sent)
            return 200, {}, b""
        if found := re.fullmatch(rf"/api/datasets/{name}/commit/(.+)", path):
            files = {}
            for line in map(json.loads, sent.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                    self.sent += len(files[value["path"]])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.large[value["oid"]]
            made = self.commit(files, found[1])
            return (
                200,
                {},
                _json(
                    {
                        "success": True,
                        "commitOid": made,
                        "commitUrl": f"{self.url}/datasets/{self.name}/commit/{made}",
                    }
                ),
            )
        return 404, {}, b"{}"

    def _at(self, revision: str) -> str | None:
        return self.refs.get(revision, revision if revision in self.commits else None)


@contextmanager
def hub(name: str, files: Mapping[str, bytes] | None = None, *, token: str = "") -> Iterator[Hub]:
    """A hub that holds `files` on its branches main and v1, or that holds no data set yet."""
    stand = Hub(name, token)
    if files is not None:
        stand.refs["v1"] = stand.commit(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            return

        def _answer(self) -> None:
            stand.asked.append(self.path)
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    sent += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            path = self.path.partition("?")[0]
            status, headers, data = stand.answer(self.command, path, sent, self.headers.get("Authorization"))
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if status == 200 and asked:
                headers["Content-Range"] = f"bytes {asked[1]}-{asked[2]}/{len(data)}"
                status, data = 206, data[int(asked[1]) : int(asked[2]) + 1]
            self.send_response(status)
            fields = {"Content-Type": "application/json", **headers, "Content-Length": str(len(data))}
            for field_, value in fields.items():
                self.send_header(field_, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stand.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stand
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _lfs(data: bytes) -> dict[str, Any]:
    if len(data) < LARGE:
        return {}
    return {"lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}


def _digest(data: bytes) -> str:
    """The id that Git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
