"""The processes of a sweep: a far target, a near draft server, and both in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from experiments.common.audio.samples import Sample
from experiments.common.replay.trace import Trace
from experiments.common.servers.processes import Worker, first_two_cores, on_cores, running_server
from experiments.latency.cells import Cell
from experiments.latency.networks.backends import Network
from experiments.latency.sweep.marking import Marker, MarkingClient, Marks
from experiments.latency.sweep.models import Pair
from specwhisper.engine.one_process import OneProcess
from specwhisper.model.checkpoint import load_checkpoint
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode


class OneProcessWorker:
    """Both engines, taking turns in one thread of this process."""

    def __init__(self, pair: Pair) -> None:
        self._target, self._draft = pair.load()
        self._max_new_tokens = load_checkpoint(Trace.load(pair.trace).target).max_new_tokens

    def transcribe(self, sample: Sample, gamma: int) -> Marks:
        """Transcribe a recording."""
        engine = OneProcess(
            self._target,
            self._draft,
            mode=Mode.ONE_PROCESS,
            gamma=gamma or None,
            max_new_tokens=self._max_new_tokens,
        )
        options = DecodingOptions(language="en", log_mel_max=sample.log_mel_max)
        marker = Marker()

        def watch(place: int, builder: TranscriptBuilder) -> None:
            marker.observe(builder.statistics.num_committed)

        started_s = time.perf_counter()
        (transcript,) = engine.transcribe([sample.pcm], options, watch=watch)
        wall_s = time.perf_counter() - started_s
        tokens = tuple(token for segment in transcript.segments for token in segment.tokens)
        return Marks(tokens, wall_s, marker.first_s, marker.last_s, marker.num_first, transcript.statistics)


class Lab:
    """Runs a cell of the sweep; the network between its servers is whatever was applied last."""

    def __init__(self, client: MarkingClient, workers: dict[int, Worker]) -> None:
        self._client = client
        self._workers = workers

    def warm_up(self) -> None:
        """Let both servers and their connection see the network as it is now."""
        self._client.warm_up()

    def transcribe(self, cell: Cell, sample: Sample) -> Marks:
        """Transcribe a recording."""
        if cell.mode is Mode.ONE_PROCESS:
            marks: Marks = self._workers[cell.cores].call("transcribe", sample, cell.gamma)
            return marks
        return self._client.transcribe(sample, cell.mode, cell.gamma)


@contextmanager
def open_lab(pair: Pair, network: Network, cells: list[Cell]) -> Iterator[Lab]:
    """Start every process that the cells need, each pinned to its core."""
    cores = cores_used()
    with ExitStack() as stack:
        workers = {}
        for number in sorted({cell.cores for cell in cells if cell.mode is Mode.ONE_PROCESS}):
            build = partial(OneProcessWorker, pair)
            workers[number] = Worker(build, cores=cores["one process"][:number])
            stack.callback(workers[number].stop)
        module, arguments = pair.server("target")
        target = stack.enter_context(
            running_server(
                module,
                *arguments,
                *("--host", network.far_host),
                cores=cores["target server"],
                prefix=network.far_prefix,
                way_to=network.way_to,
            )
        )
        module, arguments = pair.server("draft")
        draft = stack.enter_context(
            running_server(module, *arguments, *("--target", target), cores=cores["draft server"])
        )
        stack.enter_context(on_cores(cores["client"]))
        client = MarkingClient(draft)
        stack.callback(client.close)
        yield Lab(client, workers)


def cores_used() -> dict[str, list[int]]:
    """Say which core each process gets; where there is only one, they share it."""
    first, second = first_two_cores()
    return {
        "target server": [first],
        "draft server": [second],
        "client": [second],
        "network": [second],
        "one process": sorted({first, second}),
    }
