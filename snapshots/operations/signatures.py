"""The signature in a WACZ's datapackage-digest.json.

It is specified at https://specs.webrecorder.net/wacz-auth/0.1.0/

The signed text is the hash of datapackage.json; the algorithm is ECDSA with SHA-256. An anonymous signature
comes with its public key; a signature in the name of a domain comes with the domain's certificates and a time
stamp. The check needs no network and no trust: it proves that the enclosed key made the signature, but not
whose key it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.extras import require
from stillweb.snapshots.opening import open_container
from stillweb.snapshots.software import software_name
from stillweb.snapshots.warc.container import DIGEST, PACKAGE

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Signature:
    """The result of a signature check.

    `sound` is None if it can't be decided here; `words` is a line on what was checked, or what is wrong.
    """

    sound: bool | None
    words: str
    key: str = ""  # the public key that made a sound signature
    stamped: bool = False  # True with a certificate and a time stamp


def check_signature(
    digest: Mapping[str, Any], package_hash: str, authorities: Sequence[Any] = ()
) -> Signature | None:
    """Check a digest file's signature of the package hash (`sha256:…`); None if it is not signed.

    `authorities` are root certificates (`certificates_in`) that may issue certificates and time stamps.
    """
    signed = digest.get("signedData")
    if signed is None:
        return None
    if not isinstance(signed, Mapping) or not all(
        isinstance(signed.get(n), str) for n in ("hash", "signature")
    ):
        return Signature(False, "signedData has no hash and signature")
    if signed["hash"] != package_hash:
        return Signature(False, "what was signed is another datapackage.json")
    try:
        made = base64.b64decode(signed["signature"], validate=True)
    except (binascii.Error, ValueError):
        return Signature(False, "the signature is not base64")
    if isinstance(signed.get("publicKey"), str):
        return _anonymous(signed, made)
    if isinstance(signed.get("domainCert"), str):
        return _domain(signed, made, authorities)
    return Signature(None, "not checked: needs a public key or a domain's certificates, and there are none")


def _anonymous(signed: Mapping[str, Any], made: bytes) -> Signature:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        key = load_der_public_key(base64.b64decode(signed["publicKey"], validate=True))
    except (ValueError, UnsupportedAlgorithm):
        return Signature(False, "its public key can't be read")
    found = _made_by(key, made, signed["hash"])
    if found is None:
        return Signature(
            None, f"not checked: needs {type(key).__name__}, which the specification does not have"
        )
    if not found:
        return Signature(False, "does not fit the public key beside it")
    words = "made with the public key beside it; the owner of the key is not known"
    return Signature(True, words, _public(key))


def _domain(signed: Mapping[str, Any], made: bytes, authorities: Sequence[Any]) -> Signature:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec

    name = str(signed.get("domain") or "")
    try:
        chain = x509.load_pem_x509_certificates(signed["domainCert"].encode())
        certificate = chain[0]
        key = certificate.public_key()
        names = [
            str(host)
            for extension in certificate.extensions
            if isinstance(extension.value, x509.SubjectAlternativeName)
            for host in extension.value.get_values_for_type(x509.DNSName)
        ]
    except (ValueError, IndexError, UnsupportedAlgorithm, x509.DuplicateExtension):
        return Signature(False, "its certificate can't be read")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return Signature(
            None, f"not checked: needs {type(key).__name__}, which the specification does not have"
        )
    if not _made_by(key, made, signed["hash"]):
        return Signature(False, "does not fit the certificate beside it")
    if name not in names:
        return Signature(False, f"its certificate is not for {name or 'any domain'}")
    whose = _public(key)
    if not isinstance(signed.get("timeSignature"), str):
        unchecked = (
            "the issuer of the certificate (needs trusted roots) and the time of signing (needs a time stamp)"
        )
        return Signature(
            True, f"made with the certificate for {name} beside it; not checked: {unchecked}", whose
        )
    try:
        moment = _stamped(signed, authorities)
        if authorities:
            _issued(chain, name, moment, authorities)
    except ValueError as error:
        return Signature(False, str(error))
    words = f"made with the certificate for {name} beside it, stamped {moment:%Y-%m-%dT%H:%M:%SZ}"
    if not authorities:
        words += "; not checked: who issued certificate and time stamp (verify --authority)"
    return Signature(True, words, whose, stamped=True)


def _stamped(signed: Mapping[str, Any], authorities: Sequence[Any]) -> datetime:
    """Return the moment of a signature's time stamp (RFC 3161). Raise ValueError if it is of something else."""
    client = require("rfc3161_client")
    try:
        data = base64.b64decode(signed["timeSignature"], validate=True)
        stamp = client.decode_timestamp_response(_in_order(data))
        info = stamp.tst_info
    except (ValueError, binascii.Error) as error:
        raise ValueError("its time stamp can't be read") from error
    if info.message_imprint.message != hashlib.sha256(signed["signature"].encode()).digest():
        raise ValueError("its time stamp is of another signature")
    if authorities:
        builder = client.VerifierBuilder(roots=list(authorities))
        for certificate in certificates_in(str(signed.get("timestampCert") or "")):
            builder = builder.add_intermediate_certificate(certificate)
        try:
            builder.build().verify_message(stamp, signed["signature"].encode())
        except client.VerificationError as error:
            raise ValueError(
                f"its time stamp was issued by none of the named authorities: {error}"
            ) from error
    moment: datetime = info.gen_time
    return moment


