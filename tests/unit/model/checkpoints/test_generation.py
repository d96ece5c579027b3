"""Generation configs are read as transformers reads them; what would change the text is refused."""

import json
from pathlib import Path

import pytest
from transformers import GenerationConfig, WhisperForConditionalGeneration

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.generation import (
    CALLER_OPTIONS,
    FROM_CONFIG,
    REFUSED,
    read_generation,
    refuse,
)
from specwhisper.transcription.windows import MaxLength
from specwhisper_text.model import REFUSED_IN_TEXT
from tests.unit.model.checkpoints.folders import change_json

# What is read of a generation config.
KEYS = (
    *FROM_CONFIG,
    *CALLER_OPTIONS,
    *("lang_to_id", "task_to_id", "language", "no_timestamps_token_id", "prev_sot_token_id"),
    *("max_initial_timestamp_index", "alignment_heads"),
)


def assert_equal(folder: Path) -> None:
    files = [folder / "generation_config.json", folder / "config.json"]
    ours = read_generation(*(json.loads(file.read_text()) if file.exists() else None for file in files))
    model = WhisperForConditionalGeneration.from_pretrained(folder)
    for key in KEYS:
        assert ours.values.get(key) == getattr(model.generation_config, key, None), key
    forced = getattr(model.generation_config, "forced_decoder_ids", None)
    forced = getattr(model.config, "forced_decoder_ids", None) if forced is None else forced
    assert ours.forced == dict(forced or ())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_length": ..., "suppress_tokens": ..., "begin_suppress_tokens": None},
        {"num_beams": 3, "do_sample": True, "language": "de", "task": "translate"},
        {"forced_decoder_ids": [[1, 5], [2, None]]},
        {"eos_token_id": [3, 4], "alignment_heads": [[0, 0]]},
    ],
)
@pytest.mark.parametrize("forced", [..., [[1, 7], [2, 8]]])
def test_a_generation_config_is_read_as_transformers_reads_it(changes, forced, folder: Path):
    change_json(folder / "generation_config.json", **changes)
    change_json(folder / "config.json", forced_decoder_ids=forced)
    assert_equal(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_length": 40, "num_beams": 2, "suppress_tokens": [1, 2, 3], "begin_suppress_tokens": [4]},
        {"forced_decoder_ids": [[1, 5]], "language": "de", "lang_to_id": {"<|de|>": 5}},
        {"no_timestamps_token_id": 9, "task": "translate", "repetition_penalty": 1.5, "eos_token_id": [3, 4]},
        {"max_new_tokens": 9, "min_length": 3, "bad_words_ids": [[5]], "forced_eos_token_id": 5},
    ],
)
def test_an_old_config_stands_for_a_missing_generation_config(changes, folder: Path):
    (folder / "generation_config.json").unlink()
    change_json(folder / "config.json", **changes)
    assert_equal(folder)


@pytest.mark.parametrize("content", ["{", "[]", '{"lang_to_id": 3}'])
def test_a_broken_generation_config_is_an_error(content: str, folder: Path):
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"cannot be loaded from .*: fetch or save it again\."):
        load_checkpoint(str(folder))


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, MaxLength(448)),
        ({"max_length": 30}, MaxLength(30)),
        ({"max_length": ...}, MaxLength(20)),
        ({"max_new_tokens": 7}, 7),
        ({"max_length": ..., "max_new_tokens": 7}, 7),
    ],
)
def test_the_limit_of_tokens_is_transformers(changes, limit, folder: Path, caplog):
    change_json(folder / "generation_config.json", **changes)
    assert load_checkpoint(str(folder)).max_new_tokens == limit
    assert ("names no max_length" in caplog.text) == (limit == MaxLength(20))


def test_suppressed_ids_that_are_no_tokens_are_left_out_as_in_transformers(folder: Path):
    ids = [7, 99_999, 5, -1, 7]
    change_json(folder / "generation_config.json", suppress_tokens=ids, begin_suppress_tokens=ids)
    vocabulary = load_checkpoint(str(folder)).vocabulary
    assert vocabulary.suppress == vocabulary.begin_suppress == (5, 7)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"max_length": 0}, "has max_length=0, which must be at least 1"),
        ({"max_new_tokens": "7"}, "has max_new_tokens='7', which must be at least 1"),
        ({"eos_token_id": 99_999}, "has 99999 in eos_token_id, which is none of the model's 1908 tokens"),
        ({"eos_token_id": [3, 4]}, "has 2 ids in eos_token_id, but only one can be followed"),
        ({"lang_to_id": {"<|de|>": 99_999}}, "has 99999 in lang_to_id, which is none of the model's"),
        ({"suppress_tokens": "1,2"}, "has suppress_tokens='1,2', which isn't a list of tokens"),
        ({"is_multilingual": False}, "has is_multilingual=false, and languages in lang_to_id"),
        ({"eos_token_id": ...}, "has no eos_token_id"),
    ],
)
def test_a_generation_config_that_cannot_be_followed_is_refused(changes, problem: str, folder: Path):
    change_json(folder / "generation_config.json", **changes)
    change_json(folder / "config.json", **changes)
    advice = "copy that of the model it was tuned from"
    with pytest.raises(
        CheckpointError, match=rf"^The generation_config\.json of model '.*' {problem}.*: {advice}"
    ):
        load_checkpoint(str(folder))
    (folder / "generation_config.json").unlink()
    if changes.keys() & FROM_CONFIG:
        without = r"has no generation_config\.json, and its config\.json"
        with pytest.raises(CheckpointError, match=rf"{without} {problem}.*: {advice}"):
            load_checkpoint(str(folder))


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
    for field in refused:
        with pytest.raises(
            CheckpointError, match=rf"^The a\.json of model 'm' sets {field}=7, .* not offered"
        ):
            refuse("m", "a.json", {field: 7}, refused)
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
