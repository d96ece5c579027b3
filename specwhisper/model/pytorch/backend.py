"""A checkpoint on PyTorch: GPUs, device maps, and what else CPUs need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from specwhisper.model.arrays import Array
from specwhisper.model.backend import Encoder, Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.weights import EMBEDDING, PROJECTION
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.decoder import CachedDecoder, decoder_weights, load_decoder_weights
from specwhisper.model.pytorch.operations import logits_device
from specwhisper.model.pytorch.packed import CAPTURING
from specwhisper.model.pytorch.placement import empty_encoder, encoder_weights, place, read_tensor


def force_float32_accumulation() -> None:
    """Accumulate a GPU's products in float32: 16-bit sums depend on how a kernel splits the work.

    Nor is float32 rounded to TF32, as the encoder's convolutions would be by default.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


class TorchBackend:
    """A :class:`specwhisper.model.backend.Backend`: an encoder, and slots.

    Parameters
    ----------
    encoder : the checkpoint's, on the same device; another model may share it.
    device : where the whole model is, unless there is a device map.
    device_map : accelerate's map from decoder module (``layers.0``, ...) to device, "cpu" or "disk".
    has_static_shapes : whether batches are padded to a few shapes; not with a device map.
    """

    takes_short_windows = False

    def __init__(
        self,
        checkpoint: Checkpoint,
        num_slots: int,
        *,
        encoder: Encoder,
        device: str | torch.device = "cpu",
        device_map: dict[str, int | str] | None = None,
        offload_folder: Path | None = None,
        has_static_shapes: bool,
    ) -> None:
        force_float32_accumulation()
        own = torch.empty(0, device=device).device  # with its number
        self.device = logits_device(own)
        self._encoder = encoder
        self.max_windows = encoder.max_windows
        with torch.device("meta"):
            self._decoder = CachedDecoder(checkpoint.sizes, num_slots)
        read, is_tied = partial(read_tensor, checkpoint), checkpoint.weights.is_same(EMBEDDING, PROJECTION)
        if device_map is not None:
            tensors = decoder_weights(self._decoder, read, is_tied=is_tied)
            place(self._decoder, tensors, device_map, offload_folder=offload_folder, main_device=own)
        else:
            load_decoder_weights(self._decoder, read, is_tied=is_tied)
            self._decoder.to(own)
        self._decoder.eval().requires_grad_(False)
        self._decoder.allocate(has_static_shapes=has_static_shapes)

    @property
    def bytes_per_slot(self) -> int:
        return self._decoder.bytes_per_slot

    def warm_up(self) -> None:
        with torch.inference_mode():
            self._decoder.warm_up()

    def inference(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    @torch.inference_mode()
    def encode(self, windows: Sequence[tuple[int, Features]]) -> None:
        with CAPTURING if self.device is not None else nullcontext():
            encoded = self._encoder([features for _, features in windows])
            self._decoder.prefill_audio([slot for slot, _ in windows], torch.stack(list(encoded)))
        if self.device is not None:
            torch.cuda.current_stream(self.device).synchronize()  # else the next forward pass waits for it

    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Array:
        return self._placed(self._decoder.append(slots, tokens, num_scored, probes))

    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Array:
        return self._placed(self._decoder.cross_attention(slot, tokens, heads))

    def _placed(self, values: Tensor) -> Array:
        return values.numpy(force=True) if self.device is None else values.to(self.device)

    def rollback(self, slot: int, length: int) -> None:
        self._decoder.rollback(slot, length)

    def length(self, slot: int) -> int:
        return self._decoder.lengths[slot]


MAX_WINDOWS = 8  # that a GPU encodes at once; more would not be faster


class TorchEncoder:
    """A :class:`specwhisper.model.backend.Encoder` on a device.

    Parameters
    ----------
    device : where the whole encoder is, or with a device map what it offloads.
    device_map : see :func:`specwhisper.model.pytorch.placement.place`.
    """

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
