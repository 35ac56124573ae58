"""Ids that a client draws for what it makes: it is told its own, and never what was said of something that it chose."""

import base64
import gzip
import json
import random
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.secrets.redact import Redactor
from tests.proxy.frozen import START, Site
from tests.proxy.gateways import client

THEIRS, MINE = "0b0e2a0c-98a4-4c0f-9d9f-6d0b1a2c3d4e", "1c1f3b1d-a9b5-4d1a-8eae-7e1c2b3d4e5f"
MADE, GIVEN = "5102262d-961e-4115-90e4-0ebc268630e1", "2d204c2e-bac6-4e2b-9fbf-8f2d3c4e5f60"
HOST = "http://h.example"
JSON = (("Content-Type", "application/json"),)
# more than is sent from memory, and not compressible
NOISE = random.Random(1).randbytes(1 << 20).hex()
PACKED = (*JSON, ("Content-Encoding", "gzip"))


def body(one: str, name: str = "a") -> bytes:
    return json.dumps({"path": one, "name": name}).encode()


def recorded(path: Path, *, method: str = "POST", status: int = 201, shown: str = GIVEN) -> Site:
    """A list, something that was made under an id, the list after it, and the thing by its id."""
    site = Site(path)
    site.add(f"{HOST}/list", json.dumps([shown]).encode(), headers=JSON)
    made = json.dumps({"id": MADE, "path": THEIRS}).encode()
    place = (*JSON, ("Location", f"/list/{THEIRS}"))
    site.add(f"{HOST}/list", made, method=method, status=status, headers=place, request_headers=JSON, request_body=body(THEIRS))  # fmt: skip
    site.add(f"{HOST}/list", gzip.compress(json.dumps([shown, THEIRS]).encode()), headers=PACKED)
    site.add(f"{HOST}/list/{THEIRS}", body(THEIRS), headers=JSON)
    return site


