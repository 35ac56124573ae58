"""Lines that change by themselves are learned; all else tells views apart."""

from stillweb.proxy.explore.moves import Noise, shown


def test_numbers_that_change_by_themselves_are_learned() -> None:
    noise = Noise()
    first, again = "Mills\nQueries took 9.43ms\n3 rows", "Mills\nQueries took 12ms\n3 rows"
    assert noise.look(first) != noise.look(again)
    assert noise.learn(first, again)
    assert not noise.learn(first, again)
    assert noise.look(first) == noise.look(again)
    assert noise.look("Mills\nQueries took 1,000ms\n4 rows") != noise.look(first)
    assert Noise(sorted(noise.masks)).look(again) == noise.look(first)


def test_words_that_change_are_no_noise() -> None:
    noise = Noise()
    assert not noise.learn("North\n3 rows", "South\n3 rows")
    assert not noise.learn("a", "a\nb 3")
    assert noise.look("North") != noise.look("South")


def test_what_fields_hold_is_no_other_view() -> None:
    before = shown(
        "x", '- combobox "Year":\n  - option "2018" [selected]\n  - option "2019"\n- textbox "Find": a'
    )
    after = shown(
        "x", '- combobox "Year":\n  - option "2018"\n  - option "2019" [selected]\n- textbox "Find": b'
    )
    assert before == after
    assert before != shown("y", "")
