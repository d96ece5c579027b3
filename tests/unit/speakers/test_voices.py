"""Names of speakers: by samples of their voices, or by letters, one voice after the other."""

import numpy as np
import pytest

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.speakers import Turn
from specwhisper_speakers.voices import Voices, named, names_of

ANNA, BEN, CARLA = np.eye(3)
ANN, BOB = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]


def spoken_by(voices: Voices, *embeddings: np.ndarray, speech_s: float = 2.0) -> str:
    return "".join(voices.name_of(embedding, speech_s) for embedding in embeddings)


@pytest.mark.parametrize(
    ("settings", "spoken", "speech_s", "names"),
    [
        pytest.param({}, [BEN, ANNA, BEN, CARLA, ANNA], 2.0, "ABACB", id="in their order"),
        pytest.param({"threshold": 0.5}, [ANNA, ANNA + 0.5 * BEN, 10 * ANNA, BEN], 2.0, "AAAB", id="similar"),
        pytest.param({}, [ANNA, BEN], 0.4, "AA", id="too little speech for a new one"),
        pytest.param({"max_speakers": 2}, [ANNA, BEN, CARLA + 0.1 * BEN], 2.0, "ABB", id="at most two"),
    ],
)
def test_voices_have_names(settings, spoken, speech_s, names):
    assert spoken_by(Voices(**settings), *spoken, speech_s=speech_s) == names


def test_the_mean_of_a_speakers_voice_is_compared():
    nearer = Voices(threshold=0.3)
    nearer.name_of(ANNA, 1.0)
    nearer.name_of(ANNA + 0.6 * BEN, 9.0)
    assert nearer.name_of(ANNA + 1.5 * BEN, 1.0) == "A"  # 0.45 from the first voice
    assert spoken_by(Voices(threshold=0.3), ANNA, ANNA + 1.5 * BEN) == "AB"


def test_no_speakers_at_all_are_refused():
    with pytest.raises(InvalidRequest, match="max_speakers"):
        Voices(max_speakers=0)


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


def test_letters_that_are_names_are_not_given_twice():
    turns = named([(0.0, 1.0, 0), (1.0, 2.0, 1), (2.0, 3.0, 2)], {1: "A"})
    assert [turn.speaker for turn in turns] == ["B", "A", "C"]
