"""The demo pair's training: when each token is spoken, and the reward for looking there."""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch

from experiments.demo_pair import model
from experiments.demo_pair.alignment import AlignmentLoss, TokenTimes, alignment_heads
from experiments.demo_pair.tokenizer import Vocabulary

VOCABULARY = Vocabulary.of(with_cantonese=True)


def token_times() -> TokenTimes:
    lengths = SimpleNamespace(convert_ids_to_tokens=lambda ids: ["a" * (1 + i % 3) for i in ids])
    return TokenTimes(lengths, VOCABULARY)


def test_text_lies_between_its_timestamps_in_proportion_to_its_letters():
    start, end = VOCABULARY.timestamp(2.0), VOCABULARY.timestamp(5.0)
    times = token_times().of([VOCABULARY.start, start, 0, 1, 2, end, VOCABULARY.end])  # 1, 2 and 3 letters
    assert math.isnan(times[0]) and math.isnan(times[-1])
    assert times[1:-1] == [2.0, 2.25, 3.0, 4.25, 5.0]


def test_the_gap_between_sentences_and_an_unclosed_one_have_no_words():
    stamps = [VOCABULARY.timestamp(second) for second in (0.0, 1.0, 2.0)]
    times = token_times().of([stamps[0], 5, stamps[1], stamps[2], 7])
    assert times[:4] == [0.0, 0.5, 1.0, 2.0]
    assert math.isnan(times[4])


def test_looking_at_the_right_place_costs_less_and_can_be_learnt():
    torch.manual_seed(0)
    recognizer = model.Recognizer(model.build(VOCABULARY, **model.TARGET | {"decoder_layers": 1}))
    alignment_loss = AlignmentLoss(recognizer.whisper)
    encoded = torch.randn(1, 100, model.TARGET["width"])
    tokens, times = torch.tensor([[1, 2, 3]]), torch.tensor([[0.2, 1.0, 1.8]])
    optimizer = torch.optim.Adam(recognizer.parameters(), 1e-3)
    losses = []
    for _ in range(30):
        recognizer.decode(tokens, encoded)
        loss = alignment_loss(encoded, torch.zeros(1, dtype=torch.long), times)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_windows_without_times_cost_nothing():
    recognizer = model.Recognizer(model.build(VOCABULARY, **model.TARGET | {"decoder_layers": 1}))
    alignment_loss = AlignmentLoss(recognizer.whisper)
    encoded = torch.randn(1, 10, model.TARGET["width"])
    recognizer.decode(torch.tensor([[1]]), encoded)
    assert alignment_loss(encoded, torch.zeros(1, dtype=torch.long), torch.tensor([[math.nan]])) == 0


def test_the_last_layers_align():
    assert alignment_heads(6) == [(3, 0), (4, 0), (5, 0)]
    assert alignment_heads(1) == [(0, 0)]
