"""The authority: kept privately, repaired or refused, and good certificates for any host."""

from __future__ import annotations

import configparser
import hashlib
import ipaddress
import os
import socket
import ssl
import stat
import struct
import sys
import threading
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import certifi
import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from stillweb.proxy.net import ca
from stillweb.proxy.net.ca import CA_DAYS, EARLIER_DAYS, LEAF_DAYS, RENEW_DAYS, Authority, normal_host
from stillweb.proxy.net.client_env import java_store, php_settings, trust_store_files, wget_settings
from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from stillweb.snapshots.secrets.keystore import state_dir
from tests.support.waiting import HANG


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.load_or_create(tmp_path_factory.mktemp("state"))


def handshake(
    authority: Authority,
    host: str,
    *,
    alpn: tuple[str, ...] = ("http/1.1",),
    offers: tuple[str, ...] = ("http/1.1",),
    session: ssl.SSLSession | None = None,
    client: ssl.SSLContext | None = None,
) -> tuple[dict[str, object], str | None, ssl.SSLSession | None, bool]:
    """Connects a strict client to a server with the authority's context for `host`, over a socket pair."""
    if client is None:
        client = ssl.create_default_context(cafile=authority.certificate_path)
        client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        client.set_alpn_protocols(list(offers))
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with authority.context_for(host, alpn).wrap_socket(theirs, server_side=True) as connection:
            connection.sendall(b"hello")

    server = threading.Thread(target=serve)
    server.start()
    try:
        with client.wrap_socket(ours, server_hostname=normal_host(host), session=session) as connection:
            assert connection.recv(5) == b"hello"
            peer = connection.getpeercert()
            assert peer is not None
            return (
                dict(peer),
                connection.selected_alpn_protocol(),
                connection.session,
                bool(connection.session_reused),
            )
    finally:
        server.join(HANG)


def test_key_is_private_and_kept(tmp_path: Path) -> None:
    first = Authority.load_or_create(tmp_path / "state")
    key = tmp_path / "state" / "mitmproxy-ca.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert b"PRIVATE KEY" in key.read_bytes()
    assert b"PRIVATE KEY" not in first.certificate_path.read_bytes()
    assert Authority.load_or_create(tmp_path / "state").certificate == first.certificate
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == [
        "mitmproxy-ca.pem",
        "stillweb-ca.jks",
        "stillweb-ca.pem",
        "stillweb-ca.php",
        "stillweb-ca.wgetrc",
    ]


def test_a_key_that_others_can_read_is_repaired(tmp_path: Path) -> None:
    first = Authority.load_or_create(tmp_path)
    (tmp_path / "mitmproxy-ca.pem").chmod(0o644)
    assert Authority.load_or_create(tmp_path).certificate == first.certificate
    assert stat.S_IMODE((tmp_path / "mitmproxy-ca.pem").stat().st_mode) == 0o600


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    Authority.load_or_create(tmp_path)
    os.chown(tmp_path / "mitmproxy-ca.pem", 12345, 12345)
    with pytest.raises(UsageError, match="another user"):
        Authority.load_or_create(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_damaged_key_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mitmproxy-ca.pem").write_bytes(content)
    (tmp_path / "mitmproxy-ca.pem").chmod(0o600)
    with pytest.raises(DamagedInput, match=r"mitmproxy-ca\.pem.*delete it"):
        Authority.load_or_create(tmp_path)


def test_a_certificate_for_another_key_is_damage(tmp_path: Path) -> None:
    one, two = (Authority.load_or_create(tmp_path / n).directory / "mitmproxy-ca.pem" for n in "ab")
    key = one.read_text().partition("-----BEGIN CERTIFICATE")[0]
    one.write_text(key + "-----BEGIN CERTIFICATE" + two.read_text().partition("-----BEGIN CERTIFICATE")[2])
    with pytest.raises(DamagedInput, match="not for its key"):
        Authority.load_or_create(tmp_path / "a")


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingCapability, match="STILLWEB_STATE"):
        Authority.load_or_create(tmp_path / "file" / "state")


def test_many_starting_at_once_agree(tmp_path: Path) -> None:
    found: list[x509.Certificate] = []
    threads = [
        threading.Thread(target=lambda: found.append(Authority.load_or_create(tmp_path).certificate))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_state_directory_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "here"))
    assert state_dir() == tmp_path / "here"
    monkeypatch.delenv("STILLWEB_STATE")
    assert state_dir().name == "stillweb"


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "EXAMPLE.com.",
        "bücher.example",
        "under_score.example",
        "127.0.0.1",
        "::1",
        "[::1]",
        f"{'a' * 63}.example",
    ],
)
def test_a_strict_client_accepts(authority: Authority, host: str) -> None:
    peer, alpn, _, _ = handshake(authority, host)
    name = normal_host(host)
    kind, value = peer["subjectAltName"][0]  # type: ignore[index]
    if kind == "DNS":
        assert value == name
    else:
        assert ipaddress.ip_address(value) == ipaddress.ip_address(name)
    assert alpn == "http/1.1"


