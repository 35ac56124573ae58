"""Near-duplicate requests, generated: pairs that must be the same request and pairs that must not."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, islice
from urllib.parse import quote, urlencode
from uuid import UUID

from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets.detect import drawn, secret_field
from tests.support.drawing import document, fields, text, url, word

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


@dataclass(frozen=True)
class Pair:
    """Two requests; `same` says whether the first one's answer answers the second."""

    kind: str
    recorded: Request
    asked: Request
    same: bool


def pairs(count: int, seed: int = 1) -> Iterator[Pair]:
    """Pairs of every kind in turn, each drawn anew."""
    draw = random.Random(seed)
    kinds = [*JOIN, *APART]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        recorded, asked = kind(draw)
        if draw.random() < 0.5:
            recorded, asked = asked, recorded
        yield Pair(kind.__name__, recorded, asked, kind in JOIN)


def with_body(draw: random.Random, body: bytes, media: str, address: str = "", method: str = "") -> Request:
    return Request(method or draw.choice(METHODS[1:]), address or url(draw), (("Content-Type", media),), body)


def other(
    request: Request,
    *,
    url: str | None = None,
    body: bytes | None = None,
    headers: Headers | None = None,
    method: str | None = None,
) -> Request:
    return Request(
        method or request.method,
        request.url if url is None else url,
        request.headers if headers is None else headers,
        request.body if body is None else body,
    )


def multipart(parts: list[tuple[str, str, str]], boundary: str) -> tuple[bytes, str]:
    out = ""
    for name, filename, content in parts:
        file = f'; filename="{filename}"\r\nContent-Type: text/plain' if filename else ""
        out += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{content}\r\n'
    return (out + f"--{boundary}--\r\n").encode(), f"multipart/form-data; boundary={boundary}"


Made = tuple[Request, Request]

# -- the same


def query_in_another_order(draw: random.Random) -> Made:
    items = [f"{quote(n)}={quote(v)}" for n, v in fields(draw)]
    base = url(draw)
    shuffled = draw.sample(items, len(items))
    return Request("GET", f"{base}?{'&'.join(items)}"), Request("GET", f"{base}?{'&'.join(shuffled)}")


def url_in_other_words(draw: random.Random) -> Made:
    host, path = word(draw), word(draw)
    plain = f"http://{host}.test/{path}"
    odd = draw.choice(
        [
            f"HTTP://{host.upper()}.Test/{path}",
            f"http://{host}.test:80/{path}",
            f"http://{host}.test/x/../{path}",
            f"{plain}#part",
        ]
    )
    method = draw.choice(METHODS)
    return Request(method, plain), Request(method, odd)


def other_headers(draw: random.Random) -> Made:
    address = url(draw)
    return Request("GET", address, (("User-Agent", "a"), ("Accept-Encoding", "br"))), Request("GET", address)


def json_in_other_words(draw: random.Random) -> Made:
    told = document(draw)
    names = draw.sample(sorted(told), len(told))
    mixed = {n: told[n] for n in names}
    one = with_body(draw, json.dumps(told).encode(), JSON)
    body = json.dumps(mixed, indent=draw.choice([None, 2]), ensure_ascii=draw.random() < 0.5).encode()
    return one, other(one, body=body, headers=(("content-type", "application/json; charset=UTF-8"),))


def number_in_other_words(draw: random.Random) -> Made:
    one = with_body(draw, b'{"n":[1.0,100,1e2]}', JSON)
    return one, other(one, body=b'{"n":[1,1e2,100.0]}')


def form_in_another_order(draw: random.Random) -> Made:
    items = fields(draw)
    one = with_body(draw, urlencode(items).encode(), FORM)
    return one, other(one, body=urlencode(draw.sample(items, len(items)), quote_via=quote).encode())


def multipart_with_another_boundary(draw: random.Random) -> Made:
    parts = [(word(draw, 2), draw.choice(["", "a.txt"]), text(draw)) for _ in range(3)]
    body, media = multipart(parts, "----A" + word(draw, 8))
    one = with_body(draw, body, media)
    body, media = multipart(draw.sample(parts, 3), "----B" + word(draw, 8))
    return one, other(one, body=body, headers=(("Content-Type", media),))


