"""Parts that SGI-Bench's scorers share: the answer tag, and judges' replies read as json-repair reads them."""

from __future__ import annotations

from typing import Any

import pytest

from stillweb.harness.benchmarks.sgi.common import extract_final_answer, read_reply
from tests.harness.benchmarks.sgi.samples import vector


@pytest.mark.parametrize(("text", "expected"), vector("sgi_extract_final_answer.json"))
def test_answer_tag_vectors(text: str, expected: str | None) -> None:
    assert extract_final_answer(text) == expected


def full(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise ValueError("no list of objects")
    return value


SHAPES = {
    "as asked": '[{"judge": "correct", "reason": "r"}, {"judge": "incorrect", "reason": "r"}]',
    "prose and a fence": 'Sure:\n```json\n[{"judge": "correct"}, {"judge": "incorrect"}]\n```\nDone.',
    "single quotes": "[{'judge': 'correct'}, {'judge': 'incorrect'}]",
    "a LaTeX backslash": r'[{"judge": "correct", "reason": "\sin \alpha"}, {"judge": "incorrect"}]',
    "an inner quote": '[{"judge": "correct", "reason": "the "best" one"}, {"judge": "incorrect"}]',
    "a missing comma": '[{"judge": "correct"} {"judge": "incorrect"}]',
    "one object a line": '[\n{"judge": "correct"}\n{"judge": "incorrect"}\n]',
    "one object a line, no brackets": '{"judge": "correct"}\n{"judge": "incorrect"}',
    "a bracket in a reason alone": '{"judge": "correct", "reason": "as [1] says"}\n{"judge": "incorrect"}',
    "unquoted keys": '[{judge: "correct"}, {judge: "incorrect"}]',
    "comments": '[{"judge": "correct"}, // fine\n{"judge": "incorrect"} // not\n]',
    "smart quotes": "[{“judge”: “correct”}, {“judge”: “incorrect”}]",
    "a trailing comma": '[{"judge": "correct"}, {"judge": "incorrect"},]',
    "null beside it": '[{"judge": "correct", "reason": null}, {"judge": "incorrect"}]',
    "Python's words": "[{'judge': 'correct', 'reason': None}, {'judge': 'incorrect', 'sure': True}]",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_everyday_shape_of_a_reply_is_read_alike(shape: str) -> None:
    assert [one["judge"] for one in read_reply(SHAPES[shape], "[", full)] == ["correct", "incorrect"]


@pytest.mark.parametrize("text", ["nothing", "][", "", "[]", "{}", "[" * 100_000 + "]"])
def test_a_reply_without_json_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_reply(text, "[", full)


def test_nothing_of_a_reply_is_run(tmp_path: Any) -> None:
    marker = tmp_path / "ran"
    read_reply(f"[{{'judge': 'correct', 'reason': open({str(marker)!r}, 'w')}}]", "[", full)
    assert not marker.exists()
