"""Read a generation config as transformers does; warn of ignored values."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specwhisper.errors import CheckpointError
from specwhisper.languages import language_code
from specwhisper.model.checkpoints.sizes import POSITIONS, ModelSizes
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import MaxLength, TokenLimit

logger = logging.getLogger(__name__)

FILE = "generation_config.json"
NUM_TIMESTAMPS = POSITIONS + 1
DEFAULT_MAX_LENGTH = 20  # transformers', where a model names none

# Values that only a caller can set here, with the neutral value of each.
CALLER_OPTIONS = {
    "num_beams": 1,
    "do_sample": False,
    "task": "transcribe",
    "compression_ratio_threshold": None,
    "logprob_threshold": None,
    "no_speech_threshold": None,
    "condition_on_prev_tokens": False,
}
# Fields that no option of a transcription stands for, each with its values without effect; ``None`` is one of
# each.
REFUSED: Mapping[str, Collection[Any]] = {
    "repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "min_length": (0, 1),  # a prompt is as long
    "min_new_tokens": (0,),
    "min_p": (0.0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0, 1.0),
    "eta_cutoff": (0.0, 1.0),
    "penalty_alpha": (0.0,),
    "guidance_scale": (1.0,),
    "token_healing": (False,),
    "is_assistant": (False,),
    "cache_implementation": ("dynamic", "static", "offloaded", "offloaded_static", "hybrid"),
    **dict.fromkeys(("bad_words_ids", "sequence_bias", "constraints", "force_words_ids"), ()),
    **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"), ()),
    **dict.fromkeys(("max_time", "stop_strings", "top_h", "dola_layers", "watermarking_config"), ()),
}
# Without generation_config.json, transformers takes these from config.json, and no others.
FROM_CONFIG = (
    *("decoder_start_token_id", "eos_token_id", "suppress_tokens", "begin_suppress_tokens"),
    *("max_length", "max_new_tokens", "num_beams", "do_sample", *REFUSED),
)


def refuse(
    name: str, file: str, values: Mapping[str, Any], refused: Mapping[str, Collection[Any]] = REFUSED
) -> None:
    """Raise an error for the fields of a file that would change the text.

    With them, transformers' ``generate`` writes another text with one beam. Values without effect pass.

    ``file``: the name of the file that holds the values.
    """
    set_fields = [
        f"{field}={value!r}"
        for field, neutral in refused.items()
        if (value := values.get(field)) is not None and value not in neutral
    ]
    if set_fields:
        raise CheckpointError(
            f"The {file} of model '{name}' sets {', '.join(set_fields)}, which would change the text and is "
            "not offered: remove it from a copy of the model, and load that folder."
        )


@dataclass(frozen=True)
class Generation:
    """Values of generation in a model's files.

    Attributes
    ----------
    values : those in generation_config.json, or in config.json without one.
    forced : an old config's forced tokens, by position: 1 language, 2 task.
    has_own_file : whether there is a generation_config.json.
    """

    values: Mapping[str, Any]
    forced: Mapping[int, int | None]
    has_own_file: bool = True

    @property
    def max_new_tokens(self) -> TokenLimit:
        limit, length = self.values.get("max_new_tokens"), self.values.get("max_length")
        if limit is not None:
            return int(limit)
        return MaxLength(DEFAULT_MAX_LENGTH if length is None else int(length))

    def alignment_heads(self, sizes: ModelSizes) -> tuple[tuple[int, int], ...]:
        """Return the (layer, head) whose cross-attention follows the speech.

        It is empty if they are unknown, or if the model lacks some: a distilled model may name its teacher's.
        """
        heads = tuple((int(layer), int(head)) for layer, head in self.values.get("alignment_heads") or ())
        layers, of_layer = range(sizes.decoder_layers), range(sizes.decoder_attention_heads)
        return heads if all(layer in layers and head in of_layer for layer, head in heads) else ()

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


def read_generation(own: Mapping[str, Any] | None, config: Mapping[str, Any]) -> Generation:
    values = own if own is not None else {key: config[key] for key in FROM_CONFIG if key in config}
    forced = values.get("forced_decoder_ids")
    if forced is None:
        forced = config.get("forced_decoder_ids")
    return Generation(values, dict(forced or ()), has_own_file=own is not None)


def check_generation(name: str, generation: Generation, *, is_draft: bool = False) -> None:
    """Refuse a generation config that cannot be followed; warn of what it lacks.

    A warning names ignored values, too.

    ``is_draft``: whether it is of a draft, whose values do not change the target's text.

    Raise :class:`CheckpointError` for an outdated or contradictory one, and for values that would change
    the text and are not offered.
    """
    if not is_draft:
        refuse(name, FILE if generation.has_own_file else "config.json", generation.values)
    for key, least in (("max_length", 1), ("max_new_tokens", 1), ("max_initial_timestamp_index", 0)):
        number = generation.values.get(key)
        if number is not None and not (_is_whole(number) and number >= least):
            raise _unusable(name, generation, f"has {key}={number!r}, which must be at least {least}")
    if generation.languages and generation.values.get("is_multilingual") is False:
        raise _unusable(name, generation, "has is_multilingual=false, and languages in lang_to_id")
    if not generation.has_own_file:
        logger.warning(
            "Model '%s' has no generation_config.json: it gets neither languages nor timestamps. Copy that "
            "of the model it was tuned from.",
            name,
        )
    if all(generation.values.get(key) is None for key in ("max_length", "max_new_tokens")):
        logger.warning(
            "Model '%s' names no max_length in a generation_config.json, so a recording's first window gets "
            "at most %s tokens, as in transformers: set max_new_tokens for each transcription.",
            name,
            DEFAULT_MAX_LENGTH,
        )
    if not generation.languages and len(generation.forced) > 1:
        # English-only models force a single token: no timestamps.
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

    ``tokens``: strings in id order; missing ones are made up.
    """
    values, ids = generation.values, _Ids(name, generation, sizes.vocab_size)
    no_timestamps = ids.one("no_timestamps_token_id")
    timestamp_begin = sizes.vocab_size if no_timestamps is None else no_timestamps + 1
    strings = [*tokens, *(f"<|unused{i}|>" for i in range(len(tokens), sizes.vocab_size))][: sizes.vocab_size]
    for i in range(timestamp_begin, min(timestamp_begin + NUM_TIMESTAMPS, sizes.vocab_size)):
        strings[i] = f"<|{(i - timestamp_begin) * 0.02:.2f}|>"  # missing in older tokenizers
    languages = {token.strip("<|>"): id_ for token, id_ in ids.named("lang_to_id").items()}
    return Vocabulary(
        tokens=tuple(strings),
        end_of_text=ids.needed("eos_token_id"),
        start_of_transcript=ids.needed("decoder_start_token_id"),
        no_timestamps=no_timestamps,
        timestamp_begin=timestamp_begin,
        languages=languages,
        tasks=ids.named("task_to_id") if languages else {},
        suppress=ids.known("suppress_tokens"),
        begin_suppress=ids.known("begin_suppress_tokens"),
        max_initial_timestamp=values.get("max_initial_timestamp_index"),
        max_length=sizes.max_target_positions,
        start_of_prev=ids.start_of_prev(),
        no_speech=None if no_timestamps is None else no_timestamps - 1,
        own_language=generation.own_language,
    )


