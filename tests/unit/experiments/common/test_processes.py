"""Pinning, and samples as the experiments load them."""

import os

import numpy as np
import pytest
import soundfile

from experiments.common.audio.samples import load_samples
from experiments.common.servers.processes import CAN_PIN, available_cores, on_cores


@pytest.mark.skipif(not CAN_PIN, reason="this system does not pin processes")
def test_pinning_ends_with_its_block():
    before = os.sched_getaffinity(0)
    with pytest.raises(ZeroDivisionError), on_cores([available_cores()[-1]]):
        assert os.sched_getaffinity(0) == {available_cores()[-1]}
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == before


def test_samples_are_sorted_and_long_ones_have_a_log_mel_maximum(tmp_path):
    for name, seconds in (("long", 31), ("short", 1)):
        noise = np.random.default_rng(0).normal(0, 0.1, 16_000 * seconds)
        soundfile.write(tmp_path / f"{name}.wav", noise, 16_000)
    short, long = load_samples([tmp_path / "long.wav", tmp_path / "short.wav"])
    assert (short.name, short.duration_s, short.fits_one_window, short.log_mel_max) == (
        "short.wav",
        1,
        True,
        {},
    )
    assert (long.name, long.duration_s, long.fits_one_window) == ("long.wav", 31, False)
    assert long.log_mel_max.keys() == {80, 128}
