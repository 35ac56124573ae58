"""Drills: the same run with and without faults, in tools, programs and tests, repeated under one certificate."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import stillweb
from tests.harness.small_site import make, run_words
from tests.snapshots.making import record
from tests.support.command_line import stillweb as command

FAULTS = {"seed": 3, "faults": [{"id": "busy", "status": 503, "url": "https://a.test/0", "nth": 1}]}
TASK = {"id": "one", "question": "?", "answer": "A page"}


def agent_of(tries: int) -> Any:
    async def agent(attempt: Any) -> str | None:
        for _ in range(tries):
            result = await attempt.call("fetch", {"url": "https://a.test/0"})
            if not result.is_error:
                return "A page"
        return None

    return agent


pytest_plugins = ["pytester"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    return make(tmp_path / "s")


async def elsewhere(attempt: Any) -> str:
    """Read another page where the first one fails."""
    for number in (0, 1):
        result = await attempt.call("fetch", {"url": f"https://a.test/{number}"})
        if not result.is_error:
            return "A page"
    return "nothing"


async def parrot(attempt: Any) -> str:
    """Answer a page by its heading, whatever it says."""
    result = await attempt.call("fetch", {"url": "https://a.test/0"})
    return "A page" if "something at some length" in result.text else "busy"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "outcome"),
    [(agent_of(1), "gives up"), (agent_of(2), "retries"), (elsewhere, "copes"), (parrot, "answers wrongly")],
    ids=["gives up", "retries", "copes", "answers wrongly"],
)
def test_what_became_of_an_attempt(site: Path, agent: Any, outcome: str) -> None:
    from stillweb.harness.drills import drill

    common: dict[str, Any] = {"tasks": site.parent / "tasks.jsonl", "agent": agent, "snapshot": site}
    plain = stillweb.run(**common, out=site.parent / "plain")
    faulted = stillweb.run(**common, out=site.parent / "faulted", faults=FAULTS)
    found = drill(plain.path, faulted.path)
    (one,) = found.attempts
    assert str(found).endswith(f"1 {outcome}")
    assert (one.outcome, one.met) == (outcome, ("fault:busy",))
    assert faulted.certificate["settings"]["faults"] == FAULTS
    assert "faults" not in plain.certificate["settings"]
    told = stillweb.compare(plain, faulted)
    assert "faults" in told.differs
    assert str(found) in str(told)


SHELF = """<title>Shelf</title><p>The shelf</p><script>
fetch("/count").then((r) => r.text(), () => "nothing").then((text) => document.body.append(`holds ${text}`))
</script>"""


async def looks_once(attempt: Any) -> str:
    page = await attempt.call("browser_navigate", {"url": "https://a.test/shelf"})
    return "12" if "holds 12" in page.content[0]["text"] else "none"


async def looks_again(attempt: Any) -> str:
    return "12" if "12" in (await looks_once(attempt), await looks_once(attempt)) else "none"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "fault", "outcome"),
    [(looks_once, {"reset": True}, "answers wrongly"), (looks_again, {"status": 503, "nth": 1}, "retries")],
    ids=["reset", "status"],
)
def test_what_a_page_of_the_browser_asked_in_vain_is_met(
    tmp_path: Path, agent: Any, fault: dict[str, Any], outcome: str
) -> None:
    """The browser sees no answer on a connection that is reset."""
    from stillweb.harness.drills import drill

    with stillweb.Writer.open(tmp_path / "s") as writer:
        record(writer, "https://a.test/shelf", SHELF.encode())
        record(writer, "https://a.test/count", b"12")
    fault = {"id": "gone", "url": "https://a.test/count", **fault}
    common: dict[str, Any] = {
        "tasks": [{"id": "one", "question": "?", "answer": "12"}],
        "agent": agent,
        "snapshot": tmp_path / "s",
        "contracts": "playwright-mcp",
    }
    plain = stillweb.run(**common, out=tmp_path / "plain")
    faulted = stillweb.run(**common, out=tmp_path / "faulted", faults={"faults": [fault]})
    (one,) = drill(plain.path, faulted.path).attempts
    assert (one.a, one.outcome, one.met) == (1.0, outcome, ("fault:gone",))


@pytest.mark.slow
def test_a_drill_of_the_command_line_and_its_certificate(tmp_path: Path) -> None:
    words = run_words(tmp_path, 'call: fetch\n      with: {url: "https://a.test/0"}')
    (tmp_path / "faults.yaml").write_text(json.dumps(FAULTS))
    done = command(*words, "--drill", tmp_path / "faults.yaml", "--json")
    told = json.loads(done.out)
    assert told["attempts"][0]["met"] == ["fault:busy"]
    repeated = command("certify", tmp_path / "run" / "faults", "--times", "1")
    assert repeated.code == 0, repeated.err
    assert told["certificates"]["faults"] in repeated.out


@pytest.mark.slow
def test_a_drill_whose_plain_attempts_failed_is_not_passed(tmp_path: Path) -> None:
    words = run_words(tmp_path, "call: nothing")
    (tmp_path / "faults.yaml").write_text(json.dumps(FAULTS))
    words[words.index("--agent") + 1] = "command:false"
    done = command(*words, "--drill", tmp_path / "faults.yaml")
    assert done.code == 1
    assert "1 attempt failed without any fault" in done.err


@pytest.mark.parametrize("option", ["--faults", "--drill"])
def test_a_wrong_file_is_a_usage_error(tmp_path: Path, option: str) -> None:
    words = run_words(tmp_path, 'call: fetch\n      with: {url: "https://a.test/0"}')
    (tmp_path / "faults.yaml").write_text("faults:\n  - id: a\n    delay: soon\n")
    done = command(*words, option, tmp_path / "faults.yaml")
    assert done.code == 2
    assert "faults.yaml: Expected float | object | null, got str - at $.faults[0].delay" in done.err
    assert not (tmp_path / "run").exists()


def test_tools_meet_faults_as_programs_do(site: Path) -> None:
    from stillweb.harness.drills import read_faults
    from stillweb.harness.tools import Toolset

    async def call(fault: dict[str, Any]) -> Any:
        with stillweb.open(site) as snapshot:
            toolset = Toolset(snapshot, ("fetch",), faults=read_faults({"faults": [{"id": "f", **fault}]}))
            return await toolset.session("s").call("fetch", {"url": "https://a.test/0"})

    for fault, words in [
        ({"status": 429}, "status code 429"),
        ({"reset": True}, "ReadError('')"),
        ({"cut": 10}, "peer closed connection"),
        ({"captcha": 200}, "confirm that you are a human"),
        ({"delay": 0.01}, "says something at some length"),
    ]:
        result = asyncio.run(call(fault))
        assert words in result.text, fault
        assert result.meta["verdict"] == "fault:f"


def test_faults_of_pytest(pytester: pytest.Pytester, tmp_path: Path) -> None:
    make(pytester.path / "s")
    (pytester.path / "faults.yaml").write_text(json.dumps(FAULTS))
    pytester.makeini("[pytest]\nstillweb_faults = faults.yaml\n")
    pytester.makepyfile(
        """
        import httpx, pytest

        @pytest.mark.snapshot("s")
        def test_from_the_ini_file(stillweb_transport):
            with httpx.Client(transport=stillweb_transport) as client:
                assert [client.get("https://a.test/0").status_code for _ in range(2)] == [503, 200]

        @pytest.mark.snapshot("s", faults={"faults": [{"id": "r", "reset": True, "nth": 1}]})
        def test_from_the_marker(stillweb_transport):
            with httpx.Client(transport=stillweb_transport) as client:
                with pytest.raises(httpx.ReadError):
                    client.get("https://a.test/0")
        """
    )
    pytester.runpytest("-p", "no:randomly").assert_outcomes(passed=2)
