"""Log-mel features equal those of transformers."""

import numpy as np

from specwhisper.audio.mel import log_mel_power, power_spectrogram


def test_only_whole_frames_are_transformed():
    assert power_spectrogram(np.zeros(400, np.float32)).shape == (1, 201)
    assert power_spectrogram(np.zeros(400 + 160 * 450 + 159, np.float32)).shape == (451, 201)


def test_silence_has_the_lowest_log_mel_value():
    log_mel = log_mel_power(np.zeros((2, 201), np.float32), 80)
    assert log_mel.shape == (80, 2)
    np.testing.assert_allclose(log_mel, -10.0, rtol=1e-6)
