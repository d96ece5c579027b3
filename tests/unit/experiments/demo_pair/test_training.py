"""The demo pair's training: its lessons, and how a stopped training continues."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import WhisperForConditionalGeneration

from experiments.demo_pair import model
from experiments.demo_pair.data.phonemes import Phonemes
from experiments.demo_pair.data.tokenizer import TEXT_TOKENS, Vocabulary
from experiments.demo_pair.training import takeover
from experiments.demo_pair.training.checkpoint import Checkpoint
from experiments.demo_pair.training.optimizer import Optimizer
from experiments.demo_pair.training.schedule import COURSES, Schedule, Stage
from experiments.demo_pair.training.train import misread

DEMO = Path(__file__).parents[4] / "specwhisper" / "demo"
VOCABULARY = Vocabulary.of(with_cantonese=True)
SMALL = {"width": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 3, "mels": 80}


def new_recognizer() -> model.Recognizer:
    return model.Recognizer(model.build(VOCABULARY, **SMALL), phonemes=4)


@pytest.mark.parametrize("lessons", COURSES.values(), ids=COURSES)
def test_lessons_follow_each_other_and_each_has_windows(lessons):
    starts = [lesson.start for lesson in lessons]
    assert starts == sorted(starts)
    assert starts[0] == 0
    assert all(sum(lesson.lengths_s.values()) == pytest.approx(1) for lesson in lessons)


def test_a_stopped_training_continues_with_its_lesson():
    assert Schedule(minutes=60, peak=1.0).lesson is COURSES["from nothing"][0]
    assert Schedule(minutes=60, peak=1.0, begin=0.999).lesson.stage is Stage.FULL


def test_new_layers_are_the_identity_until_they_are_trained():
    torch.manual_seed(0)
    recognizer = new_recognizer()
    model.make_identities(recognizer.whisper, first=1)
    tokens, encoded = torch.tensor([[1, 2, 3]]), torch.randn(1, 10, SMALL["width"])
    assert torch.allclose(
        recognizer.decode(tokens, encoded), recognizer.decode(tokens, encoded, depth=1), atol=1e-6
    )
    assert len(recognizer.whisper.model.decoder.layers) == 3


def test_only_text_tokens_are_replaced_by_wrong_ones():
    tokens = torch.tensor([[VOCABULARY.start, *range(100), VOCABULARY.end, VOCABULARY.timestamp(1.0)]])
    rng = np.random.default_rng(0)
    assert torch.equal(misread(tokens, 0.0, rng), tokens)
    wrong = misread(tokens, 1.0, rng)
    is_text = tokens < TEXT_TOKENS
    assert torch.equal(wrong[~is_text], tokens[~is_text])
    assert (wrong[is_text] != tokens[is_text]).float().mean() > 0.9
    assert int(wrong[is_text].max()) < TEXT_TOKENS


def training(path, begin: float = 0.0, minutes: float = 60) -> tuple:
    """Build model, optimiser and schedule; continue from the file if it exists."""
    recognizer, schedule = new_recognizer(), Schedule(minutes, 1.0, begin=begin)
    optimizer = Optimizer(recognizer)
    return recognizer, optimizer, schedule, Checkpoint(path, schedule, optimizer, weights=recognizer)


def learn(recognizer: model.Recognizer, optimizer: Optimizer, schedule: Schedule) -> None:
    """Take one training step on constant data."""
    tokens, encoded = torch.tensor([[1, 2, 3]]), torch.ones(1, 10, SMALL["width"])
    recognizer.zero_grad(set_to_none=True)
    model.token_loss(recognizer.decode(tokens, encoded), tokens).backward()
    optimizer.step(0.01 * schedule.next_rate(Stage.FULL))


def test_a_killed_training_continues_exactly_where_it_was(tmp_path):
    path = tmp_path / "target.state.pt"
    first, optimizer, schedule, checkpoint = training(path, begin=0.25)
    learn(first, optimizer, schedule)
    checkpoint.save()
    second, again, later, _ = training(path)
    assert later.begin == pytest.approx(0.25, abs=1e-3)
    assert later.steps == 1
    for parts in ((first, optimizer, schedule), (second, again, later)):
        schedule.started = later.started = None
        learn(*parts)
    for name, value in first.state_dict().items():
        assert torch.allclose(second.state_dict()[name], value, atol=1e-5), name


def test_a_finished_training_can_be_extended(tmp_path):
    path = tmp_path / "target.state.pt"
    training(path, begin=1.0, minutes=60)[-1].save()
    assert training(path, minutes=60)[2].begin == pytest.approx(1.0)
    assert training(path, minutes=80)[2].begin == pytest.approx(0.75)


def test_the_learning_rate_stays_constant_and_a_new_stage_warms_up():
    schedule = Schedule(60, 1.0, warmup=2, begin=0.5, hold=0.6)
    assert [schedule.next_rate(Stage.HEAD) for _ in range(3)] == pytest.approx([0.5, 1, 1])
    assert schedule.next_rate(Stage.FULL) == pytest.approx(0.5)
    assert Schedule(60, 1.0, warmup=1, begin=0.8, hold=0.6).next_rate() == pytest.approx(0.5, abs=0.01)


def test_training_continues_from_an_exported_target_with_a_new_ctc_head(tmp_path):
    (tmp_path / "phonemes.json").write_text('{"two": ["t", "u"]}')
    path = tmp_path / "target.state.pt"
    takeover.begin(DEMO, tmp_path, path)
    recognizer = model.Recognizer(model.build(VOCABULARY, **model.TARGET), phonemes=3)
    schedule = Schedule(60, 1.0)
    Checkpoint(path, schedule, Optimizer(recognizer), weights=recognizer)
    exported = WhisperForConditionalGeneration.from_pretrained(DEMO / "target", dtype=torch.float32)
    for name, value in exported.state_dict().items():
        assert torch.equal(recognizer.whisper.state_dict()[name], value), name
    assert schedule.lesson.stage is Stage.HEAD


def test_words_are_written_as_phonemes():
    phonemes = Phonemes({"two": ["t", "u"], "tea": ["t", "i"]})
    assert phonemes.size == 4
    assert phonemes.of("Two-tea.") == [2, 3, 0, 2, 1]
