"""The GitHub Action, its steps run as a runner runs them, with a stand-in for GitHub's comments on loopback."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillweb.snapshots.wacz import seal
from tests.snapshots.making import small_snapshot

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = "http://example.test/"


@contextmanager
def github(others: int = 0) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The API's address, and the comments of a pull request: first `others` of other people."""
    comments: list[dict[str, Any]] = [{"id": n, "body": f"nice {n}"} for n in range(others)]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            return

        def _answer(self) -> None:
            value = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            given, path, link = self.headers.get("Authorization"), self.path, ""
            status, body = 200, None
            if given != "Bearer synthetic":
                status = 403
            elif self.command == "POST" and path == "/repos/o/r/issues/7/comments":
                comments.append({"id": len(comments), **value})
            elif self.command == "PATCH" and (
                found := re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path)
            ):
                comments[int(found[1])] |= value
            elif self.command == "GET" and path.startswith("/repos/o/r/issues/7/comments?per_page=100"):
                page = int(path.partition("&page=")[2] or 1)
                body = comments[100 * (page - 1) : 100 * page]
                if len(comments) > 100 * page:
                    link = f'<{url}/repos/o/r/issues/7/comments?per_page=100&page={page + 1}>; rel="next"'
            else:
                status = 404
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if link:
                self.send_header("Link", link)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield url, comments
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def act(
    folder: Path,
    api: str,
    path: str,
    *,
    ref: str = "refs/pull/7/merge",
    token: str = "synthetic",
    **inputs: str,
) -> dict[str, Any]:
    """Run the action's steps; the output of each, its exit code, and the outputs."""
    work = folder / f"work{len(list(folder.glob('work*')))}"
    work.mkdir(parents=True)
    (folder / "event.json").write_text(json.dumps({"pull_request": {"number": 7}} if "pull" in ref else {}))
    values = {f"inputs.{name}": str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
    values["inputs.token"] = token
    told: dict[str, Any] = {}
    for step in ACTION["runs"]["steps"]:
        if "uses" in step or step["name"] == "Install Stillweb":
            continue

        def filled(text: str) -> str:
            return re.sub(r"\$\{\{ *([^ ]+) *\}\}", lambda found: values.get(found[1], ""), text)

        out = folder / "output"
        out.write_text("")
        env: Mapping[str, str] = {
            **os.environ,
            **{name: filled(str(value)) for name, value in step.get("env", {}).items()},
            "PATH": path,
            "GITHUB_OUTPUT": str(out),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_REF": ref,
            "GITHUB_API_URL": api,
            "GITHUB_ACTION_PATH": str(ROOT),
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
        for line in out.read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step['id']}.outputs.{name}"] = told[name] = value
        told[step["name"]] = done.returncode
        if done.returncode:
            told["error"] = done.stdout + done.stderr
            break
    told["results"] = work / "stillweb-results"
    return told


@pytest.fixture
def site(tmp_path: Path) -> str:
    small_snapshot(tmp_path / "site")
    return str(seal(tmp_path / "site").path)


@pytest.mark.slow
def test_a_run_is_compared_with_main_in_one_comment(site: str, tmp_path: Path, commands_path: str) -> None:
    home = {"id": "home", "question": "?", "answer": "Hello"}
    table = {"id": "list", "question": "?", "columns": ["id"], "row_key": ["id"], "table": [["a"]]}
    (tmp_path / "tasks.jsonl").write_text(f"{json.dumps(home)}\n{json.dumps(table)}\n")
    agents = {
        "good": (PAGE, "Hello", "id\na"),
        "bad": (f"{PAGE}none", "x", "id\na"),
        "half": (PAGE, "Hello", "id\nb"),
    }
    for name, (url, answer, rows) in agents.items():
        step = {"call": "fetch", "with": {"url": url}}
        tasks = {"home": {"steps": [step], "answer": answer}, "list": {"steps": [], "answer": rows}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"agent": "script", "tasks": tasks}))
    given = {"snapshot": site, "tasks": str(tmp_path / "tasks.jsonl"), "baseline": str(tmp_path / "baseline")}
    with github(others=130) as (api, comments):
        main = act(
            tmp_path, api, commands_path, ref="refs/heads/main", agent=str(tmp_path / "good.yaml"), **given
        )
        assert (main.get("error"), main["Decide"], len(comments)) == (None, 0, 130)
        bad = act(tmp_path, api, commands_path, agent=str(tmp_path / "bad.yaml"), **given)
        assert (bad["misses"], bad["regressed"], bad["Decide"]) == ("1", "1", 1)
        (mine,) = [one["body"] for one in comments if "stillweb" in one["body"]]
        assert "Worse than on main: 1" in mine
        assert f"{PAGE}none" in mine
        assert {"report.html", "compare.html", "comment.md"} <= {p.name for p in bad["results"].iterdir()}
        unfit = act(
            tmp_path, api, commands_path, ref="refs/heads/main", agent=str(tmp_path / "bad.yaml"), **given
        )
        assert (unfit["Decide"], "Publish as main's run" in unfit) == (1, False)
        half = act(tmp_path, api, commands_path, agent=str(tmp_path / "half.yaml"), **given)
        assert (half["misses"], half["regressed"], half["Decide"]) == ("0", "1", 1)
        (mine,) = [one["body"] for one in comments if "stillweb" in one["body"]]
        assert "`exact` 1.000 against 1.000 on main" in mine
        assert "`em` 0.000 against 1.000 on main" in mine
        good = act(tmp_path, api, commands_path, agent=str(tmp_path / "good.yaml"), **given)
        assert (good["misses"], good["regressed"], good["Decide"]) == ("0", "0", 0)
        (mine,) = [one["body"] for one in comments if "stillweb" in one["body"]]
        assert "Stillweb: passed" in mine
        assert len(comments) == 131


@pytest.mark.slow
def test_a_command_is_answered_from_the_snapshot_and_its_misses_are_told(
    site: str, tmp_path: Path, commands_path: str
) -> None:
    with github() as (api, comments):
        command = f"curl -s {PAGE} >/dev/null; curl -s {PAGE}none {PAGE}none >/dev/null; exit 0"
        told = act(tmp_path, api, commands_path, snapshot=site, command=command)
        assert (told["misses"], told["Decide"]) == ("2", 1)
        assert f"GET {PAGE}none (2 times)" in comments[0]["body"]
        allowed = act(
            tmp_path, api, commands_path, token="of a fork", snapshot=site, command=command, max_misses="2"
        )
        assert (allowed["Comment"], allowed["Decide"], len(comments)) == (0, 0, 1)
        failing = act(tmp_path, api, commands_path, snapshot=site, command="exit 3")
        assert "the run ended with exit code 3" in failing["failed"]


@pytest.mark.slow
def test_a_snapshot_that_can_not_be_restored_ends_the_action(tmp_path: Path, commands_path: str) -> None:
    with github() as (api, comments):
        told = act(tmp_path, api, commands_path, snapshot=str(tmp_path / "none.wacz"), command="true")
    assert told["Restore the snapshot"] != 0
    assert "no such file" in told["error"]
    assert comments == []
