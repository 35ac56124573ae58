"""Model calls: both APIs, streamed or not, kept on a tape and played again without key or endpoint."""

import gzip
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stillweb.harness.agents.attempt import Limits
from stillweb.harness.models.client import Judge, Usage, cost_of
from stillweb.harness.models.tape import ModelError, Tape
from stillweb.harness.results.certificate import certify, make_certificate, write_certificate
from stillweb.harness.results.summary import describe_left_out, score_run, summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import DamagedInput, UsageError
from tests.support.openai_endpoint import KEY, Asked, Endpoint, chat_answer, response_answer
from tests.support.runs import SHELF, bird_task
from tests.support.waiting import HANG, until

pytestmark = pytest.mark.usefixtures("openai_key")

LIST = "https://shelf.example/list?year=2012&page=1"


def birds(asked: Asked):
    """Fetches the list, tries a page that is not there, answers from what it read."""
    if not asked.tool_answers:
        return [("fetch", {"url": LIST}), ("fetch", {"url": "https://shelf.example/other"})]
    return "7|3900\n9|3700"


def agent_file(folder: Path, url: str, **members) -> str:
    path = folder / "model.yaml"
    settings = {"agent": "openai", "model": "birder", "base_url": url, "tries": 3, **members}
    path.write_text(yaml.safe_dump(settings))
    return str(path)


def run(folder: Path, agent: str, name="run", tasks=None, **settings):
    prices = {"birder": {"input": 1.0, "output": 2.0, "cached": 0.5}}
    ready = Settings(agent=agent, contracts=(SHELF,), prices=prices, **settings)
    files = start_run(folder / name, ready, tasks or [bird_task("one"), bird_task("two")])
    run_attempts(files.path, display=SilentDisplay())
    return files


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_run_is_taped_and_repeats_without_key_or_endpoint_to_the_same_certificate(
    tmp_path, monkeypatch, api, stream
):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url, api=api, stream=stream), epochs=2)
        assert len(endpoint.requests) == 8
        assert set(endpoint.keys) == {f"Bearer {KEY}"}
    summary = summarise(files.path)
    assert summary.means["em"].mean == 1.0
    assert summary.misses == 4
    assert summary.tokens > 0
    assert summary.cost > 0
    certificate = write_certificate(files.path)
    assert certificate["models"] == ["birder"]
    assert certificate["served"] == ["birder-2025-01-01"]
    monkeypatch.delenv("OPENAI_API_KEY")
    again = run(
        tmp_path,
        agent_file(tmp_path, endpoint.url, api=api, stream=stream),
        name="again",
        tape="replay",
        tape_path=str(files.path / "tape"),
        epochs=2,
    )
    assert make_certificate(again.path)["hash"] == certificate["hash"]
    assert score_run(again.path) == []


@pytest.mark.slow
def test_certify_repeats_a_taped_run_in_fresh_processes(tmp_path, monkeypatch):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url))
    monkeypatch.delenv("OPENAI_API_KEY")
    report = certify(files.path, times=1)
    assert report.differences == ()
    assert report.repeated == (report.hash,)


def test_a_run_without_a_tape_is_not_repeated_by_asking_again(tmp_path):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tape="none", tasks=[bird_task("one")])
        asked = len(endpoint.requests)
        with pytest.raises(UsageError, match="its model calls lie on no tape"):
            certify(files.path, times=1)
        assert len(endpoint.requests) == asked


@pytest.mark.slow
def test_half_a_character_is_told_to_the_model_as_what_stands_for_none(tmp_path, monkeypatch):
    task = replace(bird_task("one"), question="Which \ud83d birds, \U0001f600?")
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[task])
    assert summarise(files.path).means["em"].mean == 1.0
    assert endpoint.requests[0]["messages"][1]["content"].startswith("Which \ufffd birds, \U0001f600?")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert certify(files.path, times=1).holds


def test_the_key_and_the_cookies_are_nowhere_in_the_run(tmp_path):
    with Endpoint(birds, faults=[400]) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url))
    written = [path for path in files.path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".gz" for path in written)
    for path in written:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        assert KEY.encode() not in data, path
        assert b"secret-cookie" not in data, path


