"""Read a generation config as transformers does; warn of ignored values."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specwhisper.errors import CheckpointError
from specwhisper.languages import language_code
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import FRAMES_PER_TIMESTAMP, WINDOW_FRAMES

logger = logging.getLogger(__name__)

NUM_TIMESTAMPS = WINDOW_FRAMES // FRAMES_PER_TIMESTAMP + 1

# Values that only a caller can set here, with the neutral value of each.
CALLER_OPTIONS = {
    "num_beams": 1,
    "do_sample": False,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "task": "transcribe",
    "compression_ratio_threshold": None,
    "logprob_threshold": None,
    "no_speech_threshold": None,
    "condition_on_prev_tokens": False,
}
# Of a model without generation_config.json, transformers takes these from config.json, and no others.
FROM_CONFIG = (
    *("decoder_start_token_id", "eos_token_id", "suppress_tokens", "begin_suppress_tokens", "max_length"),
    *("num_beams", "do_sample", "repetition_penalty", "no_repeat_ngram_size"),
)


@dataclass(frozen=True)
class Generation:
    """Values of generation in a model's files.

    Attributes
    ----------
    values : of generation_config.json, or of config.json without one.
    forced : an old config's forced tokens, by position: 1 language, 2 task.
    """

    values: Mapping[str, Any]
    forced: Mapping[int, int | None]

    @property
    def max_new_tokens(self) -> int | None:
        """The model's own limit per window."""
        return self.values.get("max_length")

    @property
    def alignment_heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) whose cross-attention follows the speech; empty if unknown."""
        return tuple((int(layer), int(head)) for layer, head in self.values.get("alignment_heads") or ())

    @property
    def languages(self) -> dict[str, int]:
        """Ids of the languages' tokens by code; empty for English-only models."""
        ids = self.values.get("lang_to_id") or {}
        return {token.strip("<|>"): id_ for token, id_ in ids.items()}

    @property
    def own_language(self) -> str | None:
        """The language that a model was tuned to, in the new or the old form."""
        language, languages = self.values.get("language"), self.languages
        if isinstance(language, str):
            code = str(language_code(language.strip("<|>")))
            return code if code in languages else None
        if self.values.get("task") is None:
            forced = self.forced.get(1)
            return next((code for code, id_ in languages.items() if id_ == forced), None)
        return None

    @property
    def start_of_prev(self) -> int | None:
        """The id of ``<|startofprev|>``; older checkpoints only suppress it."""
        named = self.values.get("prev_sot_token_id")
        if named is not None:
            return int(named)
        suppressed = list(self.values.get("suppress_tokens") or ())
        return int(suppressed[-2]) if len(suppressed) >= 2 else None


def read_generation(own: Mapping[str, Any] | None, config: Mapping[str, Any]) -> Generation:
    """Return what generation_config.json (``own``) and config.json say together."""
    values = own if own is not None else {key: config[key] for key in FROM_CONFIG if key in config}
    forced = values.get("forced_decoder_ids")
    if forced is None:
        forced = config.get("forced_decoder_ids")
    return Generation(values, dict(forced or ()))


def check_generation(name: str, generation: Generation) -> None:
    """Refuse an outdated generation config; warn of values that are ignored."""
    if not generation.languages:
        if len(generation.forced) > 1:  # English-only models force a single token: no timestamps
            raise CheckpointError(
                f"Model '{name}' has an outdated generation_config.json without lang_to_id: copy that of the "
                "model it was tuned from."
            )
    values = {key: generation.values.get(key) for key in CALLER_OPTIONS}
    if values["task"] is None:
        tasks = {id_: task for task, id_ in (generation.values.get("task_to_id") or {}).items()}
        values["task"] = next((tasks[i] for i in generation.forced.values() if i in tasks), None)
    for key, value in values.items():
        if value is None or value == CALLER_OPTIONS[key]:
            continue
        logger.warning(
            "The generation_config.json of model '%s' sets %s=%s, which is ignored: pass it as an option of "
            "each transcription, if there is such an option.",
            name,
            key,
            value,
        )


def build_vocabulary(
    name: str, tokens: Sequence[str], sizes: ModelSizes, generation: Generation
) -> Vocabulary:
    """Build the vocabulary of model ``name``.

    Parameters
    ----------
    tokens : strings in id order; missing ones are made up.
    """
    values = generation.values
    no_timestamps = values.get("no_timestamps_token_id")
    timestamp_begin = sizes.vocab_size if no_timestamps is None else no_timestamps + 1
    strings = [*tokens, *(f"<|unused{i}|>" for i in range(len(tokens), sizes.vocab_size))][: sizes.vocab_size]
    for i in range(timestamp_begin, min(timestamp_begin + NUM_TIMESTAMPS, sizes.vocab_size)):
        strings[i] = f"<|{(i - timestamp_begin) * 0.02:.2f}|>"  # missing in older tokenizers
    languages = generation.languages
    return Vocabulary(
        tokens=tuple(strings),
        end_of_text=_one_id(name, values, "eos_token_id"),
        start_of_transcript=_one_id(name, values, "decoder_start_token_id"),
        no_timestamps=no_timestamps,
        timestamp_begin=timestamp_begin,
        languages=languages,
        tasks=dict(values.get("task_to_id") or {}) if languages else {},
        suppress=tuple(sorted(set(values.get("suppress_tokens") or ()))),
        begin_suppress=tuple(sorted(set(values.get("begin_suppress_tokens") or ()))),
        max_initial_timestamp=values.get("max_initial_timestamp_index"),
        max_length=sizes.max_target_positions,
        start_of_prev=generation.start_of_prev,
        no_speech=None if no_timestamps is None else no_timestamps - 1,
        own_language=generation.own_language,
    )


def _one_id(name: str, values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if value is None:
        raise CheckpointError(
            f"The generation_config.json of model '{name}' has no {key}: copy that of the model it was tuned "
            "from."
        )
    return int(value if isinstance(value, int) else value[0])
