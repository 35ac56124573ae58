"""Asks Tavily and Exa by their official clients, as any program does, and prints what came as JSON."""

import json
import sys

from exa_py import Exa
from tavily import BadRequestError, TavilyClient

PAGE, GONE, ABSENT = sys.argv[1:]


def refused(call, *errors):
    try:
        call()
    except errors as error:
        return f"{type(error).__name__}: {error}"
    return None


tavily = TavilyClient("tvly-none")
exa = Exa("none")
contents = exa.get_contents([PAGE, GONE, ABSENT], text={"max_characters": 40}, highlights=True)
hits = exa.search("gentoo mass", num_results=3)
bare = exa.search("gentoo mass", contents=False, include_domains=["site.test/birds"])
told = {
    "recorded": tavily.search("penguins", max_results=3),
    "search": tavily.search("gentoo mass", max_results=2, include_raw_content="markdown"),
    "within": tavily.search(
        "gentoo mass", include_domains=["site.test"], exclude_domains=["site.test/birds"]
    ),
    "empty": refused(lambda: tavily.search(""), BadRequestError),
    "long": refused(lambda: tavily.search("x" * 401), BadRequestError),
    "extract": tavily.extract([PAGE, ABSENT]),
    "exa recorded": [vars(hit) for hit in exa.search("penguins", contents=False).results],
    "exa search": [[hit.url, hit.title, len(hit.text)] for hit in hits.results],
    "exa bare": [[hit.url, hit.text] for hit in bare.results],
    "exa contents": [[hit.url, hit.title, hit.text, hit.highlights] for hit in contents.results],
    "exa statuses": [[one.id, one.status] for one in contents.statuses],
    "exa empty": refused(lambda: exa.search(""), ValueError),
}
sys.stdout.write(json.dumps(told, default=str))
