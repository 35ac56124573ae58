"""Pages that name no charset, or a wrong one, are read as a browser reads them."""

import pytest

from stillweb.snapshots.http.charsets import decode

SENTENCES = [
    ("windows-1251", "Порт построен в 1887 году. Глубина у шлюза двенадцать метров, длина причала триста."),
    ("koi8-u", "Порт построен в 1887 году. Глубина у шлюза двенадцать метров, длина причала триста."),
    ("euc-kr", "항구는 1887년에 지어졌다. 수심은 십이 미터이다. 여객선이 이곳에 정박한다."),
    ("shift_jis", "港は1887年に建設された。水深は十二メートルで、客船が停泊する。"),
    ("euc-jp", "港は1887年に建設された。水深は十二メートルで、客船が停泊する。"),
    ("gb18030", "港口建于1887年。水深十二米，客轮在此停泊。船闸长三百米。"),
    ("big5", "港口建於1887年。水深十二米，客輪在此停泊。船閘長三百米。"),
    ("windows-1250", "Port został zbudowany w 1887 roku. Głębokość przy śluzie wynosi dwanaście metrów."),
    ("iso-8859-2", "Port został zbudowany w 1887 roku. Głębokość przy śluzie wynosi dwanaście metrów."),
    ("windows-1253", "Το λιμάνι χτίστηκε το 1887. Το βάθος στην κλειδαριά είναι δώδεκα μέτρα."),
    ("windows-1255", "הנמל נבנה בשנת 1887. העומק ליד השער הוא שנים עשר מטרים."),
    ("windows-1256", "بني الميناء عام 1887. يبلغ العمق عند القفل اثني عشر مترا"),
    ("windows-1254", "Liman 1887 yılında inşa edildi. Kilitteki derinlik on iki metredir."),
    ("cp874", "ท่าเรือสร้างขึ้นในปี 1887 ความลึกที่ประตูน้ำคือสิบสองเมตร"),
    ("windows-1252", "Le port a été bâti en 1887; l'œuvre a coûté très cher à la société générale."),
]
FRENCH = "Le port a été bâti en 1887; l'œuvre a coûté très cher à la société générale."


@pytest.mark.parametrize(("charset", "sentence"), SENTENCES)
def test_a_page_that_names_no_charset_is_read_in_the_one_of_its_language(charset: str, sentence: str) -> None:
    page = f"<!doctype html><title>t</title><p>{sentence}</p>"
    found = decode(page.encode(charset), "text/html")
    assert found.text == page
    assert [warning.rpartition(" as ")[0] for warning in found.warnings] == ["no charset is named: read"]


@pytest.mark.parametrize(
    "label", ["text/html", "text/html; charset=windows-1252", "text/html; charset=utf-8"]
)
def test_one_damaged_byte_does_not_turn_a_page_of_utf_8_over(label: str) -> None:
    found = decode(FRENCH.encode().replace(b"1887", b"18\xff7"), label)
    assert found.text == FRENCH.replace("1887", "18\ufffd7")
    assert "1 characters could not be read as utf-8" in found.warnings


def test_nor_does_a_character_of_a_short_one_that_lost_a_byte() -> None:
    body = "<p>Le bureau a été bâti: 港口</p>".encode()
    assert decode(body.replace("港".encode(), "港".encode()[:2]), "text/html").encoding == "utf-8"


@pytest.mark.parametrize("damage", [b"\x80", b"\xe9", b"\xff"])
@pytest.mark.parametrize(("charset", "sentence"), SENTENCES)
def test_one_damaged_byte_does_not_turn_over_what_was_detected(
    charset: str, sentence: str, damage: bytes
) -> None:
    page = f"<!doctype html><title>t</title><p>{sentence} {sentence} ".encode(charset)
    found = decode(page + b"x" + damage + b" y " + sentence.encode(charset) + b"</p>", "text/html")
    assert found.text.count(sentence) == 3


def test_a_page_in_the_japanese_of_letters_is_read_with_a_warning() -> None:
    sentence = "港は1887年に建設された。"
    found = decode(f"<p>{sentence}</p>".encode("iso-2022-jp"), "text/html")
    assert found.text == f"<p>{sentence}</p>"
    assert found.warnings == ("no charset is named: read as iso2022_jp",)


def test_a_label_holds_where_the_bytes_may_be_either() -> None:
    for charset, sentence in SENTENCES:
        if charset != "cp874":  # no label of the web
            assert decode(sentence.encode(charset), f"text/html; charset={charset}").text == sentence