def _issued(chain: Sequence[Any], name: str, moment: datetime, authorities: Sequence[Any]) -> None:
    """Raise ValueError unless an authority issued a domain's certificate, valid at `moment`."""
    from cryptography import x509
    from cryptography.x509 import verification

    builder = verification.PolicyBuilder().store(verification.Store(list(authorities))).time(moment)
    try:
        builder.build_server_verifier(x509.DNSName(name)).verify(chain[0], list(chain[1:]))
    except verification.VerificationError as error:
        raise ValueError(f"its certificate was issued by none of the named authorities: {error}") from error


def _made_by(key: Any, made: bytes, text: str) -> bool | None:
    """Return True if the key made the signature; None if it is no EC key.

    The signature is r and s concatenated (WebCrypto) or DER.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    if not isinstance(key, ec.EllipticCurvePublicKey):
        return None
    size = (key.curve.key_size + 7) // 8
    forms = [made]
    if len(made) == 2 * size:
        forms.append(
            encode_dss_signature(int.from_bytes(made[:size], "big"), int.from_bytes(made[size:], "big"))
        )
    for form in forms:
        try:
            key.verify(form, text.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            continue
        return True
    return False


def signing_key(path: str | os.PathLike[str]) -> Any:
    """Return the P-384 private key in a PEM file. Raises UsageError.

    `openssl ecparam -name secp384r1 -genkey -noout -out key.pem` makes one.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(Path(path).read_bytes(), None)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path}: is not a PEM file of a private key without a passphrase") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp384r1":
        raise UsageError(f"{path}: is not a P-384 key, which WACZ signatures are made with")
    return key


