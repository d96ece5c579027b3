"""An encoder on PyTorch; on a GPU, each batch size is a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from specwhisper.model.backend import Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.pytorch.checkpoint import empty_encoder, encoder_weights, load_encoder
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.kernels.graphs import CudaGraphs, Run
from specwhisper.model.pytorch.placement import place
from specwhisper.types import WINDOW_FRAMES

BATCHES = (1, 2, 4, 8)  # windows that a GPU encodes at once; more would not be faster


class TorchEncoder:
    """A :class:`specwhisper.model.backend.Encoder` on a device.

    On a GPU a batch is one launch. Launched one by one, its hundreds of kernels would keep Python's lock from
    the thread that runs the forward passes.

    Parameters
    ----------
    device : of the whole encoder, or with a device map of what it offloads.
    device_map : as for :func:`specwhisper.model.pytorch.placement.place`.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: str | torch.device = "cpu",
        *,
        device_map: Mapping[str, int | str] | None = None,
        offload_folder: Path | None = None,
    ) -> None:
        if device_map is None:
            self.module = load_encoder(checkpoint, device)
        else:
            self.module, weights = empty_encoder(checkpoint), encoder_weights(checkpoint)
            main = torch.device(device)
            place(self.module, weights, device_map, offload_folder=offload_folder, main_device=main)
        self._device, self._dtype = (execution_device(self.module), next(self.module.parameters()).dtype)
        self._num_mel_bins = checkpoint.num_mel_bins
        is_captured = self._device.type == "cuda" and device_map is None
        self._capture = CudaGraphs(self._device) if is_captured else None
        self._captured: dict[int, tuple[Tensor, Run[Tensor]]] = {}
        self.max_windows = BATCHES[-1] if self._capture is not None else 1

    @torch.inference_mode()
    def __call__(self, windows: Sequence[Features]) -> Sequence[Tensor]:
        """Encode windows of equal length at once."""
        features = torch.stack([torch.from_numpy(window) for window in windows]).to(self._dtype)
        if self._capture is None:
            return list(self._encode(features.to(self._device)).unbind())
        inputs, run = self._batch(len(windows))
        inputs[: len(windows)].copy_(features.pin_memory(), non_blocking=True)
        encoded = run()[: len(windows)].clone()  # the next batch overwrites the graph's output
        # A model that shares this encoder reads the windows on a stream of its own.
        torch.cuda.current_stream(self._device).synchronize()
        return list(encoded.unbind())

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Capture every batch size, on a GPU."""
        for num_windows in BATCHES if self._capture is not None else ():
            self._batch(num_windows)

    def _encode(self, features: Tensor) -> Tensor:
        encoded: Tensor = self.module(features).last_hidden_state
        return encoded

    def _batch(self, num_windows: int) -> tuple[Tensor, Run[Tensor]]:
        """Return the input of the smallest batch that fits, and what encodes it."""
        size = next(size for size in BATCHES if size >= num_windows)
        if size not in self._captured:
            assert self._capture is not None
            shape = (size, self._num_mel_bins, WINDOW_FRAMES)
            inputs = torch.zeros(shape, dtype=self._dtype, device=self._device)
            self._captured[size] = inputs, self._capture(partial(self._encode, inputs))
        return self._captured[size]
