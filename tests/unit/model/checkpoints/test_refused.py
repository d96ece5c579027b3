"""Values of a generation config that would change the text are refused, not ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import GenerationConfig

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.generation import CALLER_OPTIONS, FROM_CONFIG, REFUSED, refuse
from specwhisper_text.model import REFUSED_IN_TEXT
from tests.unit.model.checkpoints.folders import change_json

OF_EFFECT = {
    "repetition_penalty": 1.2,
    "no_repeat_ngram_size": 3,
    "min_length": 10,
    "min_new_tokens": 2,
    "min_p": 0.05,
    "typical_p": 0.9,
    "epsilon_cutoff": 0.1,
    "eta_cutoff": 0.1,
    "penalty_alpha": 0.6,
    "guidance_scale": 1.5,
    "token_healing": True,
    "is_assistant": True,
    "cache_implementation": "quantized",
    "bad_words_ids": [[5]],
    "sequence_bias": [[[5], -1.0]],
    "constraints": ["x"],
    "force_words_ids": [[5]],
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 0,
    "exponential_decay_length_penalty": [5, 1.1],
    "max_time": 1.0,
    "stop_strings": ["x"],
    "top_h": 0.5,
    "dola_layers": "high",
    "watermarking_config": {"bias": 2.0},
    "encoder_repetition_penalty": 1.2,
    "encoder_no_repeat_ngram_size": 3,
    "suppress_tokens": [5],
    "begin_suppress_tokens": [5],
}
NEUTRAL = GenerationConfig._get_default_generation_params()
# Beams only, speed only, outputs only, ids of prompts, and what each call sets.
WITHOUT_EFFECT = set(
    "early_stopping length_penalty num_beam_groups diversity_penalty num_return_sequences low_memory "
    "use_mtp use_cache cache_config max_cache_len prefill_chunk_size compile_config disable_compile "
    "continuous_batching_config renormalize_logits remove_invalid_values "
    "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold "
    "prompt_lookup_num_tokens max_matching_ngram_size assistant_early_exit assistant_lookbehind "
    "target_lookbehind assistant_ensemble_weight speculation_type "
    "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate "
    "pad_token_id bos_token_id _from_model_config transformers_version "
    "max_new_tokens temperature top_k top_p "
    "encoder_repetition_penalty encoder_no_repeat_ngram_size".split()
)


@pytest.mark.parametrize("refused", [REFUSED, REFUSED_IN_TEXT])
def test_values_of_effect_are_refused_and_named(refused):
    assert refused.keys() <= OF_EFFECT.keys()
    for field in refused:
        with pytest.raises(CheckpointError, match=rf"^The a\.json of model 'm' sets {field}=.* not offered"):
            refuse("m", "a.json", {field: OF_EFFECT[field]}, refused)
    with pytest.raises(CheckpointError, match=r"min_length=10, bad_words_ids=\[\[5\]\], which"):
        refuse("m", "a.json", {"bad_words_ids": [[5]], "min_length": 10}, refused)


@pytest.mark.parametrize("refused", [REFUSED, REFUSED_IN_TEXT])
def test_transformers_defaults_pass(refused):
    refuse("m", "a.json", {}, refused)
    refuse("m", "a.json", dict.fromkeys(refused), refused)
    refuse("m", "a.json", NEUTRAL, refused)
    refuse("m", "a.json", {"suppress_tokens": [], "cache_implementation": "static"}, refused)


def test_every_field_of_transformers_is_known():
    """A release with another field fails here: say above whether it changes the text."""
    known = {*FROM_CONFIG, *CALLER_OPTIONS, *REFUSED, *WITHOUT_EFFECT}
    assert set(GenerationConfig().to_dict()) <= known
    assert not WITHOUT_EFFECT & REFUSED.keys()


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_a_checkpoint_with_such_a_value_loads_as_a_draft_only(file: str, folder: Path):
    if file == "config.json":
        (folder / "generation_config.json").unlink()
        change_json(folder / file, decoder_start_token_id=1, eos_token_id=2)
    change_json(folder / file, no_repeat_ngram_size=0, repetition_penalty=1.0)
    load_checkpoint(str(folder))
    change_json(folder / file, no_repeat_ngram_size=3)
    with pytest.raises(CheckpointError, match=rf"^The {file} of model '.*' sets no_repeat_ngram_size=3, "):
        load_checkpoint(str(folder))
    load_checkpoint(str(folder), is_draft=True)