def make(c: httpx.Client, sent: bytes, method: str = "POST") -> httpx.Response:
    return c.request(method, f"{HOST}/list", content=sent, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_client_is_told_its_own_id(tmp_path: Path, method: str) -> None:
    site = recorded(tmp_path / "s", method=method, status=200 if method == "PUT" else 201)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.get(f"{HOST}/list").json() == [GIVEN]
        made = make(c, body(MINE), method)
        assert (made.json(), made.headers["location"]) == ({"id": MADE, "path": MINE}, f"/list/{MINE}")
        assert c.get(f"{HOST}/list").json() == [GIVEN, MINE]
        assert c.get(f"{HOST}/list/{MINE}").content == body(MINE)
        assert c.head(f"{HOST}/list/{MINE}").headers["content-length"] == str(len(body(MINE)))
        told = [(e["verdict"], e["ambiguous"], e.get("derived")) for e in gateway.ledger.entries()]
        assert told == [
            ("exact", False, None),
            ("rule:visit-id", True, "ids"),
            ("exact", True, "ids"),  # it follows from what was presumed
            ("rule:visit-id", True, "ids"),
            ("rule:visit-id", True, "head+ids"),
        ]


def test_who_draws_the_recorded_one_is_answered_as_ever(tmp_path: Path) -> None:
    with recorded(tmp_path / "s").open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert [c.get(f"{HOST}/list").json(), make(c, body(THEIRS)).json()["path"]] == [[GIVEN], THEIRS]
        assert not [e for e in gateway.ledger.entries() if e["ambiguous"] or "derived" in e]


def test_nor_is_another_session_told_of_it(tmp_path: Path) -> None:
    with recorded(tmp_path / "s").open() as snapshot, Gateway(snapshot) as gateway:
        with client(gateway, "p") as c:
            make(c, body(MINE))
        with client(gateway, "q") as other:
            assert other.get(f"{HOST}/list/{MINE}").status_code == 504
            assert make(other, body(THEIRS)).json()["path"] == THEIRS


@pytest.mark.parametrize(
    ("sent", "how"),
    [
        (body(MINE, "b"), {}),  # something else
        (body("mine"), {}),
        (body(GIVEN), {}),  # the site gave it: it was chosen
        (body(MINE), {"shown": THEIRS}),  # and so was the recorded one
    ],
)
def test_what_may_have_been_chosen_is_a_miss(tmp_path: Path, sent: bytes, how: dict[str, str | int]) -> None:
    site = recorded(tmp_path / "s", **how)  # type: ignore[arg-type]
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        c.get(f"{HOST}/list")
        assert make(c, sent).status_code == 504


@pytest.mark.parametrize("where", ["referer", "unseen"])
def test_so_is_what_the_page_is_about(tmp_path: Path, where: str) -> None:
    """Named by the page that asks; or, of the recorded one, by an answer that this session was not given."""
    site = recorded(tmp_path / "s", shown=THEIRS if where == "unseen" else GIVEN)
    fields = {"Content-Type": "application/json"}
    if where == "referer":
        fields["Referer"] = f"{HOST}/of/{MINE}"
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.post(f"{HOST}/list", content=body(MINE), headers=fields).status_code == 504


WORD, OWN_WORD = "mQ4zR8vK2xT7wB1nY6pL", "hG3sJ9dF5kC0bN8vX2zQ"
PAGE = (("Sec-Fetch-Dest", "empty"),)


def visited(
    path: Path, *requests: tuple[str, object, object], fields: tuple[tuple[str, str], ...] = ()
) -> Site:
    """Requests by address and JSON, and what each was answered."""
    site = Site(path)
    for address, sent, answer in requests:
        sending = (JSON, json.dumps(sent).encode()) if sent is not None else ((), b"")
        site.add(f"{HOST}{address}", json.dumps(answer).encode(), method="GET" if sent is None else "POST", headers=JSON, request_headers=(*sending[0], *fields), request_body=sending[1])  # fmt: skip
    return site


def say(c: httpx.Client, address: str, sent: object) -> object:
    found = c.get(f"{HOST}{address}") if sent is None else c.post(f"{HOST}{address}", json=sent)
    return found.json() if found.status_code == 200 else found.status_code


@pytest.mark.parametrize(("theirs", "mine"), [(THEIRS, MINE), (WORD, OWN_WORD)])
def test_an_id_that_a_client_draws_and_sends_again_is_the_recorded_one(
    tmp_path: Path, theirs: str, mine: str
) -> None:
    def visit(one: str) -> list[tuple[str, object, object]]:
        return [
            ("/add", {"cart": one, "item": "tea"}, ["tea"]),
            (f"/cart?c={one}", None, {"cart": one, "items": ["tea"]}),
        ]

    site = visited(tmp_path / "s", *visit(theirs))
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert [say(c, address, sent) for address, sent, _ in visit(mine)] == [a for *_, a in visit(mine)]
        assert {(e["verdict"], e["ambiguous"]) for e in gateway.ledger.entries()} == {("rule:visit-id", True)}


@pytest.mark.parametrize(
    ("recorded", "fields", "asked", "answer"),
    [
        ([({"id": THEIRS}, "ok"), ({"id": GIVEN}, "ok")], (), {"id": MINE}, "ok"),  # drawn for each request
        ([({"id": THEIRS}, "tea"), ({"id": GIVEN}, "rum")], (), {"id": MINE}, 504),
        ([({"id": THEIRS}, "tea"), ({"id": GIVEN}, "rum")], PAGE, {"id": MINE}, 504),
        ([({"id": THEIRS}, "tea")], (), {"id": MINE}, 504),  # by a program that may know it
        ([({"id": THEIRS}, "tea")], PAGE, {"id": MINE}, "tea"),
        ([({"parcel": WORD}, "tea")], PAGE, {"parcel": OWN_WORD}, 504),  # its number may have been typed
        ([({"password": WORD}, "tea")], PAGE, {"password": OWN_WORD}, 504),
    ],
)
def test_an_id_in_whose_place_no_other_was_answered_otherwise_chooses_nothing(
    tmp_path: Path, recorded: list[tuple[object, object]], fields: Any, asked: object, answer: object
) -> None:
    site = visited(tmp_path / "s", *[("/q", sent, told) for sent, told in recorded], fields=fields)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert [say(c, "/q", asked) for _ in range(2)] == [answer, answer]


def beats(one: str, *, told: str = "") -> list[tuple[str, object, object]]:
    """Gradio's calls: its page draws a word of eleven characters or so, which its server never repeats."""
    return [
        (f"/beat/{one}", None, "alive"),
        ("/join", {"data": ["camping"], "run": one}, {"told": told}),
        (f"/news?run={one}", None, ["camping", 45]),
        ("/join", {"data": ["electric"], "run": one}, {"told": ""}),
        (f"/news?run={one}", None, ["electric", 60]),
    ]


SHORT = "xuens9vj36"


@pytest.mark.parametrize("mine", ["6ieyyj02nes", "qptazyplfh"])
def test_a_short_word_that_a_page_draws_and_sends_in_many_places_is_the_recorded_one(
    tmp_path: Path, mine: str
) -> None:
    both = [*beats(SHORT), *beats("7k6nhvw0t")]
    with visited(tmp_path / "s", *both, fields=PAGE).open() as snapshot, Gateway(snapshot) as gateway:
        with client(gateway, "p", headers=dict(PAGE)) as c:
            for one in (mine, "m3n8q2z5t1"):  # the page is loaded anew
                assert [say(c, address, sent) for address, sent, _ in beats(one)] == [
                    a for *_, a in beats(one)
                ]
        assert {(e["verdict"], e["confidence"]) for e in gateway.ledger.entries()} == {("rule:visit-id", 0.7)}


@pytest.mark.parametrize(
    ("recorded", "fields", "mine"),
    [
        (beats(SHORT), (), "6ieyyj02nes"),  # by a program that may know it
        (beats(SHORT), (("Sec-Fetch-Dest", "document"),), "6ieyyj02nes"),  # an address that was typed
        (beats(SHORT, told=SHORT), PAGE, "6ieyyj02nes"),  # what an answer names is something
        (beats("kettles"), PAGE, "teapots"),
        (beats(SHORT)[:2], PAGE, "6ieyyj02nes"),
        (beats(SHORT), PAGE, "Kettle-Of-Ada"),  # drawn otherwise
    ],
)
def test_a_short_word_that_may_have_been_chosen_is_a_miss(
    tmp_path: Path, recorded: Any, fields: Any, mine: str
) -> None:
    site = visited(tmp_path / "s", *recorded, fields=fields)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, headers=dict(fields)) as c:
        assert {say(c, address, sent) for address, sent, _ in beats(mine)[:2]} == {504}


