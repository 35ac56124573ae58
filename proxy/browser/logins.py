"""Recognition of login pages among pages with a password field, from their markup alone.

A form to register, or to keep settings, has a password among other fields, and is a page like others.
"""

from __future__ import annotations

import re
from typing import Any

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
_PASSWORD = ".//input[translate(@type, 'PASWORD', 'pasword') = 'password']"
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
    passwords = page.xpath(_PASSWORD)
    return any(_is_login(field, page) for field in passwords) if passwords else True


def _is_login(password: Any, page: Any) -> bool:
    form = next((one for one in password.iterancestors("form")), None)
    scope = form if form is not None else page
    others = [one for one in scope.xpath(_PASSWORD) if one is not password]
    told = (password.get("autocomplete") or "").lower()
    if told == "new-password" or (others and told != "current-password"):
        return False  # typed twice, by a person who chooses a password
    if told == "current-password" or (form is not None and _LEADS.search(form.get("action") or "")):
        return True
    if _SAYS.search(_said(scope)) or _SAYS.search(_headed(page)):
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


def _said(scope: Any) -> str:
    """Return the texts of a form's buttons, labels and headings."""
    texts = [" ".join(one.itertext()) for one in scope.xpath(_SPEAKING)]
    texts += [one.get("value") or "" for one in scope.iter("input") if _kind(one) in ("submit", "button")]
    return "\n".join(" ".join(text.split()) for text in texts)


def _headed(page: Any) -> str:
    return "\n".join(" ".join(" ".join(one.itertext()).split()) for one in page.xpath(".//title|.//h1|.//h2"))
