"""Files that steps upload: recorded and replayed by a real browser, whose boundaries differ each time."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import BrowserHost, complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.errors import PageFailed
from stillweb.proxy.browser.page_snapshot import read_page
from stillweb.proxy.browser.steps import Flow, describe, load_flows, parse_flows, parse_steps, to_yaml
from stillweb.proxy.browser.uploads import Files
from stillweb.proxy.check.check import check
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.http.bodies import typed_body
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.browsing import Browsing
from tests.proxy.recordings import recorded
from tests.proxy.sites import Answer, serve

SECRET = "Zx8q-41kd-0Lmn-77pw-Qs2v"
TABLE = b"year,mills\n2019,7\n2020,9\n"
PICTURE = bytes(range(256)) * 40  # no text, and longer than what is shown of a field
FORM = """<!DOCTYPE html><title>Send</title><h1>Send a table</h1>
<form action=/sent method=post enctype=multipart/form-data><label>Table <input type=file name=table></label>
<label>Note <input name=note></label><input type=file name=more multiple id=more hidden><button>Send</button></form>
<label>Look <input type=file id=look></label><input type=file webkitdirectory id=folder><input type=file disabled id=off>
<button id=other>Other</button><p id=seen>nothing</p>
<script>
look.addEventListener("change", async () => { const [f] = look.files;
  seen.textContent = `${f.name} ${f.type} ${f.size} ${f.lastModified - Date.now()}: ${await f.text()}`; });
