"""Inputs that are wrong in what they mean: dates, lengths, types and texts, in a file that is otherwise sound.

A case is made of its number and the seed alone. What holds a value together (lengths, check sums, digests of the
package, the zip around it) is put right again after most changes, so that the value itself is read.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import gzip
import hashlib
import io
import json
import random
import re
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml
import zstandard

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.request import Request
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.container import open_directory
from stillweb.snapshots.warc.scan import ScannedRecord, scan
from stillweb.snapshots.warc.warc import unpack
from stillweb.snapshots.writer import Writer

URL = "http://a.test/"
WHEN = datetime(2025, 1, 4, 10, 13, 20, tzinfo=UTC)
DATES = (
    "", "2025", "2025-13-04T14:13:20Z", "2025-02-30T10:00:00Z", "0000-01-01T00:00:00Z", "2025-01-04T24:00:00Z",
    "2025-01-04T14:13:60Z", "2025-01-04T14:13:62Z", "9999-12-31T23:59:60Z", "２０２５-01-04T10:13:20Z", "20250104101320",
    "2025-01-04T10:13:20+99:99", "0001-01-01T00:00:00+14:00", "-2025-01-04T10:13:20Z", "2025-01-04T10:13:20.99999999999Z",
    "9" * 5000, "Sat, 04 Jan 2025 10:13:20 GMT", "now", "\x00",
)  # fmt: skip
NUMBERS = (
    "", "-1", "0", "+5", " 5", "5,5", "0x5", "1e3", "５", "9" * 18, "9" * 19, "9" * 5000, "18446744073709551616", "²", "1_0", "NaN",
)  # fmt: skip
TEXTS = (
    "", " ", "\x00", "\ud800", "\udc80", "é", "\U0001f600", "%", "%zz", "http://", "http://[", "http://[::1", "//", "a:b", "urn:", "urn:x",
    "http://a.test:99999999/", "http://\u212a/", "data:,x", "../../x", "a" * 5000, "<>", "<http://a.test/>", "\r\nX: y", "sha256:", "sha1:é",
    "$form:csrf >w", ">?o", "zlib:", "zlib:AAAA", "text/html; charset=\ud800", "gzip, br, zstd, deflate", "{}", "[", "urn:uuid:",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1 << 63, 10**300, 1e308, float("inf"), float("nan"), [], {}, [[]], [None], {"": None}, {"a": {}}, [0, 1, 2],
    ["a", 1], "1", "2025-13-01",
)  # fmt: skip
LITERALS = (
    "9" * 5000,
    "[" * 3000,
    '"\\ud800"',
    "1e999",
    "-",
    '{"a":1,"a":2}',
    "NaN",
    '"' + "a" * 70_000 + '"',
)

Chance = random.Random
Data = tuple[str, bytes]  # the name and the bytes of an input


@dataclass(frozen=True, slots=True)
class Masters:
    """Sound inputs, of which each case is a copy with changes."""

    records: tuple[bytes, ...]  # of our own snapshot, unpacked
    sealed: bytes
    har: dict[str, Any]
    flows: tuple[dict[str, Any], ...]
    run: Path  # a run's directory


def masters(folder: Path, run: Path) -> Masters:
    """Make the sound inputs in a folder."""
    site = folder / "site"
    html = (("Content-Type", "text/html; charset=utf-8"), ("Content-Length", "66"))
    page = b"<!doctype html><title>T</title><table><tr><td>1<td>2<tr><td>3</table>"[:66]
    with Writer.open(site) as writer:
        for number, (method, path, body) in enumerate(
            [
                ("GET", "", b""),
                ("GET", "b?_=1736000000901", b""),
                ("POST", "c", b"csrf=a1b2c3d4e5f6&x=1"),
                ("GET", "", b""),
            ]
        ):
            asked = Request(
                method,
                URL + path,
                (
                    ("Host", "a.test"),
                    ("Cookie", "s=1"),
                    ("Content-Type", "application/x-www-form-urlencoded"),
                ),
                body,
            )
            told = (
                *html,
                ("Set-Cookie", "s=1; Expires=Sat, 04 Jan 2026 10:13:20 GMT"),
                ("Vary", "Accept-Language"),
            )
            writer.exchange(
                Exchange(asked, 200, "OK", told, page, WHEN, "default", 2 * number + 1, 2 * number + 2)
            )
        steps = ({"click": {"text": "More"}},)
        writer.view(
            View(view_address(URL, steps), URL, URL, "T", steps, timestamp="20250104101320"),
            {"text": b"x", "dom": page},
        )
        said = [{"from": "client", "text": "hello"}, {"from": "server", "base64": "aGVsbG8="}]
        writer.metadata(URL + "ws", {"url": URL + "ws", "session": "default", "begin": 20, "messages": said})
        Failure(Request("GET", URL + "gone"), "refused", "refused", WHEN).write(writer)
        writer.metadata(
            "urn:stillweb:import", {"source": "x.har", "notes": ["x"], "damaged": ["x.har: offset 1: y"]}
        )
    sealed = seal(site, folder / "site.wacz", workers=1).path
    container = open_directory(site)
    records = []
    for place in container.archives.values():
        for item in scan(place):
            assert isinstance(item, ScannedRecord)
            records.append(unpack(place.read(item.offset, item.length), place, item.offset))
    container.close()
    return Masters(tuple(records), sealed.read_bytes(), _har(), _flows(), run)


def _har() -> dict[str, Any]:
    asked = {
        "method": "GET",
        "url": URL,
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": "Host", "value": "a.test"}],
        "bodySize": 0,
    }
    content = {"size": 4, "mimeType": "text/html", "text": "<p>x", "compression": 0}
    told = {
        "status": 200,
        "statusText": "OK",
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": "Content-Type", "value": "text/html"}],
        "content": content,
        "bodySize": 4,
    }
    sent = {"mimeType": "application/json", "text": '{"a":1}', "params": []}
    one = {
        "startedDateTime": "2025-01-04T10:13:20Z",
        "time": 5,
        "request": asked,
        "response": told,
        "serverIPAddress": "1.2.3.4",
    }
    two: dict[str, Any] = copy.deepcopy(one) | {
        "_webSocketMessages": [{"type": "send", "time": 1.5, "opcode": 1, "data": "x"}]
    }
    two["request"] |= {"method": "POST", "url": URL + "p", "postData": sent, "bodySize": 7}
    two["response"]["content"] = {"size": 1, "mimeType": "image/png", "text": "eA==", "encoding": "base64"}
    return {"log": {"version": "1.2", "creator": {"name": "x", "version": "1"}, "entries": [one, two]}}


def _flows() -> tuple[dict[str, Any], ...]:
    asked = {
        "method": b"GET", "scheme": b"http", "host": "a.test", "port": 80, "path": b"/", "authority": b"", "http_version": b"HTTP/1.1",
        "headers": [[b"Host", b"a.test"]], "content": b"", "timestamp_start": 1736000000.5, "timestamp_end": 1736000001.5,
    }  # fmt: skip
    told = {
        "status_code": 200,
        "reason": b"OK",
        "headers": [[b"Content-Type", b"text/html"]],
        "content": b"<p>x",
        "http_version": b"HTTP/1.1",
        "timestamp_start": 1736000002.0,
        "timestamp_end": 1736000003.0,
    }
    one = {
        "type": "http",
        "version": 21,
        "request": asked,
        "response": told,
        "error": None,
        "metadata": {},
        "server_conn": {"peername": ["1.2.3.4", 80]},
    }
    failed = copy.deepcopy(one) | {"response": None, "error": {"msg": "connection refused", "timestamp": 1.0}}
    return one, failed


# -- changes


def odd_json(value: Any, chance: Chance) -> Any:
    """Return a copy of a JSON value with one to three of its members changed."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(chance.choice(VALUES))  # or one case would change the next
        holder, name = chance.choice(places)
        act = chance.random()
        if act < 0.1:
            del holder[name]
        elif act < 0.15 and isinstance(holder, dict):
            holder[chance.choice(TEXTS)] = holder.pop(name)
        elif act < 0.2 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[name]))
        else:
            holder[name] = odd_value(holder[name], chance)
    return value


