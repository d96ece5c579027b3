"""A checkpoint on PyTorch: GPUs, device maps, and what else CPUs need."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from specwhisper.model.backend import Encoder, Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.pytorch.checkpoint import DecoderWeights, load_encoder
from specwhisper.model.pytorch.decoder import CachedDecoder, load_decoder_weights
from specwhisper.model.pytorch.kernels.graphs import CAPTURING
from specwhisper.model.pytorch.placement import place

MAX_WINDOWS = 8  # that a GPU encodes at once; more would not be faster


class TorchEncoder:
    """A :class:`specwhisper.model.backend.Encoder` on a device."""

    def __init__(self, checkpoint: Checkpoint, device: str | torch.device = "cpu") -> None:
        self.module = load_encoder(checkpoint, device)
        parameter = next(self.module.parameters())
        self._device, self._dtype = parameter.device, parameter.dtype
        self.max_windows = MAX_WINDOWS if self._device.type == "cuda" else 1

    @torch.inference_mode()
    def __call__(self, windows: Sequence[Features]) -> Sequence[Tensor]:
        """Encode windows of equal length at once."""
        features = torch.stack([torch.from_numpy(window) for window in windows])
        encoded = self.module(features.to(self._device, self._dtype)).last_hidden_state
        return list(encoded.unbind())


class TorchBackend:
    """A :class:`specwhisper.model.backend.Backend`: an encoder, and slots.

    Parameters
    ----------
    encoder : of the checkpoint on the same device, maybe shared with another model.
    device : of the whole model, unless there is a device map.
    device_map : accelerate's map from decoder module (``layers.0``, ...) to device, "cpu" or "disk".
    cross_cache_dtype : "int8" or "float8" rounds the cross-attention cache, which halves the memory of a
        slot; only with static shapes.
    has_static_shapes : whether batches are padded to a few shapes; not with a device map.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        num_slots: int,
        *,
        encoder: Encoder,
        device: str | torch.device = "cpu",
        device_map: dict[str, int | str] | None = None,
        offload_folder: Path | None = None,
        cross_cache_dtype: str | None = None,
        has_static_shapes: bool,
    ) -> None:
        self.num_slots = num_slots
        self.device = torch.empty(0, device=device).device  # with its number
        is_gpu = self.device.type == "cuda"
        self._encoder = encoder
        # A shared encoder keeps single windows, for another thread's stream.
        is_concurrent = is_gpu and has_static_shapes and encoder.max_windows > 1
        self._stream = torch.cuda.Stream(self.device) if is_concurrent else None
        self.max_windows = encoder.max_windows if is_concurrent else 1
        with torch.device("meta"):
            self._decoder = CachedDecoder(checkpoint.sizes, num_slots)
        weights = DecoderWeights(checkpoint)
        load_decoder_weights(self._decoder, weights)
        self._decoder.eval().requires_grad_(False)
        if device_map is not None:
            place(self._decoder, device_map, offload_folder=offload_folder, main_device=self.device)
        else:
            if weights.is_tied:
                self._decoder.tie()
            self._decoder.to(self.device)
        self._decoder.allocate(has_static_shapes=has_static_shapes, cross_cache_dtype=cross_cache_dtype)

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot."""
        return self._decoder.bytes_per_slot

    def warm_up(self, width: int) -> None:
        """Capture the shapes of up to ``width`` tokens a slot, if shapes are static."""
        self._decoder.warm_up(width)

    def inference(self) -> AbstractContextManager[object]:
        """Return torch's inference mode."""
        return torch.inference_mode()

    @torch.inference_mode()
    def encode(self, windows: Sequence[tuple[int, Features]]) -> None:
        """Encode windows, each into its slot, which is emptied.

        On a GPU they are encoded beside the decoder's forward passes. With an encoder that draft and target
        share, they are encoded one by one, on the decoder's stream.
        """
        if self._stream is not None:  # earlier forward passes read these slots
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with nullcontext() if self._stream is None else CAPTURING, torch.cuda.stream(self._stream):
            encoded = self._encoder([features for _, features in windows])
            for (slot, _), of_window in zip(windows, encoded, strict=True):
                self._decoder.prefill_audio(slot, of_window)
        if self._stream is not None:
            self._stream.synchronize()  # forward passes may read the slots from now on

    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Tensor:
        """Append rows of tokens; return logits after the last ones of each."""
        return self._decoder.append(slots, tokens, num_scored, probes).to(self.device)

    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Tensor:
        """Run tokens through an emptied slot; return cross-attention weights of heads."""
        return self._decoder.cross_attention(slot, tokens, heads)

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot."""
        self._decoder.rollback(slot, length)

    def length(self, slot: int) -> int:
        """Return the number of tokens in a slot."""
        return self._decoder.lengths[slot]
