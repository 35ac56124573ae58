"""The text of shadow trees that markup declares, and of pages whose first element no parser of HTML 4 knows."""

import pytest

from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.text import extract_html, open_shadows

TREE = '<template shadowrootmode="open"><style>p{color:red}</style>%s</template>'


def shown(body: str) -> str:
    tree = html_text.parse(f"<title>t</title><body>{body}</body>")
    open_shadows(tree)
    return " ".join(html_text.markdown(tree).split())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<x-a>" + TREE % "<p>only a tree</p>" + "</x-a>", "only a tree"),
        ("<x-a>" + TREE % "<p>in</p>" + " and beside</x-a> after", "in and beside after"),
        ("<x-a>" + TREE % "<p>a <slot></slot> c</p>" + "b</x-a>", "a b c"),
        ("<x-a>b<i>b2</i>" + TREE % "<p>a <slot></slot> c</p>" + "b3</x-a> d", "a bb2b3 c d"),
        ("<x-a>" + TREE % "<p>a <slot>own</slot> c</p>" + " </x-a>", "a own c"),
        (
            "<x-a>" + TREE % "<slot name=n>-</slot> | <slot></slot>" + "rest <b slot=n>named</b> of it</x-a>",
            "named | rest of it",
        ),
        ("<x-a>" + TREE % "<slot name=n></slot>" + "<b slot=m>nobody's</b> left</x-a>", "nobody's left"),
        (
            "<x-a>"
            + TREE % ("<x-b>" + TREE % "<p>1 <slot></slot> 3</p>" + "<slot></slot></x-b>")
            + "2</x-a>",
            "1 2 3",
        ),
        ("<template>a model that nobody sees</template><p>seen</p>", "seen"),
    ],
)
def test_what_is_slotted_stands_where_it_is_seen(body: str, words: str) -> None:
    assert shown(body) == words


def test_a_page_all_of_shadow_trees_has_its_text() -> None:
    inner = "<x-b>" + TREE % "Dogwood" + "</x-b>"
    text = extract_html("http://a.test/", "<title>Cards</title><body><x-a>" + TREE % inner + "</x-a></body>")
    assert (text.markdown.strip(), text.warnings[-1:]) == ("Dogwood", text.warnings)
    assert text.options["shadow_trees"] == "opened"
    assert "shadow_trees" not in extract_html("http://a.test/", "<p>plain").options


@pytest.mark.parametrize("first", ["main", "nav", "x-card", "section"])
def test_a_page_without_a_body_begins_with_any_element(first: str) -> None:
    for after in ("", "<p>more</p>", " tail<p>more</p>"):
        page = (
            f"<!doctype html><meta charset=utf-8><title>t</title><{first}>Hello <b>you</b></{first}>{after}"
        )
        tree = html_text.parse(page)
        words = "Hello you" + after.replace("<p>", " ").replace("</p>", "")
        assert html_text.markdown(tree).split() == words.split()
        assert html_text.title_of(tree) == "t"
        assert "Hello" in extract_html("http://a.test/", page).markdown
