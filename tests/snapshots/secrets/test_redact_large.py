"""Secrets in requests that are too large to be looked at field by field as they are."""

import pytest

from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import Redactor

TOKEN = "tok_9aB3xK7mQ2wE5rT8yU1i"


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(b"k" * 32)


def test_a_known_secret_is_replaced_in_a_large_request(
    redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillweb.snapshots.secrets.redact.LIMIT", 100)
    redactor.learn(TOKEN)
    sent = b"x" * 200 + TOKEN.encode()
    request = redactor.request(Request("POST", "http://a.test/", (("Content-Type", "text/plain"),), sent))
    assert request.body == b"x" * 200 + redactor.pseudonym(TOKEN).encode()


@pytest.mark.parametrize(
    ("media", "sent"),
    [
        ("application/x-www-form-urlencoded", b"a=" + b"x" * 200 + b"&password=" + TOKEN.encode()),
        ("application/json", b'{"a": "' + b"x" * 200 + b'", "password": "' + TOKEN.encode() + b'"}'),
        (
            "multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="f"; filename="x"\r\n\r\n' + b"\r\n-x\0" * 3000
            + b'\r\n--B\r\nContent-Disposition: form-data; name="password"\r\n\r\n' + TOKEN.encode() + b"\r\n--B--\r\n",
        ),
    ],
)  # fmt: skip
def test_a_secret_field_of_a_large_request_is_learned(
    redactor: Redactor, monkeypatch: pytest.MonkeyPatch, media: str, sent: bytes
) -> None:
    monkeypatch.setattr("stillweb.snapshots.secrets.redact.LIMIT", 100)
    request = redactor.request(Request("POST", "http://a.test/", (("Content-Type", media),), sent))
    assert request.body == sent.replace(TOKEN.encode(), redactor.pseudonym(TOKEN).encode())
