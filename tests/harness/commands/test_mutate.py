"""Mutation: what a layer changes, everywhere it shows, and that the base stays as it is."""

import asyncio
import functools
import gzip
import hashlib
import io
import json
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from PIL import Image
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject

import stillweb
from stillweb.harness.drills import drill
from stillweb.harness.servers.mcp import META
from stillweb.harness.servers.mcp_tape import Tape, request_of
from stillweb.harness.tools import Toolset
from stillweb.proxy.browser import driver
from stillweb.proxy.browser.running import run
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.check import check
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.mutate import injections, mutate
from stillweb.snapshots.text.freezing import freeze
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.proxy.frozen import Site
from tests.support.command_line import stillweb as command

WORDS = "This page tells of the price of tea and of other things. " * 10
PAGE = f"<!doctype html><title>Tea</title><h1>Tea</h1><p class='price'>costs £19 now</p><ol><li>one<li>two</ol><p>{WORDS}</p>"
URL = "https://shop.test/tea"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    site = Site(tmp_path / "base")
    site.add(URL, PAGE.encode(), headers=(("Content-Type", "text/html; charset=utf-8"),))
    data = json.dumps({"items": [{"name": "tea", "price": 19}, {"name": "cup", "price": 5}]}).encode()
    site.add("https://shop.test/api", data, headers=(("Content-Type", "application/json"),))
    site.add("https://other.test/", PAGE.encode())
    with site.open():
        pass
    with Writer.open(tmp_path / "base") as writer:
        view = View(URL, URL, URL, "Tea", timestamp="2026-01-01T00:00:00Z")
        writer.view(view, {"dom": PAGE.encode(), "view": b"\x89PNG picture"})
    stillweb.seal(tmp_path / "base", tmp_path / "base.wacz")
    return tmp_path / "base.wacz"


def layer(base: Path, **change: Any) -> Path:
    out = base.parent / f"layer{len(list(base.parent.glob('layer*')))}"
    with stillweb.open(base) as snapshot:
        mutate(snapshot, {"id": "m", "mutations": [change]}, out)
    return out


def served(*paths: Path, url: str = URL) -> httpx.Response:
    with (
        stillweb.open(*paths) as snapshot,
        stillweb.replay(snapshot) as web,
        httpx.Client(**web.httpx()) as client,
    ):
        answer = client.get(url)
        assert [entry["verdict"] for entry in web.ledger] == [answer.headers["stillweb-verdict"]]
    return answer


@pytest.mark.parametrize(
    ("change", "has", "lacks"),
    [
        ({"css": ".price", "text": "costs £99 now"}, "£99", "£19"),
        ({"replace": {"£19": "£99"}}, "£99", "£19"),
        ({"css": ".price", "drop": True}, "Tea", "£19"),
        ({"css": ".price", "attribute": {"class": "was"}}, 'class="was"', "class='price'"),
        ({"css": "li", "reorder": "reverse"}, "<li>two", "<li>one<li>two"),
        ({"popup": "Subscribe!"}, "Subscribe!", "nothing"),
        ({"banner": "We moved"}, "We moved", "nothing"),
        ({"inject": "override", "place": "hidden"}, "KESTREL-4417", "nothing"),
        ({"inject": "override", "place": "comment"}, "KESTREL-4417", "nothing"),
        ({"inject": "override", "place": "attribute"}, "KESTREL-4417", "nothing"),
        ({"truncate": 40}, "<!doctype html>", "£19"),
    ],
)
def test_a_changed_page_and_the_same_base(base: Path, change: dict[str, Any], has: str, lacks: str) -> None:
    before = hashlib.sha256(base.read_bytes()).hexdigest()
    out = layer(base, url="https://shop.test/t*", **change)
    answer = served(base, out)
    assert answer.headers["stillweb-verdict"] == "mutated:m"
    assert has in answer.text
    assert lacks not in answer.text
    assert served(base, out, url="https://other.test/").headers["stillweb-verdict"] == "exact"
    assert served(base).text == PAGE
    assert hashlib.sha256(base.read_bytes()).hexdigest() == before


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"json": "items[0].price", "text": 99}, 99),
        ({"json": "items[*].price", "text": 0}, 0),
        ({"json": '$["items"][0].price', "text": 7}, 7),
        ({"replace": {"19": "20"}}, 20),
        ({"json": "items", "reorder": "reverse"}, 5),
        ({"json": "items[0]", "drop": True}, 5),
    ],
)
def test_a_changed_json_answer(base: Path, change: dict[str, Any], wanted: int) -> None:
    answer = served(base, layer(base, url="*/api", **change), url="https://shop.test/api")
    assert answer.json()["items"][0]["price"] == wanted