def public_key_in(path: str | os.PathLike[str]) -> str:
    """Return the public key in a PEM file as `publicKey` of a signature holds it. Raises UsageError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        return _public(load_pem_public_key(Path(path).read_bytes()))
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path}: is not a PEM file of a public key") from error


def _public(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return base64.b64encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()


@dataclass(frozen=True, slots=True)
class Signer:
    """A P-384 key that signs; with a domain's certificates in PEM, and the URL of a time-stamp authority."""

    key: Any
    certificates: str = ""
    authority: str = ""

    @classmethod
    def of(cls, key: StrPath, certificates: StrPath | None = None, authority: str | None = None) -> Signer:
        """Read the files. Raises UsageError, also for a certificate of another key."""
        private = signing_key(key)
        if (certificates is None) != (authority is None):
            raise UsageError(
                f"{key}: a certificate needs a time stamp, and a time stamp a certificate (WACZ-auth)"
            )
        if certificates is None or authority is None:
            return cls(private)
        text = Path(certificates).read_text(encoding="ascii", errors="replace")
        found = certificates_in(text, str(certificates))
        if not found or _public(found[0].public_key()) != _public(private.public_key()):
            raise UsageError(f"{certificates}: the first certificate is not for the key {key}")
        return cls(private, text, authority)

    def sign(self, digest: bytes, package: bytes) -> bytes:
        """Return datapackage-digest.json with a signature of datapackage.json. Raises MissingCapability."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        text = "sha256:" + hashlib.sha256(package).hexdigest()
        made = self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        about: dict[str, str]
        if self.certificates:  # DER, as authsign makes it
            signature = base64.b64encode(made).decode()
            first = certificates_in(self.certificates)[0]
            names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            about = {
                "domain": names.get_values_for_type(x509.DNSName)[0],
                "domainCert": self.certificates,
                **self._stamp(signature),
            }
        else:  # r and s, as WebCrypto makes it
            r, s = decode_dss_signature(made)
            signature = base64.b64encode(r.to_bytes(48, "big") + s.to_bytes(48, "big")).decode()
            about = {"publicKey": _public(self.key.public_key())}
        signed = {
            "hash": text,
            "signature": signature,
            **about,
            "created": json.loads(package)["created"],  # py-wacz refuses another moment than the package's
            "software": software_name(),
        }
        return json.dumps({**json.loads(digest), "signedData": signed}, indent=2).encode()

    def _stamp(self, signature: str) -> dict[str, str]:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        client = require("rfc3161_client")
        asked = client.TimestampRequestBuilder(
            data=signature.encode(), hash_algorithm=client.HashAlgorithm.SHA256
        ).build()
        request = urllib.request.Request(
            self.authority, asked.as_bytes(), {"Content-Type": "application/timestamp-query"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                data = answer.read()
            stamp = client.decode_timestamp_response(_in_order(data))
            if stamp.tst_info.nonce != asked.nonce:
                raise ValueError("it answered another request")
            held = [x509.load_der_x509_certificate(one) for one in stamp.signed_data.certificates]
        except (OSError, ValueError) as error:
            raise MissingCapability(
                f"{self.authority}: gave no time stamp: {error}. Nothing was sealed."
            ) from error
        pem = b"".join(one.public_bytes(Encoding.PEM) for one in _from_leaf(held)).decode()
        return {"timeSignature": base64.b64encode(data).decode(), "timestampCert": pem}


def _in_order(reply: bytes) -> bytes:
    """Return a time-stamp reply with its certificates in the order of DER (X.690, 11.6).

    OpenSSL sends them in another (freetsa.org, say), which rfc3161-client refuses. No signature covers their order.
    Raises ValueError for a reply that is no DER.
    """

    def inside(start: int) -> list[tuple[int, int]]:
        """Return start and end of each element within the element at `start`."""
        at, end = body(start)
        found = []
        while at < end:
            found.append((at, body(at)[1]))
            at = found[-1][1]
        return found

    def body(start: int) -> tuple[int, int]:
        length, at = reply[start + 1], start + 2
        if length & 0x80:
            at += length & 0x7F
            length = int.from_bytes(reply[start + 2 : at], "big")
        return at, at + length

    try:
        token = inside(0)[1][0]
        signed_data = inside(inside(token)[1][0])[0][0]
        for start, end in inside(signed_data):
            if reply[start] == 0xA0:  # certificates [0] (RFC 5652, 5.1)
                held = sorted(reply[a:b] for a, b in inside(start))
                return reply[: body(start)[0]] + b"".join(held) + reply[end:]
    except IndexError as error:
        raise ValueError("it is not a time-stamp reply in DER") from error
    return reply


def _from_leaf(held: Sequence[Any]) -> list[Any]:
    """Return certificates each before its issuer, as authsign wants them."""
    issuers = {one.issuer for one in held if one.issuer != one.subject}
    chain = [one for one in held if one.subject not in issuers]
    while above := [one for one in held if chain and one.subject == chain[-1].issuer and one not in chain]:
        chain.append(above[0])
    return [*chain, *(one for one in held if one not in chain)]


def certificates_in(text: str, where: str = "") -> list[Any]:
    """Return the certificates in a PEM text. Raises UsageError that names `where`, ValueError without it."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(text.encode()) if text else []
    except ValueError as error:
        if not where:
            raise
        raise UsageError(f"{where}: is not a PEM file of certificates") from error


def check_signer(path: StrPath, keys: Collection[str] = (), authorities: Sequence[Any] = ()) -> str:
    """Return why a snapshot is not signed by one of `keys`, or under one of `authorities`; "" if it is.

    `keys` are of `public_key_in`, `authorities` of `certificates_in`. With both, both must hold.
    """
    found = signature_of(path, authorities)
    if found is None:
        return "is not signed"
    if not found.sound:
        return f"signature: {found.words}"
    if authorities and not found.stamped:
        return "is signed without a certificate and time stamp"
    return "" if not keys or found.key in keys else "is signed with another key"


def signature_of(path: StrPath, authorities: Sequence[Any] = ()) -> Signature | None:
    """Check the signature of a foreign WACZ; return None if it has none.

    Raises UsageError and DamagedInput.
    """
    container = open_container(path)
    try:
        digest, package = container.member(DIGEST), container.member(PACKAGE)
        value = json.loads(digest) if digest is not None else None
    except (ValueError, RecursionError, TooLarge):
        return None  # `verify` reports the damage
    finally:
        container.close()
    if not isinstance(value, dict) or package is None:
        return None
    return check_signature(value, "sha256:" + hashlib.sha256(package).hexdigest(), authorities)
