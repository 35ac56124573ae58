"""Write the one comment of a pull request: misses, regressed tasks, and what failed. `python comment.py RESULTS`.

Python's own library only. The same text goes into the job's summary; outputs are misses, regressed and failed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "<!-- stillweb -->"
MOST = 20  # rows of a list


def misses(results: Path) -> Counter[str]:
    """Return how often each address was missed."""
    found: Counter[str] = Counter()
    for line in _read(results / "ledger.jsonl").splitlines():
        entry = json.loads(line)
        if entry["verdict"] == "miss" and not entry.get("irrelevant"):
            found[f"{entry['method']} {entry['url']}"] += 1
    for trace in sorted((results / "run" / "traces").glob("*.jsonl")):
        for line in trace.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["event"] == "tool_call" and event.get("verdict") == "miss":
                what = json.dumps(event.get("arguments", {}), sort_keys=True, ensure_ascii=False)
                found[f"{event['tool']} {what}"] += 1
    return found


def told(results: Path, code: int, compared: int, most: int) -> tuple[str, dict[str, Any]]:
    """Return the comment and the outputs. `code` and `compared` are exit codes of the run and the comparison."""
    missed = misses(results)
    text = _read(results / "compare.json")
    found = json.loads(text) if text else None
    parts = [found, *found.get("others", ())] if found else []
    worse = list(dict.fromkeys(task for part in parts for task in part["worse"]))
    failed = []
    if code:
        failed.append(f"the run ended with exit code {code}")
    if missed.total() > most:
        failed.append(f"{missed.total()} misses are over the limit of {most}")
    if compared:
        *_, why = ["no reason was given", *_read(results / "compare.txt").splitlines()]
        failed.append(f"compared with main: {why.removeprefix('stillweb: ')}")
    lines = [MARK, f"### Stillweb: {'failed' if failed else 'passed'}", *(f"- {why}" for why in failed), ""]
    for part in parts:
        lines += [
            f"`{part['metric']}` {part['mean_b']:.3f} against {part['mean_a']:.3f} on main; {len(part['worse'])} tasks worse, "
            f"{len(part['better'])} better, {len(part['left_out'])} not compared.",
            "",
        ]
    lines += _list("Worse than on main", worse)
    lines += _list("Not compared", [f"{task}: {why}" for part in parts for task, why in part["left_out"]])
    lines += _list(
        "Not in the snapshot", [f"{what} ({n} times)" if n > 1 else what for what, n in missed.most_common()]
    )
    outputs = {"misses": missed.total(), "regressed": len(worse), "failed": "; ".join(failed)}
    return "\n".join(lines), outputs


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _list(title: str, items: list[str]) -> Iterator[str]:
    if not items:
        return
    yield f"<details open><summary>{title}: {len(items)}</summary>\n"
    for item in items[:MOST]:
        yield f"- `{item.replace('`', chr(39))[:300]}`"
    if len(items) > MOST:
        yield f"- … and {len(items) - MOST} more: see the artefact"
    yield "\n</details>"


def ask(method: str, path: str, value: Any = None) -> tuple[Any, str]:
    """Return GitHub's answer and the address of its next page."""
    base = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Accept": "application/vnd.github+json"}
    data = None if value is None else json.dumps(value).encode()
    url = path if "://" in path else base + path
    request = urllib.request.Request(url, data, headers | {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        following = re.search(r'<([^>]+)>; rel="next"', answer.headers.get("Link") or "")
        return json.loads(answer.read() or b"null"), following[1] if following else ""


def comment(text: str) -> None:
    """Make or replace the comment; nothing outside of a pull request."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    number = (event.get("pull_request") or {}).get("number")
    if number is None:
        return
    base = f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    page = f"{base}/{number}/comments?per_page=100"
    while page:
        found, page = ask("GET", page)
        for one in found:
            if one["body"].startswith(MARK):
                ask("PATCH", f"{base}/comments/{one['id']}", {"body": text})
                return
    ask("POST", f"{base}/{number}/comments", {"body": text})


def main(results: Path) -> None:
    """Write summary, outputs and comment."""
    code, compared = int(os.environ["CODE"] or 0), int(os.environ["COMPARED"] or 0)
    text, outputs = told(results, code, compared, int(os.environ["MAX_MISSES"]))
    with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as summary:
        summary.write(text + "\n")
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as output:
        output.writelines(f"{name}={value}\n" for name, value in outputs.items())
    (results / "comment.md").write_text(text, encoding="utf-8")
    try:
        comment(text)
    except urllib.error.HTTPError as error:  # a fork's token may not comment: the summary has it all
        sys.stdout.write(f"::warning::no comment was written: GitHub answered {error.code}\n")


main(Path(sys.argv[1]))