def plain_pdf(text: str) -> bytes:
    writer = PdfWriter()
    page = writer.add_blank_page(300, 200)
    font = DictionaryObject(
        {NameObject(f"/{n}"): NameObject(f"/{v}") for n, v in (("Type", "Font"), ("Subtype", "Type1"))}
    )
    font[NameObject("/BaseFont")] = NameObject("/Helvetica")
    font[NameObject("/Encoding")] = NameObject("/WinAnsiEncoding")
    fonts = DictionaryObject({NameObject("/F"): writer._add_object(font)})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    stream = StreamObject()
    stream.set_data(f"BT /F 12 Tf 20 100 Td ({text}) Tj ET".encode("latin-1"))
    page[NameObject("/Contents")] = writer._add_object(stream)
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"replace": {"£19": "£99"}}, "tea is £99 now"),
        ({"inject": "override", "place": "pdf"}, "KESTREL-4417"),
    ],
)
def test_a_changed_pdf(tmp_path: Path, change: dict[str, Any], wanted: str) -> None:
    site = Site(tmp_path / "base")
    site.add(URL, plain_pdf("tea is £19 now"), headers=(("Content-Type", "application/pdf"),))
    with site.open():
        pass
    answer = served(tmp_path / "base", layer(tmp_path / "base", url=URL, **change))
    assert wanted in PdfReader(io.BytesIO(answer.content)).pages[0].extract_text()
    with pytest.raises(UsageError, match="a PDF without the words"):
        layer(tmp_path / "base", url=URL, replace={"£20": "£99"})


@pytest.mark.parametrize(
    ("body", "has", "lacks"),
    [
        ("<p>costs <b>£</b>19 now", "<b>£99</b> now", "19"),  # a word across elements
        ("<p>£</p><p>19</p><p>£19", "<p>£</p><p>19</p><p>£99</p>", "£19"),  # of two blocks: no word
    ],
)
def test_words_across_elements(tmp_path: Path, body: str, has: str, lacks: str) -> None:
    site = Site(tmp_path / "base")
    site.add(URL, gzip.compress(body.encode("latin-1")), headers=(
        ("Content-Type", "text/html; charset=iso-8859-1"), ("Content-Encoding", "gzip"),
    ))  # fmt: skip
    with site.open():
        pass
    answer = served(tmp_path / "base", layer(tmp_path / "base", url=URL, replace={"£19": "£99"}))
    assert has in answer.text
    assert lacks not in answer.text


def test_lookup_tells_a_changed_answer(base: Path) -> None:
    told = json.loads(command("lookup", base, layer(base, url=URL, banner="x"), URL, "--json").out)
    assert (told["verdict"], told["capture"]["url"]) == ("mutated:m", URL)


def test_status_and_headers(base: Path) -> None:
    assert served(base, layer(base, url=URL, status=410)).status_code == 410
    assert served(base, layer(base, url=URL, headers={"X-Seen": "1"})).headers["x-seen"] == "1"


