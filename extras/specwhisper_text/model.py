"""A causal language model with slots, with the interface of Whisper models."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from specwhisper.audio.recording import Recording
from specwhisper.errors import CheckpointError, UnsupportedOption
from specwhisper.model.checkpoints.generation import REFUSED
from specwhisper.model.choosing import Row, Scores, choose
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.operations import logits_device
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Window, WordAlignment

FOLLOWED = ("repetition_penalty", "no_repeat_ngram_size")
# A prompt of text is what Whisper's audio is not, the encoder's tokens.
REFUSED_IN_TEXT: Mapping[str, Collection[Any]] = {
    **{field: neutral for field, neutral in REFUSED.items() if field not in FOLLOWED},
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
}


class TextModel:
    """A transformers model with ``num_slots`` caches.

    Parameters
    ----------
    model, tokenizer : from ``AutoModelForCausalLM`` and ``AutoTokenizer``.
    vocabulary_size : larger ids are never chosen: models are padded to different sizes.
    rules : change logits by the tokens before; a draft has those of its target.
    """

    num_mel_bins = 80  # features of the silence in place of audio
    max_windows = 1
    has_word_times = False

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        num_slots: int,
        vocabulary_size: int,
        rules: Sequence[LogitsProcessor] = (),
    ) -> None:
        self._model = model.eval()
        self._device = execution_device(model.get_input_embeddings())
        self._logits_device = logits_device(self._device)
        self._rules = LogitsProcessorList(rules)
        self._tokenizer = tokenizer
        self._size = vocabulary_size
        self._caches = [DynamicCache() for _ in range(num_slots)]
        self._tokens: list[list[int]] = [[] for _ in range(num_slots)]
        end = model.generation_config.eos_token_id
        # Without an end-of-text token: an id after the last one, which is never chosen.
        ends = [vocabulary_size] if end is None else [end] if isinstance(end, int) else list(end)
        self.num_slots = num_slots
        self.max_positions = int(getattr(model.config, "max_position_embeddings", 2**20))
        self.vocabulary = Vocabulary(
            tokens=("",) * vocabulary_size,
            end_of_text=ends[0],
            more_ends=tuple(ends[1:]),
            start_of_transcript=vocabulary_size,  # an id that no prompt holds
            no_timestamps=None,
            timestamp_begin=vocabulary_size,
            max_length=self.max_positions,
        )

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self.rollback(slot, 0)

    @torch.inference_mode()
    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose after each candidate.

        Each row has a forward pass of its own: in a shared one, the last bits of its logits would depend on
        the others.
        """
        scores = choose(rows, torch.cat([self._logits(row) for row in rows]))
        if any(math.isnan(log_prob) for score in scores for log_prob in score.log_probs):
            raise CheckpointError(
                f"Model '{self._model.config.name_or_path}' has no likeliest token: its weights are not "
                "finite, or too large for their type. Load it in float32, or fetch or save it again."
            )
        return scores

    def _logits(self, row: Row) -> Tensor:
        """Return the logits of a row's scored tokens, each changed by the rules for the tokens before it."""
        num_scored = row.num_candidates + 1
        output = self._model(
            input_ids=torch.tensor([row.tokens], device=self._device),
            cache=self._caches[row.slot],
            use_cache=True,
            logits_to_keep=num_scored,
        )
        self._tokens[row.slot] += row.tokens
        logits: Tensor = output.logits[0, :, : self._size].float().to(self._logits_device)
        if self._rules:
            tokens: Any = torch.tensor([self._tokens[row.slot]], device=logits.device)
            first = tokens.shape[1] - row.num_candidates
            for i in range(num_scored):
                logits[i] = self._rules(tokens[:, : first + i], logits[i, None])[0]
        return logits

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot; free an empty one."""
        removed = self._tokens[slot][length:]
        del self._tokens[slot][length:]
        if not self._tokens[slot]:
            self._caches[slot] = DynamicCache()
        elif removed:
            self._caches[slot].crop(-len(removed))

    def length(self, slot: int) -> int:
        return len(self._tokens[slot])

    def can_continue(self, prompt: Sequence[int]) -> bool:
        """Return whether all ids are the model's.

        Those of a Whisper prompt are not, with which the draft's engine would begin before the target does.
        """
        return all(token < self._size for token in prompt)

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        return tuple(self._tokenizer(text).input_ids)

    def align(
        self, slot: int, window: Window, tokens: Sequence[int], num_frames: int
    ) -> Callable[[], tuple[WordAlignment, ...]]:
        """Refuse: a text has no word times."""
        raise UnsupportedOption("A text model has no word times.")


def rules_of(generation: GenerationConfig) -> list[LogitsProcessor]:
    """Return the followed rules of a generation config, in transformers' order."""
    rules: list[LogitsProcessor] = []
    try:
        if (penalty := generation.repetition_penalty) not in (None, 1.0):
            rules.append(RepetitionPenaltyLogitsProcessor(penalty))
        if (size := generation.no_repeat_ngram_size) is not None and size > 0:
            rules.append(NoRepeatNGramLogitsProcessor(size))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"The generation config cannot be followed: {error}.") from error
    return rules
