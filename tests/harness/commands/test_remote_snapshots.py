"""Snapshots in a store are read by every command, and nothing is written there by `-o`."""

import json
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest

import stillweb
from stillweb.harness.cli import COMMANDS, cli, main
from stillweb.harness.commands.options import SnapshotType
from stillweb.snapshots import Snapshot, remote
from stillweb.snapshots.errors import DamagedInput, StillwebError, UsageError
from stillweb.snapshots.remote import BLOCK, RemoteSource, drop_old_blocks, open_store
from stillweb.snapshots.wacz import seal
from tests.harness.commands.calling import call
from tests.proxy.origin import Answer, Asked, Origin
from tests.snapshots.making import small_snapshot
from tests.support.command_line import stillweb as in_process_of_its_own
from tests.support.stores import BUCKET, aws, s3_server, use_s3

PAGE = "http://example.test/"
pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as found:
        yield found


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    return use_s3(monkeypatch, endpoint)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return seal(small_snapshot(tmp_path_factory.mktemp("sealed") / "site")).path.read_bytes()


@pytest.fixture
def sealed(archive: bytes, tmp_path: Path, s3: Any) -> Path:
    path = tmp_path / "site.wacz"
    path.write_bytes(archive)
    s3.put_object(Bucket=BUCKET, Key=path.name, Body=archive)
    return path


REMOTE = f"s3://{BUCKET}/site.wacz"


