"""Values that a checkpoint's files may have: those that transformers follows, and those that we refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ABSENT = "absent"  # stands for a key that the file lacks
NO_FILE = "no generation_config.json"
GENERATION, CONFIG, WEIGHTS = "generation_config.json", "config.json", "model.safetensors"


@dataclass(frozen=True, eq=False)
class Value:
    """A value in one of a checkpoint's files."""

    file: str
    key: str
    value: Any
    refused: str = ""  # pattern of the error that we must raise; empty if the value must be taken
    may_refuse: str = ""  # pattern of an error that depends on the options
    # What transformers is given in its place, where we ignore the value and warn of it.
    neutral: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The key and the value, shortened."""
        text = f"{self.key}={self.value}"
        return text if len(text) <= 60 else f"{text[:59]}…"


def values(generation: Mapping[str, Any]) -> list[Value]:
    """Return all values; ``generation`` is a checkpoint's own generation config, with its special tokens."""
    return [*_lengths(), *_suppressed(generation), *_tokens(generation), *_others(generation), *_config()]


def _lengths() -> list[Value]:
    odd, first = "has {}=.*, which must be at least 1: copy", "max_initial_timestamp_index"
    return [
        *(Value(GENERATION, "max_length", value) for value in (ABSENT, None, 1, 4, 13, 25, 448, 9_999)),
        *(Value(GENERATION, "max_length", value, odd.format("max_length")) for value in (0, -3, 2.5, "20")),
        # transformers refuses more than the positions leave; ours is cut to them.
        *(Value(GENERATION, "max_new_tokens", value) for value in (None, 1, 7, 19, 9_999)),
        *(Value(GENERATION, "max_new_tokens", value, odd.format("max_new_tokens")) for value in (0, "7")),
        *(Value(GENERATION, first, i) for i in (ABSENT, None, 0, 3, 50, 1_500, 9_999)),
        *(Value(GENERATION, first, i, rf"has {first}=.*, which must be at least 0") for i in (-1, 0.5)),
    ]


def _suppressed(generation: Mapping[str, Any]) -> list[Value]:
    end, beyond = generation["eos_token_id"], 99_999
    lists = (ABSENT, None, [], [-1], [beyond], [3, 9, 9, beyond, -5], [end], list(range(0, end, 3)))
    previous = r"takes no prompt|has no likeliest token"  # the last but one stands for <|startofprev|>
    return [
        *(
            Value(GENERATION, key, value, may_refuse=previous)
            for key in ("suppress_tokens", "begin_suppress_tokens")
            for value in lists
        ),
        Value(GENERATION, "suppress_tokens", [1.5], r"suppress_tokens=\[1\.5\], which is no list of tokens"),
        Value(GENERATION, "begin_suppress_tokens", "1,2", r"='1,2', which is no list of tokens"),
        Value(GENERATION, "suppress_tokens", list(range(9_999)), r"has no likeliest token"),
    ]


