"""`python -m benchmarks.states`: servers that remember, walked while recording and walked otherwise in replay.

At each step a live server with the same past gives the true answer. A request is *answerable* if that answer was recorded for it.
The report says, for each group of servers: how many of the answerable requests are answered right where at most 1, 3 or 10 % of
all answers are wrong (the curve); right and wrong at the default threshold; answers that are sure and wrong; needless misses (the
answer was recorded, yet it was not served); how often answers of each tenth of confidence are right; and walks as recorded.
"""

from __future__ import annotations

import hashlib
import importlib
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import urljoin

import click

from benchmarks.everyday import EVERYDAY
from benchmarks.mini_services import SITES
from benchmarks.mini_sites import Mini, asked_of
from benchmarks.unseen import UNSEEN
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence import SERVED, SURE
from stillweb.snapshots.evidence.conditions import Store
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import MemoryStore, Recorded

RECORDED, RANDOM = "as recorded", "random"
CHANGED = ("shuffled", "left out", "repeated", "swapped", "mixed")  # how a recorded walk is changed
DEFAULT = SERVED
FOLLOWED = 0.2  # confidence from which the measured client goes on with an answer
LIMITS = (0.01, 0.03, 0.1)  # wrong answers, of all requests
TENTH = 100  # answers that a tenth of confidence needs to count in the largest gap
# tokens, clocks, and the moment at which an answer was made, in its body and in its Date field
DRAWN = re.compile(r"drawn[0-9a-f]{8}|\b17\d{11}\b|2025-\d\d-\d\dT[\d:+]+|\w{3}, \d\d \w{3} 2025 [\d:]+ GMT")
HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
PLACE = re.compile(r"__(\w+?)__")


class Session(Protocol):
    """A client's own line of requests in replay."""

    def ask(self, request: Request) -> tuple[Response | None, float]:
        """Return the likeliest recorded answer and its confidence."""
        ...

    def settle(self, served: bool) -> None:
        """Go on after `ask`: the answer was served, or the request was a miss."""
        ...

    def happened(self, request: Request, response: Response) -> None:
        """Go on after `ask`: a live server gave `response`."""
        ...


Engine = Callable[[Store], Callable[[], Session]]  # a snapshot -> a maker of sessions


class _EvidenceSession:
    """A session of the matcher that weighs the evidence."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher, self._session = matcher, matcher.session("replay")

    def ask(self, request: Request) -> tuple[Response | None, float]:
        self._lookup = self._matcher.lookup(request, self._session, min_confidence=0.0)
        if self._lookup.capture is None:
            return None, 0.0
        return self._matcher.snapshot.read(self._lookup.capture), self._lookup.confidence

    def settle(self, served: bool) -> None:
        if served:
            self._session.answered(self._lookup)
        elif self._lookup.capture is not None:
            self._matcher.lookup(self._lookup.request, self._session, min_confidence=FOLLOWED)  # notes a miss

    def happened(self, request: Request, response: Response) -> None:
        self._session.happened(request, response)


def _evidence(store: Store) -> Callable[[], Session]:
    matcher = Matcher(store)
    return lambda: _EvidenceSession(matcher)


ENGINES: dict[str, Engine] = {"evidence": _evidence}


def engine_named(name: str) -> Engine:
    """Return an engine of ENGINES, or the one that `MODULE:NAME` names."""
    if name in ENGINES:
        return ENGINES[name]
    module, _, attribute = name.partition(":")
    if not attribute:
        raise click.UsageError(
            f"--engine {name}: there is no such engine. Use {', '.join(ENGINES)} or MODULE:NAME."
        )
    engine: Engine = getattr(importlib.import_module(module), attribute)
    return engine


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a measured walk and what an engine made of it."""

    confidence: float
    right: bool
    answerable: bool
    several: bool = True  # whether the request has several recorded answers
    what: str = ""  # the request in words

    @property
    def wrong(self) -> bool:
        """Return True if an answer of whatever confidence is not the true one."""
        return self.confidence > 0 and not self.right


