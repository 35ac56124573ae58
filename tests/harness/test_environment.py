"""Environments: tasks begun, stepped and rewarded by somebody else's loop."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stillweb
from stillweb.harness.environment import Environment
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError
from tests.harness.tools.frozen import BIRDS, make_site

FETCH = {"tool": "fetch", "arguments": {"url": BIRDS}}
TASK = {"id": "a", "question": "Which bird?", "answer": "robin", "start_url": BIRDS}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("env") / "site"
    make_site(path).close()
    return path


@pytest.fixture
def env(site: Path) -> Iterator[Environment]:
    with stillweb.env(site, TASK, steps=3) as made:
        yield made


def test_a_task_is_begun_stepped_and_rewarded(env: Environment) -> None:
    with pytest.raises(UsageError, match="reset"):
        env.step(FETCH)
    first = env.reset()
    assert (first.text, first.meta) == ("Which bird?", {"start_url": BIRDS})
    seen = env.step(FETCH)
    assert not seen.observation.is_error
    assert (seen.observation.meta["verdict"], seen.reward, seen.terminated) == ("exact", 0.0, False)
    ended = env.step({"answer": "Robin"})
    assert (ended.reward, ended.terminated) == (1.0, True)
    with pytest.raises(UsageError, match="over"):
        env.step(FETCH)
    env.reset()
    assert env.step({"answer": "owl"}).reward == 0.0


def test_a_miss_is_seen_and_the_limit_of_steps_ends_the_episode(env: Environment) -> None:
    env.reset()
    missed = env.step({"tool": "fetch", "arguments": {"url": "http://nowhere.test/"}})
    assert (missed.observation.is_error, missed.observation.meta["verdict"]) == (True, "miss")
    assert [env.step(FETCH).truncated for _ in range(2)] == [False, True]


ODD_ACTIONS: tuple[Any, ...] = (
    {},
    {"tool": 1},
    {"answer": 1},
    {"tool": "fetch", "url": "x"},
    {"tool": "fetch", "arguments": [1]},
    ["a"],
    None,
)


@pytest.mark.parametrize("action", ODD_ACTIONS)
def test_another_action_is_an_error(env: Environment, action: Any) -> None:
    """A model may write any JSON for an action."""
    env.reset()
    with pytest.raises(UsageError, match="an action is"):
        env.step(action)


def test_a_wrong_task_is_an_error(site: Path) -> None:
    with pytest.raises(UsageError, match="the task: question: is missing"):
        stillweb.env(site, {"id": "a"})


def test_sessions_at_once_do_not_meet(env: Environment) -> None:
    """Each of 200 environments gets what the first one got, from eight threads."""

    def play(one: Environment) -> tuple[str, float]:
        one.reset()
        text = one.step(FETCH).observation.text
        return text, one.step({"answer": "robin"}).reward

    wanted = play(env)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(play, [env.another() for _ in range(200)])) == {wanted}


def test_a_page_is_rewarded_by_its_own_state(site: Path) -> None:
    task = Task(
        "p",
        "Open the page.",
        None,
        "page",
        start_url=BIRDS,
        options={"expression": "document.title.length > 0"},
    )
    with stillweb.env(site, task, contracts=["playwright-mcp"]) as env:
        for _ in range(2):
            env.reset()
            env.step({"tool": "browser_navigate", "arguments": {"url": BIRDS}})
            assert env.step({"answer": None}).reward == 1.0


def test_gymnasium_accepts_the_adapter(env: Environment) -> None:
    from gymnasium.utils.env_checker import check_env

    from stillweb.harness.gym import StillwebEnv

    adapted = StillwebEnv(env)
    check_env(adapted, skip_render_check=True)
    seen, _ = adapted.reset(seed=1)
    assert [tool["name"] for tool in json.loads(seen)["tools"]] == ["fetch"]
    with pytest.raises(ValueError, match="nested too deeply"):
        adapted.step("[" * 100_000)
    *_, info = adapted.step(json.dumps(FETCH))
    assert info["verdict"] == "exact"
    _, reward, terminated, truncated, info = adapted.step(json.dumps({"answer": "robin"}))
    assert (reward, terminated, truncated, info["score"]["status"]) == (1.0, True, False, "scored")
