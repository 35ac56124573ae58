"""The HTML page of a check: one file, each view's pictures side by side."""

from __future__ import annotations

import base64
from functools import lru_cache

from stillweb.proxy.checking.check import CheckReport
from stillweb.proxy.checking.pictures import small
from stillweb.proxy.pages.html_page import template


@lru_cache(maxsize=512)
def _picture(png: bytes) -> str:
    media, data = small(png)
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


def check_page(report: CheckReport, name: str, snapshot_id: str = "") -> str:
    """HTML without links outside; `name` is what was checked."""
    page = template("stillweb.proxy.checking", "check.html").render(
        name=name,
        id=snapshot_id,
        views=report.views,
        warning=report.warning,
        text=report.share("text"),
        aria=report.share("aria"),
        pixels=report.share("pixels"),
        picture=_picture,
    )
    _picture.cache_clear()
    return page
