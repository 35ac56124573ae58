"""Secrets are found by their name in every syntax, and what only looks like one stays; many strings are sought at once."""

import json
import re
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets import detect
from stillweb.snapshots.secrets.detect import Literals
from stillweb.snapshots.secrets.redact import PREFIX, Redactor

LETTERS = st.binary(min_size=1, max_size=4).map(lambda b: bytes(97 + c % 3 for c in b))


@hypothesis.given(st.lists(LETTERS, min_size=1, max_size=12), st.lists(LETTERS, max_size=40).map(b"".join))
def test_same_as_searching(strings: list[bytes], text: bytes) -> None:
    sought = Literals(strings)
    expected = {(s, at) for s in strings for at in range(len(text)) if text.startswith(s, at)}
    assert set(sought.places(text)) == expected


def test_strings_that_overlap_are_all_found() -> None:
    found = Literals([b"API_KEY", b"PI_K", b"KEYS"]).places(b"my API_KEYS")
    assert sorted(found) == [(b"API_KEY", 3), (b"KEYS", 7), (b"PI_K", 4)]


def test_order_and_places_in_long_texts_with_few_and_with_many() -> None:
    strings = [b"key", b"eyes", b"token", b"\xff\xfe\xfd\xfc!", b"AKIA", b"AIza"]
    for count in (1, 3, 200):
        text = b"".join(b"x" * (7 * n) + b"a keyes \xff\xfe\xfd\xfc! AKIAIza token" for n in range(count))
        expected = sorted((at + len(s), -len(s), s, at) for s in strings for at in _all(text, s))
        assert Literals(strings).places(text) == [(s, at) for _, _, s, at in expected]


def _all(text: bytes, string: bytes) -> list[int]:
    found, at = [], text.find(string)
    while at >= 0:
        found.append(at)
        at = text.find(string, at + 1)
    return found


def sent(body: bytes, media: str = "application/json", url: str = "http://a.test/") -> bytes:
    """Return a request's body as the recorder would store it."""
    headers = (("Content-Type", media),)
    clean = Redactor(b"k" * 32).request(Request("POST", url, headers, body))
    return clean.url.encode() + b" " + clean.body


def given(body: bytes, media: str = "application/json") -> bytes:
    """Return an answer's body as the recorder would store it."""
    return Redactor(b"k" * 32).response(Response(200, "OK", (("Content-Type", media),), body)).body


WORD = "violin-Tiger42"
DRAWN = "q7Xf29LmZ4tRb81KcW0vYd6N"  # in no known format


@pytest.mark.parametrize("depth", range(4))
def test_a_password_in_strings_of_json_keeps_them_readable(depth: int) -> None:
    text = json.dumps({"user": 'b"o\\b', "password": WORD + '"\\', "n": 1})
    for _ in range(depth):
        text = json.dumps({"arguments": text})
    stored = json.loads(sent(text.encode()).partition(b" ")[2])
    for _ in range(depth):
        stored = json.loads(stored["arguments"])
    assert stored["password"].startswith(PREFIX)
    assert (stored["user"], stored["n"]) == ('b"o\\b', 1)


@pytest.mark.parametrize(
    "body",
    [
        '<s:Body><l:Login><l:Password xsi:type="xsd:string">{}</l:Password></l:Login></s:Body>',
        '<Login Password="{}"/>',
        "<member><name>password</name><value><string>{}</string></value></member>",
        '<param name="password" value="{}"/>',
        'mutation {{ login(user: "bob", password: "{}") {{ id }} }}',
        '{{"query": "mutation {{ login(password: \\"{}\\") {{ id }} }}"}}',
        '[{{"name": "password", "value": "{}"}}]',
        '[{{"value": "{}", "type": "text", "name": "password"}}]',
        '[["user", "bob"], ["password", "{}"]]',
        '{{"recoveryCode": "{}", "countryCode": "de"}}',
        '{{"wallet": {{"seed_phrase": "{}"}}}}',
        "<card><cvc>{}</cvc></card>",
        '{{"argv": ["agent", "--password", "{}", "-v"]}}',
        '{{"argv": ["agent", "--password={}"]}}',
        '{{"html": "<i data-props=\'&quot;password&quot;:&quot;{}&quot;\'>"}}',
        "payload=%7B%22password%22%3A%22{}%22%7D",
        "Kennwort={}",
        '{{"password": ["{}"]}}',
        '{{"password": {{"type": "plain", "value": "{}"}}}}',
        '{{"password": [{{"value": "{}"}}]}}',
        'mutation {{ login(password: """{}""") {{ id }} }}',
        '{{"query": "mutation {{ login(password: \\"\\"\\"{}\\"\\"\\") }}"}}',
        "user%5Bpassword%5D={}",
        'a:2:{{s:4:"user";s:3:"bob";s:8:"password";s:14:"{}";}}',
    ],
)
@pytest.mark.parametrize("media", ["application/json", "text/plain"])
def test_a_password_is_found_in_every_syntax(body: str, media: str) -> None:
    stored = sent(body.format(WORD).encode(), media)
    assert WORD.encode() not in stored
    assert stored.count(PREFIX.encode()) == 1


