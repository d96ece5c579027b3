"""Libraries of models have releases that were tried; their private parts work; their output stays away."""

import accelerate
import huggingface_hub
import onnx
import onnxruntime
import pytest
import torch
import transformers
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from torch import nn
from transformers.utils import logging

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


@pytest.fixture
def settings():
    """Return what the process has set now; the test's changes are undone."""

    def now() -> tuple[int, bool, bool]:
        return logging.get_verbosity(), logging.is_progress_bar_enabled(), are_progress_bars_disabled()

    verbosity, has_bars, has_no_downloads = now()
    yield now
    logging.set_verbosity(verbosity)
    (logging.enable_progress_bar if has_bars else logging.disable_progress_bar)()
    (disable_progress_bars if has_no_downloads else enable_progress_bars)()


@pytest.mark.parametrize("has_bars", [True, False])
@pytest.mark.parametrize("has_downloads", [True, False])
def test_the_callers_settings_return(settings, has_bars, has_downloads):
    logging.set_verbosity_warning()
    (logging.enable_progress_bar if has_bars else logging.disable_progress_bar)()
    (enable_progress_bars if has_downloads else disable_progress_bars)()
    before = settings()
    with pytest.raises(ValueError), compat.quiet_transformers():
        assert settings() == (logging.ERROR, False, not has_downloads)
        raise ValueError
    assert settings() == before
