"""A client that records when tokens are committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import grpc.aio

from experiments.common.audio.samples import Sample
from specwhisper.audio.source import PIECE_BYTES
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode
from specwhisper.wire.codec import statistics_from_proto
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.calls import exchange
from specwhisper_client.codec import config_to_proto

WARM_UP_CALLS = 4  # each is a round trip, by which TCP adapts to the delay


@dataclass(frozen=True, slots=True)
class TimedTokens:
    """A transcription's tokens and the times of their commits.

    Attributes
    ----------
    tokens : tokens of all segments.
    wall_s : from the request to the last text.
    first_s, last_s : times of the first commit and the last, if the client watches.
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
    """A client of a draft server, with an event loop of its own.

    Parameters
    ----------
    watches : whether it asks for interim text, whose statistics say when tokens are committed.
    """

    def __init__(self, address: str, *, watches: bool = False) -> None:
        self._runner = asyncio.Runner()
        self._watches = watches
        self._channel = self._runner.run(_open(address))

    def close(self) -> None:
        self._runner.run(self._channel.close())
        self._runner.close()

    def warm_up(self) -> None:
        self._runner.run(self._warm_up())

    def transcribe(
        self, sample: Sample, options: DecodingOptions, mode: Mode, gamma: int | None = None
    ) -> TimedTokens:
        """Send a recording as fast as it is taken."""
        return self._runner.run(self._transcribe(sample, options, mode, gamma))

    async def _warm_up(self) -> None:
        for _ in range(WARM_UP_CALLS):
            await TranscriptionStub(self._channel).GetModel(pb.GetModelRequest())

    async def _transcribe(
        self, sample: Sample, options: DecodingOptions, mode: Mode, gamma: int | None
    ) -> TimedTokens:
        config = config_to_proto(options, mode, gamma, is_container=False)
        call = TranscriptionStub(self._channel).StreamingRecognize()
        tokens: list[int] = []
        response = pb.StreamingRecognizeResponse()
        timer, wall_s = TokenTimer(), 0.0

        async def audio() -> AsyncIterator[bytes]:
            for start in range(0, len(sample.pcm), PIECE_BYTES):
                yield sample.pcm[start : start + PIECE_BYTES]

        request = pb.StreamingRecognitionConfig(
            config=config, interim_results=self._watches, with_statistics=self._watches
        )
        async with aclosing(exchange(call, request, audio())) as responses:
            async for response in responses:
                timer.observe(response.statistics.num_committed)
                if response.results or not tokens:  # a recording may have no text at all
                    wall_s = timer.elapsed_s
                finals = (result for result in response.results if result.is_final)
                tokens += [token for result in finals for token in result.alternatives[0].tokens]
        statistics = statistics_from_proto(response.statistics)
        return TimedTokens(tuple(tokens), wall_s, timer.first_s, timer.last_s, statistics)


async def _open(address: str) -> grpc.aio.Channel:
    """Open a channel inside its event loop."""
    return open_channel(address)