def parts_with_drawn_ids(draw: random.Random) -> Made:
    address, said = url(draw), text(draw)

    def batch(boundary: str) -> Request:
        parts = f"--{boundary}\r\nContent-ID: <{UUID(int=draw.getrandbits(128), version=4)} + 1>\r\n\r\n{said}\r\n--{boundary}--"
        return with_body(draw, parts.encode(), f"multipart/mixed; boundary={boundary}", address, "POST")

    return batch("one"), batch("two")


def cache_buster(draw: random.Random) -> Made:
    base, name = url(draw, "x=1"), draw.choice(["_", "_dc", "nocache", "cb"])
    return tuple(Request("GET", f"{base}&{name}={draw.randint(10**12, 4 * 10**12)}") for _ in range(2))  # type: ignore[return-value]


def poll_again(draw: random.Random) -> Made:
    base = url(draw, f"EIO={draw.choice('34')}&transport=polling")
    return tuple(Request("GET", f"{base}&t={draw.getrandbits(40):x}") for _ in range(2))  # type: ignore[return-value]


def channel_asked_again(draw: random.Random) -> Made:
    base = url(draw, f"VER=8&SID={word(draw)}")
    drawn = (f"&RID={draw.randint(0, 99_999)}&zx={draw.getrandbits(60):x}" for _ in range(2))
    return tuple(Request("GET", base + one) for one in drawn)  # type: ignore[return-value]


def clock(draw: random.Random) -> Made:
    base, name = url(draw, "x=1"), draw.choice(["ts", "_t", "timestamp"])
    return tuple(Request("GET", f"{base}&{name}={draw.randint(10**12, 4 * 10**12)}") for _ in range(2))  # type: ignore[return-value]


def clock_without_a_name(draw: random.Random) -> Made:
    base, low = url(draw, "x=1"), draw.choice([10**12, 13 * 10**8])
    return tuple(Request("GET", f"{base}&{draw.randint(low, low * 3 // 2)}") for _ in range(2))  # type: ignore[return-value]


def campaign(draw: random.Random) -> Made:
    base = url(draw, "x=1")
    name = draw.choice(["utm_source", "gclid", "fbclid", "msclkid"])
    return Request("GET", base), Request("GET", f"{base}&{name}={word(draw)}")


def question_to_a_model(draw: random.Random) -> Made:
    drawn_by_chance = document(
        draw
    )  # a name may be a password's, whose value the recorder would have replaced
    told = {name: value for name, value in drawn_by_chance.items() if not secret_field(name, "x")}
    one, two = (
        json.dumps({**told, "prompt_cache_key": f"agents-sdk:run:{draw.getrandbits(128):032x}"})
        for _ in range(2)
    )
    asked = with_body(draw, one.encode(), JSON, method="POST")
    return asked, other(asked, body=two.encode())


def told_to_a_model(told: str, moment: datetime) -> bytes:
    return json.dumps(
        {"model": "m", "messages": [{"role": "system", "content": f"{told} {moment:%c}"}]}
    ).encode()


def moments(draw: random.Random) -> list[datetime]:
    return [datetime.fromtimestamp(n, UTC) for n in draw.sample(range(10**9, 2 * 10**9), 2)]


def day_told_to_a_model(draw: random.Random) -> Made:
    one, two = (told_to_a_model("The current time is", moment) for moment in moments(draw))
    asked = with_body(draw, one, JSON, method="POST")
    return asked, other(asked, body=two)


def sender_of_a_question(draw: random.Random) -> Made:
    told = document(draw) | {"model": "m", "messages": []}
    one, two = (
        json.dumps({**told, "metadata": {"user_id": f"session_{draw.getrandbits(128):032x}"}})
        for _ in range(2)
    )
    asked = with_body(draw, one.encode(), JSON, method="POST")
    return asked, other(asked, body=two.encode())


def number_drawn_under_any_name(draw: random.Random) -> Made:
    one, two = (Request("GET", f"http://a.test/d?id=7&spin={draw.random():.16f}") for _ in range(2))
    return one, two