def test_an_id_that_is_drawn_beside_the_moment_is_the_recorded_one(tmp_path: Path) -> None:
    def event(one: str, seconds: float) -> dict[str, object]:
        return {"visit": one, "since": int(seconds * 1000)}

    site = visited(tmp_path / "s", ("/event", event(THEIRS, START.timestamp()), "ok"), fields=PAGE)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert say(c, "/event", event(MINE, time.time())) == "ok"
        assert say(c, "/event", event(MINE, START.timestamp() - 86400)) == 504
        assert [e["verdict"] for e in gateway.ledger.entries()] == ["rule:visit-id+timestamp", "miss"]


def test_an_id_under_a_name_that_a_rule_knows_is_left_to_the_rule(tmp_path: Path) -> None:
    def asked(one: str) -> str:
        return f"/list?request_id={one}"

    site = visited(tmp_path / "s", (asked(THEIRS), None, "ok"), (asked(GIVEN), None, "ok"))
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert say(c, asked(MINE), None) == "ok"
        assert [e["verdict"] for e in gateway.ledger.entries()] == ["rule:request-id"]


def test_a_secret_that_is_drawn_for_each_request_is_any_of_those_that_were_answered_alike(
    tmp_path: Path,
) -> None:
    key = Redactor(b"k" * 32)
    words = random.Random(1)
    recorded = [key.url(f"/pay?token={words.randbytes(16).hex()}") for _ in range(4)]
    site = visited(tmp_path / "s", *[(address, None, "ok") for address in recorded])
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert say(c, f"/pay?token={words.randbytes(16).hex()}", None) == "ok"


