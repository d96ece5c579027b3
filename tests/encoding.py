"""Count what is encoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from specwhisper.model.backend import Features
from specwhisper.model.onnx.encoder import OnnxEncoder


def note_encoded(monkeypatch: pytest.MonkeyPatch) -> list[Features]:
    """Return a list to which every window is added that ONNX Runtime encodes from now on."""
    encode, noted = OnnxEncoder.__call__, []

    def encode_and_note(self: OnnxEncoder, windows: Sequence[Features]) -> Sequence[Any]:
        noted.extend(windows)
        return encode(self, windows)

    monkeypatch.setattr(OnnxEncoder, "__call__", encode_and_note)
    return noted
