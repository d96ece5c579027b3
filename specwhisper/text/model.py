"""A causal language model in slots: what :class:`specwhisper.whisper.model.Model` asks for, without audio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache

from specwhisper.audio.recording import Recording
from specwhisper.errors import UnsupportedOption
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Window, WordAlignment
from specwhisper.whisper.choosing import Row, Scores, choose


class TextModel:
    """A transformers model with ``num_slots`` caches; rows of a pass are run one after the other.

    Parameters
    ----------
    model, tokenizer : as ``AutoModelForCausalLM`` and ``AutoTokenizer`` give them.
    vocabulary_size : ids above are never written: models are padded to different sizes.
    """

    num_mel_bins = 80  # of the silence that stands in for audio
    max_windows = 1
    has_word_times = False

    def __init__(self, model: Any, tokenizer: Any, num_slots: int, vocabulary_size: int) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._size = vocabulary_size
        self._caches = [DynamicCache() for _ in range(num_slots)]
        end = model.generation_config.eos_token_id
        # One behind the last token, which is never written, where a model has no end of its own.
        ends = [vocabulary_size] if end is None else [end] if isinstance(end, int) else list(end)
        self.num_slots = num_slots
        self.max_positions = int(getattr(model.config, "max_position_embeddings", 2**20))
        self.vocabulary = Vocabulary(
            tokens=("",) * vocabulary_size,
            end_of_text=ends[0],
            more_ends=tuple(ends[1:]),
            start_of_transcript=vocabulary_size,  # nothing that a prompt could hold
            no_timestamps=None,
            timestamp_begin=vocabulary_size,
            max_length=self.max_positions,
        )

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Empty a slot."""
        self._caches[slot] = DynamicCache()

    @torch.inference_mode()
    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose behind each candidate."""
        logits = []
        for row in rows:
            ids = torch.tensor([list(row.tokens)], device=self._model.device)
            num_scored = row.num_candidates + 1
            output = self._model(
                input_ids=ids, past_key_values=self._caches[row.slot], logits_to_keep=num_scored
            )
            logits.append(output.logits[0, -num_scored:, : self._size].float())
        return choose(rows, torch.cat(logits))

    def rollback(self, slot: int, length: int) -> None:
        """Forget all but the first ``length`` tokens of a slot."""
        if length < (held := self.length(slot)):
            self._caches[slot].crop(length - held)  # negative: how many are removed

    def length(self, slot: int) -> int:
        """Tell how many tokens a slot holds."""
        return int(self._caches[slot].get_seq_length())

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Turn a prompt into tokens, special ones included."""
        return tuple(self._tokenizer(text).input_ids)

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> tuple[WordAlignment, ...]:
        """Refuse: nothing is spoken here."""
        raise UnsupportedOption("A text model has no word times.")

    def attended_ms(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> tuple[float, ...]:
        """Refuse, likewise."""
        raise UnsupportedOption("A text model looks at no audio.")
