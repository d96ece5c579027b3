"""A draft that encodes only the audio that there is."""

import pytest

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.model.backends import load_encoders
from specwhisper.model.model import WhisperModel
from tests.encoding import note_encoded, recorded

_, CHECKPOINT = build_checkpoint(Shape(seed=2))


@pytest.mark.parametrize(
    ("length_s", "start_frame", "num_frames"),
    [
        *((0.5, 0, 700), (2.0, 0, 800), (2.1, 0, 900), (33.0, 0, 3_000), (33.0, 3_000, 900)),
        *((1.0, 500, 200), (1.0, 800, 100)),  # windows that begin after the audio
    ],
)
def test_windows_are_cut_after_their_audio(length_s, start_frame, num_frames, monkeypatch):
    encoded = note_encoded(monkeypatch)
    WhisperModel(CHECKPOINT, 1, cut_windows=True).encode(0, recorded(length_s), start_frame)
    assert [features.shape for features in encoded] == [(80, num_frames)]


def test_a_clip_of_a_draft_is_cut(monkeypatch):
    encoded = note_encoded(monkeypatch)
    model, whole = WhisperModel(CHECKPOINT, 1), recorded(9.0)
    for is_cut in (True, False):
        model.encode(0, whole.clip(100, 250, is_cut=is_cut), 0)
    model.encode(0, whole, 0)
    assert [features.shape[1] for features in encoded] == [900, 3_000, 3_000]


def test_a_shared_encoder_encodes_whole_windows(monkeypatch):
    encoded = note_encoded(monkeypatch)
    draft_encoder, encoder = load_encoders(CHECKPOINT, CHECKPOINT, 1)
    WhisperModel(CHECKPOINT, 1, encoder=draft_encoder, cut_windows=True).encode(0, recorded(1.0), 0)
    WhisperModel(CHECKPOINT, 1, encoder=encoder).encode(0, recorded(1.0), 0)
    assert [features.shape for features in encoded] == [(80, 3_000)]
