"""A site with what pages really contain: frames, shadow roots, virtual tables, endless lists, tabs, dialogs, downloads."""

import io
import zipfile

from tests.proxy.sites import Answer

HTML = {"Content-Type": "text/html; charset=utf-8"}
INNER = """<!DOCTYPE html><title>Inner</title><label>Year <select name=year><option>2019</option><option>2020</option></select></label>
<table><tr><th>Mill<th>Year</tr><tr><td>Post<td id=y>2019</tr></table>
<script>document.querySelector("select").onchange = (e) => { y.textContent = e.target.value; }</script>"""
FOREIGN = """<!DOCTYPE html><title>Foreign</title><p id=p>nothing yet</p><button>Show rivers</button>
<script>document.querySelector("button").onclick = () => { p.textContent = "Two rivers"; }</script>"""
OUTER = """<!DOCTYPE html><title>Outer</title><p>an outer frame</p><iframe id=deep src="/inner?deep" width=300 height=90></iframe>"""
SHADOW = """<!DOCTYPE html><title>Shadow</title><h1>Shadow</h1><filter-box></filter-box><script>
customElements.define("filter-box", class extends HTMLElement { connectedCallback() {
  const root = this.attachShadow({mode: "open"});
  root.innerHTML = `<label>Kind <select><option>Any</option><option>Wind</option></select></label>
    <div role=tablist><button role=tab aria-selected=true>Table</button><button role=tab aria-selected=false>Notes</button></div>
    <table><tr><th>Name</tr><tr><td id=n>All mills</tr></table><nested-note></nested-note>`;
  root.querySelector("select").onchange = (e) => { root.getElementById("n").textContent = `${e.target.value} mills`; };
  root.querySelectorAll("[role=tab]")[1].onclick = () => { root.getElementById("n").textContent = "Notes on mills"; };
} });
customElements.define("nested-note", class extends HTMLElement { connectedCallback() {
  const root = this.attachShadow({mode: "open"}); root.innerHTML = "<button>Deeper</button><p>deep text</p>";
  root.querySelector("button").onclick = () => { root.querySelector("p").textContent = "deepest text"; };
} });</script>"""
VIRTUAL = """<!DOCTYPE html><title>Virtual</title><div id=box style="height:200px;overflow:auto;width:300px"><div style="height:4000px;position:relative"></div></div>
<script>const inner = box.firstChild; const draw = () => { const first = Math.floor(box.scrollTop / 20); inner.innerHTML = "";
  for (let i = first; i < Math.min(200, first + 12); i++) { const row = document.createElement("div"); row.textContent = `row ${i}`;
    row.style.cssText = `position:absolute;top:${i * 20}px`; inner.append(row); } };
box.onscroll = draw; draw();</script>"""
ENDLESS = """<!DOCTYPE html><title>Endless</title><ul id=list></ul><div id=end>end</div><style>li { height: 90px }</style><script>
let page = 0; const more = async () => { const items = await (await fetch(`/items?page=${++page}`)).json();
  for (const item of items) { const li = document.createElement("li"); li.textContent = item; list.append(li); } };
new IntersectionObserver((e) => { if (e[0].isIntersecting && page < 9) more(); }, {rootMargin: "50px"}).observe(end);</script>"""
TABS = """<!DOCTYPE html><title>Tabs</title><a href="/second" target=_blank>Open the second</a>
<button onclick="open('/second?by=script')">Open by script</button>"""
DIALOGS = """<!DOCTYPE html><title>Dialogs</title><p id=said>nothing</p>
<button onclick="alert('A warning'); said.textContent = 'warned'">Warn</button>
<button onclick="said.textContent = confirm('Really?') ? 'yes' : 'no'">Ask</button>
<button onclick="said.textContent = 'name: ' + prompt('Name?', 'Ada')">Prompt</button>"""
BANNER = """<!DOCTYPE html><title>Banner</title><h1>Mills</h1><p>Text of the page.</p>
<div id=b role=dialog class=cookie-banner><p>We use cookies for statistics.</p><button id=y>Accept all</button><button id=n>Reject all</button></div>
<script>const shut = (w) => () => { document.cookie = `choice=${w}`; b.remove(); }; y.onclick = shut("yes"); n.onclick = shut("no");
if (/choice/.test(document.cookie)) b.remove();</script>"""
DOWNLOADS = """<!DOCTYPE html><title>Downloads</title><h1>Data</h1><p>Three files.</p>
<button onclick="location = '/files/mills.csv'">CSV</button><form action="/files/mills.xlsx"><button>XLSX</button></form>
<a href="/files/mills.pdf" download>PDF</a>
<button onclick="const a = document.createElement('a'); a.href = URL.createObjectURL(new Blob(['made,here\\n1,2\\n'], {type: 'text/csv'})); a.download = 'made.csv'; a.click()">Made here</button>"""


def workbook() -> bytes:
    """A zip that begins as a workbook does; its content does not matter here."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("[Content_Types].xml", "<Types/>")
    return out.getvalue()


FILES: dict[str, Answer] = {
    "/files/mills.csv": (200, {"Content-Type": "text/csv", "Content-Disposition": "attachment; filename=mills.csv"}, b"mill,year\nPost,1781\n"),
    "/files/mills.xlsx": (200, {"Content-Type": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
                                "Content-Disposition": "attachment"}, workbook()),
    "/files/mills.pdf": (200, {"Content-Type": "application/pdf"}, b"%PDF-1.4\n" + b"%" * 3000 + b"\n%%EOF\n"),
}  # fmt: skip
PAGES = {
    "/inner": INNER, "/foreign": FOREIGN, "/outer": OUTER, "/shadow": SHADOW, "/virtual": VIRTUAL, "/endless": ENDLESS,
    "/tabs": TABS, "/dialogs": DIALOGS, "/banner": BANNER, "/downloads": DOWNLOADS,
    "/second": "<!DOCTYPE html><title>Second</title><h1>The second page</h1>",
}  # fmt: skip


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    """The site."""
    name, _, query = path.partition("?")
    if name in FILES:
        return FILES[name]
    if name == "/items":
        number = int(query.partition("=")[2])
        items = ",".join(f'"item {number}-{n}"' for n in range(10))
        return 200, {"Content-Type": "application/json"}, f"[{items}]".encode()
    if name == "/frames":
        foreign = f"http://localhost:{headers['host'].rpartition(':')[2]}/foreign"
        page = (
            "<!DOCTYPE html><title>Frames</title><h1>Frames</h1><iframe id=one src=/inner width=400 height=120></iframe>"
            f"<iframe title=rivers src={foreign} width=400 height=120></iframe><iframe src=/outer width=400 height=200></iframe>"
        )
        return 200, HTML, page.encode()
    if name in PAGES:
        return 200, HTML, PAGES[name].encode()
    return 404, HTML, b"<h1>Page not found</h1>"
