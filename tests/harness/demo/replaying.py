"""Replay of a browsing of 20 steps, in a process of its own: `python -m tests.harness.demo.replaying SNAPSHOT`.

Prints a JSON object: for each step the hashes of its accessibility snapshot, its screenshot and the tool's whole
answer, and the hash of what the ledger says was asked and answered, in its order and sorted.
"""

import asyncio
import hashlib
import json
import re
import sys
from typing import Any

from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.toolset import Toolset
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.snapshot import Snapshot
from tests.support.shared_driver import use_shared_drivers

DATA, DESK = "https://data.example", "https://desk.example"
# A word in angle brackets is the reference of the first line of the last snapshot that matches it.
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("browser_navigate", {"url": f"{DATA}/open/penguins"}),
    ("browser_click", {"target": '<link "Chinstrap"'}),
    ("browser_click", {"target": '<link "female"'}),
    ("browser_click", {"target": '<link "2008"'}),
    ("browser_click", {"target": 'th[data-column="body_mass_g"] a'}),
    ("browser_click", {"target": 'th[data-column="body_mass_g"] a'}),
    ("browser_navigate", {"url": f"{DESK}/electricity"}),
    ("browser_click", {"target": '<tab "Nuclear Energy"'}),
    ("browser_wait_for", {"time": 2}),
    ("browser_navigate", {"url": f"{DATA}/open/weather"}),
    ("browser_click", {"target": '<link "Next page"'}),
    ("browser_navigate", {"url": f"{DESK}/weather"}),
    ("browser_select_option", {"target": '<combobox "Year"', "values": ["2012"]}),
    ("browser_select_option", {"target": '<combobox "Month"', "values": ["01"]}),
    ("browser_select_option", {"target": '<combobox "Weather"', "values": ["snow"]}),
    ("browser_click", {"target": '<button "Apply filter"'}),
    ("browser_select_option", {"target": '<combobox "Month"', "values": ["06"]}),
    ("browser_select_option", {"target": '<combobox "Weather"', "values": ["rain"]}),
    ("browser_click", {"target": '<button "Apply filter"'}),
    ("browser_navigate", {"url": "VIEW"}),
]


def digest(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()[:16]


def target(given: dict[str, Any], snapshot: str) -> dict[str, Any]:
    """The arguments with a reference in the place of a pattern."""
    wanted = given.get("target", "")
    if not wanted.startswith("<"):
        return given
    line = next((line for line in snapshot.splitlines() if wanted[1:] in line), None)
    assert line is not None, f"{wanted} is not on the page"
    found = re.search(r"\[ref=(\w+)\]", line)
    assert found is not None, line
    return {**given, "target": found[1]}


def text(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


async def browse(path: str) -> dict[str, Any]:
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway:
        browser = SharedBrowser(ca=gateway.ca_path)
        toolset = Toolset(snapshot, ["playwright-mcp"], gateway=gateway, browser=browser)
        session = toolset.session("replay")
        last = max((view for view in snapshot.views() if view.steps), key=lambda view: view.address)
        seen = ""
        steps = []
        try:
            for name, given in STEPS:
                given = {**given, "url": last.address} if given.get("url") == "VIEW" else target(given, seen)
                answer = await session.call(name, given)
                assert not answer.is_error, (name, given, text(answer.content))
                seen = text((await session.call("browser_snapshot", {})).content)
                shot = await session.call("browser_take_screenshot", {})
                png = next(part["data"] for part in shot.content if part["type"] == "image")
                state = json.dumps(answer.meta.get("state"), sort_keys=True)
                steps.append(
                    {"aria": digest(seen), "png": digest(png), "answer": digest(text(answer.content) + state)}
                )
        finally:
            await session.close()
            await toolset.close()
            browser.close()
        ledger = gateway.ledger
        return {
            "steps": steps,
            "requests": ledger.hash(ordered=False),
            "order": ledger.hash(),
            "misses": [entry["url"] for entry in ledger.misses() if not entry["irrelevant"]],
            "count": len(ledger.entries()),
        }


def summary(runs: list[dict[str, Any]]) -> str:
    """Return how many different results several replays have of each kind, and where, as text."""
    lines = [
        f"{len(runs)} replays of {len(runs[0]['steps'])} steps, {runs[0]['count']} requests in the first"
    ]
    for kind, name in (
        ("aria", "accessibility snapshots"),
        ("png", "screenshots"),
        ("answer", "answers of the tools"),
    ):
        different = [
            number for number, steps in enumerate(zip(*(run["steps"] for run in runs), strict=True), start=1)
            if len({step[kind] for step in steps}) > 1
        ]  # fmt: skip
        lines.append(f"{name}: {f'differ at steps {different}' if different else 'identical'}")
    for kind, name in (("requests", "requests"), ("order", "requests in their order"), ("misses", "misses")):
        kinds = len({json.dumps(run[kind]) for run in runs})
        lines.append(f"{name}: {'identical' if kinds == 1 else f'{kinds} different ones'}")
    return "\n".join(lines)


if __name__ == "__main__":
    use_shared_drivers()
    sys.stdout.write(json.dumps(asyncio.run(browse(sys.argv[1]))) + "\n")
