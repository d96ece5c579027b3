"""The demo pair's training: its lessons, and what makes a stopped one go on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.demo_pair import model
from experiments.demo_pair.checkpoint import Checkpoint
from experiments.demo_pair.phonemes import Phonemes
from experiments.demo_pair.schedule import LESSONS, Schedule, Stage
from experiments.demo_pair.tokenizer import TEXT_TOKENS, Vocabulary
from experiments.demo_pair.train import misread

VOCABULARY = Vocabulary.of(with_cantonese=True)
SMALL = {"width": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 3, "mels": 80}


def recognizer() -> model.Recognizer:
    return model.Recognizer(model.build(VOCABULARY, **SMALL), phonemes=4)


def test_lessons_follow_each_other_and_each_has_windows():
    starts = [lesson.start for lesson in LESSONS]
    assert starts == sorted(starts)
    assert starts[0] == 0
    assert all(sum(lesson.lengths_s.values()) == pytest.approx(1) for lesson in LESSONS)


def test_a_stopped_training_goes_on_with_its_lesson():
    assert Schedule(minutes=60, peak=1.0).lesson is LESSONS[0]
    assert Schedule(minutes=60, peak=1.0, begin=0.999).lesson.stage is Stage.FULL


def test_layers_that_join_late_change_nothing_until_they_have_learnt():
    torch.manual_seed(0)
    made = recognizer()
    model.make_identities(made.whisper, first=1)
    tokens, encoded = torch.tensor([[1, 2, 3]]), torch.randn(1, 10, SMALL["width"])
    assert torch.allclose(made.decode(tokens, encoded), made.decode(tokens, encoded, depth=1), atol=1e-6)
    assert len(made.whisper.model.decoder.layers) == 3


def test_only_text_is_misread():
    tokens = torch.tensor([[VOCABULARY.start, *range(100), VOCABULARY.end, VOCABULARY.timestamp(1.0)]])
    rng = np.random.default_rng(0)
    assert torch.equal(misread(tokens, 0.0, rng), tokens)
    wrong = misread(tokens, 1.0, rng)
    is_text = tokens < TEXT_TOKENS
    assert torch.equal(wrong[~is_text], tokens[~is_text])
    assert (wrong[is_text] != tokens[is_text]).float().mean() > 0.9
    assert int(wrong[is_text].max()) < TEXT_TOKENS


def test_a_checkpoint_restores_weights_and_progress(tmp_path):
    path = tmp_path / "target.state.pt"
    first = recognizer()
    Checkpoint(path, Schedule(60, 1.0, begin=0.25), weights=first).save(now=True)
    second, schedule = recognizer(), Schedule(60, 1.0)
    Checkpoint(path, schedule, weights=second)
    assert schedule.begin == pytest.approx(0.25, abs=1e-3)
    assert all(torch.equal(second.state_dict()[name], value) for name, value in first.state_dict().items())


def test_words_are_spelt_as_they_sound():
    phonemes = Phonemes({"two": ["t", "u"], "tea": ["t", "i"]})
    assert phonemes.size == 4
    assert phonemes.of("Two-tea.") == [2, 3, 0, 2, 1]