def test_tool_calls_that_are_wrong_are_told_to_the_model_and_traced(tmp_path):
    def clumsy(asked):
        turn = len(asked.tool_answers)
        if turn == 0:
            numbers = [f'{{"url": {number}}}' for number in ("NaN", "1e999", "9" * 400)]
            odd = [("fetch", text) for text in (*numbers, "[" * 100_000)]
            return [("fetch", "{not json"), ("fetch", "[1]"), ("sing", {}), *odd]
        return "NONE"

    with Endpoint(clumsy) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")])
        told = [m["content"] for m in endpoint.requests[1]["messages"] if m["role"] == "tool"]
    assert told[0].startswith("Error: the arguments are not JSON")
    assert told[1] == "Error: the arguments are no JSON object"
    assert told[2] == "Error: there is no tool 'sing'; there are fetch"
    assert all(text.startswith("Error: the arguments are not JSON") for text in told[3:])
    trace = read_trace(files.trace_path("one", 1))
    assert [call["error"] for call in trace.of("tool_call")] == [True] * 7
    assert trace.of("tool_call")[0]["arguments"] == "{not json"


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        (Limits(steps=1), "steps"),
        (Limits(tokens=10), "tokens"),
        (Limits(money=1e-9), "money"),
        (Limits(calls=1), "calls"),
    ],
)
def test_limits_of_steps_tokens_money_and_calls_end_an_attempt(tmp_path, limits, end):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")], limits=limits)
    trace = read_trace(files.trace_path("one", 1))
    assert (trace.last("answer")["end"], trace.last("score")["status"]) == (end, "zero")


def uncounted(monkeypatch):
    """The endpoint says nothing of what a call used."""
    monkeypatch.setattr(
        "tests.support.openai_endpoint.chat_answer", lambda body, said: without_usage(chat_answer(body, said))
    )


def without_usage(answer):
    kind, data = answer
    whole = json.loads(data)
    del whole["usage"]
    return kind, json.dumps(whole).encode()


def test_what_an_endpoint_does_not_count_costs_nothing_known(tmp_path, monkeypatch):
    uncounted(monkeypatch)
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")])
    summary = summarise(files.path)
    assert (summary.cost, summary.tokens) == (None, 0)
    assert summary.means["em"].mean == 1.0


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(tokens=10), "the limit of tokens can't be enforced: a call does not report its usage"),
        (Limits(money=9.0), "the limit of money can't be enforced: a call has no price"),
    ],
)
def test_a_limit_that_can_not_be_kept_ends_the_attempt_and_says_so(tmp_path, monkeypatch, limits, says):
    uncounted(monkeypatch)
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")], limits=limits)
        assert len(endpoint.requests) == 1
    answer = read_trace(files.trace_path("one", 1)).last("answer")
    assert answer["end"] == "error"
    assert says in answer["error"]


def test_a_limit_of_money_wants_the_price_of_the_model_before_anything_is_asked(tmp_path):
    with Endpoint(birds) as endpoint:
        agent = agent_file(tmp_path, endpoint.url, model="another")
        with pytest.raises(UsageError, match="--max-cost: --prices has none for 'another'"):
            run(tmp_path, agent, limits=Limits(money=1.0))
        assert endpoint.requests == []


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("another", "--prices has none for another"),
        ("birder", "an answer of birder does not say what it used"),
    ],
)
def test_why_the_cost_is_unknown_is_told(tmp_path, monkeypatch, model, why):
    uncounted(monkeypatch)
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url, model=model), tasks=[bird_task("one")])
    summary = summarise(files.path)
    assert summary.cost is None
    assert f"the cost is unknown: {why}" in describe_left_out(files, summary)


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_model_is_told_where_to_start_if_the_protocol_says_so(tmp_path, api):
    identities = []
    for name, members in (("with", {}), ("without", {"start_url": False})):
        with Endpoint(lambda asked: "NONE") as endpoint:
            agent = agent_file(tmp_path, endpoint.url, api=api, **members)
            files = run(tmp_path, agent, name, tasks=[bird_task("one")])
            told = json.dumps(endpoint.requests[0])
        assert ("Start at https://shelf.example/" in told) == (name == "with")
        identities.append(files.manifest()[1]["agent"])
    assert identities[0] != identities[1]


@pytest.mark.slow
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_any_further_member_of_a_request_is_sent_as_it_is(tmp_path, monkeypatch, api):
    params = {"top_k": 3, "provider": {"order": ["a"]}, "temperature": 0, "extra_body": {"min_p": 0.1}}
    with Endpoint(birds) as endpoint:
        files = run(
            tmp_path, agent_file(tmp_path, endpoint.url, api=api, params=params), tasks=[bird_task("one")]
        )
    assert summarise(files.path).means["em"].mean == 1.0
    sent = endpoint.requests[0]
    assert {name: sent.get(name) for name in ("top_k", "provider", "temperature", "min_p", "extra_body")} == {
        "top_k": 3, "provider": {"order": ["a"]}, "temperature": 0, "min_p": 0.1, "extra_body": None,
    }  # fmt: skip
    monkeypatch.delenv("OPENAI_API_KEY")
    assert certify(files.path, times=1).holds


