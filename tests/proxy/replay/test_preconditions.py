"""Writes with conditions, recorded from a server that minds them and replayed beside it: each answer its own, or a miss."""

from pathlib import Path

import httpx
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG

Step = tuple[str, str | None]  # method, and its If-Match
GET: Step = ("GET", None)
DATES = [f"Mon, {day:02} Mar 2025 00:00:00 GMT" for day in (3, 10, 17, 24, 31)]


class Document:
    """A resource with versions, which a write must name if it names any, by tag or by date."""

    def __init__(self) -> None:
        self.version, self.text = 1, b"first"

    def __call__(self, asked: Asked) -> Answer:
        kind = ("Content-Type", "text/plain")
        tag, date = f'"v{self.version}"', DATES[self.version]
        if asked.method == "GET":
            return Answer(headers=[kind, ("ETag", tag), ("Last-Modified", date)], body=self.text)
        wanted = asked.header("If-Match")
        since = asked.header("If-Unmodified-Since")
        if (wanted is not None and wanted != "*" and tag not in wanted) or (
            since and DATES.index(since) < self.version
        ):
            return Answer(412, [kind], b"stale: now " + tag.encode())
        self.version += 1
        self.text = b"by " + asked.method.encode()
        return Answer(headers=[kind], body=b"saved as version %d" % self.version)


def send(client: httpx.Client, url: str, step: Step) -> httpx.Response:
    method, condition = step
    name = "If-Match" if condition is None or condition[0] in '"*W' else "If-Unmodified-Since"
    headers = {name: condition} if condition else {}
    return client.request(method, url, headers=headers, content=None if method == "GET" else b"new")


RECORDED = {
    "a write": [GET, ("PUT", '"v1"'), GET],
    "a refusal first": [GET, ("PUT", '"v0"'), GET, ("PUT", '"v1"'), GET],
    "refused only": [GET, ("PATCH", '"v0"'), GET],
    "without condition": [GET, ("PUT", None), GET],
    "three of one body": [GET, ("PUT", '"v1"'), GET, ("PUT", '"v2"'), GET, ("PUT", '"v2"'), GET],
    "by date": [GET, ("DELETE", DATES[0]), ("DELETE", DATES[1]), GET],
}  # fmt: skip
# Asked: the recording's name, the steps, and the verdicts of each ("~": ambiguous).
ASKED: list[tuple[str, list[Step], list[str]]] = [
    ("a write", [GET, ("PUT", '"v0"')], ["exact", "miss"]),
    ("a write", [GET, ("PUT", '"v1"'), GET], ["exact", "exact", "exact"]),
    ("a write", [GET, ("PUT", '"v0", "v1"'), GET], ["exact", "exact", "exact"]),
    ("a write", [("PUT", "*"), GET], ["exact", "exact"]),
    ("a write", [("PUT", None), GET], ["exact~", "exact~"]),
    ("a refusal first", [("PUT", '"v0"'), GET, ("PUT", '"v0"'), ("PUT", '"v1"'), GET], ["exact"] * 5),
    ("a refusal first", [("PUT", '"v1"'), GET], ["exact", "exact"]),
    ("a refusal first", [("PUT", '"v2"')], ["miss"]),
    ("refused only", [("PATCH", '"v0"'), GET], ["exact", "exact"]),
    ("refused only", [("PATCH", '"v1"')], ["miss"]),
    ("refused only", [("PATCH", None)], ["miss"]),
    ("without condition", [("PUT", '"v1"'), GET], ["exact~", "exact~"]),
    ("three of one body", [("PUT", '"v2"')], ["miss"]),
    ("three of one body", [("PUT", '"v1"'), ("PUT", '"v2"'), GET, ("PUT", '"v2"'), GET], ["exact"] * 5),
    ("by date", [("DELETE", DATES[0]), GET, ("DELETE", DATES[1]), GET], ["exact"] * 4),
    ("by date", [("DELETE", DATES[2]), GET], ["exact"] * 2),
]  # fmt: skip


@pytest.mark.parametrize("name", list(RECORDED))
def test_a_write_gets_the_answer_to_its_condition_or_none(
    name: str, tmp_path: Path, authority: Authority
) -> None:
    with Origin(Document()) as origin:
        url = f"{origin.url}/doc"
        with (
            Writer.open(tmp_path / "s") as writer,
            Recorder(writer, authority=authority) as recorder,
            httpx.Client(proxy=recorder.proxy_url(), trust_env=False, timeout=HANG) as client,
        ):
            for step in RECORDED[name]:
                assert send(client, url, step).status_code in (200, 412)
        with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot, authority=authority) as gateway:
            for number, (recording, steps, expected) in enumerate(ASKED):
                if recording != name:
                    continue
                origin.handler = Document()
                proxy = gateway.proxy_url(f"s{number}")
                verdicts = []
                with (
                    httpx.Client(trust_env=False, timeout=HANG) as direct,
                    httpx.Client(proxy=proxy, trust_env=False, timeout=HANG) as client,
                ):
                    for step in steps:
                        answer, right = send(client, url, step), send(direct, url, step)
                        entry = gateway.ledger.entries()[-1]
                        verdicts.append(f"{entry['verdict']}{'~' if entry['ambiguous'] else ''}")
                        if verdicts[-1] != "miss":
                            assert (answer.status_code, answer.content) == (right.status_code, right.content)
                # a walk as recorded is sure; another one is right, or a miss where that is not known
                for got, wanted in zip(verdicts, expected, strict=True):
                    assert got == wanted or (steps != RECORDED[name] and wanted != "miss"), steps
