"""Settings for all tests: the same hypothesis examples everywhere, and the tier of each test by what it uses."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import ssl
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import httpx
import pytest
from hpack.huffman import HuffmanEncoder
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from stillweb.proxy.net.huffman import LinearHuffman
from tests.support import fork_server
from tests.support.command_line import commands_on_path
from tests.support.shared_driver import SharedDriver, use_shared_drivers

if TYPE_CHECKING:
    from tests.proxy.browsing import Browsing, SharedBrowser

gc.disable()  # until all is collected
settings.register_profile(
    "stillweb",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=50,
)
settings.load_profile("stillweb")
# Else the examples of a test hang on the modules that its worker has loaded by then, whose constants they are made of.
providers._get_local_constants = lambda: providers._local_constants
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a script's background jobs; tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test cuts the power, and a snapshot waits for the disk six times, some 15 ms each.
os.fsync = lambda descriptor: None

# Files in memory cost a twentieth less processor time than on a disk, and no waiting for it. A run makes half a gigabyte.
MEMORY = Path("/dev/shm")
if (
    MEMORY.is_dir()
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    and shutil.disk_usage(MEMORY).free > 4 << 30
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Playwright's driver starts in two thirds of the processor time when V8 finds it compiled.
os.environ.setdefault("NODE_COMPILE_CACHE", str(Path(tempfile.gettempdir()) / f"stillweb-node-{os.getuid()}"))
os.environ.setdefault("NODE_OPTIONS", "--max-semi-space-size=64")

# Chromium's headless shell draws and reads as Chromium does, and opens a page in half the processor time. Debian's
# script on PATH would stay between Playwright and the shell.
SHELL = None
if "STILLWEB_BROWSER" not in os.environ:
    SHELL = shutil.which("chromium-headless-shell", path=f"/usr/lib/chromium:{os.environ.get('PATH', '')}")
BROWSER_FIXTURES = frozenset({"browser", "chromium"})
# Whatever a test module takes from one of these starts a browser, or other programs.
BROWSER_MODULES = (
    "playwright",
    "stillweb.proxy.browser.browser",
    "stillweb.proxy.browser.capture_view",
    "stillweb.proxy.check.check",
    "stillweb.proxy.explore.explorer",
    "stillweb.harness.tools.browser",
    "tests.proxy.browsing",
)
PROCESS_MODULES = ("subprocess", "tests.support.command_line")
PEERS = f"{Path(__file__).parent / 'interop'}{os.sep}"
_shared: list[SharedBrowser] = []  # at most one, made for the first test that is marked `browser`
_driver = SharedDriver()


def _load_authorities_once() -> None:
    """Let clients share the usual authorities, which take 20 ms of each client; no test's server is signed by one."""
    made = httpx.create_ssl_context
    usual = cache(lambda trust_env, file, folder: made(trust_env=trust_env))

    def create(
        verify: ssl.SSLContext | str | bool = True, cert: None = None, trust_env: bool = True
    ) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return made(verify, cert, trust_env)
        named = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        return usual(trust_env, *(named if trust_env else (None, None)))

    httpx._transports.default.create_ssl_context = create


_load_authorities_once()
fork_server.fork_programs()
use_shared_drivers()
HuffmanEncoder.encode = LinearHuffman.encode  # clients in tests send long heads, too


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three workers a core, since most tests wait for a browser or another process half of their time."""
    return 3 * len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a browser or a process, and what compares with other people's programs. Put long modules first."""
    known: dict[str, set[str]] = {}
    for item in items:
        for mark in marks_of(getattr(item, "module", None), known):
            item.add_marker(mark)
        if BROWSER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("browser")
        if str(item.path).startswith(PEERS):
            item.add_marker("peer")
    # A module goes to one worker; one that began last would keep the others waiting.
    long = {
        mark: {item.path for item in items if item.get_closest_marker(mark)}
        for mark in ("first", "slow", "browser")
    }
    items.sort(key=lambda item: [item.path not in paths for paths in long.values()])


def marks_of(module: ModuleType | None, known: dict[str, set[str]]) -> set[str]:
    """Return the tiers of a test module: by the modules that it takes names from, also through helpers of tests."""
    if module is None or module.__name__ in known:
        return known[module.__name__] if module else set()
    known[module.__name__] = found = set()
    for value in list(vars(module).values()):
        origin = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
        if origin.startswith("tests."):
            found |= marks_of(sys.modules.get(origin), known)
        for mark, starting in (("browser", BROWSER_MODULES), ("process", PROCESS_MODULES)):
            if origin.startswith(starting):
                found.add(mark)
    return found


def pytest_collection_finish() -> None:
    """Look at what the tests make alone when collecting garbage: modules and collected tests are far more, and stay."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the functions that start a browser share the worker's, and Python agents be forks, where no mark says otherwise."""
    fork_server.forks_agents = not item.get_closest_marker("own_process")
    if item.get_closest_marker("own_driver"):
        os.environ.pop(fork_server.DRIVER, None)
    elif item.get_closest_marker("browser") or item.get_closest_marker("process"):
        _driver.lend()
    whole = bool(item.get_closest_marker("whole_browser"))
    if SHELL and whole:
        os.environ.pop("STILLWEB_BROWSER", None)
    elif SHELL:
        os.environ["STILLWEB_BROWSER"] = SHELL
    if not _shared and item.get_closest_marker("browser"):
        from tests.proxy.browsing import SharedBrowser

        _shared.append(SharedBrowser(SHELL and Path(SHELL)))
    for shared in _shared:
        shared.patch.undo()
        if not whole:
            shared.lend()


def pytest_sessionfinish() -> None:
    """End the shared browser and the shared driver."""
    while _shared:
        _shared.pop().close()
    _driver.close()


@pytest.fixture(scope="session")
def commands_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PATH on which `stillweb` is a fork, for tests that run scripts of a shell."""
    with commands_on_path(tmp_path_factory.mktemp("bin")) as path:
        yield path


@pytest.fixture(scope="session")
def chromium() -> Browsing:
    """A browser that records nothing, one for all tests of a worker."""
    return _shared[0].browsing