@pytest.mark.slow
def test_a_judge_is_taped_and_scores_again_from_the_trace_alone(tmp_path, monkeypatch):
    def both(asked):
        if asked.body["model"] == "grader":
            return "extracted_final_answer: kestrel\nreasoning: the same\ncorrect: yes\nconfidence: 90"
        return "A kestrel."

    task = Task("bird", "Which bird?", "kestrel", "judge", options={"model": "grader"})
    with Endpoint(both) as endpoint:
        env = {"GRADER_BASE_URL": endpoint.url}
        monkeypatch.setenv("GRADER_API_KEY", KEY)
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[task], env=env)
    trace = read_trace(files.trace_path("bird", 1))
    assert trace.last("score")["metrics"] == {"correct": 1.0}
    assert [event["purpose"] for event in trace.of("model")] == ["agent", "judge"]
    assert score_run(files.path) == []
    for name in ("OPENAI_API_KEY", "GRADER_API_KEY"):
        monkeypatch.delenv(name)
    assert certify(files.path, times=1).holds


def test_a_judge_stands_alone_too(tmp_path):
    with Endpoint(lambda asked: "yes") as endpoint, Tape(tmp_path / "tape", "record") as tape:
        judge = Judge(tape, {None: {"base_url": endpoint.url, "key_variable": "OPENAI_API_KEY"}})
        try:
            assert judge.complete([{"role": "user", "content": "right?"}], "grader", 0.0) == "yes"
        finally:
            judge.close()
    assert endpoint.requests[0]["temperature"] == 0.0


def test_a_judge_that_never_answers_does_not_hold_up_the_end(tmp_path):
    told: list[str] = []

    def ask(judge: Judge) -> None:
        for _ in range(2):  # once while it ends, once afterwards
            try:
                judge.complete([{"role": "user", "content": "right?"}], "grader", 0.0)
            except ModelError as error:
                told.append(str(error))

    with Endpoint(lambda asked: "yes", ["hang"]) as endpoint, Tape(tmp_path / "tape", "record") as tape:
        endpoint.hang = 10 * HANG
        judge = Judge(tape, {None: {"base_url": endpoint.url, "key_variable": "OPENAI_API_KEY"}})
        thread = threading.Thread(target=ask, args=(judge,), daemon=True)
        thread.start()
        assert until(lambda: endpoint.requests)
        judge.close()
        thread.join(HANG)
    assert told == ["the judge was asked while the run was ending"] * 2


def test_cost_counts_cached_tokens_at_their_own_price():
    price = {"input": 2.0, "output": 10.0, "cached": 0.5}
    assert cost_of(Usage(1_000_000, 100_000, 400_000), price) == 1.2 + 0.2 + 1.0
    assert cost_of(Usage(5, 5), None) is None


def test_of_a_count_that_can_not_be_the_cost_is_unknown_not_negative():
    assert cost_of(Usage(10, 1, 1_000_000), {"input": 2.0, "output": 10.0, "cached": 0.5}) is None


@pytest.mark.slow
def test_a_repetition_from_a_damaged_tape_says_that_it_is_damaged(tmp_path):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url))
    archive = next((files.path / "tape" / "archive").iterdir())
    data = archive.read_bytes()
    middle = len(data) // 2
    damage = bytes(900)  # longer than an answer: a request is hit, too, wherever parallel attempts put theirs
    archive.write_bytes(data[:middle] + damage + data[middle + len(damage) :])
    with pytest.raises(DamagedInput, match=r"the repetition failed: .*data-00000\.warc\.gz"):
        certify(files.path, times=1)


@pytest.mark.parametrize(
    ("thought", "params", "goes_back"),
    [
        ({"summary": []}, {}, False),  # OpenAI refused the second call: it had stored nothing of that name
        ({"summary": [], "encrypted_content": "gAAA"}, {"include": ["reasoning.encrypted_content"]}, True),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, {}, True),
        ({"summary": []}, {"store": True}, True),
    ],
)
def test_thoughts_go_back_where_the_endpoint_can_know_them(tmp_path, monkeypatch, thought, params, goes_back):
    def thinking(body, said):
        kind, data = response_answer(body, said)
        whole = json.loads(data)
        whole["output"].insert(0, {"type": "reasoning", "id": "rs_1", **thought})
        return kind, json.dumps(whole).encode()

    monkeypatch.setattr("tests.support.openai_endpoint.response_answer", thinking)
    with Endpoint(birds) as endpoint:
        files = run(
            tmp_path,
            agent_file(tmp_path, endpoint.url, api="responses", params=params),
            tasks=[bird_task("one")],
        )
        second = endpoint.requests[1]["input"]
    kinds = [item.get("type") for item in second]
    assert ("reasoning" in kinds) is goes_back
    calls = [item for item in second if item.get("type") == "function_call"]
    assert [item["call_id"] for item in calls] == ["call_1_0", "call_1_1"]
    assert all(("id" in item) is goes_back for item in calls)
    assert read_trace(files.trace_path("one", 1)).last("score")["metrics"]["em"] == 1.0
