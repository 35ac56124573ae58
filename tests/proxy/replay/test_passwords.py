"""A password that was not recorded is never answered by the attempt that was; the recorded one always is."""

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx
import pytest

import stillweb
from stillweb.proxy import Authority, Gateway, Recorder
from stillweb.snapshots import Request, Snapshot, Writer, seal
from stillweb.snapshots.secrets.redact import Redactor
from tests.proxy.origin import Answer, Asked, Origin
from tests.snapshots.making import exchange
from tests.support.stateful_site import HOST, Site, serve
from tests.support.waiting import HANG

FORM = "application/x-www-form-urlencoded"


class Client:
    """Client of a proxy that keeps its cookies."""

    def __init__(self, proxy_url: str) -> None:
        self._place = urlsplit(proxy_url)
        self._cookies: dict[str, str] = {}

    def send(self, method: str, path: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Verdict ("" while recording) and text."""
        assert self._place.hostname
        connection = HTTPConnection(self._place.hostname, self._place.port, timeout=HANG)
        who = base64.b64encode(f"{self._place.username}:x".encode()).decode()
        headers = {"Proxy-Authorization": f"Basic {who}"}
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{n}={v}" for n, v in self._cookies.items())
        if form is not None:
            headers["Content-Type"] = FORM
        connection.request(method, HOST + path, urlencode(form) if form else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                cookie, _, rest = value.partition(";")[0].partition("=")
                self._cookies[cookie] = rest
        connection.close()
        verdict = answer.getheader("Stillweb-Verdict") or ""
        return verdict, text or answer.getheader("Location") or ""

    def login(self, user: str, password: str) -> tuple[str, str]:
        return self.send("POST", "/login", {"user": user, "password": password})


@contextmanager
def _recorder(path: Path, state: Path) -> Iterator[Recorder]:
    host = urlsplit(HOST).hostname
    assert host
    with serve(Site()) as url, Writer.open(path) as writer:
        place = urlsplit(url)
        assert place.hostname
        assert place.port
        authority = Authority.load_or_create(state)
        with Recorder(writer, resolve={host: (place.hostname, place.port)}, authority=authority) as recorder:
            yield recorder


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("passwords")
    with _recorder(folder / "site", folder / "state") as recorder:
        ann = Client(recorder.proxy_url("one"))
        ann.send("GET", "/login")
        ann.login("ann", "a wrong one")
        ann.login("ann", "apple-pie-7")
        ann.send("GET", "/account")
    return seal(folder / "site", state=folder / "state").path


@pytest.fixture(params=["same state", "another machine"])
def client(request: pytest.FixtureRequest, sealed: Path, tmp_path: Path) -> Iterator[tuple[Client, Gateway]]:
    """Whether the key of the recording is there plays no part."""
    state = sealed.parent / "state" if request.param == "same state" else tmp_path
    with (
        Snapshot.open(sealed) as snapshot,
        Gateway(snapshot, authority=Authority.load_or_create(state)) as gateway,
    ):
        yield Client(gateway.proxy_url("walk")), gateway


def test_a_wrong_password_then_the_right_one(client: tuple[Client, Gateway]) -> None:
    ann, gateway = client
    ann.send("GET", "/login")
    verdict, text = ann.login("ann", "a wrong one")
    assert verdict == "exact"
    assert "Wrong name or password" in text
    assert ann.login("ann", "apple-pie-7") == ("exact", "/account")
    verdict, text = ann.send("GET", "/account")
    assert verdict == "exact"
    assert "ann" in text
    assert not any(e["ambiguous"] for e in gateway.ledger.entries())


def test_another_password_is_a_miss_that_tells_neither(client: tuple[Client, Gateway]) -> None:
    ann, gateway = client
    ann.send("GET", "/login")
    verdict, text = ann.login("ann", "apple-pie-8")
    assert verdict == "miss"
    assert "password: another secret than the recorded one" in text
    entry = gateway.ledger.misses()[-1]
    assert entry["nearest"][0]["rule"] is None
    assert "apple-pie" not in json.dumps(entry)
    verdict, _ = ann.send("GET", "/account")
    assert verdict == "miss" or gateway.ledger.entries()[-1]["ambiguous"]  # nobody knows if that signed in
    assert ann.login("bob", "apple-pie-7")[0] == "miss"
    assert ann.login("ann", "apple-pie-7")[0] == "exact"


def test_the_key_of_a_missed_password_is_no_hash_of_it(sealed: Path) -> None:
    with Snapshot.open(sealed) as snapshot:
        headers = (("Content-Type", FORM),)
        keys = {
            snapshot.matcher()
            .lookup(Request("POST", f"{HOST}/login", headers, f"user=ann&password={word}".encode()))
            .key.canonical
            for word in ("guess-1", "guess-2")
        }
    assert len(keys) == 1


def test_no_secret_can_be_tried_against_the_key_in_the_ledger(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s"):
        pass
    keys = {}
    for password in ("correct horse", "wrong horse"):
        with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
            client = Client(gateway.proxy_url("one"))
            client.login("ann", password)
            client.send("GET", f"/me?password={password.replace(' ', '+')}&page=2")
            client.send("GET", "/me?page=2")
            keys[password] = [entry["key"] for entry in gateway.ledger.entries()]
    assert keys["correct horse"] == keys["wrong horse"]
    assert len(set(keys["correct horse"])) == 3


@pytest.mark.parametrize(
    ("users", "found"),
    [(("ann",), "the desk of ann"), ((), "who?"), (("ann", "bob"), "miss")],
    ids=["recorded", "not recorded", "several"],
)
def test_the_pseudonym_of_a_password_in_a_url_stands_for_its_credentials(
    tmp_path: Path, users: tuple[str, ...], found: str
) -> None:
    """A view whose URL has user information is opened again by the pseudonym, as the password was never stored."""
    url, redactor = "http://desk.test/desk", Redactor(b"k" * 32)

    def basic(user: str, password: str) -> tuple[tuple[str, str], ...]:
        return (("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()),)

    with Writer.open(tmp_path / "snap") as writer:
        asked = (("Host", "desk.test"),)
        answer = (("WWW-Authenticate", 'Basic realm="desk"'),)
        writer.exchange(exchange(url, b"who?", status=401, headers=answer, request_headers=asked))
        for number, user in enumerate(users, start=1):
            stored = redactor.headers(basic(user, f"hydrant-{number}"))
            text = f"the desk of {user}".encode()
            writer.exchange(
                exchange(url, text, request_headers=stored, begin=2 * number + 1, end=2 * number + 2)
            )
    name = redactor.pseudonym("hydrant-1")
    with (
        Snapshot.open(tmp_path / "snap") as snapshot,
        Gateway(snapshot) as gateway,
        httpx.Client(proxy=gateway.url) as client,
    ):
        assert found in client.get(url, headers=dict(basic("ann", name))).text
        assert "the desk of" not in client.get(url, headers=dict(basic("ann", "hydrant-9"))).text


@pytest.mark.parametrize("kind", ["form", "parts"])
def test_a_password_is_known_by_the_type_of_its_field(kind: str, tmp_path: Path) -> None:
    """A page's form names its password `p`: it is replaced, found again, and another one is a miss."""
    page = b"<form method=post><input name=u><input class=wide type='password' name='p'></form>"

    def site(asked: Asked) -> Answer:
        html = [("Content-Type", "text/html")]
        if asked.method == "GET":
            return Answer(headers=html, body=page)
        return Answer(headers=html, body=b"welcome" if b"tea-4711-pot" in asked.body else b"wrong password")

    def log_in(client: httpx.Client, password: str) -> httpx.Response:
        fields = {"u": "ada", "p": password}
        if kind == "form":
            return client.post(url, data=fields)
        return client.post(url, files={name: (None, value) for name, value in fields.items()})

    with Origin(site) as origin, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        url = f"{origin.url}/login"
        with httpx.Client(proxy=recorder.proxy_url("default"), trust_env=False) as client:
            client.get(url)
            assert log_in(client, "guess-1").text == "wrong password"
            assert log_in(client, "tea-4711-pot").text == "welcome"
    stored = b"".join(path.read_bytes() for path in (tmp_path / "s" / "archive").iterdir())
    assert b"tea-4711-pot" not in gzip.decompress(stored)
    with stillweb.replay(tmp_path / "s") as web, httpx.Client(**web.httpx()) as client:
        client.get(url)
        assert log_in(client, "guess-1").text == "wrong password"
        right = log_in(client, "tea-4711-pot")
        assert right.text == "welcome"
        assert right.headers["stillweb-verdict"] in ("exact", "canonical")
        assert right.headers["stillweb-confidence"] == "1.00"
        other = log_in(client, "tea-9999-pot")
        assert other.headers["stillweb-verdict"] == "miss"
        assert "9999" not in other.text + json.dumps(list(web.ledger))


def _token(claims: dict[str, object], signature: str) -> str:
    parts = ({"alg": "HS256"}, claims)
    head, told = (base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in parts)
    return f"{head}.{told}.{signature}"


def test_a_token_with_other_moments_alone_opens_what_it_opened(tmp_path: Path) -> None:
    """A store signs its addresses by JSON web tokens (Supabase, Mux): what they are for is a claim."""
    first = _token({"url": "b/k.png", "iat": 1714557600, "exp": 1714561200}, "q3Xc8vT0mPz7LwK2nRb5Yd9H")
    later = _token({"url": "b/k.png", "iat": 1714559600, "exp": 1714563200}, "Zk9mW2eR7tY4uI1oP6aS3dF8")
    other = _token({"url": "b/l.png", "iat": 1714559600, "exp": 1714563200}, "xT4rB7nM2kL9pQ5wE8yU1oA6")
    picture = Answer(headers=[("Content-Type", "image/png")], body=b"a kettle")
    with Origin(lambda asked: picture) as origin, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:  # fmt: skip
        url = f"{origin.url}/sign?token="
        with httpx.Client(proxy=recorder.proxy_url("default"), trust_env=False) as client:
            client.get(url + first)
    with stillweb.replay(tmp_path / "s") as web, httpx.Client(**web.httpx()) as client:
        told = [client.get(url + token) for token in (first, later, other)]
        assert [one.status_code for one in told] == [200, 200, 504]
        assert told[1].headers["stillweb-verdict"] == "rule:signed"


@pytest.mark.parametrize("field", ["X-Api-Key", "X-Vault-Token", "X-Consul-Token"])
def test_each_key_opens_what_it_opened_and_another_nothing(tmp_path: Path, field: str) -> None:
    keys = {f"{n}a4f{n}b7c-1d2e-4f50-9a6b-7c8d9e0f1a2{n}": f"the shelf of {n}" for n in (1, 2)}

    def site(asked: Asked) -> Answer:
        shown = keys[asked.header(field) or ""]
        return Answer(headers=[("Content-Type", "text/plain")], body=shown.encode())

    with Origin(site) as origin, Writer.open(tmp_path / "s") as writer:
        url = f"{origin.url}/shelf"
        for key in keys:
            with Recorder(writer) as recorder, httpx.Client(proxy=recorder.url, trust_env=False) as client:
                client.get(url, headers={field: key})
    for key, shown in keys.items():
        with stillweb.replay(tmp_path / "s") as web, httpx.Client(**web.httpx()) as client:
            assert client.get(url, headers={field: key}).text == shown
            assert client.get(url, headers={field: "3" + key[1:]}).status_code == 504


def test_a_session_that_its_client_draws_stands_for_the_recorded_one(tmp_path: Path) -> None:
    baskets: dict[str, list[str]] = {}

    def site(asked: Asked) -> Answer:
        said = json.loads(asked.body)
        basket = baskets.setdefault(said["session"], [])
        basket += said.get("add", [])
        return Answer(headers=[("Content-Type", "application/json")], body=json.dumps(basket).encode())

    def walk(client: httpx.Client, url: str, session: str) -> list[tuple[int, str]]:
        bodies = [{}, {"add": ["tea"]}, {}, {"add": ["cup"]}, {}, {"add": ["tea"]}, {}]
        told = [client.post(url, json={"session": session, **body}) for body in bodies]
        return [(one.status_code, one.text) for one in told]

    mine, others = "5102262d-961e-4115-90e4-0ebc268630e1", "2d204c2e-bac6-4e2b-9fbf-8f2d3c4e5f60"
    with Origin(site) as origin, Writer.open(tmp_path / "s") as writer:
        url = f"{origin.url}/basket"
        with Recorder(writer) as recorder, httpx.Client(proxy=recorder.url, trust_env=False) as client:
            recorded = walk(client, url, mine)
    for session, sure in ((mine, True), (others, False)):
        with stillweb.replay(tmp_path / "s") as web, httpx.Client(**web.httpx()) as client:
            assert walk(client, url, session) == recorded
            assert [entry["ambiguous"] for entry in web.ledger.entries()] == [not sure] * len(recorded)
