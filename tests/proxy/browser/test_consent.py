"""Cookie banners of many wordings and makes are closed with the least consent, in a real browser."""

from collections.abc import Awaitable, Iterator
from urllib.parse import quote, unquote

import pytest

from stillweb.proxy.browser.driver import Driver
from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

WORDINGS = {  # what a banner says, the button to press, and the others
    "reject all": ("We use cookies to improve this site.", "Reject all", ["Accept all", "Cookie settings"]),
    "without accepting": (
        "We use cookies and similar technologies.",
        "Continue without accepting",
        ["Agree"],
    ),
    "deny": ("This website uses cookies.", "Deny", ["Allow all", "Customize"]),
    "necessary": ("This website uses cookies.", "Use necessary cookies only", ["Allow all cookies"]),
    "decline": ("We value your privacy. We use cookies.", "Decline", ["Accept"]),
    "es": ("Utilizamos cookies propias y de terceros.", "Rechazar todo", ["Aceptar todo"]),
    "it": ("Questo sito utilizza i cookie.", "Rifiuta tutto", ["Accetta tutti"]),
    "nl": ("Wij gebruiken cookies op deze site.", "Alles weigeren", ["Alles accepteren"]),
    "pl": ("Ta strona używa plików cookie.", "Odrzuć wszystkie", ["Akceptuj wszystkie"]),
    "zh": ("本网站使用 Cookie 来改善体验。", "全部拒绝", ["全部接受"]),
    "zh only necessary": ("我们使用 Cookie。", "仅接受必要的 Cookie", ["接受所有 Cookie"]),
    "fr": ("Nous utilisons des cookies.", "Continuer sans accepter", ["Tout accepter"]),
    "de": ("Wir verwenden Cookies.", "Nur notwendige Cookies", ["Alle akzeptieren"]),
    "ja": ("当サイトではCookieを使用しています。", "すべて拒否", ["すべて許可"]),
    "ja only necessary": ("このサイトはCookieを使用します。", "必要なCookieのみ", ["同意する"]),
    "pl only necessary": ("Ta strona używa ciasteczek.", "Tylko niezbędne", ["Zgadzam się"]),
    "pt": ("Este site usa cookies.", "Apenas os necessários", ["Aceitar"]),
    "da": ("Vi bruger cookies til statistik.", "Afvis alle", ["Accepter alle"]),
    "no": ("Vi bruker informasjonskapsler.", "Kun nødvendige", ["Godta alle"]),
    "fi": ("Käytämme evästeitä.", "Hylkää kaikki", ["Hyväksy kaikki"]),
    "cs": ("Soubory cookie používáme k analýze.", "Odmítnout vše", ["Přijmout vše"]),
    "hu": ("Sütiket használunk.", "Összes elutasítása", ["Elfogadom"]),
    "ro": ("Acest site folosește cookie-uri.", "Doar strict necesare", ["Accept toate"]),
    "tr": ("Çerezleri kullanıyoruz.", "Tümünü reddet", ["Tümünü kabul et"]),
    "el": ("Χρησιμοποιούμε cookies.", "Απόρριψη όλων", ["Αποδοχή όλων"]),
    "required": ("We use cookies.", "Proceed with required cookies only", ["Accept all"]),
    "do not consent": ("We use cookies.", "Do not consent", ["Consent", "Manage options"]),
    "hr": ("Koristimo kolačiće.", "Odbij sve", ["Prihvati sve"]),
    "bg": ("Използваме бисквитки.", "Отхвърляне на всички", ["Приемане"]),
    "ca": ("Utilitzem galetes.", "Rebutja-ho tot", ["Accepta-ho tot"]),
    "ar": ("نستخدم ملفات تعريف الارتباط.", "رفض الكل", ["قبول الكل"]),
    "he": ("אנו משתמשים בעוגיות.", "דחה הכל", ["אשר הכל"]),
    "vi": ("Chúng tôi sử dụng cookie.", "Từ chối tất cả", ["Chấp nhận tất cả"]),
    "id": ("Kami menggunakan cookie.", "Tolak semua", ["Terima semua"]),
    "uk": ("Ми використовуємо файли cookie.", "Відхилити всі", ["Прийняти всі"]),
}
asked: list[str] = []


def banner(text: str, buttons: list[str], around: str = "style='position:fixed;bottom:0'") -> str:
    made = "".join(
        f"<button onclick=\"fetch('/pressed?{quote(one)}');this.closest('.b').remove()\">{one}</button>"
        for one in buttons
    )
    return f"<div class=b {around}><p>{text}</p>{made}</div>"


