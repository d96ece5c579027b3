"""A draft server that answers any recording with the transcript of hours, and a gateway in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from experiments.common.servers.forked import ForkedServer, Probes
from experiments.soak.servers import serve_gateway
from specwhisper.rpc.serving import serve
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire import CLIENT_PROTOCOL_VERSION
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2_grpc as rpc
from specwhisper_gateway.config import GatewayConfig

SERVICE = "specwhisper.wire.v1.Transcription"
WINDOW_S, SEGMENT_S, WORD_S = 30.0, 4.0, 0.4
MODEL = pb.ModelInfo(
    target="scripted", draft="scripted", target_weights_digest="1", mode="MODE_FULL", gamma=4
)


@asynccontextmanager
async def talkative_gateway(length_s: float) -> AsyncIterator[ForkedServer]:
    """Run a gateway whose draft server returns a transcript of this length for any recording."""
    draft = ForkedServer(serve_talkative, length_s)
    gateway: ForkedServer | None = None
    try:
        gateway = ForkedServer(serve_gateway, GatewayConfig(server=await draft.ready(), port=0))
        await gateway.ready()
        yield gateway
    finally:
        await asyncio.gather(*(process.kill() for process in (draft, gateway) if process is not None))


async def serve_talkative(length_s: float, probes: Probes) -> None:
    """Serve until a signal."""
    add = partial(rpc.add_TranscriptionServicer_to_server, _Talkative(length_s))
    await serve({SERVICE: add}, ServingOptions(port=0))


class _Talkative(rpc.TranscriptionServicer):
    def __init__(self, length_s: float) -> None:
        self._responses = list(_responses(length_s))

    async def StreamingRecognize(
        self, request_iterator: AsyncIterator[pb.StreamingRecognizeRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamingRecognizeResponse]:
        async for request in request_iterator:
            if request.mark:
                yield pb.StreamingRecognizeResponse(mark=request.mark)
        for response in self._responses:
            yield response

    async def GetModel(
        self, request: pb.GetModelRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetModelResponse:
        return pb.GetModelResponse(
            model=MODEL,
            languages=["en"],
            max_message_bytes=262_144,
            max_sessions=16,
            software_version="1",
            protocol_version=CLIENT_PROTOCOL_VERSION,
        )


def _responses(length_s: float) -> Iterator[pb.StreamingRecognizeResponse]:
    """Yield a response for each window; the last one carries what a transcript needs besides."""
    num_windows = round(length_s / WINDOW_S)
    for number in range(num_windows):
        starts = _times(number * WINDOW_S, WINDOW_S, SEGMENT_S)
        received = _duration((number + 1) * WINDOW_S)
        last: dict[str, Any] = {}
        if number == num_windows - 1:
            last["language"] = pb.SpokenLanguage(code="en", name="english")
            last["statistics"] = pb.SpeculationStatistics(num_forwards=1, num_windows=num_windows)
        yield pb.StreamingRecognizeResponse(
            results=list(map(_segment, starts)), model=MODEL, audio_received=received, **last
        )


def _segment(start_s: float) -> pb.SpeechRecognitionResult:
    words = [
        pb.WordInfo(
            start_offset=_duration(at_s), end_offset=_duration(at_s + WORD_S), word=" hello", confidence=0.9
        )
        for at_s in _times(start_s, SEGMENT_S, WORD_S)
    ]
    said = pb.SpeechRecognitionAlternative(
        transcript=" hello" * len(words), tokens=range(100, 115), confidence=0.9, words=words
    )
    return pb.SpeechRecognitionResult(
        alternatives=[said],
        is_final=True,
        stability=1.0,
        start_offset=_duration(start_s),
        end_offset=_duration(start_s + SEGMENT_S),
        language_code="en",
    )


def _times(start_s: float, length_s: float, step_s: float) -> list[float]:
    return [start_s + number * step_s for number in range(int(length_s / step_s))]


def _duration(time_s: float) -> Duration:
    return Duration(seconds=int(time_s), nanos=round(time_s % 1 * 1e9) % 1_000_000_000)
