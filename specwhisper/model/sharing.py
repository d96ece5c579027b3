"""Share one encoder between draft and target, so that a window is encoded once.

A distilled draft keeps the encoder of its teacher.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from specwhisper.model.checkpoint import Checkpoint


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


def share_encoder(draft: Checkpoint, target: Checkpoint, num_windows: int) -> tuple[Checkpoint, Checkpoint]:
    """Let both models use the target's encoder if the draft's is equal.

    Parameters
    ----------
    num_windows : most windows kept for the other model: one for each session that may be open.

    Returns
    -------
    Draft and target, unchanged if their encoders differ.
    """
    places = {(p.device, p.dtype) for c in (draft, target) for p in c.encoder.parameters()}
    if len(places) > 1:
        return draft, target
    own, theirs = draft.encoder.state_dict(), target.encoder.state_dict()
    is_same = own.keys() == theirs.keys() and all(torch.equal(own[name], theirs[name]) for name in own)
    if not is_same:
        return draft, target
    windows = EncodedWindows(num_windows)
    return (
        replace(draft, encoder=SharedEncoder(target.encoder, windows)),
        replace(target, encoder=SharedEncoder(target.encoder, windows)),
    )
