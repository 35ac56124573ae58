"""Tasks about lakes, whose rubrics say what each rule is read from."""

from typing import Any

from stillweb.harness.task import Task

RULES: dict[str, Any] = {
    "field_separator": "|",
    "record_separator": "\\n",
    "header_row": "Do not output a header row.",
    "schema": ["lake_id", "name", "max depth", "surveyed", "country"],
    "row_key": "Use lake_id as the row key.",
    "ordering": "Sort rows by max depth in descending order.",
    "max depth": "Write depths as decimal numbers. The units 'm', 'metres' and 'meters' are equivalent.",
    "surveyed": "Dates in YYYY-MM-DD format.",
    "country": "Treat 'U.S.' as 'United States'. Do not treat 'UK' as 'England'.",
    "name": "Names are compared as they are printed on the page.",
}
REFERENCE = "L1|Alpha|10.5 m|2020-01-31|United States\nL2|Beta|9 m|2021-12-01|Peru"


def task(task_id: str = "lake_001", reference: str = REFERENCE, **rules: Any) -> Task:
    merged = {name: value for name, value in (RULES | rules).items() if value is not ...}
    variant = "goal" if task_id.endswith("-g") else "constraint"
    meta = {
        "rubric": {"normalization": merged},
        "variant": variant,
        "language": "en",
        "oracle_output_cardinality": 2,
    }
    return Task(task_id, "?", reference, "table", meta, base=task_id.removesuffix("-g"))