def _places(value: Any) -> Any:
    """Yield each member of a value as what holds it and its name or number."""
    stack = [value]
    while stack:
        holder = stack.pop()
        names = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        )
        for name in names:
            yield holder, name
            stack.append(holder[name])


def odd_value(value: Any, chance: Chance) -> Any:
    """Return something that could stand in the place of a value, of its type or another."""
    if isinstance(value, str) and chance.random() < 0.6:
        pools: list[tuple[str, ...]] = [TEXTS, TEXTS]
        if re.match(r"\d{4}-|\d{14}", value):
            pools = [DATES, DATES, TEXTS]
        elif re.fullmatch(r"[0-9.]+", value):
            pools = [NUMBERS, NUMBERS, TEXTS]
        text = chance.choice(chance.choice(pools))
        return value + text if chance.random() < 0.3 else text
    if isinstance(value, (int, float)) and chance.random() < 0.4:
        return chance.choice((-1, 0, value + 1, -value, 1 << 40, 1 << 64, 1.5, 10**400))
    return copy.deepcopy(chance.choice(VALUES))  # or one case would change the next


def json_text(value: Any, chance: Chance) -> bytes:
    """Return JSON, now and then with a literal in it that no encoder writes."""
    text = json.dumps(value, default=str, ensure_ascii=chance.random() < 0.7)
    if chance.random() < 0.15 and (
        found := list(re.finditer(r'(?<=[:,\[ ])("[^"]*"|[0-9.]+|null|true)', text))
    ):
        at = chance.choice(found)
        text = text[: at.start()] + chance.choice(LITERALS) + text[at.end() :]
    data = text.encode(errors="surrogatepass")
    return (
        data
        if chance.random() < 0.95
        else data[: chance.randrange(len(data) + 1)] + b"\xff" + data[chance.randrange(len(data) + 1) :]
    )