def clock_under_any_name(draw: random.Random) -> Made:
    one, two = (
        Request("GET", f"http://a.test/d?fresh={draw.randrange(16 * 10**11, 19 * 10**11)}") for _ in range(2)
    )
    return one, two


def callback_of_a_script(draw: random.Random) -> Made:
    one, two = (
        Request("GET", f"http://a.test/d?q=1&callback=jQuery{draw.getrandbits(60)}") for _ in range(2)
    )
    return one, two


def call_with_an_id(draw: random.Random) -> Made:
    bodies = [{"jsonrpc": "2.0", "id": draw.getrandbits(40), "method": "get"} for _ in range(2)]
    one, two = (with_body(draw, json.dumps(b).encode(), JSON, "http://a.test/rpc", "POST") for b in bodies)
    return one, two


def mutation_with_an_id(draw: random.Random) -> Made:
    bodies = [
        {"query": "mutation", "variables": {"input": {"n": 1, "clientMutationId": draw.getrandbits(40)}}}
        for _ in range(2)
    ]
    one, two = (
        with_body(draw, json.dumps(b).encode(), JSON, "http://a.test/graphql", "POST") for b in bodies
    )
    return one, two


def address_signed_in_a_way_of_its_own(draw: random.Random) -> Made:
    one, two = (
        Request(
            "GET",
            f"http://a.test/k?until=x&expires={draw.randrange(17 * 10**8, 19 * 10**8)}&sign={draw.getrandbits(90):032x}",
        )
        for _ in range(2)
    )
    return one, two


def sign_in_with_a_drawn_state(draw: random.Random) -> Made:
    drawn_anew = [f"a1{draw.getrandbits(128):032x}" for _ in range(2)]
    one, two = (Request("GET", f"http://a.test/authorize?client_id=c&response_type=code&state={state}") for state in drawn_anew)  # fmt: skip
    return one, two


def sign_in_by_saml(draw: random.Random) -> Made:
    said = [f'<AuthnRequest ID="_{draw.getrandbits(60)}"/>'.encode() for _ in range(2)]
    one, two = (Request("GET", f"http://a.test/sso?SAMLRequest={quote(b64encode(text))}") for text in said)
    return one, two


def form_with_a_solved_captcha(draw: random.Random) -> Made:
    bodies = [f"q=1&g-recaptcha-response=03AFcWeA{draw.getrandbits(200):050x}" for _ in range(2)]
    one, two = (with_body(draw, body.encode(), FORM, "http://a.test/f", "POST") for body in bodies)
    return one, two


def message_with_an_id(draw: random.Random) -> Made:
    texts = [
        f"<e:Envelope><e:Header><MessageID>{draw.getrandbits(60)}</MessageID></e:Header><e:Body/></e:Envelope>"
        for _ in range(2)
    ]
    one, two = (with_body(draw, text.encode(), "text/xml", "http://a.test/svc", "POST") for text in texts)
    return one, two


def address_signed_anew(draw: random.Random) -> Made:
    one, two = (
        Request("GET", f"http://a.test/k?sv=1&sr=b&se={draw.getrandbits(30)}&sig={draw.getrandbits(90):x}")
        for _ in range(2)
    )
    return one, two


def address_signed_by_another_key(draw: random.Random) -> Made:
    one, two = (
        Request("GET", f"http://a.test/k?AWSAccessKeyId={draw.getrandbits(60)}&Expires=1&Signature=a1")
        for _ in range(2)
    )
    return one, two


def conversation_with_drawn_call_ids(draw: random.Random) -> Made:
    ids = [f"call_{draw.getrandbits(60):x}" for _ in range(2)]
    bodies = [
        {"model": "m", "messages": [{"role": "tool", "tool_call_id": one, "content": "4"}]} for one in ids
    ]
    one, two = (
        with_body(draw, json.dumps(b).encode(), JSON, "http://a.test/v1/chat/completions", "POST")
        for b in bodies
    )
    return one, two


def _prompt(draw: random.Random, *tabs: str) -> Request:
    text = f"Tab {tabs[0]}: http://a.test/\nTab {tabs[1]}: http://b.test/\nCurrent tab: {tabs[2]}"
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return with_body(draw, json.dumps(body).encode(), JSON, "http://a.test/v1/chat/completions", "POST")


