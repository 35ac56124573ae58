"""What SGI-Bench's scorers share: the answer tag, and JSON inside of prose."""

from __future__ import annotations

import pytest

from stillweb.harness.scoring.sgi.common import extract_final_answer, json_part
from tests.harness.scoring.sgi.samples import vector


@pytest.mark.parametrize(("text", "expected"), vector("sgi_extract_final_answer.json"))
def test_answer_tag_vectors(text: str, expected: str | None) -> None:
    assert extract_final_answer(text) == expected


def test_json_inside_prose_without_running_anything() -> None:
    assert json_part('Sure: [{"a": 1},] done', "[", "]") == [{"a": 1}]
    assert json_part('[{"a": NaN}]', "[", "]") == [{"a": "NaN"}]  # no trace can hold the number
    for text in ("nothing", "[__import__('os')]", "][", "[" * 100_000 + "]"):
        with pytest.raises(ValueError, match=r".+"):
            json_part(text, "[", "]")
