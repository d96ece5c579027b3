"""A causal language model with slots, with the interface of Whisper models."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)
from transformers.cache_utils import DynamicLayer

from specwhisper.audio.recording import Recording
from specwhisper.errors import CheckpointError, UnsupportedOption
from specwhisper.model.checkpoints.generation import REFUSED
from specwhisper.model.choosing import Row, Scores, choose
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.operations import logits_device
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Window, WordAlignment

Cache = list[tuple[Tensor, Tensor]]  # keys and values of each layer, 1 x heads x tokens x head size

FOLLOWED = ("repetition_penalty", "no_repeat_ngram_size")
# A prompt of text is what Whisper's audio is not, the encoder's tokens.
REFUSED_IN_TEXT: Mapping[str, Collection[Any]] = {
    **{field: neutral for field, neutral in REFUSED.items() if field not in FOLLOWED},
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
}

BLOCK = 64  # tokens by which a slot's cache grows
MAX_UNSCORED = 8  # tokens of a row without needed logits; a row with more is a prompt


class TextModel:
    """A transformers model with ``num_slots`` caches.

    A row's logits may depend on the other rows of its forward pass, in the last bits.

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
        self._caches: list[Cache] = [[] for _ in range(num_slots)]  # with room for more tokens
        self._tokens: list[list[int]] = [[] for _ in range(num_slots)]
        end = model.generation_config.eos_token_id
        # Without an end-of-text token: an id after the last one, which is never chosen.
        ends = [vocabulary_size] if end is None else [end] if isinstance(end, int) else list(end)
        self._takes_positions = "position_ids" in signature(model.forward).parameters
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
        """Empty a slot."""
        self.rollback(slot, 0)

    @torch.inference_mode()
    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Append each row's tokens to its slot and choose after each candidate.

        Rows share a forward pass. Prompts run alone, because every row of a pass has equally many logits.
        """
        prompts = [row for row in rows if len(row.tokens) - row.num_candidates > MAX_UNSCORED]
        others = [row for row in rows if row not in prompts]
        logits: dict[int, Tensor] = {}
        for group in [[row] for row in prompts] + ([others] if others else []):
            logits |= zip((row.slot for row in group), self._forward(group), strict=True)
        if self._rules:
            for row in rows:
                self._apply_rules(row, logits[row.slot])
        scores = choose(rows, torch.cat([logits[row.slot] for row in rows]))
        if any(math.isnan(log_prob) for score in scores for log_prob in score.log_probs):
            raise CheckpointError(
                f"Model '{self._model.config.name_or_path}' has no likeliest token: its weights are not "
                "finite, or too large for their type. Load it in float32, or fetch or save it again."
            )
        return scores

    def _apply_rules(self, row: Row, logits: Tensor) -> None:
        """Change the logits of a row in place, each by the tokens before it."""
        tokens: Any = torch.tensor([self._tokens[row.slot]], device=logits.device)
        first = tokens.shape[1] - row.num_candidates
        for i in range(len(logits)):
            logits[i] = self._rules(tokens[:, : first + i], logits[i, None])[0]

    def _forward(self, rows: Sequence[Row]) -> list[Tensor]:
        """Run one forward pass over all rows.

        Caches are padded on the left to the longest, tokens on the right: a row's tokens follow its cache.
        Each slot then copies its new part: a view would keep the whole batch's cache alive.

        Returns
        -------
        logits of each row's scored tokens, scored tokens x vocabulary.
        """
        past, num_new = [self.length(row.slot) for row in rows], [len(row.tokens) for row in rows]
        longest, width = max(past), max(num_new)
        device = self._device
        ids = torch.tensor([[*row.tokens] + [0] * (width - len(row.tokens)) for row in rows], device=device)
        first = min(n - row.num_candidates - 1 for n, row in zip(num_new, rows, strict=True))
        named: dict[str, Tensor] = {}
        if len(rows) > 1:
            columns = torch.arange(longest + width)[None]
            starts = longest - torch.tensor(past)[:, None]
            ends = longest + torch.tensor(num_new)[:, None]
            named["attention_mask"] = ((columns >= starts) & (columns < ends)).long().to(device)
            if self._takes_positions:
                positions = (columns[:, longest:] - starts).clamp(max=self.max_positions - 1)
                named["position_ids"] = positions.to(device)
        held = [
            [(keys[:, :, :length], values[:, :, :length]) for keys, values in self._caches[row.slot]]
            for row, length in zip(rows, past, strict=True)
        ]
        cache = _joined(held, longest)
        output = self._model(
            input_ids=ids, cache=cache, use_cache=True, logits_to_keep=width - first, **named
        )
        logits = []
        for i, row in enumerate(rows):
            self._append(row, cache, i, slice(longest, longest + num_new[i]), is_alone=len(rows) == 1)
            end = num_new[i] - first
            scored = output.logits[i, end - row.num_candidates - 1 : end, : self._size]
            logits.append(scored.float().to(self._logits_device))
        return logits

    def _append(self, of: Row, joined: Any, row: int, new: slice, *, is_alone: bool) -> None:
        """Append the new tokens of a row of a forward pass to its slot."""
        slot, length = of.slot, self.length(of.slot)
        self._tokens[slot] += of.tokens
        if is_alone:
            self._caches[slot] = [(layer.keys, layer.values) for layer in joined.layers]
            return
        made = [(layer.keys[row : row + 1], layer.values[row : row + 1]) for layer in joined.layers]
        held = self._caches[slot] or [(keys[:, :, :0], values[:, :, :0]) for keys, values in made]
        self._caches[slot] = [
            (_appended(k, length, keys[:, :, new]), _appended(v, length, values[:, :, new]))
            for (k, v), (keys, values) in zip(held, made, strict=True)
        ]

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot; free an empty one."""
        del self._tokens[slot][length:]
        if not self._tokens[slot]:
            self._caches[slot] = []

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


def _joined(caches: Sequence[Cache], length: int) -> Any:
    """Join rows' caches for transformers, padded on the left to ``length``."""
    joined = DynamicCache()
    for i in range(max(map(len, caches))):
        some = next(cache[i] for cache in caches if cache)
        empty = (some[0][:, :, :0], some[1][:, :, :0])
        keys, values = zip(*(cache[i] if cache else empty for cache in caches), strict=True)
        layer = DynamicLayer()
        layer.lazy_initialization(*some)
        layer.keys, layer.values = _padded(keys, length), _padded(values, length)
        joined.layers.append(layer)
    return joined


def _padded(rows: Sequence[Tensor], length: int) -> Tensor:
    if len(rows) == 1:
        return rows[0]
    return torch.cat([pad(row, (0, 0, length - row.shape[2], 0)) for row in rows])


def _appended(held: Tensor, length: int, new: Tensor) -> Tensor:
    """Write new tokens after the first ``length``, in place if there is room."""
    end = length + new.shape[2]
    if end > held.shape[2]:
        room = -(-end // BLOCK) * BLOCK
        grown = new.new_empty((*new.shape[:2], room, new.shape[3]))
        grown[:, :, :length] = held[:, :, :length]
        held = grown
    held[:, :, length:end] = new
    return held
