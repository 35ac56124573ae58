"""Inputs that are wrong in what they mean: some of them, and that the fuzzer sees a traceback and a hang."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import fuzz
from benchmarks.damaging import meaning

CASES = 120  # some 6 s of one core; `python -m benchmarks.fuzz` does as many as one likes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[meaning.Masters]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("fuzz")
        patch.setenv("STILLWEB_CACHE", str(folder / "cache"))
        yield fuzz.make_masters(folder)


@pytest.mark.slow
@pytest.mark.fuzz
def test_no_odd_input_brings_a_traceback_or_a_hang(made: meaning.Masters) -> None:
    found = fuzz.fuzz(made, 1, range(CASES), 1)
    assert {name: count for name, count in found.items() if name.startswith("find")} == {}
    assert sum(found.values()) == CASES


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        *((7, number) for number in (1971, 3042, 8851, 9072, 12898, 16885)),
        (107, 1970),
        (181, 1726),
        (182, 406),
        (401, 1222),
        (402, 742),
        (402, 1471),
        (901, 6504),
        (2911, 31057),
        *((4811, number) for number in (3641, 37772, 53406, 85370)),
    ],
)
def test_what_the_fuzzer_found_once_is_told_in_a_line(
    made: meaning.Masters, seed: int, number: int, tmp_path: Path
) -> None:
    _, data, chance = meaning.case(made, seed, number)
    assert [name for name in fuzz.try_input(made, data, chance, tmp_path) if name.startswith("find")] == []


def test_a_case_is_made_of_its_seed_and_number_alone(made: meaning.Masters) -> None:
    for number in range(20):
        one, two = (meaning.case(made, 7, number)[:2] for _ in range(2))
        assert one == two


def test_it_sees_a_bug_and_a_hang(
    made: meaning.Masters, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def bug(file: str) -> None:
        raise IndexError("beyond")

    def hang(file: str) -> None:
        while True:
            pass

    data = meaning.steps(made, random.Random(1))
    monkeypatch.setattr(fuzz, "_load", bug)
    (found,) = [
        name for name in fuzz.try_input(made, data, random.Random(1), tmp_path) if name.startswith("find")
    ]
    assert found.startswith("find: load: IndexError: 'beyond'")
    monkeypatch.setattr(fuzz, "_load", hang)
    monkeypatch.setattr(fuzz, "SECONDS", 0.2)
    (found,) = [
        name for name in fuzz.try_input(made, data, random.Random(1), tmp_path) if name.startswith("find")
    ]
    assert found.startswith("find: load: TooSlow")


def test_it_sees_a_command_that_is_called_wrongly(
    made: meaning.Masters, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fuzz, "_commands", lambda *_: [["text", "x.wacz", "-o", "out"]])
    data = meaning.steps(made, random.Random(1))
    (found,) = [
        name for name in fuzz.try_input(made, data, random.Random(1), tmp_path) if name.startswith("find")
    ]
    assert found.startswith("find: text: exit code 2: ")
