"""Several processes of pytest-xdist record nothing: each would put its part in the place of the whole."""

import pytest

from tests.harness.plugin_project import run

pytest_plugins = ["pytester"]

CODE = """
import pytest
@pytest.mark.snapshot("made")
def test_it(stillweb):
    assert stillweb.recording
"""


@pytest.mark.slow
def test_workers_of_xdist_refuse_to_record(pytester):
    result = run(pytester, CODE, "-n", "1", "--stillweb-mode=once")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*several processes can't record one snapshot; record without -n*"])
    assert not (pytester.path / "made").exists()