def prompt_that_names_drawn_tabs(draw: random.Random) -> Made:
    a, b, c, d = (f"{one:04X}" for one in draw.sample(range(1 << 16), 4))
    return _prompt(draw, a, b, a), _prompt(draw, c, d, c)


def flags_of_an_installation(draw: random.Random) -> Made:
    one, two = (
        json.dumps({"attributes": {"id": f"{draw.getrandbits(256):064x}", "os": "a"}, "forcedVariations": {}})
        for _ in range(2)
    )
    asked = Request("POST", "http://a.test/api/eval/sdk-1", (("Content-Type", JSON),), one.encode())
    return asked, other(asked, body=two.encode())


def session_in_path(draw: random.Random) -> Made:
    base = url(draw)
    some = ("".join(draw.choice("0123456789ABCDEF") for _ in range(32)) for _ in count())
    ids = list(islice(filter(drawn, some), 2))  # of one in a hundred it does not show, which is a miss
    return Request("GET", f"{base};jsessionid={ids[0]}?a=1"), Request(
        "GET", draw.choice([f"{base}?a=1", f"{base};jsessionid={ids[1]}?a=1"])
    )


def id_of_the_request(draw: random.Random) -> Made:
    ids = ["".join(draw.choice("0123456789abcdef") for _ in range(32)) for _ in range(2)]
    one = with_body(draw, json.dumps({"q": 1, "request_id": ids[0]}).encode(), JSON)
    return one, other(one, body=json.dumps({"q": 1, "request_id": ids[1]}).encode())


def id_of_the_visit(draw: random.Random) -> Made:
    ids = [
        f"c{draw.randrange(10)}v{draw.randrange(10)}u{draw.randrange(10)}f{draw.randrange(10)}k"
        for _ in range(2)
    ]
    one = with_body(draw, json.dumps({"q": 1, "session_hash": ids[0]}).encode(), JSON)
    return one, other(one, body=json.dumps({"q": 1, "session_hash": ids[1]}).encode())


def escaped_differently(draw: random.Random) -> Made:
    base = url(draw)
    return Request("GET", f"{base}/~x?q=a%20b%c3%a9"), Request("GET", f"{base}/%7Ex?q=a+b%C3%A9")


def json_in_a_query(draw: random.Random) -> Made:
    address, asked = url(draw), document(draw)
    told = [json.dumps(asked, separators=(",", ":")), json.dumps(dict(reversed(asked.items())))]
    one, two = (Request("GET", f"{address}?{urlencode({'variables': t})}") for t in told)
    return one, two


def json_leaf_in_a_query(draw: random.Random) -> Made:
    address, asked, name = url(draw), document(draw), word(draw, 3)
    told = [json.dumps({**asked, name: leaf}) for leaf in draw.sample([1, 2, "1", "2", None, True], 2)]
    one, two = (Request("GET", f"{address}?{urlencode({'variables': t})}") for t in told)
    return one, two


def empty_query(draw: random.Random) -> Made:
    base = url(draw)
    return Request("GET", base), Request("GET", base + "?")


# -- not the same


def prompt_in_another_tab(draw: random.Random) -> Made:
    a, b, c, d = (f"{one:04X}" for one in draw.sample(range(1 << 16), 4))
    return _prompt(draw, a, b, a), _prompt(draw, c, d, d)


def another_query_value(draw: random.Random) -> Made:
    base = url(draw)
    one = word(draw)
    return Request("GET", f"{base}?page=1&q={one}"), Request("GET", f"{base}?page=2&q={one}")


def a_pair_more(draw: random.Random) -> Made:
    base = url(draw, "a=1")
    return Request("GET", base), Request("GET", base + f"&{word(draw, 2)}={word(draw)}")


def encoded_separator(draw: random.Random) -> Made:
    base = url(draw)
    return Request("GET", f"{base}?a=b%26c=d"), Request("GET", f"{base}?a=b&c=d")


def plus_and_its_escape(draw: random.Random) -> Made:
    base = url(draw)
    return Request("GET", f"{base}?a=1%2B1"), Request("GET", f"{base}?a=1+1")


