"""Pytest plugin for tests that run against a snapshot, with the network blocked; see docs/pytest.md.

    @pytest.mark.snapshot("site.wacz", accept="canonical", max_misses=0)
    def test_agent(stillweb): ...

Pytest loads this module in every test run of every project where stillweb is installed, so it imports nothing
but pytest until a test asks for a snapshot.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stillweb.harness.testing.pytest_case import Case
    from stillweb.harness.testing.shared_snapshots import SharedSnapshots

_CASE: pytest.StashKey[Case] = pytest.StashKey()
_TOLD: pytest.StashKey[int] = pytest.StashKey()  # number of faults at the end of the test, before teardown
_SHELVES: pytest.StashKey[dict[tuple[str, ...], SharedSnapshots]] = pytest.StashKey()
_NOT_PLACED: pytest.StashKey[list[str]] = pytest.StashKey()
_MEMBERS = {
    "accept", "min_confidence", "max_misses", "max_expected_wrong", "mode", "allow", "upstream_ca",
    "faults", "rules"
}  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command line options and ini settings."""
    group = parser.getgroup("stillweb")
    group.addoption(
        "--stillweb-mode",
        default=None,
        choices=("none", "once", "new_episodes", "all", "rewrite"),
        help="none: replay (default); once: record a snapshot that is not there; new_episodes: replay, and record "
        "what is not there; all: record the tests that run anew; rewrite: begin the snapshot anew",
    )
    parser.addini("stillweb_mode", "the mode where no option gives one", default="none")
    group.addoption(
        "--stillweb-isolate",
        action="store_true",
        help="run all tests in a network namespace that has only loopback, which also stops libraries in C",
    )
    parser.addini(
        "stillweb_faults", "a fault file for the tests whose marker names none (docs/drills.md)", default=""
    )
    parser.addini("stillweb_isolate", "always do so", type="bool", default=False)


def _isolates(config: pytest.Config) -> bool:
    return bool(config.known_args_namespace.stillweb_isolate or config.getini("stillweb_isolate"))


# before output is captured, because the process may be restarted
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Enter a network namespace if requested; it holds all child processes, too, such as workers of xdist."""
    if _isolates(early_config):
        from stillweb.proxy.net.isolation import enter_isolation
        from stillweb.snapshots.errors import MissingCapability

        try:
            enter_isolation()
        except MissingCapability as error:
            raise pytest.UsageError(f"--stillweb-isolate: {error}") from None
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker for `--strict-markers`."""
    config.addinivalue_line(
        "markers",
        'snapshot(*paths, accept="rule", min_confidence=0.65, max_misses=0, max_expected_wrong=None, mode=None, allow=(), upstream_ca=None, faults=None, rules=None): answer this test '
        "from a snapshot, and block the network; paths are beside the test's file",
    )
    config.stash[_SHELVES] = {}


@pytest.hookimpl(trylast=True)  # after the teardown of session fixtures
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Move recorded snapshots into place; fail the run if one can't be moved."""
    if shelves := session.config.stash.get(_SHELVES, {}):
        from stillweb.harness.testing.shared_snapshots import close_all

        session.config.stash[_NOT_PLACED] = problems = close_all(list(shelves.values()))
        if problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print which recordings were not moved into place, and how many tests did not block libraries in C."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    if open_tests := {report.nodeid for report in reports if getattr(report, "stillweb_open", False)}:
        terminalreporter.write_line(
            f"stillweb: {len(open_tests)} of the tests kept Python from the network, and not libraries in C that "
            "connect by themselves. Run pytest with --stillweb-isolate (docs/pytest.md)"
        )
    for one in config.stash.get(_NOT_PLACED, []):
        terminalreporter.section("stillweb: a recording was not put in place", red=True)
        terminalreporter.write_line(one)


