"""Files given to a page, in the words of Playwright MCP 0.0.79 (those below are what it said to the same calls)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.tools.browsed import Browsed, Call, browsed

SITE = "https://files.test/"
PAGE = """<!DOCTYPE html><title>U</title><label>File <input type=file id=one></label>
<label>Files <input type=file multiple id=many></label><button onclick="many.click()">Choose</button>
<div id=zone ondragover="event.preventDefault()">zone</div><h1>No zone</h1><p id=out>none</p><script>
const told = (files, more) => Promise.all([...files].map(async (f) =>
  `${f.name} ${f.type} ${f.lastModified - Date.now()} ${await f.text()}`)).then((all) => { out.textContent = all.join(", ") + more; });
for (const e of [one, many]) e.addEventListener("change", () => told(e.files, ""));
zone.addEventListener("drop", (e) => { e.preventDefault(); told(e.dataTransfer.files, "|" + e.dataTransfer.getData("text/plain")); });
</script>"""
CHOOSER = "### Modal state\n- [File chooser]: can be handled by browser_file_upload"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    path = tmp_path_factory.mktemp("files") / "s"
    with browsed(path, lambda site: site.add(SITE, PAGE), ["playwright-mcp"]) as found:
        yield found


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "one.txt").write_text("hello")
    (tmp_path / "two.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(served: Browsed, workspace: Path) -> Call:
    call = served.session()
    call("browser_navigate", url=SITE)
    return call


def test_a_chooser_holds_the_page_until_it_is_answered(call: Call, workspace: Path) -> None:
    early = call("browser_file_upload", paths=[])
    assert early.is_error
    assert early.text == (
        '### Error\nError: The tool "browser_file_upload" can only be used when there is related modal state present.'
    )
    clicked = call("browser_click", target="#one")
    assert clicked.text == (
        f"### Ran Playwright code\n```js\nawait page.locator('#one').click();\n```\n"
        f"### Page\n- Page URL: {SITE}\n{CHOOSER}"
    )
    assert call("browser_snapshot").text == (
        f'### Error\nError: Tool "browser_snapshot" does not handle the modal state.\n{CHOOSER}'
    )
    assert "can only be used" in call("browser_handle_dialog", accept=True).text
    path = str(workspace / "one.txt")
    given = call("browser_file_upload", paths=[path])
    assert not given.is_error
    assert f'```js\nawait fileChooser.setFiles(["{path}"])\n```' in given.text
    assert "paragraph [ref=e9]: one.txt text/plain 0 hello" in given.text  # in the page's own time
    assert not call("browser_snapshot").is_error


def test_a_script_may_open_the_chooser_and_several_files_may_be_given(call: Call) -> None:
    call("browser_click", target="text=Choose")
    given = call("browser_file_upload", paths=["one.txt", "two.json"])
    assert "one.txt text/plain 0 hello, two.json application/json 0 {}" in given.text
    call("browser_click", target="text=Choose")
    assert "await fileChooser.setFiles(undefined)" in call("browser_file_upload").text
    assert not call("browser_snapshot").is_error


def test_what_can_not_be_given_is_told_in_the_tools_own_words(call: Call, workspace: Path) -> None:
    def given(**more: object) -> str:
        call("browser_click", target="#one")
        answer = call("browser_file_upload", **more)
        assert answer.is_error
        return answer.text

    assert given(paths=["/etc/hosts"]) == (
        "### Error\nError: File access denied: /etc/hosts is outside allowed roots. "
        f"Allowed roots: {workspace}/.playwright-mcp, {workspace}"
    )
    assert "does not handle the modal state" in call("browser_hover", target="#one").text  # still open
    assert "File access denied" in call("browser_file_upload", paths=["../x"]).text
    lost = call("browser_file_upload", paths=["nope.txt"])
    assert lost.text == f"### Error\nError: ENOENT: no such file or directory, stat '{workspace}/nope.txt'"
    assert given(paths=["folder"]).endswith(
        "File input does not support directories, pass individual files instead"
    )
    assert given(paths=["one.txt", "two.json"]).endswith(
        "Non-multiple file input can only accept single file"
    )
    assert "→ at paths" in given(paths="x")
    call("browser_navigate", url=SITE)  # the chooser of a page that is gone
    assert call("browser_file_upload", paths=["one.txt"]).is_error
    assert not call("browser_click", target="#zone").is_error


def test_a_link_out_of_the_workspace_is_outside(
    call: Call, workspace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.txt"
    secret.write_text("secret")
    (workspace / "link.txt").symlink_to(secret)
    call("browser_click", target="#one")
    assert "File access denied" in call("browser_file_upload", paths=["link.txt"]).text


def test_files_and_data_are_dropped(call: Call) -> None:
    assert call("browser_drop", target="#zone").text == (
        '### Error\nError: At least one of "paths" or "data" must be provided.'
    )
    dropped = call("browser_drop", target="#zone", paths=["one.txt", "two.json"], data={"text/plain": "it's"})
    assert (
        "await page.locator('#zone').drop({\n  data: {\n  text/plain: 'it\\'s'\n},\n"
        "  files: ['one.txt', 'two.json']\n});"
    ) in dropped.text
    assert "one.txt text/plain 0 hello, two.json application/json 0 {}|it's" in dropped.text
    refused = call("browser_drop", target="h1", data={"text/plain": "x"})
    assert refused.text.startswith(
        "### Error\nError: browserBackend.callTool: Drop target did not accept the drop — its dragover handler"
    )
    assert "at data.a" in call("browser_drop", target="#zone", data={"a": 1}).text