def with_and_without_equals(draw: random.Random) -> Made:
    base = url(draw)
    return Request("GET", f"{base}?a"), Request("GET", f"{base}?a=")


def case_of_path_or_query(draw: random.Random) -> Made:
    base = url(draw)
    return draw.choice(
        [
            (Request("GET", base + "/ab"), Request("GET", base + "/aB")),
            (Request("GET", base + "?q=ab"), Request("GET", base + "?q=aB")),
            (Request("GET", base + "?q=ab"), Request("GET", base + "?Q=ab")),
        ]
    )


def slash_at_the_end(draw: random.Random) -> Made:
    base = url(draw)
    return Request("GET", base), Request("GET", base + "/")


def another_origin(draw: random.Random) -> Made:
    path = word(draw)
    return draw.choice(
        [
            (Request("GET", f"http://a.test/{path}"), Request("GET", f"https://a.test/{path}")),
            (Request("GET", f"http://a.test/{path}"), Request("GET", f"http://a.test:8080/{path}")),
            (Request("GET", f"http://www.a.test/{path}"), Request("GET", f"http://a.test/{path}")),
        ]
    )


def another_method(draw: random.Random) -> Made:
    one, two = draw.sample(METHODS, 2)
    address = url(draw)
    return Request(one, address), Request(two, address)


def overridden_method(draw: random.Random) -> Made:
    one = with_body(draw, b"a=1", FORM, method="POST")
    return one, other(one, headers=(*one.headers, ("X-HTTP-Method-Override", "DELETE")))


def another_form_value(draw: random.Random) -> Made:
    items = fields(draw)
    changed = [*items[:-1], (items[-1][0], items[-1][1] + "x")]
    one = with_body(draw, urlencode(items).encode(), FORM)
    return one, other(one, body=urlencode(changed).encode())


def form_value_with_separators(draw: random.Random) -> Made:
    one = with_body(draw, b"a=b%26c=d", FORM)
    return one, other(one, body=b"a=b&c=d")


def form_value_late(draw: random.Random) -> Made:
    long = "x" * draw.randint(4097, 9000)
    one = with_body(draw, f"a={long}&b=1".encode(), FORM)
    return one, other(one, body=f"a={long}&b=2".encode())


def form_pair_repeated(draw: random.Random) -> Made:
    one = with_body(draw, b"a=1&a=1", FORM)
    return one, other(one, body=b"a=1")


def json_leaf_of_another_type(draw: random.Random) -> Made:
    a, b = draw.choice([(1, "1"), (True, "true"), (None, "null"), (0, False), ([], {}), ("", None), (1, 1.5)])
    one = with_body(draw, json.dumps({"x": a}).encode(), JSON)
    return one, other(one, body=json.dumps({"x": b}).encode())


def json_leaf_elsewhere(draw: random.Random) -> Made:
    leaf = text(draw)
    one = with_body(draw, json.dumps({"a": {"x": leaf}, "b": {}}).encode(), JSON)
    return one, other(one, body=json.dumps({"a": {}, "b": {"x": leaf}}).encode())


def json_array_in_another_order(draw: random.Random) -> Made:
    one = with_body(draw, b'{"sort":["name","year"]}', JSON)
    return one, other(one, body=b'{"sort":["year","name"]}')


def json_member_twice(draw: random.Random) -> Made:
    one = with_body(draw, b'{"a":1,"a":2}', JSON)
    return one, other(one, body=draw.choice([b'{"a":2}', b'{"a":1}']))


def json_number_beyond_doubles(draw: random.Random) -> Made:
    big = draw.randint(2**53 + 2, 2**60)
    one = with_body(draw, b'{"id":%d}' % big, JSON)
    return one, other(one, body=b'{"id":%d}' % (big + 1))


def graphql_variable(draw: random.Random) -> Made:
    query = "query Q($id: ID!) { item(id: $id) { name } }"
    one = with_body(draw, json.dumps({"query": query, "variables": {"id": "1"}}).encode(), JSON)
    return one, other(one, body=json.dumps({"query": query, "variables": {"id": word(draw)}}).encode())


