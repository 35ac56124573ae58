"""The BrowserGym example, on a small recorded site."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record
from tests.support.waiting import STARTS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "browsergym" / "agent.py"
FRONT = b"<!doctype html><title>Birds</title><h1>Birds</h1><a href='/robin'>Robin</a> <a href='/owl'>Owl</a>"


def test_a_browsergym_agent_is_rewarded_on_a_recorded_site(tmp_path: Path) -> None:
    pytest.importorskip("browsergym.core")
    with Writer.open(tmp_path / "site") as writer:
        record(writer, "http://birds.test/", FRONT)
        record(
            writer, "http://birds.test/robin", b"<!doctype html><title>R</title><h1>Erithacus rubecula</h1>"
        )
    task = {"question": "What is the Latin name of the robin?", "start_url": "http://birds.test/"}
    right, wrong = ({**task, "id": name, "answer": name} for name in ("Erithacus rubecula", "Strix aluco"))
    (tmp_path / "tasks.jsonl").write_text(f"{json.dumps(right)}\n{json.dumps(wrong)}\n")
    words = [sys.executable, str(EXAMPLE), str(seal(tmp_path / "site").path), str(tmp_path / "tasks.jsonl")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=STARTS)
    assert done.stdout.splitlines() == ["Erithacus rubecula: 1.0", "Strix aluco: 0.0", "misses: 0"], (
        done.stderr
    )
