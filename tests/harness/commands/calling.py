"""A command called in this process, as the shell would call it."""

import pytest

from stillweb.harness.cli import main


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Exit code and standard output of `stillweb WORDS`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0), capsys.readouterr().out