def view_state(draw: random.Random) -> Made:
    states = ["/wEPDwUK" + word(draw, 30, 40) + "7Ab3" for _ in range(2)]
    one = with_body(draw, urlencode({"__VIEWSTATE": states[0], "__EVENTTARGET": "next"}).encode(), FORM)
    return one, other(one, body=urlencode({"__VIEWSTATE": states[1], "__EVENTTARGET": "next"}).encode())


def multipart_content(draw: random.Random) -> Made:
    content = text(draw)
    body, media = multipart([("a", "", content), ("b", "f.txt", "1")], "----A")
    one = with_body(draw, body, media)
    change = draw.choice([("b", "f.txt", "2"), ("b", "g.txt", "1"), ("c", "f.txt", "1"), ("b", "", "1")])
    body, media = multipart([("a", "", content), change], "----A")
    return one, other(one, body=body, headers=(("Content-Type", media),))


def bytes_changed(draw: random.Random) -> Made:
    data = bytes(draw.randrange(256) for _ in range(draw.randint(5, 6000)))
    media = draw.choice(["application/octet-stream", "application/x-protobuf", "text/xml"])
    one = with_body(draw, data, media)
    at = draw.randrange(len(data))
    return one, other(one, body=data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def body_or_none(draw: random.Random) -> Made:
    one = with_body(draw, b"a=1", FORM)
    return one, other(one, body=b"")


def type_of_the_body(draw: random.Random) -> Made:
    one = with_body(draw, b'{"a":1}', JSON)
    return one, other(one, headers=(("Content-Type", "text/plain"),))


def values_that_look_volatile(draw: random.Random) -> Made:
    base = url(draw)
    a, b = draw.sample(range(1, 999), 2)
    name = draw.choice(["_", "sid", "from", "token", "width", "r"])
    if name == "from":
        a, b = 10**12 + a, 10**12 + b
    return Request("GET", f"{base}?{name}={a}"), Request("GET", f"{base}?{name}={b}")


def another_question_to_a_model(draw: random.Random) -> Made:
    one, two = (
        json.dumps({"input": said, "prompt_cache_key": "run:1"}) for said in draw.sample(range(99), 2)
    )
    asked = with_body(draw, one.encode(), JSON, method="POST")
    return asked, other(asked, body=two.encode())


def day_that_a_model_is_asked_about(draw: random.Random) -> Made:
    told = draw.choice(["What happened on", "How far is it from today to"])
    one, two = (told_to_a_model(told, moment) for moment in moments(draw))
    asked = with_body(draw, one, JSON, method="POST")
    return asked, other(asked, body=two)


Kind = Callable[[random.Random], Made]

JOIN: list[Kind] = [
    query_in_another_order, url_in_other_words, other_headers, json_in_other_words, number_in_other_words,
    form_in_another_order, multipart_with_another_boundary, parts_with_drawn_ids, cache_buster, poll_again, channel_asked_again, clock, campaign, session_in_path,
    id_of_the_request, id_of_the_visit, escaped_differently, json_in_a_query, empty_query, clock_without_a_name, question_to_a_model,
    day_told_to_a_model, sender_of_a_question, flags_of_an_installation,
    number_drawn_under_any_name, clock_under_any_name, callback_of_a_script, call_with_an_id, mutation_with_an_id,
    message_with_an_id, sign_in_with_a_drawn_state, sign_in_by_saml, form_with_a_solved_captcha, address_signed_anew, address_signed_in_a_way_of_its_own, address_signed_by_another_key,
    conversation_with_drawn_call_ids,
    prompt_that_names_drawn_tabs,
]  # fmt: skip
APART: list[Kind] = [
    another_query_value, a_pair_more, encoded_separator, plus_and_its_escape, with_and_without_equals,
    case_of_path_or_query, slash_at_the_end, another_origin, another_method, overridden_method, another_form_value,
    form_value_with_separators, form_value_late, form_pair_repeated, json_leaf_of_another_type, json_leaf_elsewhere,
    json_array_in_another_order, json_member_twice, json_number_beyond_doubles, json_leaf_in_a_query, graphql_variable, view_state,
    multipart_content, bytes_changed, body_or_none, type_of_the_body, values_that_look_volatile,
    another_question_to_a_model, day_that_a_model_is_asked_about, prompt_in_another_tab,
]  # fmt: skip
