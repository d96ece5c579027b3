"""An encoder on PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from specwhisper.model.backend import Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.pytorch.checkpoint import empty_encoder, encoder_weights, load_encoder
from specwhisper.model.pytorch.compat import execution_device
from specwhisper.model.pytorch.placement import place

MAX_WINDOWS = 8  # that a GPU encodes at once; more would not be faster


class TorchEncoder:
    """A :class:`specwhisper.model.backend.Encoder` on a device.

    Parameters
    ----------
    device : where the whole encoder is, or with a device map what it offloads.
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
        self._device, self._dtype = execution_device(self.module), next(self.module.parameters()).dtype
        self.max_windows = MAX_WINDOWS if self._device.type == "cuda" and device_map is None else 1

    @torch.inference_mode()
    def __call__(self, windows: Sequence[Features]) -> Sequence[Tensor]:
        """Encode windows of equal length at once."""
        features = torch.stack([torch.from_numpy(window) for window in windows]).to(self._dtype)
        return list(self.module(features.to(self._device)).last_hidden_state.unbind())