</script>"""


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path != "/sent":
        return 200, {"Content-Type": "text/html"}, FORM.encode()
    parts = typed_body(body, headers["content-type"]).value
    told = [f"{p.name}: {p.filename} {len(p.content)} {sha256(p.content).hexdigest()[:8]}" for p in parts]
    return 200, {"Content-Type": "text/html"}, f"<title>Got</title><p>{'<p>'.join(told)}</p>".encode()


@dataclass
class Site:
    base: str
    path: Path
    authority: Authority

    def record(self, name: str, steps: str, redactor: Redactor | None = None) -> tuple[Path, FetchResult]:
        """Record a steps file that lies beside the files; return the snapshot and the result."""
        file = self.path / "steps.yaml"
        file.write_text(steps, encoding="utf-8")
        path, result = self.record_flows(name, load_flows(file), redactor)
        return path, result

    def record_flows(
        self, name: str, flows: list[Flow], redactor: Redactor | None = None
    ) -> tuple[Path, *tuple[FetchResult, ...]]:
        profile = complete(Profile())
        with (
            Writer.open(self.path / name, profile=profile) as writer,
            Recorder(writer, authority=self.authority, redactor=redactor) as recorder,
        ):
            return self.path / name, *Fetcher(recorder, writer, profile).fetch([self.base + "/"], flows)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "mills.csv").write_bytes(TABLE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "picture.bin").write_bytes(PICTURE)
    with serve(answer) as base:
        yield Site(base, tmp_path, Authority.load_or_create(tmp_path / "state"))


def last_view(snapshot: Snapshot) -> View:
    return max(snapshot.views(), key=lambda view: len(view.steps))


ALL = """
- upload: {label: Look, file: mills.csv}
- upload: {label: Table, file: mills.csv}
- upload: {css: "#more", file: [data/picture.bin, mills.csv]}
- fill: {label: Note, value: both}
- click: Send
"""


@pytest.mark.slow
def test_what_was_uploaded_is_uploaded_again_in_replay(site: Site) -> None:
    path, result = site.record("snap", ALL)
    assert (result.ok, result.error) == (True, None)
    (site.path / "mills.csv").unlink()  # replay needs nothing but the snapshot
    (site.path / "data" / "picture.bin").unlink()
    sealed = seal(path, site.path / "snap.wacz").path
    with Snapshot.open(sealed) as snapshot:
        view = last_view(snapshot)
        table = {
            "name": "mills.csv", "size": len(TABLE), "digest": f"sha256:{sha256(TABLE).hexdigest()}", "type": "text/csv",
        }  # fmt: skip
        assert view.steps[0] == {"upload": {"label": "Look", "file": table}}
        assert [one["name"] for one in view.steps[2]["upload"]["file"]] == ["picture.bin", "mills.csv"]
        looked = next(one for one in snapshot.views() if len(one.steps) == 1)
        said = snapshot.resource("text", looked.address) or b""
        assert f"mills.csv text/csv {len(TABLE)} 0: year,mills".encode() in said  # as of the page's own clock
        got = (snapshot.resource("text", view.address) or b"").decode()
        small, large = (sha256(data).hexdigest()[:8] for data in (TABLE, PICTURE))
        assert got.split("\n\n") == [
            f"table: mills.csv {len(TABLE)} {small}", f"note: None 4 {sha256(b'both').hexdigest()[:8]}",
            f"more: picture.bin {len(PICTURE)} {large}", f"more: mills.csv {len(TABLE)} {small}",
        ]  # fmt: skip
        with Gateway(snapshot, authority=site.authority, min_confidence=0.5) as gateway:
            report = check(snapshot, gateway)
        told = [(one.same, one.missed, one.unasked, one.error) for one in report.views]
        assert told == [(True, [], [], None)] * len(snapshot.views())
    records = b"".join(gzip.decompress(one.read_bytes()) for one in path.glob("archive/*.gz"))
    assert TABLE in records
    assert str(site.path).encode() not in records


def boundaries(path: Path) -> list[str]:
    return [
        str(one.asked("content-type")).partition("boundary=")[2]
        for one in recorded(path)
        if one.method == "POST"
    ]


@pytest.mark.slow
def test_the_boundary_differs_and_another_file_is_a_miss_that_says_so(site: Site, chromium: Browsing) -> None:
    steps = "- upload: {label: Table, file: mills.csv}\n- click: Send\n"
    path, _ = site.record("snap", steps)
    assert boundaries(path) != boundaries(site.record("again", steps)[0])
    with Snapshot.open(path) as snapshot, Gateway(snapshot, authority=site.authority) as gateway:

        def sent(name: str, data: bytes) -> tuple[str, list[str]]:
            """Return the page after a file was sent, and the ledger's nearest captures."""
            (site.path / name).write_bytes(data)
            flow = parse_flows(steps.replace("mills.csv", name), folder=site.path)[0]
            number = len(gateway.ledger.entries())
            text = chromium.run(replayed(chromium.host, site.base + "/", flow, gateway))
            entries = [one for one in gateway.ledger.entries()[number:] if one["method"] == "POST"]
            assert len(entries) == 1
            return text, [line for near in entries[0].get("nearest", ()) for line in near["differs"]]

        def named(name: str, data: bytes) -> str:
            return repr(f"{len(data)} bytes, sha256:{sha256(data).hexdigest()[:12]}, {name}, text/csv")

        text, differs = sent("mills.csv", TABLE)
        assert f"table: mills.csv {len(TABLE)}" in text
        assert differs == []
        for name, data in (("mills.csv", TABLE.replace(b"7", b"8")), ("other.csv", TABLE)):
            text, differs = sent(name, data)
            assert text == "step 2: click: " + site.base + "/sent: not in the snapshot (miss)"
            assert differs == [
                f"body field table: asked {named(name, data)}, recorded {named('mills.csv', TABLE)}"
            ]


async def replayed(host: BrowserHost, url: str, flow: Flow, gateway: Gateway) -> str:
    """The text of the page that steps lead to in replay, or why they don't."""
    context = await host.context("agent", gateway.proxy_url("agent"), complete(Profile()), gateway.ca_path)
    try:
        driver = Driver(context, files=flow.files)
        await driver.open_start(url)
        for number, step in enumerate(flow.steps, start=1):
            await driver.perform(step, number)
        return (await read_page(driver.page, with_picture=False)).text
    except PageFailed as error:
        return str(error)
    finally:
        await context.close()


REFUSED = [
    ("css: '#other'", "mills.csv", "css '#other' is not a field for files but button; name the field, such as css: input[type=file]"),
    ("label: Note", "mills.csv", "label 'Note' is not a field for files but input of type text; name the field, such as css: input[type=file]"),
    ("label: Table", "[mills.csv, data/picture.bin]", "label 'Table' takes one file, not 2 files"),
    ("css: '#folder'", "mills.csv", "css '#folder' takes a folder, not files"),
    ("css: '#off'", "mills.csv", "css '#off' is disabled"),
    ("css: '#look'", "key.txt", "'key.txt' contains a secret, which would be stored; see --keep-secrets"),
]  # fmt: skip


