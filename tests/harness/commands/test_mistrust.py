"""Advice where a certificate was not taken."""

import pytest

from stillweb.harness.commands.record import advice

EXPIRED = "Certificate verify failed: certificate has expired"
MISNAMED = "Certificate verify failed: hostname mismatch"
STRANGE = "Certificate verify failed: self-signed certificate"


@pytest.mark.parametrize(
    ("reasons", "trust"),
    [([EXPIRED], False), ([MISNAMED], False), ([STRANGE], True), ([EXPIRED, STRANGE], True)],
)
def test_to_trust_an_authority_is_advised_where_that_helps(reasons: list[str], trust: bool) -> None:
    (line,) = advice(reasons)
    assert ("--ca-file FILE" in line) is trust
    assert "--insecure" in line


def test_a_client_that_mistrusts_us_is_another_matter() -> None:
    assert advice(["no route to host"]) == []
    (line,) = advice(["TLS with the client failed: certificate unknown"])
    assert "What a client must be told" in line


def test_an_origin_that_wants_a_certificate_is_trusted_already() -> None:
    asked = "server closed connection: it asked for a client certificate. Name one with --client-cert"
    assert advice([asked]) == []
