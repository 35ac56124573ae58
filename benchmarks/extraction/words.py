"""Share of the visible words of the pages in `pages/` that our text has, and that of mcp-server-fetch.

    python -m benchmarks.extraction.words [--peer PYTHON] [--peer-path FOLDER]

A reader sees what Chromium shows: text that is displayed, values of fields, options. What the pages mark as around
their content (`data-around`) is boilerplate, and not counted. `--peer` is a Python with mcp-server-fetch;
`--peer-path` a folder with a ReadabiliPy whose Readability.js is installed, which its wheel lacks.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
from playwright.sync_api import sync_playwright

from stillweb.proxy.browser.browser import find_browser
from stillweb.snapshots.capture import Response
from stillweb.snapshots.text.text import extract

PAGES = Path(__file__).parent / "pages"
PEER = Path(__file__).parents[2] / ".venv-peers-fetch/bin/python"
# Words of an element as Chromium shows them; blocks, cells and tokens of formulas are parted by spaces.
SEEN = """() => {
  const out = [];
  const walk = node => {
    if (node.nodeType === Node.TEXT_NODE) { out.push(node.data); return; }
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    const inSelect = node.closest('select') && node.tagName !== 'SELECT';
    if (!inSelect && (!node.checkVisibility({visibilityProperty: true}) || node.closest('[data-around]'))) return;
    const apart = inSelect || node.closest('math') || ['SUP', 'RT', 'BR', 'SELECT', 'text'].includes(node.localName)
      || ['SUP', 'RT', 'BR'].includes(node.tagName) || !['inline', 'contents'].includes(getComputedStyle(node).display);
    if (apart) out.push(' ');
    if (node.tagName === 'INPUT') {
      if (!['checkbox', 'radio', 'hidden', 'password', 'range', 'color', 'file'].includes(node.type)) out.push(node.value);
    } else if (node.tagName === 'TEXTAREA') out.push(node.value);
    else if (node.tagName === 'PROGRESS' || node.tagName === 'METER') out.push('');
    else {
      if (node.tagName === 'OPTGROUP') out.push(node.label + ' ');
      if (!['SCRIPT', 'STYLE', 'NOSCRIPT', 'TITLE'].includes(node.tagName.toUpperCase())) node.childNodes.forEach(walk);
    }
    if (apart) out.push(' ');
  };
  walk(document.body);
  return out.join('');
}"""
# ReadabiliPy starts Node for each page, which takes a second to load jsdom; here one Node runs its script for all.
ASK_PEER = """
import json, os, subprocess, sys
if sys.argv[1]: sys.path.insert(0, sys.argv[1])
from mcp_server_fetch.server import extract_content_from_html
from readabilipy import simple_json
script = os.path.join(os.path.dirname(simple_json.__file__), "javascript", "ExtractArticle.js")
lines = "require('readline').createInterface({input: process.stdin}).on('line', (line) => " \\
    f"{{ process.argv = JSON.parse(line); delete require.cache[{script!r}]; require({script!r}); console.log(); }})"
