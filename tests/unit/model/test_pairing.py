"""Vocabularies of one tokenizer are mapped by token string; others are translated."""

from dataclasses import replace

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.model.translated import draft_ids

OLD = build_checkpoint(Shape(d_model=16, heads=1))[1].vocabulary
NEW = build_checkpoint(Shape(d_model=16, heads=1, cantonese=True))[1].vocabulary
ENGLISH = build_checkpoint(Shape(d_model=16, heads=1, english_only=True))[1].vocabulary


def test_equal_vocabularies_map_to_themselves():
    assert draft_ids(OLD, OLD) == list(range(len(OLD)))


def test_a_newer_draft_has_every_token_of_an_older_target():
    ids = draft_ids(NEW, OLD)
    assert None not in ids
    assert [NEW.tokens[i] for i in ids] == list(OLD.tokens)


def test_a_few_unknown_words_are_allowed():
    draft = replace(OLD, tokens=("something else", *OLD.tokens[1:]))
    assert draft_ids(draft, OLD)[:2] == [None, 1]


def test_english_only_is_another_tokenizer():
    assert draft_ids(ENGLISH, OLD) is draft_ids(OLD, ENGLISH) is None
    assert draft_ids(ENGLISH, ENGLISH) == list(range(len(ENGLISH)))


def test_a_tenth_of_other_words_is_another_tokenizer():
    foreign = tuple(f"word {i}" for i in range(OLD.end_of_text // 9))
    assert draft_ids(replace(OLD, tokens=foreign + OLD.tokens[len(foreign) :]), OLD) is None


def test_a_draft_without_timestamps_is_translated():
    assert draft_ids(replace(OLD, tokens=OLD.tokens[: OLD.timestamp_begin], no_timestamps=None), OLD) is None


def test_padding_ids_of_the_targets_table_need_no_counterpart():
    padding = tuple(f"<|unused{len(OLD) + i}|>" for i in range(6))
    ids = draft_ids(OLD, replace(OLD, tokens=OLD.tokens + padding))
    assert ids == [*range(len(OLD)), *[None] * 6]
