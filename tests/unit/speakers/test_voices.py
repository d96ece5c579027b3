"""The speakers of live audio, one voice after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specwhisper.errors import InvalidRequest
from specwhisper_speakers.voices import Voices

ANNA, BEN, CARLA = np.eye(3)


def names_of(voices: Voices, *embeddings: np.ndarray, speech_s: float = 2.0) -> str:
    return "".join(voices.name_of(embedding, speech_s) for embedding in embeddings)


def test_voices_are_named_in_their_order():
    assert names_of(Voices(), BEN, ANNA, BEN, CARLA, ANNA) == "ABACB"


def test_a_similar_voice_is_the_same_speaker():
    voices = Voices(threshold=0.5)
    assert names_of(voices, ANNA, ANNA + 0.5 * BEN, 10 * ANNA, BEN) == "AAAB"


def test_the_mean_of_a_speakers_voice_is_compared():
    nearer = Voices(threshold=0.3)
    nearer.name_of(ANNA, 1.0)
    nearer.name_of(ANNA + 0.6 * BEN, 9.0)
    assert nearer.name_of(ANNA + 1.5 * BEN, 1.0) == "A"  # 0.45 from the first voice
    assert names_of(Voices(threshold=0.3), ANNA, ANNA + 1.5 * BEN) == "AB"


def test_little_speech_makes_no_new_speaker():
    voices = Voices()
    assert voices.name_of(ANNA, 0.4) == "A"
    assert voices.name_of(BEN, 0.4) == "A"
    assert voices.name_of(BEN, 1.4) == "B"


def test_there_are_no_more_speakers_than_allowed():
    assert names_of(Voices(max_speakers=2), ANNA, BEN, CARLA + 0.1 * BEN) == "ABB"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 30)), max_size=30),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_distinct_voices_keep_their_names(spoken, max_speakers):
    voices, names = Voices(max_speakers=max_speakers), {}
    for speaker, speech_s in spoken:
        name = voices.name_of(np.eye(4)[speaker], speech_s)
        if speech_s >= 1.0 and max_speakers is None:
            assert names.setdefault(speaker, name) == name or name in names.values()
        assert ord(name) - ord("A") < (max_speakers or 4)


def test_no_speakers_at_all_are_refused():
    with pytest.raises(InvalidRequest, match="max_speakers"):
        Voices(max_speakers=0)