def test_every_password_of_a_list_is_found() -> None:
    body = json.dumps({"passwords": [WORD, "tea4two4all"], "tags": ["a", "b"]}).encode()
    stored = json.loads(sent(body).partition(b" ")[2])
    assert [value[: len(PREFIX)] for value in stored["passwords"]] == [PREFIX, PREFIX]
    assert stored["tags"] == ["a", "b"]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("place", ["request", "part of a form", "answer"])
def test_a_column_of_passwords_is_found_in_a_table(mark: str, place: str) -> None:
    rows = [
        ["user", "password", "city"],
        ["ann", WORD, "Ulm"],
        ['"b, o; b\nb"', '"a""b""c4"', ""],
        ["", "short1", "x"],
    ]
    body = "".join(mark.join(row) + "\r\n" for row in rows)
    redactor = Redactor(b"k" * 32)
    if place == "answer":
        answer = Response(200, "OK", (("Content-Type", "text/plain"),), body.encode())
        stored = redactor.response(answer).body.decode()
    else:
        before = '--B\r\nContent-Disposition: form-data; name="f"; filename="a.csv"\r\n\r\n'
        after, media = "\r\n--B--\r\n", "multipart/form-data; boundary=B"
        if place == "request":
            before, after, media = "", "", "text/csv"
        request = Request(
            "POST", "http://a.test/", (("Content-Type", media),), (before + body + after).encode()
        )
        stored = redactor.request(request).body.decode().removeprefix(before).removesuffix(after)
    for row, secret in zip(rows[1:], (WORD, 'a"b"c4', "short1"), strict=True):
        row[1] = redactor.pseudonym(secret)
    assert stored == "".join(mark.join(row) + "\r\n" for row in rows)


@pytest.mark.parametrize("depth", range(3))
def test_a_number_that_is_a_password_becomes_a_text(depth: int) -> None:
    text = json.dumps({"user": "bob", "passcode": -8.392e-30, "n": 482, "cvc": 482}, indent=1)
    for _ in range(depth):
        text = json.dumps({"arguments": text})
    stored = json.loads(sent(text.encode()).partition(b" ")[2])
    for _ in range(depth):
        stored = json.loads(stored["arguments"])
    assert stored["passcode"].startswith(PREFIX)
    assert stored["cvc"].startswith(PREFIX)
    assert (stored["user"], stored["n"]) == ("bob", 482)


@pytest.mark.parametrize("first", ["query", "variables"])
def test_a_variable_of_graphql_is_judged_by_the_argument_that_it_gives(first: str) -> None:
    body: dict[str, object] = {
        "query": "mutation ($u: String!, $p: String!) { login(user: $u, password: $p) { id } }",
        "variables": {"u": "bob1234567", "p": WORD},
    }
    body = {first: body.pop(first), **body}
    stored = json.loads(sent(json.dumps(body).encode()).partition(b" ")[2])
    assert stored["variables"]["p"].startswith(PREFIX)
    assert stored == body | {"variables": {"u": "bob1234567", "p": stored["variables"]["p"]}}


@pytest.mark.parametrize("name", ["sig", "X-Amz-Signature", "X-Goog-Signature", "Signature", "key", "code"])
@pytest.mark.parametrize(
    "page",
    [
        '<img src="/i.png?w=1&amp;{}">',
        "<img src=/i.png?{}&w=1>",
        '{{"url": "https:\\/\\/a.test\\/i.png?w=1\\u0026{}"}}',
        "i {{ background: url(https://b.test/i.png?{}) }}",
        '<a href="?{}#top">',
    ],
)
def test_an_address_in_an_answer_has_the_pseudonym_of_its_request(name: str, page: str) -> None:
    redactor = Redactor(b"k" * 32)
    stored = redactor.response(
        Response(200, "OK", (("Content-Type", "text/html"),), page.format(f"{name}={DRAWN}%3D").encode())
    ).body
    asked = redactor.url(f"https://a.test/i.png?{name}={DRAWN}%3D").partition("?")[2]
    assert PREFIX in asked
    assert stored == page.format(asked).encode()


