"""The Python API and the target server by device map: the same text, from the CPU and from disk."""

import json

import numpy as np
import pytest

from experiments.common.models.checkpoints import Shape, save_checkpoint
from specwhisper import SpeculativeWhisper
from specwhisper.errors import InvalidRequest
from specwhisper.model.backends import split_device_map
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper_target_server.config import TargetConfig, read_device_map
from specwhisper_target_server.server import _placed
from tests.nightly import mostly_nightly

SHAPE = Shape(d_model=32, heads=2, decoder_layers=2, seed=4)
AUDIO = (np.random.default_rng(3).normal(size=64_000) * 0.1).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(save_checkpoint(SHAPE, tmp_path_factory.mktemp("model") / "saved"))


@pytest.mark.parametrize(
    "device_map", mostly_nightly([{"encoder": "disk", "decoder": "cpu"}, "auto", {"": "disk"}])
)
def test_a_mapped_final_model_writes_the_same_text(device_map, folder, tmp_path):
    mapped = SpeculativeWhisper(folder, folder, "cpu", device_map=device_map, offload_folder=tmp_path)
    whisper = SpeculativeWhisper(None, folder, "cpu")
    asked = {"max_new_tokens": 30, "temperature": 0.0}
    written = mapped.transcribe(AUDIO, **asked)
    assert written.window_tokens == whisper.transcribe(AUDIO, **asked).window_tokens
    assert not mapped.shares_encoder


def test_the_target_server_takes_auto_and_a_file(folder, tmp_path):
    assert read_device_map("auto") == "auto"
    file = tmp_path / "map.json"
    file.write_text(json.dumps({"encoder": "disk", "decoder": "cpu"}))
    for device_map in ("auto", read_device_map(file)):
        config = TargetConfig(
            insecure=True, model=folder, device_map=device_map, offload_folder=tmp_path / "offload"
        )
        assert _placed(config, load_checkpoint(folder)).num_slots == config.limits.max_sessions
    assert (tmp_path / "offload" / "encoder").is_dir()
    with pytest.raises(InvalidRequest, match="puts weights on disk: name an offload folder"):
        SpeculativeWhisper(None, folder, "cpu", device_map={"encoder": "disk", "decoder": "cpu"})


def test_a_map_is_split_into_both_parts():
    assert split_device_map(None) == (None, None)
    assert split_device_map({"": 0}) == ({"": 0}, {"": 0})
    assert split_device_map({"layers.0": 0, "norm": 1}) == (None, {"layers.0": 0, "norm": 1})
    assert split_device_map({"encoder": 0, "decoder.layers": 1}) == ({"": 0}, {"layers": 1})
    assert split_device_map({"": 0, "encoder.conv1": 1}) == ({"conv1": 1}, {"": 0})
