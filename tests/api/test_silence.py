"""Where nothing is said, nothing is written."""

import numpy as np
import pytest

from specwhisper import SpeculativeWhisper
from tests.nightly import mostly_nightly

SECOND = 16_000


@pytest.fixture(scope="module")
def demo():
    return SpeculativeWhisper("demo-draft-tiny", "demo-target", device="cpu", batch_size=1)


@pytest.mark.parametrize("length_s", mostly_nightly([35, 0.1, 5], by_day=2))
def test_silence_is_an_empty_transcript(demo, length_s):
    silence = np.zeros(int(length_s * SECOND), np.int16)
    for model in (demo, demo.without_draft()):
        result = model.transcribe(silence, language="en")
        assert result.text == ""
        assert result.duration_s == length_s


def test_noise_is_an_empty_transcript(demo):
    noise = np.random.default_rng(0).normal(0, 0.01, 10 * SECOND).astype(np.float32)
    assert demo.transcribe(noise, language="en").text == ""
