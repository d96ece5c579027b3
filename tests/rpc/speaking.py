"""Run servers with models that recognise synthetic words, and live clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from experiments.common.models.scripted import END
from experiments.common.models.speech import SPOKEN, SpeechModel
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import SAMPLE_RATE, Limits, Segment
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update
from tests.rpc.services import (
    MAX_SESSIONS,
    Draft,
    Target,
    audio_requests,
    draft_server,
    eventually,
    scripted_checkpoint,
    target_server,
)

STEP_MS = 300
PIECE_BYTES = 3_200  # 100 ms


@asynccontextmanager
async def speaking_target(
    *,
    digest: str = "digest of scripted",
    limits: Limits | None = None,
    model: SpeechModel | None = None,
    **kwargs,
) -> AsyncIterator[Target]:
    checkpoint = scripted_checkpoint(vocabulary=SPOKEN, weights_digest=digest)
    limits = limits or Limits(max_sessions=MAX_SESSIONS)
    model = model or SpeechModel(limits.max_sessions)
    async with target_server(model, checkpoint, limits=limits, **kwargs) as target:
        yield target


@asynccontextmanager
async def speaking_draft(
    target: str,
    *,
    error_rate: float = 0.2,
    port: int = 0,
    model: SpeechModel | None = None,
    **settings,
) -> AsyncIterator[Draft]:
    checkpoint = scripted_checkpoint("scripted-draft", vocabulary=SPOKEN)
    model = model or SpeechModel(MAX_SESSIONS, error_rate=error_rate)
    async with draft_server(target, model, checkpoint, port=port, **settings) as draft:
        yield draft


@asynccontextmanager
async def speaking_pair(**kwargs) -> AsyncIterator[tuple[Target, Draft]]:
    async with speaking_target() as target, speaking_draft(target.address, **kwargs) as draft:
        yield target, draft


def config(
    *, disabled=False, interim=False, language="en", live=None, endpointing=None, **more
) -> pb.StreamingRecognizeRequest:
    decoding = decoding_pb2.DecodingOptions(
        greedy=True,
        language=language,
        live=decoding_pb2.LiveOptions(**live or {}),
        **more.pop("decoding", {}),
    )
    return pb.StreamingRecognizeRequest(
        streaming_config=pb.StreamingRecognitionConfig(
            config=pb.RecognitionConfig(
                encoding="AUDIO_ENCODING_LINEAR16", sample_rate_hertz=SAMPLE_RATE, decoding=decoding, **more
            ),
            interim_results=interim,
            endpointing=pb.Endpointing(disabled=disabled, **endpointing or {}),
        )
    )


async def listen(draft: Draft, pcm: bytes, piece_bytes: int = 3_200, **kwargs):
    requests = iter([config(**kwargs), *audio_requests(pcm, piece_bytes)])
    call = with_true_status(draft.stub.StreamingRecognize(requests))
    return [response async for response in call]


def final_results(responses) -> list[pb.SpeechRecognitionResult]:
    return [result for response in responses for result in response.results if result.is_final]


def pieces_of(pcm: bytes) -> Iterator[bytes]:
    for start in range(0, len(pcm), PIECE_BYTES):
        yield pcm[start : start + PIECE_BYTES]


def segments_of(updates: Iterable[Update]) -> list[Segment]:
    return [segment for update in updates for segment in update.segments]


def texts_of(results: Iterable) -> dict[int, list[int]]:
    texts: dict[int, list[int]] = {}
    for result in results:
        tokens = (
            result.alternatives[0].tokens if isinstance(result, pb.SpeechRecognitionResult) else result.tokens
        )
        texts.setdefault(result.utterance, []).extend(token for token in tokens if token < END)
    return texts


class Listener:
    """Collects a client's updates in a task."""

    def __init__(self, client: StreamingClient) -> None:
        self.updates: list[Update] = []
        self._task = asyncio.create_task(self._listen(client))

    async def _listen(self, client: StreamingClient) -> None:
        async for update in client:
            self.updates.append(update)

    @property
    def segments(self) -> list:
        return [segment for update in self.updates for segment in update.segments]

    @property
    def num_words(self) -> int:
        return sum(len(text) for text in texts_of(self.segments).values())

    async def received(self, num_words: int) -> None:
        await eventually(lambda: self._task.done() or self.num_words >= num_words)

    async def follow(self, client: StreamingClient, pcm: bytes, start: int, end: int) -> None:
        """Send audio between two samples so slowly that no step is skipped."""
        part = 2 * STEP_MS * SAMPLE_RATE // 1_000
        for at in range(start, end, part):
            until = min(at + part, end)
            await client.send(pcm[at * 2 : until * 2])
            await eventually(lambda until=until: self.decoded_to > until - part)

    @property
    def decoded_to(self) -> int:
        return max((step.end_sample for update in self.updates for step in update.steps), default=0)

    async def whole(self, within_s: float = 20) -> None:
        async with asyncio.timeout(within_s):
            await self._task

    def check(self, expected: dict[int, list[int]]) -> None:
        assert texts_of(self.segments) == expected
        assert [s.utterance for s in self.segments if s.is_utterance_end] == list(expected)
        starts = [segment.start_s for segment in self.segments]
        assert starts == sorted(starts)


def live_client(
    address: str,
    *,
    step_ms: int = STEP_MS,
    confirm_every_ms: int | None = None,
    disabled: bool = False,
    endpointing: EndpointingOptions | None = None,
    **kwargs,
) -> StreamingClient:
    return StreamingClient(
        address,
        DecodingOptions.greedy(language="en"),
        live=LiveOptions(step_ms=step_ms, confirm_every_ms=confirm_every_ms),
        endpointing=None if disabled else endpointing or EndpointingOptions(),
        **kwargs,
    )
