"""A run that is scored again in other ways."""

import pytest

from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.runs.run_files import RunFiles
from tests.support.runs import make_run


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    """A certified run of attempts that end right, wrong, silent and in babble."""
    made = make_run(tmp_path_factory.mktemp("run"), ["right", "wrong", "silent", "babble"])
    write_certificate(made.path)
    return made
