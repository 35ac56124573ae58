"""`python -m benchmarks.secrets [--seed N] [--told]`: how many secrets the recorder finds, and what it takes for one.

200 secrets and 200 look-alikes in the places of real messages: headers, addresses, forms, JSON, XML, GraphQL, lists of
names and values, web sockets, arguments. Each value is made from a seed when this runs, so that no commit holds anything
that looks like a key. *Found* means that the secret stands nowhere in what would be stored, and that the gate
(`verify --secrets`) reports it where nothing replaced it; *false* means that a look-alike was replaced or reported.
"""

from __future__ import annotations

import base64
import json
import random
import string
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import click

from stillweb.proxy.record.redaction import ExchangeRedactor
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.operations.leaks import scan
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets.redact import Redactor, mask_value
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer

COUNT = 200  # of secrets, and of look-alikes
FOUND, FALSE = 0.98, 0.02  # at least, at most
JSON: Headers = (("Content-Type", "application/json"),)
FORM: Headers = (("Content-Type", "application/x-www-form-urlencoded"),)
HTML: Headers = (("Content-Type", "text/html; charset=utf-8"),)
XML: Headers = (("Content-Type", "text/xml"),)
LOWER, HEX, LETTERS = string.ascii_lowercase + string.digits, "0123456789abcdef", string.ascii_letters
MIXED, DASHED, UPPER = (
    LETTERS + string.digits,
    LETTERS + string.digits + "_-",
    string.ascii_uppercase + string.digits,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value in a message: an exchange, a web socket's message, or the arguments of a program."""

    kind: str
    value: str
    url: str = ""
    sent: Headers = ()
    body: bytes = b""
    given: Headers = HTML
    answer: bytes = b"ok"
    message: bytes | None = None
    mine: bool = True  # the message is the client's
    arguments: list[str] = field(default_factory=list)


class Draw:
    """Values of many kinds from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, alphabet: str, size: int) -> str:
        return "".join(self._random.choices(alphabet, k=size))

    def one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def uuid(self) -> str:
        digits = self.of(HEX, 32)
        return "-".join((digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:]))

    def key(self) -> str:
        """An opaque key, as services without a format of their own hand out."""
        return self.one(self.of(HEX, 32), self.of(MIXED, 40), self.uuid(), self.of(DASHED, 43) + "9a")

    def password(self) -> str:
        """Return a password as a person types it: words, digits and a sign, eight letters or more."""
        words = (
            "summer",
            "correct",
            "dragon",
            "winter",
            "coffee",
            "monkey",
            "purple",
            "tiger",
            "garden",
            "violin",
        )
        return f"{self.one(*words)}{self.one('-', '', '_', '!')}{self.one(*words)}{self.number(10, 9999)}"


Made = Callable[[Draw], str]
# Keys of providers: the letters that they begin with, apart from the rest, so that no line here is a key.
PROVIDERS: dict[str, Made] = {
    "AWS": lambda d: "AK" + "IA" + d.of(string.ascii_uppercase + "234567", 16),
    "Google": lambda d: "AI" + "za" + d.of(DASHED, 35),
    "Google OAuth secret": lambda d: "GOC" + "SPX-" + d.of(DASHED, 28),
    "GitHub": lambda d: "gh" + d.one("p", "o", "s", "u", "r") + "_" + d.of(MIXED, 36),
    "GitHub fine-grained": lambda d: "github" + "_pat_" + d.of(MIXED, 22) + "_" + d.of(MIXED, 59),
    "GitLab": lambda d: "gl" + "pat-" + d.of(DASHED, 20),
    "Slack bot": lambda d: (
        "xo" + "xb-" + d.of(string.digits, 12) + "-" + d.of(string.digits, 12) + "-" + d.of(MIXED, 24)
    ),
    "Slack app": lambda d: (
        "xa" + "pp-1-A" + d.of(UPPER, 10) + "-" + d.of(string.digits, 13) + "-" + d.of(HEX, 64)
    ),
    "Stripe": lambda d: d.one("s", "r") + "k_" + d.one("live", "test") + "_" + d.of(MIXED, 24),
    "Stripe webhook": lambda d: "wh" + "sec_" + d.of(MIXED, 32),
    "OpenAI": lambda d: "sk" + "-proj-" + d.of(DASHED, 20) + d.of(MIXED, 50) + "7",
    "Anthropic": lambda d: "sk-" + "ant-api03-" + d.of(DASHED, 50) + d.of(MIXED, 40) + "7-AA",
    "OpenRouter": lambda d: "sk-" + "or-v1-" + d.of(HEX, 64),
    "Hugging Face": lambda d: "h" + "f_" + d.of(LETTERS, 34),
    "Groq": lambda d: "gs" + "k_" + d.of(MIXED, 52),
    "Replicate": lambda d: "r" + "8_" + d.of(MIXED, 37),
    "Perplexity": lambda d: "pp" + "lx-" + d.of(MIXED, 48),
    "Tavily": lambda d: "tv" + "ly-dev-" + d.of(MIXED, 32),
    "npm": lambda d: "np" + "m_" + d.of(MIXED, 36),
    "PyPI": lambda d: "pypi" + "-AgEIcHlwaS5vcmc" + d.of(DASHED, 120),
    "SendGrid": lambda d: "S" + "G." + d.of(DASHED, 22) + "." + d.of(DASHED, 43),
    "Twilio": lambda d: "S" + "K" + d.of(HEX, 32),
    "Mailgun": lambda d: "ke" + "y-" + d.of(HEX, 32),
    "Mailchimp": lambda d: d.of(HEX, 32) + "-us" + str(d.number(1, 21)),
    "DigitalOcean": lambda d: "do" + "p_v1_" + d.of(HEX, 64),
    "Shopify": lambda d: "sh" + d.one("pat", "pss", "pca") + "_" + d.of(HEX, 32),
    "Notion": lambda d: "nt" + "n_" + d.of(string.digits, 11) + d.of(MIXED, 35),
    "Linear": lambda d: "lin" + "_api_" + d.of(MIXED, 40),
    "Databricks": lambda d: "da" + "pi" + d.of(HEX, 32),
    "Docker": lambda d: "dck" + "r_pat_" + d.of(DASHED, 27),
    "Figma": lambda d: "fi" + "gd_" + d.of(DASHED, 40),
    "Telegram": lambda d: d.of(string.digits[1:], 10) + ":A" + "A" + d.of(DASHED, 33),
    "Supabase": lambda d: "sb" + "p_" + d.of(HEX, 40),
    "Atlassian": lambda d: "ATA" + "TT3" + d.of(DASHED, 186),
    "Vault": lambda d: "hv" + "s." + d.of(DASHED, 95),
    "Terraform": lambda d: d.of(MIXED, 14) + ".atlas" + "v1." + d.of(DASHED, 67),
    "Grafana": lambda d: "gl" + "sa_" + d.of(MIXED, 32) + "_" + d.of(HEX, 8),
    "New Relic": lambda d: "NR" + "AK-" + d.of(UPPER, 27),
    "Postman": lambda d: "PM" + "AK-" + d.of(HEX, 24) + "-" + d.of(HEX, 34),
    "PlanetScale": lambda d: "pscale" + "_tkn_" + d.of(DASHED, 43),
    "Doppler": lambda d: "dp" + ".pt." + d.of(MIXED, 43),
    "Heroku": lambda d: "HRK" + "U-AA" + d.of(DASHED, 58),
    "Square": lambda d: "sq0" + "atp-" + d.of(DASHED, 22),
    "HubSpot": lambda d: "pa" + "t-na1-" + d.uuid(),
    "Azure AD": lambda d: d.of(MIXED, 3) + "8Q" + "~" + d.of(MIXED, 34),
    "JWT": lambda d: "ey" + "J" + d.of(DASHED, 33) + ".ey" + "J" + d.of(DASHED, 60) + "." + d.of(DASHED, 43),
}
HEADERS = (
    "X-RapidAPI-Key", "Ocp-Apim-Subscription-Key", "APCA-API-SECRET-KEY", "X-CMC_PRO_API_KEY", "X-Auth-Key", "DD-APPLICATION-KEY",
    "X-Functions-Key", "PRIVATE-TOKEN", "X-Vault-Token", "X-Shopify-Access-Token", "X-MBX-APIKEY", "aeg-sas-key", "X-Goog-Api-Key",
    "X-Hub-Signature", "X-Client-Secret", "X-Amz-Security-Token", "Fastly-Key", "X-Postmark-Server-Token", "api_key", "X-Request-Sig",
)  # fmt: skip
QUERY = ("key", "api_key", "apikey", "access_token", "token", "sig", "X-Amz-Signature", "auth", "appid", "wskey", "hapikey", "client_secret")  # fmt: skip
MEMBERS = ("password", "clientSecret", "apiKey", "refresh_token", "secretKey", "passwd", "accessToken", "sessionToken", "private_key", "newPassword")  # fmt: skip


def secrets_of(draw: Draw) -> Iterator[Sample]:
    """Yield all secrets, kind by kind."""
    for number, (provider, make) in enumerate(PROVIDERS.items()):  # 46
        key, where = make(draw), number % 4
        kind = "format in a JSON answer"
        if where == 0:
            yield Sample(
                kind, key, given=JSON, answer=json.dumps({"data": [{"id": number, "value": key}]}).encode()
            )
        elif where == 1:
            text = json.dumps({"note": f"use\n{key}"})
            yield Sample(kind, key, given=JSON, answer=json.dumps({"arguments": text}).encode())
        elif where == 2:
            yield Sample(
                "format in a page", key, answer=f"<script>const k='{key}';</script><p>{provider}</p>".encode()
            )
        else:
            yield Sample(
                "format in what is sent",
                key,
                sent=JSON,
                body=json.dumps({"note": f"Mine is {key}, ok"}).encode(),
            )
    for name in HEADERS:  # 20
        yield Sample("header", key := draw.key(), sent=((name, key),))
    for scheme in ("Bearer", "Token", "Basic", "ApiKey"):  # 4
        key = draw.key() if scheme != "Basic" else base64.b64encode(f"me:{draw.password()}".encode()).decode()
        yield Sample("header", key, sent=(("Authorization", f"{scheme} {key}"),))
    for name in QUERY:  # 12
        yield Sample("query", key := draw.key(), url=f"/search?q=a&{name}={key}&page=2")
    inner = quote(f"https://b.test/in?access_token={(key := draw.key())}", safe="")
    yield Sample("query", key, url=f"/go?to={inner}")
    inner = quote(json.dumps({"password": (key := draw.password())}), safe="")
    yield Sample("query", key, url=f"/go?state={inner}")
    for path in (
        "/bot{t}/sendMessage",
        "/services/T0{u}/B0{u}/{k}",
        "/api/webhooks/{n}/{k}",
        "/hooks/{k}",
        "/v1/token/{k}/items",
        "/api_key/{k}",
    ):  # 18
        for _ in range(3):
            host = "https://hooks.slack.com" if "services" in path else "https://a.test"
            value = PROVIDERS["Telegram"](draw) if "{t}" in path else draw.of(MIXED, 23) + "7"
            filled = path.format(t=value, k=value, u=draw.of(UPPER, 8), n=draw.of(string.digits[1:], 18))
            yield Sample("path", value, url=host + filled)
    for _ in range(4):
        yield Sample("user info", word := draw.password(), url=f"https://bob:{word}@a.test/x")
    yield Sample("user info", key := draw.of(MIXED, 40), url=f"https://{key}@a.test/x")
    yield Sample("user info", key := draw.of(MIXED, 40), url=f"https://{key}:x-oauth-basic@a.test/x")
    for name in (
        "password",
        "user[password]",
        "pwd",
        "client_secret",
        "login.passwd",
        "token",
        "contraseña",
        "new_password",
    ):  # 8
        word = draw.key() if name == "token" else draw.password()
        yield Sample("form", word, sent=FORM, body=f"user=bob&{quote(name)}={quote(word)}&go=1".encode())
    for name in ("password", "api_key"):
        word = draw.password()
        part = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{word}\r\n--b--\r\n'
        yield Sample(
            "form", word, sent=(("Content-Type", "multipart/form-data; boundary=b"),), body=part.encode()
        )
    for name in MEMBERS:  # 10
        word = draw.password() if "ass" in name else draw.key()
        yield Sample(
            "JSON", word, sent=JSON, body=json.dumps({"user": {"name": "bob", name: word}, "n": 1}).encode()
        )
    for name in ("access_token", "client_secret", "apiKey", "token", "sessionToken", "secretAccessKey"):  # 6
        yield Sample(
            "JSON answer",
            key := draw.of(MIXED, 40),
            given=JSON,
            answer=json.dumps({"ok": 1, name: key}).encode(),
        )
    for depth in (1, 1, 1, 2, 2, 3):  # 12
        for mine in (True, False):
            text = json.dumps({"user": "bob", "password": (word := draw.password()) + '"\\', "go": True})
            for _ in range(depth):
                text = json.dumps({"tool_calls": [{"function": {"name": "login", "arguments": text}}]})
            if mine:
                yield Sample("JSON in JSON", word, sent=JSON, body=text.encode())
            else:
                yield Sample("JSON in JSON", word, given=JSON, answer=text.encode())
    for xml in (
        "<s:Envelope><s:Body><Login><user>bob</user><Password>{}</Password></Login></s:Body></s:Envelope>",
        '<soap:Header><wsse:UsernameToken><wsse:Password Type="#PasswordText">{}</wsse:Password></wsse:UsernameToken></soap:Header>',
        '<login user="bob" password="{}"/>',
        "<methodCall><params><member><name>password</name><value><string>{}</string></value></member></params></methodCall>",
        "<r><apiKey><![CDATA[{}]]></apiKey></r>",
        '<config><add key="password" value="{}"/></config>',
    ):  # 12
        for _ in range(2):
            yield Sample("XML", word := draw.password(), sent=XML, body=xml.format(word).encode())
    for shape in (
        'mutation {{ login(user: "bob", password: "{}") {{ token }} }}',
        'mutation M {{ signIn(input: {{email: "a@b.test", password: "{}"}}) {{ id }} }}',
        'query {{ me(apiKey: "{}") {{ id }} }}',
    ):  # 6
        for wrapped in (True, False):
            word = draw.password()
            told = shape.format(word)
            body = json.dumps({"query": told}) if wrapped else told
            yield Sample(
                "GraphQL",
                word,
                sent=JSON if wrapped else (("Content-Type", "application/graphql"),),
                body=body.encode(),
            )
    for pair in (("name", "value"), ("key", "value"), ("field", "value"), ("id", "content")):  # 12
        for order in (True, False):
            one = {pair[0]: "password", "type": "text", pair[1]: (word := draw.password())}
            listed = json.dumps(
                [{pair[0]: "user", pair[1]: "bob"}, one if order else dict(reversed(one.items()))]
            )
            yield Sample("names and values", word, sent=JSON, body=listed.encode())
    yield Sample(
        "names and values",
        word := draw.password(),
        sent=JSON,
        body=json.dumps([["user", "bob"], ["password", word]]).encode(),
    )
    listed = json.dumps({"headers": [{"name": "Authorization", "value": f"Bearer {(key := draw.key())}"}]})
    yield Sample("names and values", key, sent=JSON, body=listed.encode())
    listed = json.dumps({"headers": [{"name": "X-Api-Key", "value": (key := draw.key())}]})
    yield Sample("names and values", key, sent=JSON, body=listed.encode())
    for number in range(17):  # web sockets
        word, mine = draw.password(), number % 7 < 5
        said = json.dumps({"op": "login", "password": word}).encode()
        if number % 7 == 1:
            said = b'42["auth",' + said + b"]"
        elif number % 7 == 2:
            said = b"\x82\xa2op\xa5login\xa8password" + bytes((0xA0 + len(word),)) + word.encode()
        elif number % 7 == 3:
            said = (
                b"\xa1hpassword"
                + bytes((0x60 + len(word),) if len(word) < 24 else (0x78, len(word)))
                + word.encode()
            )
        elif number % 7 == 4:
            said = b"\x00\x01\xfe" + (word := PROVIDERS["GitHub"](draw)).encode() + b"\x00"
        elif number % 7 == 5:
            said = json.dumps({"access_token": (word := draw.of(MIXED, 40))}).encode()
        elif number % 7 == 6:
            said = b"\xff\x00" + json.dumps({"token": (word := PROVIDERS["JWT"](draw))}).encode()
        yield Sample("web socket", word, message=said, mine=mine)
    for shape in ("--token", "--api-key", "--password", "--secret"):  # 8
        yield Sample(
            "argument", word := draw.key(), arguments=["python", "agent.py", shape, word, "--steps", "5"]
        )
        yield Sample("argument", word := draw.password(), arguments=["python", "agent.py", f"{shape}={word}"])


def look_alikes_of(draw: Draw) -> Iterator[Sample]:
    """Yield all values that only look like secrets, kind by kind."""
    sha, sha256 = (lambda: draw.of(HEX, 40)), (lambda: draw.of(HEX, 64))
    number = lambda size: draw.of(string.digits[1:], size)  # noqa: E731
    picture = lambda: base64.b64encode(draw.of(string.printable, 90).encode()).decode()  # noqa: E731
    for name in (
        "id",
        "commit",
        "sha",
        "etag",
        "checksum",
        "digest",
        "revision",
        "build",
        "fileHash",
        "traceId",
    ):  # 40
        value = draw.one(sha(), sha256(), draw.uuid(), draw.of(HEX, 32))
        yield Sample(
            "hash or id in JSON", value, given=JSON, answer=json.dumps({name: value, "n": 1}).encode()
        )
        yield Sample("hash or id in JSON", value, sent=JSON, body=json.dumps({name: value, "n": 1}).encode())
        yield Sample("hash or id in an address", value, url=f"/item?{name}={value}")
        yield Sample("hash or id in an address", value, url=f"/{name}/{value}/raw")
    for name in (
        "csrf_token",
        "authenticity_token",
        "_xsrf",
        "__RequestVerificationToken",
        "csrfmiddlewaretoken",
        "nonce",
    ):  # 12
        value = draw.of(MIXED, 32)
        yield Sample(
            "token of a form", value, answer=f'<input type="hidden" name="{name}" value="{value}">'.encode()
        )
        yield Sample("token of a form", value, sent=FORM, body=f"{name}={value}&title=x".encode())
    for name in (
        "nextPageToken",
        "continuation_token",
        "cursorToken",
        "syncToken",
        "page_token",
        "next_token",
    ):  # 12
        value = draw.of(DASHED, 40)
        yield Sample(
            "token of paging", value, given=JSON, answer=json.dumps({"items": [], name: value}).encode()
        )
        yield Sample("token of paging", value, url=f"/list?{name}={value}")
    for name in (
        "cacheKey",
        "sort_key",
        "primaryKey",
        "idempotency-key",
        "publicKey",
        "objectKey",
        "partition_key",
        "hashKey",
    ):  # 16
        value = draw.one(sha(), draw.uuid(), draw.of(MIXED, 32))
        yield Sample("key that is public", value, given=JSON, answer=json.dumps({name: value}).encode())
        yield Sample("key that is public", value, sent=JSON, body=json.dumps({name: value}).encode())
    for name in (
        "Surrogate-Key",
        "X-Cache-Key",
        "Idempotency-Key",
        "ETag",
        "X-Request-Id",
        "Sec-WebSocket-Key",
        "Content-MD5",
        "Traceparent",
    ):  # 8
        yield Sample("header", value := draw.one(draw.uuid(), sha()), sent=((name, value),))
    for name in ("key", "token", "password", "secret", "sort", "auth", "sig", "session"):  # 16
        word = draw.one(
            "relevance", "newest", "dark-mode", "customers", "price-asc", "north-america", "checkout"
        )
        yield Sample(
            "word under a name of secrets", word, given=JSON, answer=json.dumps({name: word}).encode()
        )
        if name not in ("password",):
            yield Sample("word under a name of secrets", word, url=f"/list?{name}={word}&page=1")
    for text in (
        '{{"error": {{"password": "{}"}}}}',
        '{{"labels": {{"password": "{}", "token": "x"}}}}',
        '{{"secret_key": "{}"}}',
        '{{"api_key": "{}"}}',
    ):  # 8
        for words in ("must be longer", "Passwort vergessen"):
            yield Sample("what is said of secrets", words, given=JSON, answer=text.format(words).encode())
    for code in (
        "function login(t){{return api.post({{password:t.{0},token:e.{0}}})}}",
        "if(token==={0})throw 1",
        "this.apiKey={0}.value",
        'label{{content:"{0}"}}',
        "<label for=password>{0}</label>",
        "password: {0}!",
        "export API_KEY=<{0}>",
        "curl -H 'X-Api-Key: ${0}'",
        '<input type="password" placeholder="{0}">',
        'class="sk-{0}-spinner-bounce-3-delay"',
        "SG.{0}.prototype",
        "eyJ.{0}.test",
        "xoxo-{0}-love",
    ):  # 13
        yield Sample(
            "code and prose",
            value := draw.one("settings", "container", "component"),
            answer=code.format(value).encode(),
        )
    for _ in range(10):
        yield Sample(
            "picture", value := picture(), answer=f'<img src="data:image/png;base64,{value}">'.encode()
        )
        value = base64.b64encode(bytes(draw.number(0, 255) for _ in range(64))).decode()
        yield Sample(
            "integrity of a script",
            value,
            answer=f'<script integrity="sha512-{value}" src=a.js></script>'.encode(),
        )
    for _ in range(6):
        yield Sample("long number", value := number(19), url=f"/status/{value}?id={value}")
        yield Sample("cache buster", value := number(13), url=f"/app.js?_={value}&v={number(4)}")
        yield Sample("hashed file", value := draw.of(HEX, 20), url=f"/static/main.{value}.js")
        yield Sample(
            "product",
            value := f"{draw.of(string.ascii_uppercase, 3)}-{number(4)}-{draw.of(string.ascii_uppercase, 2)}",
            url=f"/p/{value}?sku={value}",
        )
        yield Sample(
            "address on a chain",
            value := "0x" + draw.of(HEX, 40),
            given=JSON,
            answer=json.dumps({"token": value}).encode(),
        )
    pem = lambda: "MIIB" + draw.of(MIXED, 120)  # noqa: E731
    for _ in range(4):
        yield Sample(
            "public key",
            value := pem(),
            given=JSON,
            answer=json.dumps({"public_key": f"-----BEGIN PUBLIC KEY-----\n{value}"}).encode(),
        )
        yield Sample(
            "public key",
            value := draw.of(MIXED, 64),
            answer=f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{value} me@a.test".encode(),
        )
        yield Sample(
            "public key",
            value := draw.of(DASHED, 43),
            given=JSON,
            answer=json.dumps({"kty": "EC", "kid": "1", "x": value}).encode(),
        )
    while True:
        value = draw.one(draw.of(HEX, 32), draw.uuid(), sha(), draw.of(MIXED, 22))
        mine = draw.one("1", "") == "1"
        yield Sample(
            "id on a web socket", value, message=json.dumps({"type": "ping", "id": value}).encode(), mine=mine
        )
        yield Sample("argument", value, arguments=["python", "agent.py", "--run-id", value, "--model", "x"])


def corpus(seed: int) -> tuple[list[Sample], list[Sample]]:
    """Return the secrets and the look-alikes, `COUNT` of each."""
    draw = Draw(seed)
    found = []
    for made in (secrets_of(draw), look_alikes_of(draw)):
        samples = [sample for sample, _ in zip(made, range(COUNT), strict=False)]
        if len(samples) < COUNT:
            raise AssertionError(f"only {len(samples)} samples")
        found.append(samples)
    return found[0], found[1]


def _exchange(sample: Sample, number: int) -> Exchange:
    url = sample.url if "://" in sample.url else f"http://n{number}.test{sample.url or '/'}"
    method = "POST" if sample.body else "GET"
    request = Request(method, url, sample.sent, sample.body)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Exchange(request, 200, "OK", sample.given, sample.answer, moment, f"s{number}", 1, 2)


def _stored(sample: Sample, number: int) -> bytes:
    """Return all that the recorder would store of a sample."""
    redactor = ExchangeRedactor(Redactor(b"k" * 32), None)
    if sample.arguments:
        return json.dumps(mask_value(sample.arguments)).encode()
    if sample.message is not None:
        return redactor.message("http://a.test/", sample.message, from_client=sample.mine)
    clean = redactor.exchange(_exchange(sample, number))
    fields = "\n".join(f"{n}: {v}" for n, v in (*clean.request.headers, *clean.headers))
    assert isinstance(clean.body, bytes)
    return b"\n".join((clean.request.url.encode(), fields.encode(), clean.request.body, clean.body))


def _holds(stored: bytes, value: str) -> bool:
    forms = {value, json.dumps(value)[1:-1], quote(value, safe="")}
    return any(form.encode() in stored for form in forms)


def reported(samples: list[Sample]) -> set[int]:
    """Return the numbers of the samples that `verify --secrets` reports in a snapshot that holds all of them as they are."""
    with tempfile.TemporaryDirectory() as folder:
        path, place = Path(folder, "s"), {}
        with Writer.open(path) as writer:
            for number, sample in enumerate(samples):
                if sample.arguments:
                    continue
                if sample.message is None:
                    writer.exchange(_exchange(sample, number))
                    continue
                message = {
                    "from": "client" if sample.mine else "server",
                    "base64": base64.b64encode(sample.message).decode(),
                }
                writer.metadata(
                    f"http://n{number}.test/", {"url": f"http://n{number}.test/", "messages": [message]}
                )
        with Snapshot.open(path) as snapshot:
            for capture in snapshot.captures():
                place[capture.filename, capture.offset] = int(capture.session[1:])
            leaks = scan(snapshot)
    told = set()
    for leak in leaks:
        at = place.get((leak.file, leak.offset))
        told.add(at if at is not None else int(leak.url.partition("://n")[2].partition(".")[0]))
    return told


@dataclass(slots=True)
class Count:
    """Of one kind: how many there are, how many were replaced, how many reported; `arguments` are only replaced."""

    all: int = 0
    replaced: int = 0
    reported: int = 0


def judge(samples: list[Sample], *, secret: bool) -> tuple[dict[str, Count], list[Sample]]:
    """Return the counts by kind, and the samples that were judged wrongly, by the recorder or by the gate."""
    told, wrong = reported(samples), []
    counts: dict[str, Count] = {}
    for number, sample in enumerate(samples):
        count = counts.setdefault(sample.kind, Count())
        replaced = not _holds(_stored(sample, number), sample.value)
        seen = replaced if sample.arguments else number in told
        count.all += 1
        count.replaced += replaced
        count.reported += seen
        if replaced != secret or seen != secret:
            wrong.append(sample)
    return counts, wrong


def totals(counts: dict[str, Count]) -> Count:
    """Return the sum over all kinds."""
    return Count(
        *(sum(getattr(c, name) for c in counts.values()) for name in ("all", "replaced", "reported"))
    )


@click.command()
@click.option("--seed", default=1, show_default=True, help="Another one makes other values.")
@click.option(
    "--told", is_flag=True, help="Print each secret that was missed and each look-alike that was taken."
)
def main(seed: int, told: bool) -> int:
    """Print how many secrets are found and how many look-alikes are taken for one, by kind."""
    secrets, look_alikes = corpus(seed)
    held = True
    for title, samples, real in (("secrets", secrets, True), ("look-alikes", look_alikes, False)):
        counts, wrong = judge(samples, secret=real)
        all_of_it = totals(counts)
        click.echo(f"{title:32s}  of  replaced  reported")
        for kind, count in counts.items():
            click.echo(f"  {kind:30s} {count.all:3d}  {count.replaced:8d}  {count.reported:8d}")
        click.echo(f"  {'all':30s} {all_of_it.all:3d}  {all_of_it.replaced:8d}  {all_of_it.reported:8d}")
        rates = (all_of_it.replaced / all_of_it.all, all_of_it.reported / all_of_it.all)
        held = held and (min(rates) >= FOUND if real else max(rates) <= FALSE)
        for sample in wrong if told else ():
            click.echo(f"    {sample}")
    click.echo(f"at least {FOUND:.0%} found and at most {FALSE:.0%} false: {'held' if held else 'NOT HELD'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(standalone_mode=False))
