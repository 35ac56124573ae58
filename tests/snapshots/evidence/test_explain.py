"""The grounds of an answer, as `stillweb lookup` and the ledger tell them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stillweb.harness.commands.lookup import command
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.identity.differences import differences
from stillweb.snapshots.identity.keys import parse
from stillweb.snapshots.request import Request
from tests.proxy.frozen import Site
from tests.snapshots.evidence.test_stories import AS_RECORDED, FILTERED, IN_2020, IN_2021, LIST, A, data, over
from tests.support.memory_store import get, post


def grounds(asked: Matcher, *walk: Request) -> list[str]:
    """Return the grounds of the answer to the last request of a walk."""
    session = asked.session("replay")
    for request in walk:
        lookup = asked.lookup(request, session, min_confidence=0.0)
        if lookup.capture is not None:
            session.answered(lookup)
    assert lookup.grounds is not None
    return lookup.grounds()


def test_grounds_name_the_event_that_decides() -> None:
    told = grounds(over(*FILTERED), LIST, IN_2021, LIST)
    assert told[0] == "recorded 1 of 4 times, with 3 different answers"
    assert told[1] == "recorded after POST /filter year=2021; decides (0.99)"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "[::1]:8000", "a1.test", "a.test"])
def test_grounds_name_the_numbers_of_a_path_and_not_of_its_host(host: str) -> None:
    shelf, choose = f"http://{host}/shelf/7", post(f"http://{host}/shelf/7/filter", "year=2020")
    walk = over((get(shelf), FILTERED[0][1]), (choose, FILTERED[1][1]), (get(shelf), FILTERED[2][1]))
    told = grounds(walk, get(shelf), choose, get(shelf))
    assert any(line.startswith("recorded after POST /shelf/0/filter (7) year=2020") for line in told)


def test_grounds_name_what_has_not_happened_or_otherwise() -> None:
    matcher_of_filters = over(*FILTERED)
    other = grounds(matcher_of_filters, LIST, IN_2020, post(f"{A}/filter", "year=1999"), LIST)
    assert any("recorded after POST /filter year=2020" in line or "before any" in line for line in other)


def test_grounds_tell_writes_to_one_path_apart_by_their_names() -> None:
    """Adminer has one address for all that it does."""
    walk = over(FILTERED[0], (post(f"{A}/do", "edit=7"), FILTERED[1][1]), (post(f"{A}/do", "sql=select"), FILTERED[1][1]), (LIST, FILTERED[2][1]))  # fmt: skip
    told = grounds(walk, LIST)
    assert [line.split(";")[0] for line in told[1:]] == ["recorded before any POST /do (edit)", "recorded before any POST /do (sql)"]  # fmt: skip


def test_grounds_name_the_field_that_decides() -> None:
    told = grounds(over(*AS_RECORDED["languages"]), get(f"{A}/", accept_language="fr"))
    assert "accept-language: fr now; decides (" in " ".join(told)


def test_grounds_say_what_was_never_tested() -> None:
    walk = over(FILTERED[0], FILTERED[1], (get(f"{A}/about"), FILTERED[0][1]))
    told = grounds(walk, get(f"{A}/about"))
    assert told[0] == "recorded once"
    assert any(
        line.startswith("the recording does not show whether POST /filter matters (0.") for line in told
    )


def test_lookup_tells_confidence_and_grounds(tmp_path: Path) -> None:
    site = Site(tmp_path / "snap")
    site.add("http://site.example/", b"page")
    with site.open():
        pass
    words = [str(tmp_path / "snap"), "http://site.example/"]
    told = json.loads(CliRunner().invoke(command, [*words, "--json"], standalone_mode=False).output)
    assert told["confidence"] == 1.0
    assert told["grounds"] == ["recorded once"]
    shown = CliRunner().invoke(command, words, standalone_mode=False).output
    assert "  confidence: 1.0\n" in shown
    assert "  ground: recorded once\n" in shown


def _asked(*turns: str, **more: object) -> Request:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    messages = [{"role": r, "content": c} for r, c in zip(roles, turns, strict=False)]
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    return Request("POST", f"{A}/v1/chat/completions", (("Content-Type", "application/json"),), body)


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (("be kind", "hello", "hi", "bye"), "turn 4 (user) is the first that differs; the 3 turns before it are as recorded"),
        (("be rude", "hello"), "turn 1 (system) is the first that differs"),
        (("be kind", "hello", "hi", "good night", "well", "so"), "turn 5 (assistant) is not recorded; the 4 turns before it are as recorded"),
        (("be kind", "hello", "hi"), "turn 4 (user) is not asked; the 3 turns before it are as recorded"),
    ],
)  # fmt: skip
def test_a_conversation_is_told_by_the_first_turn_that_differs(turns: tuple[str, ...], said: str) -> None:
    parsed = parse(_asked(*turns)), parse(_asked("be kind", "hello", "hi", "good night"))
    told = list(map(str, differences(*parsed)))
    assert told[0] == f"conversation: {said}"
    assert len(told) <= 2


@pytest.mark.parametrize("model", [True, False])
def test_ids_and_moments_of_earlier_turns_are_not_the_turn_that_differs(model: bool) -> None:
    """A client draws the ids anew; a page's own server need not be told the model."""

    def asked(call: str, minute: int, last: str) -> Request:
        turns = [
            {
                "id": f"m{call}",
                "role": "system",
                "content": f"Current time: 10:{minute}. {'Be kind. ' * 900}",
            },
            {"role": "assistant", "tool_calls": [{"id": call, "type": "function"}]},
            {"role": "tool", "tool_call_id": call, "content": "a lighthouse"},
            {"role": "user", "content": last},
        ]
        body = json.dumps({"messages": turns} | ({"model": "m"} if model else {})).encode()
        return Request("POST", f"{A}/chat", (("Content-Type", "application/json"),), body)

    one, other = parse(asked("call_1", 15, "how high?")), parse(asked("x9", 48, "how old?"))
    assert list(map(str, differences(one, other))) == [
        "conversation: turn 4 (user) is the first that differs; the 3 turns before it are as recorded",
        "turn member messages[3].content: asked 'how high?', recorded 'how old?'",
    ]


def test_the_turn_that_differs_is_told_though_each_shorter_conversation_was_recorded_too() -> None:
    said = ["be kind", "hello", "hi", "good night", "sleep well", "thanks"]
    matcher = over(*((_asked(*said[:count]), data({"n": count})) for count in (2, 4, 6)))
    near = matcher.lookup(_asked(*said[:3], "good morning"), matcher.session("replay")).explain()[0]
    assert near.differs == [
        "conversation: turn 4 (user) is the first that differs; the 3 turns before it are as recorded",
        "turn member messages[3].content: asked 'good morning', recorded 'good night'",
    ]


def test_settings_beside_a_conversation_are_told_too() -> None:
    told = list(map(str, differences(parse(_asked("a", "b", top_p=1)), parse(_asked("a", "c", top_p=2)))))
    assert told[-1] == "body member top_p: asked '1', recorded '2'"
