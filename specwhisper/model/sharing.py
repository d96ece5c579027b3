"""Share one encoder between draft and target, so that a window is encoded once.

A distilled draft keeps the encoder of its teacher.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from specwhisper.model.backend import Encoder, Features


@dataclass(frozen=True, eq=False)
class SharedEncoder:
    """One model's access to the encoder that it shares with another; thread-safe.

    A model never receives its own encoding: sessions without a draft share nothing.
    """

    encoder: Encoder
    num_kept: int
    kept: OrderedDict[bytes, tuple[SharedEncoder, Any]]  # encodings for the other model, the oldest first
    lock: Lock  # draft and target may encode in different threads: the second waits

    max_windows = 1  # an encoding may be needed by another thread, or on another stream

    def __call__(self, windows: Sequence[Features]) -> Sequence[Any]:
        """Encode windows one by one, or return the other model's encodings."""
        return [self._encode(features) for features in windows]

    def _encode(self, features: Features) -> Any:
        key = hashlib.blake2b(features.tobytes()).digest()
        with self.lock:
            by, encoded = self.kept.get(key, (self, None))
            if by is not self:
                del self.kept[key]
                return encoded
            (encoded,) = self.encoder([features])
            self.kept[key] = (self, encoded)
            if len(self.kept) > self.num_kept:  # the other model did not need it, or not yet
                self.kept.popitem(last=False)
            return encoded


def share(encoder: Encoder, num_windows: int) -> tuple[SharedEncoder, SharedEncoder]:
    """Return two models' access to one encoder.

    ``num_windows``: most windows kept for the other model: one for each session that may be open.
    """
    shared = encoder, num_windows, OrderedDict[bytes, tuple[SharedEncoder, Any]](), Lock()
    return SharedEncoder(*shared), SharedEncoder(*shared)
