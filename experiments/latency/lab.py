"""A pair of models, its costs, its servers over an emulated link, and both models in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np

from experiments.common.audio.conditions import Condition, in_condition
from experiments.common.audio.samples import Sample
from experiments.common.bench.passes import encode_s, pass_times_s
from experiments.common.inline_pair import InlinePair
from experiments.common.replay.record import record
from experiments.common.replay.trace import Trace
from experiments.common.servers.processes import (
    TARGET_SERVER,
    Worker,
    first_two_cores,
    on_cores,
    running_process,
)
from experiments.common.servers.timed_client import TimedClient, TimedTokens, TokenTimer
from experiments.latency.cells import Arm
from experiments.latency.link import FAR_HOST, Link
from specwhisper.model.backends import limit_threads
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Mode

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 24, 33, 65)  # tokens of a forward pass
NUM_HELD = 30  # tokens in the slot: the middle of an utterance
NUM_ROUNDS = 15


@dataclass(frozen=True, slots=True)
class PairCosts:
    """Seconds of a pair's parts.

    Attributes
    ----------
    forward_s : the target's forward passes, as (tokens, seconds).
    draft_encode_s : the draft's encoding of a recording's first window, by recording.
    """

    forward_s: list[tuple[int, float]]
    draft_encode_s: dict[str, float]


def measure_costs(pair: Pair, samples: Sequence[Sample]) -> PairCosts:
    """Measure both models on one thread each, one after the other."""
    (target_core, draft_core), sizes = first_two_cores(), [(1, width) for width in WIDTHS]
    limit_threads(1)
    with on_cores([target_core]):
        target = WhisperModel(load_checkpoint(pair.target), 1)
        (found,) = pass_times_s({"": target}, samples[0].recording, NUM_HELD, sizes, NUM_ROUNDS).values()
    with on_cores([draft_core]):
        checkpoint = load_checkpoint(pair.draft, dtype=DRAFT_DTYPE, is_draft=True)
        draft = WhisperModel(checkpoint, 1, cut_windows=True)  # in its own vocabulary
        draft_encode_s = {sample.name: encode_s(draft, sample.recording) for sample in samples}
    return PairCosts([(width, found[1, width]) for width in WIDTHS], draft_encode_s)


OPTIONS = DecodingOptions.greedy(language="en")
WRONG_SHARE = 0.1  # wrong words in a given hint
Spoken = Mapping[Condition, Sequence[Sample]]
DRAFT_DTYPE = "int8"


@dataclass(frozen=True, slots=True)
class Pair:
    """Names of two models."""

    target: str
    draft: str

    def facts(self) -> dict[str, str]:
        return {"target": self.target, "draft": f"{self.draft}, {DRAFT_DTYPE}"}

    def record(self, samples: Sequence[Sample]) -> Trace:
        """Record the target's text and the errors of the draft as the servers run it."""
        return record(
            samples,
            target=self.target,
            draft=self.draft,
            draft_dtype=DRAFT_DTYPE,
            cut_windows=True,
            options=[OPTIONS],
        )


def spoken_in(samples: Sequence[Sample], conditions: Sequence[Condition], seed: int) -> Spoken:
    return {
        condition: in_condition(samples, condition, np.random.default_rng(seed)) for condition in conditions
    }


def mostly_right(words: Sequence[str], random: Random) -> list[str]:
    """Return a text in which a tenth of the words is replaced, left out or followed by another one."""
    made: list[str] = []
    for word in words:
        if random.random() >= WRONG_SHARE:
            made.append(word)
        else:
            made += random.choice([[random.choice(words)], [], [word, random.choice(words)]])
    return made


class OneProcess:
    def __init__(self, pair: Pair) -> None:
        target = load_checkpoint(pair.target)
        draft = load_checkpoint(pair.draft, dtype=DRAFT_DTYPE, is_draft=True)
        self._target = WhisperModel(target, 1)
        self._draft = open_draft(draft, 1, target.vocabulary, cut_windows=True)
        self._max_new_tokens = target.max_new_tokens

    def transcribe(self, sample: Sample, gamma: int) -> TimedTokens:
        length = {"gamma": gamma or None, "max_new_tokens": self._max_new_tokens}
        engine, timer = InlinePair(self._target, self._draft, **length), TokenTimer()

        def watch(index: int, builder: TranscriptBuilder) -> None:
            timer.observe(builder.statistics.num_committed)

        options = replace(OPTIONS, log_mel_max=sample.log_mel_max)
        (text,) = engine.transcribe([sample.pcm], options, watch=watch)
        wall_s = timer.elapsed_s
        tokens = tuple(token for segment in text.segments for token in segment.tokens)
        return TimedTokens(tokens, wall_s, timer.first_s, timer.last_s, text.stats or SpeculationStatistics())


@dataclass
class Lab:
    """A target server far away, a draft server here, and their client; both models in one process.

    Attributes
    ----------
    words : the words of the target's own text, by recording: hints are made of them.
    """

    client: TimedClient
    one_process: Worker
    link: Link
    words: dict[str, list[str]]

    def connect(self, rtt_ms: float) -> None:
        """Use a round trip from now on, and let the connections adapt to it."""
        self.link.set_round_trip(rtt_ms / 1e3)
        self.client.warm_up()

    def transcribe(self, arm: Arm, sample: Sample) -> TimedTokens:
        if arm.mode is Mode.ONE_PROCESS:
            timed: TimedTokens = self.one_process.call("transcribe", sample, arm.gamma)
            return timed
        hint = " ".join(mostly_right(self.words[sample.name], Random(0))) if arm.has_hint else ""
        options = replace(OPTIONS, hint=hint, log_mel_max=sample.log_mel_max)
        return self.client.transcribe(sample, options, arm.mode, arm.gamma or None)


@contextmanager
def open_lab(pair: Pair, link: Link) -> Iterator[Lab]:
    """Start both servers, a core each."""
    target_core, draft_core = first_two_cores()
    with ExitStack() as stack:
        of_target = "--model", pair.target, "--insecure", "--host", FAR_HOST
        far = running_process(TARGET_SERVER, *of_target, cores=[target_core], prefix=link.far_prefix)
        of_draft = "--draft-model", pair.draft, "--dtype", DRAFT_DTYPE, "--cut-windows"
        target = "--target", stack.enter_context(far).address
        near = running_process("experiments.latency.serve", *of_draft, *target, cores=[draft_core])
        client = TimedClient(stack.enter_context(near).address, watches=True)
        stack.callback(client.close)
        stack.enter_context(on_cores([draft_core]))
        one_process = stack.enter_context(Worker(partial(OneProcess, pair), cores=[target_core]))
        yield Lab(client, one_process, link, {})
