"""Log-mel features equal those of transformers."""

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from specwhisper.audio.mel import log_mel_power, mel_filters, normalise, power_spectrogram


@pytest.mark.parametrize("num_mel_bins", [80, 128])
def test_mel_filters_equal_those_of_transformers(num_mel_bins):
    expected = mel_filter_bank(201, num_mel_bins, 0.0, 8_000.0, 16_000, norm="slaney", mel_scale="slaney")
    np.testing.assert_allclose(mel_filters(num_mel_bins), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("num_mel_bins", [80, 128])
def test_features_of_30_seconds_equal_those_of_transformers(num_mel_bins):
    samples = (np.random.default_rng(1).standard_normal(480_000) * 0.1).astype(np.float32)
    expected = WhisperFeatureExtractor(feature_size=num_mel_bins)(samples, sampling_rate=16_000)
    log_mel = log_mel_power(power_spectrogram(np.pad(samples, 200, mode="reflect")[:-1]), num_mel_bins)
    features = normalise(log_mel, log_mel.max())
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected["input_features"][0], atol=1e-5)


def test_only_whole_frames_are_transformed():
    assert power_spectrogram(np.zeros(400, np.float32)).shape == (1, 201)
    assert power_spectrogram(np.zeros(400 + 160 * 450 + 159, np.float32)).shape == (451, 201)


def test_silence_has_the_lowest_log_mel_value():
    log_mel = log_mel_power(np.zeros((2, 201), np.float32), 80)
    assert log_mel.shape == (80, 2)
    np.testing.assert_allclose(log_mel, -10.0, rtol=1e-6)
