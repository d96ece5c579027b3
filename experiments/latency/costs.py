"""Time forward passes and encodings of a pair, a core each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.common.audio.samples import Sample
from experiments.common.bench.passes import encode_s, pass_times_s
from experiments.common.servers.processes import on_cores
from experiments.latency.lab import DRAFT_DTYPE, Pair, cores_used
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.threads import limit_threads

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
    cores, sizes = cores_used(), [(1, width) for width in WIDTHS]
    limit_threads(1)
    with on_cores(cores["target"]):
        target = WhisperModel(load_checkpoint(pair.target), 1)
        (found,) = pass_times_s({"": target}, samples[0].recording, NUM_HELD, sizes, NUM_ROUNDS).values()
    with on_cores(cores["draft"]):
        checkpoint = load_checkpoint(pair.draft, dtype=DRAFT_DTYPE, is_draft=True)
        draft = WhisperModel(checkpoint, 1, cut_windows=True)  # in its own vocabulary
        draft_encode_s = {sample.name: encode_s(draft, sample.recording) for sample in samples}
    return PairCosts([(width, found[1, width]) for width in WIDTHS], draft_encode_s)