def odd_head(head: bytes, chance: Chance) -> bytes:
    """Return a head (of a record or of HTTP) with one or two of its lines changed."""
    lines = head.split(b"\r\n")
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(lines))
        name, colon, value = lines[at].partition(b":")
        low = name.lower()
        act = chance.random()
        if not colon:
            first = (
                b"HTTP/1.1 999999 x",
                b"HTTP/1.1",
                b"GET",
                b"WARC/1.1",
                b"WARC/9.9",
                b"\xff",
                b"HTTP/2 200",
                b"GET  HTTP/1.1",
                "HTTP/1.1 ２００ OK".encode(),
            )
            lines[at] = chance.choice(first)
        elif act < 0.1:
            del lines[at]
            lines = lines or [b""]
        elif act < 0.2:
            lines.insert(at, lines[at])
        elif act < 0.25:
            lines[at] = name + chance.choice((b"", b" :", b"\t:", b":\r", b"\x00:")) + value
        else:
            pool = (
                DATES
                if b"date" in low
                else NUMBERS
                if low.endswith((b"length", b"events", b"number"))
                else TEXTS
            )
            text = chance.choice(chance.choice((pool, pool, TEXTS)))
            if value.strip().startswith((b"{", b"[")):
                with contextlib.suppress(ValueError):
                    text = json_text(odd_json(json.loads(value), chance), chance).decode(
                        errors="surrogateescape"
                    )
            more = value.decode("latin-1") if chance.random() < 0.2 else " "
            lines[at] = name + b":" + (more + text).encode(errors="surrogatepass")
    return b"\r\n".join(lines)


def odd_record(record: bytes, chance: Chance) -> bytes:
    """Return a WARC record with a change in its head, its HTTP head or its JSON, its length put right in most cases."""
    head, _, block = record.removesuffix(b"\r\n\r\n").partition(b"\r\n\r\n")
    kind = b"\r\nWARC-Type: metadata" in head
    act = chance.random()
    if kind and act < 0.7:
        try:
            block = json_text(odd_json(json.loads(block), chance), chance)
        except (ValueError, RecursionError):  # of a record that is odd already
            block = b"{}"
    elif b"application/http" in head and act < 0.5:
        inner, gap, body = block.partition(b"\r\n\r\n")
        block = odd_head(inner, chance) + gap + body
    elif b"warcinfo" in head and act < 0.6:
        block = odd_head(block, chance)
    else:
        head = odd_head(head, chance)
    if chance.random() < 0.85:
        head = re.sub(rb"(?m)^Content-Length: [0-9]+\r?$", b"Content-Length: %d" % len(block), head, count=1)
    if chance.random() < 0.7:  # without which nothing but the digest would be told
        head = re.sub(rb"(?m)^WARC-(?:Block|Payload)-Digest:[^\r\n]*\r\n", b"", head)
    return head + b"\r\n\r\n" + block + b"\r\n\r\n"


def _packed(records: list[bytes], chance: Chance) -> Data:
    form = chance.choice(("warc", "warc.gz", "warc.gz", "warc.zst"))
    if form == "warc":
        return "x.warc", b"".join(records)
    zstd = zstandard.ZstdCompressor(level=1).compress
    pack = partial(gzip.compress, mtime=0) if form == "warc.gz" else zstd
    return f"x.{form}", b"".join(pack(record) for record in records)


