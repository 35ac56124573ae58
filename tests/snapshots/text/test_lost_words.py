"""Words that a reader sees are in the frozen text, as they stand in the page; lost ones are named in a warning."""

import pytest

from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.text import FrozenText, extract_html

PARAGRAPH = "<p>" + "The harbour office keeps a register of every vessel that has entered. " * 4 + "</p>"
TABLE = "<table><tr><th>Day<th>Hours<tr><td>Mon<td>{}<tr><td>Tue<td>closed</table>"
# as Wikipedia writes it: MathML that is not shown, and a picture that screen readers pass over
HIDDEN_FORMULA = "<span><span style='display: none;'><math><mn>8.314</mn></math></span><img aria-hidden=true alt=8.314></span>"


def frozen(middle: str, around: str = "<main><article>{}</article></main>") -> FrozenText:
    body = around.format(PARAGRAPH + middle + PARAGRAPH)
    return extract_html("https://a.test/d/x", f"<!doctype html><html><body>{body}</body></html>")


@pytest.mark.parametrize(
    ("middle", "expected"),
    [
        ("<p>Opened on <time>1 March 2024</time>.</p>", "Opened on 1 March 2024."),
        ("<p>Depth: <output>12.4</output> m</p>", "Depth: 12.4 m"),
        ("<label>Name <input value=Kittiwake></label>", "Name Kittiwake"),
        ("<button>Book now</button>", "Book now"),
        ("<select><option>Oslo<option selected>Rome<option>Bern</select>", "Oslo [x] Rome Bern"),
        ("<select><option disabled>Choose<option>Rome<option>Bern</select>", "Choose [x] Rome Bern"),
        ("<select size=3><option>Oslo<option>Rome</select>", "Oslo Rome"),
        ("<select multiple><optgroup label=North><option selected>Oslo<optgroup label=South><option selected>Rome</select>",
         "North [x] Oslo South [x] Rome"),
        ("<p>Open<noscript>Switch scripts on</noscript> daily</p>", "Open daily"),
        ("<table><tr><td rowspan=2>Mon<td>10:00<tr><td>14:00</table>", "| Mon | 10:00 |\n|---|---|\n|  | 14:00 |"),
        ("<table><tr><th>Day<th>Hours<th>Quay<tr><td rowspan=0>Mon<td colspan=2>shut<tr><td>4<td>A</table>",
         "| Mon | shut |  |\n|  | 4 | A |"),
        ("<progress value=3 max=10></progress>", "3/10"),
        ("<section>Twelve <b>metres</b> deep.</section>", "Twelve metres deep."),
        ("<fieldset><legend>Draught</legend>At most 3.2 metres.</fieldset>", "Draught\nAt most 3.2 metres."),
        ("<div><span class=author>Jane</span> <span class=rating>4.5</span></div>", "Jane 4.5"),
        ("<figure><img src=x><figcaption>The quay</figcaption></figure>", "The quay"),
        ("<p><a href=/p2>Next page</a></p>", "[Next page](https://a.test/p2)"),
        ("<ul><li><a href=r.pdf>Report</a></ul>", "- [Report](https://a.test/d/r.pdf)"),
        ("<ul><li>PDF<li>Print</ul>", "- PDF\n- Print"),
        ("<ol start=26><li>Arden<li>Bexley</ol>", "26. Arden\n27. Bexley"),
        ("<ol reversed><li>Bronze<li>Silver<li>Gold</ol>", "3. Bronze\n2. Silver\n1. Gold"),
        ("<ol type=A><li>Arden<li value=5>Bexley<li>Corby</ol>", "A. Arden\nE. Bexley\nF. Corby"),
        ("<ol style='margin:0; list-style-type: lower-alpha'><li>Arden<li>Bexley</ol>", "a. Arden\nb. Bexley"),
        ("<ol style='list-style:none'><li>Arden</ol>", "- Arden"),
        ("<ol start=7th><li>Arden</ol>", "7. Arden"),
        ("<ol start=2><li><h3>Arden</h3>A port.<li><pre>x</pre><li><ul><li>Corby</ul><li></ol>",
         "2. ### Arden\n\nA port.\n\n3.\n\n```\nx\n```\n\n4.\n  - Corby\n\nThe harbour"),
        ("<p>HLA-A*02:01 in boat_list_v2.csv</p>", "HLA-A*02:01 in boat_list_v2.csv"),
        ("<p><a href='/Sill_(dock)'>Sill_(dock)</a></p>", "[Sill_(dock)](https://a.test/Sill_(dock))"),
        ("<p>10<sup>6</sup> of H<sub>2</sub>O</p>", "10^6 of H2O"),
        ("<math><mn>1.33</mn><mo>×</mo><msup><mn>10</mn><mn>4</mn></msup></math>", "1.33 × 10^4"),
        ("<math><munderover><mo>∑</mo><mi>i</mi><mi>n</mi></munderover><msub><mi>q</mi><mi>i</mi></msub><mi>k</mi></math>",
         "∑_i^n q_i k"),
        ("<math><msup><mi>x</mi><mn>2</mn></msup><mi>y</mi><mo>+</mo><msup><mi>e</mi><mrow><mo>-</mo><mi>t</mi></mrow></msup><mo>)</mo></math>",
         "x^2 y + e^-t)"),
        ("<math><semantics><mi>R</mi><annotation encoding='application/x-tex'>\\Re</annotation></semantics></math>", "\\Re"),
        (f"<p>R is {HIDDEN_FORMULA} here</p>", "R is 8.314 here"),
        (TABLE.format(HIDDEN_FORMULA), "| Mon | 8.314 |"),
        ("<p>R is <span><span><math><mfrac><mn>3</mn><mn>4</mn></mfrac></math></span><span aria-hidden=true><b>4</b>3</span></span> here</p>",
         "R is 3/4 here"),
        (TABLE.format("<ul><li>10:00<li>14:00</ul>"), "| Mon | 10:00; 14:00 |\n| Tue | closed |"),
        (TABLE.format("a_b*c"), "| Mon | a_b*c |"),
        ("<p>the 1<sup>st</sup> of x<sup>n+1</sup>y, A<sup>T</sup>, XIX<sup>e</sup>, 3<sup>2n</sup></p>",
         "the 1st of x^(n+1) y, A^T, XIXe, 3^(2n)"),
        ("<p>1<sup>1</sup>/<sub>2</sub> and <sup>3</sup>&frasl;<sub>4</sub> cup</p>", "1 1/2 and 3\u20444 cup"),
        ("<p>10<span style='font-size:8px;vertical-align: super'>6</span> x</p>", "10^6 x"),
        ("<p><sup>14</sup>C in Fe<sup>3+</sup> and log<sub>2</sub>8 of 101<sub>2</sub></p>", "^14 C in Fe^3+ and log_2 8 of 101_2"),
        ("<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby></p>", "漢(kan)字(ji)"),
        ("<math><mfenced open='[' separators=';'><mi>x</mi><mi>y</mi></mfenced></math>", "[x; y)"),
        ("<math><mi>A</mi><mo>=</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
         "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable></math>", "A = [1, 2; 3, 4]"),
        ("<math><mmultiscripts><mi>C</mi><mn>6</mn><none/><mprescripts/><mn>6</mn><mn>14</mn></mmultiscripts></math>",
         "_6^14 C_6"),
        ("<math><mi>sin</mi><mo>\u2061</mo><mi>x</mi><mtext>for all</mtext><mi>z</mi><mspace/><mi>n</mi><mi>log</mi><mi>n</mi></math>",
         "sin x for all z n log n"),
        ("<math><msup><mi>x</mi><mrow><mo>−</mo><mn>1</mn></mrow></msup><mo>=</mo><mo>−</mo><mn>2</mn></math>", "x^−1 = −2"),
        ("<math><maction><mi>shown</mi><mi>other</mi></maction></math>", "shown"),
        ("<p><input placeholder='you@b.test'> <input placeholder=no value=typed> <textarea placeholder=More></textarea></p>",
         "you@b.test typed More"),
        ("<p><input type=image alt=Go></p>", "Go"),
        ("<select><option label=Merc>Mercedes<option selected>Audi</select>", "Merc [x] Audi"),
        ("<iframe srcdoc='&lt;p&gt;Tide &lt;b&gt;table&lt;/b&gt;&lt;/p&gt;'></iframe>", "Tide table"),
        ("<object>no reader for it</object><object data=x.svg>not shown</object>", "no reader for it"),
        ("<svg><title>no</title><text>north</text></svg>", "north"),
        ("<button aria-label='Add a boat'><svg><title>+</title><path/></svg></button>", "Add a boat"),
        ("<p><a href=/n aria-label='Next page'><i class=icon></i></a></p>", "[Next page](https://a.test/n)"),
        ("<p>Rated <span role=img aria-label='4 of 5 stars'><i></i></span> here</p>", "Rated 4 of 5 stars here"),
        ("<p><button aria-label='Close the window'>Shut</button> it</p>", "Shut it"),
        ("<p><a href=/n title='Next page'><i></i></a> <a href=/u><img src=u.png title=Up></a></p>",
         "[Next page](https://a.test/n) [Up](https://a.test/u)"),
        ("<img usemap=#m src=m.png alt=Map><map name=m><area href=/n alt='North pier'><area href=/s alt='South pier'></map>",
         "Map [North pier](https://a.test/n) [South pier](https://a.test/s)"),
        ("<p>Was <s>120</s> <del>100</del>, now <ins>90</ins>, <q>net</q></p>", 'Was ~~120~~ ~~100~~, now 90, "net"'),
        ("<p>As <script type='math/tex'>e^{i\\pi}</script> says</p>", "As e^{i\\pi} says"),
        ("<p><span class=MathJax><math><mn>7</mn></math></span><script type=math/tex>7</script></p>", "7"),
        ("<p><input type=submit> <input type=submit value=Go> <input type=reset></p>", "Submit Go Reset"),
        ("<div role=row><span role=cell>Arden</span><span role=cell>12</span></div>", "Arden 12"),
        ("<label>Quay A</label><label><input type=checkbox checked>Quay B</label>", "Quay A [x] Quay B"),
        ("<div>as <xmp>written</xmp>here</div>", "as\nwritten\nhere"),
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
    ],
)  # fmt: skip
def test_visible_words_arrive_once_and_as_they_stand(middle: str, expected: str) -> None:
    found = frozen(middle)
    assert found.markdown.count(expected) == 1
    assert found.warnings == ()


