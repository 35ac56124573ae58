"""Environments: resets and steps a second, memory of many at once. `python -m benchmarks.environments [N] [--browser]`."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import stillweb
from stillweb.harness.environment import Environment
from tests.harness.tools.frozen import BIRDS, make_site


def memory() -> float:
    """Return MB in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main(count: int, browser: bool) -> None:
    """Print the figures of `count` attempts."""
    contract, step = (
        ("playwright-mcp", {"tool": "browser_navigate", "arguments": {"url": BIRDS}})
        if browser
        else ("fetch", {"tool": "fetch", "arguments": {"url": BIRDS}})
    )
    with tempfile.TemporaryDirectory() as folder:
        make_site(Path(folder) / "site").close()
        task = {"question": "Which bird?", "answer": "robin"}
        with stillweb.env(Path(folder) / "site", task, contracts=[contract]) as env:
            env.reset()
            env.step(step)
            begin = time.perf_counter()
            for _ in range(count):
                env.reset()
            resets = count / (time.perf_counter() - begin)
            begin = time.perf_counter()
            for _ in range(count):
                env.reset()
                env.step(step)
                env.step({"answer": "robin"})
            whole = count / (time.perf_counter() - begin)
            before = memory()
            others = [env.another() for _ in range(count if not browser else min(count, 20))]

            def play(one: Environment) -> float:
                one.reset()
                one.step(step)
                return one.taken

            with ThreadPoolExecutor(8) as pool:
                begin = time.perf_counter()
                assert all(pool.map(play, others))
                at_once = len(others) / (time.perf_counter() - begin)
            more = (memory() - before) * 1000 / len(others)
            sys.stdout.write(
                f"{contract}: {resets:.0f} resets/s; {whole:.0f} attempts/s of reset, one call, answer; {len(others)} sessions "
                f"at once: {at_once:.0f}/s, {more:.1f} kB each, {memory():.0f} MB in all\n"
            )
            for one in others:
                one.close()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    main(numbers[0] if numbers else 1000, "--browser" in sys.argv)
