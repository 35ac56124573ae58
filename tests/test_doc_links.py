"""Links of the documentation lead to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/README.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    words = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower() for heading in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in words}


def broken(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere; those to other sites are not followed."""
    found = []
    for link in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.S)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (
            anchor and anchor not in anchors(text if target == page else target.read_text("utf-8"))
        ):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text("utf-8")) == []


def test_the_check_sees_a_broken_link() -> None:
    page = ROOT / "docs" / "identity.md"
    text = "# A heading\n[a](identity.md) [b](gone.md) [c](ledger.md#no-such) [d](ledger.md#members) [e](#a-heading) [f](#none)"
    assert broken(page, text) == ["gone.md", "ledger.md#no-such", "#none"]


def test_every_page_is_in_the_site() -> None:
    named = set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M))
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")}
