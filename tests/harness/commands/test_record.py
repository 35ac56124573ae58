"""`record`: what would be left out or given wrongly in silence is said."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from stillweb.harness.commands.record import changed_captures
from stillweb.proxy.net.ca import Authority
from stillweb.snapshots.writer import Writer
from tests.harness.small_site import HTML
from tests.proxy.frozen import Site
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.command_line import stillweb
from tests.support.isolating import needs_isolation

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("own_state")]


class Changing:
    """A site whose price changes when it is told, and whose address does not."""

    def __init__(self) -> None:
        self.price = 1

    def __call__(self, asked: Asked) -> Answer:
        body = f"<h1>price {self.price}</h1>" if asked.path == "/price" else "<h1>always</h1>"
        return Answer(headers=HTML, body=body.encode())


@pytest.fixture
def changing() -> Changing:
    return Changing()


@pytest.fixture
def shop(changing: Changing) -> Iterator[Origin]:
    with Origin(changing) as origin:
        yield origin


@pytest.mark.slow
def test_a_site_that_changed_since_is_told(shop: Origin, changing: Changing, tmp_path: Path) -> None:
    words = ("record", "-o", tmp_path / "s", "--", "curl", "-sS", f"{shop.url}/price", f"{shop.url}/same")
    told = "answered otherwise now"
    assert told not in stillweb(*words).err
    assert told not in stillweb(*words).err  # the same answers again
    changing.price = 2
    done = stillweb(*words)
    assert done.code == 0
    assert f"1 request that it held {told} (first: GET {shop.url}/price)" in done.err
    assert "record into another directory" in done.err


def test_what_is_answered_after_a_write_is_no_change(tmp_path: Path) -> None:
    page, form = "https://a.test/list", (("Content-Type", "application/x-www-form-urlencoded"),)
    site = Site(tmp_path / "s")
    site.add(page, b"<p>all of them</p>")
    with site.open():
        pass
    with Writer.open(tmp_path / "s") as writer:
        since = writer.place
    more = Site(tmp_path / "s", events=10)
    more.add(
        "https://a.test/filter",
        method="POST",
        status=303,
        reason="See Other",
        headers=(("Location", "/list"),),
        request_headers=form,
        request_body=b"kind=mills",
    )
    more.add(page, b"<p>the mills</p>")
    with more.open() as snapshot:
        assert changed_captures(snapshot, since) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--steps", "plain.yaml"], "plain.yaml: these steps are for no URL"),
        (["--steps", "plain.yaml", "--explore", "3", "http://a.test/"], "no --steps beside it"),
        (["--steps", "empty", "http://a.test/"], "empty: holds no steps"),
        (["--urls", "empty", "http://a.test/"], "empty: is empty"),
        (["--urls", "bytes"], "bytes: not UTF-8 at byte 1"),
        (["--urls", "nulls"], "nulls: is not text"),
        (["--explore", "3", "--values", "bytes", "http://a.test/"], "bytes: not UTF-8 at byte 1"),
        (["--explore", "3", "--values", "empty", "http://a.test/"], "empty: is empty"),
        (["--explore", "3"], "nothing to record"),
        (["a.test/page"], "'a.test/page' is not an http(s) URL; did you mean https://a.test/page?"),
        (["ftp://a.test/"], "'ftp://a.test/' is not an http(s) URL\n"),
        (["--explore", "3", "--seconds", "0", "http://a.test/"], "0.0 is not in the range x>0"),
        (["--explore", "3", "--delay", "-1", "http://a.test/"], "-1.0 is not in the range x>=0"),
        (["a.test/page", "--explore", "3"], "'a.test/page' is not an http(s) URL"),
        (["--isolate", "http://a.test/"], "--isolate is for a program after '--'"),
    ],
)
def test_what_would_be_left_out_is_wrong_usage_and_nothing_is_made(
    tmp_path: Path, words: list[str], says: str
) -> None:
    (tmp_path / "plain.yaml").write_text("- click: Next\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"a\xff")
    (tmp_path / "nulls").write_bytes(b"\0\0")
    done = stillweb("record", "-o", "s", *words, cwd=tmp_path)
    assert done.code == 2
    assert says in done.err
    assert not (tmp_path / "s").exists()


def linked(asked: Asked) -> Answer:
    """A page with a PDF, another that is not there, and a table to load."""
    if asked.path == "/report.pdf":
        return Answer(headers=[("Content-Type", "application/pdf")], body=b"%PDF-1.4\n%%EOF\n")
    if asked.path != "/":
        return Answer(404, headers=HTML, body=b"no such file")
    links = "".join(f"<p><a href='/{name}'>{name}</a></p>" for name in ("report.pdf", "rows.csv", "gone.pdf"))
    return Answer(headers=HTML, body=f"<title>Files</title><h1>Files</h1>{links}".encode())


@pytest.mark.slow
def test_an_exploration_fetches_linked_pdfs_where_it_is_asked_to(tmp_path: Path) -> None:
    with Origin(linked) as origin:
        words = ("record", f"{origin.url}/", "-o", tmp_path / "s", "--explore", "2", "--delay", "0", "--pdfs")
        done = stillweb(*words)
        assert done.code == 1, "one of them is not there"
        assert "1 of 2 linked PDFs fetched" in done.err
        assert f"not fetched: {origin.url}/gone.pdf" in done.err
        assert f"1 linked file not fetched ({origin.url}/rows.csv)" in done.err
        assert stillweb("lookup", tmp_path / "s", f"{origin.url}/report.pdf").code == 0
        assert stillweb("lookup", tmp_path / "s", f"{origin.url}/rows.csv").code == 1


@pytest.mark.slow
def test_the_reason_of_a_failure_does_not_name_the_url_again(tmp_path: Path) -> None:
    with Origin(linked) as origin:
        done = stillweb("record", f"{origin.url}/gone", "-o", tmp_path / "s")
    (line,) = (line for line in done.out.splitlines() if line.startswith("failed"))
    assert line.endswith(f"{origin.url}/gone  not stored as a view: missing (status 404)")
    assert line.count(origin.url) == 1


def test_the_same_failure_is_told_once(tmp_path: Path) -> None:
    asks = "curl -s http://no-such-name.invalid/ http://no-such-name.invalid/ http://no-such-name.invalid/"
    done = stillweb("record", "-o", tmp_path / "s", "--", "sh", "-c", f"{asks} || true")
    assert done.err.count("not recorded: http://no-such-name.invalid/") == 1
    assert "(3 times)" in done.err


def test_a_browsers_own_errands_are_told_in_one_line(tmp_path: Path) -> None:
    asks = "curl -s http://update.googleapis.com/a http://update.googleapis.com/b http://clients2.google.com/"
    places = [f"--resolve={host}=127.0.0.1:9" for host in ("update.googleapis.com", "clients2.google.com")]
    done = stillweb("record", "-o", tmp_path / "s", *places, "--", "sh", "-c", f"{asks} || true")
    said = [line for line in done.err.splitlines() if "not recorded" in line]
    assert len(said) == 1
    assert said[0].endswith("requests of the browser itself (clients2.google.com, update.googleapis.com)")


async def _lasting() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1000
        await asyncio.sleep(0.01)


def test_what_a_program_left_is_named(tmp_path: Path) -> None:
    with Origin(lambda _: Answer(body=_lasting(), length=1 << 30)) as origin:
        done = stillweb(
            "record", "-o", tmp_path / "s", "--", "sh", "-c", f"curl -sN {origin.url}/live | head -c 10"
        )
    assert f"given up by the client: {origin.url}/live\n" in done.err
    assert "1 given up by the client" in done.err


def session_of(product: str) -> Callable[[Asked], Answer]:
    """Return a server that begins sessions, as a driver of browsers (`{"value": {"sessionId": …}}`) or as an application that signs in."""
    return lambda _: Answer(headers=[("content-type", "application/json")], body=product.encode())


@pytest.mark.slow
def test_a_browser_that_was_driven_through_the_proxy_is_told(tmp_path: Path) -> None:
    begin = ("-sS", "-H", "content-type: application/json", "-d", '{"capabilities": {}}')
    with Origin(session_of('{"value": {"sessionId": "a1", "capabilities": {}}}')) as driver:
        done = stillweb("record", "-o", tmp_path / "s", "--", "curl", *begin, f"{driver.url}/session")
    assert "no replay can start a browser so" in done.err
    assert "--no-proxy 127.0.0.1 --no-proxy localhost" in done.err
    with Origin(session_of("{}")) as driver:
        done = stillweb(
            "record", "-o", tmp_path / "t", "--", "curl", "-sS", f"{driver.url}/devtools/browser/1"
        )
    assert "no replay can start a browser so" in done.err


@pytest.mark.slow
def test_who_signs_in_drives_no_browser(tmp_path: Path) -> None:
    with Origin(session_of('{"user": "ada"}')) as shop:
        done = stillweb(
            "record", "-o", tmp_path / "s", "--", "curl", "-sS", "-d", "user=ada", f"{shop.url}/session"
        )
    assert done.code == 0
    assert "no replay can start a browser so" not in done.err


@pytest.mark.slow
@needs_isolation
def test_an_isolated_program_has_no_way_past(shop: Origin, tmp_path: Path) -> None:
    past = f"curl -sS --noproxy '*' {shop.url}/past; curl -sS {shop.url}/through"
    done = stillweb("record", "-o", tmp_path / "s", "--isolate", "--", "sh", "-c", past)
    assert (done.code, done.out) == (0, "<h1>always</h1>")
    assert [asked.path for asked in shop.asked] == ["/through"]
    assert "canary: no way out" in done.err


@pytest.mark.slow
def test_whose_certificate_is_mistrusted_is_told(tmp_path: Path) -> None:
    theirs, other = (Authority.load_or_create(tmp_path / name) for name in ("theirs", "other"))
    with Origin(lambda asked: Answer(), theirs.context_for("127.0.0.1")) as origin:
        words = ("record", "-o", tmp_path / "s")
        curl = ("--", "curl", "-sS", f"https://127.0.0.1:{origin.port}/")
        origins = stillweb(*words, *curl).err
        clients = stillweb(
            *words, "--ca-file", theirs.certificate_path, *curl, "--cacert", other.certificate_path
        ).err
    ours, an_origins = "mistrusts our certificate", "in spite of its certificate"
    assert (ours in origins, an_origins in origins) == (False, True)
    assert (ours in clients, an_origins in clients) == (True, False)


@pytest.mark.slow
def test_a_record_of_the_set_that_cannot_be_read_is_told_and_counts(shop: Origin, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    good = {"id": "a", "question": "?", "answer": "1", "start_url": f"{shop.url}/same"}
    bad = {"id": "b", "question": "?", "anwser": "1", "start_url": f"{shop.url}/price"}
    tasks.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n", encoding="utf-8")
    done = stillweb("record", "-o", tmp_path / "s", "--tasks", tasks)
    assert (done.code, f"left out: {tasks}:2: anwser: unknown field" in done.err) == (1, True), done.err
    assert "/same" in {asked.path for asked in shop.asked}


@pytest.mark.slow
@pytest.mark.parametrize("option", [None, "--no-private"])
def test_private_addresses_are_refused_on_demand(shop: Origin, tmp_path: Path, option: str | None) -> None:
    words = (
        "record",
        "-o",
        tmp_path / "s",
        *([option] if option else []),
        "--",
        "curl",
        "-sS",
        f"{shop.url}/same",
    )
    done = stillweb(*words)
    assert len(shop.asked) == (0 if option else 1)
    line = f"not recorded: {shop.url}/same: 127.0.0.1 is not a public address; --private (in Python private=True)"
    assert (line in done.err) is (option is not None)
