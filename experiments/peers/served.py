"""The pair over servers; the client sends a recording as fast as it is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from time import perf_counter

import grpc.aio

from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import running_server
from experiments.peers.arms import Run, without_specials
from specwhisper.audio.source import PIECE_BYTES
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import open_channel
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode
from specwhisper.wire.codec import statistics_from_proto
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.codec import config_to_proto
from specwhisper_client.exchange import exchange


@contextmanager
def served_pair(
    target: str,
    draft: str,
    *draft_options: str,
    special: tuple[int, int],
    cores: tuple[int, int],
    gamma: int | None = None,
) -> Iterator[Service]:
    """Start the target server on the first core, the draft server on the second; yield what transcribes."""
    with running_server("specwhisper_target_server", "--model", target, cores=cores[:1]) as address:
        pair = "--target", address, "--draft-model", draft, *draft_options
        with running_server("specwhisper_draft_server", *pair, cores=cores[1:]) as served:
            service = Service(served, gamma=gamma, special=special)
            try:
                yield service
            finally:
                service.close()


class Service:
    """A draft server, seen by a client in this process.

    ``special`` are the ids that are neither text nor timestamps: first, one past the last.
    """

    def __init__(self, address: str, *, gamma: int | None, special: tuple[int, int]) -> None:
        self._runner = asyncio.Runner()
        self._gamma = gamma
        self._special = special
        self._channel = self._runner.run(_open(address))

    def close(self) -> None:
        self._runner.run(self._channel.close())
        self._runner.close()

    def run(self, mode: Mode, samples: Sequence[Sample], timestamps: bool) -> Run:
        """Transcribe recordings, one after the other, in one of the server's modes."""
        wall_s, tokens, total = [], [], SpeculationStatistics()
        for sample in samples:
            seconds, written, statistics = self._runner.run(self._transcribe(sample, timestamps, mode))
            wall_s.append(seconds)
            tokens.append(without_specials(written, self._special))
            total.add(statistics)
        return Run(tuple(wall_s), tuple(tokens), total)

    async def _transcribe(
        self, sample: Sample, timestamps: bool, mode: Mode
    ) -> tuple[float, list[int], SpeculationStatistics]:
        options = DecodingOptions.greedy(language="en", timestamps=timestamps, log_mel_max=sample.log_mel_max)
        config = config_to_proto(options, mode, self._gamma, is_container=False)
        call = TranscriptionStub(self._channel).StreamingRecognize()
        tokens: list[int] = []
        last = pb.StreamingRecognizeResponse()
        started_s = ended_s = 0.0

        async def audio() -> AsyncIterator[bytes]:
            nonlocal started_s
            started_s = perf_counter()
            for start in range(0, len(sample.pcm), PIECE_BYTES):
                yield sample.pcm[start : start + PIECE_BYTES]

        request = pb.StreamingRecognitionConfig(config=config)
        async with aclosing(exchange(call, request, audio())) as responses:
            async for last in responses:
                if last.results or not tokens:  # a recording may have no text at all
                    ended_s = perf_counter()
                    tokens += [token for result in last.results for token in result.alternatives[0].tokens]
        return ended_s - started_s, tokens, statistics_from_proto(last.statistics)


async def _open(address: str) -> grpc.aio.Channel:
    return open_channel(address)  # inside the loop that it belongs to
