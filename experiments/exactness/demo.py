"""The demo pair in the matrix: trained weights, real speech and real acceptance."""

from __future__ import annotations

from transformers import WhisperForConditionalGeneration, WhisperTokenizer

from experiments.common.audio.samples import load_samples
from experiments.exactness.prepared import Parts, Prepared
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.options import DecodingOptions

TARGET, TINY, DISTIL = "demo-target", "demo-draft-tiny", "demo-draft-distil"


class DemoPair(Prepared):
    """The pair and its samples, as a case is prepared."""

    def __init__(self, options: DecodingOptions) -> None:
        self.name = "demo pair"
        self.drafts = (TINY, DISTIL, TINY, DISTIL)
        self.options, self.assisted = options, True
        self.model = WhisperForConditionalGeneration.from_pretrained(resolve(TARGET)).float().eval()
        self.checkpoint = load_checkpoint(TARGET)
        self.tokenizer = WhisperTokenizer.from_pretrained(resolve(TARGET))
        self.tokens = list(self.checkpoint.vocabulary.tokens)
        samples = load_samples(None)
        # transformers takes no longer recording without timestamps.
        self.pcms = tuple(s.pcm for s in samples if options.timestamps or s.fits_one_window)
        self._drafts: dict[str, Parts] = {}

    def _draft_checkpoint(self, kind: str) -> Checkpoint:
        return load_checkpoint(kind)

    @property
    def assistant(self) -> WhisperForConditionalGeneration:  # type: ignore[override]
        """The draft that transformers can use too: it has the target's encoder and vocabulary."""
        return WhisperForConditionalGeneration.from_pretrained(resolve(DISTIL)).float().eval()
