"""Publishing to stores on loopback and pulling from them, with two state directories."""

from __future__ import annotations

import functools
import json
import random
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stillweb
from stillweb.harness.datasets import load_tasks
from stillweb.harness.export.publication import publish_to, pull
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.view.export import write_report
from stillweb.snapshots import Snapshot, remote
from stillweb.snapshots.errors import DamagedInput, StillwebError, UsageError
from stillweb.snapshots.remote import BLOCK, FsspecStore, is_remote, open_store
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.benchmarks.browsecomp.test_dataset import bclc
from tests.harness.commands.calling import call
from tests.harness.datasets.test_load import write
from tests.proxy.origin import Answer, Asked, Origin
from tests.snapshots.making import record, small_snapshot
from tests.support.hub import LARGE, Hub, hub
from tests.support.openai_endpoint import KEY, Endpoint
from tests.support.stores import BUCKET, oci_registry, s3_server, use_s3

PAGE = "http://example.test/"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as found:
        yield found


@pytest.fixture(params=["folder", "s3", "oci", "hub"])
def address(
    request: pytest.FixtureRequest, tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    if request.param == "folder":
        yield str(tmp_path / "published")
    elif request.param == "s3":
        use_s3(monkeypatch, endpoint)
        yield f"s3://{BUCKET}/{tmp_path.name}"
    elif request.param == "hub":
        with hub("lab/site") as stand:
            use_hub(monkeypatch, stand)
            yield "hub:lab/site"
    else:
        with oci_registry(tmp_path / "registry") as host:
            yield f"oci://{host}/shelf/site:v1"


def use_hub(monkeypatch: pytest.MonkeyPatch, stand: Hub, token: str = "synthetic") -> None:
    from huggingface_hub import HfApi, constants, hf_api

    monkeypatch.setattr(constants, "ENDPOINT", stand.url)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", stand.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(hf_api, "api", HfApi())
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("HF_ENDPOINT", stand.url)  # of other processes


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    small_snapshot(tmp_path / "site")
    return seal(tmp_path / "site").path


def run_of(folder: Path, snapshot: Path | str) -> Path:
    (folder / "tasks.jsonl").write_text(
        json.dumps({"id": "a", "question": "?", "answer": "Hello there"}) + "\n"
    )
    script = {"agent": "script", "tasks": {"a": {"steps": [{"call": "fetch", "with": {"url": PAGE}}]}}}
    (folder / "agent.yaml").write_text(json.dumps(script))
    run = stillweb.run(
        tasks=folder / "tasks.jsonl", agent=str(folder / "agent.yaml"), snapshot=snapshot, out=folder / "run"
    )
    return run.path


@pytest.mark.slow
def test_a_run_is_published_here_and_certified_there(
    address: str,
    sealed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "state-here"))
    (tmp_path / "work").mkdir()
    run = run_of(tmp_path / "work", sealed)
    before = json.loads((run / "certificate.json").read_text())["hash"]
    code, out = call(capsys, "publish", run, "--to", address)
    assert (code, "0 of them sent" in out) == (0, False)
    assert "0 of them sent" in call(capsys, "publish", run, "--to", address)[1]
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "state-there"))
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache-there"))
    with (
        Snapshot.open(address if is_remote(address) else Path(address)) as there,
        Snapshot.open(sealed) as here,
    ):
        assert there.id == here.id
    sealed.unlink()
    shutil.rmtree(run)
    assert call(capsys, "pull", address, "-o", tmp_path / "there")[0] == 0
    code, out = call(capsys, "certify", tmp_path / "there", "--times", "1")
    assert (code, out.split()[0]) == (0, before)
    card = (tmp_path / "there" / "README.md").read_text()
    assert before in card
    assert "stillweb pull" in card
    assert "First put the agent's files into the working directory: " in card
    again = str(tmp_path / "again")
    assert call(capsys, "publish", tmp_path / "there", "--to", again)[0] == 0
    assert call(capsys, "pull", again, "-o", tmp_path / "twice")[0] == 0
    names = [
        sorted(path.relative_to(tmp_path / where).as_posix() for path in (tmp_path / where).rglob("*.*"))
        for where in ("there", "twice")
    ]
    assert names[0] == names[1]


def test_publishing_again_prints_the_address_of_the_same_version(
    address: str, sealed: Path, tmp_path: Path
) -> None:
    first = stillweb.publish(sealed, address)
    again = publish_to(sealed, address)
    assert (again.address, again.sent) == (first.address, 0)
    assert ("@" in first.address) == address.startswith(("hub:", "oci:"))
    assert "site.wacz" in stillweb.pull(again.address, tmp_path / "pulled")


