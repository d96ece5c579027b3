"""A model with static shapes, as on a GPU, writes the same text as without."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape, build_checkpoint
from experiments.common.models.scripted import recording
from specwhisper.errors import UnsupportedOption
from specwhisper.model.model import WhisperModel
from specwhisper.model.pytorch.backend import TorchEncoder
from specwhisper.model.pytorch.packed import buckets_up_to
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from tests.nightly import mostly_nightly

_, CHECKPOINT = build_checkpoint(Shape(seed=2))
NUM_SLOTS = 3


@pytest.mark.parametrize(
    "options",
    mostly_nightly([DecodingOptions.greedy(), DecodingOptions.greedy(language="en", timestamps=False)]),
)
def test_static_shapes_change_no_text(options):
    recordings = [recording(length_s, seed) for seed, length_s in enumerate((3.0, 2.0, 1.0, 33.0))]
    plain, static = (
        InlinePair(
            WhisperModel(CHECKPOINT, NUM_SLOTS, has_static_shapes=has_static_shapes),
            WhisperModel(CHECKPOINT, NUM_SLOTS, has_static_shapes=has_static_shapes),
            mode=Mode.ONE_PROCESS,
            max_new_tokens=24,
        ).transcribe(recordings, options)
        for has_static_shapes in (False, True)
    )
    assert [text.window_tokens for text in static] == [text.window_tokens for text in plain]
    assert [text.language for text in static] == [text.language for text in plain]


def test_windows_are_encoded_at_once():
    encoder = TorchEncoder(CHECKPOINT)
    windows = list(np.random.default_rng(3).standard_normal((3, 80, 3000), dtype=np.float32))
    for ours, window in zip(encoder(windows), windows, strict=True):
        torch.testing.assert_close(ours, encoder([window])[0], rtol=1e-4, atol=1e-4)


def test_shapes_are_captured_by_warm_up():
    model = WhisperModel(CHECKPOINT, NUM_SLOTS, has_static_shapes=True)
    model.warm_up()
    captured = {*model._backend._decoder._runner._captured}
    assert captured == {*buckets_up_to(NUM_SLOTS, CHECKPOINT.sizes.max_target_positions)}
    WhisperModel(CHECKPOINT, NUM_SLOTS).warm_up()  # captures nothing without static shapes


@pytest.mark.parametrize(
    ("dtype", "settings", "words"),
    [
        ("float32", {"has_static_shapes": True, "device_map": {"": "cpu"}}, "leave the device map out"),
        ("int8", {"has_static_shapes": True}, "int8 weights are for a CPU"),
        ("int8", {"device_map": {"": "cpu"}}, "int8 weights are for a CPU without device map"),
    ],
)
def test_conflicting_settings_are_refused(dtype, settings, words):
    with pytest.raises(UnsupportedOption, match=words):
        WhisperModel(replace(CHECKPOINT, dtype=dtype), 1, **settings)
