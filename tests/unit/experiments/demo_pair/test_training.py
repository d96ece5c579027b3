"""The demo pair's training: transcripts and drafts."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import torch

from experiments.demo_pair import drafts, model
from experiments.demo_pair.vocabulary import (
    CANTONESE,
    TARGET_IDS,
    TINY_IDS,
    Phonemes,
    to_target,
    to_tiny,
)
from experiments.demo_pair.windows import Segment, Transcriber, Window


def new_recognizer(**shape: int) -> model.Recognizer:
    torch.manual_seed(0)
    config = model.load_config("target")
    config.update(shape)
    return model.Recognizer(model.build(config), phonemes=4)


def test_gaps_and_an_unfinished_sentence_have_no_words():
    tokenizer = SimpleNamespace(
        convert_ids_to_tokens=lambda ids: ["a" * (1 + i % 3) for i in ids],
        encode=lambda text, add_special_tokens: [int(word) for word in text.split()],
    )
    transcriber = Transcriber(tokenizer, TARGET_IDS, Phonemes({}))
    window = Window(np.zeros(0), [Segment(0.5, 1.5, "0 3"), Segment(2.0, None, "6")])
    timed = transcriber.transcript(window, timestamps=True, previous=[])
    stamps = [TARGET_IDS.timestamp(second) for second in (0.5, 1.5, 2.0)]
    assert timed.tokens[3:] == [stamps[0], 0, 3, *stamps[1:], TARGET_IDS.end]
    assert timed.times[3:-1] == [0.5, 0.75, 1.25, 1.5, 2.0]
    assert all(math.isnan(timed.times[i]) for i in (0, 1, 2, -1))


def test_tokens_are_translated_to_the_targets_vocabulary_and_back():
    ids = torch.arange(TINY_IDS.size)
    assert torch.equal(to_tiny(to_target(ids)), ids)
    assert CANTONESE not in to_target(ids)
    assert to_target(torch.tensor(TINY_IDS.first_timestamp)) == TARGET_IDS.first_timestamp
    assert to_tiny(torch.tensor([-100])).item() == -100


def test_drafts_are_built_from_layers_of_the_target():
    target = new_recognizer().whisper
    tiny, distil = drafts.tiny_from(target), drafts.distil_from(target)
    kept = target.model.decoder.layers[drafts.LOCATING_LAYER].encoder_attn.q_proj.weight
    for draft in (tiny, distil):
        assert len(draft.model.decoder.layers) == draft.config.decoder_layers
        last = draft.model.decoder.layers[-1]
        assert torch.equal(last.encoder_attn.q_proj.weight, kept)
        assert last.fc1.out_features == draft.config.decoder_ffn_dim
    assert not any(p.requires_grad for p in distil.model.encoder.parameters())


def test_a_draft_writes_its_own_prefixes_under_whispers_rules_until_the_end():
    target = new_recognizer().whisper
    tokens, use = drafts.own_prefixes(target, torch.randn(2, 50, 192), TARGET_IDS)
    assert tokens.shape == use.shape and tokens.shape[1] <= 3 + 17 - 1
    assert tokens[:, :3].tolist() == [TARGET_IDS.head] * 2
    assert (tokens[:, 3] >= TARGET_IDS.first_timestamp).all()
    for row, used in zip(tokens.tolist(), use.tolist(), strict=True):
        end = row.index(TARGET_IDS.end) if TARGET_IDS.end in row else len(row)
        assert used == [2 <= position < end for position in range(len(row))]
