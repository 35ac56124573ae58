"""Differences between two snapshots, found in records of each kind."""

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.operations.diff import Diff, FailureChange, counts, diff, unified_diff
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import START, record

SITE = "http://example.test"
PAGE = b"<html><title>%s</title><p>%s</p><p>The mill stands by the river.</p></html>"


def page(title: str, text: str) -> bytes:
    return PAGE % (title.encode(), text.encode())


def site(path: Path, fill: Callable[[Writer], None], profile: Profile | None = None) -> Path:
    with Writer.open(path, profile=profile or Profile(locale="en-GB")) as writer:
        record(writer, f"{SITE}/", page("Home", "Five mills."))
        fill(writer)
    return seal(path, workers=1).path


def compared(
    tmp_path: Path, old: Callable[[Writer], None], new: Callable[[Writer], None], **more: Profile
) -> Diff:
    a, b = site(tmp_path / "a", old), site(tmp_path / "b", new, **more)
    with Snapshot.open(a) as first, Snapshot.open(b) as second:
        return diff(first, second)


def nothing(writer: Writer) -> None:
    pass


def test_the_same_records_do_not_differ(tmp_path: Path) -> None:
    found = compared(tmp_path, nothing, nothing)
    assert found.same
    assert found.a == found.b
    assert found.to_json()["same"] is True


def test_captures_are_added_removed_and_changed_by_their_canonical_request(tmp_path: Path) -> None:
    def old(writer: Writer) -> None:
        record(writer, f"{SITE}/list?b=2&a=1", page("List", "There were 12 mills."))
        record(writer, f"{SITE}/gone", page("Gone", "Soon."))

    def new(writer: Writer) -> None:
        record(writer, f"{SITE}/list?a=1&b=2", page("List", "There were 13 mills."))  # the same request
        record(writer, f"{SITE}/new", page("New", "Just in."))

    found = compared(tmp_path, old, new)
    assert [(c.kind, c.url) for c in found.captures] == [
        ("removed", f"{SITE}/gone"),
        ("changed", f"{SITE}/list?b=2&a=1"),
        ("added", f"{SITE}/new"),
    ]
    changed = found.captures[1]
    assert changed.before != changed.after
    assert "-There were 12 mills." in changed.text
    assert "+There were 13 mills." in changed.text
    assert counts(changed.text) == (1, 1)
    assert not found.same


def test_other_bytes_with_the_same_text_are_told_so(tmp_path: Path) -> None:
    def of(comment: str) -> Callable[[Writer], None]:
        return lambda writer: record(writer, f"{SITE}/c", page("C", "Mills turn.") + comment.encode())  # type: ignore[return-value]

    found = compared(tmp_path, of("<!-- 1 ms -->"), of("<!-- 2 ms -->"))
    assert [(c.kind, c.text, c.same_text) for c in found.captures] == [("changed", "", True)]
    assert found.texts == []


def test_a_page_with_another_token_in_its_form_is_the_same(tmp_path: Path) -> None:
    def of(token: str, price: int) -> Callable[[Writer], None]:
        hidden = f'<form><input type="hidden" name="csrf" value="{token}"></form>'
        return lambda writer: record(writer, f"{SITE}/c", page("C", f"Costs {price}.") + hidden.encode())  # type: ignore[return-value]

    found = compared(tmp_path, of(ONE, 12), of(TWO, 12))
    assert (found.captures, found.restated, found.same) == ([], 1, True)
    found = compared(tmp_path / "dearer", of(ONE, 12), of(TWO, 13))
    assert [c.kind for c in found.captures] == ["changed"]


def test_bodies_too_large_for_memory_differ_wherever_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 1 << 20
    monkeypatch.setattr("stillweb.snapshots.warc.warc.IN_MEMORY", most)

    def of(end: bytes) -> Callable[[Writer], None]:
        return lambda writer: record(writer, f"{SITE}/dump", bytes(most) + end)  # type: ignore[return-value]

    assert [c.kind for c in compared(tmp_path, of(b"a"), of(b"b")).captures] == ["changed"]


