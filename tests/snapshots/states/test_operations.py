"""Operations of GraphQL that go by a name, a number or a hash: a change may be among them, and what follows is doubted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.identity.keys import parse
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.operations import operations_of
from tests.support.memory_store import Recorded, Replay, get, html, matcher, post

URL = "http://a.test/graphql"
JSON = "application/json"
TEXTS = {
    "Cart": "query Cart { cart { items } }",
    "Item": "query Item($id: ID!) { item(id: $id) { name } }",
    "Add": "mutation Add($id: ID!) { add(id: $id) { items } }",
}
HASHES = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in TEXTS.items()}
NUMBERS = {name: str(int(found[:13], 16)) for name, found in HASHES.items()}

Call = Callable[..., Request]


def persisted(name: str, **more: Any) -> dict[str, Any]:
    return {"variables": more, "extensions": {"persistedQuery": {"version": 1, "sha256Hash": HASHES[name]}}}


def by_hash(name: str, **variables: Any) -> Request:
    return post(URL, json.dumps({"operationName": name, **persisted(name, **variables)}), JSON)


def by_hash_alone(name: str, **variables: Any) -> Request:
    return post(URL, json.dumps(persisted(name, **variables)), JSON)


def by_document(name: str, **variables: Any) -> Request:
    return post(URL, json.dumps({"documentId": f"sha256:{HASHES[name]}", "variables": variables}), JSON)


def by_number(name: str, **variables: Any) -> Request:
    return post(URL, json.dumps({"doc_id": NUMBERS[name], "variables": variables}), JSON)


def by_id(name: str, **variables: Any) -> Request:
    return post(URL, json.dumps({"id": HASHES[name][:32], "variables": variables}), JSON)


def by_form(name: str, **variables: Any) -> Request:
    return post(URL, urlencode({"doc_id": NUMBERS[name], "variables": json.dumps(variables)}))


def in_a_list(name: str, **variables: Any) -> Request:
    other = {"operationName": "Item", **persisted("Item", id="0")}
    return post(URL, json.dumps([{"operationName": name, **persisted(name, **variables)}, other]), JSON)


WAYS = [by_hash, by_hash_alone, by_document, by_number, by_id, by_form, in_a_list]


def whole(name: str, **variables: Any) -> Request:
    """With its text, as it is registered."""
    return post(
        URL, json.dumps({"operationName": name, "query": TEXTS[name], **persisted(name, **variables)}), JSON
    )


def data(text: str) -> Response:
    """An answer that is no mere acknowledgement."""
    body = json.dumps({"data": {"said": text, "more": "x" * 300}}).encode()
    return Response(200, "OK", (("Content-Type", JSON),), body)


def said(replay: Replay, request: Request) -> str:
    """What was answered; with a ? where it is not sure."""
    text = replay.ask(request)
    found = text if text == "miss" else str(json.loads(text)["data"]["said"])
    return found + "?" * bool(replay.last.ambiguous)


@pytest.mark.parametrize("call", WAYS)
def test_what_follows_an_operation_of_which_only_the_hash_is_known_is_doubted(call: Call) -> None:
    over = matcher(
        (call("Item", id="1"), data("one")), (call("Add", id="1"), data("added")), (call("Cart"), data("1"))
    )  # fmt: skip
    asked = Replay(over)
    assert [said(asked, call("Item", id="1")), said(asked, call("Add", id="1"))] == ["one", "added"]
    assert said(asked, call("Cart")) == "1"
    assert said(Replay(over), call("Cart")) == "1?", "what was added may be in it"


@pytest.mark.parametrize("call", WAYS)
def test_an_unrecorded_value_of_one_makes_what_follows_unsure(call: Call) -> None:
    over = matcher((call("Cart"), data("0")), (call("Add", id="1"), data("added")))
    asked = Replay(over)
    assert said(asked, call("Cart")) == "0"
    assert said(asked, call("Add", id="2")) == "miss"
    assert said(asked, call("Cart")) == "0?"


@pytest.mark.parametrize("call", WAYS)
def test_a_question_asked_again_and_again_clears_no_other_operation(call: Call) -> None:
    item, add, cart = call("Item", id="1"), call("Add", id="1"), call("Cart")
    over = matcher((add, data("added")), *[(cart, data("1"))] * 5, (item, data("one")))
    assert said(Replay(over), cart) == "1?"


@pytest.mark.parametrize("call", WAYS)
def test_other_variables_and_other_operations_are_other_requests(call: Call) -> None:
    over = matcher((call("Item", id="1", n=2), data("one")))
    assert said(Replay(over), call("Item", n=2, id="1")) == (
        "miss" if call is by_form else "one"
    )  # which is text
    for other in (call("Item", id="2", n=2), call("Add", id="1", n=2), call("Item", id="1")):
        assert said(Replay(over), other) == "miss"


def test_a_list_that_holds_a_change_anywhere_is_one() -> None:
    def both(*names: str) -> Request:
        return post(
            URL, json.dumps([{"operationName": n, "query": TEXTS[n], "variables": {}} for n in names]), JSON
        )

    over = matcher((both("Item", "Add"), data("added")), (both("Cart", "Item"), data("1")))
    assert said(Replay(over), both("Cart", "Item")) == "miss", "asked before the change that its texts say"
    over = matcher((both("Item", "Item"), data("one")), (both("Cart", "Item"), data("1")))
    assert said(Replay(over), both("Cart", "Item")) == "1"


def test_a_hash_is_what_its_text_was_once_said_to_be() -> None:
    cart, item, add = by_hash("Cart"), by_hash("Item", id="1"), by_hash("Add", id="1")
    over = matcher((whole("Item", id="2"), data("two")), (item, data("one")), (cart, data("0")))
    assert said(Replay(over), cart) == "0", "a question was asked before"
    over = matcher((whole("Add", id="2"), data("added")), (cart, data("2")), (add, data("added")))
    assert said(Replay(over), cart) == "miss", "a change was made before"
    over = matcher((add, data("added")), (cart, data("1")), (whole("Add", id="2"), data("added")))
    assert said(Replay(over), cart) == "miss", "its text came later"


def test_what_a_server_did_not_know_changes_nothing() -> None:
    unknown = Response(
        200, "OK", (("Content-Type", JSON),), b'{"errors": [{"message": "PersistedQueryNotFound"}]}'
    )
    cart, add = by_hash("Cart"), by_hash("Add", id="1")
    over = matcher((add, unknown), (cart, data("0")))
    assert said(Replay(over), cart) == "0"
    partly = Response(
        200, "OK", unknown.headers, b'{"data": {"add": {"items": []}}, "errors": [{"message": "late"}]}'
    )
    over = matcher((add, partly), (cart, data("0")))
    assert said(Replay(over), cart) == "0?"
    other = post("http://a.test/save", "x=1")  # no GraphQL, whose answers say what they like
    over = matcher((other, unknown), (cart, data("0")))
    assert said(Replay(over), cart) == "miss"


@pytest.mark.parametrize(
    ("name", "then"), [("AddMutation", "miss"), ("AddQuery", "1"), ("Add", "1?"), ("QueryAdd", "1?")]
)
def test_relays_compiler_gives_names_that_tell(name: str, then: str) -> None:
    fields = {"doc_id": "1", "fb_api_req_friendly_name": name, "variables": "{}"}
    over = matcher((post(URL, urlencode(fields)), data("added")), (by_hash("Cart"), data("1")))
    assert said(Replay(over), by_hash("Cart")) == then


def test_who_asked_at_the_same_time_got_either_answer() -> None:
    cart, item = by_hash("Cart"), by_hash("Item", id="1")
    over = matcher(
        Recorded(item, data("one"), events=(1, 3)), Recorded(cart, data("0"), events=(2, 4)),
        Recorded(by_hash("Item", id="2"), data("two"), events=(5, 6)),
    )  # fmt: skip
    for order in ([item, cart], [cart, item]):
        asked = Replay(over)
        assert not any(said(asked, request).endswith("?") for request in order)
    assert said(Replay(over), by_hash("Item", id="2")) == "two?"


def test_that_a_value_was_written_again_clears_nobody() -> None:
    add, cart = by_hash("Add", id="1"), by_hash("Cart")
    pages = [(get(f"http://a.test/{n}"), html("page")) for n in range(3)]
    added, found = (add, data("added")), (cart, data("1"))
    over = matcher(added, *pages, found, added, *pages, added, *pages)
    assert said(Replay(over), cart) == "1?", "the pages were asked for when the same had been written"
    over = matcher(*pages, added, *pages, found)
    assert said(Replay(over), cart) == "1", "three answers stayed as they were"
    over = matcher(*pages[1:], added, *pages, found)
    assert said(Replay(over), cart) == "1?", "two may"


def test_answers_that_change_by_themselves_clear_nobody() -> None:
    pages = [get(f"http://a.test/{n}") for n in range(3)]
    first = [(page, html(text)) for page in pages for text in "ab"]
    then = [(page, html("b")) for page in pages]
    over = matcher(*first, (by_hash("Add", id="1"), data("added")), *then, (by_hash("Cart"), data("1")))
    assert said(Replay(over), by_hash("Cart")) == "1?"


def test_that_a_change_was_repeated_does_not_clear_it() -> None:
    add, cart = by_hash("Add", id="1"), by_hash("Cart")
    over = matcher(*[(add, data("added"))] * 5, (cart, data("1")))
    assert said(Replay(over), cart) == "1?"


def test_an_unsure_change_leaves_nothing_sure() -> None:
    add, cart = by_hash("Add", id="1"), by_hash("Cart")
    over = matcher((add, data("1")), (cart, data("1")))
    asked = Replay(over)
    assert [said(asked, request) for request in (add, add, cart)] == ["1", "1?", "1?"]


@pytest.mark.parametrize(
    "body",
    [
        '{"id": "1"}', '{"variables": {}}', '{"query": "toys", "variables": {}}', "[]", "1", '["x"]',
        '[{"query": "{ a }"}, 1]', '{"extensions": "{", "id": "1"}', '{"extensions": {"persistedQuery": 1}}',
    ],
)  # fmt: skip
def test_other_bodies_are_none(body: str) -> None:
    assert operations_of(parse(post(URL, body, JSON))) == ()


def test_a_form_has_the_hash_within_a_text() -> None:
    fields = {"operationName": "Cart", "extensions": json.dumps(persisted("Cart")["extensions"])}
    (found,) = operations_of(parse(post(URL, urlencode(fields))))
    assert found.names == ("operationName=Cart", f"sha256Hash={HASHES['Cart']}")
    assert found.changes is None


def test_a_form_with_a_query_of_any_language_is_none() -> None:
    assert operations_of(parse(post(URL, urlencode({"query": "DELETE { ?s ?p ?o } WHERE {}"})))) == ()
    assert operations_of(parse(Request("POST", URL, (), b"\x00"))) == ()