@pytest.mark.parametrize("span", ["rowspan=65534", "rowspan=0", "rowspan=99999999"])
@pytest.mark.parametrize(("wide", "cells", "narrow"), [(200, 20, 0), (1, 500, 2000)])
def test_a_table_that_spans_without_bound_is_read_in_bounded_space(
    span: str, wide: int, cells: int, narrow: int
) -> None:
    rows = f"<tr>{f'<td colspan=1000 {span}>a' * cells}" * wide + "<tr><td>b" * narrow
    found = frozen(f"<table>{rows}</table>")
    assert len(found.markdown) < 40 * html_text.MOST_CELLS


def test_menus_and_footers_around_the_content_are_left_out_and_counted() -> None:
    found = frozen(
        "", "<nav><a href=/>Home</a><a href=/b>About us</a></nav><main>{}</main><footer>Imprint</footer>"
    )
    assert "About us" not in found.markdown
    assert "Imprint" not in found.markdown
    assert found.meta["left_out"] == 3
    assert found.warnings == ()


def test_the_header_and_footer_of_a_section_belong_to_it() -> None:
    section = "<section><header><h3>Tides</h3>by Jo</header>Twice a day.<footer>As of May</footer></section>"
    found = frozen("", f"<nav><a href=/>Home</a></nav>{{}}{section}<footer>Imprint</footer>")
    assert "### Tides\n\nby Jo\nTwice a day.\nAs of May" in found.markdown
    assert "Imprint" not in found.markdown


def test_headlines_of_an_index_page_arrive_with_their_links() -> None:
    cards = "".join(
        f"<div class=card><h3><a href=/n{n}>Headline number {n}</a></h3><span class=date>{n} May</span></div>"
        for n in range(5)
    )
    found = extract_html("https://a.test/", f"<body><main><h1>News</h1>{cards}</main></body>")
    assert all(f"### [Headline number {n}](https://a.test/n{n})" in found.markdown for n in range(5))


def test_words_that_the_renderer_loses_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = html_text._Renderer._say
    monkeypatch.setattr(
        html_text._Renderer, "_say", lambda self, text: whole(self, text.replace("Kittiwake", ""))
    )
    assert frozen("<p>The Kittiwake left.</p>").warnings == ("1 word of the page not in its text: Kittiwake",)
