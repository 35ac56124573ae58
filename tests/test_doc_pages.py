"""Links of the documentation lead to a file that is there, and to a heading in it; its commands have the options that it names."""

import re
import shlex
from pathlib import Path

import click
import pytest

from stillweb.harness.cli import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/README.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"(?:^|[`\s(])stillweb ([a-z][^\n`|;&>]*)", re.M)
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


def wrong_commands(text: str) -> list[str]:
    """Return the command lines of `stillweb` in a text whose options, or their choices, are unknown."""
    found = []
    for line in COMMAND.findall(text.replace("\\\n", " ")):
        told = re.split(r"\s#\s|\s{3,}(?=\w)", line)[0].strip().rstrip(".,:)…")
        words = shlex.split(told) if told.count("'") % 2 == told.count('"') % 2 == 0 else told.split()
        if words[0] not in COMMANDS:
            continue
        command: click.Command | None = cli
        while isinstance(command, click.Group) and words:
            command = command.get_command(click.Context(command), words.pop(0))
        if command is None:
            continue
        words = words[: words.index("--")] if "--" in words else words
        try:
            given, *_ = command.make_parser(click.Context(command)).parse_args(words)
        except click.BadOptionUsage:  # prose names an option without its value
            continue
        except click.UsageError:
            found.append(line)
            continue
        for option in command.params:
            chosen = given.get(str(option.name))
            if isinstance(option.type, click.Choice) and chosen and chosen not in option.type.choices:
                found.append(line)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_the_options_that_are_named(page: Path) -> None:
    assert wrong_commands(page.read_text("utf-8")) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_the_help_have_the_options_that_are_named(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert wrong_commands(command.help or "") == []


def test_the_check_sees_a_wrong_command() -> None:
    text = "Type `stillweb ls SNAP --veiws`.\n\n    stillweb report run1 --format pdf   as a file\n    stillweb ls SNAP --views   # all of them\n"
    assert wrong_commands(text) == ["ls SNAP --veiws", "report run1 --format pdf   as a file"]