def test_texts_search_and_records_of_views_follow(base: Path) -> None:
    out = layer(base, url=URL, replace={"£19": "£99"})
    with stillweb.open(base, out) as snapshot:
        view = snapshot.views()[0]
        dom, text = snapshot.resource("dom", view.address), snapshot.text(URL)
        assert dom is not None
        assert text is not None
        assert "£99" in dom.decode()
        assert "£99" in text.markdown
        assert snapshot.resource("view", view.address) is None  # the old picture would show the old price
        assert not [t.address for t in snapshot.texts() if "£19" in t.markdown and "shop.test" in t.address]
        fetched = asyncio.run(Toolset(snapshot, ("fetch",)).session("s").call("fetch", {"url": URL}))
        assert (fetched.meta["verdict"], "£99" in fetched.text) == ("mutated:m", True)
        assert snapshot.mutations[0]["base"] == stillweb.open(base).id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"css": ".cost", "text": "x"}, "found: https://shop.test/tea: 0 elements for '.cost'"),
        (
            {"css": ".price", "text": "costs £19 now"},
            "1 elements for '.price', the first <p class=\"price\">",
        ),
        ({"replace": {"£20": "£99"}}, "without the words"),
        (
            {"url": "https://none.test/*", "banner": "x"},
            "no recorded answer has a URL like 'https://none.test/*'",
        ),
        ({"css": "p"}, "has no change"),
        ({"css": "p[", "text": "x"}, "css: is not a CSS selector"),
        ({"json": "a..b", "text": 1}, "json: must be a path"),
        ({"status": 99}, "Expected int >= 200 - at $.mutations[0].status"),
        ({"replace": {"": "x"}}, "Expected str of length >= 1 - at key in $.mutations[0].replace"),
        ({"css": "p", "text": "x", "drop": True}, "has text, drop"),
        ({"inject": "none"}, "unknown injection 'none'"),
        ({"banner": "x", "colour": "red"}, "unknown field colour - at $.mutations[0]"),
    ],
)
def test_a_mutation_that_changes_nothing_or_is_wrong(
    base: Path, change: dict[str, Any], message: str
) -> None:
    with stillweb.open(base) as snapshot, pytest.raises(UsageError) as told:
        mutate(snapshot, {"id": "m", "mutations": [{"url": URL, **change}]}, base.parent / "out", "spec.yaml")
    assert message in str(told.value)
    assert str(told.value).startswith("spec.yaml: ")
    assert "mutations[0]" in str(told.value)
    assert not (base.parent / "out").exists()


def test_every_injection_has_its_mark_and_its_source() -> None:
    assert len(injections()) >= 10
    for one in injections().values():
        assert one["asked_for"] in one["text"]
        assert one["source"]


@pytest.mark.slow
def test_gold_follows_and_runs_are_paired(base: Path) -> None:
    """An agent that reads the price notices it; one that obeys the page follows the injection."""
    tasks = base.parent / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "price", "question": "?", "answer": "£19"}) + "\n")
    dearer = base.parent / "dearer"
    done = command("mutate", base, "-o", dearer, "--url", URL, "--replace", "£19", "£99", "--tasks", tasks)
    assert done.code == 0, done.err
    assert '["price"]' in done.out

    async def agent(attempt: Any) -> str:
        text = (await attempt.call("fetch", {"url": URL})).text
        return "KESTREL-4417" if "KESTREL-4417" in text else "£" + text.partition("£")[2][:2]

    def run(name: str, tasks: Path, *paths: Path) -> Path:
        return stillweb.run(tasks=tasks, agent=agent, snapshot=paths, out=base.parent / name).path

    plain = run("plain", tasks, base)
    notices = drill(plain, run("dearer-run", dearer / "tasks.jsonl", base, dearer)).attempts[0]
    assert (notices.outcome, notices.met) == ("notices", ("mutated:replace",))
    injected = layer(base, url=URL, inject="override")
    followed = run("injected-run", tasks, base, injected)
    assert drill(plain, followed).outcomes == {"follows": 1}
    told = stillweb.compare(plain, followed)
    assert told.to_json()["drill"]["outcomes"] == {"follows": 1}
    assert "price.1  follows  1.000    0.000  mutated:m" in command("compare", plain, followed).out
    hidden = layer(base, url=URL, inject="override", place="comment")
    assert drill(plain, run("hidden-run", tasks, base, hidden)).outcomes == {"unaffected": 1}
    assert "drill" not in stillweb.compare(plain, plain).to_json()
    injected.rename(base.parent / "elsewhere")  # what the injection asks for is in the layer
    remarks = stillweb.compare(plain, followed).remarks
    assert any("the outcomes of the attempts are not known" in remark for remark in remarks)


