"""Recognition of login pages among pages with a password field, from their markup alone.

A form to register, or to keep settings, has a password among other fields, and is a page like others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from lxml import html

_SAYS = re.compile(
    r"\b(log|sign)[\s-]?(in|on)\b|\b(log|sign)ging in\b|\blog[io]n\b|remember me|(forgot|lost) (your |my )?password|password forgotten"
    r"|\banmeld(en|ung)\b|einloggen|passwort vergessen|connexion|se connecter|mot de passe oublié|iniciar sesi[óo]n|acceder"
    r"|\bentrar\b|\baccedi\b|вход|войти|登录|登入|ログイン|로그인",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"(^|[/_.-])(log-?in|sign-?in|log-?on|session|auth|authenticate|sso)s?([/_.?-]|$)", re.IGNORECASE
)
_PASSWORD_FIELDS = ".//input[translate(@type, 'PASWORD', 'pasword') = 'password']"
_SPEAKING = (
    ".//h1|.//h2|.//h3|.//legend|.//title|.//button|.//label|.//*[@role='button']|.//*[@role='heading']"
)
_TYPED = frozenset({"", "text", "email", "tel", "url", "search"})  # types of fields that a name is typed into
_MUTE = frozenset({"hidden", "submit", "button", "image", "reset", "checkbox", "password"})
_ROLES = frozenset(
    {"slider", "spinbutton", "combobox", "listbox", "radio", "switch", "tab", "grid", "textbox"}
)


def asks_who(markup: str) -> bool:
    """Return True if a page's password form is a login: it says so, or has hardly any other field.

    `markup` has a password field.
    """
    page = html.document_fromstring(
        markup.encode("utf-8", "replace"), parser=html.HTMLParser(encoding="utf-8")
    )
    passwords = page.xpath(_PASSWORD_FIELDS)
    return any(_is_login(field, page) for field in passwords) if passwords else True


def _is_login(password: Any, page: Any) -> bool:
    form = next((one for one in password.iterancestors("form")), None)
    scope = form if form is not None else page
    others = [one for one in scope.xpath(_PASSWORD_FIELDS) if one is not password]
    autocomplete = (password.get("autocomplete") or "").lower()
    if autocomplete == "new-password" or (others and autocomplete != "current-password"):
        return False  # typed twice, by a person who chooses a password
    if autocomplete == "current-password" or (form is not None and _LEADS.search(form.get("action") or "")):
        return True
    if _SAYS.search(_words_in(scope)) or _SAYS.search(_headed(page)):
        return True
    fields = [_kind(one) for one in scope.iter("input", "select", "textarea")]
    fields += [
        one.get("role")
        for one in scope.xpath(".//*[@role]")
        if one.get("role") in _ROLES and one.tag != "input"
    ]
    typed = sum(kind in _TYPED for kind in fields)
    return typed <= 1 and all(kind in _TYPED or kind in _MUTE for kind in fields)


def _kind(field: Any) -> str:
    if field.tag != "input":
        return str(field.tag)
    role = (field.get("role") or "").lower()
    return role if role in _ROLES - {"textbox"} else (field.get("type") or "").strip().lower()


def _words_in(scope: Any) -> str:
    """Return the texts of a form's buttons, labels and headings."""
    texts = [" ".join(one.itertext()) for one in scope.xpath(_SPEAKING)]
    texts += [one.get("value") or "" for one in scope.iter("input") if _kind(one) in ("submit", "button")]
    return "\n".join(" ".join(text.split()) for text in texts)


def _headed(page: Any) -> str:
    return "\n".join(" ".join(" ".join(one.itertext()).split()) for one in page.xpath(".//title|.//h1|.//h2"))


