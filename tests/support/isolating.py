"""Marks of tests that this machine may not let run. It is tried once in each worker, by forks."""

import pytest

from stillweb.harness.sandbox.running import can_confine
from stillweb.proxy.net.isolation import can_isolate

_isolation, _confinement = can_isolate(), can_confine(limits=None)
needs_isolation = pytest.mark.skipif(_isolation is not None, reason=f"no isolation here: {_isolation}")
needs_confinement = pytest.mark.skipif(
    _confinement is not None, reason=f"no confinement here: {_confinement}"
)
