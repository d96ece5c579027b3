"""With tracing on, a session is one trace from client to target."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
import pytest
import websockets
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from specwhisper.errors import TargetUnavailable
from specwhisper.observe.tracing import configure_tracing, start_tracing
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper_client.api import TranscriptionClient
from tests.rpc.gateways import RECORDING, running_gateway, socket_refusal
from tests.rpc.network import cut_network
from tests.rpc.services import (
    all_free,
    draft_server,
    eventually,
    recording,
    running_pair,
    stream,
    target_server,
    wav,
)

RECOGNIZE = "specwhisper.wire.v1.Transcription/StreamingRecognize"
FIELDS = {"model": "scripted"}
VERIFY = "specwhisper.wire.v1.Verification/Verify"


@pytest.fixture
def exporter():
    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    start_tracing(provider)
    yield exporter
    start_tracing(None)
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str, kind: SpanKind = SpanKind.INTERNAL):
    return [span for span in exporter.get_finished_spans() if span.name == name and span.kind is kind]


async def test_client_draft_and_target_are_one_trace(exporter, tmp_path):
    path = wav(tmp_path / "speech.wav", recording(70.0))
    async with running_pair() as (target, draft), TranscriptionClient(draft.address) as client:
        transcript = await client.transcribe_file(path, DecodingOptions.greedy(), mode=Mode.SYNC)
        await all_free(target, draft)
    (asked,) = named(exporter, RECOGNIZE, SpanKind.CLIENT)
    (answered,) = named(exporter, RECOGNIZE, SpanKind.SERVER)
    (passed_on,) = named(exporter, VERIFY, SpanKind.CLIENT)
    (verified,) = named(exporter, VERIFY, SpanKind.SERVER)
    for inner, outer in ((answered, asked), (passed_on, answered), (verified, passed_on)):
        assert inner.parent.span_id == outer.context.span_id
        assert inner.context.trace_id == asked.context.trace_id
        assert outer.start_time <= inner.start_time
    windows = named(exporter, "window")
    of_target = [span for span in windows if span.parent.span_id == verified.context.span_id]
    of_draft = [span for span in windows if span.parent.span_id == answered.context.span_id]
    assert len(of_target) == len(of_draft) == transcript.stats.num_windows
    for spans in (of_target, of_draft):
        assert sum(span.attributes["specwhisper.tokens"] for span in spans) == transcript.stats.num_committed
        assert (
            sum(span.attributes["specwhisper.forward_passes"] for span in spans)
            == transcript.stats.num_forwards
        )
    (opened,) = verified.events
    (opened_by_draft,) = answered.events
    assert opened.attributes["specwhisper.draft_session"] == opened_by_draft.attributes["specwhisper.session"]


async def test_a_session_that_resumes_elsewhere_stays_in_its_trace(exporter, fast_retries):
    async with (
        target_server() as target,
        cut_network(target.address, [2, 4]) as (network, _),
        draft_server(network.address) as draft,
    ):
        await stream(draft, recording(70.0))
    (answered,) = named(exporter, RECOGNIZE, SpanKind.SERVER)
    calls = [
        span
        for span in named(exporter, VERIFY, SpanKind.CLIENT)
        if span.parent and span.parent.span_id == answered.context.span_id
    ]
    assert len(calls) == 3
    assert [event.name for event in answered.events] == ["session opened", "target lost", "target lost"]


HEX_TRACE, HEX_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_a_request_to_the_gateway_begins_a_trace_or_continues_its_clients(exporter):
    async with running_pair() as (target, draft), running_gateway(draft.address) as gateway:
        for headers in ({}, {"traceparent": f"00-{HEX_TRACE}-{HEX_SPAN}-01"}):
            exporter.clear()
            reply = await gateway.http.post(
                "/v1/audio/transcriptions", files={"file": RECORDING}, data=FIELDS, headers=headers
            )
            assert reply.status_code == 200
            await all_free(target, draft)
            (request,) = named(exporter, "POST /v1/audio/transcriptions", SpanKind.SERVER)
            (asked,) = named(exporter, RECOGNIZE, SpanKind.CLIENT)
            (verified,) = named(exporter, VERIFY, SpanKind.SERVER)
            assert asked.parent.span_id == request.context.span_id
            assert verified.context.trace_id == request.context.trace_id
            assert request.attributes["http.response.status_code"] == 200
            assert request.attributes["http.route"] == "/v1/audio/transcriptions"
            if headers:
                assert request.parent.span_id == int(HEX_SPAN, 16)
                assert request.context.trace_id == int(HEX_TRACE, 16)
            else:
                assert request.parent is None


async def test_a_websocket_is_a_span_around_its_calls(exporter):
    async with running_pair() as (target, draft), running_gateway(draft.address) as gateway:
        async with websockets.connect(f"ws://{gateway.server.address}/live") as socket:
            await socket.send(json.dumps({"type": "start", "sample_rate": 16_000}))
            await socket.send(recording(1.0))
            await socket.send(json.dumps({"type": "finish"}))
            async for _ in socket:
                pass
        await gateway.all_answered()
        await all_free(target, draft)
    (session,) = named(exporter, "GET /live", SpanKind.SERVER)
    (asked,) = named(exporter, RECOGNIZE, SpanKind.CLIENT)
    assert asked.parent.span_id == session.context.span_id
    assert session.attributes["specwhisper.close_code"] == 1000
    assert session.start_time <= asked.start_time <= asked.end_time <= session.end_time


async def test_only_the_servers_errors_are_marked_as_failed(exporter):
    async with running_gateway("127.0.0.1:1", api_key="0123456789abcdef") as gateway:
        key = {"Authorization": "Bearer 0123456789abcdef"}
        assert (await gateway.http.get("/v1/models")).status_code == 401
        assert (await gateway.http.get("/nowhere", headers=key)).status_code == 404
        assert (await gateway.http.get("/v1/models", headers=key)).status_code == 503
        await socket_refusal(f"ws://{gateway.server.address}/live")
        answers = lambda: [s for s in exporter.get_finished_spans() if s.kind is SpanKind.SERVER]  # noqa: E731
        await eventually(lambda: len(answers()) == 4)
    unset, error = StatusCode.UNSET, StatusCode.ERROR
    statuses = {
        span.attributes.get("http.response.status_code"): span.status.status_code for span in answers()
    }
    assert statuses == {401: unset, 404: unset, 503: error, None: unset}
    assert {span.attributes.get("specwhisper.close_code") for span in answers()} == {None, 1008}
    (failed,) = named(exporter, "GET /v1/models", SpanKind.SERVER)
    assert failed.attributes["error.type"] == TargetUnavailable.__name__
    asked = [span for span in exporter.get_finished_spans() if span.kind is SpanKind.CLIENT]
    assert {span.status.status_code for span in asked} == {error}
    assert {span.attributes["rpc.grpc.status_code"] for span in asked} == {
        grpc.StatusCode.UNAVAILABLE.value[0]
    }


def test_nothing_is_imported_unless_a_collector_is_named():
    script = (
        "import sys, specwhisper_client.cli.main, specwhisper_gateway.access_log\n"
        "import specwhisper_draft_server.link.link, specwhisper.rpc.serving\n"
        "from specwhisper.observe.tracing import configure_tracing\n"
        "configure_tracing('test')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.stdout.strip(), run.returncode) == ("[]", 0), run.stderr


def test_without_the_extra_tracing_is_off(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level("INFO"):
        configure_tracing("test")
    (record,) = caplog.records
    assert record.message == "tracing is off"
    assert "specwhisper[tracing]" in record.error


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.spans: list = []
        self.has_come = Event()

    def Export(self, request, context):
        for of_resource in request.resource_spans:
            resource = {each.key: each.value.string_value for each in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self.spans += [(resource["service.name"], span.name) for span in scope.spans]
        self.has_come.set()
        return trace_service_pb2.ExportTraceServiceResponse()


def test_a_collector_receives_the_spans_of_a_process():
    """Run the command line's client, which finds no server."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        run = subprocess.run(
            [sys.executable, "-m", "specwhisper", "models", "--server", "127.0.0.1:1"],
            env={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 1, run.stderr
        assert collector.has_come.wait(20)
    finally:
        server.stop(None).wait()
    assert collector.spans == [("specwhisper-client", "specwhisper.wire.v1.Transcription/GetModel")]