Kind = Literal[
    "captcha", "consent", "forbidden", "too-many", "login", "missing", "error", "empty", "loading", "broken"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a page: its kind, and the evidence in a few words. `form`: filling it in leads on."""

    kind: Kind
    reason: str
    form: bool = False


_SHORT = 1500  # characters of visible text up to which a page can be nothing but a wall

_CAPTCHA_MARKUP = re.compile(
    r"challenges\.cloudflare\.com|cf-chl-|cf_chl_opt|/cdn-cgi/challenge-platform|google\.com/recaptcha/|g-recaptcha|"
    r"hcaptcha\.com/|h-captcha|captcha-delivery\.com|px-captcha|_Incapsula_Resource|/_sec/cp_challenge|awswaf",
    re.IGNORECASE,
)
_CAPTCHA_TEXT = re.compile(
    r"verify(ing)? (that )?you are (a )?human|are you a robot|i'?m not a robot|prove you(’|')?re not a robot|"
    r"unusual traffic from your|complete the (captcha|security check)|checking your browser|just a moment\.\.\.|"
    r"press (&|and) hold to confirm|enable javascript and cookies to continue|enter the characters you see|"
    r"人机验证|请完成(安全)?验证|ロボットではありません|bist du ein roboter|vérifi\w+ que vous êtes humain",
    re.IGNORECASE,
)
_CONSENT_TEXT = re.compile(
    r"before you continue to|we (value|care about) your privacy|accept (all )?cookies to continue|"
    r"consent to (the use of )?cookies|alle akzeptieren|tout accepter",
    re.IGNORECASE,
)
_CONSENT_MARKUP = re.compile(
    r"consent\.(google|youtube|yahoo)\.|guce\.|onetrust-consent|qc-cmp2|sp_message_container|"
    r"CybotCookiebotDialog|didomi-popup",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"access (to this (page|site) (has been|is) )?(denied|forbidden)|403 forbidden|you have been blocked|"
    r"you don(’|')t have permission to access|not available in your (country|region)|request blocked",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(
    r"too many requests|rate limit(ed| exceeded)|slow down,? please|429 too many", re.IGNORECASE
)
_LOGIN_TEXT = re.compile(
    r"(sign|log) ?in to (continue|view|see|access|your account)|please (sign|log) ?in|you must be logged in|"
    r"(login|authentication|anmeldung) (is )?(required|erforderlich)|members only|请登录",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"<input\b[^>]*\btype\s*=\s*[\"']?password", re.IGNORECASE)
_MISSING = re.compile(
    r"(page|file|document|content|resource)( you (requested|were looking for|are looking for))? "
    r"(was |is |could |can)?(not|n't|n’t) (be )?(found|exist|available)|(page|file) not found|"
    r"we (can(’|')?t|couldn(’|')?t) find (that|the|this) page|(error )?404\b(?!\d)[^\n]{0,40}(not found|error)|"
    r"no longer (available|exists)|seite nicht gefunden|page introuvable|página no encontrada|页面不存在",
    re.IGNORECASE | re.MULTILINE,
)
_ALONE = re.compile(r"^\s*404\s*$", re.MULTILINE)  # a number like others, unless the page begins with it
_HEADED = re.compile(r"\A\s*404\b|<(?:h1|h2|title)\b[^>]*>[^<]*\b404\b", re.IGNORECASE)
_ERROR = re.compile(
    r"application error: a client-side exception|internal server error|service (temporarily )?unavailable|"
    r"bad gateway|gateway time-?out|something went wrong|this site can(’|')t be reached",
    re.IGNORECASE,
)
_LOADING = re.compile(
    r"^\W*(loading|please wait|wird geladen|chargement|cargando|読み込み中|加载中|fetching data)[\s.…]*$",
    re.IGNORECASE | re.MULTILINE,
)
_DOTS = re.compile(r"(\.{2,}|…)[\s.…]*$|wait", re.IGNORECASE | re.MULTILINE)
_NO_SCRIPT = re.compile(
    r"(enable|requires|turn on|activate) javascript|javascript (is|must be) (disabled|enabled|required)",
    re.IGNORECASE,
)
_SPINNER = re.compile(r"aria-busy\s*=\s*[\"']?true|role\s*=\s*[\"']?progressbar", re.IGNORECASE)
_SCRIPT = re.compile(
    r"<script\b.*?</script\s*>|<style\b.*?</style\s*>|<template\b.*?</template\s*>", re.DOTALL | re.I
)
_CONTENT = re.compile(
    r"<(img|svg|canvas|video|audio|picture|iframe|frame|object|embed|math)\b", re.IGNORECASE
)


def _said(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return f'says "{" ".join(found.group().split())[:60]}"' if found else ""


def examine(status: int, text: str, html: str, broken: str = "") -> Finding | None:
    """Return the fault of a page from its status, visible text and HTML; None if it looks good.

    `status` is 0 if unknown. `broken` says why its document is incomplete, "" if it is whole.
    """
    if broken:
        return Finding("broken", f"its document ended early: {broken}")
    words = " ".join(text.split())
    short = len(words) <= _SHORT
    body = _SCRIPT.sub("", html)
    if captcha := _said(_CAPTCHA_TEXT, words) if short else "":
        return Finding("captcha", captcha)
    if _CAPTCHA_MARKUP.search(html) and (len(words) < 300 or (status in (403, 429, 503) and short)):
        return Finding("captcha", "is a challenge page of a bot protection")
    if status == 429 or (short and len(words) < 600 and _TOO_MANY.search(words)):
        return Finding("too-many", f"status {status}" if status == 429 else _said(_TOO_MANY, words))
    if status in (401, 403) and short and _PASSWORD.search(body) and asks_who(body):
        return Finding("login", f"status {status}, with a form that asks for a password", form=True)
    if status == 401:
        return Finding("login", "status 401")
    if status in (403, 451):
        return Finding("forbidden", f"status {status}")
    if status in (404, 410):
        return Finding("missing", f"status {status}")
    if status >= 400:
        return Finding("error", f"status {status}")
    return _soft(words, text, html, body, short)


def _soft(words: str, text: str, html: str, body: str, short: bool) -> Finding | None:
    """Return the fault of a page with a good status, None if it has none."""
    head = words[:400]
    if short:
        if len(words) < 600 and _DENIED.search(words):
            return Finding("forbidden", _said(_DENIED, words))
        if _CONSENT_TEXT.search(words) and (len(words) < 900 or _CONSENT_MARKUP.search(html)):
            return Finding("consent", _said(_CONSENT_TEXT, words))
        if _LOGIN_TEXT.search(words) and (_PASSWORD.search(body) or len(words) < 400):
            return Finding("login", _said(_LOGIN_TEXT, words), form=True)
        if len(words) < 250 and _PASSWORD.search(body) and asks_who(body):
            return Finding("login", "is a form that asks for a password", form=True)
        for said in (head, text[:400]):
            if len(words) < 800 and _MISSING.search(said):
                return Finding("missing", _said(_MISSING, said))
        if len(words) < 400 and _ALONE.search(text) and (_HEADED.search(text) or _HEADED.search(html)):
            return Finding("missing", 'says "404"')
        if len(words) < 400 and _ERROR.search(words):
            return Finding("error", _said(_ERROR, words))
    loading = _LOADING.search(text) if len(words) < 200 else None
    if loading and (_DOTS.search(loading.group()) or len(words) < 30 or _SPINNER.search(body)):
        return Finding("loading", _said(_LOADING, text))
    if len(words) < 20 and _SPINNER.search(body):
        return Finding("loading", "shows only a progress bar")
    if len(words) < 300 and _NO_SCRIPT.search(words):
        return Finding("empty", _said(_NO_SCRIPT, words))
    if not words and not _CONTENT.search(body):
        return Finding("empty", "shows no text and no picture")
    return None
