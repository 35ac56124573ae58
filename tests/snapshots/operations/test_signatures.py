"""Signed WACZs: the signature is checked where it can be, and said not to be checked where it can't."""

import base64
import hashlib
import json
import subprocess
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from stillweb.snapshots import Snapshot, verify
from stillweb.snapshots.operations.signatures import certificates_in, check_signature, signature_of
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import exchange, small_snapshot
from tests.snapshots.malformed import http, packed, record
from tests.support.timestamps import issued, timestamps

KEY = ec.derive_private_key(7, ec.SECP384R1())
OTHER = ec.derive_private_key(8, ec.SECP384R1())
HASH = "sha256:" + "ab" * 32


def public(key: Any) -> str:
    der = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.b64encode(der).decode()


def signed(text: str = HASH, *, raw: bool = True, key: ec.EllipticCurvePrivateKey = KEY) -> dict[str, Any]:
    """As archiveweb.page signs (raw) and as authsign does (DER)."""
    made = key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
    if raw:
        r, s = decode_dss_signature(made)
        made = r.to_bytes(48, "big") + s.to_bytes(48, "big")
    return {"hash": text, "signature": base64.b64encode(made).decode(), "publicKey": public(KEY)}


def certificate(*names: str, key: Any = KEY) -> str:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    start = datetime(2025, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder(
        subject, subject, key.public_key(), 1, start, start + timedelta(days=30)
    ).add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
    return made.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def in_the_name_of(domain: str, pem: str, **more: Any) -> dict[str, Any]:
    plain = {n: v for n, v in signed(raw=False).items() if n != "publicKey"}
    return plain | {"domain": domain, "domainCert": pem} | more


@pytest.mark.parametrize(
    ("data", "sound", "words"),
    [
        (signed(), True, "the owner of the key is not known"),
        (signed(raw=False), True, "the owner of the key is not known"),
        (signed(key=OTHER), False, "does not fit the public key"),
        (signed("sha256:" + "cd" * 32), False, "another datapackage.json"),
        (signed() | {"signature": "%%"}, False, "not base64"),
        (signed() | {"publicKey": "AAAA"}, False, "public key can't be read"),
        (signed() | {"publicKey": public(ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32))}, None, "not checked: needs Ed25519"),
        ({"hash": HASH}, False, "no hash and signature"),
        ("text", False, "no hash and signature"),
        ({n: v for n, v in signed().items() if n != "publicKey"}, None, "not checked: needs a public key"),
        (in_the_name_of("a.test", certificate("a.test")), True, "not checked: the issuer of the certificate"),
        (in_the_name_of("b.test", certificate("a.test")), False, "not for b.test"),
        (in_the_name_of("a.test", "no certificate"), False, "can't be read"),
        (in_the_name_of("a.test", certificate("a.test", key=OTHER)), False, "does not fit the certificate"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_signature(data: Any, sound: bool | None, words: str) -> None:
    found = check_signature({"hash": HASH, "signedData": data}, HASH)
    assert found is not None
    assert found.sound is sound
    assert words in found.words


def test_without_a_signature_nothing_is_said() -> None:
    assert check_signature({"hash": HASH}, HASH) is None


def signed_wacz(path: Path, *, tampered: bool = False) -> Path:
    data = packed(record(http()))
    listed = {"name": "a.warc.gz", "path": "archive/a.warc.gz", "bytes": len(data)}
    listed["hash"] = "sha256:" + hashlib.sha256(data).hexdigest()
    package = json.dumps({"profile": "data-package", "wacz_version": "1.1.1", "resources": [listed]}).encode()
    told = "sha256:" + hashlib.sha256(package).hexdigest()
    if tampered:
        package = package.replace(b"1.1.1", b"1.0.0")
        told_now = "sha256:" + hashlib.sha256(package).hexdigest()
    else:
        told_now = told
    digest = {"path": "datapackage.json", "hash": told_now, "signedData": signed(told)}
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/a.warc.gz", data)
        out.writestr("datapackage.json", package)
        out.writestr("datapackage-digest.json", json.dumps(digest))
    return path


def test_a_signed_wacz_is_opened_and_its_signature_verified(tmp_path: Path) -> None:
    path = signed_wacz(tmp_path / "x.wacz")
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.captures())) == 1
    assert [p for p in verify(path) if p.check == "signature"] == []
    found = signature_of(path)
    assert found is not None
    assert found.sound


def test_a_package_that_was_changed_after_signing_is_found_out(tmp_path: Path) -> None:
    problems = verify(signed_wacz(tmp_path / "x.wacz", tampered=True))
    assert [p.message for p in problems if p.check == "signature"] == [
        "what was signed is another datapackage.json"
    ]


def test_a_certificate_whose_names_are_no_names_can_not_be_read() -> None:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    start = datetime(2025, 1, 1, tzinfo=UTC)
    broken = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"\x30\x05names")
    made = (
        x509.CertificateBuilder(subject, subject, KEY.public_key(), 1, start, start + timedelta(days=30))
        .add_extension(broken, critical=False)
        .sign(KEY, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM).decode()
    found = check_signature({"signedData": in_the_name_of("a.test", pem)}, HASH)
    assert found is not None
    assert (found.sound, found.words) == (False, "its certificate can't be read")


def test_a_sealed_snapshot_is_signed_and_only_its_signer_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {}
    for name, key in (("mine", KEY), ("other", OTHER)):
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (tmp_path / f"{name}.pem").write_bytes(secret)
        names[name] = tmp_path / f"{name}.pub"
        names[name].write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
    small_snapshot(tmp_path / "s")
    plain = seal(tmp_path / "s").id
    assert call(capsys, "verify", tmp_path / "s.wacz", "--signer", names["mine"])[0] == 1
    assert call(capsys, "seal", tmp_path / "s", "--sign", tmp_path / "mine.pem")[0] == 0
    with Snapshot.open(tmp_path / "s.wacz") as snapshot:
        assert snapshot.id == plain
    assert call(capsys, "verify", tmp_path / "s.wacz", "--signer", names["mine"])[0] == 0
    assert call(capsys, "verify", tmp_path / "s.wacz", "--signer", names["other"])[0] == 1
    both = ("--signer", names["other"], "--signer", names["mine"])
    assert call(capsys, "verify", tmp_path / "s.wacz", *both)[0] == 0
    assert call(capsys, "seal", tmp_path / "s", "--sign", names["mine"])[0] == 2
    with zipfile.ZipFile(tmp_path / "s.wacz") as held:
        told = json.loads(held.read("datapackage-digest.json"))["signedData"]
    assert told["publicKey"] == public(KEY)
    assert verify(tmp_path / "s.wacz") == []


def test_a_signature_in_the_name_of_a_domain_is_stamped_and_checked_under_its_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = x509.ExtendedKeyUsageOID.SERVER_AUTH
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
        issued(tmp_path / folder, "lab", usage=usage, domain="lab.test")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    small_snapshot(tmp_path / "s")
    words = ("seal", tmp_path / "s", "--sign", ours / "lab.key", "--certificate", ours / "lab.pem")
    with timestamps(ours) as url:
        assert call(capsys, *words)[0] == 2  # without a time stamp
        assert call(capsys, "seal", tmp_path / "s", "--sign", ours / "lab.key", "--timestamp", url)[0] == 2
        other = (*words[:-1], theirs / "lab.pem")
        assert call(capsys, *other, "--timestamp", url)[0] == 2  # the certificate of another key
        assert call(capsys, *words, "--timestamp", url)[0] == 0
    sealed = tmp_path / "s.wacz"
    code, out = call(capsys, "verify", sealed, "--authority", ours / "root.pem")
    assert code == 0
    assert "lab.test" in out
    assert "not checked" in out  # what `verify` says of itself names no authority
    assert call(capsys, "verify", sealed, "--authority", theirs / "root.pem")[0] == 1
    before = sealed.read_bytes()
    assert call(capsys, *words, "--timestamp", "http://127.0.0.1:9/")[0] == 4
    assert sealed.read_bytes() == before
    with zipfile.ZipFile(sealed) as held:
        package = held.read("datapackage.json")
        told = json.loads(held.read("datapackage-digest.json"))["signedData"]
    digest = "sha256:" + hashlib.sha256(package).hexdigest()
    roots = certificates_in((ours / "root.pem").read_text())
    found = check_signature({"signedData": told}, digest, roots)
    assert found is not None
    assert (found.sound, found.stamped, "not checked" in found.words) == (True, True, False)
    stamped = told["timeSignature"]
    for wrong, words_ in (
        (stamped[:-8] + "AAAAAAA=", ""),
        ("AAAA", "can't be read"),
        ("MAMwAQ==", "can't be read"),
    ):
        bad = check_signature({"signedData": told | {"timeSignature": wrong}}, digest, roots)
        assert bad is not None
        assert bad.sound is False
        assert words_ in bad.words
    moved = signed(digest, raw=False)["signature"]
    bad = check_signature({"signedData": told | {"signature": moved}}, digest, roots)
    assert bad is not None
    assert bad.sound is False


# py-wacz trusts the authorities of the public web; the tests' own takes their place.
VERIFY_AUTH = """
import sys, authsign.verifier
authsign.verifier.DEFAULT_TRUSTED_ROOTS = sys.argv.pop(1)
from wacz.main import main
sys.exit(main(sys.argv[1:]))"""


@pytest.mark.slow
def test_a_stamped_snapshot_is_verified_by_py_wacz(tmp_path: Path) -> None:
    python = Path(__file__).resolve().parents[3] / ".venv-peers/bin/python"
    if not python.exists():
        pytest.skip("no .venv-peers: ./setup.sh --peers makes it")
    issued(tmp_path, "lab.test", usage=x509.ExtendedKeyUsageOID.SERVER_AUTH, domain="lab.test")
    issued(tmp_path, "other")
    chain = tmp_path / "chain.pem"
    chain.write_bytes((tmp_path / "lab.test.pem").read_bytes() + (tmp_path / "root.pem").read_bytes())
    with Writer.open(tmp_path / "s") as writer:  # authsign wants the stamp to follow within ten minutes
        writer.exchange(
            replace(exchange("http://a.test/", b"<p>x</p>"), started=datetime.now(UTC) - timedelta(minutes=1))
        )
    with timestamps(tmp_path) as url:
        seal(tmp_path / "s", sign=tmp_path / "lab.test.key", certificate=chain, timestamp=url)
    for name, sound in (("root", True), ("other", False)):
        mark = x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes()).fingerprint(
            hashes.SHA256()
        )
        roots = {key: [mark.hex()] for key in ("domain_cert_roots", "timestamp_cert_roots")}
        (tmp_path / "roots.yaml").write_text(json.dumps(roots))
        words = [
            python,
            "-c",
            VERIFY_AUTH,
            tmp_path / "roots.yaml",
            "validate",
            "--verify-auth",
            "-f",
            tmp_path / "s.wacz",
        ]
        done = subprocess.run(words, capture_output=True, text=True)
        assert ("Successfully verified signature" in done.stdout, done.returncode == 0) == (sound, sound), (
            done.stdout + done.stderr
        )
