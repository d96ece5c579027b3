"""A checkpoint on PyTorch: GPUs, device maps, and what else CPUs need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from specwhisper.model.backend import Encoder, Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.weights import EMBEDDING, PROJECTION
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.decoder import CachedDecoder, decoder_weights, load_decoder_weights
from specwhisper.model.pytorch.placement import empty_encoder, encoder_weights, place, read_tensor


def force_float32_accumulation() -> None:
    """Accumulate a GPU's products in float32: 16-bit sums depend on how a kernel splits the work.

    Nor is float32 rounded to TF32, as the encoder's convolutions would be by default.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def open_decoder(
    checkpoint: Checkpoint,
    num_slots: int,
    *,
    encoder: Encoder | None = None,
    device: str | torch.device = "cpu",
    device_map: dict[str, int | str] | None = None,
    offload_folder: Path | None = None,
    has_static_shapes: bool,
) -> CachedDecoder:
    """Place a checkpoint's decoder and allocate its slots; see :func:`.backends.open_backend`."""
    force_float32_accumulation()
    own = torch.empty(0, device=device).device  # with its number
    with torch.device("meta"):
        decoder = CachedDecoder(checkpoint.sizes, num_slots, encoder)
    read, is_tied = partial(read_tensor, checkpoint), checkpoint.weights.is_same(EMBEDDING, PROJECTION)
    if device_map is not None:
        tensors = decoder_weights(decoder, read, is_tied=is_tied)
        place(decoder, tensors, device_map, offload_folder=offload_folder, main_device=own)
    else:
        load_decoder_weights(decoder, read, is_tied=is_tied)
        decoder.to(own)
    decoder.eval().requires_grad_(False)
    decoder.allocate(own, has_static_shapes=has_static_shapes)
    return decoder


MAX_WINDOWS = 8  # that a GPU encodes at once; more would not be faster


class TorchEncoder:
    """A :class:`specwhisper.model.backend.Encoder` on a device, or by a device map."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: str | torch.device = "cpu",
        *,
        device_map: Mapping[str, int | str] | None = None,
        offload_folder: Path | None = None,
    ) -> None:
        self.module, weights = empty_encoder(checkpoint), encoder_weights(checkpoint)
        if device_map is None:
            self.module.load_state_dict({name: each.to(device) for name, each in weights}, assign=True)
            self.module.requires_grad_(False)
        else:
            main = torch.device(device)
            place(self.module, weights, device_map, offload_folder=offload_folder, main_device=main)
        self._device, self._dtype = execution_device(self.module), next(self.module.parameters()).dtype
        self.max_windows = MAX_WINDOWS if self._device.type == "cuda" and device_map is None else 1

    @torch.inference_mode()
    def __call__(self, windows: Sequence[Features]) -> Sequence[Tensor]:
        features = torch.stack([torch.from_numpy(window) for window in windows]).to(self._dtype)
        return list(self.module(features.to(self._device)).last_hidden_state.unbind())
