"""Jobs on all cores: results in order, and failures that the caller hears of."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from stillweb.snapshots._os import processes
from tests.support.waiting import STARTS, until


def twice(job: bytes) -> bytes:
    return job * 2


def odd(job: bytes) -> bytes:
    if job == b"raise":
        raise ValueError(job)
    if job == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    return job


@pytest.fixture(params=["forks", "new processes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "new processes":
        monkeypatch.setattr(processes, "can_fork", lambda: False)
    elif threading.active_count() > 1 or not until(processes.can_fork, 10):
        # as a worker of xdist has; the kernel may count one that was joined a moment ago, hence the waiting
        pytest.skip("this process has threads; done in a process without, see below")
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_results_come_in_the_order_of_the_jobs() -> None:
    jobs = [b"%d" % number * (1 + 1000 * (number % 3)) for number in range(40)]
    assert list(processes.run_all(twice, jobs, 3)) == [job * 2 for job in jobs]
    assert list(processes.run_all(twice, [], 2)) == []
    assert list(processes.run_all(twice, [b"x" * (1 << 20)], 4)) == [b"x" * (1 << 21)]


def test_what_fails_is_none_and_the_rest_is_done(way: str) -> None:
    assert list(processes.run_all(odd, [b"a", b"raise", b"b"], 1)) == [b"a", None, b"b"]
    done = list(processes.run_all(odd, [b"die", b"a", b"die", b"b", b"c"], 2))
    if way == "forks":  # which are not replaced
        assert [done[0], done[2]] == [None, None]
        assert len(done) == 5
    else:
        assert done == [None, b"a", None, b"b", b"c"]


def test_leaving_early_ends_the_workers(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fork, made = os.fork, list[int]()
    monkeypatch.setattr(os, "fork", lambda: made.append(fork()) or made[-1])
    results = processes.run_all(twice, [b"a", b"b", b"c"], 2)
    assert next(results) == b"aa"
    results.close()
    assert bool(made) == (way == "forks")
    for pid in made:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_a_process_with_threads_is_not_forked(way: str) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert not processes.can_fork()
    finally:
        done.set()
        thread.join()


@pytest.mark.slow
def test_all_of_it_by_forks_in_a_process_without_threads() -> None:
    """`make test` runs in workers of xdist, which have threads: there the tests above are skipped for forks."""
    chosen = "not without_threads and not new"
    command = [sys.executable, "-mpytest", "-q", "-p", "no:xdist", "-k", chosen, __file__]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(command, capture_output=True, text=True, timeout=STARTS, env=alone)
    assert run.returncode == 0, run.stdout
    assert "4 passed" in run.stdout, run.stdout  # none skipped