@pytest.mark.parametrize("accept", ["varies", "rule+unambiguous"])
def test_without_a_rule_ids_count(tmp_path: Path, accept: str) -> None:
    with (
        recorded(tmp_path / "s").open() as snapshot,
        Gateway(snapshot, accept=accept) as gateway,
        client(gateway, "p") as c,
    ):
        assert make(c, body(MINE)).status_code == 504


def test_what_was_made_once_is_not_made_twice(tmp_path: Path) -> None:
    with recorded(tmp_path / "s").open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert [make(c, body(one)).status_code for one in (MINE, GIVEN.replace("2", "3"))] == [201, 504]


CALL = {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"id": 1}}


@pytest.mark.parametrize(
    ("recorded", "answer", "asked", "told"),
    [
        (CALL, {"jsonrpc": "2.0", "id": 1, "result": {"id": 1}}, {**CALL, "id": "a-2"}, {"jsonrpc": "2.0", "id": "a-2", "result": {"id": 1}}),
        ([CALL, {**CALL, "id": 2}], [{"id": 2}, {"id": 1}], [{**CALL, "id": 8}, {**CALL, "id": 9}], [{"id": 9}, {"id": 8}]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_the_id_of_a_call_is_the_one_that_was_asked_with(
    tmp_path: Path, recorded: object, answer: object, asked: object, told: object, packed: bool
) -> None:
    site, text = Site(tmp_path / "s"), json.dumps(answer).encode()
    site.add(f"{HOST}/rpc", gzip.compress(text) if packed else text, method="POST", headers=PACKED if packed else JSON, request_headers=JSON, request_body=json.dumps(recorded).encode())  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.post(f"{HOST}/rpc", json=asked).json() == told
        (line,) = gateway.ledger.entries()
        assert (line["verdict"], line.get("derived")) == ("rule:json-rpc", "ids")


def test_each_line_is_a_call_of_its_own(tmp_path: Path) -> None:
    """JSON-RPC by lines, as agents' servers speak it by HTTP, too."""

    def lines(*values: object) -> bytes:
        return b"".join(json.dumps(value).encode() + b"\n" for value in values)

    site, media = Site(tmp_path / "s"), (("Content-Type", "application/x-ndjson"),)
    site.add(f"{HOST}/rpc", lines({"id": 1, "result": {"id": 1}}, {"id": 2}), method="POST", headers=media, request_headers=media, request_body=lines(CALL, {**CALL, "id": 2}))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        asked = lines({**CALL, "id": "a"}, {**CALL, "id": 9})
        assert c.post(f"{HOST}/rpc", content=asked, headers=dict(media)).content == lines({"id": "a", "result": {"id": 1}}, {"id": 9})  # fmt: skip
        other = lines({**CALL, "id": "a"}, {**CALL, "method": "n"})
        assert c.post(f"{HOST}/rpc", content=other, headers=dict(media)).status_code == 504


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_id_of_a_request_is_mirrored(tmp_path: Path, method: str) -> None:
    """Some servers repeat `X-Request-Id` in a field, some in the body, most in neither."""
    site, name = Site(tmp_path / "s"), "X-Correlation-ID"

    def text(one: str) -> bytes:
        return json.dumps({"error": {"trace": one}, "of": MADE}).encode()

    site.add(f"{HOST}/both", text(THEIRS), method=method, headers=(*JSON, (name, THEIRS)), request_headers=((name, THEIRS),))  # fmt: skip
    site.add(f"{HOST}/none", text(MADE), method=method, headers=JSON, request_headers=((name, THEIRS),))
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        for one in (MINE, GIVEN, THEIRS):
            told = c.request(method, f"{HOST}/both", headers={name: one})
            assert (told.content, told.headers[name]) == (text(one), one)
        assert c.request(method, f"{HOST}/none", headers={name: MINE}).content == text(MADE)
        assert not [e for e in gateway.ledger.entries() if e["verdict"] != "exact"]


def test_the_parts_of_a_batch_are_named_as_its_client_named_them(tmp_path: Path) -> None:
    """Google's APIs answer each part under `response-` and its Content-ID."""

    def batch(boundary: str, one: str) -> bytes:
        return f"--{boundary}\r\nContent-ID: <{one} + 1>\r\n\r\nGET /a\r\n--{boundary}--".encode()

    def fields(boundary: str) -> tuple[tuple[str, str], ...]:
        return (("Content-Type", f"multipart/mixed; boundary={boundary}"),)

    site, address = Site(tmp_path / "s"), f"{HOST}/batch"
    site.add(address, batch("r", f"response-{THEIRS}"), method="POST", headers=fields("r"), request_headers=fields("a"), request_body=batch("a", THEIRS))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        told = c.post(address, content=batch("b", MINE), headers=dict(fields("b"))).content
        assert told == batch("r", f"response-{MINE}")


@pytest.mark.parametrize(("asked", "told"), [("72", b'{"id": 72}'), ("a-2", b'{"id": "a-2"}')])
def test_a_call_by_get_has_its_id_in_the_query(tmp_path: Path, asked: str, told: bytes) -> None:
    site = Site(tmp_path / "s")
    site.add(f"{HOST}/rpc?jsonrpc=2.0&method=m&id=7", b'{"id": 7}', headers=JSON)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.get(f"{HOST}/rpc?jsonrpc=2.0&method=m&id={asked}").content == told


@pytest.mark.parametrize(
    ("media", "was", "recorded", "asked", "told"),
    [
        ("application/javascript", "callback=jQuery1_2", 'jQuery1_2({"of": "jQuery1_2"})', "callback=jQuery3_4", 'jQuery3_4({"of": "jQuery1_2"})'),
        ("text/javascript", "jsonp=__jp0", "/**/ typeof __jp0 === 'function' && __jp0([1]);", "jsonp=__jp7", "/**/ typeof __jp7 === 'function' && __jp7([1]);"),
        ("text/event-stream", "callback=cb1", "data: cb1\n\n", "callback=cb2", "data: cb1\n\n"),
        ("application/json", "callback=cb1", "cb1([1])", "callback=cb2", "cb2([1])"),
        ("text/javascript; charset=iso-8859-1", "callback=cb1", "cb1('\udce9')", "callback=cb2", "cb2('\udce9')"),
        ("text/javascript", "var=jsonp_1", "var jsonp_1 = {};", "var=jsonp_2", "var jsonp_2 = {};"),
        ("text/javascript", "callback=cb1", f"cb1('{NOISE}')", "callback=cb2", f"cb2('{NOISE}')"),
    ],
)  # fmt: skip
def test_a_script_calls_the_function_that_was_asked_for(
    tmp_path: Path, media: str, was: str, recorded: str, asked: str, told: str
) -> None:
    site = Site(tmp_path / "s")
    site.add(f"{HOST}/q?{was}", _bytes(recorded), headers=(("Content-Type", media),))
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.get(f"{HOST}/q?{asked}").content == _bytes(told)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def test_a_call_is_answered_by_its_id_whatever_rule_joined_it_and_whatever_the_media_type(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path / "s")
    call = {"jsonrpc": "2.0", "id": 0.8444218515250481, "method": "m"}
    site.add(f"{HOST}/rpc", b'{"id":0.8444218515250481,"result":1}', method="POST", headers=(("Content-Type", "text/plain"),), request_headers=JSON, request_body=json.dumps(call).encode())  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        told = c.post(f"{HOST}/rpc", json={**call, "id": 0.7579544029403025}).text
        assert json.loads(told) == {"id": 0.7579544029403025, "result": 1}


def test_a_sign_in_comes_back_with_the_state_that_its_client_drew(tmp_path: Path) -> None:
    """OAuth 2 with PKCE: a client that finds another state in the redirect gives up (RFC 6749, 10.12)."""
    site = Site(tmp_path / "s")
    asked, back, token = f"{HOST}/authorize", "http://app.test/cb?code=9f8e7d6c", f"{HOST}/token"
    form = (("Content-Type", "application/x-www-form-urlencoded"),)

    def query(state: str, challenge: str) -> str:
        return f"?client_id=a&response_type=code&state={state}&code_challenge={challenge}"

    def grant(verifier: str) -> bytes:
        return f"grant_type=authorization_code&code=9f8e7d6c&code_verifier={verifier}".encode()

    theirs, mine = "xK3mQ9vB2nL8pR5t", "aB7cD2eF9gH4iJ6k"
    site.add(asked + query(theirs, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"), b"", status=302, headers=(("Location", f"{back}&state={theirs}"),))  # fmt: skip
    site.add(f"{back}&state={theirs}", b"signed in")
    site.add(token, b'{"scope": "openid"}', method="POST", request_headers=form, request_body=grant("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        found = c.get(asked + query(mine, "Q9Nelhob3PxwGsFNUKhvDIbpfL2u9VSXcvHKTtux-dN"))
        assert found.headers["location"] == f"{back}&state={mine}"
        assert c.get(found.headers["location"]).text == "signed in"
        told = c.post(token, content=grant("eCkguKfA5DWQ-nC03L38vicVKV2q2s_xX2hGXGPFkYl"), headers=dict(form))
        assert told.json() == {"scope": "openid"}
        assert {e["verdict"] for e in gateway.ledger.entries()} == {"rule:oauth"}
        forged = c.get(f"{back}&state={mine[::-1]}")  # no answer led there (RFC 6749, 10.12)
        assert (forged.status_code, "query state" in forged.text) == (504, True)


def test_a_soap_answer_relates_to_the_message_that_was_sent(tmp_path: Path) -> None:
    def message(one: str) -> bytes:
        return f"<s:Envelope><s:Header><a:MessageID>{one}</a:MessageID></s:Header><s:Body/></s:Envelope>".encode()

    first, second = f"urn:uuid:{THEIRS}", f"urn:uuid:{MINE}"
    media = (("Content-Type", "text/xml"),)
    site = Site(tmp_path / "s")
    site.add(f"{HOST}/svc", f"<a:RelatesTo>{first}</a:RelatesTo>".encode(), method="POST", headers=media, request_headers=media, request_body=message(first))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        for sent in (message(second), message(f"<![CDATA[{second}]]>")):
            found = c.post(f"{HOST}/svc", content=sent, headers={"Content-Type": "text/xml"})
            assert found.text == f"<a:RelatesTo>{second}</a:RelatesTo>"


def test_a_message_of_ebms_is_referred_to_by_its_id(tmp_path: Path) -> None:
    def message(one: str, at: str) -> bytes:
        return f"<Envelope><Header><e:Timestamp>{at}</e:Timestamp><e:MessageId>{one}@a</e:MessageId></Header></Envelope>".encode()

    media = (("Content-Type", "text/xml"),)
    site = Site(tmp_path / "s")
    site.add(f"{HOST}/as4", f"<e:RefToMessageId>{THEIRS}@a</e:RefToMessageId>".encode(), method="POST", headers=media, request_headers=media, request_body=message(THEIRS, "2024-05-01T10:00:00Z"))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        found = c.post(f"{HOST}/as4", content=message(MINE, "2026-01-02T03:04:05Z"), headers=dict(media))
        assert found.text == f"<e:RefToMessageId>{MINE}@a</e:RefToMessageId>"


@pytest.mark.parametrize("method", ["PUT", "MKCOL"])
def test_the_address_of_what_a_client_puts_there_is_its_own(tmp_path: Path, method: str) -> None:
    site = Site(tmp_path / "s")
    site.add(f"{HOST}/things/{THEIRS}", b'{"name":"a"}', method=method, status=201, headers=JSON, request_headers=JSON, request_body=b'{"name":"a"}')  # fmt: skip
    site.add(f"{HOST}/things/{THEIRS}", body(THEIRS), headers=JSON)
    site.add(f"{HOST}/things/{GIVEN}", b'{"name":"b"}', method="PUT", headers=JSON, request_headers=JSON, request_body=b'{"name":"b"}')  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.get(f"{HOST}/things/{MINE}").status_code == 504
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.put(f"{HOST}/things/{MINE}", json={"name": "b"}).status_code == 504  # it was there before
        assert c.request(method, f"{HOST}/things/{MINE}", json={"name": "a"}).status_code == 201
        assert c.get(f"{HOST}/things/{MINE}").content == body(MINE)
        assert [e["ambiguous"] for e in gateway.ledger.entries() if e["status"] != 504] == [True, True]


@pytest.mark.parametrize(
    ("theirs", "mine", "drawn"),
    [
        ("0b0e2a0c-98a4-0c0f-1d9f-6d0b1a2c3d4e", "1c1f3b1d-a9b5-fd1a-3eae-7e1c2b3d4e5f", True),  # Radicale's
        ("65f1a2b3c4d5e6f708192a3b", "6601b2c3d4e5f60718293a4c", True),  # MongoDB's
        ("V1StGXR8_Z5jdHi6B-myT.ics", "x2Uu-HYS9_A6keIj7C-nz.ics", True),
        ("d41d8cd98f00b204e9800998ecf8427e", "900150983cd24fb0d6963f7d28e17f72", False),  # digests
        ("5df41881-3aed-3515-88a7-2f4a814cf09e", "2ed6657d-e927-568b-95e1-2665a8aea6a2", False),
        ("the-first-of-my-pages-2024", "the-other-of-my-pages-2025", False),
        ("AnnualReport2019Final", "AnnualReport2020Final", False),
    ],
)
def test_a_client_draws_names_of_many_forms(tmp_path: Path, theirs: str, mine: str, drawn: bool) -> None:
    site, listed = Site(tmp_path / "s"), (("Content-Type", "text/xml"),)
    site.add(f"{HOST}/c/{theirs}", method="PUT", status=201, request_body=b"a", headers=(("Location", f"/c/{theirs}"),))  # fmt: skip
    site.add(f"{HOST}/c/", f"<href>/c/{theirs}</href>".encode(), method="PROPFIND", headers=listed)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        made = c.put(f"{HOST}/c/{mine}", content=b"a")
        assert (made.status_code, made.headers.get("location")) == ((201, f"/c/{mine}") if drawn else (504, None))  # fmt: skip
        if drawn:
            assert c.request("PROPFIND", f"{HOST}/c/").text == f"<href>/c/{mine}</href>"
            assert c.put(f"{HOST}/c/{mine}0", content=b"a").status_code == 504


def test_a_form_may_name_what_it_makes(tmp_path: Path) -> None:
    site, form = Site(tmp_path / "s"), (("Content-Type", "application/x-www-form-urlencoded"),)
    site.add(f"{HOST}/things", THEIRS.encode(), method="POST", status=201, headers=(("Content-Type", "text/plain"),), request_headers=form, request_body=f"x={THEIRS}".encode())  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.post(f"{HOST}/things", data={"x": MINE}).text == MINE


def test_an_answer_repeats_the_id_of_a_mutation_at_any_depth(tmp_path: Path) -> None:
    def mutation(one: str) -> bytes:
        return json.dumps({"query": "m", "variables": {"input": {"clientMutationId": one, "n": 1}}}).encode()

    site = Site(tmp_path / "s")
    site.add(f"{HOST}/graphql", b'{"data":{"add":{"clientMutationId":"1","n":1}}}', method="POST", headers=JSON, request_headers=JSON, request_body=mutation("1"))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        found = c.post(f"{HOST}/graphql", content=mutation("x7"), headers=dict(JSON))
        assert found.json() == {"data": {"add": {"clientMutationId": "x7", "n": 1}}}


def prompt(*tabs: str) -> bytes:
    text = "\n".join(f"Tab {tab}: http://b.test/{number}" for number, tab in enumerate(tabs))
    asked = [{"role": "user", "content": text}, {"role": "user", "content": f"Go on from {tabs[0]}."}]
    return json.dumps({"model": "m", "messages": asked}).encode()


def said(text: str) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": {"content": text}}]}).encode()


def streamed(*texts: str) -> bytes:
    events = ({"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts)
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def json_of(answer: bytes) -> list[object]:
    lines = (line.removeprefix("data: ") for line in answer.decode().splitlines())
    return [json.loads(line) if line.startswith("{") else line for line in lines]


SWITCH = '{"memory":"open:\\n%s","tab_id":"%s","not":"%s0"}'


@pytest.mark.parametrize(
    ("media", "answer", "told"),
    [
        ("application/json", said(SWITCH % ("07BD", "5C1E", "5C1E")), said(SWITCH % ("5C1E", "A001", "5C1E"))),
        ("text/event-stream", streamed("to 5", "C1", "E, 07BD", ".0"), streamed("to A", "00", "1, 5C1E", ".0")),
        ("application/json", b'{"choices": [ ]}', b'{"choices": [ ]}'),
    ],
)  # fmt: skip
def test_a_model_speaks_of_the_tabs_that_the_prompt_names(
    tmp_path: Path, media: str, answer: bytes, told: bytes
) -> None:
    """Chromium draws the ids of tabs anew in each replay, and the agent is to switch to its own."""
    site, url = Site(tmp_path / "s"), f"{HOST}/v1/chat/completions"
    site.add(url, answer, method="POST", headers=(("Content-Type", media),), request_headers=JSON, request_body=prompt("5C1E", "07BD"))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway:
        for session, tabs, wanted in (("p", ("A001", "5C1E"), told), ("q", ("5C1E", "07BD"), answer)):
            with client(gateway, session) as c:
                found = c.post(url, content=prompt(*tabs), headers=dict(JSON)).content
                assert json_of(found) == json_of(wanted)
        verdicts = [(e["verdict"], e["ambiguous"]) for e in gateway.ledger.entries()]
        assert verdicts == [("rule:handle", True), ("exact", False)]


@pytest.mark.parametrize("media", ["application/vnd.amazon.eventstream", "text/event-stream"])
def test_an_answer_in_which_its_tabs_can_not_be_named_is_a_miss(tmp_path: Path, media: str) -> None:
    site, url = Site(tmp_path / "s"), f"{HOST}/v1/chat/completions"
    answer = streamed("to 5C1E", "0 or 5C1E?") if media.startswith("text") else b"\x00\xff 5C1E"
    site.add(url, answer, method="POST", headers=(("Content-Type", media),), request_headers=JSON, request_body=prompt("5C1E"))  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        missed = c.post(url, content=prompt("A001"), headers=dict(JSON))
        assert missed.status_code == 504
        assert "5C1E" in missed.text


@pytest.mark.parametrize("scheme", ["NTLM", "Negotiate"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_handshake_of_ntlm_is_followed_whatever_its_client_draws(
    tmp_path: Path, scheme: str, method: str
) -> None:
    """NTLM's third message holds an answer to the challenge and the client's own chance ([MS-NLMP], 2.2.1.3); a POST has its body only then."""

    def message(kind: int, chance: bytes = b"") -> str:
        return f"{scheme} {base64.b64encode(b'NTLMSSP' + bytes([0, kind, 0, 0, 0]) + chance).decode()}"

    url, told = "http://h.example/list", message(2, b"srvchall")
    site, body = Site(tmp_path / "s"), b"a=1" if method == "POST" else b""
    site.add(url, b"who?", method=method, status=401, headers=(("WWW-Authenticate", scheme),))
    site.add(url, b"", method=method, status=401, headers=(("WWW-Authenticate", told),), request_headers=(("Authorization", message(1)),))  # fmt: skip
    site.add(url, b"the list", method=method, request_headers=(("Authorization", message(3, b"one-chance")),), request_body=body)  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:

        def ask(authorization: str, sent: bytes) -> httpx.Response:
            return c.request(method, url, content=sent, headers={"Authorization": authorization})

        assert c.request(method, url).headers["www-authenticate"] == scheme
        assert ask(message(1), b"").headers["www-authenticate"] == told
        assert ask(message(3, b"other-chance"), body).text == "the list"