def page(body: str) -> str:
    return f"<!DOCTYPE html><meta charset=utf-8><title>T</title><h1>Mills</h1><p>A page on mills.</p>{body}"


PLACES = {
    "fixed": lambda inner: page(inner),
    "frame": lambda inner: page(
        f'<iframe style="position:fixed;bottom:0" srcdoc="{inner.replace(chr(34), "&quot;")}"></iframe>'
    ),
    "shadow": lambda inner: page(
        f"<div id=host></div><template id=t>{inner}</template><script>"
        "host.attachShadow({mode:'open'}).append(t.content)</script>"
    ),
}
OTHERS = {
    "choices alone": page(
        "<div id=cookie-box role=dialog><p>We use cookies.</p><button onclick=\"document.getElementById('more').hidden=false\">"
        "Cookie settings</button><button onclick=\"fetch('/pressed?yes')\">Accept all</button>"
        "<div id=more hidden><button onclick=\"fetch('/pressed?no')\">Reject all</button></div></div>"
    ),
    "consent alone": page(banner("We use cookies.", ["Accept all"])),
    "pay": page(banner("We use cookies.", ["Reject and pay", "Accept all"])),
    "no banner": page(
        "<form><p>Do you eat fish?</p><button type=button onclick=\"fetch('/pressed?no')\">No</button></form>"
        "<footer>We use cookies to keep you signed in.</footer>"
    ),
    "age": page(banner("You must be 18. We use cookies.", ["Reject", "Enter"])),
}


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    asked.append(unquote(path))
    _, kind, *names = unquote(path).split("/")
    html = {"Content-Type": "text/html"}
    if kind == "banner":
        text, least, others = WORDINGS[names[0]]
        return 200, html, PLACES[names[1]](banner(text, [*others, least])).encode()
    return 200, html, OTHERS.get(kind, "").encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as base:
        yield base


async def pressed(driver: Driver, shown: Awaitable[object]) -> tuple[str | None, list[str]]:
    """Return the name that is told and the buttons that are pressed once a banner is shown."""
    asked.clear()
    await shown
    name = await driver.dismiss_banner()
    return name, [path.removeprefix("/pressed?") for path in asked if path.startswith("/pressed")]


def dismissed(browser: Browsing, *urls: str) -> list[tuple[str | None, list[str]]]:
    """Return this of pages, one after the other in a tab."""

    async def go() -> list[tuple[str | None, list[str]]]:
        driver = await browser.driver()
        return [await pressed(driver, driver.open(url)) for url in urls]

    return browser.run(go())


@pytest.mark.slow
def test_the_button_that_refuses_is_pressed(browser: Browsing, site: str) -> None:
    """In one document, as loading it anew takes most of the time."""

    async def go() -> dict[str, tuple[str | None, list[str]]]:
        driver = await browser.driver()
        await driver.open(f"{site}/fixed")
        found = {}
        for wording, (text, least, others) in WORDINGS.items():
            shown = banner(text, [*others, least])
            found[wording] = await pressed(
                driver, driver.page.evaluate("(b) => { document.body.innerHTML = b; }", shown)
            )
        return found

    assert browser.run(go()) == {wording: (least, [least]) for wording, (_, least, _) in WORDINGS.items()}


@pytest.mark.slow
def test_banners_in_frames_and_shadow_roots_are_closed(browser: Browsing, site: str) -> None:
    cases = [(wording, place) for wording in ("reject all", "pl") for place in ("frame", "shadow")]
    found = dismissed(browser, *(f"{site}/banner/{quote(wording)}/{place}" for wording, place in cases))
    assert dict(zip(cases, found, strict=True)) == {
        (wording, place): (WORDINGS[wording][1], [WORDINGS[wording][1]]) for wording, place in cases
    }


@pytest.mark.slow
def test_a_banner_without_refusal(browser: Browsing, site: str) -> None:
    wanted = {
        "choices alone": ("Cookie settings, Reject all", ["no"]),
        "consent alone": ("Accept all", ["Accept all"]),
        "pay": ("Accept all", ["Accept all"]),
        "no banner": (None, []),
        "age": (None, []),
    }
    found = dismissed(browser, *(f"{site}/{quote(kind)}" for kind in wanted))
    assert dict(zip(wanted, found, strict=True)) == wanted
