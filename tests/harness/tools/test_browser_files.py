"""Files given to a page, in the words of Playwright MCP 0.0.79 (those below are what it said to the same calls)."""

import os
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
CANARY = "canary-5160"
CHOOSER = "### Modal state\n- [File chooser]: can be handled by browser_file_upload"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    path = tmp_path_factory.mktemp("files") / "s"
    with browsed(path, lambda site: site.add(SITE, PAGE), ["playwright-mcp"]) as found:
        yield found


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "one.txt").write_text("hello")
    (tmp_path / "two.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.fixture
def call(served: Browsed, workspace: Path) -> Call:
    call = served.session(workspace)
    call("browser_navigate", url=SITE)
    return call


@pytest.mark.slow
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
    path = "/workspace/one.txt"
    given = call("browser_file_upload", paths=[path])
    assert not given.is_error
    assert f'```js\nawait fileChooser.setFiles(["{path}"])\n```' in given.text
    assert "paragraph [ref=e9]: one.txt text/plain 0 hello" in given.text  # in the page's own time
    digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert given.meta["uploads"] == [{"name": "one.txt", "digest": digest}]
    assert not call("browser_snapshot").is_error


@pytest.mark.slow
def test_a_script_may_open_the_chooser_and_several_files_may_be_given(call: Call) -> None:
    call("browser_click", target="text=Choose")
    given = call("browser_file_upload", paths=["one.txt", "two.json"])
    assert "one.txt text/plain 0 hello, two.json application/json 0 {}" in given.text
    call("browser_click", target="text=Choose")
    assert "await fileChooser.setFiles(undefined)" in call("browser_file_upload").text
    assert not call("browser_snapshot").is_error


@pytest.mark.slow
def test_what_can_not_be_given_is_told_in_the_tools_own_words(call: Call, workspace: Path) -> None:
    def given(**more: object) -> str:
        call("browser_click", target="#one")
        answer = call("browser_file_upload", **more)
        assert answer.is_error
        return answer.text

    assert given(paths=["/etc/hosts"]) == (
        "### Error\nError: File access denied: /etc/hosts is outside allowed roots. "
        "Allowed roots: /workspace/.playwright-mcp, /workspace"
    )
    assert "does not handle the modal state" in call("browser_hover", target="#one").text  # still open
    assert "File access denied" in call("browser_file_upload", paths=["../x"]).text
    lost = call("browser_file_upload", paths=["nope.txt"])
    assert lost.text == "### Error\nError: ENOENT: no such file or directory, stat '/workspace/nope.txt'"
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


def test_a_file_by_its_name_in_a_folder_of_the_workspace(call: Call, workspace: Path) -> None:
    (workspace / "folder/deep ünd [1].txt").write_text("deep")
    call("browser_click", target="#one")
    given = call("browser_file_upload", paths=["/workspace/./folder/../folder/deep ünd [1].txt"])
    assert "deep ünd [1].txt text/plain 0 deep" in given.text


def outside(workspace: Path) -> list[str]:
    """Names of a file beside the workspace that lead there in the ways that a file system knows."""
    secret = workspace.parent / "secret.txt"
    secret.write_text(CANARY)
    os.symlink(secret, workspace / "link.txt")
    os.symlink(workspace.parent, workspace / "up")
    os.symlink("/proc", workspace / "proc")
    os.symlink("one.txt", workspace / "within.txt")
    os.mkfifo(workspace / "pipe")
    real = str(secret)
    return [
        real, f"..{os.sep}secret.txt", "folder/../../secret.txt", "link.txt", "up/secret.txt", "proc/self/environ", "within.txt",
        f"file://{real}", f"/workspace/..{real}", f"/{real}", f"//workspace/../{real}", "/proc/self/cwd/secret.txt", "/proc/self/environ",
        f"/workspace/{real}", "~/secret.txt", "~root/.bashrc", "*.txt", "../*", "ONE.TXT", "pipe", "/dev/stdin", "/workspace", ".", "",
        "one.txt\0", "\ud800", "one.txt/..", "..\\secret.txt", "%2e%2e/secret.txt", "x" * 300, "$HOME/x", "/WORKSPACE/one.txt",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_other_file_is_reached_by_any_name(call: Call, workspace: Path) -> None:
    for path in outside(workspace):
        call("browser_click", target="#one")
        uploaded = call("browser_file_upload", paths=[path])
        for given in (uploaded, call("browser_drop", target="#zone", paths=[path])):
            assert given.is_error, path
            assert CANARY not in given.text
            assert str(workspace) not in given.text.replace(path, "")
        seen = call("browser_snapshot").text
        assert CANARY not in seen
        if "Modal" in seen:
            call("browser_file_upload")


def test_nothing_is_saved_outside_of_the_workspace(call: Call) -> None:
    tools: dict[str, dict[str, object]] = {
        "browser_take_screenshot": {}, "browser_snapshot": {}, "browser_evaluate": {"function": "() => 1"},
        "browser_console_messages": {}, "browser_network_requests": {}, "browser_network_request": {"index": 1},
    }  # fmt: skip
    for name, more in tools.items():
        refused = call(name, filename="../../x.png", **more)
        assert refused.text == (
            "### Error\nError: File access denied: /x.png is outside allowed roots. "
            "Allowed roots: /workspace/.playwright-mcp, /workspace"
        ), name
        assert not call(name, filename="x.png", **more).is_error, name


@pytest.mark.slow
def test_a_session_without_a_folder_has_no_files(
    served: Browsed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.txt").write_text(CANARY)
    monkeypatch.chdir(tmp_path)
    call = served.session()
    call("browser_navigate", url=SITE)
    for path in ("one.txt", str(tmp_path / "one.txt")):
        call("browser_click", target="#one")
        assert call("browser_file_upload", paths=[path]).is_error
        assert CANARY not in call("browser_snapshot").text


@pytest.mark.slow
def test_a_session_pastes_what_it_copied_itself(served: Browsed, call: Call) -> None:
    other = served.session()
    for one, words in ((call, "mine"), (other, "yours")):
        one("browser_navigate", url=SITE)
        one(
            "browser_evaluate",
            function=f"() => {{ document.body.innerHTML = '<input value={words}><textarea></textarea>'; }}",
        )
        one("browser_click", target="input")
        one("browser_press_key", key="Control+A")
        one("browser_press_key", key="Control+C")
    for one, words in ((call, "mine"), (other, "yours")):
        one("browser_click", target="textarea")
        one("browser_press_key", key="Shift+Insert")
        assert (
            f'"{words}"'
            in one("browser_evaluate", function="() => document.querySelector('textarea').value").text
        )


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
