"""Weights that are not numbers end a session with an error: their text would be "!!!!"."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape, build_checkpoint
from experiments.common.models.scripted import weights_in_memory
from experiments.exactness.prepared import recording
from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import DeviceMap

PCM = recording(1, 0.5)
ON_PYTORCH = {"": "cpu"}
BACKENDS = pytest.mark.parametrize("device_map", [None, ON_PYTORCH], ids=["onnx", "pytorch"])


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return build_checkpoint(Shape(d_model=16, heads=1, decoder_layers=1, seed=4), "random")[1]


def changed(checkpoint: Checkpoint, name: str, value: float) -> Checkpoint:
    """Return the checkpoint with one other number among its weights."""
    weights = {key: np.array(weight) for key, weight in checkpoint.weights.items()}
    weights[name].reshape(-1)[0] = value
    return replace(checkpoint, weights=weights_in_memory(weights))


def transcribe(checkpoint: Checkpoint, device_map: DeviceMap | None, language: str | None = "en") -> None:
    options = DecodingOptions.greedy(language=language, max_new_tokens=3)
    InlinePair(WhisperModel(checkpoint, 1, device_map=device_map)).transcribe([PCM], options)


@BACKENDS
@pytest.mark.parametrize(
    ("name", "value", "language"),
    [
        ("model.encoder.conv1.bias", np.nan, "en"),
        ("model.encoder.conv1.bias", np.nan, None),
        ("model.decoder.layer_norm.bias", np.inf, "en"),
        ("proj_out.weight", np.nan, "en"),
    ],
)
def test_a_weight_that_is_not_finite_is_an_error(device_map, name, value, language, checkpoint: Checkpoint):
    with pytest.raises(CheckpointError, match=r"Model 'random' in float32 .* weights are not finite, or it"):
        transcribe(changed(checkpoint, name, value), device_map, language)


def test_a_dtype_that_is_too_narrow_is_named(checkpoint: Checkpoint):
    wide = changed(checkpoint, "model.decoder.layer_norm.bias", 1e6)
    transcribe(wide, ON_PYTORCH)
    with pytest.raises(CheckpointError, match=r"in float16 .* too large for this dtype: choose float32"):
        transcribe(replace(wide, dtype="float16"), ON_PYTORCH)


@BACKENDS
def test_a_model_that_suppresses_all_its_tokens_is_an_error(device_map, checkpoint: Checkpoint):
    vocabulary = replace(checkpoint.vocabulary, suppress=tuple(range(len(checkpoint.vocabulary))))
    with pytest.raises(CheckpointError, match="or it suppresses all: fetch or save it again"):
        transcribe(replace(checkpoint, vocabulary=vocabulary), device_map)
