"""Stores on loopback to publish to: moto's S3, Debian's docker-registry."""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import STARTS, until

BUCKET = "shelf"


@contextmanager
def s3_server() -> Iterator[str]:
    """Moto's S3 with an empty bucket; its endpoint."""
    from moto.moto_api._internal import moto_api_backend
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        moto_api_backend.reset()


def aws(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """s3:// means the server from now on."""
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "synthetic")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "synthetic")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()


def use_s3(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> Any:
    """A client of the server, which s3:// means from now on."""
    aws(monkeypatch, endpoint)
    client = _client(endpoint)
    client.create_bucket(Bucket=BUCKET)
    return client


@cache
def _client(endpoint: str) -> Any:
    import boto3

    return boto3.client("s3", endpoint_url=endpoint)


@contextmanager
def oci_registry(folder: Path, users: str = "") -> Iterator[str]:
    """Debian's docker-registry; its host and port. `users` is the text of an htpasswd file."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (apt-get install docker-registry)")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    auth = ""
    if users:
        (folder / "users").write_text(users)
        auth = f"auth:\n  htpasswd:\n    realm: shelf\n    path: {folder / 'users'}\n"
    (folder / "registry.yml").write_text(
        f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {folder / 'blobs'}\n"
        f"http:\n  addr: 127.0.0.1:{port}\n{auth}"
    )
    process = subprocess.Popen(
        [program, "serve", str(folder / "registry.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=1).close()
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            time.sleep(0.05)
            return False
        return True

    try:
        assert until(answers, STARTS)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