def warc(made: Masters, chance: Chance) -> Data:
    """Return an archive with one or two odd records."""
    records = list(made.records)
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(records))
        records[at] = odd_record(records[at], chance)
    return _packed(records, chance)


def arc(made: Masters, chance: Chance) -> Data:
    """Return an ARC file with an odd record line."""
    told = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>x"
    out = b""
    for number in range(3):
        parts = [f"{URL}{number}", "1.2.3.4", "20250104101320", "text/html", str(len(told))]
        if number == chance.randrange(3):
            at = chance.randrange(5)
            parts[at] = chance.choice((TEXTS, TEXTS, DATES, TEXTS, NUMBERS)[at])
        out += " ".join(parts).encode(errors="surrogatepass") + b"\n" + told + b"\n"
    return "x.arc", out


def wacz(made: Masters, chance: Chance) -> Data:
    """Return a sealed snapshot with an odd member, or an odd zip around it."""
    with zipfile.ZipFile(io.BytesIO(made.sealed)) as listing:
        files = {name: listing.read(name) for name in listing.namelist()}
    kind = chance.choice(("package", "package", "package", "pages", "index", "index", "digest", "zip"))
    package = json.loads(files["datapackage.json"])
    if kind == "package":
        package["stillweb"] = odd_json(package["stillweb"], chance)
        if chance.random() < 0.3:
            package = odd_json(package, chance)
        files["datapackage.json"] = json_text(package, chance)
    elif kind == "digest":
        files["datapackage-digest.json"] = json_text(
            odd_json(
                json.loads(files["datapackage-digest.json"])
                | {"signedData": {"hash": "x", "signature": "eA==", "publicKey": "eA=="}},
                chance,
            ),
            chance,
        )
    else:
        name = "pages/pages.jsonl" if kind == "pages" else "indexes/index.cdxj"
        lines = files[name].split(b"\n")
        at = chance.randrange(max(1, len(lines) - 1))
        lead, brace, block = lines[at].partition(b"{")
        try:
            block = json_text(odd_json(json.loads(brace + block), chance), chance)
            lines[at] = (
                lead if chance.random() < 0.8 else chance.choice(TEXTS).encode(errors="surrogatepass") + b" "
            ) + block
        except ValueError:
            lines[at] = b"\xff {"
        files[name] = b"\n".join(lines)
        if kind == "index" and chance.random() < 0.7:
            package["stillweb"]["index"] |= {"bytes": len(files[name]), "crc32": zlib.crc32(files[name])}
            if chance.random() < 0.2:  # as of another program
                del package["stillweb"]
            files["datapackage.json"] = json.dumps(package).encode()
    if kind != "digest" and chance.random() < 0.85:
        value = {
            "path": "datapackage.json",
            "hash": "sha256:" + hashlib.sha256(files["datapackage.json"]).hexdigest(),
        }
        files["datapackage-digest.json"] = json.dumps(value).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", zipfile.ZIP_DEFLATED if chance.random() < 0.3 else zipfile.ZIP_STORED
    ) as listing:
        for name, data in files.items():
            listing.writestr(zipfile.ZipInfo(name), data)
    return "x.wacz", odd_zip(out.getvalue(), chance) if kind == "zip" else out.getvalue()


def odd_zip(data: bytes, chance: Chance) -> bytes:
    """Return a zip with a field of its directory or of a local header changed."""
    places = [found.start() for found in re.finditer(rb"PK(?:\x01\x02|\x03\x04|\x05\x06)", data)]
    at = chance.choice(places) + chance.randrange(4, 46)
    size = chance.choice((1, 2, 4))
    new = chance.choice((b"\0" * size, b"\xff" * size, chance.randbytes(size)))
    return data[:at] + new + data[at + size :]


def har(made: Masters, chance: Chance) -> Data:
    """Return a HAR with odd members."""
    return "x.har", json_text(odd_json(made.har, chance), chance)


def flows(made: Masters, chance: Chance) -> Data:
    """Return a file of mitmproxy's flows with odd members."""
    return "x.flows", b"".join(tnetstring(odd_json(flow, chance), chance) for flow in made.flows)


