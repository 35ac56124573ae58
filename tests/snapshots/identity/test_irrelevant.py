"""Requests of the browser itself are told from those of pages."""

import time

import pytest

from stillweb.snapshots.identity.irrelevant import errand, irrelevant, irrelevant_url
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import Request


@pytest.mark.parametrize(
    ("url", "own", "marked"),
    [
        ("http://clients2.google.com/time/1/current?cup2key=1", True, True),
        ("https://update.googleapis.com/", True, True),
        ("https://sub.safebrowsing.googleapis.com:443/v4", True, True),
        ("http://www.gstatic.com/generate_204", True, True),
        ("https://shop.example/.well-known/appspecific/com.chrome.devtools.json", True, True),
        ("https://accounts.google.com/ListAccounts?gpsia=1", True, True),
        ("https://accounts.google.com/", True, False),  # a tunnel, perhaps
        ("https://accounts.google.com/signin", False, False),
        ("https://google.com/", False, False),
        ("https://www.google-analytics.com/g/collect", False, True),
        ("https://packages.httpie.io/latest.json", True, True),
        ("https://shop.example/favicon.ico", False, True),
        ("https://shop.example/static/favicon.ico", False, True),  # named by a page, wanted by its tab
        ("https://shop.example/docs/favicon.ico.html", False, False),
        ("https://shop.example/?to=https://update.googleapis.com/", False, False),
        ("https://api.openai.com/v1/traces/ingest", False, True),
        ("https://us.api.openai.com/v1/traces/ingest", False, True),
        ("https://api.openai.com/v1/responses", False, False),
        ("https://api.openai.com/v1/traces-of-cats", False, False),
        ("https://api.openai.com/", False, False),
        ("https://api.anthropic.com/api/event_logging/v2/batch", False, True),
        ("https://api.anthropic.com/v1/messages", False, False),
        ("https://os-api.agno.com/telemetry/runs", False, True),
        ("https://play.googleapis.com/log?format=json&hasfast=true", False, True),
        ("https://cloud.langfuse.com/api/public/v2/prompts/p", False, False),  # decides what the agent asks
        ("recorder", False, False),
    ],
)
def test_errands(url: str, own: bool, marked: bool) -> None:
    assert (errand(url), irrelevant_url(url)) == (own, marked)


@pytest.mark.parametrize(
    ("method", "url", "media", "marked"),
    [
        ("POST", "http://collector.example:4318/v1/traces", "application/x-protobuf", True),
        ("POST", "http://collector.example/otel/v1/logs", "application/x-protobuf", True),
        ("POST", "http://shop.example/v1/logs", "application/json", False),
        ("GET", "http://shop.example/v1/logs", "application/x-protobuf", False),
        ("POST", "http://shop.example/v1/logs/1", "application/x-protobuf", False),
    ],
)
def test_what_is_handed_to_a_collector(method: str, url: str, media: str, marked: bool) -> None:
    assert irrelevant(Request(method, url, (("Content-Type", media),), b"x")) == marked


@pytest.mark.parametrize(
    ("url", "body", "marked"),
    [
        ("http://collector.example/otlp/v1/metrics", b'{\n  "resourceMetrics": [', True),
        ("http://collector.example/v1/traces", b'{"resourceSpans":[]}', True),
        ("http://collector.example/v1/logs", b'{"resourceLogs":[]}', True),
        ("http://shop.example/v1/logs", b'{"resource":"a"}', False),
        ("http://shop.example/v1/rooms", b'{"resourceLogs":[]}', False),
    ],
)
def test_what_is_handed_to_a_collector_as_json(url: str, body: bytes, marked: bool) -> None:
    assert irrelevant(Request("POST", url, (("Content-Type", "application/json"),), body)) == marked


@pytest.mark.parametrize("label", ["ab.", ".", "1."])
def test_a_host_of_thousands_of_labels_takes_no_time(label: str) -> None:
    host = label * (100_000 // len(label)) + "update.googleapis.com"
    begun = time.process_time()
    assert irrelevant_url(f"http://{host}/")
    assert site_of(f"http://{host}/")
    assert time.process_time() - begun < 1