@pytest.mark.parametrize("host", ["", "a b", "x" * 300, "line\nbreak"])
def test_impossible_names(authority: Authority, host: str) -> None:
    with pytest.raises(UsageError):
        authority.context_for(host)


def test_protocols_are_offered_as_asked(authority: Authority) -> None:
    both = ("h2", "http/1.1")
    assert handshake(authority, "p.example", alpn=both, offers=both)[1] == "h2"
    assert handshake(authority, "p.example", alpn=("http/1.1",), offers=both)[1] == "http/1.1"
    assert handshake(authority, "p.example", alpn=(), offers=both)[1] is None


def test_sessions_resume(authority: Authority) -> None:
    client = ssl.create_default_context(cafile=authority.certificate_path)
    _, _, session, reused = handshake(authority, "resume.example", client=client)
    assert session is not None
    assert not reused
    assert handshake(authority, "resume.example", client=client, session=session)[3]


def test_leaf_is_within_the_limits_of_clients(authority: Authority) -> None:
    leaf = x509.load_pem_x509_certificate(authority.mint("demo.example"))
    if sys.platform == "darwin":
        assert leaf.not_valid_after_utc - leaf.not_valid_before_utc < timedelta(days=825)
    assert leaf.not_valid_before_utc >= authority.certificate.not_valid_before_utc
    assert leaf.not_valid_before_utc < datetime.now(UTC) < leaf.not_valid_after_utc


@pytest.mark.parametrize("days", [1 - EARLIER_DAYS, -365, 0, 80])
def test_a_program_takes_a_leaf_by_a_clock_that_is_held(authority: Authority, days: int) -> None:
    """As faketime holds it at the time of a recording; the leaf is of today."""
    ours = x509.load_pem_x509_certificate(authority.certificate_pem)
    leaf = x509.load_pem_x509_certificate(authority.mint("demo.example"))
    moment = datetime.now(UTC) + timedelta(days=days)
    verifier = (
        PolicyBuilder().store(Store([ours])).time(moment).build_server_verifier(x509.DNSName("demo.example"))
    )
    assert verifier.verify(leaf, [])[0] == leaf


def set_clock(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """The clock that the authority reads, so many days off."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return super().now(tz) + timedelta(days=days)

    monkeypatch.setattr(ca, "datetime", Clock)


@pytest.mark.parametrize("days", [CA_DAYS + 1, 5 * CA_DAYS, -CA_DAYS - 1, -2 * CA_DAYS])
def test_an_authority_made_by_a_wrong_clock_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    with monkeypatch.context() as wrong:
        set_clock(wrong, days)
        off = Authority.load_or_create(tmp_path)
    made = off.certificate
    assert not made.not_valid_before_utc <= datetime.now(UTC) <= made.not_valid_after_utc
    again = Authority.load_or_create(tmp_path)
    assert handshake(again, "demo.example")[0]
    assert Authority.load_or_create(tmp_path).certificate == again.certificate  # once


@pytest.mark.parametrize("days", [CA_DAYS - 1, 0, RENEW_DAYS + 1 - CA_DAYS])
def test_one_that_is_good_today_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    with monkeypatch.context() as wrong:
        set_clock(wrong, days)
        made = Authority.load_or_create(tmp_path)
    assert Authority.load_or_create(tmp_path).certificate == made.certificate


@pytest.mark.parametrize("days", [EARLIER_DAYS + 1, -LEAF_DAYS])
def test_a_leaf_made_by_a_wrong_clock_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """The clock is set right while a gateway runs."""
    authority = Authority.load_or_create(tmp_path)
    with monkeypatch.context() as wrong:
        set_clock(wrong, days)
        authority.context_for("demo.example")
    assert handshake(authority, "demo.example")[0]


def test_contexts_are_kept(authority: Authority) -> None:
    assert authority.context_for("kept.example") is authority.context_for("KEPT.example.")
    assert authority.context_for("kept.example", ("h2",)) is not authority.context_for("kept.example")


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
    first, again = (trust_store_files(pem, content)[java_store(pem)] for _ in range(2))
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