class Client:
    """A client: a cookie jar, the hidden form values that it saw last, and a clock."""

    def __init__(self, clock: int) -> None:
        self._jar: dict[str, str] = {}
        self._hidden: dict[str, str] = {}
        self._clock = (
            1735689600000 + clock * 1000
        )  # as the store dates its captures: from 2025-01-01, a second each

    def request(self, template: Request) -> Request:
        """Return the request that this client makes of a template."""
        if b"__" in template.body or "__" in template.url:
            self._clock += 717
            known = {**self._hidden, "clock": str(self._clock)}
            body = PLACE.sub(lambda m: known.get(m[1], "none"), template.body.decode())
            url = PLACE.sub(lambda m: known.get(m[1], "none"), template.url)
            template = replace(template, url=url, body=body.encode())
        if self._jar and template.header("cookie") is None:
            cookie = "; ".join(f"{name}={value}" for name, value in self._jar.items())
            template = replace(template, headers=(*template.headers, ("Cookie", cookie)))
        return template

    def saw(self, response: Response) -> None:
        """Keep the cookies and hidden form values of an answer."""
        for name, value in response.headers:
            if name.lower() == "set-cookie":
                cookie, _, text = value.partition(";")[0].partition("=")
                self._jar.pop(cookie, None)
                if text:
                    self._jar[cookie] = text
        self._hidden |= HIDDEN.findall(response.body.decode("utf8", "replace"))


def walk(mini: Mini, draw: random.Random, length: int) -> list[Request]:
    """Return requests drawn at random, most of them of a few kinds, as a visitor makes them."""
    few = draw.sample(mini.requests, min(len(mini.requests), draw.randint(3, 5)))
    return [draw.choice(few if draw.random() < 0.8 else mini.requests) for _ in range(length)]


def changed(how: str, walks: list[list[Request]], draw: random.Random) -> list[Request]:
    """Return a recorded walk, changed in one of the ways of CHANGED, at most 16 requests of it."""
    requests = list(draw.choice(walks))
    if how == "shuffled":
        draw.shuffle(requests)
    elif how == "left out":
        requests = [request for request in requests if draw.random() > 0.2]
    elif how == "repeated":
        requests = [one for request in requests for one in [request] * draw.choice((1, 1, 1, 2))]
    elif how == "swapped":
        for at in range(0, len(requests) - 1, 2):
            if draw.random() < 0.5:
                requests[at : at + 2] = reversed(requests[at : at + 2])
    else:  # a piece of one walk after a piece of another
        second = draw.choice(walks)
        requests = requests[: draw.randint(1, len(requests))] + second[draw.randrange(len(second)) :]
    return requests[:16]


def followed(request: Request, response: Response) -> Request | None:
    """Return the request that a client makes after a redirect."""
    to = response.header("location")
    return Request("GET", urljoin(request.url, to)) if to else None


def _plain(request: Request) -> tuple[object, ...]:
    """Return a request without its drawn tokens."""
    headers = tuple((name, DRAWN.sub("drawn", value)) for name, value in request.headers)
    return request.method, DRAWN.sub("drawn", request.url), headers, DRAWN.sub("drawn", request.body.decode())


def _visible(response: Response) -> tuple[object, ...]:
    """Return an answer without its drawn tokens; two of one look are equal."""
    headers = tuple((name, DRAWN.sub("drawn", value)) for name, value in response.headers)
    return response.status, headers, DRAWN.sub("drawn", response.body.decode("latin1"))


Answers = dict[tuple[object, ...], set[tuple[object, ...]]]  # recorded answers by request


def record(mini: Mini, walks: list[list[Request]]) -> tuple[list[Recorded], Answers]:
    """Return what a recorder of the walks stores, each walk in a session of its own, and the answers by request."""
    recorded, answers = [], defaultdict(set)
    for number, requests in enumerate(walks):
        memory, client = mini.memory(number), Client(number)
        for template in requests:
            request: Request | None = client.request(template)
            while request is not None:
                response = mini.answer(memory, asked_of(request))
                client.saw(response)
                recorded.append(Recorded(request, response, f"s{number}"))
                answers[_plain(request)].add(_visible(response))
                request = followed(request, response)
                request = client.request(request) if request is not None else None
    return recorded, answers


def replayed(
    mini: Mini, session: Session, requests: list[Request], answers: Answers, number: int
) -> list[Step]:
    """Walk in replay, beside a live server of the same past with a client of its own."""
    memory, live, client = mini.memory(number), Client(number), Client(number + 500)
    steps = []
    for template in requests:
        following: Request | None = template
        while following is not None:
            asked, truly = client.request(following), live.request(following)
            expected = mini.answer(memory, asked_of(truly))
            live.saw(expected)
            truth = _visible(expected)
            given, confidence = session.ask(asked)
            recorded = answers.get(_plain(asked), set())
            right = given is not None and _visible(given) == truth
            what = f"{asked.method} {asked.url} {asked.body.decode()}"
            steps.append(Step(confidence, right, truth in recorded, len(recorded) > 1, what))
            served = given is not None and confidence >= FOLLOWED
            session.settle(served)
            if given is None or not served:
                break
            client.saw(given)
            following = followed(following, given)
    return steps


