"""Exports: OTLP with OpenInference names, inspect logs, CSV, and the report of a program."""

import csv
import json
import os
import re
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.harness.export.attempts_csv import export_csv
from stillweb.harness.export.inspect_log import export_inspect
from stillweb.harness.export.openinference import export_openinference, openinference
from stillweb.harness.results.summary import summarise
from stillweb.harness.review.reviews import Review, add_review
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.harness.view.export import write_report
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import record
from tests.support.command_line import stillweb
from tests.support.openai_endpoint import Endpoint
from tests.support.runs import SHELF, bird_task, make_run, write_script

NAMES = ["right", "wrong", "silent", "babble", "broken"]


def values(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def test_a_trace_is_a_tree_of_spans_with_openinference_names(tmp_path):
    trace = read_trace(make_run(tmp_path, ["wrong"]).trace_path("wrong", 1))
    root, *spans = openinference(trace)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert values(root)["openinference.span.kind"] == "AGENT"
    assert values(root)["stillweb.misses"] == "1"
    assert [values(span)["openinference.span.kind"] for span in spans] == ["TOOL", "TOOL"]
    assert [values(span)["stillweb.verdict"] for span in spans] == ["exact", "miss"]
    assert [span["status"]["code"] for span in spans] == [1, 2]
    assert {span["parentSpanId"] for span in spans} == {root["spanId"]}
    assert len({span["spanId"] for span in (root, *spans)}) == 3
    for span in (root, *spans):
        assert len(bytes.fromhex(span["traceId"])) == 16
        assert len(bytes.fromhex(span["spanId"])) == 8
        assert (
            int(root["startTimeUnixNano"]) <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        )


def test_every_attempt_is_a_line_and_an_export_is_the_same_twice(tmp_path):
    files = make_run(tmp_path, NAMES, epochs=2)
    one = export_openinference(files.path, tmp_path / "1.jsonl").read_bytes()
    assert one == export_openinference(files.path, tmp_path / "2.jsonl").read_bytes()
    assert len([json.loads(line) for line in one.splitlines()]) == 10


def test_an_inspect_log_has_every_sample_with_its_scores(tmp_path):
    files = make_run(tmp_path, NAMES, epochs=2)
    log = json.loads(export_inspect(files.path, tmp_path / "log.json").read_text())
    assert log["results"]["total_samples"] == len(log["samples"]) == 10
    wrong = next(sample for sample in log["samples"] if sample["id"] == "wrong")
    assert wrong["scores"]["item_f1"]["value"] == 0.75
    assert [message["role"] for message in wrong["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    (em,) = [score for score in log["results"]["scores"] if score["name"] == "em"]
    assert em["metrics"]["mean"]["value"] == pytest.approx(0.2)
    assert (em["scored_samples"], em["unscored_samples"]) == (8, 2)  # of babble no table can be read
    failed = {sample["id"]: sample["error"]["message"] for sample in log["samples"] if "error" in sample}
    assert list(failed) == ["broken"]
    assert failed["broken"]
    assert log["results"]["completed_samples"] == 8


def test_inspect_itself_reads_the_log(tmp_path):
    log = pytest.importorskip("inspect_ai.log")
    files = make_run(tmp_path, NAMES)
    read = log.read_eval_log(str(export_inspect(files.path, tmp_path / "log.json")))
    assert [sample.id for sample in read.samples if sample.error] == ["broken"]
    assert len(read.samples) == 5


def test_the_command_writes_each_form(tmp_path, capsys):
    files = make_run(tmp_path, NAMES)
    code, out = call(capsys, "report", files.path, "--format", "openinference")
    assert (code, len((files.path / "report.otlp.jsonl").read_text().splitlines())) == (0, 5)
    assert out.strip().endswith("report.otlp.jsonl")
    code, out = call(capsys, "report", files.path, "--format", "inspect", "-o", tmp_path / "log.json")
    assert (code, json.loads((tmp_path / "log.json").read_text())["status"]) == (0, "success")


@pytest.mark.slow
def test_models_and_their_tokens_are_in_both(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with Endpoint(lambda asked: "NONE") as endpoint:
        (tmp_path / "agent.yaml").write_text(f"{{agent: openai, model: m, base_url: '{endpoint.url}'}}")
        settings = Settings(agent=str(tmp_path / "agent.yaml"), contracts=())
        files = start_run(tmp_path / "run", settings, [bird_task("a"), bird_task("b")])
        run_attempts(files.path, display=SilentDisplay())
    log = json.loads(export_inspect(files.path, tmp_path / "log.json").read_text())
    of_sample = log["samples"][0]["model_usage"]["m-2025-01-01"]
    assert (
        of_sample["input_tokens"] + of_sample["input_tokens_cache_read"] + of_sample["output_tokens"]
        == of_sample["total_tokens"]
    )
    assert log["stats"]["model_usage"]["m-2025-01-01"]["total_tokens"] == 2 * of_sample["total_tokens"]
    spans = openinference(read_trace(files.trace_path("a", 1)))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    named = {a["key"]: a["value"] for a in spans[1]["attributes"]}
    assert (
        int(named["llm.token_count.prompt_details.cache_read"]["intValue"])
        == of_sample["input_tokens_cache_read"]
    )


@pytest.mark.parametrize("export", [export_openinference, export_inspect])
def test_an_export_that_fails_leaves_the_file_that_was_there(tmp_path, export):
    files = make_run(tmp_path, NAMES)
    out = tmp_path / "out"
    before = export(files.path, out).read_bytes()
    files.trace_path("wrong", 1).write_text("{broken")
    with pytest.raises(DamagedInput):
        export(files.path, out)
    assert out.read_bytes() == before
    assert not [one for one in tmp_path.iterdir() if one.name.endswith(".new")]


def test_an_export_goes_into_a_pipe_too(tmp_path):
    files = make_run(tmp_path, ["wrong"])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)  # so that nobody waits; a line is less than a pipe holds
    try:
        export_openinference(files.path, pipe)
        assert os.read(held, 1 << 20).endswith(b"\n")
    finally:
        os.close(held)
    assert pipe.is_fifo()


@pytest.mark.parametrize("answers", [200, 503, 0, None], ids=["there", "failing", "talking nonsense", "gone"])
def test_attempts_are_sent_to_a_collector_as_they_end(tmp_path, capsys, answers):
    got = []

    class Collector(BaseHTTPRequestHandler):
        def log_message(self, format, *args):
            return

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers.get("X-Key"), json.loads(body)))
            if not answers:
                self.wfile.write(b"nonsense\r\n")
                return
            self.send_response(answers)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    tasks = [{"id": name, "question": "?", "answer": "x"} for name in ("a", "b")]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    script = {"agent": "script", "default": {"steps": [], "answer": "x"}}
    (tmp_path / "agent.yaml").write_text(json.dumps(script))
    words = ["--tasks", tmp_path / "tasks.jsonl", "--agent", tmp_path / "agent.yaml", "-o", tmp_path / "run"]
    try:
        url = f"http://127.0.0.1:{server.server_port}" if answers is not None else "http://127.0.0.1:9"
        os.environ["OTEL_EXPORTER_OTLP_HEADERS"] = "X-Key=synthetic"
        with pytest.raises(SystemExit) as ended:
            main(["run", *map(str, words), "--otlp", url])
    finally:
        del os.environ["OTEL_EXPORTER_OTLP_HEADERS"]
        server.shutdown()
        server.server_close()
        thread.join()
    assert not ended.value.code
    assert {one[:2] for one in got} == ({("/v1/traces", "synthetic")} if answers is not None else set())
    assert ("0 attempts sent, not all" in capsys.readouterr().err) is (answers != 200)
    kept = [json.loads(line) for line in export_openinference(tmp_path / "run", tmp_path / "all").open()]
    if answers is not None:
        assert sorted(map(json.dumps, (one[2] for one in got))) == sorted(map(json.dumps, kept))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> RunFiles:
    return make_run(tmp_path_factory.mktemp("run"), NAMES, epochs=2)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_attempts_and_their_figures_those_of_the_summary(files: RunFiles, tmp_path: Path) -> None:
    rows = rows_of(export_csv(files.path, tmp_path / "run.csv"))
    summary = summarise(files.path)
    assert [(row["task"], row["attempt"]) for row in rows] == [(name, n) for name in NAMES for n in "12"]
    for status, count in summary.statuses.items():
        assert sum(row["status"] == status for row in rows) == count
    assert sum(int(row["calls"]) for row in rows) == summary.tool_calls
    assert sum(int(row["misses"]) for row in rows) == summary.misses
    for name, mean in summary.means.items():
        values = [float(row[f"score.{name}"]) for row in rows if row[f"score.{name}"]]
        assert (len(values), sum(values) / len(rows)) == (mean.scored, pytest.approx(mean.mean_of_all))
    wrong = next(row for row in rows if row["task"] == "wrong")
    assert (wrong["answer"], wrong["reference"]) == ("7|3900\n9|3800", "7|3900\n9|3700")
    assert wrong["trace"] == read_trace(files.trace_path("wrong", 1)).hash
    babble = next(row for row in rows if row["task"] == "babble")
    assert (babble["status"], babble["score.em"], bool(babble["problem"])) == ("unparsable", "", True)


def test_what_is_unfinished_reviewed_or_no_text_is_there(tmp_path: Path) -> None:
    settings = Settings(
        agent=write_script(tmp_path, {"agent": "script", "default": {"answer": "4, or five"}}),
        contracts=(SHELF,),
    )
    tasks = [
        Task("a", "How many?", [4, "five"]),
        Task("b", '=HYPERLINK("http://a.test/")', "-4.5", base="many"),
        replace(bird_task("c")),
    ]
    made = start_run(tmp_path / "run", settings, tasks)
    run_attempts(made.path, display=SilentDisplay())
    add_review(made.trace_path("a", 1), Review("Åsa", "drift", 0, "x", "x", "in-page misreading", "x"))
    made.trace_path("b", 1).unlink()
    a, b, _ = rows_of(export_csv(made.path, tmp_path / "run.csv"))
    assert (a["reference"], a["answer"], a["review"]) == ('[4, "five"]', "4, or five", '{"Åsa": "drift"}')
    assert (b["status"], b["base"], b["score.exact"], b["trace"]) == ("unfinished", "many", "", "")
    # a spreadsheet computes nothing of it, and a number stays one
    assert (b["question"], b["reference"]) == ('\'=HYPERLINK("http://a.test/")', "-4.5")


def test_the_command_writes_it_beside_the_run(files: RunFiles, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "report", files.path, "--format", "csv")
    assert (code, out.strip()) == (0, str(files.path / "report.csv"))
    assert len(rows_of(files.path / "report.csv")) == 10


def test_written_to_a_pipe_it_is_nothing_but_the_report(files: RunFiles) -> None:
    done = stillweb("report", files.path, "--format", "csv", "-o", "/dev/stdout")
    assert (done.code, done.out) == (0, export_csv(files.path, files.path / "kept.csv").read_bytes().decode())


def test_requests_of_a_program_are_numbered_as_they_came(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "site") as writer:
        for name in ("a", "b", "favicon.ico"):
            record(writer, f"https://a.test/{name}", b"<p>page</p>")
    asks = "for name in ('b', 'favicon.ico', 'a'): print(u.urlopen('https://a.test/' + name).status)"
    (tmp_path / "agent.py").write_text(f"import urllib.request as u\n{asks}\n")
    agent = f"command:{sys.executable} {tmp_path / 'agent.py'}"
    files = start_run(
        tmp_path / "run", Settings(agent=agent, snapshots=(str(tmp_path / "site"),)), [bird_task("x")]
    )
    run_attempts(files.path, display=SilentDisplay())
    html = write_report(files.path).read_text()
    steps = re.findall(r"https://a\.test/(a|b)</dd>|asked as number (\d)", html)
    assert [one or two for one, two in steps] == ["3", "a", "1", "b"]
    assert "Also asked for, and irrelevant: 1" in html
    assert "GET https://a.test/favicon.ico: exact" in html
