"""The bytes of a head."""

import shutil
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots import Snapshot
from tests.proxy.frozen import Site
from tests.proxy.gateways import client

SAID = "voilà".encode()  # its last byte is a space in Latin-1


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("name", ["data.warc.gz", "日本.warc.gz"])
def test_the_bytes_of_a_recorded_field_stay(
    tmp_path: Path, authority: Authority, name: str, http2: bool
) -> None:
    """Also beside one of ours that is no Latin-1, and where they end in what Latin-1 calls a space."""
    site = Site(tmp_path / "snap")
    url = "https://site.example/"
    site.add(url, b"x", headers=(("X-Said", SAID.decode("latin-1")),), protocol="h2")
    with site.open():
        pass
    (archive,) = (tmp_path / "snap" / "archive").iterdir()
    shutil.copy(archive, tmp_path / name)
    with (
        Snapshot.open(tmp_path / name) as snapshot,
        Gateway(snapshot, authority=authority) as g,
        client(g, http2=http2) as c,
    ):
        answer = c.get(url)
    fields = {n.lower(): v for n, v in answer.headers.raw}
    assert fields[b"x-said"] == SAID
    assert fields[b"stillweb-capture"].startswith(name.encode() + b":")
