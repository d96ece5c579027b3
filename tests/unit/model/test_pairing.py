"""Vocabularies are mapped by token string; incompatible pairs are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.errors import PairMismatch
from specwhisper.model.pairing import draft_ids
from specwhisper.transcription.vocabulary import Vocabulary

OLD = build_checkpoint(Shape(d_model=16, heads=1))[1].vocabulary
NEW = build_checkpoint(Shape(d_model=16, heads=1, cantonese=True))[1].vocabulary
ENGLISH = build_checkpoint(Shape(d_model=16, heads=1, english_only=True))[1].vocabulary


def mapped(draft: Vocabulary, target: Vocabulary) -> list[int | None]:
    return draft_ids(draft, target, draft_name="small-one", target_name="big-one")


def test_equal_vocabularies_map_to_themselves():
    assert mapped(OLD, OLD) == list(range(len(OLD)))


def test_an_older_draft_lacks_only_the_new_language_and_later_ids_shift():
    ids, yue = mapped(OLD, NEW), NEW.languages["yue"]
    assert ids[:yue] == list(range(yue))
    assert ids[yue] is None
    assert ids[yue + 1 :] == list(range(yue, len(OLD)))
    assert ids[NEW.timestamp_begin] == OLD.timestamp_begin == NEW.timestamp_begin - 1


def test_a_newer_draft_has_every_token_of_an_older_target():
    ids = mapped(NEW, OLD)
    assert None not in ids
    assert [NEW.tokens[i] for i in ids] == list(OLD.tokens)


def test_a_few_unknown_words_are_allowed():
    draft = replace(OLD, tokens=("something else", *OLD.tokens[1:]))
    assert mapped(draft, OLD)[:2] == [None, 1]


@pytest.mark.parametrize(
    ("draft", "target", "english"), [(ENGLISH, OLD, "small-one"), (OLD, ENGLISH, "big-one")]
)
def test_english_only_pairs_with_english_only(draft, target, english):
    with pytest.raises(PairMismatch, match=f"'small-one'.*'big-one': {english} is English-only"):
        mapped(draft, target)
    assert None not in mapped(ENGLISH, ENGLISH)


def test_another_tokenizer_is_refused():
    foreign = tuple(f"word {i}" for i in range(OLD.end_of_text))
    draft = replace(OLD, tokens=foreign + OLD.tokens[OLD.end_of_text :])
    with pytest.raises(PairMismatch, match=rf"has 0 of its {OLD.end_of_text} text tokens"):
        mapped(draft, OLD)


def test_a_draft_without_timestamps_is_refused():
    begin = OLD.timestamp_begin
    draft = replace(OLD, tokens=OLD.tokens[:begin], no_timestamps=None)
    with pytest.raises(PairMismatch, match=r"it lacks <\|0.00\|> and 1500 more"):
        mapped(draft, OLD)


def test_padding_ids_of_the_targets_table_need_no_counterpart():
    padding = tuple(f"<|unused{len(OLD) + i}|>" for i in range(6))
    ids = mapped(OLD, replace(OLD, tokens=OLD.tokens + padding))
    assert ids == [*range(len(OLD)), *[None] * 6]
