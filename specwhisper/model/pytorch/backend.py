"""A checkpoint on PyTorch: GPUs, device maps, and what else CPUs need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from specwhisper.model.backend import Encoder, Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.pytorch.checkpoint import DecoderWeights
from specwhisper.model.pytorch.decoder import CachedDecoder, decoder_weights, load_decoder_weights
from specwhisper.model.pytorch.encoder import TorchEncoder
from specwhisper.model.pytorch.kernels.graphs import CAPTURING
from specwhisper.model.pytorch.packed_scorer import PackedScorer
from specwhisper.model.pytorch.placement import place
from specwhisper.model.pytorch.transfer import logits_device
from specwhisper.model.rules import DecodingRules
from specwhisper.model.scoring import LogitsScorer, Probing, Scorer
from specwhisper.model.sharing import SharedEncoder


def add_in_float32() -> None:
    """Let no product of a GPU add in 16 bits: its sum would depend on splits.

    Nor is float32 rounded to TF32, which by default the encoder's convolutions are.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


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
        add_in_float32()
        self.num_slots = num_slots
        own = torch.empty(0, device=device).device  # with its number
        self.device = logits_device(own)
        is_gpu = own.type == "cuda"
        self._encoder = encoder
        # A shared encoder keeps single windows, for another thread's stream.
        is_concurrent = is_gpu and has_static_shapes and encoder.max_windows > 1
        # A forward pass does not wait for an encoder's kernels: they are long, and sessions wait for passes.
        is_static = is_gpu and has_static_shapes
        self._passes = torch.cuda.Stream(own, priority=-1) if is_static else None
        self._encoding = torch.cuda.Stream(own, priority=0) if is_concurrent else self._passes
        self.max_windows = encoder.max_windows if is_concurrent else 1
        with torch.device("meta"):
            self._decoder = CachedDecoder(checkpoint.sizes, num_slots)
        weights = DecoderWeights(checkpoint)
        if device_map is not None:
            tensors = decoder_weights(self._decoder, weights)
            place(self._decoder, tensors, device_map, offload_folder=offload_folder, main_device=own)
        else:
            load_decoder_weights(self._decoder, weights)
            if weights.is_tied:
                self._decoder.tie()
            self._decoder.to(own)
        self._decoder.eval().requires_grad_(False)
        self._decoder.allocate(has_static_shapes=has_static_shapes, cross_cache_dtype=cross_cache_dtype)
        self._has_static_shapes = has_static_shapes
        if self._passes is not None:
            self._passes.wait_stream(torch.cuda.current_stream(own))  # weights are being copied

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot."""
        return self._decoder.bytes_per_slot

    def warm_up(self) -> None:
        """Capture every number of windows and every bucket of tokens, on a GPU."""
        with self.inference():
            self._decoder.warm_up()
        encoder = self._encoder.encoder if isinstance(self._encoder, SharedEncoder) else self._encoder
        if isinstance(encoder, TorchEncoder):
            encoder.warm_up()

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Enter torch's inference mode, and the stream of forward passes."""
        with torch.inference_mode(), torch.cuda.stream(self._passes):
            yield

    @torch.inference_mode()
    def encode(self, windows: Sequence[tuple[int, Features]]) -> None:
        """Encode windows, each into its slot, which is emptied.

        On a GPU they are encoded beside the decoder's forward passes. With an encoder that draft and target
        share, they are encoded one by one, on the decoder's stream.
        """
        is_beside = self._encoding is not self._passes
        if self._encoding is not None and self._passes is not None and is_beside:
            self._encoding.wait_stream(self._passes)  # earlier forward passes read these slots
        with CAPTURING if is_beside else nullcontext(), torch.cuda.stream(self._encoding):
            encoded = self._encoder([features for _, features in windows])
            self._decoder.prefill_audio([slot for slot, _ in windows], torch.stack(list(encoded)))
        if self._encoding is not None:
            # Forward passes may read the slots from now on, and another stream may use the windows' memory.
            self._encoding.synchronize()

    def scorer(self, rules: DecodingRules, probing: Probing) -> Scorer:
        """Return what scores rows of tokens in the slots."""
        if self._has_static_shapes:
            return PackedScorer(self._decoder, rules, probing)
        return LogitsScorer(self.append, rules, probing)

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
        return self._decoder.cross_attention(slot, tokens, heads).to(self.device)

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot."""
        self._decoder.rollback(slot, length)

    def length(self, slot: int) -> int:
        """Return the number of tokens in a slot."""
        return self._decoder.lengths[slot]
