"""Clients that read no variable for a PEM file find the same authorities in files beside it."""

from __future__ import annotations

import configparser
import hashlib
import ssl
import struct
from pathlib import Path

import certifi
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.client_env import java_store, php_settings, told_files, wget_settings


def read_store(data: bytes, password: str) -> dict[str, bytes]:
    """Alias -> certificate (DER) of a trust store, read by the description of the format."""
    body, digest = data[:-20], data[-20:]
    # the digest is over the password in UTF-16, a fixed text, and all before it
    assert digest == hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    magic, version, count = struct.unpack_from(">III", body)
    assert (magic, version) == (0xFEEDFEED, 2)
    at, found = 12, {}

    def take(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(form, body, at)
        at += struct.calcsize(form)
        return int(value)

    def text(length: int) -> bytes:
        nonlocal at
        at += length
        return body[at - length : at]

    for _ in range(count):
        assert take(">I") == 2  # a certificate that is trusted
        alias = text(take(">H")).decode()
        take(">Q")
        assert text(take(">H")) == b"X.509"
        found[alias] = text(take(">I"))
    assert at == len(body)
    assert len(found) == count
    return found


def test_all_forms_hold_the_authority(tmp_path: Path) -> None:
    authority = Authority.load_or_create(tmp_path / "a state")
    pem = authority.certificate_path
    der = ssl.PEM_cert_to_DER_cert(pem.read_text())
    assert list(read_store(java_store(pem).read_bytes(), "changeit").values()) == [der]
    assert wget_settings(pem).read_text() == f"ca_certificate = {pem}\n"
    (settings,) = php_settings(pem).glob("*.ini")
    php = configparser.ConfigParser()
    php.read_string("[php]\n" + settings.read_text())
    assert dict(php["php"]) == {"curl.cainfo": f'"{pem}"', "openssl.cafile": f'"{pem}"'}


def test_many_authorities_are_one_store_that_is_the_same_each_time(tmp_path: Path) -> None:
    content = Path(certifi.where()).read_bytes()
    pem = tmp_path / "usual.pem"
    first, again = (told_files(pem, content)[java_store(pem)] for _ in range(2))
    assert first == again
    found = read_store(first, "changeit")
    assert len(set(found.values())) == content.count(b"BEGIN CERTIFICATE")


@pytest.mark.parametrize("form", [wget_settings, java_store])
def test_a_form_that_is_of_another_authority_is_made_anew(tmp_path: Path, form: object) -> None:
    assert callable(form)
    pem = Authority.load_or_create(tmp_path).certificate_path
    right = form(pem).read_bytes()
    form(pem).write_bytes(b"of another")
    Authority.load_or_create(tmp_path)
    assert form(pem).read_bytes() == right