@pytest.mark.parametrize(
    "code", ["return t?key={0}.sig:e.code={0}", "a&&sig={0}", "let sig={0};", "x/y; t&code={0}", "i.key={0}"]
)
def test_code_that_looks_like_an_address_stays_as_it_is(code: str) -> None:
    assert given(code.format(DRAWN).encode(), "text/javascript") == code.format(DRAWN).encode()


def test_what_a_schema_says_of_a_password_is_none() -> None:
    body = json.dumps(
        {
            "properties": {"password": {"type": "string", "minLength": 8}},
            "required": ["password", "user", "age"],
        }
    ).encode()
    assert sent(body).partition(b" ")[2] == body


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/yaml", "user: bob\npassword: {}\n"),
        ("application/yaml", "user: bob\npasscode: 83920471\npassword: {}\n"),
        ("application/x-yaml", 'password: "{}"\n'),
        ("application/toml", 'password = "{}"\n'),
        (
            "multipart/form-data; boundary=B",
            "--B\r\nContent-Disposition: form-data; name*=utf-8''password\r\n\r\n{}\r\n--B--\r\n",
        ),
    ],
)
def test_a_password_is_found_in_every_kind_of_text(media: str, body: str) -> None:
    stored = sent(body.format(WORD).encode(), media)
    assert WORD.encode() not in stored
    assert b"83920471" not in stored
    assert PREFIX.encode() in stored


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Custom", "Bearer {}"),
        ("X-Custom", "apikey {}"),
        ("Sec-WebSocket-Protocol", "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{}"),
        ("Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key.{}"),
        ("Sec-WebSocket-Protocol", "graphql-transport-ws, v12.stomp,actioncable-v1-json, {}"),
    ],
)
def test_credentials_are_found_in_any_field(name: str, value: str) -> None:
    redactor = Redactor(b"k" * 32)
    ((_, stored),) = redactor.headers(((name, value.format(DRAWN)),))
    assert stored == value.format(redactor.pseudonym(DRAWN))


@pytest.mark.parametrize(
    "name", ["пароль", "Пароль", "my_密码", "contraseña", "LÖSENORD", "hasło", "パスワード", "user_pw"]
)
@pytest.mark.parametrize("depth", range(3))
@pytest.mark.parametrize("escaped", [True, False])
def test_a_password_in_any_language_whether_its_name_is_escaped(name: str, depth: int, escaped: bool) -> None:
    text = json.dumps({name: WORD}, ensure_ascii=escaped)
    for _ in range(depth):
        text = json.dumps({"arguments": text}, ensure_ascii=escaped)
    stored = sent(text.encode())
    assert WORD.encode() not in stored
    assert PREFIX.encode() in stored


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("http://a.test/x?key={}", True),
        ("http://a.test/x?ticket={}", True),
        ("http://a.test/x?sas={}", True),
        ("http://a.test/invite/{}", True),
        ("http://a.test/invites/{}/rules", False),
        ("http://a.test/magic-link/{}", True),
        ("http://a.test/verify-email/{}?next=1", True),
        ("http://a.test/confirmed/{}", False),
        ("http://a.test/x?appid={}", True),
        ("http://a.test/x?appkey={}", True),
        ("http://a.test/x?queryKey={}", False),
        ("http://a.test/x?pw={}", True),
        ("http://a.test/callback?state=1&code={}", True),
        ("http://a.test/x?code=import%20{}", False),  # a program
        ("http://a.test/x?country_code={}", False),
        ("http://a.test/x?next=%2Fin%3Ftoken%3D{}", True),
        ("http://a.test/bot1234567890:AA{}abcdefghijk/getMe", True),
        ("https://hooks.slack.com/services/T01ABCDEF/B01ABCDEF/{}", True),
        ("http://a.test/api/webhooks/123456789012345678/{}", True),
        ("https://mainnet.infura.io/v3/{}wZ83kQmB", True),
        ("https://eth-mainnet.g.alchemy.com/v2/{}", True),
        ("http://{}@a.test/", True),
        ("http://a.test/static/{}/main.js", False),
        ("http://a.test/x?id={}&sort_key={}", False),
        ("http://a.test/x?pageToken={}", False),
        ("http://a.test/x?cacheKey={}", False),
    ],
)
def test_keys_in_addresses(url: str, secret: bool) -> None:
    stored = Redactor(b"k" * 32).url(url.replace("{}", DRAWN))
    assert (DRAWN not in stored) is secret
    assert (PREFIX in stored) is secret


