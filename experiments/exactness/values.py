"""Values that a checkpoint's files may have: those that transformers follows, and those that we refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

ABSENT = "absent"  # stands for a key that the file lacks
NO_FILE = "no generation_config.json"
GENERATION, CONFIG, WEIGHTS = "generation_config.json", "config.json", "model.safetensors"


@dataclass(frozen=True, eq=False)
class Value:
    file: str
    key: str
    value: Any
    refused: str = ""  # pattern of the error that we must raise; empty if the value must be taken
    may_refuse: str = ""  # pattern of an error that depends on the options
    neutral: Mapping[str, Any] = field(default_factory=dict)  # for transformers, where ours ignores the value

    @property
    def name(self) -> str:
        text = f"{self.key}={self.value}"
        return text if len(text) <= 60 else f"{text[:59]}…"


def values(generation: Mapping[str, Any]) -> list[Value]:
    """Return all values; ``generation`` is a checkpoint's own generation config, with its special tokens."""
    return [*_lengths(), *_suppressed(generation), *_tokens(generation), *_others(generation), *_config()]


def _each(key: str, *values: Any, file: str = GENERATION, **patterns: str) -> list[Value]:
    return [Value(file, key, value, **patterns) for value in values]


def _lengths() -> list[Value]:
    odd, first = "has {}=.*, which must be at least 1: copy", "max_initial_timestamp_index"
    return [
        *_each("max_length", ABSENT, None, 1, 4, 13, 25, 448, 9_999),
        *_each("max_length", 0, -3, 2.5, "20", refused=odd.format("max_length")),
        # transformers refuses more than the positions leave; ours is cut to them.
        *_each("max_new_tokens", None, 1, 7, 19, 9_999),
        *_each("max_new_tokens", 0, "7", refused=odd.format("max_new_tokens")),
        *_each(first, ABSENT, None, 0, 3, 50, 1_500, 9_999),
        *_each(first, -1, 0.5, refused=f"has {first}=.*, which must be at least 0"),
    ]


def _suppressed(generation: Mapping[str, Any]) -> list[Value]:
    end, beyond = generation["eos_token_id"], 99_999
    lists = (ABSENT, None, [], [-1], [beyond], [3, 9, 9, beyond, -5], [end], list(range(0, end, 3)))
    previous = "takes no prompt|has no likeliest token"  # the last but one stands for <|startofprev|>
    no_list = "which isn't a list of tokens"
    return [
        *_each("suppress_tokens", *lists, may_refuse=previous),
        *_each("begin_suppress_tokens", *lists, may_refuse=previous),
        *_each("suppress_tokens", [1.5], refused=rf"suppress_tokens=\[1\.5\], {no_list}"),
        *_each("begin_suppress_tokens", "1,2", refused=f"='1,2', {no_list}"),
        *_each("suppress_tokens", list(range(9_999)), refused="has no likeliest token"),
    ]


def _tokens(generation: Mapping[str, Any]) -> list[Value]:
    end, languages, tasks = (generation[key] for key in ("eos_token_id", "lang_to_id", "task_to_id"))
    german = languages["<|de|>"]
    some = {token: languages[token] for token in ("<|de|>", "<|fr|>")}
    forced = None, [[1, None], [2, tasks["transcribe"]]], [[1, german], [2, tasks["transcribe"]]]
    stranger = r"has .* in {}, which is none of the model's"
    none = "is missing or old|has no languages|English-only|has an outdated generation_config.json"
    ids = [f"{name}_token_id" for name in ("eos", "decoder_start", "no_timestamps", "prev_sot")]
    return [
        *(Value(GENERATION, key, 99_999, stranger.format(key)) for key in ids),
        *(Value(GENERATION, key, ABSENT, f"has no {key}: copy") for key in ids[:2]),
        *_each("eos_token_id", [end]),
        *_each("eos_token_id", [end, 5], refused="has 2 ids in eos_token_id, but only one can be followed"),
        *_each("no_timestamps_token_id", ABSENT, may_refuse="has no timestamps|detect silence"),
        *_each("prev_sot_token_id", ABSENT, may_refuse="takes no prompt"),
        *_each("pad_token_id", ABSENT),
        *_each("bos_token_id", ABSENT),
        *_each("lang_to_id", ABSENT, may_refuse=none),
        *_each("lang_to_id", some, may_refuse="is unknown to this model"),
        *_each("lang_to_id", some | {"<|xx|>": 99_999}, refused=stranger.format("lang_to_id")),
        *_each("task_to_id", ABSENT, refused="Task '.*' is unknown to this model"),
        *_each("task_to_id", {"transcribe": 99_999}, refused=stranger.format("task_to_id")),
        *_each("is_multilingual", ABSENT),
        *_each("is_multilingual", False, refused="has is_multilingual=false, and languages in lang_to_id"),
        *_each("language", None, "de", "german", "<|de|>"),
        *_each("forced_decoder_ids", *forced),
        *_each("forced_decoder_ids", *forced, file=CONFIG),
        *_each(NO_FILE, "", may_refuse=f"has no timestamps|{none}|takes no prompt|detect silence"),
    ]