@pytest.mark.slow
def test_a_file_that_cannot_be_given_is_told(site: Site) -> None:
    (site.path / "key.txt").write_text(f"the key is {SECRET}")
    redactor = Redactor(b"k" * 32)
    redactor.learn(SECRET)
    flows = [f"- steps: [upload: {{{target}, file: {file}}}]" for target, file, _ in REFUSED]
    [lost] = parse_flows("- upload: {label: Look, file: mills.csv}", folder=site.path)
    given = [
        *parse_flows("\n".join(flows), folder=site.path),
        Flow(None, lost.steps),
    ]  # the last without its file
    path, *results = site.record_flows("snap", given, redactor)
    told = [f"step 1: upload: {words}" for *_, words in REFUSED]
    digest = f"sha256:{sha256(TABLE).hexdigest()}"
    told.append(f"step 1: upload: the bytes of 'mills.csv' ({digest}) are not available")
    assert [(one.ok, one.error) for one in results] == [(False, words) for words in told]
    with Snapshot.open(path) as snapshot:
        assert not late_secrets.find(snapshot, redactor)


@pytest.mark.slow
def test_a_secret_that_is_learned_later_is_found_in_a_file(site: Site) -> None:
    (site.path / "key.txt").write_text(f"the key is {SECRET}")
    redactor = Redactor(b"k" * 32)
    path, result = site.record("snap", "- upload: {label: Look, file: key.txt}", redactor)
    assert result.ok
    with Snapshot.open(path) as snapshot:
        assert not late_secrets.find(snapshot, redactor)
        redactor.learn(SECRET)
        assert f"urn:files:{result.views[-1]}" in [
            one.record for one in late_secrets.find(snapshot, redactor)
        ]


def test_printed_steps_with_files_are_read_back(site: Site) -> None:
    [flow] = parse_flows("- upload: {label: Table, file: data/picture.bin}", folder=site.path)
    printed = to_yaml(flow.steps)
    assert str(site.path) not in printed
    assert describe(flow.steps[0]) == 'upload picture.bin to label "Table"'
    [again] = parse_flows(printed, folder=site.path / "data")  # the name alone is kept
    assert again == flow
    assert again.files == flow.files == {flow.steps[0]["upload"]["file"]["digest"]: PICTURE}
    (site.path / "data" / "picture.bin").write_bytes(b"another")
    with pytest.raises(
        UsageError,
        match=r"s: step 1 \(line 1\): upload names .*picture\.bin, whose content is not sha256:",
    ):
        parse_steps(printed, "s", Files(site.path / "data"))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("nope.csv", "names a file that can't be read: {folder}/nope.csv: No such file or directory"),
        ("data", "names a file that can't be read: {folder}/data: Is a directory"),
        ("/etc/hosts", "names /etc/hosts, which lies elsewhere. Put a copy beside the steps"),
        ("../x.csv", "names {folder}/../x.csv, which lies elsewhere. Put a copy beside the steps"),
        ("link.csv", "names {folder}/link.csv, which lies elsewhere. Put a copy beside the steps"),
        ("[]", "field 'file' is an empty list"),
        ("''", "field 'file' must be a path, not ''"),
        ("{name: mills.csv}", "names a file with other fields than name, size, digest, type, or a name with a folder"),
        ("large.bin", "names {folder}/large.bin, which has 50,000,001 bytes; the most is 50,000,000"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_there_is_told_with_its_step(site: Site, file: str, words: str) -> None:
    with (site.path / "large.bin").open("wb") as large:
        large.truncate(50_000_001)  # of holes
    (site.path / "link.csv").unlink(missing_ok=True)
    (site.path / "link.csv").symlink_to("/etc/hosts")
    steps = site.path / "steps.yaml"
    steps.write_text(
        f"- url: {site.base}\n  steps:\n  - click: Send\n  - upload: {{label: Table, file: {file}}}\n"
    )
    with pytest.raises(UsageError) as caught:
        load_flows(steps)
    assert str(caught.value) == f"{steps}: flow 1: step 2 (line 4): upload {words.format(folder=site.path)}"