def test_a_status_alone_is_a_change(tmp_path: Path) -> None:
    def of(status: int) -> Callable[[Writer], None]:
        return lambda writer: record(writer, f"{SITE}/x", b"gone", status=status)  # type: ignore[return-value]

    found = compared(tmp_path, of(200), of(404))
    assert [(c.before[0][0], c.after[0][0]) for c in found.captures] == [(200, 404)]


def test_where_a_redirect_leads_is_a_change(tmp_path: Path) -> None:
    def to(place: str) -> Callable[[Writer], None]:
        headers = (("Location", place),)
        return lambda writer: record(writer, f"{SITE}/x", b"", status=302, headers=headers)  # type: ignore[return-value]

    assert compared(tmp_path, to("/a"), to("/b")).count("captures", "changed") == 1


def test_one_of_several_answers_to_a_request_has_changed(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        filtered(("2011", "7 rows"), ("2012", "9 rows")),
        filtered(("2011", "7 rows"), ("2012", "8 rows")),
    )
    assert [(c.kind, c.url) for c in found.captures] == [("changed", f"{SITE}/rows")]
    assert "-9 rows" in found.captures[0].text


def filtered(*years: tuple[str, str], tokens: bool = False) -> Callable[[Writer], None]:
    """Record rows, each after the form that chooses their year; with `tokens` each form has a random one."""

    def fill(writer: Writer) -> None:
        for year, rows in years:
            token = f"&csrf={secrets.token_urlsafe(24)}" if tokens else ""
            record(
                writer,
                f"{SITE}/filter",
                b"",
                method="POST",
                sent=f"year={year}{token}".encode(),
                status=303,
                headers=(("Location", "/rows"),),
                request_headers=(
                    ("Host", "example.test"),
                    ("Content-Type", "application/x-www-form-urlencoded"),
                ),
            )
            record(writer, f"{SITE}/rows", page("Rows", rows))

    return fill


ROWS = ("2011", "7 rows"), ("2012", "9 rows"), ("2011", "7 rows"), ("2012", "9 rows")
EXCHANGED = tuple((year, {"7 rows": "9 rows", "9 rows": "7 rows"}[rows]) for year, rows in ROWS)


@pytest.mark.parametrize("tokens", [False, True])
def test_answers_given_in_each_others_states_have_changed(tmp_path: Path, tokens: bool) -> None:
    found = compared(tmp_path, filtered(*ROWS, tokens=tokens), filtered(*EXCHANGED, tokens=tokens))
    changed = [c for c in found.captures if c.kind == "changed"]
    assert {(c.url, c.exchanged) for c in changed} == {(f"{SITE}/rows", True)}
    assert [("-7 rows" in c.text, "+7 rows" in c.text) for c in changed] in (
        [(True, False), (False, True)],
        [(False, True), (True, False)],
    )


@pytest.mark.parametrize("tokens", [False, True])
def test_states_recorded_in_another_order_do_not_differ(tmp_path: Path, tokens: bool) -> None:
    found = compared(tmp_path, filtered(*ROWS, tokens=tokens), filtered(*ROWS[::-1], tokens=tokens))
    assert [c for c in found.captures if c.kind == "changed"] == []


def test_views_differ_by_their_resources(tmp_path: Path) -> None:
    steps = ({"click": {"text": "More"}},)

    def of(text: str, picture: bytes, title: str = "Mills") -> Callable[[Writer], None]:
        def fill(writer: Writer) -> None:
            view = View(
                view_address(f"{SITE}/", steps),
                f"{SITE}/",
                f"{SITE}/",
                title,
                steps,
                timestamp="20250102030409",
            )
            writer.view(view, {"text": text.encode(), "view": picture, "dom": b"<p>x</p>"})
            if text == "two":
                writer.view(View(f"{SITE}/b", f"{SITE}/b", f"{SITE}/b", "B"), {"text": b"b"})

        return fill

    found = compared(tmp_path, of("one", b"1"), of("two", b"2"))
    address = view_address(f"{SITE}/", steps)
    assert [(v.kind, v.address, v.parts) for v in found.views] == [
        ("changed", address, ("view", "text")),
        ("added", f"{SITE}/b", ()),
    ]
    assert "+two" in found.views[0].text