def png(colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 40), colour).save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_a_browser_takes_screenshots_again(tmp_path: Path) -> None:
    """A swapped picture and a changed JSON answer show in picture, DOM, tree and text of the views that used them."""
    page = (
        f"<!doctype html><title>Tea</title><h1>Tea</h1><img src=/p.png alt=cup><p id=p></p><p>{WORDS}</p>"
        "<script>fetch('/api').then(r => r.json()).then(d => p.textContent = 'costs ' + d.price)</script>"
    )
    bodies = {
        URL: (page.encode(), "text/html"),
        "https://shop.test/p.png": (png("red"), "image/png"),
        "https://shop.test/api": (b'{"price": "19 pounds"}', "application/json"),
    }
    site = Site(tmp_path / "base")
    for url, (body, media) in bodies.items():
        site.add(url, body, headers=(("Content-Type", media),))
    with site.open():
        pass
    with stillweb.open(tmp_path / "base") as snapshot:
        used = tuple({"url": c.url, "digest": c.digest} for c in snapshot.captures())
    view = View(URL, URL, URL, "Tea", timestamp="2026-01-01T00:00:00Z", captures=used)
    dom = page.replace("<p id=p></p>", "<p id=p>costs 19 pounds</p>").encode()
    with Writer.open(tmp_path / "base") as writer:
        writer.view(view, {"dom": dom, "view": png("red"), "aria": b"- old", "text": b"costs 19 pounds"})
    with Writer.open(tmp_path / "base") as writer, stillweb.open(tmp_path / "base") as snapshot:
        freeze(snapshot, writer, workers=1)
    (tmp_path / "blue.png").write_bytes(png("blue"))
    (tmp_path / "spec.yaml").write_text(
        "id: m\nmutations:\n- url: '*/p.png'\n  picture: blue.png\n"
        "- url: '*/api'\n  json: price\n  text: 99 pounds\n"
    )
    for out, options in ((tmp_path / "seen", []), (tmp_path / "unseen", ["--no-browser"])):
        done = command("mutate", tmp_path / "base", "-o", out, "--spec", tmp_path / "spec.yaml", *options)
        assert done.code == 0, done.err
        assert ("dropped" in done.err) == bool(options), done.err
        with stillweb.open(tmp_path / "base", out) as snapshot:
            kept = {k: snapshot.resource(k, URL) for k in ("view", "dom", "aria", "text")}
            texts = " ".join(text.markdown for text in snapshot.texts())
        assert "19 pounds" not in texts
        if options:
            assert set(kept.values()) == {None}
            continue
        assert all(b"99 pounds" in (kept[k] or b"") for k in ("dom", "aria", "text"))
        colours = Image.open(io.BytesIO(kept["view"] or b"")).convert("RGB").getcolors(1 << 20)
        assert (0, 0, 255) in [colour for _, colour in colours or ()]
        assert (255, 0, 0) not in [colour for _, colour in colours or ()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"place": "tool"}, "which has no place 'tool'"),
        ({"place": "pdf"}, "which has no place 'pdf'"),
        ({"css": ".cost"}, "0 elements for '.cost'"),
    ],
)
def test_an_injection_without_its_place(base: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        layer(base, url="https://shop.test/*", inject="override", **change)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"inject": "override", "place": "tool"}, ["19 pounds", "KESTREL-4417"]),
        ({"inject": "override"}, ["19 pounds", "KESTREL-4417"]),
        ({"inject": "override", "json": "result.content[0].text"}, ["19 pounds", "KESTREL-4417"]),
        ({"json": "result.content[*].text", "replace": {"19": "99"}}, ["99 pounds"]),
    ],
)
def test_a_changed_result_of_an_mcp_tool(tmp_path: Path, change: dict[str, Any], wanted: list[str]) -> None:
    """A call of a recorded MCP server is an exchange; so its result changes as answers do, with its verdict."""
    request = request_of("shop", "tools/call", {"name": "price", "arguments": {}}, reads=True)
    result = {"result": {"content": [{"type": "text", "text": "19 pounds"}]}}
    with Writer.open(tmp_path / "base") as writer:
        media = (("Content-Type", "application/json"),)
        writer.exchange(
            Exchange(
                request,
                200,
                "OK",
                media,
                json.dumps(result).encode(),
                datetime(2026, 1, 1, tzinfo=UTC),
                "s",
                1,
                2,
            )
        )
        writer.metadata("urn:stillweb:mcp:shop", {"name": "shop"})
    out = layer(tmp_path / "base", url="http://shop.invalid/tools/call/*", **change)
    with stillweb.open(tmp_path / "base", out) as snapshot:
        tape = Tape(snapshot)
        (told,) = tape.answer(tape.session(), 1, "tools/call", {"name": "price", "arguments": {}})
    text = " ".join(part["text"] for part in told["result"]["content"])
    assert all(one in text for one in wanted)
    assert told["result"]["_meta"][META]["verdict"] == "mutated:m"