def _tokens(generation: Mapping[str, Any]) -> list[Value]:
    end, languages, tasks = (generation[key] for key in ("eos_token_id", "lang_to_id", "task_to_id"))
    german = languages["<|de|>"]
    some = {token: languages[token] for token in ("<|de|>", "<|fr|>")}
    stranger = r"has .* in {}, which is none of the model's"
    none = "is missing or old|has no languages|English-only|has an outdated generation_config.json"
    return [
        *(
            Value(GENERATION, f"{name}_token_id", 99_999, stranger.format(f"{name}_token_id"))
            for name in ("eos", "decoder_start", "no_timestamps", "prev_sot")
        ),
        *(
            Value(GENERATION, key, ABSENT, f"has no {key}: copy")
            for key in ("eos_token_id", "decoder_start_token_id")
        ),
        Value(GENERATION, "eos_token_id", [end]),
        Value(GENERATION, "eos_token_id", [end, 5], stranger.format("eos_token_id")),
        Value(GENERATION, "no_timestamps_token_id", ABSENT, may_refuse="has no timestamps|detect silence"),
        Value(GENERATION, "prev_sot_token_id", ABSENT, may_refuse="takes no prompt"),
        Value(GENERATION, "pad_token_id", ABSENT),
        Value(GENERATION, "bos_token_id", ABSENT),
        Value(GENERATION, "lang_to_id", ABSENT, may_refuse=none),
        Value(GENERATION, "lang_to_id", some, may_refuse="is unknown to this model"),
        Value(GENERATION, "lang_to_id", some | {"<|xx|>": 99_999}, stranger.format("lang_to_id")),
        Value(GENERATION, "task_to_id", ABSENT, "Task '.*' is unknown to this model"),
        Value(GENERATION, "task_to_id", {"transcribe": 99_999}, stranger.format("task_to_id")),
        Value(GENERATION, "is_multilingual", ABSENT),
        Value(GENERATION, "is_multilingual", False, "has is_multilingual=false, and languages in lang_to_id"),
        *(Value(GENERATION, "language", code) for code in (None, "de", "german", "<|de|>")),
        *(
            Value(file, "forced_decoder_ids", ids)
            for file in (GENERATION, CONFIG)
            for ids in (None, [[1, None], [2, tasks["transcribe"]]], [[1, german], [2, tasks["transcribe"]]])
        ),
        Value(GENERATION, NO_FILE, "", may_refuse=f"has no timestamps|{none}|takes no prompt|detect silence"),
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
        *(Value(GENERATION, "return_timestamps", value) for value in (ABSENT, True)),
        Value(GENERATION, "alignment_heads", ABSENT, may_refuse=no_words),
        Value(GENERATION, "alignment_heads", [[0, 0]]),
        Value(GENERATION, "alignment_heads", [[0, 0], [9, 1]], may_refuse=no_words),
    ]


def _config() -> list[Value]:
    return [
        *(Value(CONFIG, "scale_embedding", value) for value in (True, False, ABSENT)),
        *(Value(CONFIG, "activation_function", name) for name in ("relu", "silu", "gelu_new", "quick_gelu")),
        Value(
            CONFIG, "activation_function", "none", "activation_function='none', which transformers does not"
        ),
        *(Value(CONFIG, "encoder_attention_heads", value) for value in (1, 4, 8)),
        *(Value(CONFIG, "decoder_attention_heads", value) for value in (4, 16)),
        Value(CONFIG, "decoder_attention_heads", 7, "by 7 attention heads, which leaves a remainder"),
        *(Value(CONFIG, "median_filter_width", value) for value in (1, 3, 11)),
        Value(CONFIG, "median_filter_width", 4, "median_filter_width=4, which must be odd"),
        *(Value(CONFIG, key, 0.4) for key in ("dropout", "attention_dropout", "activation_dropout")),
        *(Value(CONFIG, key, 0.9) for key in ("encoder_layerdrop", "decoder_layerdrop")),
        Value(CONFIG, "use_cache", False),
        Value(CONFIG, "dtype", "float16"),
        Value(CONFIG, "apply_spec_augment", True),
        Value(CONFIG, "pad_token_id", None),
        Value(CONFIG, "suppress_tokens", [3, 4]),
        Value(CONFIG, "begin_suppress_tokens", [5, 6]),
        Value(CONFIG, "max_length", 11),
        *(
            Value(CONFIG, "max_source_positions", value, "but windows of 30 s have 1500: choose")
            for value in (150, 3_000)
        ),
        Value(CONFIG, "vocab_size", 500, "weights do not fit its config.json"),
        Value(CONFIG, "decoder_layers", 9, "is incomplete: .* weights are missing"),
        Value(CONFIG, "d_model", None, "has d_model=None, which must be a whole number"),
        *(
            Value(WEIGHTS, name, "NaN", "has no likeliest token: its weights are not finite")
            for name in ("model.encoder.conv1.bias", "model.decoder.layers.0.fc1.weight")
        ),
    ]