def _others(generation: Mapping[str, Any]) -> list[Value]:
    """Return options of a transcription, values that are not offered, and some for words."""
    ignored = {
        "num_beams": (3, 1),
        "logprob_threshold": (-0.1, None),
        "compression_ratio_threshold": (0.5, None),
        "condition_on_prev_tokens": (True, None),
        "task": ("translate", None),
    }
    not_offered = "sets {}=.*, which would change the text and is not offered: remove it"
    refused = {
        "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 2,
        "min_length": 9,
        "min_new_tokens": 5,
        "bad_words_ids": [[5], [7]],
        "sequence_bias": [[[5], -9.0]],
        "forced_eos_token_id": generation["eos_token_id"],
        "exponential_decay_length_penalty": [2, 1.5],
    }
    without_effect = {
        "repetition_penalty": 1.0,
        "no_repeat_ngram_size": 0,
        "min_length": 1,
        "min_new_tokens": 0,
        "temperature": 0.4,
        "top_k": 3,
        "top_p": 0.2,
    }
    no_words = "names no alignment heads"
    return [
        *(Value(GENERATION, key, value, neutral={key: neutral}) for key, (value, neutral) in ignored.items()),
        *(Value(GENERATION, key, value, not_offered.format(key)) for key, value in refused.items()),
        *(Value(GENERATION, key, value) for key, value in without_effect.items()),
        *_each("return_timestamps", ABSENT, True),
        *_each("alignment_heads", ABSENT, may_refuse=no_words),
        *_each("alignment_heads", [[0, 0]]),
        *_each("alignment_heads", [[0, 0], [9, 1]], may_refuse=no_words),
    ]


def _config() -> list[Value]:
    in_config = partial(_each, file=CONFIG)
    return [
        *in_config("scale_embedding", True, False, ABSENT),
        *in_config("activation_function", "relu", "silu", "gelu_new", "quick_gelu"),
        *in_config(
            "activation_function", "none", refused="activation_function='none', which transformers does not"
        ),
        *in_config("encoder_attention_heads", 1, 4, 8),
        *in_config("decoder_attention_heads", 4, 16),
        *in_config("decoder_attention_heads", 7, refused="by 7 attention heads, which leaves a remainder"),
        *in_config("median_filter_width", 1, 3, 11),
        *in_config("median_filter_width", 4, refused="median_filter_width=4, which must be odd"),
        *(Value(CONFIG, key, 0.4) for key in ("dropout", "attention_dropout", "activation_dropout")),
        *(Value(CONFIG, key, 0.9) for key in ("encoder_layerdrop", "decoder_layerdrop")),
        *in_config("use_cache", False),
        *in_config("dtype", "float16"),
        *in_config("apply_spec_augment", True),
        *in_config("pad_token_id", None),
        *in_config("suppress_tokens", [3, 4]),
        *in_config("begin_suppress_tokens", [5, 6]),
        *in_config("max_length", 11),
        *in_config("max_source_positions", 150, 3_000, refused="but windows of 30 s have 1500: choose"),
        *in_config("vocab_size", 500, refused="weights do not fit its sizes"),
        *in_config("decoder_layers", 9, refused="is incomplete: .* weights are missing"),
        *in_config("d_model", None, refused="has d_model=None, which must be a whole number"),
        *(
            Value(WEIGHTS, name, "NaN", "has no likeliest token: its weights are not finite")
            for name in ("model.encoder.conv1.bias", "model.decoder.layers.0.fc1.weight")
        ),
    ]
