"""The demo pair's training: times of tokens, and the alignment loss."""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch

from experiments.demo_pair import model
from experiments.demo_pair.data.phonemes import Phonemes
from experiments.demo_pair.data.tokenizer import Vocabulary
from experiments.demo_pair.data.windows import Segment, Transcriber
from experiments.demo_pair.training.alignment import AlignmentLoss, alignment_heads, spread

VOCABULARY = Vocabulary.of(with_cantonese=True)


def transcriber() -> Transcriber:
    tokenizer = SimpleNamespace(
        convert_ids_to_tokens=lambda ids: ["a" * (1 + i % 3) for i in ids],
        encode=lambda text, add_special_tokens: [int(word) for word in text.split()],
    )
    return Transcriber(tokenizer, VOCABULARY, Phonemes({}))


def test_times_of_tokens_are_spread_over_their_sentence_by_number_of_letters():
    assert spread([1, 2, 3], 2.0, 5.0) == [2.25, 3.0, 4.25]


def test_gaps_and_an_unfinished_sentence_have_no_words():
    sentences = [Segment(0.5, 1.5, "0 3"), Segment(2.0, None, "6")]
    timed = transcriber().transcript(sentences, timestamps=True, previous=[])
    stamps = [VOCABULARY.timestamp(second) for second in (0.5, 1.5, 2.0)]
    assert timed.tokens[3:] == [stamps[0], 0, 3, *stamps[1:], VOCABULARY.end]
    assert timed.times[3:-1] == [0.5, 0.75, 1.25, 1.5, 2.0]
    assert all(math.isnan(timed.times[i]) for i in (0, 1, 2, -1))


def test_words_have_times_without_timestamp_tokens():
    plain = transcriber().transcript([Segment(4.0, 5.0, "0 3")], timestamps=False, previous=["9"])
    assert plain.given == 3  # the previous text is the prompt
    assert plain.times[-3:-1] == [4.25, 4.75]


def test_training_reduces_the_alignment_loss():
    torch.manual_seed(0)
    recognizer = model.Recognizer(model.build(VOCABULARY, **model.TARGET | {"decoder_layers": 1}), phonemes=4)
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


def test_windows_without_times_have_no_alignment_loss():
    recognizer = model.Recognizer(model.build(VOCABULARY, **model.TARGET | {"decoder_layers": 1}), phonemes=4)
    alignment_loss = AlignmentLoss(recognizer.whisper)
    encoded = torch.randn(1, 10, model.TARGET["width"])
    recognizer.decode(torch.tensor([[1]]), encoded)
    assert alignment_loss(encoded, torch.zeros(1, dtype=torch.long), torch.tensor([[math.nan]])) == 0


def test_alignment_heads_are_in_the_first_layers():
    assert alignment_heads(8) == [(1, 0), (2, 0), (3, 0)]
    assert alignment_heads(1) == [(0, 0)]
