"""Libraries that run and read models have releases that were tried; their private parts work."""

import accelerate
import huggingface_hub
import onnx
import onnxruntime
import pytest
import torch
import transformers
from torch import nn

from specwhisper.model import backends
from specwhisper.model.checkpoints.files import HUGGINGFACE_HUB
from specwhisper.model.pytorch import compat


@pytest.mark.parametrize(
    ("library", "release"),
    [
        (torch, compat.TORCH),
        (transformers, compat.TRANSFORMERS),
        (accelerate, compat.ACCELERATE),
        (huggingface_hub, HUGGINGFACE_HUB),
        (onnxruntime, backends.ONNXRUNTIME),
        (onnx, backends.ONNX),
    ],
)
def test_libraries_have_the_tested_releases(library, release):
    """Run the tests of models with the new release, then name it where this test reads it."""
    assert library.__version__.rpartition(".")[0] == release


def test_another_release_is_logged_once(monkeypatch, caplog):
    backends.log_untried.cache_clear()
    backends.log_untried()
    assert not caplog.records
    backends.log_untried.cache_clear()
    monkeypatch.setattr(backends, "version", lambda package: "1.33.1")
    backends.log_untried()
    backends.log_untried()
    (record,) = caplog.records
    assert (record.message, record.release, record.tried) == ("onnxruntime was not tried", "1.33.1", "1.32")


def test_the_device_of_an_offloaded_layer_is_that_of_its_hook():
    layer = nn.Linear(2, 2)
    assert compat.execution_device(layer) == torch.device("cpu")
    accelerate.hooks.add_hook_to_module(layer, accelerate.hooks.AlignDevicesHook(execution_device="meta"))
    assert compat.execution_device(layer) == torch.device("meta")
