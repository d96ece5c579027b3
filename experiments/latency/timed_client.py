"""Record when tokens are committed, over the network or in one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

import grpc.aio

from experiments.common.audio.samples import Sample
from experiments.common.inline_pair import InlinePair
from experiments.latency.cells import CHOSEN
from specwhisper.audio.source import PIECE_BYTES
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode
from specwhisper.wire.codec import statistics_from_proto
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.codec import config_to_proto
from specwhisper_client.exchange import exchange

WARM_UP_CALLS = 4  # each is a round trip, by which TCP adapts to the delay


@dataclass(frozen=True, slots=True)
class TimedTokens:
    """A transcription's tokens and the times of their commits.

    Attributes
    ----------
    tokens : tokens of all segments.
    wall_s : from the first audio to the last text.
    first_s, last_s : times of the first commit and the last.
    """

    tokens: tuple[int, ...]
    wall_s: float
    first_s: float
    last_s: float
    statistics: SpeculationStatistics

    @property
    def decoding_s(self) -> float:
        """Time in which the target wrote the text, without opening, upload and encoder.

        From the start of the first forward pass, which is a mean pass before the first commit, to the last
        commit, without the encodings of later windows. A first commit may have a whole window: only so does
        its pass count.
        """
        counts = self.statistics
        later_s = counts.encode_ns / 1e9 * (1 - 1 / max(1, counts.num_windows))
        return self.last_s - self.first_s + counts.forward_ns / 1e9 / max(1, counts.num_forwards) - later_s


class TokenTimer:
    """Records when the number of committed tokens grows."""

    def __init__(self) -> None:
        self.first_s = self.last_s = 0.0
        self._num_committed = 0
        self._started_s = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started_s

    def observe(self, num_committed: int) -> None:
        if num_committed == self._num_committed:
            return
        self.last_s = self.elapsed_s
        if not self._num_committed:
            self.first_s = self.last_s
        self._num_committed = num_committed


class TimedClient:
    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner()
        self._channel = self._runner.run(_open(address))

    def close(self) -> None:
        self._runner.run(self._channel.close())
        self._runner.close()

    def warm_up(self) -> None:
        self._runner.run(self._warm_up())

    def transcribe(
        self, sample: Sample, mode: Mode, gamma: int, options: DecodingOptions, hint: str
    ) -> TimedTokens:
        options = replace(options, hint=hint, log_mel_max=sample.log_mel_max)
        return self._runner.run(self._transcribe(sample, mode, gamma, options))

    async def _warm_up(self) -> None:
        for _ in range(WARM_UP_CALLS):
            await TranscriptionStub(self._channel).GetModel(pb.GetModelRequest())

    async def _transcribe(
        self, sample: Sample, mode: Mode, gamma: int, options: DecodingOptions
    ) -> TimedTokens:
        config = config_to_proto(options, mode, None if gamma == CHOSEN else gamma, is_container=False)
        call = TranscriptionStub(self._channel).StreamingRecognize()
        tokens: list[int] = []
        response = pb.StreamingRecognizeResponse()
        timer = TokenTimer()

        async def audio() -> AsyncIterator[bytes]:
            for start in range(0, len(sample.pcm), PIECE_BYTES):
                yield sample.pcm[start : start + PIECE_BYTES]

        request = pb.StreamingRecognitionConfig(config=config, interim_results=True, with_statistics=True)
        async with aclosing(exchange(call, request, audio())) as responses:
            async for response in responses:
                timer.observe(response.statistics.num_committed)
                finals = (result for result in response.results if result.is_final)
                tokens += [token for result in finals for token in result.alternatives[0].tokens]
        wall_s = timer.elapsed_s
        statistics = statistics_from_proto(response.statistics)
        return TimedTokens(tuple(tokens), wall_s, timer.first_s, timer.last_s, statistics)


async def _open(address: str) -> grpc.aio.Channel:
    """Open a channel inside its event loop."""
    return open_channel(address)


def timed_in_process(engine: InlinePair, sample: Sample, options: DecodingOptions) -> TimedTokens:
    timer, options = TokenTimer(), replace(options, log_mel_max=sample.log_mel_max)

    def watch(index: int, builder: TranscriptBuilder) -> None:
        timer.observe(builder.statistics.num_committed)

    (transcript,) = engine.transcribe([sample.pcm], options, watch=watch)
    wall_s = timer.elapsed_s
    tokens = tuple(token for segment in transcript.segments for token in segment.tokens)
    return TimedTokens(
        tokens, wall_s, timer.first_s, timer.last_s, transcript.stats or SpeculationStatistics()
    )
