"""A page that asks again and again with its clock in the query: the answers change, and the rule for clocks stays in force, unsure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.support.memory_store import Replay

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MILLISECONDS = 1767225600000  # of it


def ask(
    path: Path, recorded: list[str], asked: list[str], *, change: bool = True
) -> list[tuple[str, str, bool]]:
    """What is answered: the verdict, the body, and whether that is unsure. One is recorded every five seconds."""
    with Writer.open(path) as writer:
        for number, query in enumerate(recorded):
            begin, end = writer.event("s"), writer.event("s")
            body = b'{"done":%d}' % (number if change else 0)
            head = (("Content-Type", "application/json"),)
            request = Request("GET", f"http://h.example/jobs?{query}")
            moment = BEGIN + timedelta(seconds=5 * number)
            writer.exchange(Exchange(request, 200, "OK", head, body, moment, "s", begin, end))
    found = []
    with Snapshot.open(path) as snapshot:
        replay = Replay(Matcher(snapshot))
        for query in asked:
            text = replay.ask(Request("GET", f"http://h.example/jobs?{query}"))
            found.append((replay.last.verdict, text, replay.last.ambiguous))
    return found


@pytest.mark.parametrize(
    ("form", "rule"), [("_={}", "cache-buster"), ("x=1&{}", "bare-time"), ("_dc={}&page=1", "cache-buster")]
)
def test_what_is_asked_again_with_a_clock_is_answered_in_recorded_order(
    tmp_path: Path, form: str, rule: str
) -> None:
    recorded = [form.format(MILLISECONDS + 5000 * number - 70) for number in range(3)]
    asked = [form.format(MILLISECONDS + 10**9 + 5000 * number) for number in range(3)]
    answers = [(f"rule:{rule}", f'{{"done":{number}}}', True) for number in range(3)]
    assert ask(tmp_path / "s", recorded, asked) == answers
    assert ask(tmp_path / "t", recorded, recorded)[2][:2] == ("exact", '{"done":2}')


def test_a_random_fraction_is_no_version_either(tmp_path: Path) -> None:
    recorded = ["rnd=0.8444218515250481", "rnd=0.7579544029403025"]
    found = ask(tmp_path / "s", recorded, ["rnd=0.1234567890123456", "rnd=0.2234567890123456"])
    assert found == [("rule:cache-buster", f'{{"done":{number}}}', True) for number in range(2)]


@pytest.mark.parametrize(("form", "ago"), [("_={}", 10**9), ("_={}", 2 * 3600 * 1000), ("{}", 6000)])
def test_a_number_that_is_no_clock_may_name_a_version(tmp_path: Path, form: str, ago: int) -> None:
    recorded = [form.format(MILLISECONDS - ago + number) for number in range(3)]
    assert ask(tmp_path / "s", recorded, [form.format(MILLISECONDS)]) == [("miss", "miss", False)]


def test_a_clock_that_changed_nothing_is_sure(tmp_path: Path) -> None:
    recorded = [f"_={MILLISECONDS + 5000 * number}" for number in range(3)]
    found = ask(tmp_path / "s", recorded, [f"_={MILLISECONDS + 7}"], change=False)
    assert found == [("rule:cache-buster", '{"done":0}', False)]
