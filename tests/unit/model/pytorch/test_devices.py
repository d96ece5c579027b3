"""Devices: what "auto" stands for, and what runs where on GPUs that lack float64 or Triton."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.common.models.checkpoints import Shape, build_checkpoint
from specwhisper import SpeculativeLM, SpeculativeWhisper
from specwhisper.engine import process
from specwhisper.engine.process import prepare_process, resolve_device
from specwhisper.errors import InvalidRequest
from specwhisper.model.pytorch.backend import TorchEncoder, open_decoder
from specwhisper.model.pytorch.operations import logits_device

SHAPE = Shape(d_model=16, heads=1, decoder_layers=2, seed=4)


@pytest.mark.parametrize(
    ("has_cuda", "has_mps", "device"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_is_the_first_device_that_there_is(has_cuda, has_mps, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)
    assert resolve_device("auto") == device
    assert resolve_device("cuda:1") == "cuda:1"
    monkeypatch.setattr(process, "find_spec", lambda name: None)
    assert resolve_device("auto") == "cpu"  # without torch


def test_a_server_and_the_python_api_take_auto(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert prepare_process("auto", None, None) == "cpu"
    assert prepare_process(None, None, None) is None
    assert SpeculativeWhisper(None, "demo-target", "auto").final_model.num_slots == 8


@pytest.mark.parametrize("made", [SpeculativeWhisper, SpeculativeLM])
def test_a_device_that_torch_cannot_use_is_refused(made):
    advice = "device is 'cuda:99', which cannot be used here: .*; choose cpu, or auto"
    with pytest.raises(InvalidRequest, match=advice):
        made(None, "demo-target", device="cuda:99")


def test_tokens_are_chosen_on_the_cpu_for_a_model_on_mps():
    assert logits_device(torch.device("mps:0")) is logits_device(torch.device("cpu")) is None
    assert logits_device(torch.device("cuda:1")) == torch.device("cuda:1")


class Recording(TorchDispatchMode):
    """Records the types of numbers of every tensor that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else [result]
        self.dtypes |= {each.dtype for each in results if isinstance(each, torch.Tensor)}
        return result


def test_encoder_and_decoder_make_no_float64():
    with Recording() as recording:
        _, checkpoint = build_checkpoint(SHAPE)
        encoder = TorchEncoder(checkpoint)
        backend = open_decoder(checkpoint, 2, encoder=encoder, has_static_shapes=False)
        windows = np.zeros((2, checkpoint.num_mel_bins, 3000), np.float32)
        recording.dtypes.clear()
        backend.encode([(0, windows[0])])
        backend.encode([(1, windows[1])])
        with backend.inference():
            backend.append([0, 1], [[1, 2, 3], [4, 5]], [2, 1])
            backend.append([0, 1], [[6], [7, 8]], [1, 1])
        backend.rollback(0, 0)
        weights = backend.cross_attention(0, [1, 2, 3], [(0, 0), (1, 0)])
    assert isinstance(weights, np.ndarray) and backend.device is None
    assert recording.dtypes <= {torch.float32, torch.int64, torch.int32, torch.bool}
