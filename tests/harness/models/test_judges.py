"""Judges: their parameters by setting, and without those that an endpoint refuses."""

from pathlib import Path

import pytest

from stillweb.harness.models.client import Judge, split_thoughts
from stillweb.harness.models.tape import ModelError, Tape
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.summary import score_run, summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring.judging import judge_endpoints, judge_variables
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import UsageError
from tests.support.openai_endpoint import KEY, Endpoint

ASKED = [{"role": "user", "content": "Is it right?"}]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_API_KEY", KEY)


@pytest.mark.parametrize(
    "said",
    [
        "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
        "Unsupported parameter: 'temperature' is not supported with this model.",
        "`temperature` is deprecated for this model.",
        "temperature: Extra inputs are not permitted",
    ],
)
def test_a_parameter_that_an_endpoint_refuses_is_left_out(tmp_path: Path, said: str) -> None:
    with Endpoint(lambda asked: "correct: yes") as endpoint, Tape(tmp_path / "tape", "auto") as tape:
        endpoint.refuses = {"temperature": said}
        judge = Judge(tape, {None: {"base_url": endpoint.url, "key_variable": "GRADER_API_KEY"}})
        for session in ("a", "a", "b"):
            told = judge.ask(ASKED, "o4-mini", 0.0, session)
            assert (told["reply"]["text"], told["left_out"]) == ("correct: yes", ["temperature"])
        judge.close()
    # each session finds it out once
    assert ["temperature" in request for request in endpoint.requests] == [True, False, False, True, False]


def test_another_refusal_is_an_error(tmp_path: Path) -> None:
    with Endpoint(lambda asked: "") as endpoint, Tape(tmp_path / "tape", "auto") as tape:
        endpoint.refuses = {"model": "The model `temperate` does not exist"}
        judge = Judge(tape, {None: {"base_url": endpoint.url, "key_variable": "GRADER_API_KEY"}})
        with pytest.raises(ModelError, match=r"status 400: .*does not exist"):
            judge.complete(ASKED, "temperate", 0.0)
        judge.close()
    assert len(endpoint.requests) == 1


@pytest.mark.slow
def test_a_run_whose_judge_refuses_a_parameter_repeats_from_its_tape(tmp_path: Path) -> None:
    with Endpoint(lambda asked: "correct: yes") as endpoint:
        endpoint.refuses = {
            "temperature": "'temperature' does not support 0",
            "top_p": "top_p is not supported",
        }
        env = {
            "GRADER_BASE_URL": endpoint.url,
            "GRADER_MODEL": "gpt-5",
            "GRADER_PARAMS": '{"top_p": 0.5, "reasoning_effort": "low"}',
        }
        (tmp_path / "saved.jsonl").write_text("".join(f'{{"id": "{n}", "answer": "A"}}\n' for n in range(4)))
        settings = Settings(agent=f"predictions:{tmp_path / 'saved.jsonl'}", contracts=(), env=env)
        files = start_run(tmp_path / "run", settings, [Task(str(n), f"{n}?", "A", "judge") for n in range(4)])
        run_attempts(files.path, display=SilentDisplay())
    assert summarise(files.path).means["correct"].mean == 1.0
    assert endpoint.requests[0].keys() >= {"temperature", "top_p", "reasoning_effort"}
    event = read_trace(files.trace_path("0", 1)).of("model")[0]
    assert event["left_out"] == ["temperature", "top_p"]
    assert write_certificate(files.path)["settings"]["env"]["GRADER_PARAMS"] == env["GRADER_PARAMS"]
    assert score_run(files.path) == []
    outcome = certify(files.path, times=1)
    assert outcome.holds, outcome.differences


def test_parameters_are_settings_of_each_judge(tmp_path: Path) -> None:
    env = {
        "GRADER_PARAMS": '{"temperature": null, "seed": 1}',
        "SGI_JUDGE_PARAMS_2": '{"seed": 2}',
        "SGI_JUDGE_BASE_URL_3": "https://three.test/v1",
    }
    found = judge_endpoints(env, [Task("i", "?", {}, "sgi-idea-generation"), Task("j", "?", "x", "judge")])
    assert [one["params"] for one in found.values()] == [
        {"temperature": None, "seed": 1},
        {"temperature": None, "seed": 2},
        {"temperature": None, "seed": 1},
    ]
    assert judge_variables(env).keys() == env.keys()
    for wrong in ("[1]", "{", '{"model": "x"}'):
        with pytest.raises(UsageError, match="GRADER_PARAMS"):
            judge_endpoints({"GRADER_PARAMS": wrong}, [Task("j", "?", "x", "judge")])
    with Endpoint(lambda asked: "no") as endpoint, Tape(tmp_path / "tape", "auto") as tape:
        params = {"temperature": None, "seed": 1}
        place = {"base_url": endpoint.url, "key_variable": "GRADER_API_KEY", "params": params}
        judge = Judge(tape, {None: place})
        judge.complete(ASKED, "m", 0.0)
        judge.close()
    assert (endpoint.requests[0].get("seed"), "temperature" in endpoint.requests[0]) == (1, False)


@pytest.mark.parametrize(
    "closing", ["</think>", "</thinking>", "</thought>", "</reasoning>", "[/THINK]", "◁/think▷"]
)
def test_a_closing_mark_alone_ends_the_thoughts(closing: str) -> None:
    assert split_thoughts(f"I look it up.\n{closing}\n\nAlpha") == ("I look it up.", "Alpha")
    assert split_thoughts(f"{closing}Alpha") == (None, "Alpha")
    assert split_thoughts("Alpha") == (None, "Alpha")


@pytest.mark.parametrize(
    ("content", "thoughts", "answer"),
    [
        ("<think>a</think>b", "a", "b"),
        ("<THINK>a</THINK>\n\nb", "a", "b"),
        ("<seed:think>a</seed:think>b", "a", "b"),
        ("<think></think><thinking>a</thinking>b", "a", "b"),
        ("<think>never ends", "never ends", None),
        ("I look it up.\n<think>a</think>\nb", "a", "I look it up.\nb"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "a", "b"),
        ("<|channel|>final<|message|>b", None, "b"),
        ("The mark <think> opens </think>", None, "The mark <think> opens </think>"),
        ("b\n" + "<think>\n" * 300_000, None, "b\n" + "<think>\n" * 300_000),  # in linear time
        ("<think>a</think>" * 100_000 + "b", "\n".join(["a"] * 100_000), "b"),
    ],
)  # fmt: skip
def test_thoughts_at_the_beginning_are_no_part_of_the_answer(
    content: str, thoughts: str | None, answer: str | None
) -> None:
    assert split_thoughts(content) == (thoughts, answer)
