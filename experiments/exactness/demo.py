"""The demo pair in the matrix: trained weights, real speech and real acceptance."""

from __future__ import annotations

from transformers import WhisperForConditionalGeneration

from experiments.common.audio.samples import load_samples
from experiments.exactness.caching_encoder import with_cached_encoder
from experiments.exactness.prepared import Prepared
from specwhisper.model.checkpoint import Checkpoint, load_checkpoint, resolve
from specwhisper.options import DecodingOptions

TARGET, TINY, DISTIL = "demo-target", "demo-draft-tiny", "demo-draft-distil"


class DemoPair(Prepared):
    """The pair and its samples, as a case is prepared."""

    def __init__(self, options: DecodingOptions) -> None:
        self.name = "demo pair"
        self.drafts = (TINY, DISTIL, TINY, DISTIL)
        self.options, self.assisted = options, True
        self.model = WhisperForConditionalGeneration.from_pretrained(resolve(TARGET)).float().eval()
        self.checkpoint = with_cached_encoder(load_checkpoint(TARGET))
        assert self.checkpoint.tokenizer is not None
        self.tokenizer = self.checkpoint.tokenizer
        self.tokens = list(self.checkpoint.vocabulary.tokens)
        samples = load_samples(None)
        # transformers takes no longer recording without timestamps.
        self.pcms = tuple(s.pcm for s in samples if options.timestamps or s.fits_one_window)
        self._drafts: dict[str, Checkpoint] = {}

    def draft_checkpoint(self, kind: str) -> Checkpoint:
        """Load a draft by its name."""
        if kind not in self._drafts:
            self._drafts[kind] = with_cached_encoder(load_checkpoint(kind))
        return self._drafts[kind]

    @property
    def assistant(self) -> WhisperForConditionalGeneration:  # type: ignore[override]
        """The draft that transformers can use too: it has the target's encoder and vocabulary."""
        return WhisperForConditionalGeneration.from_pretrained(resolve(DISTIL)).float().eval()