FORM = (("Host", "example.test"), ("Content-Type", "application/x-www-form-urlencoded"))


def login(
    key: bytes, token: str, *, user: str = "ann", answer: bytes = b"", again: str = ""
) -> Callable[[Writer], None]:
    """A login's POST, with a token that is drawn for each visit and a password in its pseudonym."""

    def write(writer: Writer) -> None:
        name = Redactor(key).pseudonym("apple-pie-7")
        for one in filter(None, (token, again)):
            sent = f"csrf={one}&user={user}&password={name}".encode()
            record(writer, f"{SITE}/login", answer, method="POST", sent=sent, request_headers=FORM)
        record(writer, f"{SITE}/account", page("Account", "Welcome."))

    return write


ONE, TWO, THREE = "b7Xq29LmPz04TsKd81Rw", "Qp55vNc83JhYe02Gm7Ua", "Zk19sWb64RtXo38Df5Il"


def test_a_login_with_another_token_is_the_same_request(tmp_path: Path) -> None:
    found = compared(tmp_path, login(b"a" * 32, ONE), login(b"b" * 32, TWO))
    assert found.captures == []
    assert found.restated


def test_a_login_that_is_answered_otherwise_has_changed(tmp_path: Path) -> None:
    old, new = login(b"a" * 32, ONE, answer=b"in"), login(b"b" * 32, TWO, answer=b"out")
    [change] = compared(tmp_path, old, new).captures
    assert (change.kind, change.method, change.url) == ("changed", "POST", f"{SITE}/login")


def test_another_user_or_one_of_two_logins_is_another_request(tmp_path: Path) -> None:
    for name, new in {
        "user": login(b"b" * 32, TWO, user="bob"),
        "twice": login(b"b" * 32, TWO, again=THREE),
    }.items():
        found = compared(tmp_path / name, login(b"a" * 32, ONE), new)
        assert {change.kind for change in found.captures if change.method == "POST"} == {
            "added",
            "removed",
        }, name


def signed_in(key: bytes, said: str, *passwords: str) -> Callable[[Writer], None]:
    """Views behind a login: a recording whose secrets are replaced with `key` (each snapshot has its own)."""
    redactor = Redactor(key)

    def fill(writer: Writer) -> None:
        for password in passwords:
            steps = ({"fill": {"label": "Password", "value": redactor.pseudonym(password)}},)
            address = view_address(f"{SITE}/in", steps)
            view = View(address, f"{SITE}/in", f"{SITE}/", "In", steps, timestamp="20250102030409")
            dom = f"<p>{said}</p><input value={redactor.pseudonym(password)}>"
            writer.view(view, {"text": said.encode(), "dom": dom.encode()})

    return fill


def test_a_view_behind_a_login_is_the_same_view_of_another_recording(tmp_path: Path) -> None:
    found = compared(
        tmp_path, signed_in(b"a", "4 mills", "pa55-word"), signed_in(b"b", "5 mills", "pa55-word")
    )
    [view] = found.views
    assert (view.kind, view.parts) == ("changed", ("address", "dom", "text"))
    assert "+5 mills" in view.text
    assert view.address != view.now
    assert [(t.kind, t.address, t.cause) for t in found.texts] == [("changed", view.address, "source")]


def test_only_the_address_of_a_view_behind_a_login_differs(tmp_path: Path) -> None:
    found = compared(
        tmp_path, signed_in(b"a", "4 mills", "pa55-word"), signed_in(b"b", "4 mills", "pa55-word")
    )
    assert [(v.kind, v.parts) for v in found.views] == [("changed", ("address",))]
    assert not found.texts


def test_views_that_their_secrets_tell_apart_are_not_taken_for_each_other(tmp_path: Path) -> None:
    both = ("pa55-word", "wr0ng-word")
    found = compared(tmp_path, signed_in(b"a", "4 mills", *both), signed_in(b"b", "4 mills", *both))
    assert sorted(v.kind for v in found.views) == ["added", "added", "removed", "removed"]