def tnetstring(value: Any, chance: Chance) -> bytes:
    """Return a value as mitmproxy stores it, now and then with a wrong length or type."""
    if isinstance(value, (dict, list)):
        items = [x for pair in value.items() for x in pair] if isinstance(value, dict) else value
        data, mark = (
            b"".join(tnetstring(item, chance) for item in items),
            b"}" if isinstance(value, dict) else b"]",
        )
    else:
        kinds = {bool: b"!", int: b"#", float: b"^", bytes: b",", str: b";", type(None): b"~"}
        mark = kinds[type(value)]
        plain = "" if value is None else str(value).lower() if isinstance(value, bool) else value
        if isinstance(plain, int) and plain > 1 << 64:
            plain = "9" * 5000
        data = plain if isinstance(plain, bytes) else str(plain).encode(errors="surrogatepass")
    if chance.random() < 0.003:
        mark = chance.choice((b"}", b"]", b",", b";", b"#", b"^", b"!", b"~", b"?"))
    length = str(len(data)) if chance.random() > 0.003 else chance.choice(NUMBERS)
    return length.encode() + b":" + data + mark


def run_file(made: Masters, chance: Chance) -> Data:
    """Return a file of a run with odd members; its name is that in the run's directory."""
    names = sorted(p.relative_to(made.run).as_posix() for p in made.run.rglob("*.json*") if p.stat().st_size)
    name = chance.choice(names)
    data = (made.run / name).read_bytes()
    lines = data.split(b"\n") if name.endswith("l") else [data]
    at = chance.randrange(max(1, len(lines) - 1))
    try:
        lines[at] = json_text(odd_json(json.loads(lines[at]), chance), chance)
    except ValueError:
        lines[at] = b"["
    return name, b"\n".join(lines)


TASK = {
    "id": "t", "question": "q", "answer": "a", "scorer": "table", "start_url": URL, "urls": [URL], "tags": ["x"],
    "options": {"rubric": {"columns": ["id", "mass"], "row_key": ["id"], "fields": {"mass": {"type": "integer"}}}},
}  # fmt: skip
STEPS = [
    {"url": URL, "name": "n", "steps": [{"click": {"text": "More", "times": 2}}, {"fill": {"label": "Name", "value": "x"}}, {"select": {"label": "Year", "value": ["2012"]}}, {"wait": {"seconds": 1}}, {"scroll": {"to": "end"}}]},
    {"url": URL, "variants": {"year": ["1", "2"]}, "steps": [{"select": {"label": "Year", "option": "{{ year }}"}}]},
]  # fmt: skip
SCRIPT = {
    "agent": "script",
    "default": {"steps": [{"call": "fetch", "with": {"url": URL}, "as": "page"}, {"set": {"rows": "{{ page | records('id') }}"}}], "answer": "{{ rows }}"},
    "tasks": {"t": {"answer": "x"}},
}  # fmt: skip


def tasks(made: Masters, chance: Chance) -> Data:
    """Return a task file with odd members."""
    return "tasks.jsonl", b"\n".join(json_text(odd_json(TASK, chance), chance) for _ in range(2))


def steps(made: Masters, chance: Chance) -> Data:
    """Return a steps file with odd members."""
    return "steps.yaml", _yaml(odd_json(STEPS, chance), chance)


def script(made: Masters, chance: Chance) -> Data:
    """Return the file of a scripted agent with odd members."""
    return "agent.yaml", _yaml(odd_json(SCRIPT, chance), chance)


def _yaml(value: Any, chance: Chance) -> bytes:
    if chance.random() < 0.5:
        return json_text(value, chance)
    return yaml.safe_dump(value, allow_unicode=True).encode(errors="surrogatepass")


KINDS: dict[str, Callable[[Masters, Chance], Data]] = {
    "WARC": warc, "ARC": arc, "WACZ": wacz, "HAR": har, "flows": flows, "run": run_file, "tasks": tasks, "steps": steps, "script": script,
}  # fmt: skip
SHARES = {"WARC": 8, "ARC": 1, "WACZ": 5, "HAR": 3, "flows": 2, "run": 2, "tasks": 1, "steps": 1, "script": 1}


def case(made: Masters, seed: int, number: int) -> tuple[str, Data, Chance]:
    """Return a case: its kind, its input, and what chooses the questions about it."""
    chance = random.Random(f"{seed} {number}")
    (kind,) = chance.choices(list(SHARES), list(SHARES.values()))
    return kind, KINDS[kind](made, chance), chance


def encoded(data: Data) -> str:
    """Return an input as text for a report."""
    return f"{data[0]} {base64.b64encode(zlib.compress(data[1])).decode()[:2000]}"
