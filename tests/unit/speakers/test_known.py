"""Names of speakers by samples of their voices."""

from __future__ import annotations

import numpy as np
import pytest

from specwhisper.transcription.speakers import Turn
from specwhisper_speakers.known import named, names_of

ANN, BOB = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]


def test_a_speaker_has_the_name_of_the_nearest_sample():
    voices = {0: [0.1, 5.0, 0.0], 1: [3.0, 2.0, 0.0], 2: [0.0, 0.0, 1.0]}
    assert names_of(voices, {"Ann": ANN, "Bob": BOB}, 0.5) == {0: "Bob", 1: "Ann"}


def test_two_speakers_of_one_sample_are_one():
    names = names_of({0: ANN, 1: [0.9, 0.1, 0.0]}, {"Ann": ANN}, 0.5)
    turns = named([(0.0, 1.0, 0), (1.0, 2.0, 1)], names)
    assert turns == (Turn(0.0, 1.0, "Ann"), Turn(1.0, 2.0, "Ann"))


def test_without_samples_all_have_letters():
    assert names_of({0: ANN}, {}, 0.5) == {}
    assert [turn.speaker for turn in named([(1.0, 2.0, 7), (0.0, 1.0, 3)])] == ["A", "B"]


@pytest.mark.parametrize("threshold", [0.1, 1.9])
def test_the_threshold_decides(threshold):
    is_known = bool(names_of({0: BOB}, {"Ann": ANN}, threshold))
    assert is_known == (threshold > 1.0)


def test_silence_has_no_name():
    assert names_of({0: np.zeros(3)}, {"Ann": ANN}, 0.5) == {}


def test_letters_that_are_names_are_not_given_twice():
    turns = named([(0.0, 1.0, 0), (1.0, 2.0, 1), (2.0, 3.0, 2)], {1: "A"})
    assert [turn.speaker for turn in turns] == ["B", "A", "C"]