class _Ids:
    """Token ids in a generation config.

    Each must be one of the model's, except in lists of suppressed tokens: transformers ignores others there.
    """

    def __init__(self, name: str, generation: Generation, num_tokens: int) -> None:
        self._name = name
        self._generation = generation
        self._ids = range(num_tokens)

    def one(self, key: str) -> int | None:
        value = self._generation.values.get(key)
        ids = value if isinstance(value, list) else [value]
        if len(ids) != 1:
            problem = f"has {len(ids)} ids in {key}, but only one can be followed"
            raise _unusable(self._name, self._generation, problem)
        return None if value is None else self._checked(key, ids)[0]

    def needed(self, key: str) -> int:
        value = self.one(key)
        if value is None:
            raise _unusable(self._name, self._generation, f"has no {key}")
        return value

    def named(self, key: str) -> dict[str, int]:
        values = dict(self._generation.values.get(key) or {})
        self._checked(key, values.values())
        return values

    def known(self, key: str) -> tuple[int, ...]:
        """Return the ids of a list that the model has, in order."""
        return tuple(sorted({i for i in self._listed(key) if i in self._ids}))

    def start_of_prev(self) -> int | None:
        """Return the id of ``<|startofprev|>``; older checkpoints only suppress it."""
        suppressed = self._listed("suppress_tokens")
        if (named := self.one("prev_sot_token_id")) is not None or len(suppressed) < 2:
            return named
        return suppressed[-2] if suppressed[-2] in self._ids else None

    def _listed(self, key: str) -> Sequence[int]:
        ids = self._generation.values.get(key) or ()
        if not (isinstance(ids, list | tuple) and all(map(_is_whole, ids))):
            raise _unusable(self._name, self._generation, f"has {key}={ids!r}, which isn't a list of tokens")
        return ids

    def _checked(self, key: str, ids: Iterable[Any]) -> list[int]:
        for i in (ids := list(ids)):
            if not (_is_whole(i) and i in self._ids):
                problem = f"has {i!r} in {key}, which is none of the model's {len(self._ids)} tokens"
                raise _unusable(self._name, self._generation, problem)
        return ids


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unusable(name: str, generation: Generation, problem: str) -> CheckpointError:
    file = f"The {FILE} of model '{name}'"
    if not generation.has_own_file:
        file = f"Model '{name}' has no {FILE}, and its config.json"
    return CheckpointError(f"{file} {problem}: copy that of the model it was tuned from.")