def test_another_publication_is_not_replaced_unasked(address: str, sealed: Path, tmp_path: Path) -> None:
    publish_to(sealed, address)
    small_snapshot(tmp_path / "site2")
    with stillweb.record(tmp_path / "site2"):
        pass
    other = seal(tmp_path / "site2", tmp_path / "other.wacz").path
    with pytest.raises(UsageError, match="holds another publication"):
        publish_to(other, address)
    publish_to(other, address, replace=True)
    assert "other.wacz" in pull(address, tmp_path / "out")


@pytest.mark.parametrize("unasked", [False, True])
def test_what_is_published_meanwhile_stays_whole(
    unasked: bool, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second publisher ends between two files of the first, or between the first one's last look and its list."""
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    address = str(tmp_path / "published")
    other = shutil.copy(sealed, tmp_path / "other.wacz")
    name = "commit" if unasked else "put"
    before = getattr(FsspecStore, name)

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(FsspecStore, name, before)
        publish_to(other, address)
        return before(*args)

    monkeypatch.setattr(FsspecStore, name, meanwhile)
    if unasked:
        publish_to(sealed, address)
    else:
        with pytest.raises(UsageError, match="something else was published there meanwhile"):
            publish_to(sealed, address)
    whole = pull(address, tmp_path / "out")
    assert ("site.wacz" in whole, "other.wacz" in whole) == (unasked, not unasked)


def test_a_published_file_that_was_lost_is_sent_again(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    address = str(tmp_path / "published")
    publish_to(sealed, address)
    (kept,) = Path(address).glob("files/*/site.wacz")
    kept.unlink()
    assert publish_to(sealed, address).sent == 1
    assert "site.wacz" in pull(address, tmp_path / "out")


@pytest.mark.parametrize("address", ["hub:lab/site", "oci://{host}/lab/site:v1"])
def test_a_store_that_is_silent_fails(
    address: str, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(remote, "SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", f"http://{host}")
        named = address.format(host=host)
        for use in (lambda: publish_to(sealed, named), lambda: pull(named, tmp_path / "out")):
            with pytest.raises(StillwebError, match="the store fails: ") as told:
                use()
            assert "\n" not in str(told.value)


def test_files_of_somebody_else_are_not_replaced_unasked(sealed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    for place in (folder, folder / "README.md"):
        with pytest.raises(UsageError, match="holds other files"):
            publish_to(sealed, str(place))
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("README.md", "mine")]
    publish_to(sealed, str(folder), replace=True)
    assert "Recorded web pages" in (folder / "README.md").read_text()


def test_publishing_again_completes_what_was_killed_before_its_card(sealed: Path, tmp_path: Path) -> None:
    publish_to(sealed, str(tmp_path / "there"))
    (tmp_path / "there/README.md").unlink()
    publish_to(sealed, str(tmp_path / "there"))
    assert "Recorded web pages" in (tmp_path / "there/README.md").read_text()


def test_a_tag_that_moved_is_told_where_it_was_pinned(sealed: Path, tmp_path: Path) -> None:
    with oci_registry(tmp_path / "registry") as host:
        pinned = publish_to(sealed, f"oci://{host}/site:v1").address.rpartition("@")[2]
        assert pull(f"oci://{host}/site:v1@{pinned}", tmp_path / "one")
        shutil.copy(sealed, tmp_path / "renamed.wacz")
        publish_to(tmp_path / "renamed.wacz", f"oci://{host}/site:v1", replace=True)
        with pytest.raises(UsageError, match="the tag was moved to sha256:"):
            open_store(f"oci://{host}/site:v1@{pinned}").files()
        assert "site.wacz" in pull(f"oci://{host}/site@{pinned}", tmp_path / "two")


def test_a_registry_that_asks_for_credentials_says_so(sealed: Path, tmp_path: Path) -> None:
    with (
        oci_registry(tmp_path / "registry", "synthetic:$2y$05$" + "x" * 53 + "\n") as host,
        pytest.raises(StillwebError, match=r"access denied.*credentials") as told,
    ):
        publish_to(sealed, f"oci://{host}/site:v1")
    assert "\n" not in str(told.value)


def test_an_interrupted_publishing_to_a_hub_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    with Writer.open(small_snapshot(tmp_path / "site")) as writer:
        record(writer, f"{PAGE}large", random.Random(1).randbytes(3 * LARGE))
    sealed = seal(tmp_path / "site").path
    with hub("lab/site", token="synthetic") as stand:
        use_hub(monkeypatch, stand)
        stand.failing = "/commit/"
        with pytest.raises(StillwebError, match=r"^hub:lab/site: access denied") as told:
            publish_to(sealed, "hub:lab/site")
        assert "\n" not in str(told.value)
        assert [list(files) for files in stand.commits.values()] == [[]]
        large, stand.failing = stand.sent, ""
        assert large > 2 * LARGE
        publish_to(sealed, "hub:lab/site")
        assert stand.sent < large + LARGE  # the snapshot is not sent again
        assert "site.wacz" in pull("hub:lab/site", tmp_path / "out")


@pytest.mark.parametrize("token", ["another", ""])
def test_a_hub_tells_wrong_credentials(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    with hub("lab/site", token="synthetic") as stand:
        use_hub(monkeypatch, stand, token)
        for use in (
            lambda: publish_to(sealed, "hub:lab/site"),
            lambda: pull("hub:lab/site", tmp_path / "out"),
        ):
            with pytest.raises(StillwebError, match=r"^hub:lab/site: .*credentials") as told:
                use()
            assert "\n" not in str(told.value)
        assert not stand.commits
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_revision_of_a_hub_that_moves_leaves_what_is_open_and_what_is_pinned(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    with hub("lab/site") as stand:
        use_hub(monkeypatch, stand)
        pinned = publish_to(sealed, "hub:lab/site").address
        assert pinned == f"hub:lab/site@{stand.refs['main']}"
        run = run_of(tmp_path / "work", "hub:lab/site")
        with Snapshot.open("hub:lab/site") as there:
            before = there.id
            with Writer.open(tmp_path / "site") as writer:
                record(writer, f"{PAGE}more", b"more")
            publish_to(seal(tmp_path / "site", tmp_path / "site2.wacz").path, "hub:lab/site", replace=True)
            monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "empty"))
            assert there.lookup(PAGE).response.status == 200
        with Snapshot.open("hub:lab/site") as now, Snapshot.open(pinned) as then:
            assert (now.id != before, then.id) == (True, before)
        outcome = certify(run, times=1)
        assert not outcome.holds
        assert "snapshot" in str(outcome.differences)


def test_a_tampered_file_is_neither_read_nor_pulled(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    publish_to(sealed, str(tmp_path / "published"))
    (kept,) = (tmp_path / "published").glob("files/*/site.wacz")
    data = bytearray(kept.read_bytes())
    data[len(data) // 2] ^= 1
    kept.write_bytes(data)
    with pytest.raises(DamagedInput, match="differs from what was published"):
        pull(str(tmp_path / "published"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_a_block_that_was_damaged_in_the_cache_is_read_again(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    publish_to(sealed, str(tmp_path / "published"))
    pull(str(tmp_path / "published"), tmp_path / "out")
    for block in (tmp_path / "cache" / "blocks").glob("*/*"):
        block.write_bytes(bytes(block.stat().st_size))
    pull(str(tmp_path / "published"), tmp_path / "again")
    assert (tmp_path / "again" / "site.wacz").read_bytes() == sealed.read_bytes()


HOSTILE_LISTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a parent": lambda one: [{**one, "name": "../site.wacz"}],
    "a parent below": lambda one: [{**one, "name": "a/../../site.wacz"}],
    "an absolute name": lambda one: [{**one, "name": "/tmp/site.wacz"}],
    "an empty name": lambda one: [{**one, "name": ""}],
    "a NUL": lambda one: [{**one, "name": "a\0b"}],
    "half of a character": lambda one: [{**one, "name": "a\ud800b"}],
    "a name that is too long": lambda one: [{**one, "name": "a" * 300}],
    "a file that is a folder, too": lambda one: [{**one, "name": "a"}, {**one, "name": "a/b"}],
    "a folder that is a file, too": lambda one: [{**one, "name": "a/b"}, {**one, "name": "a"}],
    "a name twice": lambda one: [one, one],
    "the list itself": lambda one: [{**one, "name": "datapackage.json"}],
    "a name that is not text": lambda one: [{**one, "name": {"a": 1}}],
    "no hash": lambda one: [{**one, "hash": ""}],
    "another hash": lambda one: [{**one, "hash": "sha256:" + "0" * 64}],
    "other blocks": lambda one: [{**one, "blocks": "0" * 64}],
    "too many blocks": lambda one: [{**one, "blocks": f"{one['blocks']} {one['blocks']}"}],
    "blocks that are a number": lambda one: [{**one, "blocks": 10**400}],
    "no list": lambda one: {"a": one},
    "a resource that is none": lambda one: [[1]],
    "blocks outside the cache": lambda one: [{**one, "blocks": "../../../../../../../../dev/zero"}],
    "a list that is nested deeply": lambda one: functools.reduce(lambda inner, _: [inner], range(900), []),
}


@pytest.mark.parametrize("name", HOSTILE_LISTS)
def test_a_hostile_list_is_refused_and_writes_nothing(
    name: str, sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    publish_to(sealed, str(tmp_path / "published"))
    listed = tmp_path / "published" / "datapackage.json"
    value = json.loads(listed.read_text())
    (one,) = (resource for resource in value["resources"] if resource["name"] == "site.wacz")
    listed.write_text(json.dumps({**value, "resources": HOSTILE_LISTS[name](one)}))
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    with pytest.raises(DamagedInput):
        pull(str(tmp_path / "published"), tmp_path / "out")
    assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} == before


LAYER = {"digest": f"sha256:{'0' * 64}", "size": 5}
TITLE = "org.opencontainers.image.title"
HOSTILE_MANIFESTS: dict[str, object] = {
    "no object": [],
    "no list of layers": {"layers": None},
    "layers that are none": {"layers": [1]},
    "no digest": {"layers": [{"size": 5}]},
    "a digest that is a path": {"layers": [{**LAYER, "digest": "sha256:../../x"}]},
    "a size in words": {"layers": [{**LAYER, "size": "five"}]},
    "a size below nothing": {"layers": [{**LAYER, "size": -5}]},
    "a title that is a number": {"layers": [{**LAYER, "annotations": {TITLE: 5}}]},
    "a title with a NUL": {"layers": [{**LAYER, "annotations": {TITLE: "a\0.wacz"}}]},
    "half of a character": {"layers": [{**LAYER, "annotations": {TITLE: "\ud800.wacz"}}]},
    "a body without an end": None,
}


@pytest.mark.parametrize("name", HOSTILE_MANIFESTS)
def test_a_hostile_manifest_is_refused_and_writes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * (1 << 20)

    def answer(asked: Asked) -> Answer:
        value = HOSTILE_MANIFESTS[name]
        return Answer(body=json.dumps(value).encode() if value is not None else endless())

    with Origin(answer) as registry, pytest.raises(DamagedInput):
        pull(f"oci://127.0.0.1:{registry.port}/lab/site:v1", tmp_path / "out")
    assert not (tmp_path / "out").exists()


FILE = {"rfilename": "site.wacz", "size": 5, "blobId": "0" * 40}
HOSTILE_SETS: dict[str, object] = {
    "no object": [1],
    "no JSON": "<html>",
    "JSON that is nested deeply": "[" * 200_000,
    "files that are none": {"siblings": [1]},
    "a name that is a list": {"siblings": [{**FILE, "rfilename": ["site.wacz"]}]},
    "no size": {"siblings": [{**FILE, "size": None}]},
    "a size in words": {"siblings": [{**FILE, "size": "five"}]},
    "a size below nothing": {"siblings": [{**FILE, "size": -5}]},
    "a digest that is a path": {
        "siblings": [{**FILE, "lfs": {"sha256": "../x", "size": 5, "pointerSize": 1}}]
    },
    "no digest": {"siblings": [{**FILE, "lfs": {"size": 5}}]},
    "no commit": {"sha": None, "siblings": [FILE]},
}


def test_a_hub_is_asked_for_nothing_but_the_data_set(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would ask for the environment variables that the hub wants to know of."""
    with hub("lab/site", {"site.wacz": sealed.read_bytes()}) as stand:
        use_hub(monkeypatch, stand)
        pull("hub:lab/site", tmp_path / "out")
        assert [path for path in stand.asked if "/lab/site" not in path] == []


@pytest.mark.parametrize("name", HOSTILE_SETS)
def test_a_hub_that_lists_no_files_is_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = HOSTILE_SETS[name]
    value = {"id": "lab/site", "sha": "0" * 40, **told} if isinstance(told, dict) else told
    body = value if isinstance(value, str) else json.dumps(value)

    with Origin(lambda _: Answer(body=body.encode())) as server:
        use_hub(monkeypatch, Hub("lab/site", "", url=server.url))
        with pytest.raises(DamagedInput, match=r"^hub:lab/site: the store lists no files there: "):
            pull("hub:lab/site", tmp_path / "out")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((), "names no place to send a file to"),
        ((("Location", "http://[::1/"),), "the store fails: InvalidURL"),
    ],
)
def test_a_registry_that_takes_no_file_is_told(
    place: tuple[tuple[str, str], ...], words: str, sealed: Path, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Answer:
        return Answer(202, headers=place) if asked.method == "POST" else Answer(404)

    with Origin(answer) as registry, pytest.raises(StillwebError, match=words):
        publish_to(sealed, f"oci://127.0.0.1:{registry.port}/lab/site:v1")


def drop_bucket(s3: Any, name: str) -> None:
    for item in s3.list_objects_v2(Bucket=name)["Contents"]:
        s3.delete_object(Bucket=name, Key=item["Key"])
    s3.delete_bucket(Bucket=name)


def test_a_store_that_fails_in_the_middle_leaves_nothing_published(
    sealed: Path, tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = use_s3(monkeypatch, endpoint)
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    s3.create_bucket(Bucket="leaving")
    put = FsspecStore.put

    def vanish(self: FsspecStore, name: str, source: Path, sha256: str) -> bool:
        sent = put(self, name, source, sha256)
        drop_bucket(s3, "leaving")
        return sent

    monkeypatch.setattr(FsspecStore, "put", vanish)
    with pytest.raises(StillwebError, match=r"^s3://leaving/site: ") as told:
        publish_to(sealed, "s3://leaving/site")
    assert "\n" not in str(told.value)
    assert "leaving" not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_files_without_their_list_are_no_publication(
    kind: str, sealed: Path, tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_s3(monkeypatch, endpoint)
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    address = str(tmp_path / "half") if kind == "folder" else f"s3://{BUCKET}/{tmp_path.name}"

    def killed(self: FsspecStore, files: object, message: str) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FsspecStore, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            publish_to(sealed, address)
    with pytest.raises(UsageError, match=": no publication: "):
        pull(address, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    if kind == "s3":
        with pytest.raises(DamagedInput, match="no snapshot: "):
            Snapshot.open(address)
    assert publish_to(sealed, address).sent == 0
    assert sealed.name in pull(address, tmp_path / "out")


def test_a_bucket_that_vanishes_in_the_middle_leaves_nothing_pulled(
    sealed: Path, tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stillweb.snapshots.remote import RemoteSource

    s3 = use_s3(monkeypatch, endpoint)
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    s3.create_bucket(Bucket="going")
    publish_to(sealed, "s3://going/site")
    fetched = RemoteSource._fetched
    blocks = []

    def vanish(self: RemoteSource, first: int, stop: int) -> Any:
        blocks.append(first)
        if len(blocks) == 2:
            drop_bucket(s3, "going")
        return fetched(self, first, stop)

    monkeypatch.setattr(RemoteSource, "_fetched", vanish)
    with pytest.raises(StillwebError, match=r"^s3://going/site.*: ") as told:
        pull("s3://going/site", tmp_path / "out")
    assert "\n" not in str(told.value)
    assert len(blocks) >= 2
    assert not (tmp_path / "out").exists()


def test_an_interrupted_pull_goes_on(sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    big = tmp_path / "published"
    publish_to(sealed, str(big))
    asked: list[Any] = []
    fetched = remote.RemoteSource._fetched

    def counted(self: remote.RemoteSource, first: int, stop: int) -> Any:
        asked.append((self.name, first))
        if len(asked) == 3:
            raise DamagedInput("the line is cut")
        return fetched(self, first, stop)

    monkeypatch.setattr(remote.RemoteSource, "_fetched", counted)
    with pytest.raises(DamagedInput, match="the line is cut"):
        pull(str(big), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    pull(str(big), tmp_path / "out")
    assert len(asked) == len(set(asked)) + 1  # the block that failed is asked for twice, no other one
    assert BLOCK == 1 << 20


CANARY = "canary-0123"
PLAIN = ("Which lake?", "Alpha", "wild guess")


@pytest.fixture(params=[CANARY])
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> RunFiles:
    """A run of an encrypted set (or of one in plain text) with its tape, report and certificate."""
    monkeypatch.setenv("GRADER_API_KEY", KEY)
    row = {name: value for name, value in bclc([], CANARY).items() if name != "urls"}
    if not request.param:
        row = {"problem": "Which lake?", "answer": "Alpha", "urls": "[]"}
    tasks = load_tasks(write(tmp_path / "set.jsonl", [row]))
    saved = tmp_path / "saved.jsonl"
    saved.write_text(json.dumps({"id": tasks[0].id, "answer": "a wild guess"}) + "\n")
    with Writer.open(small_snapshot(tmp_path / "site")) as writer:  # a search that quotes the set
        record(writer, "http://example.test/search?q=Which+lake%3F", b"You asked: Which lake?")
    sealed = str(seal(tmp_path / "site").path)
    with Endpoint(lambda asked: "correct: no") as endpoint:
        env = {"GRADER_MODEL": "g", "GRADER_BASE_URL": endpoint.url}
        settings = Settings(agent=f"predictions:{saved}", contracts=(), env=env, snapshots=(sealed,))
        files = start_run(tmp_path / "run", settings, tasks)
        run_attempts(files.path, display=SilentDisplay())
    write_certificate(files.path)
    write_report(files.path)
    return files


@pytest.mark.slow
def test_an_encrypted_sets_text_is_encrypted_again_and_the_canary_stands_in_each_file(
    run: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, opened = tmp_path / "published", tmp_path / "opened"
    assert "Which lake?" in (run.path / "tasks.jsonl").read_text()
    assert call(capsys, "publish", run.path, "-o", out)[0] == 0
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 4
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert CANARY in text, path
        assert not [plain for plain in PLAIN if plain in text], path
    assert not (out / ".secrets").exists()
    assert call(capsys, "publish", out, "-o", tmp_path / "again")[0] == 2
    with pytest.raises(
        UsageError, match=r"is encrypted, as its task set is; `stillweb publish .* --open -o DIR`"
    ):
        certify(out, times=1)
    assert call(capsys, "publish", out, "--open", "-o", opened)[0] == 0
    for path in files:
        name = path.relative_to(out).as_posix().removesuffix(".encrypted")
        if name.endswith("certificate.json") or name == "run.json":
            assert json.loads((opened / name).read_text()) == json.loads((run.path / name).read_text())
        else:
            assert (opened / name).read_bytes() == (run.path / name).read_bytes()
    outcome = certify(opened, times=1)
    assert outcome.holds, outcome.differences
    (out / "tasks.jsonl.encrypted").write_text('{"canary": "x", "encrypted": "%"}')
    assert call(capsys, "publish", out, "--open", "-o", tmp_path / "damaged")[0] == 3


@pytest.mark.slow
def test_the_snapshot_of_an_encrypted_set_is_published_encrypted(
    run: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, opened = tmp_path / "there", tmp_path / "opened"
    assert call(capsys, "publish", run.path, "--to", there)[0] == 0
    for path in (path for path in there.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert CANARY.encode() in data, path
        assert not [p for p in (*PLAIN, "example.test") if p.encode() in data], path
    sealed = tmp_path / "site.wacz"
    assert call(capsys, "pull", there, "-o", tmp_path / "pulled")[0] == 0
    assert call(capsys, "publish", tmp_path / "pulled", "--open", "-o", opened)[0] == 0
    assert (opened / "site.wacz").read_bytes() == sealed.read_bytes()
    sealed.unlink()
    assert certify(opened, times=1).holds
    kept = tmp_path / "pulled" / "site.wacz.encrypted"
    whole = kept.read_bytes()
    for damaged in (whole[:-9], whole + b"x", whole.replace(b"canary", b"canari")):
        kept.write_bytes(damaged)
        assert call(capsys, "publish", tmp_path / "pulled", "--open", "-o", tmp_path / "damaged")[0] == 3
        assert not (tmp_path / "damaged").exists()


@pytest.mark.parametrize("run", [""], indirect=True)
def test_another_run_is_copied_without_what_only_this_machine_needs(
    run: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = run.path / "tasks.jsonl"
    (run.path / "interrupted").mkdir()
    (run.path / "interrupted" / "x.jsonl").write_text("half")
    assert call(capsys, "publish", run.path, "-o", tmp_path / "out")[0] == 0
    assert (tmp_path / "out" / "tasks.jsonl").read_bytes() == tasks.read_bytes()
    assert not (tmp_path / "out" / "interrupted").exists()
    assert call(capsys, "publish", run.path, "-o", tmp_path / "out")[0] == 2
    (tmp_path / "private").write_text("of this machine")
    (run.path / "traces" / "link.jsonl").symlink_to(tmp_path / "private")
    with pytest.raises(UsageError, match=r"link\.jsonl: is a link to"):
        publish_to(run.path, str(tmp_path / "with a link"))
