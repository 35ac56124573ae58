"""Retrieval state: an attempt's position on a site, read from a URL and the browser's view of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

# Parameter names for the page number and for the order; compared without case, `_`, `-` and `$`.
_PAGE = {
    "page", "p", "pg", "pageno", "pagenum", "pagenumber", "start", "offset", "startindex", "next", "cursor"
}  # fmt: skip
_SORT = {"sort", "sortby", "sortdesc", "order", "orderby", "sortorder", "ordering", "dir"}

State = dict[str, Any]
EMPTY: State = {
    "site": "",
    "url": "",
    "fragment": None,
    "fields": {},
    "filters": {},
    "page": None,
    "sort": None,
}


def state_of(url: str, seen: Mapping[str, Any] | None = None) -> State:
    """Return the state at a URL: site, url, fragment, fields, filters, page, sort.

    `seen` is what a browser reads off its page (stillweb.proxy.browser.page_snapshot): `fields`, a list of {name?,
    label, type, value, checked?}, the selected `tabs` and `chosen` options, `page` and `sort`. It takes
    precedence over the URL.
    """
    seen = seen or {}
    url = str(seen.get("url") or url)
    parts = urlsplit(url)
    filters: dict[str, Any] = {}
    page: str | None = None
    sort: list[str] = []
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if "=" in parts.fragment:
        pairs += parse_qsl(parts.fragment.partition("?")[2] or parts.fragment, keep_blank_values=True)
    for name, value in pairs:
        plain = name.lower().replace("_", "").replace("-", "").replace("$", "")
        # a URL, to which a login returns
        if plain in _PAGE and not value.startswith(("/", "http:", "https:")):
            page = value
        elif plain in _SORT:
            sort.append(f"{name}={value}")
        else:
            _add(filters, name, value)
    for name in ("tabs", "chosen"):
        if seen.get(name):
            filters[name] = list(seen[name])
    return {
        "site": parts.netloc,
        "url": url.partition("#")[0],
        "fragment": parts.fragment or None,
        "fields": _fields(seen.get("fields") or ()),
        "filters": filters,
        "page": str(seen["page"]) if seen.get("page") else page,
        "sort": "; ".join(seen["sort"]) if seen.get("sort") else " ".join(sort) or None,
    }


def _fields(listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return form fields by name (else label); for check boxes and radio buttons the checked values."""
    fields: dict[str, Any] = {}
    for field in listed:
        name = str(field.get("name") or field.get("label") or field.get("type"))
        if field.get("type") in ("checkbox", "radio"):
            if field.get("checked"):
                _add(fields, name, field.get("value"))
            else:
                fields.setdefault(name, None)
        else:
            _add(fields, name, field.get("value"))
    return fields


def _add(group: dict[str, Any], name: str, value: Any) -> None:
    """Add a value; a repeated name holds a list."""
    before = group.get(name)
    if before is None:
        group[name] = value
    else:
        group[name] = [*(before if isinstance(before, list) else [before]), value]


def changes(before: State, after: State) -> list[dict[str, Any]]:
    """Return the differences as {name, from, to}; members of a group are named like `filters.year`."""
    found: list[dict[str, Any]] = []
    for name in ("site", "url", "fragment", "page", "sort"):
        if before[name] != after[name]:
            found.append({"name": name, "from": before[name], "to": after[name]})
    for group in ("fields", "filters"):
        for name in sorted({*before[group], *after[group]}):
            old, new = before[group].get(name), after[group].get(name)
            if old != new:
                found.append({"name": f"{group}.{name}", "from": old, "to": new})
    return found


class Standing:
    """Retrieval state of an attempt, updated call by call."""

    def __init__(self) -> None:
        self._state = EMPTY

    def state_after(self, call: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return members of the `state` event after a tool call, or None if the state did not change."""
        seen = (call.get("meta") or {}).get("state")
        url = (seen or {}).get("url") or call.get("address")
        if not url or "://" not in url or str(call["verdict"]).partition(":")[0] in ("miss", "failed"):
            return None
        before, self._state = self._state, state_of(url, seen)
        changed = changes(before, self._state)
        return {**self._state, "changed": changed} if changed else None