def _make_case(item: pytest.Item, marker: pytest.Mark) -> Case:
    from stillweb.harness.testing.pytest_case import Case
    from stillweb.harness.testing.shared_snapshots import SharedSnapshots, read_mode
    from stillweb.snapshots.errors import StillwebError, UsageError
    from stillweb.snapshots.evidence.confidence import SERVED
    from stillweb.snapshots.opening import local_copy
    from stillweb.snapshots.remote import is_remote, local

    unknown = sorted(set(marker.kwargs) - _MEMBERS)
    if unknown or not marker.args:
        what = f"unknown argument {unknown[0]!r}" if unknown else "it needs the path of a snapshot"
        pytest.fail(f"{item.nodeid}: mark snapshot: {what}", pytrace=False)
    config = item.config
    mode = marker.kwargs.get("mode") or config.getoption("--stillweb-mode") or config.getini("stillweb_mode")
    try:
        mode = read_mode(str(mode))
        paths = tuple(p if is_remote(p) else str(item.path.parent / p) for p in map(str, marker.args))
        rules = item.path.parent / str(given) if (given := marker.kwargs.get("rules")) is not None else None
        shelves = config.stash[_SHELVES]
        if paths not in shelves:
            upstream = marker.kwargs.get("upstream_ca")
            if mode not in ("none", "once"):
                local(paths[-1])
            # copied now: the test itself may reach no store
            places = [Path(local_copy(path) if is_remote(path) else path) for path in paths]
            shelves[paths] = SharedSnapshots(places, mode, Path(upstream) if upstream else None, rules)
        shelf = shelves[paths]
        if shelf.mode != mode:  # a process writes a snapshot only once
            raise UsageError(
                f"mark snapshot: mode {mode!r}, but another test here has the same snapshot in {shelf.mode!r}"
            )
        if shelf.rules != rules:  # the snapshot is open with those of the other test
            raise UsageError("mark snapshot: rules: another test here has the same snapshot with other rules")
        if not shelf.recording:
            _ = shelf.snapshot  # a missing snapshot must fail the test before it runs
        elif _isolates(config):
            raise UsageError(f"{paths[-1]}: recording needs the network; record without --stillweb-isolate")
        # each worker of xdist would overwrite the others' recording
        elif hasattr(config, "workerinput"):
            raise UsageError(f"{paths[-1]}: several processes can't record one snapshot; record without -n")
        return Case(
            item.nodeid,
            shelf,
            accept=marker.kwargs.get("accept", "rule"),
            min_confidence=marker.kwargs.get("min_confidence", SERVED),
            max_misses=marker.kwargs.get("max_misses", 0),
            max_expected_wrong=marker.kwargs.get("max_expected_wrong"),
            allow=marker.kwargs.get("allow", ()),
            faults=_faults(item, marker),
        )
    except StillwebError as error:
        reason = str(error)
    # outside of the except block, so that the error is not shown twice
    pytest.fail(f"stillweb: {reason}", pytrace=False)


def _faults(item: pytest.Item, marker: pytest.Mark) -> Any:
    """Return the faults of a test: of its marker (a file beside the test's, or its content), else of the ini file."""
    from stillweb.harness.drills import read_faults

    given = marker.kwargs.get("faults")
    if given is None and (named := item.config.getini("stillweb_faults")):
        given = item.config.rootpath / str(named)
    return read_faults(item.path.parent / given if isinstance(given, str) else given)


# not a wrapper: must run inside pytest's own wrappers, on which its teardown relies
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Block the network before the test's fixtures are set up."""
    marker = item.get_closest_marker("snapshot")
    if marker is not None:
        case = _make_case(item, marker)
        item.stash[_CASE] = case
        case.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that passed or was skipped although it had misses or tried to reach the network."""
    case = item.stash.get(_CASE, None)
    if case is None and item.get_closest_marker("snapshot") is not None:
        pytest.fail(
            "stillweb: mark snapshot: the marker was added after the test had begun, too late to block the network",
            pytrace=False,
        )
    try:
        result = yield
    except pytest.skip.Exception:
        result = None
        if case is None or not case.complaint():  # "no network, so skip it" hides what is missing
            raise
    finally:
        if case is not None:
            item.stash[_TOLD] = case.faults
    if case is not None and (complaint := case.complaint()):
        pytest.fail(f"stillweb: {complaint}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Unblock the network after the teardown of the test's fixtures; misses in the teardown fail the test, too."""
    case = item.stash.get(_CASE, None)
    complaint: str | None = None
    try:
        result = yield
        if case is not None and case.faults > item.stash.get(_TOLD, case.faults):
            complaint = case.complaint()
    finally:
        if case is not None:
            case.close()
    if complaint:
        pytest.fail(f"stillweb: {complaint}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add the misses and refused network attempts to the report of a test that failed by itself."""
    report = yield
    case = item.stash.get(_CASE, None)
    if case is not None and not case.recording:
        from stillweb.proxy.net.isolation import is_isolated

        report.stillweb_open = not is_isolated()  # workers of xdist send this attribute to the controller
    if case is not None and report.when == "call" and report.failed:
        if text := case.misses_text():
            report.stillweb_miss = True
            report.sections.append(("stillweb: not in the snapshot", text))
        if tried := case.attempts_text():
            report.sections.append(("stillweb: the network is blocked in this test", tried))
    return report


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """Let the short summary say which failed tests had misses."""
    if report.failed and getattr(report, "stillweb_miss", False):
        return "failed", "F", "FAILED (stillweb miss)"
    return None


@pytest.fixture
def stillweb(request: pytest.FixtureRequest) -> Case:
    """Return the snapshot as this test sees it: proxy_url, environment, transport(), mount(), tools()."""
    case: Case | None = request.node.stash.get(_CASE, None)
    if case is None:
        pytest.fail('the fixture stillweb needs @pytest.mark.snapshot("path")', pytrace=False)
    return case


@pytest.fixture
def stillweb_proxy(stillweb: Case) -> str:
    """Return the proxy's URL for this test."""
    return stillweb.proxy_url


@pytest.fixture
def stillweb_environment(stillweb: Case) -> dict[str, str]:
    """Return environment variables that make a program use the proxy."""
    return stillweb.environment


@pytest.fixture
def stillweb_transport(stillweb: Case) -> Any:
    """Return an httpx transport that answers in this process."""
    return stillweb.transport()


@pytest.fixture
def stillweb_tools(stillweb: Case) -> Any:
    """Return a session of the tool `fetch` on the snapshot; `stillweb.tools(…)` gives other tools."""
    return stillweb.tools("fetch")