def measure(mini: Mini, seed: int, engine: Engine) -> dict[str, list[Step]]:
    """Record one to three sessions; replay them, two random walks and, of an everyday server, changed walks."""
    draw = random.Random(f"{mini.name} {seed}")
    walks = [walk(mini, draw, draw.choice((6, 10, 16, 25))) for _ in range(1 + seed % 3)]
    recorded, answers = record(mini, walks)
    sessions = engine(MemoryStore(recorded))
    found: dict[str, list[Step]] = defaultdict(list)
    for number, requests in enumerate(walks):
        found[RECORDED] += replayed(mini, sessions(), requests, answers, number)
    for number in range(2):
        found[RANDOM] += replayed(mini, sessions(), walk(mini, draw, 10), answers, 10 + number)
    for number, how in enumerate(CHANGED if mini.seeded else ()):
        found[how] += replayed(mini, sessions(), changed(how, walks, draw), answers, 20 + number)
    return found


def held_out(name: str) -> bool:
    """Return True for the third of the servers on which nothing is tuned."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0


GROUPS: dict[str, list[Mini]] = {
    "servers": [mini for mini in SITES if not held_out(mini.name)],
    "servers kept back": [mini for mini in SITES if held_out(mini.name)],
    "everyday": [mini for mini in EVERYDAY if not held_out(mini.name)],
    "everyday kept back": [mini for mini in EVERYDAY if held_out(mini.name)],
    "unseen": UNSEEN,
}


def curve(steps: list[Step], limit: float) -> tuple[float, float]:
    """Return the share of answerable requests answered right at the lowest threshold at which at most `limit` of all are wrong, and that threshold."""
    answerable = sum(step.answerable for step in steps)
    right = wrong = 0
    best = (0.0, 1.0)
    by_confidence: dict[float, list[Step]] = defaultdict(list)
    for step in steps:
        by_confidence[step.confidence].append(step)
    for confidence in sorted(by_confidence.keys() - {0.0}, reverse=True):
        right += sum(step.right for step in by_confidence[confidence])
        wrong += sum(step.wrong for step in by_confidence[confidence])
        if wrong <= limit * len(steps):
            best = (right / max(1, answerable), confidence)
    return best


def calibration(steps: Iterable[Step]) -> dict[int, tuple[float, float, int]]:
    """Return by tenth of confidence the confidence said on average, the share that was right, and the number of answers."""
    tenths: dict[int, list[Step]] = defaultdict(list)
    for step in steps:
        if step.confidence > 0:
            tenths[min(9, int(step.confidence * 10))].append(step)
    return {
        tenth: (sum(s.confidence for s in own) / len(own), sum(s.right for s in own) / len(own), len(own))
        for tenth, own in sorted(tenths.items())
    }


def largest_gap(steps: Iterable[Step]) -> float:
    """Return the largest difference of confidence and truth in tenths with at least TENTH answers."""
    return max(
        (abs(said - true) for said, true, count in calibration(steps).values() if count >= TENTH), default=0.0
    )


def figures(steps: list[Step], threshold: float = DEFAULT) -> dict[str, float]:
    """Return the figures of a set of steps, each a share between 0 and 1."""
    answerable = max(1, sum(step.answerable for step in steps))
    served = [step for step in steps if step.confidence >= threshold]
    sure = [step for step in steps if step.confidence >= SURE]
    return {
        **{f"right at wrong ≤ {limit:.0%}": curve(steps, limit)[0] for limit in LIMITS},
        "right": sum(step.right for step in served) / answerable,
        "wrong": sum(step.wrong for step in served) / max(1, len(steps)),
        "needless misses": sum(s.answerable and s.confidence < threshold for s in steps) / answerable,
        "sure and right": sum(step.right for step in sure) / answerable,
        "sure and wrong": sum(step.wrong for step in sure) / max(1, len(steps)),
        "largest gap": largest_gap(steps),
    }


NAMES = list(figures([]))


def row(name: str, steps: list[Step], threshold: float = DEFAULT) -> str:
    """Return the figures of a set of steps as a row of a Markdown table."""
    answerable = sum(step.answerable for step in steps)
    cells = [f"{value:.3f}" for value in figures(steps, threshold).values()]
    return f"| {' | '.join([name, str(len(steps)), str(answerable), *cells])} |"


def head() -> str:
    """Return the head of the table whose rows `row` makes."""
    columns = ["", "requests", "answerable", *NAMES]
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def report(
    groups: dict[str, dict[str, dict[str, list[Step]]]], threshold: float = DEFAULT, each: bool = False
) -> str:
    """Return the tables of a measurement: steps by group, server and kind of walk."""
    lines, recorded, tenths = [head()], [], []
    for name, servers in groups.items():
        kinds: dict[str, list[Step]] = defaultdict(list)
        for server, own in servers.items():
            for kind, steps in own.items():
                kinds[kind] += steps
            if each:
                lines.append(row(f"- {server}", [s for kind, steps in own.items() if kind != RECORDED for s in steps], threshold))  # fmt: skip
        same = kinds.pop(RECORDED, [])
        other = [step for steps in kinds.values() for step in steps]
        if len(kinds) > 1:
            lines += [row(f"{name}: {kind}", steps, threshold) for kind, steps in kinds.items()]
        lines.append(row(f"**{name}**", other, threshold))
        recorded += [_recorded(name, same, threshold)] if same else []
        if each:
            recorded += [
                _recorded(f"- {server}", own[RECORDED], threshold) for server, own in servers.items()
            ]
        tenths += [f"| {name} | {tenth / 10:.1f} | {said:.2f} | {true:.2f} | {count} |" for tenth, (said, true, count) in calibration(other).items()]  # fmt: skip
    return "\n".join(
        [
            *lines,
            "",
            "| as recorded | requests | right and sure | wrong | misses |",
            "|---|---|---|---|---|",
            *recorded,
            "",
            "| calibration | from | said | true | answers |",
            "|---|---|---|---|---|",
            *tenths,
        ]
    )


def _recorded(name: str, steps: list[Step], threshold: float) -> str:
    sure = sum(step.right and step.confidence >= SURE for step in steps) / max(1, len(steps))
    wrong = sum(step.wrong and step.confidence >= threshold for step in steps)
    return (
        f"| {name} | {len(steps)} | {sure:.4f} | {wrong} | {sum(s.confidence < threshold for s in steps)} |"
    )


@click.command()
@click.option("--engine", default="evidence", show_default=True, help="An engine by name, or MODULE:NAME.")
@click.option("--seeds", default=12, show_default=True, help="Recordings of each server.")
@click.option("--quick", is_flag=True, help="Three recordings of each server.")
@click.option(
    "--group", "names", multiple=True, type=click.Choice(list(GROUPS)), help="Measure only these groups."
)
@click.option("--server", "servers", multiple=True, help="Measure only these servers.")
@click.option("--each", is_flag=True, help="Print a row for each server.")
@click.option("--threshold", default=DEFAULT, show_default=True, help="The least confidence that is served.")
@click.option("--wrong", is_flag=True, help="List the served wrong answers by request.")
def main(
    engine: str,
    seeds: int,
    quick: bool,
    names: tuple[str, ...],
    servers: tuple[str, ...],
    each: bool,
    threshold: float,
    wrong: bool,
) -> None:
    """Measure an engine on servers that remember, and print the tables."""
    made = engine_named(engine)
    found: dict[str, dict[str, dict[str, list[Step]]]] = {}
    for group in names or GROUPS:
        found[group] = {}
        for mini in GROUPS[group]:
            if servers and mini.name not in servers:
                continue
            own = found[group][mini.name] = defaultdict(list)
            for seed in range(3 if quick else seeds):
                for kind, steps in measure(mini, seed, made).items():
                    own[kind] += steps
    text = report(found, threshold, each)
    click.echo(text)
    if wrong:
        worst = Counter(
            (server, f"{'sure ' if step.confidence >= SURE else ''}{'told' if step.several else 'untold'} {step.what[:90]}")
            for own in found.values() for server, kinds in own.items() for kind, steps in kinds.items() for step in steps
            if step.wrong and step.confidence >= threshold
        )  # fmt: skip
        for (server, what), count in worst.most_common(60):
            click.echo(f"{count:4d} {server}: {what}")


if __name__ == "__main__":
    sys.exit(main())
