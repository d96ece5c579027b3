"""The demo pair's drafts: built from the target, distilled, and realigned."""

from __future__ import annotations

import pytest
import torch

from experiments.demo_pair import model
from experiments.demo_pair.evaluation.locality import AHEAD, Locality, go_on
from experiments.demo_pair.training import pieces
from experiments.demo_pair.training.distil import distillation_loss
from experiments.demo_pair.training.pieces import CANTONESE, TARGET_IDS, TINY_IDS
from experiments.demo_pair.training.prefixes import most_tokens, own_prefixes, stack


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    return model.build(TARGET_IDS, **model.TARGET).eval()


def test_tokens_are_translated_to_the_targets_vocabulary_and_back():
    ids = torch.arange(TINY_IDS.size)
    assert torch.equal(pieces.to_tiny(pieces.to_target(ids)), ids)
    assert CANTONESE not in pieces.to_target(ids)
    assert pieces.to_target(torch.tensor(TINY_IDS.first_timestamp)) == TARGET_IDS.first_timestamp
    assert pieces.to_tiny(torch.tensor([-100])).item() == -100


def test_a_layer_that_keeps_all_hidden_units_computes_the_same(target):
    layer = target.model.decoder.layers[0]
    kept = pieces.decoder_layers(target, [0])[0]
    assert kept.fc1.out_features == pieces.FEED_FORWARD
    again = model.build(TARGET_IDS, **model.TARGET).model.decoder.layers[0]
    again.load_state_dict(layer.state_dict())
    pieces.narrow_feed_forward(again, layer.fc1.out_features)
    inside = torch.randn(2, 3, 192)
    before, after = (part.fc2(part.fc1(inside).relu()) for part in (layer, again))
    assert torch.allclose(before, after, atol=1e-5)


def test_drafts_are_built_from_layers_of_the_target(target):
    tiny, distil = pieces.tiny_from(target), pieces.distil_from(target)
    assert len(tiny.model.decoder.layers) == len(pieces.TINY_LAYERS)
    assert len(distil.model.decoder.layers) == len(pieces.DISTIL_LAYERS)
    kept = target.model.decoder.layers[pieces.LOCATING_LAYER].encoder_attn.q_proj.weight
    for draft in (tiny, distil):
        last = draft.model.decoder.layers[-1]
        assert torch.equal(last.encoder_attn.q_proj.weight, kept)
        assert last.fc1.out_features == draft.config.decoder_ffn_dim
    assert not any(p.requires_grad for p in distil.model.encoder.parameters())


def test_a_transcript_is_learnt_from_its_first_token_to_end_of_text():
    v = TINY_IDS
    prefixes = stack([[7, 8, v.end], [9]], v)
    head = [v.start, v.english, v.transcribe]
    assert prefixes.tokens.tolist() == [[*head, 7, 8], [*head, v.end, v.end]]
    assert prefixes.use.tolist() == [[False, False, True, True, True], [False, False, True, False, False]]


def test_prefixes_that_the_model_wrote_are_limited_in_length(target):
    encoded = torch.randn(2, 50, 192)
    assert most_tokens(encoded) == 17
    tokens = own_prefixes(target, encoded, TARGET_IDS, most=5).tokens
    assert tokens.shape == (2, 3 + 4)
    assert (tokens[:, 3] >= TARGET_IDS.first_timestamp).all()  # Whisper's timestamp rules apply


def test_the_distillation_loss_counts_selected_tokens_only():
    wanted, drafted = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    use = torch.tensor([[True, False, True]])
    before = distillation_loss(drafted, wanted, use)
    drafted[0, 1] += 5 * torch.randn(8)
    assert distillation_loss(drafted, wanted, use) == before
    certain = 50 * torch.nn.functional.one_hot(torch.tensor([[1, 2, 3]]), 8).float()
    assert distillation_loss(certain, certain, use) == pytest.approx(0, abs=1e-5)


def test_continuations_do_not_depend_on_the_batch(target):
    encoded = torch.randn(1, 20, 192)
    prefixes = [[TARGET_IDS.start, 5], [TARGET_IDS.start, 6, 7, 8]]
    together = go_on(target, encoded, prefixes, TARGET_IDS.end)
    assert [len(row) for row in together] == [AHEAD, AHEAD]
    assert together[0] == go_on(target, encoded, prefixes[:1], TARGET_IDS.end)[0]


def test_errors_at_the_last_token_are_not_counted(target):
    locality = Locality()
    encoded = torch.randn(1, 20, 192)
    locality.add(target, encoded, [TARGET_IDS.start], right=[1, 2, 3], chosen=[1, 2, 4])
    assert locality.summary() == {"errors": 0, "realigned": 0.0, "mean_run": 0.0}
    locality.add(target, encoded, [TARGET_IDS.start], right=[1, 2, 3], chosen=[9, 2, 3])
    assert locality.num_errors == 1
