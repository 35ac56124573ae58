"""The rules of a site's robots.txt, as an exploration reads them."""

import asyncio
from pathlib import Path

from stillweb.proxy.explore.politeness import Manners
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin

RULES = b"User-agent: *\nDisallow: /\nAllow: /open/\nDisallow: /open/*.log$\n"


def answer(asked: Asked) -> Answer:
    return Answer(headers=[("Content-Type", "text/plain")], body=RULES)


def test_the_longest_rule_decides_and_stars_are_no_letters(tmp_path: Path) -> None:
    """RFC 9309, 2.2.2 and 2.2.3."""

    async def asked(manners: Manners, *urls: str) -> list[bool]:
        return [await manners.allowed(url) for url in urls]

    with Origin(answer) as origin, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        manners = Manners(recorder, Profile(), 0.0, "explorer")
        paths = ("/", "/open/page", "/open/a.log", "/open/a.log?x")
        found = asyncio.run(asked(manners, *(origin.url + path for path in paths)))
    assert found == [False, True, False, True]