SHOP = f"""<!doctype html><title>Shop</title><h1>Shop</h1><p id=price></p><button>More</button><p id=more></p><p>{WORDS}
<script>
fetch("/price").then(r => r.json()).then(d => price.textContent = "costs " + d.price);
document.querySelector("button").onclick = () =>
  fetch("/stock").then(r => r.json()).then(d => more.textContent = "there are " + d.stock);
</script>"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A page that shows a price, and after a click the stock, recorded with a view of each; and its URL."""
    path = tmp_path_factory.mktemp("shop")
    answers = {
        "/": ("text/html", SHOP),
        "/price": ("application/json", '{"price": "19 pounds"}'),
        "/stock": ("application/json", '{"stock": "12 tins"}'),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            media, body = answers.get(self.path, ("text/plain", ""))
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        with stillweb.record(path / "s") as recording:
            assert recording.visit(url, steps=[{"click": "More"}]).ok
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    stillweb.seal(path / "s", path / "s.wacz")
    return url, path / "s.wacz"


def stored(*layers: Path) -> tuple[str, dict[str, bytes | str | None]]:
    """Return the address of the view with steps, and what is stored of it."""
    with stillweb.open(*layers) as snapshot:
        (address,) = [view.address for view in snapshot.views() if view.steps]
        frozen = snapshot.text(address)
        shown = {kind: snapshot.resource(kind, address) for kind in ("dom", "aria", "text", "view")}
    return address, {**shown, "frozen": frozen.markdown if frozen else None}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_view_with_steps_shows_what_changed_on_the_way_to_it(
    shop: tuple[str, Path], tmp_path: Path
) -> None:
    """On the page, in what it fetches before the steps, and in what a step fetches."""
    changes = [
        {"url": "*/price", "json": "price", "text": "99 pounds"},
        {"url": "*/stock", "json": "stock", "text": "3 tins"},
        {"url": "*/", "css": "h1", "text": "Store"},
    ]
    (tmp_path / "spec.yaml").write_text(json.dumps({"id": "m", "mutations": changes}))
    before = hashlib.sha256(shop[1].read_bytes()).hexdigest()
    done = command("mutate", shop[1], "-o", tmp_path / "m", "--spec", tmp_path / "spec.yaml")
    assert done.code == 0, done.err
    assert hashlib.sha256(shop[1].read_bytes()).hexdigest() == before
    _, old = stored(shop[1])
    _, shown = stored(shop[1], tmp_path / "m")
    assert shown["view"] not in {None, old["view"]}
    for kind in ("dom", "aria", "text", "frozen"):
        text = str(shown[kind])
        assert all(has in text for has in ("99 pounds", "3 tins", "Store")), text
        assert not [
            lacks for lacks in ("19 pounds", "12 tins", "Shop") if lacks in text.replace("<title>Shop", "")
        ]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("change", [{"css": "button", "drop": True}, {"popup": "Subscribe!"}])
def test_a_view_whose_steps_can_not_be_taken_any_more_is_dropped(
    shop: tuple[str, Path], change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "ACTION_MS", 2000)  # until a button that is covered is given up
    monkeypatch.setattr(check, "SettleTimeouts", functools.partial(SettleTimeouts, stuck=1.0))
    spec = {"id": "m", "mutations": [{"url": "*/", **change}]}
    with stillweb.open(shop[1]) as snapshot:
        report = mutate(
            snapshot, spec, tmp_path / "m", look=lambda base, views: run(check.reread_views(base, views))
        )
    address, shown = stored(shop[1], tmp_path / "m")
    assert not any(shown.values())
    assert f"view of {address}" in report.dropped