started, node = subprocess.run, None
def run(command, **options):
    global node
    if "ExtractArticle.js" not in command: return started(command, **options)
    node = node or subprocess.Popen(["node", "-e", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(json.dumps(command), file=node.stdin, flush=True)
    assert node.stdout.readline(), command
subprocess.run = run
pages = json.load(sys.stdin)
found = {name: extract_content_from_html(html) for name, html in pages.items()}
print(flush=True)  # ends what npm may have said
print(json.dumps(found))
"""
_TARGET = re.compile(r"\]\((?:[^()\s]|\([^()\s]*\))*\)")
_MARK = re.compile(
    r"^\s*(?:[-*+>#]+\s+)*(?:(?:\d+|[a-z]{1,4})\.\s)?", re.M
)  # of headings and list items, which no text node holds
_UNIT = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    r"(?<=[\u3000-\u30ff\u3400-\u9fff])(?=[^\W_])"
)  # a word in Chinese and Japanese is a character


@dataclass(frozen=True, slots=True)
class Read:
    """The shares of a page's words, and of its pairs of neighbouring words, that stand in a text."""

    words: float
    pairs: float
    lost: tuple[str, ...]


def units(text: str) -> list[str]:
    """Return the words of a text, of Chinese and Japanese the characters."""
    return _UNIT.findall(_UNSPACED.sub(" ", text))


def read(seen: str, text: str) -> Read:
    """Compare what is seen with a text in markdown, of which marks, escapes and link targets don't count."""
    plain = _MARK.sub("", _TARGET.sub("", text)).replace("[x]", "").replace("\\", "")
    wanted, found = units(seen), units(plain)
    lost = Counter(wanted) - Counter(found)
    pairs = Counter(pairwise(wanted))
    missing = sum((pairs - Counter(pairwise(found))).values())
    return Read(
        1 - lost.total() / max(1, len(wanted)), 1 - missing / max(1, pairs.total()), tuple(lost.elements())
    )


def pages() -> dict[str, bytes]:
    """Return the pages of the corpus by name."""
    return {path.stem: path.read_bytes() for path in sorted(PAGES.glob("*.html"))}


def seen_in_browser(bodies: Mapping[str, bytes]) -> dict[str, str]:
    """Return what Chromium shows of each page, by name."""
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_browser()), args=["--no-sandbox"])
        page = browser.new_page()
        page.route(
            "**/*",
            lambda route: route.fulfill(
                body=bodies.get(route.request.url.rpartition("/")[2], b""), content_type="text/html"
            ),
        )
        for name in bodies:
            page.goto(f"https://corpus.test/{name}", wait_until="domcontentloaded")
            found[name] = str(page.evaluate(SEEN))
        browser.close()
    return found


def ours(body: bytes) -> str:
    """Return our text of a page, from its bytes."""
    text = extract(
        None, Response(200, "OK", (("content-type", "text/html"),), body), address="https://corpus.test/x"
    )
    return text.markdown if text is not None else ""


def theirs(bodies: Mapping[str, bytes], peer: Path = PEER, folder: str = "") -> dict[str, str]:
    """Return the texts of mcp-server-fetch, which decodes a page without a charset as UTF-8."""
    given = json.dumps({name: body.decode("utf-8", "replace") for name, body in bodies.items()})
    done = subprocess.run(
        [peer, "-c", ASK_PEER, folder], input=given, capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(
    seen: Mapping[str, str], peer: Path = PEER, folder: str = ""
) -> Iterator[tuple[str, int, Read, Read]]:
    """Yield each page's name, its number of words, and how we and mcp-server-fetch read what is `seen` on it."""
    bodies = pages()
    others = theirs(bodies, peer, folder)
    for name, body in bodies.items():
        yield name, len(units(seen[name])), read(seen[name], ours(body)), read(seen[name], others[name])


def share(found: Iterable[tuple[int, Read]]) -> float:
    """Return the share of all words of all pages that arrive."""
    every = list(found)
    return sum(count * one.words for count, one in every) / sum(count for count, _ in every)


@click.command()
@click.option(
    "--peer",
    default=PEER,
    type=click.Path(exists=True, path_type=Path),
    help="A Python with mcp-server-fetch.",
)
@click.option("--peer-path", default="", help="A folder with a ReadabiliPy that has Readability.js.")
def main(peer: Path, peer_path: str) -> None:
    """Print the shares of words and of neighbouring words that arrive, page by page."""
    rows = list(compared(seen_in_browser(pages()), peer, peer_path))
    click.echo(f"{'page':14} {'words':>5} {'ours':>7} {'pairs':>7} {'theirs':>7} {'pairs':>7}")
    for name, count, we, they in rows:
        click.echo(
            f"{name:14} {count:5} {we.words:7.1%} {we.pairs:7.1%} {they.words:7.1%} {they.pairs:7.1%}  {' '.join(we.lost[:8])}"
        )
    click.echo(
        f"all            {share((n, we) for _, n, we, _ in rows):.2%} of the words arrive here, "
        f"{share((n, they) for _, n, _, they in rows):.2%} in mcp-server-fetch"
    )


if __name__ == "__main__":
    main()
