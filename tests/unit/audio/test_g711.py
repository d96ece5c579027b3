"""G.711 becomes the samples that libsndfile writes and reads."""

import io

import numpy as np
import pytest
import soundfile

from specwhisper.audio.decode import G711, decode_g711


@pytest.mark.parametrize("law", G711)
def test_what_was_encoded_is_decoded(law):
    samples = (20_000 * np.sin(np.arange(800) / 7)).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, samples, 8_000, format="RAW", subtype=law)
    decoded = np.frombuffer(decode_g711(file.getvalue(), law), "<i2")
    assert len(decoded) == len(samples)
    assert np.abs(decoded.astype(int) - samples).max() < 1_024  # half a step of the loudest samples
    assert decode_g711(b"", law) == b""


def test_silence_is_silence():
    assert decode_g711(b"\xff" * 3, G711.MULAW) == bytes(6)
