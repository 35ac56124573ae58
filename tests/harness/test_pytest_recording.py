"""The pytest plugin, in pytest runs of its own: recording in every mode."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stillweb.snapshots.snapshot import Snapshot
from tests.harness.plugin_project import project, run
from tests.proxy.origin import Answer, Origin

__all__ = ["project"]
pytest_plugins = ["pytester"]


@pytest.fixture
def origin():
    """A real server on loopback; every answer is numbered."""
    count = iter(range(1, 1000))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format, *args):
            return

        def do_GET(self):
            data = f"answer {next(count)} to {self.path}".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def recorder_test(origin, path="taken", names=("one",), snapshot="made"):
    lines = ["import httpx, pytest, urllib.request"]
    for name in names:
        lines += [
            f"@pytest.mark.snapshot({snapshot!r})",
            f"def test_{name}(stillweb):",
            "    with httpx.Client(transport=stillweb.transport()) as client:",
            f"        print('GOT', client.get('http://127.0.0.1:{origin.server_port}/{path}').text)",
        ]
    return "\n".join(lines)


def got(result):
    return [line.partition("GOT ")[2] for line in result.stdout.lines if "GOT " in line]


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", ["made", "made.wacz"])
def test_once_records_what_is_not_there_and_replays_it_after(project, origin, snapshot):
    code = recorder_test(origin, snapshot=snapshot)
    first = run(project, code, "-s", "--stillweb-mode=once")
    first.assert_outcomes(passed=1)
    assert (project.path / snapshot).exists()
    assert not (project.path / f"{snapshot}.recording").exists()
    again = run(project, code, "-s", "--stillweb-mode=once")
    again.assert_outcomes(passed=1)
    assert got(again) == got(first) == ["answer 1 to /taken"]
    origin.shutdown()
    replayed = run(project, code, "-s")
    assert got(replayed) == ["answer 1 to /taken"]


@pytest.mark.slow
def test_an_async_client_records_what_it_replays(project, origin):
    code = f"""
        import asyncio, httpx, pytest
        async def asked(transport):
            async with httpx.AsyncClient(transport=transport) as client:
                return (await client.get("http://127.0.0.1:{origin.server_port}/taken")).text
        @pytest.mark.snapshot("made")
        def test_it(stillweb):
            print("GOT", asyncio.run(asked(stillweb.transport())))
    """
    first = run(project, code, "-s", "--stillweb-mode=once")
    assert got(first) == got(run(project, code, "-s")) == ["answer 1 to /taken"]


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", ["made", "made.wacz"])
def test_what_holds_a_secret_that_became_known_late_is_not_put_in_place(project, snapshot):
    token = "tok-9d8f7a6s5d4f3a2s1d0f9a8s7d6f5a4s"

    def answer(asked):
        said = {"access_token": token} if asked.path == "/token" else {"code": token}
        return Answer(headers=[("Content-Type", "application/json")], body=json.dumps(said).encode())

    with Origin(answer) as origin:
        code = f"""
            import httpx, pytest
            @pytest.mark.snapshot({snapshot!r})
            def test_it(stillweb):
                with httpx.Client(transport=stillweb.transport()) as client:
                    for path in ("first", "token"):
                        client.get("{origin.url}/" + path)
        """
        result = run(project, code, "--stillweb-mode=once")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*a recording was not put in place*", "*a secret stands in 1 record; *", "*/first"]
    )
    assert token not in result.stdout.str()
    assert not (project.path / snapshot).exists()
    assert (project.path / f"{snapshot}.recording").exists()


def captured(project):
    with Snapshot.open(project.path / "made") as snapshot:
        return sorted(capture.url.rpartition("/")[2] for capture in snapshot.captures())


@pytest.mark.slow
def test_all_new_episodes_and_rewrite_record_what_they_say(project, origin):
    def tests(*wanted):
        codes = [recorder_test(origin, path, (name,)) for name, path in wanted]
        return "\n".join([codes[0], *(code.partition("\n")[2] for code in codes[1:])])

    two = tests(("one", "taken"), ("two", "other"))
    assert got(run(project, two, "-s", "--stillweb-mode=once")) == [
        "answer 1 to /taken",
        "answer 2 to /other",
    ]
    assert got(run(project, two, "-s", "--stillweb-mode=all", "-k", "one")) == ["answer 3 to /taken"]
    three = two + "\n" + tests(("three", "third")).partition("\n")[2]
    answers = ["answer 3 to /taken", "answer 2 to /other", "answer 4 to /third"]
    assert got(run(project, three, "-s", "--stillweb-mode=new_episodes")) == answers
    assert got(run(project, three, "-s")) == answers
    assert captured(project) == ["other", "taken", "third"]
    with Snapshot.open(project.path / "made") as snapshot:
        told = [(one.origin, one.settings["mode"]) for one in snapshot.provenance]
    assert told == [("pytest", "once"), ("pytest", "all"), ("pytest", "new_episodes")]
    run(project, three, "-s", "--stillweb-mode=rewrite", "-k", "two")
    assert captured(project) == ["other"]


@pytest.mark.slow
def test_what_one_test_replayed_and_recorded_is_kept_together(project, origin):
    """A client that is answered in this process keeps its answers beside those of a client of the proxy."""
    address = f"http://127.0.0.1:{origin.server_port}"
    code = f"""
    import httpx, pytest
    @pytest.mark.snapshot("made", mode="new_episodes")
    def test_it(stillweb):
        with httpx.Client(transport=stillweb.transport()) as client:
            print("GOT", client.get("{address}/here").text)
        with httpx.Client(proxy=stillweb.proxy_url) as client:
            print("GOT", client.get("{address}/there").text)
    """
    assert got(run(project, code, "-s")) == ["answer 1 to /here", "answer 2 to /there"]
    assert got(run(project, code, "-s")) == ["answer 1 to /here", "answer 2 to /there"]
    assert captured(project) == ["here", "there"]


@pytest.mark.slow
def test_what_a_snapshot_lies_over_is_not_recorded_into_it(project, origin):
    """A copy would hide what the lower one holds when that is recorded anew."""
    code = recorder_test(origin).replace("'made'", "'site', 'made'")
    run(project, recorder_test(origin, "old", ("two",)), "--stillweb-mode=once").assert_outcomes(passed=1)
    run(project, code, "--stillweb-mode=all").assert_outcomes(passed=1)
    assert captured(project) == ["old", "taken"]