@pytest.mark.parametrize(
    ("body", "secret"),
    [
        ('{{"token": "{}"}}', True),
        ('{{"session": {{"client_secret": "{}"}}}}', True),
        ("<Credentials><SecretAccessKey>{}</SecretAccessKey></Credentials>", True),
        ('{{"nextPageToken": "{}"}}', False),
        ('{{"publicKey": "{}"}}', False),
        ('{{"key": "{}"}}', False),  # what a record is called
        ('{{"csrf_token": "{}"}}', False),
    ],
)
def test_what_a_server_hands_out(body: str, secret: bool) -> None:
    assert (DRAWN.encode() not in given(body.format(DRAWN).encode())) is secret


@pytest.mark.parametrize(
    "said", ["must be longer", "Passwort", "/reset", "********", "{{password}}", "string"]
)
def test_what_a_server_says_of_passwords_is_none(said: str) -> None:
    body = json.dumps({"error": {"password": said}}).encode()
    assert given(body) == body


@pytest.mark.parametrize("name", ["msgpack", "msgpack's bytes", "cbor", "cbor's bytes", "bson"])
@pytest.mark.parametrize("word", [WORD, "a-word-of-more-than-31-letters-" + WORD, "word" * 80 + WORD])
def test_a_password_is_found_in_a_message_with_lengths(name: str, word: str) -> None:
    size = len(word)
    wide = bytes((size,)) if size < 256 else size.to_bytes(2)
    if name == "bson":
        before = b"\x2f\1\0\0\2user\0\4\0\0\0bob\0\2password\0" + (size + 1).to_bytes(4, "little")
        after = b"\0\x10n\0\1\0\0\0\0"
    elif name[0] == "m":
        texts = name == "msgpack"
        long = (0xD9 if texts else 0xC4) + (size > 255)
        head = bytes((0xA0 + size,)) if size < 32 and texts else bytes((long,)) + wide
        before, after = b"\x82\xa8password" + head, b"\xa1n\x01"
    else:
        kind = 0x60 if name == "cbor" else 0x40
        head = bytes((kind + size,)) if size < 24 else bytes((kind + 0x18 + (size > 255),)) + wide
        before, after = b"\xa2hpassword" + head, b"an\x01"
    stored = sent(before + word.encode() + after, "application/octet-stream").partition(b" ")[2]
    assert stored.startswith(before + PREFIX.encode())
    assert stored.endswith(after)


@pytest.mark.parametrize("field", range(1, 5))
@pytest.mark.parametrize("size", [43, 48, 65, 95, 97, 122, 300])
def test_a_key_is_found_after_its_length_in_protobuf(field: int, size: int) -> None:
    key = "sk-" + "or-v1-" + "0123456789abcdef" * 4
    said = (key + " " * size)[: max(size, len(key))]
    length = bytes([len(said) & 127 | 128, len(said) >> 7]) if len(said) > 127 else bytes([len(said)])
    message = b"\x08\x01" + bytes([field << 3 | 2]) + length + said.encode()
    for stored in (given(message, "application/x-protobuf"), sent(message, "application/grpc-web+proto")):
        assert key.encode() not in stored


@pytest.mark.parametrize(
    ("field", "kept"),
    [
        ('{{"headers": {{"Set-Cookie": "lang=en; sid={}"}}}}', True),  # its attributes are no cookies
        ('{{"headers": {{"set-cookie": ["sid={}; Path=/", "lang=en"]}}}}', False),
        ('{{"content": [{{"text": "{{\\"set-cookie\\": \\"sid={}; Path=/\\"}}"}}]}}', False),
        ("HTTP/1.1 200 OK\nSet-Cookie: sid={}; Path=/\n", False),
        ("HTTP/1.1 200 OK\nSet-Cookie: sid=early-years-2026; Version={}\n", True),
    ],
)
def test_cookies_are_found_among_header_fields_in_an_answer(field: str, kept: bool) -> None:
    assert (DRAWN.encode() in given(field.format(DRAWN).encode(), "application/json")) is kept


