"""The processes of a sweep: far target server, near draft server, and both models in one process."""

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
from experiments.latency.sweep.hint_text import with_hints
from experiments.latency.sweep.models import Pair
from experiments.latency.sweep.timed_client import TimedClient, TimedTokens, TokenTimer
from experiments.latency.terms import HINT_SEED, OPTIONS
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode


class OneProcessWorker:
    """Runs both engines in turn in one thread of this process."""

    def __init__(self, pair: Pair) -> None:
        self._target, self._draft = pair.load()
        self._max_new_tokens = load_checkpoint(Trace.load(pair.trace).target).max_new_tokens

    def transcribe(self, sample: Sample, gamma: int) -> TimedTokens:
        """Transcribe a recording."""
        engine = InlinePair(
            self._target,
            self._draft,
            mode=Mode.ONE_PROCESS,
            gamma=gamma or None,
            max_new_tokens=self._max_new_tokens,
        )
        options = DecodingOptions.greedy(language="en", log_mel_max=sample.log_mel_max)
        timer = TokenTimer()

        def watch(index: int, builder: TranscriptBuilder) -> None:
            timer.observe(builder.statistics.num_committed)

        started_s = time.perf_counter()
        (transcript,) = engine.transcribe([sample.pcm], options, watch=watch)
        wall_s = time.perf_counter() - started_s
        tokens = tuple(token for segment in transcript.segments for token in segment.tokens)
        return TimedTokens(tokens, wall_s, timer.first_s, timer.last_s, timer.num_first, transcript.stats)


class Lab:
    """Runs cells over the network conditions that were applied last.

    Attributes
    ----------
    words : the words of the target's own text by the name of its recording, of which hints are made.
    """

    def __init__(self, client: TimedClient, workers: dict[int, Worker]) -> None:
        self.words: dict[str, list[str]] = {}
        self._client = client
        self._workers = workers

    def warm_up(self) -> None:
        """Let connections adapt to the current network conditions."""
        self._client.warm_up()

    def transcribe(self, cell: Cell, sample: Sample) -> TimedTokens:
        """Transcribe a recording."""
        if cell.mode is Mode.ONE_PROCESS:
            timed: TimedTokens = self._workers[cell.cores].call("transcribe", sample, cell.gamma)
            return timed
        (options,) = OPTIONS
        options = with_hints(options, cell.hints, self.words.get(sample.name, []), seed=HINT_SEED)
        return self._client.transcribe(sample, cell.mode, cell.gamma, options)


@contextmanager
def open_lab(pair: Pair, network: Network, cells: list[Cell]) -> Iterator[Lab]:
    """Start the processes that the cells need, each pinned to its core."""
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
                route_to=network.route_to,
            )
        )
        module, arguments = pair.server("draft")
        draft = stack.enter_context(
            running_server(module, *arguments, *("--target", target), cores=cores["draft server"])
        )
        stack.enter_context(on_cores(cores["client"]))
        client = TimedClient(draft)
        stack.callback(client.close)
        yield Lab(client, workers)


def cores_used() -> dict[str, list[int]]:
    """Return the cores of each process; on a single-core machine all share it."""
    first, second = first_two_cores()
    return {
        "target server": [first],
        "draft server": [second],
        "client": [second],
        "network": [second],
        "one process": sorted({first, second}),
    }
