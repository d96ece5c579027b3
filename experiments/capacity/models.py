"""The measured models: the demo pair, or another shape that replays it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from experiments.capacity.usage import Meter, MeteredModel
from experiments.common.models.published import PUBLISHED
from experiments.common.replay.model import ReplayDraft, ReplayTarget
from experiments.common.replay.shapes import random_checkpoint, replay_name
from experiments.common.replay.trace import Trace
from specwhisper.errors import InvalidRequest
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import Model, WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper_draft_server.drafts.drafting import Drafting

DEMO = "demo"  # the only shape without a replay
DRAFT_SHAPE = "tiny"


@dataclass(frozen=True, slots=True)
class Measured:
    """Shape of the target, and the trace of its text.

    Attributes
    ----------
    decodes_only : whether each slot encodes only its first window, and the trace is replayed.
    """

    shape: str
    dtype: str
    trace: Path
    decodes_only: bool = False

    def __post_init__(self) -> None:
        if self.shape not in (DEMO, *PUBLISHED):
            names = ", ".join((DEMO, *PUBLISHED))
            raise InvalidRequest(f"Unknown shape '{self.shape}': choose one of {names}.")
        if self.shape == DEMO and self.dtype != "float32":
            raise InvalidRequest(
                f"The demo pair runs in float32 only, not {self.dtype}: choose another shape."
            )

    def __str__(self) -> str:
        if self.shape == DEMO:
            return (
                "replay of the demo pair at its own cost, decoding only"
                if self.decodes_only
                else "the demo pair"
            )
        return f"replay {self.shape}, {self.dtype}{', decoding only' if self.decodes_only else ''}"

    def weights(self) -> Checkpoint:
        """Load the target's weights, or build random ones."""
        if self.shape == DEMO:
            return load_checkpoint(Trace.load(self.trace).target)
        return random_checkpoint(self.shape, dtype=self.dtype)

    def target(self, num_slots: int, meter: Meter) -> tuple[Checkpoint, Model]:
        """Return checkpoint and model of a target server; the weights are only in the model."""
        weights = self.weights()
        model = MeteredModel(weights, num_slots, meter, encode_once=self.decodes_only)
        weights.weights.close()
        if self.shape == DEMO and not self.decodes_only:
            return weights, model
        trace = Trace.load(self.trace)
        checkpoint = load_checkpoint(trace.target)
        checkpoint.weights.close()
        checkpoint = replace(checkpoint, name=replay_name(self.shape, trace.target), dtype=weights.dtype)
        return checkpoint, ReplayTarget(trace, checkpoint.vocabulary, model, tokenizer=checkpoint.tokenizer)

    def drafting(self, num_slots: int, *, is_free: bool) -> Drafting:
        """Return a draft server's draft; a free one has no cost and proposes the same."""
        trace = Trace.load(self.trace)
        draft = load_checkpoint(trace.draft)
        if is_free or self.shape != DEMO:
            draft.weights.close()

        def place(target: TargetDescription) -> Model:
            if is_free:
                return ReplayDraft(trace, target.vocabulary, None, num_slots=num_slots)
            if self.shape == DEMO:
                return open_draft(draft, num_slots, target.vocabulary)
            forward = WhisperModel(random_checkpoint(DRAFT_SHAPE, dtype=self.dtype), num_slots)
            return ReplayDraft(trace, target.vocabulary, forward)

        return Drafting(draft, place)
