"""Spans of requests, stages and jobs: where they are, and that nothing of a tenant is in them.

Not here: a real process and a collector (`test_whole.py`).
"""

import asyncio
import logging
import sys
import threading
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from relayer.app import build_app
from relayer.sealed.keys import account_text
from relayer.settings import Settings
from relayer.storage import Storage
from relayer.telemetry import tracing
from relayer.telemetry.work import observe
from relayer.upkeep.provision import NewKey
from tests.life import WAIT_S_MAX
from tests.signing import client_of, signer_of

COLLECTOR = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest_asyncio.fixture
async def spans() -> AsyncIterator[InMemorySpanExporter]:
    """What is traced meanwhile."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with tracing.trace_to(provider):
        yield exporter


def tree(exporter: InMemorySpanExporter) -> dict[str, set[str]]:
    """Name of a span → names of those right below it, "" for none; of requests alone, for other
    tests may have left a task at work."""
    traces = {
        span.context.trace_id
        for span in exporter.get_finished_spans()
        if "memrelay.request_id" in (span.attributes or {})
    }
    finished = [s for s in exporter.get_finished_spans() if s.context.trace_id in traces]
    names = {span.context.span_id: span.name for span in finished}
    found: dict[str, set[str]] = {}
    for span in finished:
        above = names[span.parent.span_id] if span.parent is not None else ""
        found.setdefault(above, set()).add(span.name)
    return found


def named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    [span] = [span for span in exporter.get_finished_spans() if span.name == name]
    return span


async def test_a_request_and_its_stages(
    storage: Storage, settings: Settings, managed: NewKey, spans: InMemorySpanExporter
) -> None:
    body = {"text": "zqtext", "namespace": "zqname", "relayer": storage.identity.public_key.hex()}
    asked = {"query": "zqtext", "namespace": "zqname"}
    headers = {"x-request-id": "request-one", "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    async with client_of(build_app(storage, settings), signer_of(managed)) as client:
        await client.post("/v1/remember", json=body)
        answer = await client.post("/v1/recall", json=asked, headers=headers)
        await client.get(f"/v1/memories/{answer.json()['results'][0]['id']}")
        await client.get("/zqpath?zqquery=1")
    recall = "POST /v1/recall"
    assert tree(spans) == {
        "": {"POST /v1/remember", recall, "GET /v1/memories/{memory_id}", "request"},
        "POST /v1/remember": {"request.check", "remember.whole"},
        "remember.whole": {"remember.prepare", "remember.write"},
        recall: {"request.check", "recall.whole"},
        "recall.whole": {"recall.embed", "recall.search", "recall.open"},
        "recall.embed": {"embedding"},
        "GET /v1/memories/{memory_id}": {"request.check"},
    }
    span = named(spans, recall)
    assert dict(span.attributes or {}) == {
        "memrelay.request_id": "request-one",
        "http.request.method": "POST",
        "http.route": "/v1/recall",
        "http.response.status_code": 200,
    }
    assert span.context.trace_id != int("1" * 32, 16), "nobody outside continues a trace here"
    whole = "".join(span.to_json() for span in spans.get_finished_spans())
    mine = (account_text(managed.account)[2:], managed.identity.public_key.hex())
    assert not [word for word in ("zq", "tracestate", *mine) if word in whole]


async def test_a_bug_leaves_nothing_that_it_says(
    storage: Storage, settings: Settings, managed: NewKey, spans: InMemorySpanExporter
) -> None:
    await storage.database.execute("ALTER TABLE memories RENAME TO zqhidden")
    body = {"text": "zqtext", "relayer": storage.identity.public_key.hex()}
    async with client_of(build_app(storage, settings), signer_of(managed)) as client:
        answer = await client.post("/v1/remember", json=body)
    assert answer.status_code == 500
    finished = spans.get_finished_spans()
    assert not [span for span in finished if span.events or span.status.description]
    whole = "".join(span.to_json() for span in finished)
    assert "relation" not in whole
    assert "zq" not in whole


@dataclass(frozen=True)
class _Job:
    id: int


async def test_a_job(spans: InMemorySpanExporter) -> None:
    async def work(_: _Job) -> None:
        raise ValueError(f"zq{uuid.uuid4()}")

    with pytest.raises(ValueError, match="zq"):
        await observe("of a test", work, put_back=TimeoutError)(_Job(41))
    span = named(spans, "job of a test")  # others' tasks may have real ones
    assert dict(span.attributes or {}) == {"memrelay.job_id": 41}
    assert "zq" not in span.to_json()


async def test_a_collector_that_stays_silent_holds_up_no_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes after the last spans goes on while they still wait."""
    taken = threading.Event()

    class Silent(SpanProcessor):
        def shutdown(self) -> None:
            taken.wait(WAIT_S_MAX)

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Silent())
    monkeypatch.setattr(tracing, "LAST_S", 0.01)
    async with tracing.trace_to(provider):
        pass
    [last] = [thread for thread in threading.enumerate() if thread.name == tracing.LAST]
    assert last.is_alive()
    taken.set()
    await asyncio.to_thread(last.join)


async def test_without_a_collector_there_is_no_span() -> None:
    async with tracing.as_environment_says({}):
        assert tracing.span("request") is None
    tracing.name_request("GET", "/health", 200)


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({COLLECTOR: ""}, False),
        ({COLLECTOR: "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({COLLECTOR: "http://collector:4318", "OTEL_SDK_DISABLED": "True"}, False),
        ({COLLECTOR: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({COLLECTOR: "http://collector:4318", "OTEL_TRACES_EXPORTER": "console"}, False),
        ({COLLECTOR: "http://collector:4318", "OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_SERVICE_NAME": "relayer"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://collector:4318"}, False),
    ],
)
def test_traces_are_asked_for_by_naming_a_collector(
    environment: dict[str, str], asked: bool
) -> None:
    assert tracing.is_asked_for(environment) == asked


async def test_variables_that_mean_nothing_end_no_relayer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that is larger than what may wait for it."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9")
    with caplog.at_level(logging.WARNING, "relayer.telemetry"):
        async with tracing.as_environment_says({COLLECTOR: "http://127.0.0.1:9"}):
            assert tracing.span("request") is None
    assert [record.__dict__["event"] for record in caplog.records] == ["tracing.failed"]


async def test_asked_for_without_the_extra_it_serves_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING, "relayer.telemetry"):
        async with tracing.as_environment_says({COLLECTOR: "http://127.0.0.1:9"}):
            assert tracing.span("request") is None
    assert [record.__dict__["event"] for record in caplog.records] == ["tracing.missing"]
