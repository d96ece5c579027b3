"""Share one encoder between draft and target, so that a window is encoded once.

A distilled draft keeps the encoder of its teacher.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from specwhisper.model.backend import Encoder, Features


class EncodedWindows:
    """Encoded windows that two models keep for each other; thread-safe.

    ``num_windows``: most windows that are kept; the oldest is dropped first.
    """

    def __init__(self, num_windows: int) -> None:
        self._num_windows = num_windows
        self._kept: OrderedDict[bytes, tuple[SharedEncoder, Any]] = OrderedDict()
        self._lock = Lock()  # draft and target may encode in different threads: the second waits

    def take_or_encode(self, owner: SharedEncoder, features: Features) -> Any:
        """Return the other model's encoding, or encode and keep it for the other."""
        key = hashlib.blake2b(features.tobytes()).digest()
        with self._lock:
            by, encoded = self._kept.get(key, (owner, None))
            if by is not owner:
                del self._kept[key]
                return encoded
            (encoded,) = owner.encoder([features])
            self._kept[key] = (owner, encoded)
            if len(self._kept) > self._num_windows:  # the other model did not need it, or not yet
                self._kept.popitem(last=False)
            return encoded


class SharedEncoder:
    """One model's access to the encoder that it shares with another.

    A model never receives its own encoding: sessions without a draft share nothing.
    """

    max_windows = 1  # an encoding may be needed by another thread, or on another stream

    def __init__(self, encoder: Encoder, windows: EncodedWindows) -> None:
        self.encoder = encoder
        self._windows = windows

    def __call__(self, windows: Sequence[Features]) -> Sequence[Any]:
        """Encode windows one by one, or return the other model's encodings."""
        return [self._windows.take_or_encode(self, features) for features in windows]


def share(encoder: Encoder, num_windows: int) -> tuple[SharedEncoder, SharedEncoder]:
    """Return two models' access to one encoder.

    ``num_windows``: most windows kept for the other model: one for each session that may be open.
    """
    windows = EncodedWindows(num_windows)
    return SharedEncoder(encoder, windows), SharedEncoder(encoder, windows)
