"""The arms over real processes: a client that sends a recording as fast as it is taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc.aio

from experiments.baselines.measurement import Measurement, keep_text
from experiments.common.audio.samples import Sample
from specwhisper.audio.source import PIECE_BYTES
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel
from specwhisper.types import Mode
from specwhisper.wire.codec import statistics_from_proto
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.codec import config_to_proto
from specwhisper_client.exchange import exchange


class Service:
    """A draft server, seen by a client in this process.

    Parameters
    ----------
    special : ids that are neither text nor timestamps, as (first, one past the last).
    """

    def __init__(self, address: str, *, gamma: int | None, special: tuple[int, int]) -> None:
        self._runner = asyncio.Runner()
        self._gamma = gamma
        self._special = special
        self._channel = self._runner.run(_open(address))

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._channel.close())
        self._runner.close()

    def transcribe(self, sample: Sample, timestamps: bool, mode: Mode) -> Measurement:
        """Transcribe a recording in one of the server's modes."""
        return self._runner.run(self._transcribe(sample, timestamps, mode))

    async def _transcribe(self, sample: Sample, timestamps: bool, mode: Mode) -> Measurement:
        options = DecodingOptions.greedy(language="en", timestamps=timestamps, log_mel_max=sample.log_mel_max)
        config = config_to_proto(options, mode, self._gamma, is_container=False)
        call = TranscriptionStub(self._channel).StreamingRecognize()
        tokens: list[int] = []
        last = pb.StreamingRecognizeResponse()
        started_s = ended_s = 0.0

        async def audio() -> AsyncIterator[bytes]:
            nonlocal started_s
            started_s = time.perf_counter()
            for start in range(0, len(sample.pcm), PIECE_BYTES):
                yield sample.pcm[start : start + PIECE_BYTES]

        request = pb.StreamingRecognitionConfig(config=config)
        async with aclosing(exchange(call, request, audio())) as responses:
            async for last in responses:
                if last.results or not tokens:  # a recording may have no text at all
                    ended_s = time.perf_counter()
                    tokens += [token for result in last.results for token in result.alternatives[0].tokens]
        statistics = statistics_from_proto(last.statistics)
        return Measurement(
            keep_text(tokens, *self._special), ended_s - started_s, statistics.encode_ns / 1e9, statistics
        )


async def _open(address: str) -> grpc.aio.Channel:
    """Open a channel inside the loop that it belongs to."""
    return open_channel(address)
