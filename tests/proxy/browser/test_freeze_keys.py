"""Keys that a page makes, and what it encrypts and signs with them, are the same in each run, and are right."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.browsing import Browsing
from tests.proxy.sites import Answer, serve

PAGE = """<!DOCTYPE html><script>
const s = crypto.subtle, data = new TextEncoder().encode("three mills"), text = (b) => [...new Uint8Array(b)].join();
const rsa = (name, hash, modulusLength = 2048) => ({name, hash, modulusLength, publicExponent: new Uint8Array([1, 0, 1])});
const name = (e) => e.name, seen = {}, right = {}, refused = {};
const signs = async (label, made, how) => {
  const keys = await s.generateKey(made, false, ["sign", "verify"]), signature = await s.sign(how, keys.privateKey, data);
  seen[label] = [text(await s.exportKey("spki", keys.publicKey)), text(signature)];
  right[label] = [await s.verify(how, keys.publicKey, signature, data), keys.privateKey.extractable, keys.publicKey.extractable, ...keys.privateKey.usages];
  refused[label] = await s.exportKey("pkcs8", keys.privateKey).catch(name);
};
const all = async () => {
  for (const hash of ["SHA-256", "SHA-512"]) {
    for (const namedCurve of ["P-256", "P-384", "P-521"]) await signs(`${namedCurve} ${hash}`, {name: "ECDSA", namedCurve}, {name: "ECDSA", hash});
    await signs(`pss ${hash}`, rsa("RSA-PSS", hash), {name: "RSA-PSS", saltLength: 32});
  }
  await signs("pkcs1", rsa("RSASSA-PKCS1-v1_5", "SHA-1"), "RSASSA-PKCS1-v1_5");
  await signs("Ed25519", "Ed25519", "Ed25519");
  for (const hash of ["SHA-1", "SHA-256"]) {
    const label = new Uint8Array([1, 2]), oaep = {name: "RSA-OAEP", label}, keys = await s.generateKey(rsa("RSA-OAEP", hash), true, ["encrypt", "decrypt", "wrapKey", "unwrapKey"]);
    const sealed = await s.encrypt(oaep, keys.publicKey, data), again = await s.encrypt(oaep, keys.publicKey, data);
    const aes = await s.generateKey({name: "AES-GCM", length: 256}, true, ["encrypt"]), secret = text(await s.exportKey("raw", aes));
    const wrapped = await s.wrapKey("raw", aes, keys.publicKey, oaep), open = await s.unwrapKey("raw", wrapped, keys.privateKey, oaep, "AES-GCM", true, ["encrypt"]);
    seen[`oaep ${hash}`] = [text(sealed), text(again), text(wrapped), secret, JSON.stringify(await s.exportKey("jwk", keys.privateKey))];
    right[`oaep ${hash}`] = [text(await s.decrypt(oaep, keys.privateKey, sealed)) === text(data), text(await s.exportKey("raw", open)) === secret, text(sealed) !== text(again)];
    refused[`oaep ${hash}`] = await s.encrypt(oaep, keys.publicKey, new Uint8Array(250)).catch(name);
  }
  for (const made of [{name: "ECDH", namedCurve: "P-384"}, {name: "X25519"}]) {
    const [a, b] = [await s.generateKey(made, false, ["deriveBits"]), await s.generateKey(made, true, ["deriveBits"])];
    const [one, two] = [await s.deriveBits({...made, public: b.publicKey}, a.privateKey, 256), await s.deriveBits({...made, public: a.publicKey}, b.privateKey, 256)];
    seen[made.name] = [text(one), text(await s.exportKey("raw", a.publicKey)), text(await s.exportKey("raw", b.publicKey))];
    right[made.name] = [text(one) === text(two), seen[made.name][1] !== seen[made.name][2]];
  }
  const kept = await s.importKey("jwk", {...await s.exportKey("jwk", (await s.generateKey({name: "ECDSA", namedCurve: "P-256"}, true, ["sign"])).privateKey), ext: false},
    {name: "ECDSA", namedCurve: "P-256"}, false, ["sign"]);
  const stored = structuredClone(kept), how = {name: "ECDSA", hash: "SHA-256"};
  seen.imported = [text(await s.sign(how, kept, data)), text(await s.sign(how, stored, data))];
  refused.kept = [kept.extractable, await s.exportKey("jwk", kept).catch(name), await s.wrapKey("jwk", kept, kept, "AES-KW").catch(name)];
  refused.usage = await s.generateKey({name: "ECDSA", namedCurve: "P-256"}, true, ["encrypt"]).catch(name);
  refused.none = await s.generateKey({name: "ECDH", namedCurve: "P-256"}, true, []).catch(name);
  refused.curve = await s.generateKey({name: "ECDSA", namedCurve: "P-1"}, true, ["sign"]).catch(name);
};
all().catch((e) => { refused.page = String(e.stack); }).then(() => { window.done = true; });
</script>"""


@pytest.fixture(scope="module")
def runs(chromium: Browsing) -> Iterator[list[dict[str, Any]]]:
    """A page with every algorithm, loaded twice."""

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        return 200, {"Content-Type": "text/html"}, PAGE.encode()

    with serve(handle) as url:
        yield [
            chromium.run(chromium.look(f"{url}/", "window.done", "{seen, right, refused}")) for _ in range(2)
        ]


@pytest.mark.slow
def test_keys_ciphertexts_and_signatures_are_the_same_in_each_run(runs: list[dict[str, Any]]) -> None:
    assert "page" not in runs[0]["refused"], runs[0]["refused"]
    assert runs[0]["seen"] == runs[1]["seen"]
    whole = [value for values in runs[0]["seen"].values() for value in values]
    assert len(whole) == len(set(whole))  # each draw is another


@pytest.mark.slow
def test_the_browser_itself_verifies_and_decrypts_them(runs: list[dict[str, Any]]) -> None:
    signed = [True, False, True, "sign"]
    right = runs[0]["right"]
    assert {
        label: found for label, found in right.items() if found not in (signed, [True] * len(found))
    } == {}
    assert len(right) == 14


@pytest.mark.slow
def test_what_a_browser_refuses_is_refused(runs: list[dict[str, Any]]) -> None:
    refused = dict(runs[0]["refused"])
    assert refused.pop("kept") == [False, "InvalidAccessError", "InvalidAccessError"]
    assert [refused.pop(name) for name in ("usage", "none")] == ["SyntaxError"] * 2
    assert refused.pop("curve") == "NotSupportedError"
    assert {refused.pop(name) for name in ("oaep SHA-1", "oaep SHA-256")} == {"OperationError"}
    assert set(refused.values()) == {"InvalidAccessError"}
