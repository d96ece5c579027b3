"""A draft that encodes only the audio that there is."""

import numpy as np
import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper.audio.recording import Recording
from specwhisper.errors import UnsupportedOption
from specwhisper.model.backends import load_encoders
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Mode
from tests.encoding import note_encoded

_, CHECKPOINT = build_checkpoint(Shape(seed=2))


def noise(seed: int, length_s: float) -> bytes:
    return np.random.default_rng(seed).normal(0, 3_000, int(length_s * 16_000)).astype("<i2").tobytes()


def recording(length_s: float) -> Recording:
    made = Recording()
    made.append(AudioChunk(0, noise(0, length_s), is_last=True))
    return made


@pytest.mark.parametrize(
    ("length_s", "start_frame", "num_frames"),
    [
        *((0.5, 0, 700), (2.0, 0, 800), (2.1, 0, 900), (33.0, 0, 3_000), (33.0, 3_000, 900)),
        *((1.0, 500, 200), (1.0, 800, 100)),  # windows that begin after the audio
    ],
)
def test_windows_are_cut_after_their_audio(length_s, start_frame, num_frames, monkeypatch):
    encoded = note_encoded(monkeypatch)
    WhisperModel(CHECKPOINT, 1, cut_windows=True).encode(0, recording(length_s), start_frame)
    assert [features.shape for features in encoded] == [(80, num_frames)]


def test_a_clip_of_a_draft_is_cut(monkeypatch):
    encoded = note_encoded(monkeypatch)
    model, whole = WhisperModel(CHECKPOINT, 1), recording(9.0)
    for is_cut in (True, False):
        model.encode(0, whole.clip(100, 250, is_cut=is_cut), 0)
    model.encode(0, whole, 0)
    assert [features.shape[1] for features in encoded] == [900, 3_000, 3_000]


@pytest.mark.parametrize("mode", [Mode.ONE_PROCESS, Mode.SYNC])
def test_the_text_is_the_targets(mode):
    recordings = [noise(1, 3.0), noise(2, 5.5), noise(3, 33.0)]
    target = WhisperModel(CHECKPOINT, 3)
    draft = WhisperModel(CHECKPOINT, 3, cut_windows=True)
    options = DecodingOptions.greedy(word_timestamps=True)
    alone, drafted = (
        InlinePair(target, *drafts, mode=mode, max_new_tokens=24).transcribe(recordings, options)
        for drafts, mode in (((), Mode.TARGET_ONLY), ((draft,), mode))
    )
    assert [text.window_tokens for text in drafted] == [text.window_tokens for text in alone]


def test_a_shared_encoder_encodes_whole_windows(monkeypatch):
    encoded = note_encoded(monkeypatch)
    draft_encoder, encoder = load_encoders(CHECKPOINT, CHECKPOINT, 1)
    WhisperModel(CHECKPOINT, 1, encoder=draft_encoder, cut_windows=True).encode(0, recording(1.0), 0)
    WhisperModel(CHECKPOINT, 1, encoder=encoder).encode(0, recording(1.0), 0)
    assert [features.shape for features in encoded] == [(80, 3_000)]


def test_pytorch_takes_whole_windows_only():
    with pytest.raises(UnsupportedOption, match="on ONNX Runtime only, so on a CPU"):
        WhisperModel(CHECKPOINT, 1, library="pytorch", cut_windows=True)
