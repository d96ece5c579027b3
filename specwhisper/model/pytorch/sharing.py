"""Share one encoder between draft and target, so that a window is encoded once.

A distilled draft keeps the encoder of its teacher.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from specwhisper.model.checkpoint import Checkpoint
from specwhisper.model.pytorch.checkpoint import ENCODER, load_encoder, read_tensor

ENCODER_SIZES = (
    *("d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"),
    *("num_mel_bins", "max_source_positions", "activation_function"),
)


class EncodedWindows:
    """Encoded windows that two models keep for each other; thread-safe.

    Parameters
    ----------
    num_windows : most windows that are kept; the oldest is dropped first.
    """

    def __init__(self, num_windows: int) -> None:
        self._num_windows = num_windows
        self._kept: OrderedDict[bytes, tuple[SharedEncoder, Any]] = OrderedDict()
        self._lock = Lock()  # draft and target may encode in different threads: the second waits

    def take_or_encode(self, owner: SharedEncoder, features: Tensor) -> Any:
        """Return the other model's encoding, or encode and keep it for the other."""
        key = hashlib.blake2b(features.float().cpu().numpy().tobytes()).digest()
        with self._lock:
            by, encoded = self._kept.get(key, (owner, None))
            if by is not owner:
                del self._kept[key]
                return encoded
            encoded = owner.encoder(features)
            self._kept[key] = (owner, encoded)
            if len(self._kept) > self._num_windows:  # the other model did not need it, or not yet
                self._kept.popitem(last=False)
            return encoded


class SharedEncoder(nn.Module):
    """One model's access to the encoder that it shares with another.

    A model never receives its own encoding: sessions without a draft share nothing.
    """

    def __init__(self, encoder: nn.Module, windows: EncodedWindows) -> None:
        super().__init__()
        self.encoder = encoder
        self._windows = windows

    def forward(self, features: Tensor) -> Any:
        """Encode features, batch x mel bins x frames, or return the other's encoding."""
        return self._windows.take_or_encode(self, features)


def load_encoders(
    draft: Checkpoint,
    target: Checkpoint,
    num_windows: int,
    *,
    draft_device: str | torch.device = "cpu",
    target_device: str | torch.device = "cpu",
) -> tuple[nn.Module, nn.Module]:
    """Load the encoders of draft and target: a single one if they are equal.

    Parameters
    ----------
    num_windows : most windows kept for the other model: one for each session that may be open.

    Returns
    -------
    The encoder of the draft and that of the target.
    """
    devices = [torch.empty(0, device=device).device for device in (draft_device, target_device)]
    if devices[0] == devices[1] and has_same_encoder(draft, target):
        return share(load_encoder(target, target_device), num_windows)
    return load_encoder(draft, draft_device), load_encoder(target, target_device)


def share(encoder: nn.Module, num_windows: int) -> tuple[SharedEncoder, SharedEncoder]:
    """Return two models' access to one encoder; see :func:`load_encoders`."""
    windows = EncodedWindows(num_windows)
    return SharedEncoder(encoder, windows), SharedEncoder(encoder, windows)


def has_same_encoder(draft: Checkpoint, target: Checkpoint) -> bool:
    """Return whether two encoders give the same results on one device."""
    if draft.dtype != target.dtype:
        return False
    if any(getattr(draft.sizes, size) != getattr(target.sizes, size) for size in ENCODER_SIZES):
        return False
    names = [name for name in target.weights if name.startswith(ENCODER)]
    return all(torch.equal(read_tensor(draft, name), read_tensor(target, name)) for name in names)
