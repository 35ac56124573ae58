"""A library in C that connects by itself, in tests that the pytest plugin keeps from the network."""

import socket
import subprocess
import sys

import pytest

from tests.harness.plugin_project import project, run
from tests.proxy.small_internet import inside, why_not
from tests.support.isolating import needs_isolation
from tests.support.waiting import STARTS

__all__ = ["project"]
pytest_plugins = ["pytester"]

# connect(2) as any library in C calls it; what Python knows of it is the descriptor.
TEST = """
import ctypes, os, socket, struct
import pytest

def connect(host, port):
    libc = ctypes.CDLL(None, use_errno=True)
    address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton(host))
    number = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    return number, libc.connect(number, address, len(address))

@pytest.mark.snapshot("site"{more})
def test_it(stillweb):
    global number
    number, failed = connect({host!r}, {port})
    {then}
"""
OPEN = "*1 of the tests kept Python from the network, and not libraries in C*--stillweb-isolate*"


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def reached(listener):
    listener.settimeout(0.05)
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


def test_a_run_that_is_not_isolated_says_what_it_does_not_hold(project, listener):
    code = TEST.format(host="127.0.0.1", port=listener.getsockname()[1], then="assert not failed", more="")
    result = run(project, code)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([OPEN])
    assert reached(listener)


@pytest.mark.slow
@needs_isolation
@pytest.mark.parametrize(
    "how", [["--stillweb-isolate"], ["--stillweb-isolate", "-n2"], ["-o", "stillweb_isolate=true"]]
)
def test_an_isolated_run_holds_it(project, listener, how):
    code = TEST.format(host="127.0.0.1", port=listener.getsockname()[1], then="assert failed", more="")
    result = run(
        project,
        code
        + "    assert 'kestrel' in stillweb.mount(__import__('requests').Session()).get('http://shelf.example/birds').text\n",
        *how,
    )
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line(OPEN)
    assert not reached(listener)


@needs_isolation
def test_no_recording_is_isolated(project):
    code = "import pytest\n@pytest.mark.snapshot('new', mode='once')\ndef test_it(stillweb): pass"
    result = run(project, code, "--stillweb-isolate")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*recording needs the network; record without --stillweb-isolate*"])


def test_where_a_machine_cannot_isolate_it_says_so(project):
    project.makeconftest("")
    project.makepyfile(
        broken="import stillweb.proxy.net.isolation as i\ndef refuse(): raise i.MissingCapability('isolation: not here')\ni._unshare = refuse"
    )
    result = run(project, "def test_it(): pass", "-pbroken", "--stillweb-isolate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--stillweb-isolate: isolation: not here"])


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize(
    ("then", "more", "passes"),
    [
        ("assert not failed", "", False),
        ("os.close(number)", "", True),  # not seen, as docs/pytest.md says
        ("assert not failed", ", allow=('198.51.100.1:8765',)", True),
    ],
)
def test_a_connection_to_another_machine_that_is_left_open_fails_the_test(project, then, more, passes):
    code = TEST.format(host="198.51.100.1", port=8765, then=then, more=more)
    code += "\n@pytest.fixture(scope='module', autouse=True)\ndef other_machine():\n    with socket.create_server(('0.0.0.0', 8765)): yield\n"
    project.makepyfile(test_it=code)
    done = subprocess.run(
        inside([sys.executable, "-m", "pytest", "-pno:cacheprovider", "-pno:hypothesispytest", "test_it.py"]),
        capture_output=True, text=True, timeout=STARTS, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) is passes, done.stdout
    assert ("connecting to 198.51.100.1:8765, past Python's sockets" in done.stdout) is not passes
