"""The one parser of fields that list names with weights."""

from __future__ import annotations

import pytest

from stillweb.snapshots.http.weighted import items_of


@pytest.mark.parametrize(
    ("field", "items"),
    [
        ("", []),
        (" , ;q=1, ", []),
        ("Text/HTML", [("text/html", (), 1.0)]),
        ("br;q=0.5, *", [("br", (), 0.5), ("*", (), 1.0)]),
        (
            "application/json ; OData = verbose; q = 0.3",
            [("application/json", ("odata=verbose",), 0.3)],
        ),
        ("en;q=much, fr;q=0.000", [("en", (), 0.0), ("fr", (), 0.0)]),
    ],
)
def test_items_have_a_name_parameters_and_a_weight(
    field: str, items: list[tuple[str, tuple[str, ...], float]]
) -> None:
    assert list(items_of(field)) == items
