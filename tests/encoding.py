"""Audio that is encoded, and what is encoded of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from experiments.common.models.scripted import recording
from specwhisper.audio.recording import Recording
from specwhisper.model.backend import Features
from specwhisper.model.onnx.decoder import OnnxEncoder
from specwhisper.types import AudioChunk


def recorded(length_s: float, seed: int = 0) -> Recording:
    """Return a complete recording of noise."""
    made = Recording()
    made.append(AudioChunk(0, recording(length_s, seed), is_last=True))
    return made


def note_encoded(monkeypatch: pytest.MonkeyPatch) -> list[Features]:
    """Return a list to which every window is added that ONNX Runtime encodes from now on."""
    encode, noted = OnnxEncoder.__call__, []

    def encode_and_note(self: OnnxEncoder, windows: Sequence[Features]) -> Sequence[Any]:
        noted.extend(windows)
        return encode(self, windows)

    monkeypatch.setattr(OnnxEncoder, "__call__", encode_and_note)
    return noted
