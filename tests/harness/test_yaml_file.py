"""A YAML file that can't be read: one line, which names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.harness._parsing import read_yaml
from stillweb.snapshots.errors import UsageError


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"", "a.yaml: is empty"),
        (b"# nothing yet\n", "a.yaml: is empty"),
        (b"- 1\n", "a.yaml: must hold a mapping, not list"),
        (b"a: [1\nb: 2", "a.yaml:2: not YAML: expected ',' or ']', but got ':'"),
        (
            b"a: 0x" + b"f" * 5000,
            "a.yaml: not YAML: a number has too many digits",
        ),
        (b"a: !!timestamp x", "a.yaml: not YAML: a value is not of the type that its tag names"),
        (b"\0\0", "a.yaml: not YAML: unacceptable character #x0000: special characters are not allowed"),
        (b"a: \xff", "a.yaml: not UTF-8 at byte 3"),
    ],
)
def test_what_is_no_settings_file_is_told_in_a_line(tmp_path: Path, written: bytes, said: str) -> None:
    (tmp_path / "a.yaml").write_bytes(written)
    with pytest.raises(UsageError) as error:
        read_yaml(tmp_path / "a.yaml")
    assert str(error.value) == f"{tmp_path}/{said}"
