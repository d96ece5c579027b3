"""OpenTelemetry traces of calls, requests and windows.

The trace context travels in metadata and headers as W3C's ``traceparent``. OpenTelemetry's own
instrumentations are not used. That of grpc.aio wraps calls that we read and write in two tasks at once and
whose status we correct (:mod:`specwhisper.rpc.channels`). That of ASGI names a span before its route is
known, and pins four more packages of beta versions.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from specwhisper.types import Commit, WindowOpened
from specwhisper.wire.status import FAILED, outcome_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
Metadata = list[tuple[str, str | bytes]]

_tracer: Tracer | None = None  # this process's


def configure_tracing(service: str) -> None:
    if not any(map(os.environ.get, ENDPOINTS)) or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        needs = f"it needs {error.name}: pip install 'specwhisper[tracing]'"
        logger.info("tracing is off", extra={"error": needs})
        return
    resource = Resource({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME", service)})
    provider = TracerProvider(resource=Resource.create().merge(resource))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    start_tracing(provider)
    logger.info("tracing", extra={"service": service})


def start_tracing(provider: TracerProvider | None) -> None:
    """Send this process's spans to a provider from now on; ``None`` ends that."""
    global _tracer
    _tracer = provider.get_tracer("specwhisper") if provider is not None else None


def start_call_span(method: str, address: str, metadata: Metadata) -> Callable[[Any], None] | None:
    """Start the span of a call and add its context to the metadata.

    Return a function that is passed the call, and ends the span with it; ``None`` if tracing is off.
    """
    if _tracer is None:
        return None
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

    span = _tracer.start_span(
        method.lstrip("/"), kind=SpanKind.CLIENT, attributes=_call_attributes(method, address)
    )
    carrier: dict[str, str] = {}
    propagate.inject(carrier, set_span_in_context(span))
    metadata += carrier.items()

    def end(call: Any) -> None:
        if code := _code_of(call):
            span.set_attribute("rpc.grpc.status_code", code)
            span.set_status(StatusCode.ERROR)
        span.end()

    return lambda call: call.add_done_callback(end)


@contextmanager
def call_span(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Iterator[None]:
    """Trace a gRPC call that this task answers, as a child of the caller's span."""
    with server_span(method.lstrip("/"), metadata, _call_attributes(method)) as span:
        try:
            yield
        except BaseException as error:
            if span is not None:
                outcome = outcome_of(error)
                span.set_attribute("specwhisper.outcome", outcome)
                if outcome == FAILED:
                    _mark_failed(span, error)
            raise


@contextmanager
def server_span(
    name: str, received: Iterable[tuple[str, str | bytes]], attributes: dict[str, str]
) -> Iterator[Span | None]:
    """Trace this task's answer as a child of the caller's span.

    Calls that this task makes, and tasks that it starts, are children of this span.
    """
    if _tracer is None:
        yield None
        return
    from opentelemetry import context, propagate
    from opentelemetry.trace import SpanKind, set_span_in_context

    parent = propagate.extract({key: value for key, value in received if isinstance(value, str)})
    span = _tracer.start_span(name, parent, kind=SpanKind.SERVER, attributes=attributes)
    context.attach(set_span_in_context(span, parent))  # never detached: the task ends with its answer
    try:
        yield span
    finally:
        span.end()


def describe_request(
    span: Span | None, name: str, attributes: Mapping[str, Any], failure: BaseException | None
) -> None:
    """Name the span of an HTTP request, whose route and status are known at its end.

    ``failure``: an error that is not the client's.
    """
    if span is None:
        return
    span.update_name(name)
    span.set_attributes(attributes)
    if failure is not None:
        _mark_failed(span, failure)


def note_event(name: str, **facts: str | float | bool) -> None:
    """Add an event to the span of the call that is being answered."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().add_event(name, {f"specwhisper.{key}": value for key, value in facts.items()})


def _mark_failed(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", type(error).__name__)
    span.set_status(StatusCode.ERROR)


def _call_attributes(method: str, address: str = "") -> dict[str, str]:
    service, _, name = method.strip("/").partition("/")
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
    return attributes | ({"server.address": address} if address else {})


def _code_of(call: Any) -> int:
    """Return the status of a call that has ended, without waiting."""
    asking = call.code()
    try:
        asking.send(None)
    except StopIteration as answer:
        return int(answer.value.value[0])
    finally:
        asking.close()
    return 0


class WindowSpans:
    """Traces the windows of one session: a span from each one's opening to its last commit."""

    def __init__(self) -> None:
        self._span: Span | None = None
        self._totals: dict[str, float] = {}

    @property
    def are_traced(self) -> bool:
        return _tracer is not None

    def on_event(self, event: object) -> None:
        if _tracer is None:
            return
        if isinstance(event, WindowOpened):
            self.close()
            window = event.window
            facts = {"window": window.id, "start_frame": window.start_frame, "frames": window.num_frames}
            attributes = {f"specwhisper.{key}": value for key, value in facts.items()}
            self._span, self._totals = _tracer.start_span("window", attributes=attributes), {}
        elif isinstance(event, Commit) and self._span is not None and event.tokens:
            self._count(event)
            if event.is_final:
                self.close()

    def close(self) -> None:
        if self._span is not None:
            self._span.set_attributes({f"specwhisper.{key}": n for key, n in self._totals.items()})
            self._span.end()
            self._span = None

    def _count(self, commit: Commit) -> None:
        for name, number in (
            ("tokens", len(commit.tokens)),
            ("forward_passes", 1),
            ("verified_tokens", commit.num_drafted_verified),
            ("accepted_tokens", commit.num_drafted_accepted),
            ("queue_s", commit.timing.queue_ns / 1e9),
            ("forward_s", commit.timing.forward_ns / 1e9),
            ("encode_s", commit.timing.encode_ns / 1e9),
        ):
            self._totals[name] = self._totals.get(name, 0) + number
