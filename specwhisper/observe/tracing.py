"""OpenTelemetry traces from client to draft to target; nothing of it is imported before it is asked for.

Spans are those of calls, on both their ends, of requests to the gateway, and of windows. The context travels
in metadata and headers as W3C's ``traceparent``. OpenTelemetry's own instrumentation of gRPC wraps calls,
which this project reads and writes in two tasks at once and whose status it mends
(:mod:`specwhisper.rpc.streams`); so this is done here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from specwhisper.types import Commit, WindowOpened
from specwhisper.wire.outcomes import FAILED, outcome_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
Metadata = list[tuple[str, str | bytes]]

_tracer: Tracer | None = None  # of this process


def configure_tracing(service: str) -> None:
    """Trace if the environment names a collector, as OpenTelemetry's variables do; else do nothing."""
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
    """Give spans to a provider from now on; ``None`` gives them to nobody."""
    global _tracer
    _tracer = provider.get_tracer("specwhisper") if provider is not None else None


def begin_call(method: str, address: str, metadata: Metadata) -> Callable[[Any], None] | None:
    """Begin the span of a call and put it into the metadata; tell the call itself to what this gives."""
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
        code = _code_of(call)
        if code:
            span.set_attribute("rpc.grpc.status_code", code)
            span.set_status(StatusCode.ERROR)
        span.end()

    return lambda call: call.add_done_callback(end)


@contextmanager
def answering(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Iterator[None]:
    """Keep a span for a call that is answered, as part of what the caller traces."""
    if _tracer is None:
        yield
        return
    told = {key: value for key, value in metadata if isinstance(value, str)}
    span = _begin_answer(_tracer, method.lstrip("/"), told, _call_attributes(method))
    try:
        yield
    except BaseException as error:
        outcome = outcome_of(error)
        span.set_attribute("specwhisper.outcome", outcome)
        if outcome == FAILED:
            _mark_failed(span, error)
        raise
    finally:
        span.end()


class HttpAnswer:
    """The span of a request over HTTP, or of a WebSocket, from its headers on; nothing where nobody traces.

    Calls that its task makes, and the tasks that this one starts, are its children.
    """

    def __init__(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Begin it, as part of what the client traces."""
        self._method = method
        self._span: Span | None = None
        if _tracer is not None:
            told = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers}
            self._span = _begin_answer(_tracer, method, told, {"http.request.method": method})

    def end(self, route: str, facts: Mapping[str, str | int], failure: BaseException | None) -> None:
        """End it: only now is known which route it was, and how it went.

        Parameters
        ----------
        facts : attributes of the span.
        failure : an error that is not the client's.
        """
        if self._span is None:
            return
        self._span.update_name(f"{self._method} {route}")
        self._span.set_attributes({"http.route": route, **facts})
        if failure is not None:
            _mark_failed(self._span, failure)
        self._span.end()


def _begin_answer(tracer: Tracer, name: str, told: dict[str, str], attributes: dict[str, str]) -> Span:
    """Begin the span of what this task answers to whoever has told of his own."""
    from opentelemetry import context, propagate
    from opentelemetry.trace import SpanKind, set_span_in_context

    of_caller = propagate.extract(told)
    span = tracer.start_span(name, of_caller, kind=SpanKind.SERVER, attributes=attributes)
    # The task is the answer's own, and so is its context, which ends with it.
    context.attach(set_span_in_context(span, of_caller))
    return span


def _mark_failed(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", type(error).__name__)
    span.set_status(StatusCode.ERROR)


def note_event(name: str, **facts: str | float | bool) -> None:
    """Note that something happened in the call that is being answered."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().add_event(name, {f"specwhisper.{key}": value for key, value in facts.items()})


class WindowSpans:
    """Makes a span of each window of a session, from its opening to its last commit."""

    def __init__(self) -> None:
        self._span: Span | None = None
        self._totals: dict[str, float] = {}

    @property
    def are_wanted(self) -> bool:
        """Whether anybody collects them."""
        return _tracer is not None

    def observe(self, event: object) -> None:
        """Follow what a target says."""
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
        """End the open window's span, whether it is complete or not."""
        if self._span is not None:
            self._span.set_attributes({f"specwhisper.{key}": n for key, n in self._totals.items()})
            self._span.end()
            self._span = None

    def _count(self, commit: Commit) -> None:
        for name, number in (
            ("tokens", len(commit.tokens)),
            ("passes", 1),
            ("verified_tokens", commit.num_drafted_verified),
            ("accepted_tokens", commit.num_drafted_accepted),
            ("queue_s", commit.timing.queue_ns / 1e9),
            ("forward_s", commit.timing.forward_ns / 1e9),
            ("encode_s", commit.timing.encode_ns / 1e9),
        ):
            self._totals[name] = self._totals.get(name, 0) + number


def _call_attributes(method: str, address: str = "") -> dict[str, str]:
    service, _, name = method.strip("/").partition("/")
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
    return attributes | ({"server.address": address} if address else {})


def _code_of(call: Any) -> int:
    """Give the status of a call that has ended: it is there, so nothing is waited for."""
    asking = call.code()
    try:
        asking.send(None)
    except StopIteration as answer:
        return int(answer.value.value[0])
    finally:
        asking.close()
    return 0
