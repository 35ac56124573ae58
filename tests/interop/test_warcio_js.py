"""An archive that warcio.js wrote and indexed, the library of ArchiveWeb.page and Browsertrix, packed as a WACZ.

Needs `npm ci --ignore-scripts --prefix benchmarks/wabac`.
"""

import hashlib
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from stillweb.snapshots import Snapshot, verify
from stillweb.snapshots.request import Request

NODE = Path(__file__).parents[2] / "benchmarks" / "wabac"
TOOL = NODE / "node_modules" / "warcio" / "dist" / "cli.js"
HOST = "https://site.example"
JSON = {"Content-Type": "application/json", "Accept": "*/*"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def exchange(
    path: str, answer: str, method: str = "GET", headers: dict[str, str] | None = None, body: str = ""
) -> dict[str, object]:
    return {
        "url": HOST + path, "method": method, "headers": headers or {"Accept": "*/*"}, "body": body,
        "status": "200 OK", "answer": answer, "mime": "text/html" if method == "GET" else "application/json",
    }  # fmt: skip


EXCHANGES = [
    exchange("/", "<title>home</title>caf\u00e9"),
    exchange("/api", '{"ok":1}', "POST", JSON, '{"a": 1, "b": [1, 2]}'),
    exchange("/form", '{"made":1}', "POST", FORM, "a=1&b=2"),
]


@pytest.mark.skipif(not TOOL.exists() or shutil.which("node") is None, reason="warcio.js is not installed")
def test_what_warcio_js_wrote_is_served_and_told_apart(tmp_path: Path) -> None:
    warc = tmp_path / "js.warc.gz"
    subprocess.run(
        ["node", str(NODE / "write.mjs"), str(warc)], input=json.dumps(EXCHANGES).encode(), check=True
    )
    index = subprocess.run(
        ["node", str(TOOL), "cdx-index", str(warc)], capture_output=True, check=True
    ).stdout
    assert index.count(b"\n") == len(EXCHANGES)
    pages = (
        b'{"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}\n'
        + json.dumps({"id": "1", "url": f"{HOST}/", "ts": "2025-02-03T04:05:06Z", "title": "home"}).encode()
    )
    files = {
        "archive/js.warc.gz": warc.read_bytes(),
        "indexes/index.cdxj": index,
        "pages/pages.jsonl": pages + b"\n",
    }
    listed = [
        {"name": Path(n).name, "path": n, "hash": f"sha256:{hashlib.sha256(b).hexdigest()}", "bytes": len(b)}
        for n, b in files.items()
    ]
    with zipfile.ZipFile(tmp_path / "js.wacz", "w") as package:
        for name, data in files.items():
            package.writestr(name, data)
        about = {"profile": "data-package", "wacz_version": "1.1.1", "resources": listed}
        package.writestr("datapackage.json", json.dumps(about))
    assert verify(tmp_path / "js.wacz") == []
    for path in (warc, tmp_path / "js.wacz"):
        with Snapshot.open(path) as snapshot:
            assert snapshot.notes == []
            for request, answer in (
                (Request("GET", f"{HOST}/"), EXCHANGES[0]["answer"]),
                (_post("/api", JSON, b'{"b":[1,2],"a":1}'), EXCHANGES[1]["answer"]),
                (_post("/form", FORM, b"b=2&a=1"), EXCHANGES[2]["answer"]),
                (_post("/api", JSON, b'{"b":[2,1],"a":1}'), None),
                (_post("/form", FORM, b"b=2&a=2"), None),
            ):
                capture = snapshot.matcher().lookup(request).capture
                assert (capture and snapshot.read(capture).body.decode()) == answer


def _post(path: str, headers: dict[str, str], body: bytes) -> Request:
    return Request("POST", HOST + path, tuple(headers.items()), body)
