"""Runs arms in turns: each program, ours too, in a process of its own on the first core, or over servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any

from rich.console import Console
from transformers.utils import logging

from experiments.common.audio.samples import Sample
from experiments.common.servers.processes import Worker, running_pair
from experiments.common.servers.timed_client import TimedClient
from experiments.peers.arms import NUM_BATCHED, OURS, SERVED, Arm, Run, System, floats, without_specials
from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode


class Offered:
    """A target with drafts, each by its system's name, and alone."""

    def __init__(self, target: str, drafts: Mapping[System, str], dtype: str, **settings: Any) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        sizes = {System.ONE_PROCESS_BATCHED: NUM_BATCHED}
        self._models = {
            system: SpeculativeWhisper(
                draft, target, "cpu", dtype=dtype, batch_size=sizes.get(system, 1), **settings
            )
            for system, draft in drafts.items()
        }
        self._models[System.TARGET_ONLY] = self._models[System.ONE_PROCESS].without_draft()

    def run(self, system: System, samples: Sequence[Sample], timestamps: bool) -> Run:
        batches = [samples] if system is System.ONE_PROCESS_BATCHED else [[sample] for sample in samples]
        wall_s, tokens, total = [], [], SpeculationStatistics()
        for batch in batches:
            recordings = [floats(sample.pcm) for sample in batch]
            started_s = perf_counter()
            texts = self._models[system].transcribe(
                recordings, language="en", greedy=True, timestamps=timestamps, progress=False
            )
            wall_s.append(perf_counter() - started_s)
            for text in texts:
                total.add(text.stats)
                tokens.append(tuple(token for segment in text.segments for token in segment.tokens))
        return Run(tuple(wall_s), tuple(tokens), total)


def special_of(target: Checkpoint) -> tuple[int, int]:
    """Return the ids that are neither text nor timestamps: first, one past the last."""
    return target.vocabulary.end_of_text, target.vocabulary.timestamp_begin


@dataclass(frozen=True, slots=True)
class Service:
    """A draft server, seen by a client in this process.

    ``special`` are the ids that are neither text nor timestamps: first, one past the last.
    """

    client: TimedClient
    special: tuple[int, int]

    def run(self, mode: Mode, samples: Sequence[Sample], timestamps: bool) -> Run:
        wall_s, tokens, total = [], [], SpeculationStatistics()
        for sample in samples:
            options = DecodingOptions.greedy(
                language="en", timestamps=timestamps, log_mel_max=sample.log_mel_max
            )
            timed = self.client.transcribe(sample, options, mode)
            wall_s.append(timed.wall_s)
            tokens.append(without_specials(timed.tokens, self.special))
            total.add(timed.statistics)
        return Run(tuple(wall_s), tuple(tokens), total)


@contextmanager
def served_pair(
    target: str,
    draft: str,
    *draft_options: str,
    special: tuple[int, int],
    cores: tuple[int, int],
) -> Iterator[Service]:
    """Start the target server on the first core, the draft server on the second; yield what transcribes."""
    with running_pair(target, draft, *draft_options, cores=cores) as (_, near):
        with closing(TimedClient(near.address)) as client:
            yield Service(client, special)


class Programs(ExitStack):
    """Programs that transcribe recordings, started when an arm first needs them.

    Parameters
    ----------
    build : returns what makes an arm's program in its process.
    serve : starts the pair over servers.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        build: Callable[[Arm], Callable[[], Any]],
        *,
        core: int,
        serve: Callable[[], AbstractContextManager[Service]],
    ) -> None:
        super().__init__()
        self._samples, self._core = samples, core
        self._build, self._serve = build, serve
        self._workers: dict[tuple[str, str], Worker] = {}
        self._service: Service | None = None

    def measure(
        self, arms: Sequence[Arm], rounds: int, seed: int, console: Console
    ) -> tuple[dict[Arm, list[Run]], dict[Arm, str]]:
        """Warm every arm up, then take all in every round, in a new order; report which cannot run."""
        missing = {arm: arm.missing for arm in arms if arm.missing}
        runs: dict[Arm, list[Run]] = {}
        random = Random(seed)
        with console.status("") as status:
            for arm in arms:
                status.update(f"warming up: {arm}")
                try:
                    if arm not in missing:
                        self.run(arm, 1)
                        runs[arm] = []
                except SpecWhisperError as error:
                    missing[arm] = f"not offered: {error}"
            for number in range(rounds):
                for arm in random.sample(list(runs), len(runs)):
                    status.update(f"round {number + 1} of {rounds}: {arm}")
                    runs[arm].append(self.run(arm))
        return runs, missing

    def run(self, arm: Arm, num: int | None = None) -> Run:
        """Transcribe all recordings, or the first of them."""
        samples = self._samples[:num]
        if arm.system in SERVED:
            if self._service is None:
                self._service = self.enter_context(self._serve())
            return self._service.run(SERVED[arm.system], samples, arm.timestamps)
        program = "ours" if arm.system in OURS else arm.system.partition(",")[0].partition(" ")[0]
        if (program, arm.precision) not in self._workers:
            worker = self.enter_context(Worker(self._build(arm), cores=[self._core]))
            self._workers[program, arm.precision] = worker
        return self._workers[program, arm.precision].call("run", arm.system, samples, arm.timestamps)