@pytest.mark.parametrize(
    "words",
    [
        ["ls", REMOTE],
        ["ls", REMOTE, "--views"],
        ["verify", REMOTE],
        ["verify", REMOTE, "--secrets"],
        ["lookup", REMOTE, PAGE],
        ["fetch", REMOTE, PAGE],
        ["text", REMOTE],
        ["search", REMOTE, "hello"],
        ["coverage", REMOTE, "--tasks", "tasks.jsonl"],
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_a_command_says_of_a_remote_snapshot_what_it_says_of_the_file(
    sealed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    task = {"id": "a", "question": f"What does {PAGE} say?", "answer": "Hello", "urls": [PAGE]}
    Path("tasks.jsonl").write_text(json.dumps(task) + "\n")
    here = call(capsys, *[str(sealed) if word == REMOTE else word for word in words])
    there = call(capsys, *words)
    assert here[1]
    assert there == (here[0], here[1].replace(str(sealed), REMOTE))
    assert not Path("s3:").exists()


# commands that read a snapshot, and the test here that gives them an address; the others are in `READS`
ELSEWHERE = {
    "certify", "check", "cut", "diff", "drift", "mcp", "mcp-replay", "mutate", "prompts build", "refresh", "replay",
    "run", "view",
}  # fmt: skip
READS = {"ls", "verify", "lookup", "fetch", "text", "search", "coverage"}
# commands that write into an open snapshot, or send one: the argument is of this machine
LOCAL = {"index", "seal"}


def test_every_command_that_names_a_snapshot_takes_an_address() -> None:
    """A new command with an argument or option for snapshots must take an address, or be named in LOCAL."""
    found: dict[str, bool] = {}
    for name in sorted(COMMANDS):
        group = cli.get_command(None, name)  # type: ignore[arg-type]
        assert group is not None
        for inner in [group, *getattr(group, "commands", {}).values()]:
            words = name if inner is group else f"{name} {inner.name}"
            for one in inner.params:
                if isinstance(one.type, SnapshotType) or (one.name or "").startswith("snapshot"):
                    # `fetch` and `lookup` split their words themselves, by `split_address`
                    found[words] = isinstance(one.type, SnapshotType) or words in ("fetch", "lookup")
    assert {words for words, takes in found.items() if not takes} == LOCAL
    assert found.keys() - LOCAL == READS | ELSEWHERE


@pytest.mark.parametrize(
    "words",
    [
        ["check", REMOTE],
        ["drift", REMOTE, REMOTE, "--tasks", "tasks.jsonl"],
        ["mutate", REMOTE, "-o", "layer", "--url", PAGE, "--css", "p", "--text", "Bye"],
        ["prompts", "build", REMOTE, "--tasks", "rows.jsonl", "-o", "prompts"],
        ["refresh", REMOTE, "-o", "now", "--ignore-robots"],
        ["mcp-replay", REMOTE],
    ],
    ids=lambda words: words[0],
)
def test_a_command_opens_a_remote_snapshot(
    sealed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    """The command ends as with the file of this machine, and says nothing of a missing file or package."""
    monkeypatch.chdir(tmp_path)
    task = {"id": "a", "question": f"What does {PAGE} say?", "answer": "Hello", "urls": [PAGE]}
    Path("tasks.jsonl").write_text(json.dumps(task) + "\n")
    row = {"query": "What?", "answer": "Hello", "url": PAGE}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    codes = []
    for place in (str(sealed), REMOTE):
        for made in ("layer", "now"):
            shutil.rmtree(made, ignore_errors=True)
        with pytest.raises(SystemExit) as ended:
            main([place if word == REMOTE else word for word in words])
        codes.append((ended.value.code, capsys.readouterr().err.replace(place, "SNAP")))
    assert codes[0] == codes[1]
    assert not any("Usage:" in told for _, told in codes)  # the words were right


def test_two_places_of_a_snapshot_are_the_same(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "diff", sealed, REMOTE)
    assert (code, out.partition(":")[0]) == (0, "the same")


def test_a_view_is_exported_of_a_remote_snapshot(
    sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = call(capsys, "view", REMOTE, "--export", tmp_path / "pages")
    assert code == 0
    assert "example.test" in (tmp_path / "pages" / "snapshot-site.wacz.html").read_text()


@pytest.mark.slow
def test_a_run_and_its_cut_stand_on_a_remote_snapshot(
    sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps({"id": "a", "question": "?", "answer": "Hello there"}) + "\n"
    )
    script = {"agent": "script", "tasks": {"a": {"steps": [{"call": "fetch", "with": {"url": PAGE}}]}}}
    (tmp_path / "agent.yaml").write_text(json.dumps(script))
    hashes = []
    for name, snapshot in (("far", REMOTE), ("near", str(sealed))):
        run = stillweb.run(
            tasks=tmp_path / "tasks.jsonl",
            agent=str(tmp_path / "agent.yaml"),
            snapshot=snapshot,
            out=tmp_path / name,
        )
        hashes.append(run.certificate["hash"])
    assert hashes[0] == hashes[1]
    code, out = call(capsys, "certify", tmp_path / "far", "--times", "1")
    assert (code, out.split()[0]) == (0, hashes[0])
    code, _ = call(capsys, "cut", REMOTE, "--run", tmp_path / "far", "-o", tmp_path / "part.wacz")
    assert code == 0
    with Snapshot.open(tmp_path / "part.wacz") as part:
        assert PAGE in [capture.url for capture in part.captures()]


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [[], ["--isolate"]], ids=["open", "isolated"])
def test_a_program_is_answered_from_a_remote_snapshot(sealed: Path, isolated: list[str]) -> None:
    done = in_process_of_its_own("replay", REMOTE, *isolated, "--", "curl", "-s", PAGE)
    if done.code == 4 and "namespace" in done.err:
        pytest.skip("this machine isolates no programs")
    assert (done.code, done.out) == (0, "<html><title>Home</title><p>Hello there</html>")


def test_a_snapshot_behind_http_is_read(sealed: Path, endpoint: str, s3: Any) -> None:
    s3.put_bucket_acl(Bucket=BUCKET, ACL="public-read")
    s3.put_object_acl(Bucket=BUCKET, Key="site.wacz", ACL="public-read")
    with Snapshot.open(f"{endpoint}/{BUCKET}/site.wacz") as there, Snapshot.open(sealed) as here:
        assert there.id == here.id


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_option_takes_an_address_for_a_local_path(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command with `-o` refuses an address in one line, and makes no folder `s3:`."""
    monkeypatch.chdir(tmp_path)
    group = cli.get_command(None, command)  # type: ignore[arg-type]
    assert group is not None
    for inner in [group, *getattr(group, "commands", {}).values()]:
        for option in inner.params:
            assert type(option.type) is not click.Path, f"{option.name}: use LocalPath"
            if "--out" not in option.opts:
                continue
            words = [command] if inner is group else [command, inner.name]
            for address in ("s3://b/x", "hub:a/b", "oci://h/n:t", "memory://x"):
                with pytest.raises(SystemExit) as ended:
                    main([*words, "-o", address])
                assert ended.value.code == 2
                assert "takes a path on this machine" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda path: stillweb.seal("site", "s3://b/x.wacz"),
        lambda path: stillweb.record("s3://b/x").__enter__(),
        lambda path: stillweb.run(tasks=[], agent="script:none", out="s3://b/run"),
    ],
    ids=["seal", "record", "run"],
)
def test_python_refuses_to_write_to_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    small_snapshot(tmp_path / "site")
    with pytest.raises(UsageError, match="can't be written there"):
        write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "words"),
    [
        (f"s3://{BUCKET}/none.wacz", "no such file"),
        ("s3://no-such-bucket/x.wacz", "no such file"),
        ("gopher9://x/y", "Protocol not known"),
        ("hub:nobody", "hub:OWNER/SET"),
        ("oci:host/name", "oci://HOST/NAME:TAG"),
        ("oci://host", "oci://HOST/NAME:TAG"),
    ],
)
def test_an_address_of_nothing_is_one_line(s3: Any, address: str, words: str) -> None:
    with pytest.raises(StillwebError, match=words) as told:
        Snapshot.open(address)
    assert str(told.value).startswith(address)
    assert "\n" not in str(told.value)


class _Failing(BaseHTTPRequestHandler):
    """Answer each path with the status that it begins with; a redirect leads to itself."""

    def do_GET(self) -> None:
        self.send_response(int(self.path[1:4]))
        self.send_header("Location", self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (302, "TooManyRedirects"),
        (404, "no such file"),
        (500, "Internal Server Error"),
        (403, "access denied"),
    ],
)
def test_a_server_that_fails_is_not_taken_for_one_without_the_file(status: int, words: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{status}/site.wacz"
        with pytest.raises(StillwebError, match=words) as told:
            open_store(address).files()
        server.shutdown()
    assert str(told.value).startswith(f"{address}: ")
    assert ("no such file" in str(told.value)) == (status == 404)


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1 << 16)


def _page(size: str = "<Size>1</Size>") -> bytes:
    """A page of a bucket's list, after which the same page is asked for again."""
    return (
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>"
        f"<Contents><Key>site/archive/1.warc.gz</Key>{size}<ETag>1</ETag>"
        "<LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
    ).encode()


@pytest.mark.parametrize("at", ["http", "s3"])
@pytest.mark.parametrize(
    ("told", "body", "words"),
    [
        ("bytes 0-999/1000", None, "sends more than the range that was asked for"),
        ("bytes 7-1006/2000", bytes(1000), "sends another range than was asked for"),
        (None, bytes(1000), "sends another range than was asked for"),
    ],
)
def test_a_server_that_answers_with_another_range_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str, told: str | None, body: bytes | None, words: str
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path))

    def answer(asked: Asked) -> Answer:
        fields = [("Accept-Ranges", "bytes"), ("ETag", '"1"')]
        if asked.method == "HEAD":
            return Answer(headers=fields, body=bytes(1000))
        ranged = [("Content-Range", told)] if told else []
        return Answer(206, headers=[*fields, *ranged], body=body or _endless())

    with Origin(answer) as server:
        aws(monkeypatch, server.url)
        with pytest.raises(DamagedInput, match=words):
            Snapshot.open(f"{server.url if at == 'http' else 's3://shelf'}/site.wacz")


def test_a_bucket_whose_list_of_files_has_no_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LISTED", 1 << 18)

    def answer(asked: Asked) -> Answer:
        return Answer(404) if asked.method == "HEAD" else Answer(body=_page())

    with Origin(answer) as server:
        aws(monkeypatch, server.url)
        with pytest.raises(StillwebError, match="lists files on more than 0 MB"):
            open_store("s3://shelf/site").files()


@pytest.mark.parametrize("size", ["", "<Size>1e9</Size>"])
def test_a_bucket_that_lists_no_files_is_told(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    def answer(asked: Asked) -> Answer:
        return Answer(404) if asked.method == "HEAD" else Answer(body=_page(size))

    with Origin(answer) as server:
        aws(monkeypatch, server.url)
        with pytest.raises(DamagedInput, match=r"^s3://shelf/site: the store lists no files there: "):
            open_store("s3://shelf/site").files()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_credentials_follow_a_redirect_of_a_bucket(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def there(_: Asked) -> Answer:
        return Answer(headers=[("ETag", '"1"')], body=bytes(1000))

    with Origin(there) as other:
        elsewhere = [("Location", other.url.replace("127.0.0.1", "localhost") + "/site.wacz")]
        with Origin(lambda _: Answer(status, headers=elsewhere)) as server:
            aws(monkeypatch, server.url)
            with pytest.raises(StillwebError, match=rf"redirects elsewhere \(status {status}\)"):
                open_store("s3://shelf/site.wacz").files()
        assert other.asked == []


@pytest.mark.parametrize("store", ["http", "hub", "oci"])
def test_no_redirect_of_a_public_server_leads_inside(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    """Of the two names of loopback, one is taken for a public server's."""
    monkeypatch.setattr(remote, "_is_inside", lambda host: host == "localhost")
    with Origin(lambda _: Answer(body=b"inside")) as inside:
        elsewhere = [("Location", inside.url.replace("127.0.0.1", "localhost") + "/latest/meta-data")]
        with Origin(lambda _: Answer(302, headers=elsewhere)) as server:
            monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
            addresses = {
                "http": f"{server.url}/site.wacz",
                "hub": "hub:lab/site",
                "oci": f"oci://127.0.0.1:{server.port}/lab/site:v1",
            }
            with pytest.raises(StillwebError, match="redirects to this machine or a private network"):
                open_store(addresses[store]).files()
        assert inside.asked == []


def test_wrong_credentials_are_told(
    sealed: Path, s3: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import s3fs

    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(StillwebError, match=r"^s3://shelf/site\.wacz: .*credentials"):
        Snapshot.open(REMOTE)


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="big", Body=b"a" * (BLOCK + 9))
    place = RemoteSource(open_store(f"s3://{BUCKET}/big").files()[""])
    assert place.read(0, 4) == b"aaaa"
    s3.put_object(Bucket=BUCKET, Key="big", Body=b"b" * (BLOCK + 9))
    with pytest.raises(DamagedInput, match="was replaced while it was being read"):
        place.read(BLOCK, 4)


def test_a_bucket_that_vanishes_leaves_what_was_read(s3: Any) -> None:
    s3.create_bucket(Bucket="vanishing")
    s3.put_object(Bucket="vanishing", Key="big", Body=b"a" * BLOCK + b"b" * 9)
    place = RemoteSource(open_store("s3://vanishing/big").files()[""])
    assert place.read(0, 4) == b"aaaa"
    s3.delete_object(Bucket="vanishing", Key="big")
    s3.delete_bucket(Bucket="vanishing")
    assert place.read(5, 4) == b"aaaa"
    with pytest.raises(StillwebError, match=r"^s3://vanishing/big: no such file"):
        place.read(BLOCK, 4)


@pytest.mark.slow
def test_blocks_are_read_once_and_the_oldest_are_dropped(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put_object(Bucket=BUCKET, Key="big", Body=bytes(range(256)) * (3 * BLOCK // 256))
    file = open_store(f"s3://{BUCKET}/big").files()[""]
    asked: list[tuple[int, int]] = []

    def read(start: int, end: int) -> bytes:
        asked.append((start, end))
        return file.read(start, end)

    from dataclasses import replace

    counted = replace(file, read=read)
    assert RemoteSource(counted).read(BLOCK - 2, 4) == b"\xfe\xff\x00\x01"
    assert RemoteSource(counted).read(0, 3 * BLOCK) == bytes(range(256)) * (3 * BLOCK // 256)
    assert asked == [(0, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK)]
    drop_old_blocks(BLOCK)
    RemoteSource(counted).read(0, 3 * BLOCK)
    assert len(asked) == 3


MARKED = f"""
import httpx, pytest

@pytest.mark.snapshot("{REMOTE}")
def test_page(stillweb_transport):
    with httpx.Client(transport=stillweb_transport) as client:
        assert "Hello there" in client.get("{PAGE}").text
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "said"), [("none", "1 passed"), ("all", "can't be written there")])
def test_a_test_is_answered_from_a_remote_snapshot_and_records_into_none(
    sealed: Path, pytester: pytest.Pytester, mode: str, said: str
) -> None:
    pytester.makepyfile(test_it=MARKED)
    plugins = ("no:cacheprovider", "no:hypothesispytest")
    done = pytester.runpytest_subprocess(*(f"-p{name}" for name in plugins), f"--stillweb-mode={mode}")
    assert said in done.stdout.str()


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["compare", "s3://b/run", "s3://b/other"], "stillweb pull s3://b/run -o"),
        (["report", "hub:a/run"], "stillweb pull hub:a/run -o"),
        (["report", ".", "-o", "s3://b/page.html"], "stillweb publish"),
    ],
)
def test_an_address_in_place_of_a_path_is_told_how_to_get_there(
    words: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert advice in capsys.readouterr().err