def test_cookies_that_a_client_sends_on_are_found() -> None:
    stored = sent(f'{{"headers": {{"Cookie": "lang=en; sid={DRAWN}; auth={DRAWN[::-1]}"}}}}'.encode())
    assert b'"lang=en; sid=' in stored
    assert not any(one.encode() in stored for one in (DRAWN, DRAWN[::-1]))


@pytest.mark.parametrize("name", ["Location", "Content-Location"])
def test_a_redirect_has_the_pseudonym_of_the_path_that_it_leads_to(name: str) -> None:
    redactor = Redactor(b"k" * 32)
    ((_, stored),) = redactor.headers(((name, f"/magic-link/{DRAWN}"),))
    assert f"http://a.test{stored}" == redactor.url(f"http://a.test/magic-link/{DRAWN}")
    assert DRAWN not in stored


BOT = "NDg2" + DRAWN[:20] + ".Gh1jK2." + DRAWN + DRAWN
OKTA = "00" + (DRAWN + DRAWN)[:40]
OLD_BASE = "key" + "0" + DRAWN[:13]
BASE = "pat" + DRAWN[:14] + "." + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("the bot's is {}.", BOT),
        ('{{"value": "{}"}}', OKTA),
        ("Authorization: SSWS {}", OKTA),
        ("<code>{}</code>", BASE),
        ("Airtable.configure({{}}, '{}')", OLD_BASE),
        ('{{"service": "airtable", "value": "{}"}}', OLD_BASE),
        ("machine a.test login me password {}\n", WORD),
        ("machine a.test\n  login me\n  password {}\n", WORD),
        ("default login me password {}", WORD),
        ("curl -sS -u me:{} https://a.test/", WORD),
        ("curl https://a.test/ \\\n  --user 'me:{}'", WORD),
        ('["curl", "-u", "me:{}"]', WORD),
        ("CREATE USER me IDENTIFIED BY '{}';", WORD),
        ("create user me identified with sha256_password by '{}'", WORD),
        ("ALTER ROLE me WITH LOGIN PASSWORD '{}';", WORD),
    ],
)
def test_a_bare_secret_is_found_by_its_format(text: str, secret: str) -> None:
    body = text.format(secret).encode()
    for stored in (given(body, "text/plain"), sent(body, "text/plain")):
        assert secret.encode() not in stored
        assert PREFIX.encode() in stored


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of bearer authentication-with-a-bearer-token-2",
        "password: ['is too short', 'needs a digit']",
        "The field 'password' is missing; the password 'must be long'",
        "machine learning with a password manager",
        "machine HOST login USER password PASSWORD",
        "curl -u user:password https://a.test/",
        "docker run -u 1000:1000 image",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        'id="00123456789012345678901234567890123456789012"',
        "a.path.of.patterns",
        "airtable keyboardShortcuts",
        "e.ProgressToken=e.createMessageConnection=e.NullLogger=e.ConnectionOptions=e.ConnectionStrategy"
        "=e.WriteableStreamMessageWriter=e.NotificationType9=e.NotificationType8=void 0,e.x",
        "var accessToken=t.f.requestType9=t.f.requestType8;",
    ],
)
def test_a_text_about_secrets_stays_as_it_is(text: str) -> None:
    assert given(text.encode(), "text/plain") == text.encode()


@pytest.mark.parametrize(
    "name", ["X-JFrog-Art-Api", "X-Pw", "X-PIN", "X-Token-Value", "X-Access-Code", "x-functions-code"]
)
def test_a_header_named_for_a_secret_holds_it(name: str) -> None:
    assert detect.secret_header(name, DRAWN)


def test_a_version_of_an_api_is_no_secret() -> None:
    assert not detect.secret_header("X-Api", "v3")


def test_every_format_has_its_literal_and_no_word_in_it() -> None:
    """A format whose literal a match need not hold would never be found."""
    told = json.loads(Path(detect.__file__).with_name("formats.json").read_text())
    assert "MIT" in told["gitleaks"]["licence"]
    formats = told["gitleaks"]["formats"] + told["providers"]["formats"] + told["tools"]["formats"]
    assert len(formats) > 130
    for name, literals, pattern, before in formats:
        assert name
        assert before >= 0
        assert all(len(literal) >= 2 for literal in literals)
        re.compile(pattern.encode())
    prose = b"The settings of a component, with tokens and keys: see the section on passwords. " * 50
    assert not detect.has_format(prose)