def test_a_text_says_whether_its_source_or_its_extractor_changed(tmp_path: Path) -> None:
    def by(version: str, words: str, body: str) -> Callable[[Writer], None]:
        def fill(writer: Writer) -> None:
            capture = record(writer, f"{SITE}/t", page("T", body))
            writer.conversion(
                f"{SITE}/t",
                words,
                refers_to=capture,
                extractor="trafilatura",
                version=version,
                options={"media": "text/html", "meta": {"digest": capture.digest}},
            )

        return fill

    causes = []
    for name, new in (
        ("x", by("2", "new", "same")),
        ("y", by("1", "new", "other")),
        ("z", by("2", "new", "other")),
    ):
        (tmp_path / name).mkdir()
        found = compared(tmp_path / name, by("1", "old", "same"), new)
        causes.append([(t.kind, t.cause) for t in found.texts])
    assert causes == [[("changed", "extractor")], [("changed", "source")], [("changed", "both")]]


def test_profile_and_rules(tmp_path: Path) -> None:
    found = compared(tmp_path, nothing, nothing, profile=Profile(locale="de-DE"))
    assert found.profile == {"locale": ("en-GB", "de-DE")}
    assert not found.same


def test_a_unified_difference_of_equal_texts_is_empty() -> None:
    assert unified_diff("a\nb", "a\nb") == ""
    assert counts(unified_diff("a\nb", "a\nc\nd")) == (2, 1)
    assert counts(unified_diff("a\n-- x\nb", "a\nb\n++ y")) == (1, 1)


def failing(path: str, reason: str, body: bytes = b"") -> Failure:
    form = (("Content-Type", "application/x-www-form-urlencoded"),) if body else ()
    return Failure(Request("POST" if body else "GET", f"{SITE}{path}", form, body), reason, reason, START)


def compared_failures(tmp_path: Path, old: list[Failure], new: list[Failure], *, captured: str = "/") -> Diff:
    for name, failures in (("a", old), ("b", new)):
        with Writer.open(tmp_path / name) as writer:
            record(writer, f"{SITE}{captured}", b"<p>page</p>")
            for failure in failures:
                failure.write(writer)
    with Snapshot.open(tmp_path / "a") as a, Snapshot.open(tmp_path / "b") as b:
        return diff(a, b)


def test_what_came_went_and_changed(tmp_path: Path) -> None:
    found = compared_failures(
        tmp_path,
        [failing("/gone", "dns"), failing("/same", "tls"), failing("/other", "dns")],
        [failing("/new", "reset"), failing("/same", "tls"), failing("/other", "refused")],
    )
    assert not found.same
    assert found.failures == [
        FailureChange("removed", "GET", f"{SITE}/gone", ("dns",), ()),
        FailureChange("added", "GET", f"{SITE}/new", (), ("reset",)),
        FailureChange("changed", "GET", f"{SITE}/other", ("dns",), ("refused",)),
    ]
    assert found.count("failures", "added") == 1
    assert found.to_json()["failures"][0]["url"] == f"{SITE}/gone"


def test_bodies_and_how_often_it_was_tried(tmp_path: Path) -> None:
    """The same body, tried once or twice, is no difference; another one is."""
    again = [failing("/a", "dns", b"q=1"), failing("/a", "dns", b"q=1")]
    assert compared_failures(tmp_path / "1", again, again[:1]).failures == []
    other = compared_failures(tmp_path / "2", [failing("/a", "dns", b"q=1")], [failing("/a", "dns", b"q=2")])
    assert sorted(change.kind for change in other.failures) == ["added", "removed"]


def test_a_pseudonym_of_another_recording_is_no_difference(tmp_path: Path) -> None:
    one, two = (f"password=stillweb-secret-{digit * 24}".encode() for digit in "ab")
    assert (
        compared_failures(tmp_path, [failing("/in", "dns", one)], [failing("/in", "dns", two)]).failures == []
    )


def test_what_was_captured_too_did_not_fail(tmp_path: Path) -> None:
    assert compared_failures(tmp_path, [failing("/page", "reset")], [], captured="/page").failures == []
