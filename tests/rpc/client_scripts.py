"""A draft server with scripted responses, for tests of the client."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.wire import CLIENT_PROTOCOL_VERSION
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1 import transcription_pb2_grpc as rpc
from specwhisper_draft_server.responses import duration
from tests.rpc.services import as_draft_server


def final(start_s, end_s, text, tokens, confidence) -> pb.SpeechRecognitionResult:
    return pb.SpeechRecognitionResult(
        alternatives=[pb.SpeechRecognitionAlternative(transcript=text, tokens=tokens, confidence=confidence)],
        is_final=True,
        stability=1.0,
        start_offset=duration(start_s),
        end_offset=duration(end_s),
        language_code="en",
    )


def interim(text: str, stability: float) -> pb.SpeechRecognitionResult:
    alternative = pb.SpeechRecognitionAlternative(transcript=text)
    return pb.SpeechRecognitionResult(alternatives=[alternative], stability=stability, language_code="en")


MODEL = pb.ModelInfo(target="large", draft="tiny", target_weights_digest="abc", mode="MODE_FULL", gamma=5)
STATISTICS = pb.SpeculationStatistics(
    num_drafted=10,
    num_verified=8,
    num_accepted=6,
    num_self_decoded=1,
    num_committed=10,
    num_forwards=4,
    acceptance_histogram=[1, 0, 3],
    num_blocks=3,
    num_windows=1,
    min_round_trip_ns=160_000,
)
FINALS = (
    final(0.0, 1.5, " Hello there.", (50365, 440, 50440), 0.75),
    final(1.5, 2.25, " Bye.", (50440, 291, 50478), 0.5),
)
RESPONSES = (
    pb.StreamingRecognizeResponse(
        results=[interim(" Hello", 0.9), interim(" their", 0.5), interim(" bye", 0.1)],
        model=MODEL,
        audio_received=duration(1.0),
    ),
    pb.StreamingRecognizeResponse(
        results=[FINALS[0], interim(" Bye", 0.9), interim(".", 0.1)], audio_received=duration(2.5)
    ),
    pb.StreamingRecognizeResponse(
        results=[FINALS[1]],
        statistics=STATISTICS,
        audio_received=duration(2.5),
        language=pb.SpokenLanguage(code="en", name="english"),
    ),
)


class ScriptedTranscription(rpc.TranscriptionServicer):
    """Read all audio, send the responses, then raise the error, hang, or end.

    ``left`` is done when a streaming call has ended in any way.
    """

    def __init__(
        self,
        responses: Sequence[pb.StreamingRecognizeResponse] = RESPONSES,
        *,
        error: Exception | None = None,
        reads_everything: bool = True,
        hangs: bool = False,
    ) -> None:
        self._responses = responses
        self._error = error
        self._reads_everything = reads_everything
        self._hangs = hangs
        self.config: pb.StreamingRecognitionConfig | None = None
        self.recognized: pb.RecognizeRequest | None = None
        self.audio = b""
        self.hints: list[decoding_pb2.Hint] = []
        self.ends: list[int] = []  # bytes of audio before each end of an utterance
        self.message_sizes: list[int] = []
        self.has_read_everything = asyncio.Event()
        self.left = asyncio.get_running_loop().create_future()

    async def StreamingRecognize(self, request_iterator, context):
        try:
            async for request in request_iterator:
                if request.ping and self._reads_everything:
                    yield pb.StreamingRecognizeResponse(ping=request.ping)
                if request.HasField("streaming_config"):
                    self.config = request.streaming_config
                elif request.HasField("hint"):
                    self.hints.append(request.hint)
                elif request.HasField("end_utterance"):
                    self.ends.append(len(self.audio))
                else:
                    self.audio += request.audio_content
                    self.message_sizes.append(len(request.audio_content))
                if not self._reads_everything:
                    break
            self.has_read_everything.set()
            for response in self._responses:
                yield response
            if self._hangs:
                await asyncio.Event().wait()
            if self._error is not None:
                raise self._error
        finally:
            if not self.left.done():
                self.left.set_result(None)

    async def Recognize(self, request, context):
        self.recognized = request
        if self._error is not None:
            raise self._error
        return pb.RecognizeResponse(
            results=FINALS, model=MODEL, statistics=STATISTICS, audio_duration=duration(2.5)
        )

    async def GetModel(self, request, context):
        return pb.GetModelResponse(
            model=MODEL,
            languages=["de", "en"],
            max_message_bytes=262_144,
            max_sessions=16,
            software_version="1.2.3",
            protocol_version=CLIENT_PROTOCOL_VERSION,
            log_mel_max_bins=(80, 128),
        )


@asynccontextmanager
async def serving(servicer: ScriptedTranscription, port: int = 0, **options) -> AsyncIterator[str]:
    """Serve on a port, or a free one; yield the address."""
    async with as_draft_server(servicer, ServingOptions(port=port, **options)) as server:
        yield server.address
