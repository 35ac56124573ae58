"""Which of parts, wholes and "not modified" answers a request for a part, or with a condition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Recorded, Replay, get, matcher, post, redirect

URL = "http://a.test/film"


def whole(text: str) -> Response:
    return Response(200, "OK", (("Content-Type", "video/mp4"), ("ETag", f'"{text}"')), text.encode())


def part(text: str) -> Response:
    told = (("Content-Type", "video/mp4"), ("ETag", f'"{text}"'), ("Content-Range", "bytes 0-0/3"))
    return Response(206, "Partial Content", told, text[:1].encode())


def unmodified(text: str) -> Response:
    return Response(304, "Not Modified", (("ETag", f'"{text}"'),), b"")


@pytest.mark.parametrize(
    ("fields", "old"),
    [({"range": "bytes=0-0"}, part("old")), ({"if_none_match": '"old"'}, unmodified("old"))],
)
def test_a_whole_that_lies_over_a_part_answers_for_it(fields: dict[str, str], old: Response) -> None:
    """It is newer: the part, and that nothing was modified, were said of the one below."""
    below = [Recorded(get(URL), whole("old")), Recorded(get(URL, **fields), old)]
    over = Recorded(get(URL), whole("new"), layer=2)
    replay = Replay(matcher(*below, over))
    assert (replay.ask(get(URL, **fields)), replay.last.verdict) == ("new", "exact")
    replay = Replay(matcher(*below))
    assert replay.ask(get(URL, **fields)) == old.body.decode()
    assert replay.last.capture is not None
    assert replay.last.capture.status == old.status
    above = [Recorded(get(URL), whole("new")), Recorded(get(URL, **fields), old, layer=2)]
    assert Replay(matcher(*above)).ask(get(URL, **fields)) == old.body.decode()


def test_a_304_says_what_the_copy_that_it_names_said() -> None:
    """So a page that was only looked at again after a login is the same then, for who has no copy of it, too."""
    again, login = get(URL, if_none_match='"old"'), post("http://a.test/login", "u=1")
    over = matcher((get(URL), whole("old")), (login, redirect("/film")), (again, unmodified("old")))
    replay = Replay(over)
    for request in (get(URL), login, get(URL)):
        replay.ask(request)
    assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)
    assert (replay.ask(again), replay.last.ambiguous) == ("", False)


def test_an_answer_that_was_the_same_again_is_no_changing_one() -> None:
    again = get(URL, if_none_match='W/"old"')
    replay = Replay(matcher((get(URL), whole("old")), (again, unmodified("old")), (get(URL), whole("old"))))
    for _ in range(5):
        assert (replay.ask(get(URL)), replay.last.ambiguous) == ("old", False)


@pytest.mark.parametrize(
    ("since", "same"),
    [("Fri, 02 Jan 2026 00:00:00 GMT", True), ("Wed, 31 Dec 2025 00:00:00 GMT", False), ("soon", False)],
)
def test_a_304_without_a_tag_says_what_the_copy_of_that_date_said(since: str, same: bool) -> None:
    """As Python's server, and others for whom the date alone counts, answer wget -N: it was taken for a change."""
    dated = Response(
        200, "OK", (("Content-Type", "text/html"), ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")), b"old"
    )
    again, other = get(URL, if_modified_since=since), get("http://a.test/other")
    bare = Response(304, "Not Modified", (), b"")
    replay = Replay(matcher((get(URL), dated), (other, whole("other")), (again, bare), (get(URL), dated)))
    told = [(replay.ask(request), replay.last.ambiguous) for request in (get(URL), other) * 3]
    assert (told == [("old", False), ("other", False)] * 3) is same


def test_a_304_of_a_tag_that_was_sent_with_two_texts_says_neither() -> None:
    again, login = get(URL, if_none_match='"old"'), post("http://a.test/login", "u=1")
    other = Response(200, "OK", whole("old").headers, b"other")
    replay = Replay(
        matcher(
            (get(URL), whole("old")),
            (login, redirect("/film")),
            (get(URL), other),
            (again, unmodified("old")),
        )
    )
    for request, expected in ((get(URL), "old"), (login, ""), (get(URL), "other")):
        assert replay.ask(request) == expected


def test_who_asks_with_the_same_tag_until_it_changes_sees_the_change() -> None:
    again = get(URL, if_none_match='"old"')
    replay = Replay(matcher((get(URL), whole("old")), (again, unmodified("old")), (again, whole("new"))))
    assert [replay.ask(r) for r in (get(URL), again, again)] == ["old", "", "new"]
    assert not replay.last.ambiguous
    assert (replay.ask(again), replay.last.ambiguous) == ("new", True)


def test_parts_of_other_places_are_no_changing_answer() -> None:
    last = Response(206, "Partial Content", (*whole("one").headers, ("Content-Range", "bytes 2-2/3")), b"e")
    first, then = get(URL, range="bytes=0-0"), get(URL, range="bytes=2-2")
    replay = Replay(matcher((first, part("one")), (then, last), (first, part("one"))))
    for request, expected in ((first, "o"), (first, "o"), (then, "e"), (first, "o"), (then, "e")):
        assert (replay.ask(request), replay.last.ambiguous) == (expected, False)


def head(text: str, **fields: str) -> tuple[Request, Response]:
    """A HEAD of a film, answered with its tag."""
    return replace(get(URL, **fields), method="HEAD"), Response(200, "OK", whole(text).headers, b"")


def tag(replay: Replay) -> str | None:
    """That of the last answer."""
    assert replay.last.capture is not None
    return replay.matcher.snapshot.read(replay.last.capture).header("etag")


def test_a_file_whose_size_is_asked_until_it_grows_is_seen_to_grow() -> None:
    replay = Replay(matcher(head("o"), head("on"), head("one")))
    seen = []
    for _ in range(4):
        replay.ask(head("")[0])
        seen.append((tag(replay), replay.last.ambiguous))
    assert seen == [('"o"', False), ('"on"', False), ('"one"', False), ('"one"', True)]


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_what_has_no_body_is_not_alike_in_all_languages(method: str) -> None:
    """Neither HEADs nor 304s have one."""

    def asked(tag: str, language: str) -> Request:
        fields = {"if_none_match": f'"{tag}"'} if method == "GET" else {}
        return replace(get(URL, accept_language=language, **fields), method=method)

    def answer(tag: str) -> Response:
        fields = (("ETag", f'"{tag}"'), ("Vary", "Accept-Language"))
        return Response(200 if method == "HEAD" else 304, "", fields, b"")

    over = matcher(*[(asked(tag, tag), answer(tag)) for tag in ("en", "fr")])
    for language, expected in (("en", "exact"), ("fr", "exact"), ("de", "miss")):
        replay = Replay(over)
        replay.ask(asked("fr" if language == "fr" else "en", language))
        assert replay.last.verdict == expected


def test_a_part_of_what_was_posted_for_is_no_whole() -> None:
    """What Range means there, only the server knows."""
    asked = post(URL, "q=1", range="bytes=0-")
    answer = Response(
        206, "", (*whole("one").headers, ("Content-Range", "bytes 0-2/3"), ("Content-Length", "3")), b"one"
    )
    replay = Replay(matcher((asked, answer)))
    assert (replay.ask(asked), replay.ask(post(URL, "q=1"))) == ("one", "miss")


@pytest.mark.parametrize(
    "fields",
    [
        {"if_none_match": '"old"'},
        {"if_modified_since": "Mon, 03 Mar 2025 00:00:00 GMT"},
        {"if_match": '"new"'},
    ],
)
def test_what_was_asked_under_a_condition_gets_what_it_got(fields: dict[str, str]) -> None:
    said = Response(412 if "if_match" in fields else 304, "", whole("old").headers, b"said")
    replay = Replay(matcher((get(URL), whole("old")), (get(URL, **fields), said)))
    assert [replay.ask(get(URL, **f)) for f in (fields, {}, fields)] == ["said", "old", "said"]


@pytest.mark.parametrize(("later", "sure"), [("one", True), ("two", False)])
def test_a_part_of_another_version_doubts_what_other_parts_are_of(later: str, sure: bool) -> None:
    first, other = get(URL, range="bytes=0-0"), get(URL, range="bytes=1-1")
    replay = Replay(matcher((get(URL), whole("one")), (first, part(later))))
    assert [replay.ask(r) for r in (get(URL), first)] == ["one", later[0]]
    assert (replay.ask(other), replay.last.ambiguous) == ("one", not sure)
    assert (replay.ask(get(URL)), replay.last.ambiguous) == ("one", False)
