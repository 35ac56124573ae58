"""The benchmark of damage: a few of its cases, and that it sees what is wrong."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.damage import table
from benchmarks.damaging import bounded, runs
from benchmarks.damaging.archives import OF_OTHERS, Case, Master, cases, masters, try_case
from benchmarks.damaging.wire import in_pieces
from stillweb.snapshots.warc import reading


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Master]]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("damage")
        patch.setenv("STILLWEB_CACHE", str(folder / "cache"))
        yield masters(folder, ["directory", "plain WARC", "WARC.gz"])


def found(made: dict[str, Master], chosen: list[Case]) -> dict[str, int]:
    faults: dict[str, int] = {}
    for _, one in bounded.bounded(chosen, lambda case: try_case(case, made)):
        faults |= {fault: count for fault, count in one.items() if not fault.startswith("(")}
    return faults


@pytest.mark.slow
def test_some_harms_are_told_and_hide_nothing_else(made: dict[str, Master]) -> None:
    every = list(cases(made, 1))
    chosen = [
        c
        for number, c in enumerate(every)
        if number % 50 == 0 or (c.harm in OF_OTHERS and c.when == "before")
    ]
    assert len({case.form for case in chosen}) == 3
    assert found(made, chosen) == {}


@pytest.mark.slow
def test_it_sees_what_is_served_wrong(made: dict[str, Master], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "check_answer", lambda *_: None)
    archive = "site/archive/data-00000.warc.gz"
    faults = found(made, [Case("directory", archive, "record removed", "opened", seed) for seed in (2, 3)])
    assert any(fault.startswith("served wrong: ") for fault in faults)


def test_it_sees_what_crashes_hangs_and_eats_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SECONDS", 0.5)

    def crash() -> dict[str, int]:
        raise IndexError("beyond")

    def hang() -> dict[str, int]:
        while True:
            time.sleep(0.1)

    def eat() -> dict[str, int]:
        return {str(len(bytearray(2 * bounded.MEMORY))): 1}

    jobs: list[Callable[[], dict[str, int]]] = [crash, hang, eat, dict]
    ended = dict(bounded.bounded(jobs, lambda job: job()))
    told = [next(iter(ended[job]), "").partition(":")[0] for job in jobs]
    assert told == ["crash", "hang", "memory", ""]


def test_requests_are_read_alike_however_they_are_cut() -> None:
    assert in_pieces(1) == {}


def test_its_table() -> None:
    rows = {"wacz": Counter(cases=3, faulty=1, lost=2, **{"refused whole": 1})}
    assert table(rows).splitlines()[-1] == "| wacz | 3 | 1 | lost 2 | 1 | 0 |"


def test_a_command_on_a_damaged_run_tells_code_and_error(tmp_path: Path) -> None:
    code, out, err = runs.call("score", tmp_path)
    assert (code, out) == (2, "")
    assert "is not a run" in err
