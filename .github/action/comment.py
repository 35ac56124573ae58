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
    ledger = results / "ledger.jsonl"
    for line in ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ():
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


def told(results: Path, code: int, most: int) -> tuple[str, dict[str, Any]]:
    """Return the comment and the outputs."""
    missed = misses(results)
    compared = results / "compare.json"
    found = json.loads(compared.read_text(encoding="utf-8")) if compared.exists() else None
    worse = list(found["worse"]) if found else []
    failed = []
    if code:
        failed.append(f"the run ended with exit code {code}")
    if missed.total() > most:
        failed.append(f"{missed.total()} misses are over the limit of {most}")
    if worse:
        failed.append(f"{len(worse)} tasks are worse than on main")
    lines = [MARK, f"### Stillweb: {'failed' if failed else 'passed'}", *(f"- {why}" for why in failed), ""]
    if found:
        lines += [
            f"`{found['metric']}` {found['mean_b']:.3f} against {found['mean_a']:.3f} on main; {len(worse)} tasks worse, "
            f"{len(found['better'])} better.",
            "",
        ]
    lines += _list("Worse than on main", worse)
    lines += _list(
        "Not in the snapshot", [f"{what} ({n} times)" if n > 1 else what for what, n in missed.most_common()]
    )
    outputs = {"misses": missed.total(), "regressed": len(worse), "failed": "; ".join(failed)}
    return "\n".join(lines), outputs


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
    text, outputs = told(results, int(os.environ["CODE"] or 0), int(os.environ["MAX_MISSES"]))
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
