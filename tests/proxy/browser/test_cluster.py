"""Recording and text extraction on a Ray cluster of two nodes on this machine; `setup.sh --peers` installs Ray for it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.browser import jobs
from stillweb.proxy.browser.jobs import record_on_cluster, record_part
from stillweb.proxy.browser.options import BrowserOptions
from stillweb.snapshots._os.cluster import RayPool
from stillweb.snapshots.contents.provenance import provenance_now
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve
from tests.snapshots.making import record
from tests.support.command_line import stillweb
from tests.support.waiting import STARTS, until

pytestmark = [pytest.mark.slow, pytest.mark.first]
PAGES = 2
RAY = Path(__file__).parents[3] / ".venv-peers/ray"


def birds(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/logo.svg":
        return 200, {"Content-Type": "image/svg+xml"}, b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    text = f"<title>{path}</title><img src=/logo.svg><h1>Bird {path}</h1><p>{'It sings. ' * 20}</p>"
    return 200, {"Content-Type": "text/html"}, text.encode()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, for all tests: it takes seconds to start."""
    if not RAY.is_dir():
        pytest.skip("./setup.sh --peers installs Ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(RAY))
        patch.setenv("PYTHONPATH", str(RAY))  # of the nodes and their workers
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # else they starve beside other tests
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.second = made.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", made.address)
        try:
            yield made
        finally:
            made.shutdown()


def held(path: Path) -> list[tuple[str, ...]]:
    """Return the captures and views of a snapshot, without their moments."""
    with Snapshot.open(path) as snapshot:
        found = [(c.url, str(c.status), c.digest, c.session) for c in snapshot.captures()]
        return sorted([*found, *(("view", view.address) for view in snapshot.views())])


def test_jobs_of_a_node_that_is_killed_are_done_again(tmp_path: Path, cluster: Any) -> None:
    out, parts = tmp_path / "site", tmp_path / ".site.parts"
    killed = threading.Event()

    def waiting(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        killed.wait(STARTS)
        return birds(method, path, body, headers)

    def kill() -> None:
        # both nodes are at work when two unfinished parts are there
        assert until(lambda: len(list(parts.glob(".0*"))) == 2, STARTS)
        cluster.remove_node(cluster.second, allow_graceful=False)
        killed.set()

    with serve(waiting) as base:
        urls = [f"{base}/{number}" for number in range(PAGES)]
        killer = threading.Thread(target=kill)
        killer.start()
        results = record_on_cluster(urls, [], out, BrowserOptions())
        killer.join()
        assert killed.is_set()
        cluster.add_node(num_cpus=1)
        (tmp_path / "urls").write_text("\n".join(urls))
        done = stillweb("record", "--urls", tmp_path / "urls", "-o", tmp_path / "local")
    assert done.code == 0, done.err
    assert [(r.row["url"], r.row["result"]) for r in results] == [(url, "captured") for url in urls]
    assert held(out) == held(tmp_path / "local")
    assert not parts.exists()
    assert seal(out).captures == 2 * PAGES
    assert not verify(out.with_suffix(".wacz"))


def test_the_id_does_not_tell_the_number_of_workers(tmp_path: Path, cluster: Any) -> None:
    with serve(birds) as base:
        urls = [f"{base}/{number}" for number in range(PAGES)]
        folder = tmp_path / ".one.parts"
        folder.mkdir()
        made = jobs._jobs(
            jobs.plan(urls, []), folder, BrowserOptions(), False, provenance_now("browser", {}), {}
        )
        for job in (*made[:0:-1], made[0]):  # the first last
            record_part(job)
        shutil.copytree(folder, tmp_path / ".two.parts")
        with pytest.raises(UsageError, match="parts of another recording"):
            record_on_cluster(urls[:1], [], tmp_path / "one", BrowserOptions())
        record_on_cluster(urls, [], tmp_path / "one", BrowserOptions(), parallel=1)
        record_on_cluster(urls, [], tmp_path / "two", BrowserOptions(), parallel=2)
        with pytest.raises(UsageError, match="record into a new directory"):
            record_on_cluster(urls, [], tmp_path / "one", BrowserOptions())
    with Snapshot.open(tmp_path / "one") as one, Snapshot.open(tmp_path / "two") as two:
        assert one.id == two.id


def test_texts_that_a_cluster_extracts_are_those_of_this_machine(tmp_path: Path, cluster: Any) -> None:
    with Writer.open(tmp_path / "site") as writer:
        for number in range(40):
            text = f"<h1>{number}</h1><p>{'It sings. ' * 20}</p>"
            record(writer, f"http://birds.test/{number}", text.encode())
    shutil.copytree(tmp_path / "site", tmp_path / "other")
    here, there = seal(tmp_path / "site", workers=1), seal(tmp_path / "other", pool=RayPool)
    assert here.texts == there.texts == 40
    assert here.path.read_bytes() == there.path.read_bytes()
