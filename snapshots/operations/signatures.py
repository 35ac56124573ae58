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
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.opening import open_container
from stillweb.snapshots.software import software_name
from stillweb.snapshots.warc.container import DIGEST, PACKAGE


@dataclass(frozen=True, slots=True)
class Signature:
    """The result of a signature check.

    `sound` is None if it can't be decided here; `words` is a line on what was checked, or what is wrong.
    """

    sound: bool | None
    words: str
    key: str = ""  # the public key that made a sound anonymous signature


def check_signature(digest: Mapping[str, Any], package_hash: str) -> Signature | None:
    """Check a digest file's signature of the package hash (`sha256:…`); None if it is not signed."""
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
        return Signature(False, "the signature is no base64")
    if isinstance(signed.get("publicKey"), str):
        return _anonymous(signed, made)
    if isinstance(signed.get("domainCert"), str):
        return _domain(signed, made)
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
        return Signature(False, "was not made with the public key beside it")
    words = "made with the public key beside it; whose key that is, is not known"
    return Signature(True, words, _public(key))


def _domain(signed: Mapping[str, Any], made: bytes) -> Signature:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec

    name = str(signed.get("domain") or "")
    try:
        certificate = x509.load_pem_x509_certificates(signed["domainCert"].encode())[0]
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
        return Signature(False, "was not made with the certificate beside it")
    if name not in names:
        return Signature(False, f"its certificate is not for {name or 'any domain'}")
    return Signature(
        True,
        f"made with the certificate for {name} beside it; not checked: who issued that (needs trusted roots) and when "
        "it was signed (needs the root of the time stamp)",
    )


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
        raise UsageError(f"{path}: is no PEM file of a private key without a passphrase") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp384r1":
        raise UsageError(f"{path}: is no P-384 key, which WACZ signatures are made with")
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
        raise UsageError(f"{path}: is no PEM file of a public key") from error


def _public(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return base64.b64encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()


def sign_digest(digest: bytes, package: bytes, key: Any) -> bytes:
    """Return datapackage-digest.json with an anonymous signature of datapackage.json, as WebCrypto makes it."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    text = "sha256:" + hashlib.sha256(package).hexdigest()
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    signed = {
        "hash": text,
        "signature": base64.b64encode(r.to_bytes(48, "big") + s.to_bytes(48, "big")).decode(),
        "publicKey": _public(key.public_key()),
        "created": json.loads(package)["created"],  # py-wacz refuses another moment than the package's
        "software": software_name(),
    }
    return json.dumps({**json.loads(digest), "signedData": signed}, indent=2).encode()


def check_signer(path: str | os.PathLike[str], keys: Collection[str]) -> str:
    """Return why a snapshot is not signed by one of `keys` (`public_key_in`); "" if it is."""
    found = signature_of(path)
    if found is None:
        return "is not signed"
    if not found.sound:
        return f"signature: {found.words}"
    return "" if found.key in keys else "is signed by somebody else"


def signature_of(path: str | os.PathLike[str]) -> Signature | None:
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
    return check_signature(value, "sha256:" + hashlib.sha256(package).hexdigest())
